"""Intervals for electricity prices, half an hour to a day ahead, by SAMUEL and by its rivals.

    python examples/conformal_electricity.py electricity.csv.xz           # 10,000 half-hours, a minute
    python examples/conformal_electricity.py FILE --rounds 45312 --json results/conformal_electricity.json
    python examples/conformal_electricity.py FILE --methods SAMUEL "scale-free descent" --column nswdemand

The series is the price in New South Wales (column `nswprice` of the data set known as Elec2): 45,312 half-hours whose
ups and downs change from week to week. A linear model, fitted while it runs, forecasts it 1, 6 and 48 half-hours
ahead; each method then puts intervals around the same forecasts that shall contain the price 9 times in 10. The label
of a forecast arrives when its time has come, so the intervals for a day ahead learn a day late.

The table has, for each horizon: coverage over the whole run; the lowest coverage of any week (336 half-hours) and of
any 1,000; the mean width; and the mean pinball loss of the bounds, times 1,000. SAMUEL's defaults were chosen with
an eye on parts of this series, and the rivals are given its experts: see docs/conformal.md.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np

from samuel.online import (
    AFLH,
    CBCE,
    OGD,
    SACS,
    SAOL,
    Adagrad,
    FixedShare,
    Hedge,
    ParameterFree,
    ScaleFreeOGD,
    Single,
)
from samuel.online.conformal import backtest

HORIZONS = (1, 6, 48)
DAY, WEEK = 48, 336
COVERAGE = 0.9


def following(kind):
    """A method that follows experts; all of them are given those that SAMUEL has by itself."""
    experts = {"base": Adagrad(delta=1.0), "learning_rates": (0.01, 0.1, 1.0, 10.0)}
    return lambda dim, domain, streams: kind(dim, domain, streams=streams, **experts)


def alone(base):
    """One base learner, without anything that watches over it."""
    return lambda dim, domain, streams: Single(base, dim, domain, streams=streams)


METHODS = {
    "SAMUEL": None,  # what `backtest` takes by itself
    "SAOL": following(SAOL),
    "CBCE": following(CBCE),
    "SACS": following(SACS),
    "AFLH": following(AFLH),
    "fixed share": following(FixedShare),
    "Hedge": following(Hedge),
    "parameter-free": ParameterFree,
    "scale-free descent": alone(ScaleFreeOGD(1.0)),
    "descent, rate 0.05": alone(OGD(0.05)),
}


def read_series(path, column):
    """A column of a CSV, packed by xz or not."""
    try:
        header = np.loadtxt(path, delimiter=",", max_rows=1, dtype=str)
    except FileNotFoundError:
        sys.exit(f"There is no file {path}. It should be the Elec2 data set as CSV, with a column {column}.")
    if column not in header:
        sys.exit(f"{path} has no column {column}; it has {', '.join(header)}.")
    return np.loadtxt(path, delimiter=",", skiprows=1, usecols=header.tolist().index(column))


def forecasts(price, ahead):
    """Running least squares from the latest price and those of the same time a day and a week before."""
    times = len(price)
    features = np.full((times, 4), np.nan)
    features[WEEK:, 0] = 1.0
    features[WEEK:, 1] = price[WEEK:]
    for column, back in ((2, DAY), (3, WEEK)):
        target = np.arange(WEEK, times) + ahead
        features[WEEK:, column] = price[target - back]
    weights, spread = np.array([0.0, 0.4, 0.3, 0.3]), 100.0 * np.eye(4)
    made = np.full(times, np.nan)
    for t in range(WEEK, times):
        if t - ahead >= WEEK:  # the price that was forecast then is known now
            row = features[t - ahead]
            gain = spread @ row / (1 + row @ spread @ row)
            weights = weights + gain * (price[t] - row @ weights)
            spread = spread - np.outer(gain, row @ spread)
        made[t] = features[t] @ weights
    return made


def measure(price, made, method):
    """One row of the table for each horizon."""
    result = backtest(price, made, coverage=COVERAGE, horizons=HORIZONS, learner=method, warmup=DAY, backend="numpy")
    week, thousand = result.coverage(window=WEEK), result.coverage(window=1000)
    return [
        {
            "horizon": horizon,
            "intervals": int(week.count[h]),
            "coverage": float(week.overall[h]),
            "lowest_week": float(week.lowest[h]),
            "highest_week": float(week.highest[h]),
            "lowest_1000": float(thousand.lowest[h]),
            "width": float(week.width[h]),
            "loss": float(week.loss[h]),
        }
        for h, horizon in enumerate(HORIZONS)
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", help="the data set as CSV, packed by xz or not")
    parser.add_argument("--column", default="nswprice", help="which series (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=10_000, help="how many half-hours (default: %(default)s)")
    parser.add_argument(
        "--methods", nargs="+", choices=METHODS, default=list(METHODS), metavar="NAME", help="some only"
    )
    parser.add_argument("--json", type=Path, help="write the table here, too")
    options = parser.parse_args()
    price = read_series(options.file, options.column)[: options.rounds]
    if len(price) < 3 * WEEK:
        sys.exit(f"{len(price)} half-hours are too few: the forecasts need a week, and so do the windows; give 1008.")
    made = np.stack([forecasts(price, ahead) for ahead in HORIZONS], axis=1)

    rows = []
    for name in options.methods:
        rows += [{"method": name, **row} for row in measure(price, made, METHODS[name])]
    print(f"{len(price)} half-hours, {COVERAGE:.0%} wanted")
    for horizon in HORIZONS:
        print(f"\n{horizon:2} ahead              coverage  worst week  worst 1000    width     loss")
        for row in (row for row in rows if row["horizon"] == horizon):
            print(
                f"{row['method']:20} {row['coverage']:9.3f} {row['lowest_week']:11.3f} {row['lowest_1000']:11.3f} "
                f"{row['width']:8.3g} {1000 * row['loss']:8.3g}"
            )
    if options.json:
        about = {"data": f"Elec2, {options.column}", "rounds": len(price), "coverage": COVERAGE, "rows": rows}
        options.json.write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
