"""How fast is SAMUEL? Rounds per second as ratios to a plain NumPy loop of projected gradient descent, in one run.

    python benchmarks/online.py [--json FILE] [--long]

One core, the same stream for everyone (regression, d = 10 and 100, 10,000 rounds), one learning rate, `Q` by the
paper's formula. The plain loop does what anyone would write: gradient, step, norm, projection.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import time
from datetime import date
from pathlib import Path

# One core, before any numerical library starts its threads.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import numpy as np

from samuel.core.weights import number_of_rates
from samuel.online import OGD, Ball, DriftingRegression, Recorded, Samuel, SquaredLoss, play

ROUNDS = 10_000
STREAMS = 1_000
RADIUS = 1.0
LEARNING_RATE = 0.5
GRADIENT_BOUND = 20.0


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


def learner(dim: int, dtype: str, streams: int | None = None, rounds: int = ROUNDS, Q: int | None = None) -> Samuel:
    """SAMUEL with one expert per slot, the method of the plain loop."""
    Q = Q or number_of_rates(rounds, dim, 2 * RADIUS, GRADIENT_BOUND)
    base = OGD(schedule="sqrt")
    return Samuel(
        dim, Ball(RADIUS), base=base, learning_rates=(LEARNING_RATE,), Q=Q, dtype=dtype, streams=streams
    )


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
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return min(times)


def ratios(dim: int) -> list[dict]:
    """Cost of every way to run SAMUEL beside the plain loop's, in microseconds a round."""
    stream = DriftingRegression(dim=dim, period=2500)
    features, targets = stream.data(0, ROUNDS)
    one = Recorded(SquaredLoss(), (features, targets))
    plain = best_time(lambda: plain_loop(features, targets)) / ROUNDS
    Q = number_of_rates(ROUNDS, dim, 2 * RADIUS, GRADIENT_BOUND)
    rows = [{"dim": dim, "run": "plain NumPy loop of projected OGD", "Q": None, "seconds": plain}]

    def add(name: str, Q: int, seconds: float) -> None:
        rows.append({"dim": dim, "run": name, "Q": Q, "seconds": seconds})

    add("SAMUEL, interactive, NumPy", Q, best_time(lambda: interactive(learner(dim, "float64"), features, targets)) / ROUNDS)

    many_rounds = 500
    many = DriftingRegression(dim=dim, period=2500, streams=STREAMS)
    batch = Recorded(SquaredLoss(), many.data(0, many_rounds))
    for dtype in ("float32", "float64"):

        def single() -> None:
            play(learner(dim, dtype), one, record="losses", backend="jax")

        def thousand() -> None:
            play(learner(dim, dtype, STREAMS), batch, record="losses", backend="jax")

        single(), thousand()  # compile
        add(f"SAMUEL, compiled, {dtype}", Q, best_time(single) / ROUNDS)
        add(f"SAMUEL, compiled, {STREAMS} streams, {dtype}", Q, best_time(thousand) / many_rounds / STREAMS)
    for row in rows:
        row["times_faster_than_plain"] = plain / row["seconds"]
    return rows


def growth(longest: int) -> list[dict]:
    """Microseconds a round and the memory of the process as the run gets longer."""
    rows = []
    rounds = 1_000
    while rounds <= longest:
        stream = DriftingRegression(dim=10, period=2500)

        def run(rounds: int = rounds, stream: DriftingRegression = stream) -> None:
            play(learner(10, "float32", rounds=rounds, Q=18), stream, rounds, record="losses", backend="jax")

        run()
        seconds = best_time(run, repeats=2) / rounds
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        rows.append({"rounds": rounds, "microseconds": seconds * 1e6, "peak_mebibytes": memory})
        rounds *= 10
    return rows


def main() -> None:
    """Print the tables; `--json FILE` keeps them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    parser.add_argument("--longest", type=int, default=1_000_000, help="rounds of the longest run (default 1,000,000)")
    options = parser.parse_args()
    tables = [row for dim in (10, 100) for row in ratios(dim)]
    print(f"{'d':>4} {'Q':>4}  {'run':<42} {'us/round':>9} {'times faster than the plain loop':>33}")
    for row in tables:
        print(
            f"{row['dim']:>4} {row['Q'] or '':>4}  {row['run']:<42} {row['seconds'] * 1e6:>9.2f} "
            f"{row['times_faster_than_plain']:>33.2f}"
        )
    print(f"\n{'rounds':>9} {'us/round':>9} {'peak MiB':>9}   (compiled, float32, d = 10, Q = 18)")
    long_runs = growth(options.longest)
    for row in long_runs:
        print(f"{row['rounds']:>9} {row['microseconds']:>9.2f} {row['peak_mebibytes']:>9.0f}")
    if options.json:
        machine = f"{platform.machine()}, 1 core"
        report = {"date": str(date.today()), "machine": machine, "ratios": tables, "growth": long_runs}
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
