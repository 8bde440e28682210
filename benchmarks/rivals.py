"""How much faster is a compiled run than the same learner driven round by round in Python, for every method?

    python benchmarks/rivals.py [--json FILE] [--rounds ROUNDS] [--method NAME]...

One core, one stream (regression, d = 10), float64, every method as it comes. By hand means what a user would write:
`predict`, the gradient, `update`. Compiled is `play(..., backend="jax")` without the time that compiling takes. Both
play the same rounds, and their total losses are compared. FLH keeps every expert that it ever had, so that its rounds
become arithmetic instead of overhead, and the ratio falls with the length of the run: it is measured with four times as
many rounds, too.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from datetime import date
from pathlib import Path

# One core, before any numerical library starts its threads.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import numpy as np

from samuel.online import Ball, DriftingRegression, Learner, Recorded, SquaredLoss, play
from samuel_lab.play.cast import LEARNERS, Contestant

DIM = 10
DOMAIN = Ball(2.0)
ROUNDS = 2048
WANTED = 10.0
"""How many times faster every rival is to be."""


def by_hand(learner: Learner, features: np.ndarray, targets: np.ndarray) -> float:
    """A learner driven round by round; its total loss."""
    total = 0.0
    for a, y in zip(features, targets, strict=True):
        error = a @ learner.predict() - y
        total += error * error
        learner.update(2 * error * a)
    return total


def fastest(run, repeats: int) -> tuple[float, float]:
    """Seconds of the fastest of several runs, and what the last one returned."""
    times, value = [], 0.0
    for _ in range(repeats):
        began = time.perf_counter()
        value = run()
        times.append(time.perf_counter() - began)
    return min(times), value


def measure(contestant: Contestant, features: np.ndarray, targets: np.ndarray, repeats: int) -> dict:
    """Microseconds a round in both ways, and their ratio."""
    stream = Recorded(SquaredLoss(), (features, targets))

    def fresh() -> Learner:
        return contestant.make(DIM, DOMAIN, contestant.middle_rate)

    def compiled() -> float:
        return float(play(fresh(), stream, record="losses", backend="jax", progress=False).losses.sum())

    began = time.perf_counter()
    compiled()
    first = time.perf_counter() - began
    fast, total = fastest(compiled, repeats)
    slow, same = fastest(lambda: by_hand(fresh(), features, targets), max(1, repeats - 1))
    if not np.isclose(total, same, rtol=1e-3):
        print(f"{contestant.name}: {total} compiled, {same} by hand", file=sys.stderr)
    return {
        "method": contestant.name,
        "family": contestant.family,
        "rounds": len(features),
        "microseconds_by_hand": 1e6 * slow / len(features),
        "microseconds_compiled": 1e6 * fast / len(features),
        "times_faster": slow / fast,
        "seconds_to_compile": first - fast,
        "total_loss_compiled": total,
        "total_loss_by_hand": same,
    }


def main() -> None:
    """Print the table; `--json FILE` keeps it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"rounds of each run ({ROUNDS})")
    parser.add_argument("--repeats", type=int, default=3, help="compiled runs, the fastest of which counts (3)")
    parser.add_argument("--method", action="append", choices=LEARNERS, metavar="NAME", help="only these")
    options = parser.parse_args()
    stream = DriftingRegression(DIM, period=983)
    runs = [(name, options.rounds) for name in options.method or LEARNERS]
    runs += [(name, 4 * rounds) for name, rounds in runs if name == "flh"]
    heads = ("by hand, us", "compiled, us", "times faster", "compiling, s")
    print(f"{'method':<20} {'rounds':>7} " + " ".join(f"{head:>13}" for head in heads))
    rows = []
    for name, rounds in runs:
        row = measure(LEARNERS[name], *stream.data(0, rounds), options.repeats)
        rows.append(row)
        short = "" if row["times_faster"] >= WANTED else f"   below {WANTED:g}"
        print(
            f"{name:<20} {rounds:>7} {row['microseconds_by_hand']:>13.1f} {row['microseconds_compiled']:>13.2f} "
            f"{row['times_faster']:>13.1f} {row['seconds_to_compile']:>13.1f}{short}",
            flush=True,
        )
    if options.json:
        machine = f"{platform.machine()}, 1 core"
        report = {"date": str(date.today()), "machine": machine, "dim": DIM, "methods": rows}
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
