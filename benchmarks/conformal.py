"""Which method keeps the coverage of its intervals while errors drift, and how wide are they?

    python benchmarks/conformal.py electricity.csv.xz --json results/conformal.json
    python benchmarks/conformal.py FILE --rounds 5000 --series price

Three series: price and demand of electricity in New South Wales, 45,312 half-hours (columns `nswprice` and `nswdemand`
of the data set known as Elec2), and the water flow through a pipe, 1,268 hours, that comes with river. A linear model,
fitted while it runs, forecasts a step and a day ahead. Each method puts intervals around the same forecasts that shall
contain the value 9 times in 10. All are given the scores of a week, once the model has learned for one, and measured
from then on; a label arrives when its time has come, so intervals for a day ahead learn a day late.

    SAMUEL            `samuel.online.conformal` by default
    ACI, step size g  adaptive conformal inference (Gibbs and Candes, NeurIPS 2021): a <- a + g (0.1 - missed), bounds
                      are the quantile 1 - a of the last 1,000 scores
    SAOCP             strongly adaptive online conformal prediction (Bhatnagar, Wang, Xiong and Bai, ICML 2023), with
                      the settings of its authors
    split conformal   the quantile of the first week, for ever

Where a method asks for an infinite interval, which ACI does when `a` is below 0, its width and loss are those of the
largest score so far, and it counts as one that contains the value.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from samuel.online.conformal import backtest, sliding_coverage

COVERAGE = 0.9
RECENT = 1000
"""Of how many scores ACI takes the quantile."""
COLUMNS = {"price": "nswprice", "demand": "nswdemand"}
Method = Callable[[np.ndarray, int, int], np.ndarray]
"""Bounds of all intervals from their scores, the first so many of which are given; a score is known `ahead` later."""


@dataclass(frozen=True)
class Series:
    """Values of one kind at regular times."""

    name: str
    values: np.ndarray
    day: int

    @property
    def week(self) -> int:
        """Steps in a week."""
        return 7 * self.day


def forecasts(series: Series, ahead: int) -> np.ndarray:
    """Running least squares from the latest value and those of the same time a day and a week before."""
    values, start = series.values, series.week
    times = len(values)
    target = np.arange(start, times) + ahead
    columns = [values[start:], values[target - series.day], values[target - series.week]]
    features = np.full((times, 4), np.nan)
    features[start:] = np.stack([np.ones(times - start), *columns], axis=1)
    weights, spread = np.array([0.0, 0.4, 0.3, 0.3]), 100.0 * np.eye(4)
    made = np.full(times, np.nan)
    for t in range(start, times):
        if t - ahead >= start:  # the value that was forecast then is known now
            row = features[t - ahead]
            gain = spread @ row / (1 + row @ spread @ row)
            weights = weights + gain * (values[t] - row @ weights)
            spread = spread - np.outer(gain, row @ spread)
        made[t] = features[t] @ weights
    return made


def quantile(scores: np.ndarray, level: float) -> float:
    """The quantile of split conformal prediction; infinite for a level that so few scores cannot have.

    >>> quantile(np.arange(1.0, 10.0), 0.9), quantile(np.arange(1.0, 9.0), 0.9), quantile(np.arange(1.0, 10.0), -0.1)
    (9.0, inf, 0.0)
    """
    rank = math.ceil((len(scores) + 1) * level - 1e-9)
    if rank < 1:
        return 0.0
    return float(np.partition(scores, rank - 1)[rank - 1]) if rank <= len(scores) else math.inf


def split_conformal(scores: np.ndarray, given: int, ahead: int) -> np.ndarray:
    """The quantile of the scores that were given."""
    return np.full(len(scores), quantile(scores[:given], COVERAGE))


def aci(step_size: float) -> Method:
    """Adaptive conformal inference with one step size."""

    def bounds(scores: np.ndarray, given: int, ahead: int) -> np.ndarray:
        found, missing = np.full(len(scores), np.inf), 1 - COVERAGE
        for t in range(given, len(scores)):
            last = t - ahead  # the last score that is known
            if last >= given:
                missing += step_size * ((1 - COVERAGE) - (scores[last] > found[last]))
            known = scores[max(0, last + 1 - RECENT) : last + 1]
            found[t] = quantile(known, 1 - missing)
        return found

    return bounds


class Saocp:
    """SAOCP on scores that come one after the other.

    In every round an expert is born that lives for 8 times the largest power of two that divides the round's number
    (from 1). It follows the quantile by scale-free descent, from where the experts together stood; weights are those of
    coin betting.
    """

    def __init__(self, largest: float) -> None:
        self.scale = largest * math.sqrt(3)
        self.round = 1
        # One row an expert: born, lifetime, age, sum of gains, sum of gains times weights, bound, sum of squares.
        self.experts = np.empty((0, 7))

    def weights(self) -> np.ndarray:
        """What every expert has won so far, and staked."""
        _, _, age, won, staked, _, _ = self.experts.T
        return np.where(age > 0, won / np.maximum(age, 1), 0.0) * (1 + staked)

    def bound(self) -> float:
        """The bound of the coming round."""
        if not len(self.experts):
            return 0.0
        born = self.experts[:, 0]
        prior = 1 / (born**2 * (1 + np.floor(np.log2(born))))
        share = prior * np.maximum(self.weights(), 0)
        share = share if share.sum() > 0 else prior
        return float(share @ self.experts[:, 5] / share.sum())

    def learn(self, score: float) -> None:
        """Take in a score."""
        newborn = [self.round, 8 * (self.round & -self.round), 0, 0, 0, self.bound(), 0]
        alive = self.experts[:, 2] <= self.experts[:, 1]
        self.experts = np.concatenate([self.experts[alive], [newborn]])
        self.round += 1
        bound, weights = self.experts[:, 5], self.weights()
        gain = (pinball(score, self.bound()) - pinball(score, bound)) / self.scale / COVERAGE
        gain = np.clip(gain, np.where(weights > 0, -1.0, 0.0), 1.0)
        slope = np.where(score > bound, -COVERAGE, np.where(score < bound, 1 - COVERAGE, 0.0))
        squares = self.experts[:, 6] + slope**2
        step = np.where(squares > 0, self.scale / math.sqrt(3) * slope / np.sqrt(np.where(squares > 0, squares, 1)), 0)
        self.experts[:, 2:] += np.stack([np.ones_like(gain), gain, gain * weights, 0 * gain, slope**2], axis=1)
        self.experts[:, 5] = np.maximum(0.0, bound - step)


def saocp(scores: np.ndarray, given: int, ahead: int) -> np.ndarray:
    """SAOCP with its authors' settings: the scores that were given set the scale and are learnt from."""
    method, found = Saocp(float(scores[:given].max())), np.full(len(scores), np.inf)
    for t in range(len(scores)):
        if t >= ahead:
            method.learn(scores[t - ahead])
        if t >= given:
            found[t] = method.bound()
    return found


def samuel(scores: np.ndarray, given: int, ahead: int) -> np.ndarray:
    """`Conformal` by default; the scores that were given set the scale."""
    actual = np.concatenate([np.full(ahead, np.nan), scores])
    made = np.concatenate([np.zeros(len(scores)), np.full(ahead, np.nan)])
    return backtest(actual, made, coverage=COVERAGE, horizons=ahead, warmup=given).high[: len(scores)]


METHODS: dict[str, Method] = {
    "SAMUEL": samuel,
    "ACI, step size 0.005": aci(0.005),
    "ACI, step size 0.02": aci(0.02),
    "ACI, step size 0.08": aci(0.08),
    "SAOCP": saocp,
    "split conformal": split_conformal,
}


def pinball(score: float | np.ndarray, bound: float | np.ndarray) -> np.ndarray:
    """Pinball loss of a bound at the coverage wanted."""
    return np.maximum(COVERAGE * (score - bound), (COVERAGE - 1) * (score - bound))


def measure(series: Series, ahead: int, method: Method) -> dict:
    """Coverage, width and loss of a method's intervals."""
    first, given = 2 * series.week, series.week  # the model has a week for its features, and one to learn
    scores = np.abs(series.values[first + ahead :] - forecasts(series, ahead)[first:-ahead])
    bounds, first = method(scores, given, ahead), given + ahead
    scores, bounds, before = scores[first:], bounds[first:], np.maximum.accumulate(scores)[first - ahead : -ahead]
    finite = np.where(np.isfinite(bounds), bounds, before)
    covered = (scores <= bounds).astype(float)
    weekly = sliding_coverage(covered, series.week)
    return {
        "intervals": len(scores),
        "coverage": float(covered.mean()),
        "lowest_week": float(np.nanmin(weekly)),
        "highest_week": float(np.nanmax(weekly)),
        "infinite": float(np.mean(~np.isfinite(bounds))),
        "width": float(2 * finite.mean()),
        "loss": float(pinball(scores, finite).mean()),
    }


def read_column(path: str, column: str) -> np.ndarray:
    """A column of a CSV, packed by xz or not."""
    try:
        header = np.loadtxt(path, delimiter=",", max_rows=1, dtype=str, ndmin=1)
    except FileNotFoundError:
        sys.exit(f"There is no file {path}. It should be the Elec2 data set as CSV, with a column {column}.")
    if column not in header:
        sys.exit(f"{path} has no column {column}; it has {', '.join(header)}.")
    return np.loadtxt(path, delimiter=",", skiprows=1, usecols=header.tolist().index(column))


def water_flow() -> np.ndarray:
    """The hours of water flow that come with river, missing ones interpolated."""
    from river import datasets

    rows = [(row["Time"], flow) for row, flow in datasets.WaterFlow()]
    hours = np.array([(time - rows[0][0]).total_seconds() / 3600 for time, _ in rows])
    return np.interp(np.arange(hours[-1] + 1), hours, np.array([flow for _, flow in rows], dtype=float))


def load(name: str, file: str) -> Series:
    """A series by name."""
    if name == "water flow":
        return Series(name, water_flow(), day=24)
    return Series(name, read_column(file, COLUMNS[name]), day=48)


def main() -> None:
    """Print the table; `--json FILE` keeps it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [*COLUMNS, "water flow"]
    parser.add_argument("file", help="the Elec2 data set as CSV, packed by xz or not")
    parser.add_argument("--series", nargs="+", choices=names, default=names, help="some only")
    parser.add_argument(
        "--methods", nargs="+", choices=METHODS, default=list(METHODS), metavar="NAME", help="some only"
    )
    parser.add_argument("--rounds", type=int, help="how many steps of each series (default: all)")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    options = parser.parse_args()
    rows = []
    for name in options.series:
        whole = load(name, options.file)
        series = Series(name, whole.values[: options.rounds], whole.day)
        if len(series.values) < 5 * series.week:
            sys.exit(f"{len(series.values)} steps of {name} are too few: give five weeks, {5 * series.week}.")
        for ahead in (1, series.day):
            heads = "coverage  worst week  infinite     width      loss"
            print(f"\n{f'{name}, {ahead} ahead':30}  {heads}")
            for method in options.methods:
                row = measure(series, ahead, METHODS[method])
                rows.append({"series": name, "ahead": ahead, "method": method, **row})
                print(
                    f"{method:30} {row['coverage']:9.3f} {row['lowest_week']:11.3f} {row['infinite']:9.3f} "
                    f"{row['width']:9.3g} {row['loss']:9.3g}",
                    flush=True,
                )
    if options.json:
        options.json.write_text(json.dumps({"coverage": COVERAGE, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
