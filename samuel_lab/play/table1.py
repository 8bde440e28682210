"""The paper's Table 1 as an experiment: worst regret on intervals beside the bound that theory states for each method.

All losses are linear, so that all methods see the same gradients, and a bound that is made of them is the same number
for all. `run(Plan(...))` plays and measures; `table1_page` shows what it returns.
"""

from __future__ import annotations

import importlib.util
import math
import os
import platform
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from typing import Any

import numpy as np

from samuel.online import (
    AFLH,
    CBCE,
    FLH,
    SACS,
    SAOL,
    Adagrad,
    AdagradFull,
    Ball,
    Domain,
    Hedge,
    Learner,
    ParameterFree,
    Samuel,
    ScaleFreeOGD,
    Single,
    play,
)
from samuel.online.regret import Grid, growth_exponent
from samuel.online.streams import Recorded, SideBySide
from samuel_lab.play.table1_streams import FAMILIES, Family
from samuel_lab.tables import plain

FEWEST_ROUNDS, MOST_ROUNDS = 256, 65_536
MOST_SEEDS = 20
COMPILED = 2048
"""Rounds from which on a run is compiled where JAX is installed."""
SHORTEST_FITTED = 32
"""Lengths from here on enter exponents and ratios: on shorter intervals nobody has learned anything yet."""
THREADS = 4
"""At most so many methods play at once."""
KNOWN, OWN = "known", "own"
"""The two ways to a scale: told the largest norm of gradients beforehand, or left to find it out."""

Tell = Callable[[str, int, int], None]
"""Told what is being done, how many steps are done, and how many there are."""


@dataclass(frozen=True)
class Yardstick:
    """What a bound is made of, without logarithms and constants.

    Attributes:
        name: an identifier.
        label: the formula.
        about: the formula in words.
    """

    name: str
    label: str
    about: str


YARDSTICKS: dict[str, Yardstick] = {
    yardstick.name: yardstick
    for yardstick in (
        Yardstick("horizon", "D₂ G √T", "the root of the length of the run"),
        Yardstick("length", "D₂ G √|I|", "the root of the length of the interval"),
        Yardstick("norms", "D₂ √(G Σ|g|)", "the root of the sum of the norms of its gradients"),
        Yardstick("squares", "D₂ √Σ|g|²", "the root of the sum of their squares"),
        Yardstick("coordinates", "Σᵢ Dᵢ |gᵢ|₂", "the sum of the roots of the sums of squares of each coordinate"),
        Yardstick("matrix", "D₂ tr (Σ g gᵀ)^½", "the trace of the root of the sum of their outer products"),
    )
}
"""What bounds are made of: `D₂` is the diameter of the domain, `Dᵢ` its width, `G` the largest norm of a gradient."""


@dataclass(frozen=True)
class Method:
    """A row of the table.

    Attributes:
        name: what it is called on the command line.
        label: what it is called in tables and figures.
        row: the regret on an interval as theory states it.
        source: who states it.
        yardstick: what that bound is made of; None where there is none on intervals.
        make: `make(dim, domain, **options)` makes a fresh learner.
        told: whether it can be told the largest norm of gradients.
        ball_only: whether it plays on balls only.
        control: whether it is no row of the table, but there to compare with.
    """

    name: str
    label: str
    row: str
    source: str
    yardstick: str | None
    make: Callable[..., Learner]
    told: bool = True
    ball_only: bool = False
    control: bool = False

    def scales(self) -> tuple[str, ...]:
        """The ways to a scale that it plays with."""
        return (KNOWN, OWN) if self.told else (OWN,)


def _width_rate(dim: int, domain: Domain) -> float:
    """Adagrad's rate with the best bound."""
    return max(domain.widths(dim)) / math.sqrt(2)


def _samuel(base: Any) -> Callable[..., Learner]:
    return lambda dim, domain, **options: Samuel(dim, domain, base=base, **options)


def _samuel_warm(dim: int, domain: Domain, **options: Any) -> Learner:
    return Samuel(dim, domain, newborns="warm", **options)


def _saol_adagrad(dim: int, domain: Domain, **options: Any) -> Learner:
    return SAOL(dim, domain, base=Adagrad(_width_rate(dim, domain)), **options)


def _adagrad(dim: int, domain: Domain, **options: Any) -> Learner:
    return Single(Adagrad(_width_rate(dim, domain)), dim, domain, **options)


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("flh", "FLH", "Õ(√T)", "Hazan and Seshadhri 2007", "horizon", FLH),
        Method("aflh", "AFLH", "Õ(√T)", "Hazan and Seshadhri 2007", "horizon", AFLH),
        Method("saol", "SAOL", "Õ(√|I|)", "Daniely and others 2015", "length", SAOL),
        Method("cbce", "CBCE", "Õ(√|I|)", "Jun and others 2017", "length", CBCE),
        Method("sacs", "SACS", "Õ(√(G Σ|g|)) here", "Zhang and others 2019; Luo and Schapire 2015", "norms", SACS),
        Method("parameter-free", "ParameterFree", "Õ(√Σ|g|²)", "Cutkosky 2020", "squares", ParameterFree, told=False),
        Method(
            "samuel-descent",
            "SAMUEL (descent)",
            "Õ(√Σ|g|²)",
            "the paper, Theorem 1, over scale-free descent",
            "squares",
            _samuel(ScaleFreeOGD()),
        ),
        Method(
            "samuel-full",
            "SAMUEL (full Adagrad)",
            "Õ(√Σ|g|*²_H), √d hidden",
            "the paper, Corollary 1",
            "matrix",
            _samuel(AdagradFull()),
            ball_only=True,
        ),
        Method(
            "samuel", "SAMUEL (Adagrad)", "Õ(Σᵢ |gᵢ|₂)", "the paper, Corollary 3", "coordinates", _samuel(Adagrad())
        ),
        Method(
            "samuel-warm",
            "SAMUEL, warm newborns",
            "Õ(Σᵢ |gᵢ|₂)",
            "weights that start afresh, as in the paper",
            "coordinates",
            _samuel_warm,
            control=True,
        ),
        Method(
            "saol-adagrad",
            "SAOL over Adagrad",
            "Õ(√|I|)",
            "SAMUEL's base, SAOL's weights",
            "length",
            _saol_adagrad,
            control=True,
        ),
        Method("hedge", "Hedge over Adagrad", "none: whole run only", "experts, no blocks", None, Hedge, control=True),
        Method("adagrad", "Adagrad", "none: whole run only", "no experts", None, _adagrad, told=False, control=True),
    )
}
"""The rows of the table, by name: the paper's, what it says elsewhere, and controls."""


@dataclass(frozen=True)
class Plan:
    """What to play: which families and methods, how long, how often.

    Args:
        families: names from `FAMILIES`.
        methods: names from `METHODS`.
        rounds: length of the run, `T`.
        seeds: how many streams of each family.

    Raises:
        ValueError: for a name that is not known or a number out of range.

    >>> Plan(rounds=100)
    Traceback (most recent call last):
    ...
    ValueError: rounds must be a whole number from 256 to 65536, got 100
    """

    families: tuple[str, ...] = tuple(FAMILIES)
    methods: tuple[str, ...] = tuple(METHODS)
    rounds: int = 8192
    seeds: int = 3

    def __post_init__(self) -> None:
        for what, names, known in (("family", self.families, FAMILIES), ("method", self.methods, METHODS)):
            if not names:
                raise ValueError(f"no {what} is named: give at least one of {', '.join(known)}")
            for name in names:
                if name not in known:
                    raise ValueError(f"{what} {name!r} is not known: choose from {', '.join(known)}")
                if list(names).count(name) > 1:
                    raise ValueError(f"{what} {name!r} is named twice")
        for name, least, most in (("rounds", FEWEST_ROUNDS, MOST_ROUNDS), ("seeds", 1, MOST_SEEDS)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
                raise ValueError(f"{name} must be a whole number from {least} to {most}, got {value!r}")

    @property
    def command(self) -> str:
        """What to type to play this again."""
        words = [f"samuel table1 --rounds {self.rounds} --seeds {self.seeds}"]
        words += [f"--family {name}" for name in self.families] if self.families != tuple(FAMILIES) else []
        words += [f"--method {name}" for name in self.methods] if self.methods != tuple(METHODS) else []
        return " ".join(words)

    @property
    def compiled(self) -> bool:
        """Whether runs are compiled."""
        return self.rounds >= COMPILED and importlib.util.find_spec("jax") is not None

    def rows(self, family: Family) -> tuple[Method, ...]:
        """Who plays a family."""
        methods = (METHODS[name] for name in self.methods)
        return tuple(method for method in methods if isinstance(family.domain, Ball) or not method.ball_only)


@dataclass(frozen=True)
class Measured:
    """What was measured of a method on the intervals inside stretches of one kind. Means over the seeds.

    Attributes:
        kind: which stretches.
        lengths: rounds of the intervals.
        worst: the largest regret on intervals of each length.
        deviation: standard deviation of it over the seeds; 0 for one.
        exponent: the power of the length that it grows with; None where there are too few lengths.
        ratios: the largest ratio of the regret on an interval to each yardstick there, over all intervals of at least
            `SHORTEST_FITTED` rounds (of the longest ones, where there are none so long).
        after: the mean regret on the first rounds of the stretches in the second half of a run of `Group.runs` rounds.
        exponent_in_T: the power of the length of the run that it grows with.
    """

    kind: str
    lengths: tuple[int, ...]
    worst: tuple[float, ...]
    deviation: tuple[float, ...]
    exponent: float | None
    ratios: dict[str, float]
    after: tuple[float | None, ...]
    exponent_in_T: float | None


@dataclass(frozen=True)
class Result:
    """What one method did on one family, with one way to a scale."""

    method: str
    scale: str
    total: float
    """Mean total loss over the seeds."""
    measured: tuple[Measured, ...]

    def on(self, kind: str) -> Measured:
        """What was measured on stretches of a kind."""
        return next(part for part in self.measured if part.kind == kind)


@dataclass(frozen=True)
class Group:
    """The intervals that lie inside stretches of one kind, and what the yardsticks say of them.

    Attributes:
        kind: which stretches.
        lengths: rounds of the intervals.
        yardsticks: for each yardstick, its largest value on intervals of each length, mean over the seeds.
        exponents: the power of the length that each of them grows with; None where there are too few lengths.
        first: so many rounds at the start of a stretch are looked at for the growth with `T`.
        runs: the lengths of runs that are compared for it; each run is the beginning of the next.
    """

    kind: str
    lengths: tuple[int, ...]
    yardsticks: dict[str, tuple[float, ...]]
    exponents: dict[str, float | None]
    first: int
    runs: tuple[int, ...]


@dataclass(frozen=True)
class Experiment:
    """What all methods did on one family.

    Attributes:
        family: its name in `FAMILIES`.
        dim: dimension of the decisions.
        groups: one per kind of stretches.
        results: one per method and way to a scale.
    """

    family: str
    dim: int
    groups: tuple[Group, ...]
    results: tuple[Result, ...]

    def of(self, method: str, scale: str) -> Result | None:
        """What a method did with a way to a scale; None if it did not play so."""
        return next((r for r in self.results if (r.method, r.scale) == (method, scale)), None)

    def main(self) -> tuple[Result, ...]:
        """One result per method: told the scale, where it can be."""
        best = {result.method: result for result in reversed(self.results)}
        return tuple(result for result in self.results if best[result.method] is result)


@dataclass(frozen=True)
class Report:
    """All families of a plan, and with what they were played."""

    plan: Plan
    experiments: tuple[Experiment, ...]
    seconds: float
    date: str
    software: dict[str, str]


def run(plan: Plan, tell: Tell | None = None) -> Report:
    """Play everything in a plan and measure it.

    Args:
        plan: what to play.
        tell: called before each step with what is being done, the steps done and the steps in all.

    >>> report = run(Plan(families=("changes",), methods=("adagrad",), rounds=256, seeds=1))
    >>> report.experiments[0].results[0].on("stretch").lengths
    (8, 16)
    """
    began = time.perf_counter()
    families = [FAMILIES[name] for name in plan.families]
    steps = _Steps(sum(1 + sum(len(row.scales()) for row in plan.rows(family)) for family in families), tell)
    experiments = tuple(_experiment(plan, family, steps) for family in families)
    steps.next("done")
    import samuel

    software = {"samuel": samuel.__version__, "Python": platform.python_version(), "NumPy": np.__version__}
    if plan.compiled:
        software["JAX"] = version("jax")
    date = datetime.now().astimezone().isoformat(timespec="minutes")
    return Report(plan, experiments, time.perf_counter() - began, date, software)


class _Steps:
    """Counts the steps of a run aloud."""

    def __init__(self, total: int, tell: Tell | None) -> None:
        self.done, self.total, self.tell = -1, total, tell

    def next(self, what: str) -> None:
        self.done += 1
        if self.tell is not None:
            self.tell(what, self.done, self.total)


@dataclass(frozen=True)
class _Field:
    """All that is known of a family's streams before anyone plays.

    `starts` holds the first rounds of the intervals that are looked at, by kind and length; `best` what the best fixed
    points lose on them and `yardsticks` what bounds are made of there, `(intervals, seeds)`.
    """

    family: Family
    stream: SideBySide
    gradients: np.ndarray
    starts: dict[str, dict[int, np.ndarray]]
    best: dict[str, dict[int, np.ndarray]]
    yardsticks: dict[str, dict[int, dict[str, np.ndarray]]]
    groups: tuple[Group, ...]


def _experiment(plan: Plan, family: Family, steps: _Steps) -> Experiment:
    steps.next(f"{family.label}: best fixed points")
    field = _field(plan, family)
    results = []
    # Most of the time goes into compiling, which several threads can do at once; plain NumPy gains nothing by them.
    threads = min(THREADS, os.cpu_count() or 1) if plan.compiled else 1
    with ThreadPoolExecutor(max_workers=threads) as pool:
        todo = [(method, scale) for method in plan.rows(family) for scale in method.scales()]
        played = [pool.submit(_result, plan, field, method, scale) for method, scale in todo]
        try:
            for (method, scale), result in zip(todo, played, strict=True):
                steps.next(f"{family.label}: {method.label}, scale {'told' if scale == KNOWN else 'found out'}")
                results.append(result.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return Experiment(family.name, field.stream.dim, field.groups, tuple(results))


def _field(plan: Plan, family: Family) -> _Field:
    stream = family.streams(plan.rounds, plan.seeds)
    (gradients,) = stream.data(0, plan.rounds)
    starts = {kind: _starts(family, kind, plan.rounds) for kind in family.kinds}
    best = {
        kind: {length: _best(gradients, some, length, family) for length, some in by_length.items()}
        for kind, by_length in starts.items()
    }
    yardsticks = {
        kind: {length: _yardsticks(gradients, some, length, family) for length, some in by_length.items()}
        for kind, by_length in starts.items()
    }
    groups = tuple(_group(kind, yardsticks[kind], family, plan.rounds) for kind in family.kinds)
    return _Field(family, stream, gradients, starts, best, yardsticks, groups)


def _starts(family: Family, kind: str, rounds: int) -> dict[int, np.ndarray]:
    """First rounds of the intervals inside stretches of a kind: from each stretch's own on, a quarter length apart."""
    found = {}
    for length in Grid(rounds).lengths:
        inside = [
            np.arange(part.first, part.stop - length + 1, max(1, length // 4))
            for part in family.stretches(rounds)
            if part.kind == kind
        ]
        starts = np.concatenate(inside)
        if len(starts):
            found[length] = starts
    return found


def _best(gradients: np.ndarray, starts: np.ndarray, length: int, family: Family) -> np.ndarray:
    """What the best fixed points lose on intervals of one length, `(intervals, seeds)`."""
    total = _sums(gradients, starts, length)
    return np.sum(total * np.asarray(family.domain.lowest(total)), axis=-1)


def _yardsticks(gradients: np.ndarray, starts: np.ndarray, length: int, family: Family) -> dict[str, np.ndarray]:
    """What the bounds are made of, on intervals of one length: `(intervals, seeds)` each."""
    rounds, _, dim = gradients.shape
    diameter, widths = family.domain.diameter(dim), np.asarray(family.domain.widths(dim))
    largest = family.gradient_bound(rounds)
    norms = _sums(np.linalg.norm(gradients, axis=-1), starts, length)
    squares = _sums(gradients**2, starts, length)
    eigenvalues = np.linalg.eigvalsh(_sums(gradients[..., :, None] * gradients[..., None, :], starts, length))
    return {
        "horizon": np.full_like(norms, diameter * largest * math.sqrt(rounds)),
        "length": np.full_like(norms, diameter * largest * math.sqrt(length)),
        "norms": diameter * np.sqrt(largest * norms),
        "squares": diameter * np.sqrt(np.sum(squares, axis=-1)),
        "coordinates": np.sqrt(squares) @ widths,
        # Rounding leaves the eigenvalues that are 0 a little above or below it.
        "matrix": diameter * np.sum(np.sqrt(np.where(eigenvalues > 1e-12 * length, eigenvalues, 0.0)), axis=-1),
    }


def _sums(values: np.ndarray, starts: np.ndarray, length: int) -> np.ndarray:
    """Sums over intervals of one length; rounds along the first axis."""
    total = np.concatenate([np.zeros((1, *values.shape[1:])), np.cumsum(values, axis=0)])
    sums = total[starts + length] - total[starts]
    return np.maximum(sums, 0.0) if (values >= 0).all() else sums  # rounding may leave a sum of squares below 0


def _group(kind: str, yardsticks: dict[int, dict[str, np.ndarray]], family: Family, rounds: int) -> Group:
    lengths = tuple(yardsticks)
    largest = {
        name: tuple(float(yardsticks[length][name].max(axis=0).mean()) for length in lengths) for name in YARDSTICKS
    }
    shortest = min(length for part, length in family.cut(rounds) if part == kind)
    return Group(
        kind,
        lengths,
        largest,
        {name: exponent(lengths, values) for name, values in largest.items()},
        first=2 ** int(math.log2(shortest // 2)),
        runs=(rounds // 4, rounds // 2, rounds),
    )


def exponent(lengths: Sequence[int], values: Sequence[float | None], shortest: int = SHORTEST_FITTED) -> float | None:
    """The power of the length that values grow with, from some length on; None for fewer than two, or none positive.

    >>> exponent([8, 32, 128], [9.0, 2.0, 4.0])
    0.5
    """
    pairs = [(n, value) for n, value in zip(lengths, values, strict=True) if n >= shortest and value is not None]
    if len(pairs) < 2:
        return None
    power = growth_exponent(*zip(*pairs, strict=True))
    return None if math.isnan(power) else round(power, 4) + 0.0  # not -0.0


def _result(plan: Plan, field: _Field, method: Method, scale: str) -> Result:
    family, seeds = field.family, plan.seeds
    options: dict[str, Any] = {"gradient_bound": family.gradient_bound(plan.rounds)} if scale == KNOWN else {}
    learner = method.make(field.stream.dim, family.domain, streams=seeds, **options)
    backend = "jax" if plan.compiled and not isinstance(learner, Single) else "numpy"
    stream = Recorded(field.stream.loss, (field.gradients,))
    trace = play(learner, stream, record="losses", backend=backend, progress=False)
    losses = trace.losses
    measured = tuple(_measured(field, group, losses) for group in field.groups)
    return Result(method.name, scale, float(losses.sum(axis=0).mean()), measured)


def _measured(field: _Field, group: Group, losses: np.ndarray) -> Measured:
    starts, best, yardsticks = field.starts[group.kind], field.best[group.kind], field.yardsticks[group.kind]
    regret = {length: _sums(losses, starts[length], length) - best[length] for length in group.lengths}
    worst = np.array([regret[length].max(axis=0) for length in group.lengths])
    means = worst.mean(axis=1).tolist()
    long = [length for length in group.lengths if length >= SHORTEST_FITTED] or group.lengths[-1:]
    ratios = {
        name: np.max([(regret[length] / yardsticks[length][name]).max(axis=0) for length in long], axis=0)
        for name in YARDSTICKS
    }
    after = tuple(_after_changes(field, group, losses, rounds) for rounds in group.runs)
    return Measured(
        group.kind,
        group.lengths,
        tuple(means),
        tuple(worst.std(axis=1, ddof=min(1, losses.shape[1] - 1)).tolist()),
        exponent(group.lengths, means),
        {name: float(ratio.mean()) for name, ratio in ratios.items()},
        after,
        None if None in after else exponent(group.runs, after, shortest=1),
    )


def _after_changes(field: _Field, group: Group, losses: np.ndarray, rounds: int) -> float | None:
    """The mean regret on the first rounds of the stretches of the second half of a run; None for fewer than two."""
    starts = np.array(
        [
            part.first
            for part in field.family.stretches(len(losses))
            if part.kind == group.kind
            and rounds // 2 <= part.first
            and part.first + group.first <= min(part.stop, rounds)
        ]
    )
    if len(starts) < 2:
        return None
    best = _best(field.gradients, starts, group.first, field.family)
    return float(np.mean(_sums(losses, starts, group.first) - best))


def summary(report: Report) -> dict[str, Any]:
    """The numbers of a report as plain lists and dictionaries, fit for strict JSON."""
    return {
        "samuel": report.software["samuel"],
        "date": report.date,
        "command": report.plan.command,
        "seconds": round(report.seconds, 1),
        "software": report.software,
        "rounds": report.plan.rounds,
        "seeds": report.plan.seeds,
        "yardsticks": {yardstick.name: yardstick.label for yardstick in YARDSTICKS.values()},
        "methods": [
            {"method": m.name, "label": m.label, "bound": m.row, "yardstick": m.yardstick, "source": m.source}
            for m in map(METHODS.__getitem__, report.plan.methods)
        ],
        "families": [_family_summary(experiment, report.plan) for experiment in report.experiments],
    }


def _family_summary(experiment: Experiment, plan: Plan) -> dict[str, Any]:
    family = FAMILIES[experiment.family]
    return {
        "family": family.name,
        "about": family.about,
        "apart": family.apart,
        "dim": experiment.dim,
        "domain": str(family.domain),
        "gradient_bound": plain(family.gradient_bound(plan.rounds)),
        "stretches": [{"kind": kind, "rounds": length} for kind, length in family.cut(plan.rounds)],
        "intervals": [
            {
                "inside": group.kind,
                "lengths": list(group.lengths),
                "yardsticks": {name: _plain(values) for name, values in group.yardsticks.items()},
                "exponents": group.exponents,
                "first_rounds": group.first,
                "runs": list(group.runs),
            }
            for group in experiment.groups
        ],
        "results": [_result_summary(result) for result in experiment.results],
    }


def _result_summary(result: Result) -> dict[str, Any]:
    own = METHODS[result.method].yardstick
    return {
        "method": result.method,
        "scale": result.scale,
        "total_loss": plain(result.total),
        "intervals": [
            {
                "inside": part.kind,
                "worst_regret": _plain(part.worst),
                "standard_deviation": _plain(part.deviation),
                "exponent": part.exponent,
                "regret_over_own_bound": None if own is None else plain(part.ratios[own]),
                "regret_over": {name: plain(ratio) for name, ratio in part.ratios.items()},
                "after_changes": _plain(part.after),
                "exponent_in_T": part.exponent_in_T,
            }
            for part in result.measured
        ],
    }


def _plain(values: Sequence[float | None]) -> list[float | None]:
    return [plain(value) for value in values]
