"""What one step of the drop-in costs beside a plain optimizer, on the device that JAX finds.

    python benchmarks/dropin.py                 # ResNet-18, batch 512; on a CPU a toy, to see that it runs

Ratios within one run: seconds to compile one update over those of `optax.adamw`; a training step with SAMUEL over the
same step with its base alone, and over the same step with Adam; and the optimizer alone over the time in which the
device copies the bytes that it must move.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax

from samuel.jax import SamuelState, samuel, scale_by_muon

STEPS = 25_600


def optimizers() -> dict[str, tuple[str, optax.GradientTransformation]]:
    """Name of each, and of the plain optimizer it is compared with."""
    return {
        "adam": ("adam", optax.adam(1e-3)),
        "adamw": ("adam", optax.adamw(1e-3)),
        "optax.contrib.muon": ("adam", optax.contrib.muon(1e-3)),
        "scale_by_muon": ("scale_by_muon", optax.chain(scale_by_muon(), optax.scale(-1e-3))),
        "samuel": ("scale_by_muon", samuel()),
        "samuel, steps given": ("scale_by_muon", samuel(steps=STEPS)),
        "samuel, steps given, bfloat16 state": ("scale_by_muon", samuel(steps=STEPS, state_dtype="bfloat16")),
        "samuel over adam": ("adam", samuel("adam")),
        "samuel over adam, steps given": ("adam", samuel("adam", steps=STEPS)),
    }


# A ResNet-18 for small images, in bfloat16 with float32 parameters


def conv(key: jax.Array, size: int, channels_in: int, channels_out: int) -> jax.Array:
    return jax.random.normal(key, (size, size, channels_in, channels_out)) * (2 / (size * size * channels_in)) ** 0.5


def resnet(key: jax.Array, width: int) -> Any:
    keys = iter(jax.random.split(key, 64))
    norm = lambda n: {"scale": jnp.ones(n), "bias": jnp.zeros(n)}  # noqa: E731
    params: dict[str, Any] = {"stem": conv(next(keys), 3, 3, width), "norm": norm(width), "blocks": []}
    channels = width
    for stage in range(4):
        for _ in range(2):
            out = width * 2**stage
            block = {"a": conv(next(keys), 3, channels, out), "na": norm(out)}
            block |= {"b": conv(next(keys), 3, out, out), "nb": norm(out)}
            if channels != out:
                block["skip"] = conv(next(keys), 1, channels, out)
            params["blocks"].append(block)
            channels = out
    params["head"] = jax.random.normal(next(keys), (channels, 10)) / channels**0.5
    return params


def apply_conv(x: jax.Array, kernel: jax.Array, stride: int = 1) -> jax.Array:
    numbers = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(x, kernel.astype(x.dtype), (stride, stride), "SAME", dimension_numbers=numbers)


def apply_norm(x: jax.Array, norm: dict[str, jax.Array]) -> jax.Array:
    wide = x.astype(jnp.float32)
    mean = wide.mean((0, 1, 2))
    variance = (wide**2).mean((0, 1, 2)) - mean**2
    factor = norm["scale"] * jax.lax.rsqrt(variance + 1e-5)
    return (wide * factor + (norm["bias"] - mean * factor)).astype(x.dtype)


def loss(params: Any, images: jax.Array, labels: jax.Array) -> jax.Array:
    x = jax.nn.relu(apply_norm(apply_conv(images, params["stem"]), params["norm"]))
    for number, block in enumerate(params["blocks"]):
        stride = 2 if "skip" in block and number > 0 else 1
        y = jax.nn.relu(apply_norm(apply_conv(x, block["a"], stride), block["na"]))
        y = apply_norm(apply_conv(y, block["b"]), block["nb"])
        x = jax.nn.relu(y + (apply_conv(x, block["skip"], stride) if "skip" in block else x))
    logits = x.mean((1, 2)).astype(jnp.float32) @ params["head"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


# Measuring


def milliseconds(step: Callable[..., Any], carry: Any, steps: int, repeats: int) -> float:
    """Median over the repeats of the mean time of a step; the carry is donated from step to step."""
    for _ in range(3):
        carry = step(carry)
    jax.block_until_ready(carry)
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        for _ in range(steps):
            carry = step(carry)
        jax.block_until_ready(carry)
        times.append((time.perf_counter() - begin) / steps * 1e3)
    return statistics.median(times)


def compile_seconds(tx: optax.GradientTransformation, params: Any) -> float:
    """Seconds to trace and compile one update, without any cache."""
    state = tx.init(params)
    jax.clear_caches()
    begin = time.perf_counter()
    jax.jit(tx.update).lower(params, state, params).compile()
    return time.perf_counter() - begin


def copied(tree: Any) -> Any:
    return jax.tree.map(jnp.copy, tree)


def bytes_of(tree: Any) -> int:
    return sum(leaf.nbytes for leaf in jax.tree.leaves(tree))


def must_move(state: Any, params: Any) -> int:
    """Bytes that one step of an optimizer must move at least.

    The gradient is read twice (for the products and for the direction) and the update written; direction sum and lag
    are read twice and written once, the base's state is read and written, and so is the average, for which the
    parameters are read.
    """
    found = [s for s in jax.tree.leaves(state, is_leaf=_is_samuel) if _is_samuel(s)]
    if not found:
        return 2 * bytes_of(params) + 2 * bytes_of(state)
    ours = found[0]
    average = 0 if ours.average is None else 2 * bytes_of(ours.average) + bytes_of(params)
    sums = 3 * bytes_of((ours.sum, ours.lag))
    return 3 * bytes_of(params) + sums + 2 * bytes_of(ours.base) + average


def _is_samuel(node: Any) -> bool:
    return isinstance(node, SamuelState)


def copy_rate(size: int) -> float:
    """Bytes per millisecond of a plain copy, read and written bytes counted."""
    array = jnp.arange(size // 4, dtype=jnp.float32)
    copy = jax.jit(lambda x: x + 1, donate_argnums=0)
    return 2 * array.nbytes / milliseconds(copy, array, steps=20, repeats=5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="a toy network and few steps, as on a CPU")
    parser.add_argument("--only", default="", help="only optimizers whose name contains this (plain ones always run)")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    arguments = parser.parse_args()
    arguments.tiny |= jax.default_backend() == "cpu"
    width, batch, steps, inner, repeats = (8, 8, 2, 2, 1) if arguments.tiny else (64, 512, 30, 100, 5)

    keys = jax.random.split(jax.random.key(0), 3)
    params = resnet(keys[0], width)
    images = jax.random.normal(keys[1], (batch, 32, 32, 3), jnp.bfloat16)
    labels = jax.random.randint(keys[2], (batch,), 0, 10)
    gradient = jax.tree.map(lambda p: jax.random.normal(keys[2], p.shape), params)
    rate = copy_rate(2**20 if arguments.tiny else 2**31)
    parameters = bytes_of(params) // 4
    device = jax.devices()[0].device_kind
    print(f"{device}, JAX {jax.__version__}, {parameters:,} parameters, batch {batch}; copies {rate / 1e9:.2f} TB/s")
    heads = ("compile", "ratio", "step", "/ base", "/ adam", "alone", "copy", "ratio", "copies")
    print(f"{'':36s}" + "".join(f"{head:>9s}" for head in heads))

    rows: list[dict[str, Any]] = []
    facts = {
        "command": " ".join(["python benchmarks/dropin.py", *sys.argv[1:]]),
        "device": device,
        "date": datetime.date.today().isoformat(),
        "jax": jax.__version__,
        "parameters": parameters,
        "batch": batch,
        "copy_TB_per_s": rate / 1e9,
    }
    # Compiling takes minutes: what is measured before a stop stays in a file beside the one asked for.
    part = arguments.json and arguments.json.with_name(f"{arguments.json.name}.part")
    for name, (plain, tx) in optimizers().items():
        if arguments.only not in name and name not in ("adam", "adamw", "scale_by_muon"):
            continue

        @jax.jit
        def fresh(tx=tx):
            return copied(params), tx.init(params)

        def train(carry, tx=tx):
            params, state = carry
            updates, state = tx.update(jax.grad(loss)(params, images, labels), state, params)
            return optax.apply_updates(params, updates), state

        def alone(carry, tx=tx):
            """Many updates in one program, so that the host plays no part; each is the next one's gradient."""
            return jax.lax.fori_loop(0, inner, lambda _, carry: tx.update(*carry, params), carry)

        compiling = compile_seconds(tx, params)
        step = milliseconds(jax.jit(train, donate_argnums=0), fresh(), steps, repeats)
        begun = copied(gradient), jax.jit(tx.init)(params)
        solo = milliseconds(jax.jit(alone, donate_argnums=0), begun, 2, repeats) / inner
        state = jax.eval_shape(fresh)[1]
        state = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), state)
        copy = must_move(state, params) / rate
        row = {
            "name": name,
            "compile_s": compiling,
            "compile_ratio": compiling / next((r["compile_s"] for r in rows if r["name"] == "adamw"), compiling),
            "step_ms": step,
            "step_ratio": step / next((r["step_ms"] for r in rows if r["name"] == plain), step),
            "step_over_adam": step / next((r["step_ms"] for r in rows if r["name"] == "adam"), step),
            "alone_ms": solo,
            "copy_ms": copy,
            "alone_ratio": solo / copy,
            "copies": bytes_of(state) / bytes_of(params),
        }
        rows.append(row)
        print(
            f"{name:36s}{compiling:9.2f}{row['compile_ratio']:9.2f}{step:9.3f}{row['step_ratio']:9.3f}"
            f"{row['step_over_adam']:9.3f}{solo:9.3f}{copy:9.3f}{row['alone_ratio']:9.2f}{row['copies']:9.2f}",
            flush=True,
        )
        if part:
            part.write_text(json.dumps(facts | {"optimizers": rows}, indent=1) + "\n")
    if part:
        part.replace(arguments.json)


if __name__ == "__main__":
    main()
