"""How fast is SAMUEL? Rounds per second as ratios to a plain NumPy loop of projected gradient descent, in one run.

    python benchmarks/online.py [--json FILE] [--longest ROUNDS]

One core, the same stream for everyone (regression, d = 10 and 100, 10,000 rounds). SAMUEL with one learning rate and
`Q` by the paper's formula for gradients of norm at most 1 on the unit ball, at its defaults, and over other experts.
The plain loop does what anyone would write: gradient, step, norm, projection. Seconds are those of the processor. On a
machine that does other things, rows marked quiet are what the fastest 64 rounds took.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import date
from functools import partial
from pathlib import Path

# One core, before any numerical library starts its threads.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import numpy as np

from samuel.core.weights import number_of_rates
from samuel.online import (
    OGD,
    Adagrad,
    Ball,
    Cover,
    DriftingRegression,
    Geometric,
    Recorded,
    Samuel,
    SquaredLoss,
    Stream,
    play,
)

ROUNDS = 10_000
STREAMS = 1_000
STRETCH = 64
RADIUS = 1.0
LEARNING_RATE = 0.5
GRADIENT_BOUND = 1.0


def regression(dim: int, rounds: int, streams: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Features and targets whose squared loss has gradients of norm at most 1 on the unit ball."""
    features, targets = DriftingRegression(dim=dim, period=2500, streams=streams).data(0, rounds)
    features /= 2 * np.maximum(1.0, np.linalg.norm(features, axis=-1, keepdims=True))
    return features, np.clip(targets, -0.5, 0.5)


class Repeated(Stream):
    """A short piece of data over and over, so that a long run of many streams fits into memory."""

    loss = SquaredLoss()

    def __init__(self, arrays: tuple[np.ndarray, ...], rounds: int) -> None:
        self.arrays, self.rounds, self.dim = arrays, rounds, arrays[0].shape[-1]
        self.streams = arrays[0].shape[1] if arrays[0].ndim == 3 else None

    def data(self, start: int, stop: int) -> tuple[np.ndarray, ...]:
        """The piece, as often as needed."""
        places = np.arange(start, stop) % len(self.arrays[0])
        return tuple(array[places] for array in self.arrays)


def plain_loop(features: np.ndarray, targets: np.ndarray) -> float:
    """Projected online gradient descent with rates 1/sqrt(t), as anyone would write it."""
    x, total = np.zeros(features.shape[1]), 0.0
    for t in range(len(features)):
        a = features[t]
        error = a @ x - targets[t]
        total += error * error
        x = x - LEARNING_RATE / np.sqrt(t + 1) * (2 * error * a)
        norm = np.linalg.norm(x)
        if norm > RADIUS:
            x = x * (RADIUS / norm)
    return total


def learner(dim: int, dtype: str, streams: int | None = None, cover: Cover | None = None) -> Samuel:
    """SAMUEL with one expert per slot, the method of the plain loop."""
    return Samuel(
        dim,
        Ball(RADIUS),
        base=OGD(schedule="sqrt"),
        learning_rates=(LEARNING_RATE,),
        gradient_bound=GRADIENT_BOUND,
        Q=number_of_rates(ROUNDS, dim, 2 * RADIUS, GRADIENT_BOUND),
        dtype=dtype,
        streams=streams,
        cover=cover,
    )


def as_it_comes(dim: int, dtype: str, streams: int | None = None) -> Samuel:
    """SAMUEL at its defaults."""
    return Samuel(dim, Ball(RADIUS), dtype=dtype, streams=streams)


def over_rates(dim: int) -> Samuel:
    """SAMUEL over gradient descent with eight rates."""
    return Samuel(dim, Ball(RADIUS), base=OGD(), learning_rates=[2.0**power for power in range(-4, 4)])


def fastest_stretch(samuel: Samuel, features: np.ndarray, targets: np.ndarray) -> float:
    """Seconds a round, by hand, in the fastest stretch of 64 rounds but two: what a quiet machine would take."""
    times = [time.process_time()]
    for start in range(0, len(features), STRETCH):
        interactive(samuel, features[start : start + STRETCH], targets[start : start + STRETCH])
        times.append(time.process_time())
    return float(np.sort(np.diff(times))[2]) / STRETCH


def interactive(samuel: Samuel, features: np.ndarray, targets: np.ndarray) -> None:
    """SAMUEL driven by hand, round by round, in NumPy."""
    for t in range(len(features)):
        a = features[t]
        x = samuel.predict()
        samuel.update(2 * (a @ x - targets[t]) * a)


def best_time(run, repeats: int = 3) -> float:
    """Seconds of the fastest of several runs."""
    times = []
    for _ in range(repeats):
        began = time.process_time()
        run()
        times.append(time.process_time() - began)
    return min(times)


def ratios(dim: int) -> list[dict]:
    """Cost of every way to run SAMUEL beside the plain loop's, in seconds a round (and stream)."""
    features, targets = regression(dim, ROUNDS)
    one = Recorded(SquaredLoss(), (features, targets))
    # So many streams of so many rounds would fill the memory: the first of them, with all levels open from the start.
    pieces = regression(dim, 20_000 // dim, STREAMS)
    plain = best_time(lambda: plain_loop(features, targets), 3) / ROUNDS
    by_hand = best_time(lambda: interactive(learner(dim, "float64"), features, targets)) / ROUNDS
    rows = [
        ("plain NumPy loop of projected OGD", plain),
        ("SAMUEL, by hand, NumPy, float64", by_hand),
        ("default, by hand", best_time(lambda: interactive(as_it_comes(dim, "float64"), features, targets)) / ROUNDS),
        ("default, by hand, quiet", fastest_stretch(as_it_comes(dim, "float64"), features, targets)),
        ("8 rates of OGD, by hand, quiet", fastest_stretch(over_rates(dim), features, targets)),
        ("Adagrad, by hand, quiet", fastest_stretch(Samuel(dim, Ball(RADIUS), base=Adagrad()), features, targets)),
    ]
    for dtype in ("float32", "float64"):
        many = Recorded(SquaredLoss(), tuple(array.astype(dtype) for array in pieces))
        alone = partial(run_compiled, dim, dtype, one)
        together = partial(run_compiled, dim, dtype, many, Geometric(ROUNDS, shortest=8))
        default = partial(run_compiled, dim, dtype, one, make=as_it_comes)
        defaults = partial(run_compiled, dim, dtype, many, make=as_it_comes)
        alone(), together(), default(), defaults()  # compile
        rows += [
            (f"default, compiled, {dtype}", best_time(default, 3) / ROUNDS),
            (f"default, compiled, {STREAMS} streams, {dtype}", best_time(defaults, 3) / len(pieces[0]) / STREAMS),
            (f"SAMUEL, compiled, {dtype}", best_time(alone, 3) / ROUNDS),
            (f"SAMUEL, compiled, {STREAMS} streams, {dtype}", best_time(together, 3) / len(pieces[0]) / STREAMS),
        ]
    Q = learner(dim, "float64").rule.Q
    return [{"dim": dim, "Q": Q, "run": name, "seconds": cost, "times_faster": plain / cost} for name, cost in rows]


def run_compiled(
    dim: int, dtype: str, stream: Stream, cover: Cover | None = None, make: Callable[..., Samuel] | None = None
) -> None:
    """One compiled run that keeps the losses only."""
    samuel = learner(dim, dtype, stream.streams, cover) if make is None else make(dim, dtype, stream.streams)
    play(samuel, stream, record="losses", backend="jax")


def growth(longest: int) -> list[dict]:
    """Microseconds a round and peak memory as the run gets longer, each length in a process of its own.

    The peak of a process never falls, so a process that has done anything larger before could not show growth.
    """
    rows = []
    rounds = 1_000
    while rounds <= longest:
        command = [sys.executable, __file__, "--one-length", str(rounds)]
        rows.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
        rounds *= 10
    return rows


def one_length(rounds: int) -> dict:
    """One compiled run of that many rounds: its cost a round, and the most memory the process ever had."""
    run = partial(run_compiled, 10, "float32", Repeated(regression(10, 2_500), rounds))
    run()  # compile
    seconds = best_time(run, repeats=2) / rounds
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"rounds": rounds, "microseconds": seconds * 1e6, "peak_mebibytes": peak}


def main() -> None:
    """Print the tables; `--json FILE` keeps them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    parser.add_argument("--longest", type=int, default=1_000_000, help="rounds of the longest run (1,000,000)")
    parser.add_argument("--one-length", type=int, help="measure one run of so many rounds and print it as JSON")
    options = parser.parse_args()
    if options.one_length:
        print(json.dumps(one_length(options.one_length)))
        return
    # First, while this process is small: a process it starts counts what its parent had as its own peak.
    long_runs = growth(options.longest)
    tables = [row for dim in (10, 100) for row in ratios(dim)]
    print(f"{'d':>4} {'Q':>4}  {'run':<46} {'us/round':>9} {'times as fast as the plain loop':>33}")
    for row in tables:
        print(
            f"{row['dim']:>4} {row['Q']:>4}  {row['run']:<46} {row['seconds'] * 1e6:>9.2f} {row['times_faster']:>33.2f}"
        )
    print(f"\n{'rounds':>9} {'us/round':>9} {'peak MiB':>9}   (compiled, float32, d = 10; a process each)")
    for row in long_runs:
        print(f"{row['rounds']:>9} {row['microseconds']:>9.2f} {row['peak_mebibytes']:>9.1f}")
    if options.json:
        machine = f"{platform.machine()}, 1 core"
        report = {"date": str(date.today()), "machine": machine, "ratios": tables, "growth": long_runs}
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
