"""How long does the regret on every interval take? Seconds for a run of 10,000 rounds in ten dimensions, on one core.

    python benchmarks/regret_map.py [--json FILE] [--rounds ROUNDS] [--dim DIM]

For each family of losses, on a ball, a box and a simplex: the best fixed points of all intervals of the grid
(`hindsight`, needed once per stream), beside the time that one best fixed point for the whole run takes; how many
intervals there are, and the largest gap that is proved, relative to 1 + the loss. Then, for one run of SAMUEL, the map
itself and the map with certificates.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

# One core, before any numerical library starts its threads.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import numpy as np

from samuel.online import (
    AbsoluteLoss,
    Ball,
    Box,
    DriftingRegression,
    LinearLoss,
    LogisticLoss,
    LossFamily,
    PinballLoss,
    Recorded,
    Samuel,
    Simplex,
    SquaredLoss,
    play,
)
from samuel.online.comparators import best_fixed_point
from samuel.online.regret import hindsight, regret_map

LOSSES = (LinearLoss(), SquaredLoss(), LogisticLoss(), AbsoluteLoss(), PinballLoss(0.9))
DOMAINS = (Ball(1.0), Box(-1.0, 1.0), Simplex())


def stream_of(loss: LossFamily, rounds: int, dim: int) -> Recorded:
    """Regression whose truth changes ten times, told to each family of losses in its own way."""
    features, target = DriftingRegression(dim=dim, period=max(1, rounds // 10), noise=0.3).data(0, rounds)
    if isinstance(loss, LinearLoss):
        return Recorded(loss, (-target[:, None] * features,))
    return Recorded(loss, (features, np.where(target < 0, -1.0, 1.0) if isinstance(loss, LogisticLoss) else target))


def timed(run: Callable[[], object]) -> float:
    """Seconds of the faster of two runs."""
    times = []
    for _ in range(2):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return min(times)


def main() -> None:
    """Print the table; `--json FILE` keeps it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    parser.add_argument("--rounds", type=int, default=10_000, help="rounds of the run (10,000)")
    parser.add_argument("--dim", type=int, default=10, help="number of coordinates (10)")
    options = parser.parse_args()
    print(f"{'losses':<14} {'domain':<8} {'intervals':>9} {'seconds':>8} {'one point':>10} {'largest gap':>12}")
    rows = []
    for loss in LOSSES:
        stream = stream_of(loss, options.rounds, options.dim)
        for domain in DOMAINS:
            best = hindsight(stream, domain)
            row = {
                "loss": type(loss).__name__,
                "domain": type(domain).__name__,
                "intervals": sum(map(len, best.losses)),
                "seconds": timed(lambda stream=stream, domain=domain: hindsight(stream, domain)),
                "one_point": timed(
                    lambda stream=stream, domain=domain: best_fixed_point(
                        stream.loss, stream.data(0, options.rounds), domain, options.dim
                    )
                ),
                "largest_gap": max(
                    float(np.max(gaps / (1 + np.abs(losses))))
                    for gaps, losses in zip(best.gaps, best.losses, strict=True)
                ),
            }
            rows.append(row)
            print(
                f"{row['loss']:<14} {row['domain']:<8} {row['intervals']:>9} {row['seconds']:>8.2f} "
                f"{row['one_point']:>10.4f} {row['largest_gap']:>12.1e}"
            )
    stream = stream_of(SquaredLoss(), options.rounds, options.dim)
    best, trace = hindsight(stream, Ball(1.0)), play(Samuel(options.dim, Ball(1.0)), stream)
    plain = timed(lambda: regret_map(trace, best))
    certified = timed(lambda: regret_map(trace, best, certificates=True))
    print(f"the map of one run, hindsight given: {plain:.4f} s; with certificates: {certified:.2f} s")
    if options.json:
        report = {
            "date": str(date.today()),
            "machine": f"{platform.machine()}, 1 core",
            "rounds": options.rounds,
            "dim": options.dim,
            "hindsight": rows,
            "map": plain,
            "map_with_certificates": certified,
        }
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
