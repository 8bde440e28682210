"""What do N experts cost? The engine's step as a ratio to N training steps of one network, in one run.

    python benchmarks/engine.py [--json FILE]

    scan   8 experts of an MLP with 0.67 million parameters, batch 2048:        at most 1.02 of 8 single steps
    map    40 experts (8 levels x 5 rates) of a small MLP, 64-32-10, batch 16:  at most 1/4 of 40 single steps

One core. A single step is what anyone would write: gradient, optimizer and update in one jitted function with donated
buffers, called once for every network, each with parameters of its own. Both are measured by turns, in processor time
of the whole process, and the median of the ratios is reported.

What `scan` adds is reading an expert from the stacked arrays and writing it back, which is a copy of its parameters
and optimizer state; so the ratio falls with the work that each parameter does in a step: here 6 operations times 2048
inputs. A ResNet-18 at the paper's batch of 512 does ten times as much.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

# One core, before any numerical library starts its threads.
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

import jax
import jax.numpy as jnp
import numpy as np

from samuel.core import Cover, Fixed, Geometric
from samuel.jax.bases import scale_by_discounted_rss
from samuel.jax.experts import Experts


class Case(NamedTuple):
    placement: str
    layers: tuple[int, ...]
    batch: int
    learning_rates: tuple[float, ...]
    cover: Cover
    limit: float
    """The cost, as a share of single steps, that must not be exceeded."""
    steps: int
    """Steps of every network in one measurement."""
    repeats: int


CASES = (
    Case("scan", (784, 512, 512, 10), 2048, tuple(0.1 * 0.5**place for place in range(8)), Fixed(1000), 1.02, 1, 7),
    Case("map", (64, 32, 10), 16, (0.05, 0.1, 0.25, 0.5, 1.0), Geometric(25_600, shortest=200), 0.25, 20, 25),
)


def network(layers: tuple[int, ...]) -> list[dict[str, jax.Array]]:
    """The parameters of an MLP."""
    rng = np.random.default_rng(0)
    shapes = pairwise(layers)
    return [
        {"w": jnp.asarray(rng.normal(size=shape) / shape[0] ** 0.5, jnp.float32), "b": jnp.zeros(shape[1])}
        for shape in shapes
    ]


def loss_fn(params, model_state, batch, key):
    """Cross-entropy of an MLP."""
    hidden, labels = batch
    for layer in params[:-1]:
        hidden = jax.nn.relu(hidden @ layer["w"] + layer["b"])
    scores = jax.nn.log_softmax(hidden @ params[-1]["w"] + params[-1]["b"])
    return -jnp.mean(jnp.take_along_axis(scores, labels[:, None], axis=1)), model_state


def measure(case: Case) -> dict:
    """The engine's cost and that of as many single steps, by turns."""
    rng = np.random.default_rng(1)
    inputs = jnp.asarray(rng.normal(size=(case.batch, case.layers[0])), jnp.float32)
    batch = inputs, jnp.asarray(rng.integers(0, case.layers[-1], case.batch))
    engine = Experts(loss_fn, "adagrad", case.learning_rates, cover=case.cover, placement=case.placement)
    state = engine.init(network(case.layers))

    base = scale_by_discounted_rss()

    def train_step(params, memory, batch, rate):
        (loss, _), gradient = jax.value_and_grad(loss_fn, has_aux=True)(params, None, batch, None)
        directions, memory = base.update(gradient, memory)
        return jax.tree.map(lambda p, d: p - rate * d, params, directions), memory, loss

    single = jax.jit(train_step, donate_argnums=(0, 1))
    rates = engine.candidates["learning_rate"] * engine.slots
    networks = [(params, base.init(params)) for params in (network(case.layers) for _ in rates)]

    def run_engine():
        nonlocal state
        for _ in range(case.steps):
            state, _ = engine.step(state, batch)
        jax.block_until_ready(state)

    def run_singles():
        nonlocal networks
        for _ in range(case.steps):
            networks = [
                single(params, memory, batch, rate)[:2] for (params, memory), rate in zip(networks, rates, strict=True)
            ]
        jax.block_until_ready(networks)

    run_engine(), run_singles()  # compile
    pairs = [(cost(run_engine), cost(run_singles)) for _ in range(case.repeats)]
    return {
        "placement": case.placement,
        "experts": engine.count,
        "layers": case.layers,
        "batch": case.batch,
        "engine_seconds": statistics.median(own for own, _ in pairs) / case.steps,
        "singles_seconds": statistics.median(theirs for _, theirs in pairs) / case.steps,
        "ratio": statistics.median(own / theirs for own, theirs in pairs),
        "limit": case.limit,
    }


def cost(run) -> float:
    """Seconds of processor time."""
    began = time.process_time()
    run()
    return time.process_time() - began


def main() -> None:
    """Print the table; `--json FILE` keeps it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    options = parser.parse_args()
    rows = [measure(case) for case in CASES]
    print(f"{'placement':<10} {'experts':>7} {'engine ms':>10} {'single steps ms':>16} {'ratio':>7} {'limit':>6}")
    for row in rows:
        engine, singles = row["engine_seconds"] * 1e3, row["singles_seconds"] * 1e3
        print(
            f"{row['placement']:<10} {row['experts']:>7} {engine:>10.2f} {singles:>16.2f} "
            f"{row['ratio']:>7.3f} {row['limit']:>6}"
        )
    if options.json:
        report = {"date": str(date.today()), "machine": f"{platform.machine()}, 1 core", "ratios": rows}
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
