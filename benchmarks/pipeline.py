"""Does the input pipeline keep up? Images per second that it decodes, beside those that a network learns from.

    python benchmarks/pipeline.py [IMAGES] [--json FILE] [--cache FOLDER]

IMAGES is an image folder or an archive of one; without it, Imagenette from the folder of shared data, if it is there.
An archive is unpacked once, into the cache.

    decode      the pipeline alone, training crops of 112 pixels, batches of 64: with one worker, and with all cores
    train       ResNet-50 at batch 16 on the device that JAX finds, from one batch that is already there

The pipeline must be the faster of the two: the ratio decode / train must be above 1. Each is measured with the machine
to itself, and is the median of several runs.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

from samuel_lab.data.decoding import cores
from samuel_lab.data.folders import Folder, image_folder
from samuel_lab.data.pipeline import MEAN, STD, Pipeline

IMAGES = Path(__file__).parents[1] / ".." / "shared" / "data" / "imagenette-128px.tar.xz"
SIZE = 112
BATCH = 64
STEPS = 10
REPEATS = 5
TRAIN_BATCH = 16
TRAIN_STEPS = 2


def rate(work: Callable[[], Any], images: int, repeats: int = REPEATS) -> float:
    """Images per second, the median over the repeats."""
    rates = []
    for _ in range(repeats):
        begin = time.perf_counter()
        work()
        rates.append(images / (time.perf_counter() - begin))
    return statistics.median(rates)


def decode(folder: Folder, workers: int) -> float:
    """Images per second of the pipeline alone."""
    with Pipeline(folder.train, BATCH, size=SIZE, workers=workers) as pipeline:
        steps = iter(range(10**9))

        def some() -> None:
            for _ in range(STEPS):
                pipeline.batch(next(steps))

        some()  # starts the workers, and empties what was decoded ahead meanwhile
        return rate(some, STEPS * BATCH)


def train(folder: Folder) -> tuple[str, float]:
    """Images per second of training alone, and the device it is on."""
    import jax
    import jax.numpy as jnp
    import optax

    from samuel_lab.data.batches import normalised
    from samuel_lab.models import ResNet50, Task

    with Pipeline(folder.train, TRAIN_BATCH, size=SIZE, workers=1, prefetch=0) as pipeline:
        images, labels = pipeline.batch(0)
    batch = normalised(jnp.asarray(images), MEAN, STD), jnp.asarray(labels)
    task = Task(ResNet50(classes=len(folder.classes)), batch[0][:1], len(folder.classes))
    optimizer = optax.sgd(0.1, momentum=0.9, nesterov=True)

    def step(carry: Any, batch: Any) -> Any:
        params, model_state, memory = carry

        def loss(params: Any) -> Any:
            value, after, _ = task.loss(params, model_state, batch, jax.random.key(0))
            return value, after

        (_, model_state_after), gradient = jax.value_and_grad(loss, has_aux=True)(params)
        updates, memory = optimizer.update(gradient, memory, params)
        return optax.apply_updates(params, updates), model_state_after, memory

    jitted = jax.jit(step, donate_argnums=0)
    params, model_state = task.init(jax.random.key(0))
    carry = (params, model_state, optimizer.init(params))
    carry = jitted(carry, batch)  # compiles
    jax.block_until_ready(carry)

    def some() -> None:
        nonlocal carry
        for _ in range(TRAIN_STEPS):
            carry = jitted(carry, batch)
        jax.block_until_ready(carry)

    return jax.devices()[0].device_kind, rate(some, TRAIN_STEPS * TRAIN_BATCH, repeats=3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", nargs="?", type=Path, default=IMAGES, help="an image folder, or an archive of one")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--cache", type=Path, help="where to unpack to")
    arguments = parser.parse_args()
    if arguments.images == IMAGES and not IMAGES.exists():
        print(f"there is no {IMAGES.name} in {IMAGES.parent}: give the path of an image folder or an archive of one")
        return
    folder = image_folder(arguments.images, arguments.cache)
    decoded = {workers: decode(folder, workers) for workers in sorted({1, cores()})}
    device, trained = train(folder)
    ratio = decoded[cores()] / trained
    for workers, images in decoded.items():
        print(f"decode, {workers} worker{'s' * (workers > 1)}: {images:7.0f} images per second")
    print(f"train, {device}: {trained:7.0f} images per second (ResNet-50, {SIZE} pixels, batch {TRAIN_BATCH})")
    print(f"ratio {ratio:.1f}: the pipeline is {'fast enough' if ratio > 1 else 'TOO SLOW'}")
    if arguments.json:
        results = {
            "date": str(date.today()),
            "machine": platform.machine(),
            "cores": cores(),
            "device": device,
            "size": SIZE,
            "decoded_per_second": {str(workers): round(images, 1) for workers, images in decoded.items()},
            "trained_per_second": round(trained, 1),
            "ratio": round(ratio, 2),
        }
        arguments.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    raise SystemExit(ratio <= 1)


if __name__ == "__main__":
    main()
