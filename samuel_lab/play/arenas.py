"""Arenas by name: a stream, the domain of decisions, and the default learners."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from samuel.online import Ball, Box, Domain, DriftingRegression, Interval, Simplex, Stream, TwoValleys
from samuel.online.streams import (
    Adversary,
    CsvStream,
    DriftingClassification,
    DriftingQuantile,
    ExpertAdvice,
    RiverStream,
    SparseRegression,
    Storms,
)
from samuel.online.streams.encode import Encoded, Missing, Task
from samuel_lab.play.bounds import ROWS, Comparison
from samuel_lab.play.streams import OneLoud, Ripples

if TYPE_CHECKING:
    from samuel_lab.play.plan import Plan

ONE_DIMENSION = ("two-valleys", "quantile")
"""Streams with a fixed dimension of one."""
DEFAULT_STREAMS = ("two-valleys", "drift")

RIVALS = ("aflh", "saol", "cbce", "sacs", "parameter-free")
USUAL = ("ogd", "adagrad", "hedge", *RIVALS, "samuel", "samuel-ogd")
"""The learners that play by default on most streams."""


@dataclass(frozen=True)
class Arena:
    """A stream with its domain and default learners.

    Attributes:
        name: its name on the command line.
        label: its name on the page.
        about: a description, in a sentence or two.
        domain: of the decisions.
        rounds: length of the run.
        steady: number of rounds for which about the same point stays optimal; growth exponents are fitted up to it.
        learners: names of the learners that play by default.
        stream: makes the stream of a seed.
        changes: the rounds in which the stream changes, round 0 first; () if unknown.
        seeded: whether the stream depends on the seed.
        grows: whether the contest is repeated for several lengths of the run.
        comparison: which bounds the stream sets apart, for those of the paper's Table 1.
    """

    name: str
    label: str
    about: str
    domain: Domain
    rounds: int
    steady: int
    learners: tuple[str, ...]
    stream: Callable[[int], Stream]
    changes: tuple[int, ...] = ()
    seeded: bool = True
    grows: bool = False
    comparison: Comparison | None = None


@dataclass(frozen=True)
class Table:
    """A table to play row by row: a CSV file, or a data set of river.

    Attributes:
        kind: "csv" or "river".
        source: the file, or the name of the data set.
        target: the column to forecast, in a file.
        task: "regression", "classification" or "quantile"; None for that of a data set of river.
        level: the quantile.
        columns: columns to use as features; None for all.
        drop: columns to drop.
        missing: treatment of missing values.
        rounds: number of rows to play; None for all.
        radius: of the ball of decisions; None for 10 (classification) or 5.
        separator: between the cells of a file.
        decimal: decimal mark.
        most_features: maximum number of features.
        scale: whether to standardise columns by the rows before.
    """

    kind: Literal["csv", "river"]
    source: str
    target: str = ""
    task: Task | None = None
    level: float = 0.5
    columns: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    missing: Missing = "refuse"
    rounds: int | None = None
    radius: float | None = None
    separator: str = ","
    decimal: str = "."
    most_features: int = 100
    scale: bool = True

    @property
    def name(self) -> str:
        """Its name among streams."""
        return "csv" if self.kind == "csv" else f"river-{self.source}"

    @property
    def words(self) -> list[str]:
        """Its options on the command line."""
        found = [f"--csv {_quoted(self.source)}" if self.kind == "csv" else f"--river {_quoted(self.source)}"]
        found += [f"--target {_quoted(self.target)}"] if self.target else []
        found += [f"--task {self.task}"] if self.task else []
        found += [f"--level {self.level:g}"] if self.task == "quantile" else []
        found += [f"--columns {_quoted(','.join(self.columns))}"] if self.columns else []
        found += [f"--drop {_quoted(','.join(self.drop))}"] if self.drop else []
        found += [f"--missing {self.missing.replace(' ', '-')}"] if self.missing != "refuse" else []
        found += [f"--radius {self.radius:g}"] if self.radius is not None else []
        found += [f"--separator {_quoted(self.separator)}"] if self.separator != "," else []
        found += [f"--decimal {_quoted(self.decimal)}"] if self.decimal != "." else []
        found += [f"--most-features {self.most_features}"] if self.most_features != 100 else []
        found += [] if self.scale else ["--no-scale"]
        return found


FEWEST_TABLE_ROUNDS = 64
"""Minimum number of rounds for statistics of intervals."""


@lru_cache(maxsize=4)
def opened(table: Table) -> Encoded:
    """The stream of a table, cached.

    Raises:
        FileNotFoundError: if the file is missing.
        ValueError: if it cannot be used.
    """
    options: dict[str, Any] = {"level": table.level, "columns": table.columns, "drop": table.drop}
    options |= {"missing": table.missing, "scale": table.scale, "most_features": table.most_features}
    if table.kind == "csv":
        task = table.task or "regression"
        return CsvStream(table.source, table.target, task, **options, separator=table.separator, decimal=table.decimal)
    return RiverStream(table.source, table.task, **options)


def table_arena(table: Table) -> Arena:
    """The arena of a table."""
    stream = opened(table)
    found = stream.rounds or 0
    rounds = found if table.rounds is None else min(table.rounds, found)
    if rounds < FEWEST_TABLE_ROUNDS:
        raise ValueError(
            f"{table.source}: {rounds} rounds are too few to play; at least {FEWEST_TABLE_ROUNDS} are needed, beside "
            "the first rows, which set the scale of the target"
        )
    logistic = stream.classes is not None
    radius = table.radius if table.radius is not None else (10.0 if logistic else 5.0)
    name = Path(table.source).name
    skipped = f" {stream.skipped} rows with missing values were left out." if stream.skipped else ""
    filled = sum(stream.missing.values())
    if filled and table.missing == "past mean":
        skipped += f" {filled} missing values were filled with the mean of the past."
    return Arena(
        table.name,
        f"{name}, {table.target}" if table.target else name,
        f"{'The file' if table.kind == 'csv' else 'The data set of river'} {name}: "
        f"{_what(stream)} from {stream.dim} features, {found} rows in the order of the file. Numbers are "
        f"{'standardised by the rows before' if table.scale else 'taken as they are'}. "
        f"{_encoded(stream)} Decisions lie in a ball of radius {radius:g}.{skipped}",
        Ball(radius),
        rounds,
        rounds // 8,
        USUAL,
        lambda seed: stream,
        seeded=False,
    )


def _what(stream: Encoded) -> str:
    if stream.classes is not None:
        return f"{stream.classes[1]!r} or {stream.classes[0]!r} by logistic regression"
    level = getattr(stream.loss, "level", None)
    return "the target by linear regression" if level is None else f"the {level:.0%} quantile of the target"


def _encoded(stream: Encoded) -> str:
    """A description of the encoding of columns."""
    by_kind: dict[str, list[str]] = {"number": [], "words": [], "left out": []}
    for name, how in stream.encodings.items():
        kind = next((kind for kind in by_kind if how.startswith(kind)), None)
        if kind is not None:
            count = how.removeprefix("words") if kind == "words" else ""
            by_kind[kind].append((name or "the first column, an index without a name") + count)
    said = {"number": "Numbers", "words": "Words, a feature for each", "left out": "Left out"}
    return " ".join(f"{said[kind]}: {', '.join(names)}." for kind, names in by_kind.items() if names)


def _quoted(text: str) -> str:
    import shlex

    return shlex.quote(text)


def _eighth(plan: Plan) -> int:
    return max(1, plan.rounds // 8)


def _uneven(plan: Plan) -> int:
    """About an eighth of the run, but not a power of two, so that changes do not coincide with starts of blocks."""
    return max(1, plan.rounds * 3 // 25)


def _every(period: int, plan: Plan) -> tuple[int, ...]:
    return tuple(range(0, plan.rounds, period))


def _two_valleys(plan: Plan) -> Arena:
    return Arena(
        "two-valleys",
        "Two valleys",
        "The paper's example in one dimension: the loss is (x + 1)² in the first half of the run and "
        "(x − 1)² in the second. Decisions lie between −1 and 1.",
        Interval(-1.0, 1.0),
        plan.rounds,
        plan.rounds // 2,
        ("ogd", "ogd-inverse", "adagrad", "saol", "cbce", "samuel", "samuel-ogd", "samuel-ogd-equal", "samuel-cold"),
        lambda seed: TwoValleys(plan.rounds),
        (0, plan.rounds // 2),
        seeded=False,
        grows=True,
    )


_HOW = {
    "abrupt": "change all at once",
    "gradual": "move at constant speed from one random place to the next",
    "recurring": "change all at once, among three places that come back in turn,",
}


def _regression(drift: Literal["abrupt", "gradual", "recurring"]) -> Callable[[Plan], Arena]:
    def arena(plan: Plan) -> Arena:
        period = _eighth(plan) if drift == "abrupt" else _uneven(plan)
        how = _HOW[drift] + (" after every eighth" if drift == "abrupt" else " in every 3/25")
        return Arena(
            "drift" if drift == "abrupt" else f"drift-{drift}",
            "Drifting regression" if drift == "abrupt" else f"Regression, {drift} drift",
            "Linear regression with squared loss and noisy targets. The true coefficients, a vector of norm 1, "
            f"{how} of the run. Decisions lie in a ball of radius 2.",
            Ball(2.0),
            plan.rounds,
            period,
            (
                ("ogd", "ogd-sqrt", "adagrad", "saol", "cbce", "samuel", "samuel-ogd", "samuel-ogd-equal")
                if drift == "abrupt"
                else USUAL
            ),
            lambda seed: DriftingRegression(plan.dim, period=period, seed=seed, drift=drift),
            () if drift == "gradual" else _every(period, plan),
        )

    return arena


def _outliers(plan: Plan) -> Arena:
    period = _uneven(plan)
    return Arena(
        "outliers",
        "Regression with outliers",
        "Linear regression; one round in 500 is an outlier, whose features and target are 10 times as large, so that "
        "loss and gradient are 100 times. Coefficients, a vector of norm 1, are new in every 3/25 of the run. "
        "Decisions lie in a ball of radius 2.",
        Ball(2.0),
        plan.rounds,
        period,
        USUAL,
        lambda seed: DriftingRegression(plan.dim, period=period, seed=seed, outliers=0.002),
        _every(period, plan),
    )


def _classification(drift: Literal["abrupt", "gradual", "recurring"]) -> Callable[[Plan], Arena]:
    def arena(plan: Plan) -> Arena:
        period = _uneven(plan)
        return Arena(
            "classes" if drift == "abrupt" else f"classes-{drift}",
            "Drifting classes" if drift == "abrupt" else f"Classes, {drift} drift",
            "Logistic regression on two classes. The true coefficients, a vector of norm 10, "
            f"{_HOW[drift]} in every 3/25 of the run. Decisions lie in a ball of radius 10.",
            Ball(10.0),
            plan.rounds,
            period,
            USUAL,
            lambda seed: DriftingClassification(plan.dim, period=period, seed=seed, drift=drift),
            () if drift == "gradual" else _every(period, plan),
        )

    return arena


def _sparse(plan: Plan) -> Arena:
    period = _uneven(plan)
    return Arena(
        "sparse",
        "Sparse features",
        "Linear regression on features of which few are there at a time, some often and most rarely, on scales that "
        "differ by up to 100. Coefficients are new in every 3/25 of the run. Decisions lie in a box from −1 to 1.",
        Box(-1.0, 1.0),
        plan.rounds,
        period,
        USUAL,
        lambda seed: SparseRegression(plan.dim, period=period, seed=seed),
        _every(period, plan),
    )


def _advice(plan: Plan) -> Arena:
    period, dim = _uneven(plan), max(2, plan.dim)
    return Arena(
        "advice",
        "Expert advice",
        "Every expert loses 0 or 1 in each round, all alike but for a best one, which loses less often and is another "
        "one in every 3/25 of the run. Decisions are shares of the experts.",
        Simplex(),
        plan.rounds,
        period,
        ("ogd", "hedge", "fixed-share", "fixed-share-past", *RIVALS, "samuel"),
        lambda seed: ExpertAdvice(dim, period=period, seed=seed),
        _every(period, plan),
    )


def _quantile(plan: Plan) -> Arena:
    period = _uneven(plan)
    return Arena(
        "quantile",
        "Drifting quantile",
        "The 90 % quantile of positive, skewed numbers, by pinball losses. Their distribution is another one in every "
        "3/25 of the run. Decisions lie between 0 and 10.",
        Interval(0.0, 10.0),
        plan.rounds,
        period,
        USUAL,
        lambda seed: DriftingQuantile(level=0.9, period=period, seed=seed),
        _every(period, plan),
    )


def _adversary(plan: Plan) -> Arena:
    longest = min(4096, 1 << (plan.rounds // 2).bit_length() - 1)
    return Arena(
        "adversary",
        "Adversary",
        "Random signs with a bias that is gone by the time it can be known, on blocks of every length: hard for all. "
        "Decisions lie in a ball of radius 1.",
        Ball(1.0),
        plan.rounds,
        longest,
        USUAL,
        lambda seed: Adversary(plan.dim, longest=longest, seed=seed),
    )


def _storms(plan: Plan) -> Arena:
    calm = _uneven(plan)
    storm = max(2, calm // 20)
    starts = (start for turn in range(0, plan.rounds, calm + storm) for start in (turn, turn + calm))
    return Arena(
        "storms",
        "Calm and storms",
        "Long stretches of small gradients, broken by storms of gradients 20 times as long for a twentieth of the "
        "time. What was learned in one stretch is worth nothing in the next. Decisions lie in a ball of radius 1.",
        Ball(1.0),
        plan.rounds,
        calm,
        USUAL,
        lambda seed: Storms(plan.dim, calm=calm, storm=storm, seed=seed),
        tuple(start for start in starts if start < plan.rounds),
    )


def _part(plan: Plan, thousandths: int) -> int:
    """A part of a run. Of 8192 rounds they are 532, 1040 and 1499: no block of a geometric cover starts with them."""
    return max(8, plan.rounds * thousandths // 1000)


def _table1_changes(plan: Plan) -> Arena:
    length = _part(plan, 65)
    return _compared(
        plan,
        "table1-changes",
        "Table 1: changes",
        "Gradients of norm 1, each coordinate with a preferred sign that it takes 9 times in 10; all of them are drawn "
        "anew after about every 15th of the run. Decisions lie in a ball of radius 1. It sets √T apart from √|I|: all "
        "gradients have the same norm, so the bounds of the later rows agree with √|I|, and after a change late in the "
        "run a bound of √T allows for many more rounds of the old ways than √|I| does.",
        Ball(1.0),
        lambda seed: Storms(plan.dim, length, length, scale=1.0, preference=0.8, seed=seed),
        Comparison((("stretch", length),), 1.0, ("horizon",), ("length", "norms", "squares", "coordinates", "matrix")),
    )


def _table1_storms(plan: Plan) -> Arena:
    calm, storm = _part(plan, 183), _part(plan, 65)
    return _compared(
        plan,
        "table1-storms",
        "Table 1: calm and storms",
        "Gradients of norm 0.1 for three quarters of the time and of norm 1 for the rest, four turns of both. A pull "
        "that lasts for a stretch lies under a ripple that turns round after every round: to answer it is to lose, and "
        "only experts with a long memory do not. Decisions lie in a ball of radius 1. It sets √|I| apart from √Σ|g|²: "
        "in the calm the first is ten times the second, and weights whose steps are made for gradients of norm 1 "
        "hardly move there.",
        Ball(1.0),
        lambda seed: Ripples(max(2, plan.dim), calm, storm, seed=seed),
        Comparison((("calm", calm), ("storm", storm)), 1.0, ("length",), ("squares", "coordinates", "matrix")),
    )


def _table1_sparse(plan: Plan) -> Arena:
    dim, period = 2 * plan.dim, _part(plan, 127)
    # In a period all quiet coordinates together pull about sqrt(2 dim) times as much as the loud one does by chance.
    example = OneLoud(dim, period, quiet=math.sqrt(2 / (dim * period)))
    return _compared(
        plan,
        "table1-sparse",
        "Table 1: sparse and badly scaled",
        "One loud coordinate of random signs, and quiet ones that are there one time in ten and always pull the same "
        "way, until their signs are drawn anew after about every eighth of the run. Decisions lie in a box from −1 to "
        "1. It sets D₂ √Σ|g|² apart from Σᵢ Dᵢ |gᵢ|₂: on a box in d dimensions D₂ is √d Dᵢ, while the sum over the "
        "coordinates is not much more than the loud one's part.",
        Box(-1.0, 1.0),
        lambda seed: replace(example, seed=seed),
        Comparison((("stretch", period),), example.longest, ("squares",), ("coordinates",)),
    )


def _compared(
    plan: Plan,
    name: str,
    label: str,
    about: str,
    domain: Domain,
    stream: Callable[[int], Stream],
    comparison: Comparison,
) -> Arena:
    """An arena of Table 1, where its rows play; full matrices on balls only, where their projections are cheap."""
    learners = tuple(row for row in ROWS if isinstance(domain, Ball) or row != "samuel-full-matrix")
    starts = tuple(part.first for part in comparison.stretches(plan.rounds))
    steady = comparison.turn[0][1]
    return Arena(name, label, about, domain, plan.rounds, steady, learners, stream, starts, comparison=comparison)


STREAMS: dict[str, Callable[[Plan], Arena]] = {
    "two-valleys": _two_valleys,
    "drift": _regression("abrupt"),
    "drift-gradual": _regression("gradual"),
    "drift-recurring": _regression("recurring"),
    "outliers": _outliers,
    "classes": _classification("abrupt"),
    "classes-gradual": _classification("gradual"),
    "classes-recurring": _classification("recurring"),
    "sparse": _sparse,
    "advice": _advice,
    "quantile": _quantile,
    "adversary": _adversary,
    "storms": _storms,
    "table1-changes": _table1_changes,
    "table1-storms": _table1_storms,
    "table1-sparse": _table1_sparse,
}
"""Arenas by name, as functions of a plan."""


TABLE1 = tuple(name for name in STREAMS if name.startswith("table1-"))
"""The streams of the paper's Table 1, made to set its rows apart."""
ALL = tuple(name for name in STREAMS if name not in TABLE1)
"""What `samuel play --all` plays."""


def arenas(plan: Plan) -> tuple[Arena, ...]:
    """The arenas of a plan, in order."""
    return (*(STREAMS[name](plan) for name in plan.streams), *(table_arena(table) for table in plan.tables))
