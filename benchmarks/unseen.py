"""How near does a learner that is told nothing come to the best constant rate in hindsight, on data not tuned on?

    python benchmarks/unseen.py [--half choose|report] [--method NAME]... [--data FOLDER] [--json FILE]

Every method as it comes: SAMUEL, all rivals, every single learner with its own default, and SGD, AdaGrad and Adam with
the defaults of river. The yardstick is the best of 30 constant rates in hindsight, the powers of two from 2^-10 to 2^4
over OGD and Adagrad. One domain for all: that of `samuel play`, and for tables a ball of radius 5 (regression) or 10
(classification).

Real streams come with river, statsmodels and scikit-learn; those whose package is missing are left out. In the order of
their names, every other one is for choosing defaults, and the others are for reporting. Of the streams of `samuel play
--all` other seeds are for choosing (100 and 101) than for reporting (0 to 2). `--data FOLDER` is where
`electricity.csv.xz` lies, which is for reporting. `--json FILE` keeps the numbers, and adds to what the file has.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

# One core, before any numerical library starts its threads.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import numpy as np

from samuel.online import (
    OGD,
    Adadelta,
    Adagrad,
    AdagradFull,
    Adam,
    Ball,
    Base,
    Domain,
    Learner,
    RMSprop,
    Single,
    Stream,
    play,
)
from samuel.online.streams import CsvStream, RiverStream, SideBySide
from samuel.online.streams.encode import Task
from samuel_lab.play.arenas import ALL, STREAMS
from samuel_lab.play.cast import LEARNERS, Contestant, sweep
from samuel_lab.play.measuring import Tiled
from samuel_lab.play.plan import Plan

RATES = tuple(2.0**power for power in range(-10, 5))
LONGEST = 10_000
"""Rows that are played of a real stream, the first ones; of electricity all."""
ROUNDS = 8192
SEEDS = {"choose": (100, 101), "report": (0, 1, 2)}
LAGS = 3
"""How many past values forecast the next one of a series."""

SINGLES = {
    "ogd at 1": OGD(),
    "ogd-sqrt at 1": OGD(schedule="sqrt"),
    "adagrad at 1": Adagrad(),
    "adagrad-full at 1": AdagradFull(),
    "adam at 1": Adam(),
    "rmsprop at 1": RMSprop(),
    "adadelta at 1": Adadelta(),
    "sgd of river": OGD(0.01),
    "adagrad of river": Adagrad(0.1, delta=1e-8),
    "adam of river": Adam(0.1),
}


NOT_AS_THEY_COME = (
    *(name for name in LEARNERS if name.startswith("samuel-") and name != "samuel-blocks"),
    *(name for name in LEARNERS if name.endswith(("-cold", "-adagrad"))),
)
"""Learners with options of their own, which do not take part: these are the methods at their defaults."""


@dataclass(frozen=True)
class Track:
    """A stream and where decisions lie."""

    name: str
    domain: Domain
    make: Callable[[], Stream]
    rounds: int | None = None


def _table(rows: list[list], header: list[str], target: str, task: Task) -> Stream:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([header, *rows])
        return CsvStream(path, target, task, missing="past mean")


def _lagged(values: list[float]) -> Stream:
    rows = [values[t - LAGS : t + 1] for t in range(LAGS, len(values))]
    return _table(rows, [*(f"lag{LAGS - k}" for k in range(LAGS)), "value"], "value", "regression")


def _statsmodels(name: str, separator: str = ",") -> tuple[list[str], list[list[str]]]:
    spec = find_spec("statsmodels")
    assert spec is not None, "statsmodels is installed"
    folder = Path(next(iter(spec.submodule_search_locations or ()))) / "datasets" / name
    with (folder / f"{name}.csv").open(newline="") as file:
        header, *rows = ([cell.strip("'\" ") for cell in row] for row in csv.reader(file, delimiter=separator))
    return header, rows


def _statsmodels_table(name: str, target: str, task: Task, separator: str = ",") -> Stream:
    header, rows = _statsmodels(name, separator)
    return _table(rows, header, target, task)


def _statsmodels_series(name: str) -> Stream:
    _, rows = _statsmodels(name)
    return _lagged([float(cell) for row in rows for cell in row[1:] if cell])


def _sklearn(name: str, task: Task) -> Stream:
    from sklearn import datasets

    found = getattr(datasets, f"load_{name}")()
    rows = [[*features, target] for features, target in zip(found.data, found.target, strict=True)]
    return _table(rows, [*map(str, found.feature_names), "target"], "target", task)


REAL: dict[str, tuple[str, Callable[[], Stream]]] = {
    **{
        f"river {name}": ("river", partial(RiverStream, name, missing="past mean", rows=LONGEST))
        for name in (
            "AirlinePassengers",
            "Bananas",
            "ChickWeights",
            "Phishing",
            "SP500Stocks",
            "Shuttle",
            "TrumpApproval",
            "WaterFlow",
        )
    },
    "sklearn breast_cancer": ("sklearn", partial(_sklearn, "breast_cancer", "classification")),
    "sklearn diabetes": ("sklearn", partial(_sklearn, "diabetes", "regression")),
    "statsmodels anes96": ("statsmodels", partial(_statsmodels_table, "anes96", "vote", "classification", "\t")),
    "statsmodels co2": ("statsmodels", partial(_statsmodels_series, "co2")),
    "statsmodels elnino": ("statsmodels", partial(_statsmodels_series, "elnino")),
    "statsmodels fair": ("statsmodels", partial(_statsmodels_table, "fair", "affairs", "regression")),
    "statsmodels macrodata": ("statsmodels", partial(_statsmodels_table, "macrodata", "infl", "regression")),
    "statsmodels modechoice": (
        "statsmodels",
        partial(_statsmodels_table, "modechoice", "choice", "classification", ";"),
    ),
    "statsmodels randhie": ("statsmodels", partial(_statsmodels_table, "randhie", "mdvis", "regression")),
    "statsmodels sunspots": ("statsmodels", partial(_statsmodels_series, "sunspots")),
}
"""Real streams, by the package that carries them."""


def real_names(half: str) -> list[str]:
    """The real streams of a half: every other one in the order of their names."""
    return sorted(REAL)[half == "report" :: 2]


def tracks(half: str, data: Path | None) -> list[Track]:
    """All streams of a half that can be played here."""
    found = [_generated(name, half) for name in ALL]
    for name in real_names(half):
        package, make = REAL[name]
        if find_spec(package) is None:
            print(f"{name}: {package} is not installed", file=sys.stderr)
            continue
        found.append(_real(name, make))
    if half == "report" and data is not None:
        path = data / "electricity.csv.xz"
        found.append(_real("electricity", partial(CsvStream, path, "class", "classification"), longest=None))
    return found


def _generated(name: str, half: str) -> Track:
    arena = STREAMS[name](Plan(streams=(name,), rounds=ROUNDS))
    seeds = SEEDS[half] if arena.seeded else (0,)
    return Track(name, arena.domain, lambda: SideBySide([arena.stream(seed) for seed in seeds]), ROUNDS)


def _real(name: str, make: Callable[[], Stream], longest: int | None = LONGEST) -> Track:
    stream = make()
    logistic = stream.classes is not None  # pyright: ignore[reportAttributeAccessIssue]
    rounds = stream.rounds if longest is None else min(longest, stream.rounds or longest)
    return Track(name, Ball(10.0 if logistic else 5.0), lambda: SideBySide([stream]), rounds)


def methods() -> dict[str, Callable[..., Learner]]:
    """Everyone who is told nothing, by name."""
    singles = {name: partial(_single, base) for name, base in SINGLES.items()}
    rivals = {name: entry for name, entry in LEARNERS.items() if not entry.tuned and name not in NOT_AS_THEY_COME}
    return singles | {name: partial(_untold, entry) for name, entry in rivals.items()}


def _single(base: Base, dim: int, domain: Domain, **options) -> Learner:
    return Single(base, dim, domain, **options)


def _untold(contestant: Contestant, dim: int, domain: Domain, **options) -> Learner:
    return contestant.make(dim, domain, None, **options)


def total_loss(learner: Learner, stream: Stream, rounds: int | None) -> list[float]:
    """What a learner lost in all, for each seed."""
    trace = play(learner, stream, rounds, record="losses", progress=False)
    return trace.losses.sum(axis=0).tolist()


def best_rate(track: Track, stream: Stream) -> dict:
    """The best constant rate in hindsight for each seed: what it lost, and which it was."""
    seeds = stream.streams or 1
    totals, names = [], []
    for base in (OGD(), Adagrad()):
        contestant = Contestant("rates", "", "", "single", LEARNERS["ogd"].make, base, RATES)
        tiled = Tiled(stream, len(RATES))
        learner = sweep(contestant, stream.dim, track.domain, seeds)
        losses = np.asarray(total_loss(learner, tiled, track.rounds)).reshape(len(RATES), seeds)
        totals.append(losses)
        names += [f"{type(base).__name__} {rate:g}" for rate in RATES]
    every = np.concatenate(totals)
    return {"loss": every.min(axis=0).tolist(), "rate": [names[at] for at in every.argmin(axis=0)]}


def measure(track: Track, wanted: list[str], known: dict) -> dict:
    """The losses on a stream of those methods that are wanted, added to those that are known."""
    stream = track.make()
    found = known or {"stream": track.name, "rounds": track.rounds, "dim": stream.dim, "losses": {}}
    found.setdefault("best_rate", None)
    found["best_rate"] = found["best_rate"] or best_rate(track, stream)
    for name, make in methods().items():
        if name in wanted or (not wanted and name not in found["losses"]):
            learner = make(stream.dim, track.domain, streams=stream.streams)
            found["losses"][name] = total_loss(learner, stream, track.rounds)
    found["standing"] = standing(found)
    return found


def standing(found: dict) -> dict:
    """Where SAMUEL stands on a stream."""
    forms = [name for name in found["losses"] if name.startswith("samuel")]
    return {name: {"ratio": ratio(found, name), "place": place(found, name)} for name in forms}


def ratio(found: dict, name: str) -> float:
    """A method's loss over that of the best rate, the mean over seeds; for negative losses 1 + what is missing."""
    ours, best = np.asarray(found["losses"][name]), np.asarray(found["best_rate"]["loss"])
    return float(np.mean(1 + (ours - best) / np.abs(best)))


def place(found: dict, name: str) -> int:
    """A method's place among all that are told nothing, SAMUEL with other options left out."""
    losses = {key: np.mean(numbers) for key, numbers in found["losses"].items() if not key.startswith("samuel")}
    ours = np.mean(found["losses"][name])
    return 1 + sum(bool(loss < ours) for loss in losses.values())


def show(rows: list[dict], name: str) -> None:
    """A line a stream, and how many are within reach of the target."""
    print(f"\n{name}\n{'stream':<26} {'rounds':>6} {'dim':>4} {'loss':>10} {'best rate':>10} {'ratio':>6} {'place':>5}")
    for row in rows:
        if name in row["losses"]:
            ours, best = np.mean(row["losses"][name]), np.mean(row["best_rate"]["loss"])
            print(
                f"{row['stream']:<26} {row['rounds']:>6} {row['dim']:>4} {ours:>10.1f} {best:>10.1f} "
                f"{ratio(row, name):>6.2f} {place(row, name):>5}   {row['best_rate']['rate'][0]}"
            )
    near = sum(ratio(row, name) <= 1.15 for row in rows if name in row["losses"])
    top = sum(place(row, name) <= 2 for row in rows if name in row["losses"])
    print(f"within 1.15: {near} of {len(rows)}; first or second: {top} of {len(rows)}")


def main() -> None:
    """Print the table; `--json FILE` keeps it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=SEEDS, default="choose")
    parser.add_argument("--method", action="append", default=[], choices=methods(), metavar="NAME", help="measure anew")
    parser.add_argument("--stream", action="append", default=[], metavar="NAME", help="only these")
    parser.add_argument("--data", type=Path, help="the folder of electricity.csv.xz")
    parser.add_argument("--json", type=Path, help="add the numbers to this file")
    options = parser.parse_args()
    kept = json.loads(options.json.read_text()) if options.json and options.json.exists() else {}
    half = kept.setdefault(options.half, {})
    rows = []
    for track in tracks(options.half, options.data):
        if options.stream and track.name not in options.stream:
            continue
        began = time.perf_counter()
        half[track.name] = measure(track, options.method, half.get(track.name, {}))
        rows.append(half[track.name])
        print(f"{track.name}: {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
        if options.json:
            options.json.parent.mkdir(parents=True, exist_ok=True)
            options.json.write_text(json.dumps(kept, indent=1) + "\n")
    for name in options.method or ["samuel"]:
        show(rows, name)


if __name__ == "__main__":
    main()
