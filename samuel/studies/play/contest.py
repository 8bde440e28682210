"""A contest: several online learners play the same streams, and what each of them lost is measured.

`run(Plan(...))` plays and returns plain records with nothing but numbers and names in them; `figures` and
`page` draw them. Every number of the report comes from here.
"""

from __future__ import annotations

import importlib.util
import math
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from samuel.online import (
    OGD,
    Adagrad,
    Ball,
    Domain,
    DriftingRegression,
    Interval,
    Learner,
    Recorded,
    Samuel,
    Single,
    Stream,
    Trace,
    TwoValleys,
    play,
)
from samuel.online.certificates import ANY_POINT
from samuel.online.comparators import best_fixed_point
from samuel.online.play import WORTH_COMPILING

FEWEST_ROUNDS, MOST_ROUNDS = 256, 65_536
MOST_DIM = 100
BACKENDS = ("auto", "jax", "numpy")
RATES = tuple(2.0**power for power in range(-4, 4))
"""What is tried for a learner that needs a learning rate; the best one in hindsight plays."""
POINTS = 1000
"""At most so many points of a curve are kept."""
QUICK = 2**14
"""Up to so many rounds a learner on its own is done sooner without compiling."""
STRETCHES = 256
"""What is averaged is averaged over so many stretches of the run."""
STARTS = 256
"""At about so many starts intervals of one length are looked at."""
SHORTEST = 8
"""Rounds in the shortest interval looked at."""

Tell = Callable[[str, int, int], None]
"""Told what is being done, how many steps are done, and how many there are."""


@dataclass(frozen=True)
class Contestant:
    """A learner that can take part: a name, and how it is made for a stream.

    Attributes:
        name: what it is called on the command line.
        label: what it is called in tables and figures.
        about: what it is, in one sentence.
        make: `make(dim, domain, rate, **options)` makes a fresh learner; learners without a rate ignore it.
        tuned: whether it needs a learning rate, and so gets the best of `RATES` in hindsight.
    """

    name: str
    label: str
    about: str
    make: Callable[..., Learner]
    tuned: bool = False


def _ogd(schedule: Literal["constant", "sqrt", "inverse"]) -> Callable[..., Learner]:
    return lambda dim, domain, rate, **options: Single(OGD(rate, schedule), dim, domain, **options)


def _ogd_inverse(dim: int, domain: Domain, rate: float, **options: Any) -> Learner:
    return Single(OGD(1.0, "inverse"), dim, domain, **options)


def _adagrad(dim: int, domain: Domain, rate: float, **options: Any) -> Learner:
    return Single(Adagrad(rate), dim, domain, **options)


def _samuel_ogd(dim: int, domain: Domain, rate: float, **options: Any) -> Learner:
    prior = [rate**-0.5 for rate in RATES]
    return Samuel(dim, domain, base=OGD(), learning_rates=RATES, prior=prior, newborns="inherit", **options)


def _samuel_ogd_equal(dim: int, domain: Domain, rate: float, **options: Any) -> Learner:
    return Samuel(dim, domain, base=OGD(), learning_rates=RATES, **options)


def _samuel(newborns: Literal["warm", "cold", "inherit"]) -> Callable[..., Learner]:
    return lambda dim, domain, rate, **options: Samuel(dim, domain, newborns=newborns, **options)


LEARNERS: dict[str, Contestant] = {
    contestant.name: contestant
    for contestant in (
        Contestant("ogd", "OGD", "Gradient descent with a constant rate.", _ogd("constant"), tuned=True),
        Contestant(
            "ogd-sqrt",
            "OGD, rate/√t",
            "Gradient descent with rates that fall as 1/√t.",
            _ogd("sqrt"),
            tuned=True,
        ),
        Contestant(
            "ogd-inverse",
            "OGD, 1/t",
            "Gradient descent with the rates 1/t of the paper's example.",
            _ogd_inverse,
        ),
        Contestant("adagrad", "Adagrad", "Adagrad with one rate for the whole run.", _adagrad, tuned=True),
        Contestant(
            "samuel", "SAMUEL", "SAMUEL as it comes, over Adagrad with rates that fit the domain.", _samuel("warm")
        ),
        Contestant(
            "samuel-ogd",
            "SAMUEL (OGD, 8 rates)",
            "SAMUEL over gradient descent with every rate that OGD is tuned over; nobody tells it which is best. "
            "So wide a list starts with a prior of rate^(-1/2), and newborns inherit.",
            _samuel_ogd,
        ),
        Contestant(
            "samuel-ogd-equal",
            "SAMUEL (OGD, equal)",
            "The same list of rates with equal weights at birth, and newborns that start afresh.",
            _samuel_ogd_equal,
        ),
        Contestant(
            "samuel-cold",
            "SAMUEL, cold",
            "SAMUEL whose newborns start at the domain's centre.",
            _samuel("cold"),
        ),
        Contestant(
            "samuel-inherit",
            "SAMUEL, inheriting",
            "SAMUEL whose newborns take over the place and the weight of the block that ended.",
            _samuel("inherit"),
        ),
    )
}
"""Who can take part, by name."""


@dataclass(frozen=True)
class Arena:
    """A stream to play on, and who plays there unless told otherwise.

    Attributes:
        name: what it is called on the command line.
        label: what it is called on the page.
        about: what it is, in a sentence or two.
        domain: where decisions lie.
        learners: names of the learners that play by default.
        stream: makes the stream of a plan.
        changes: the rounds in which the stream changes, round 0 first.
        grows: whether the contest is repeated for several lengths of the run.
    """

    name: str
    label: str
    about: str
    domain: Domain
    learners: tuple[str, ...]
    stream: Callable[[Plan], Stream]
    changes: Callable[[Plan], tuple[int, ...]]
    grows: bool = False


def _period(plan: Plan) -> int:
    return max(1, plan.rounds // 8)


STREAMS: dict[str, Arena] = {
    arena.name: arena
    for arena in (
        Arena(
            "two-valleys",
            "Two valleys",
            "The paper's example in one dimension: the loss is (x + 1)² in the first half of the run and "
            "(x − 1)² in the second. Decisions lie between −1 and 1.",
            Interval(-1.0, 1.0),
            ("ogd", "ogd-inverse", "adagrad", "samuel", "samuel-ogd", "samuel-ogd-equal", "samuel-cold"),
            lambda plan: TwoValleys(plan.rounds),
            lambda plan: (0, plan.rounds // 2),
            grows=True,
        ),
        Arena(
            "drift",
            "Drifting regression",
            "Linear regression with squared loss and noisy targets. The true coefficients, a vector of norm "
            "1, change all at once after every eighth of the run. Decisions lie in a ball of radius 2.",
            Ball(2.0),
            ("ogd", "ogd-sqrt", "adagrad", "samuel", "samuel-ogd", "samuel-ogd-equal"),
            lambda plan: DriftingRegression(plan.dim, period=_period(plan), seed=plan.seed),
            lambda plan: tuple(range(0, plan.rounds, _period(plan))),
        ),
    )
}
"""What can be played, by name."""


@dataclass(frozen=True)
class Plan:
    """What to play: which streams, which learners, for how long.

    Args:
        streams: names from `STREAMS`.
        learners: names from `LEARNERS`, for every stream; None for those each stream has by default.
        rounds: length of the run.
        dim: dimension of the regression; the two valleys have one.
        seed: for the data of the regression.
        backend: "jax" compiles the runs, "numpy" goes round by round; "auto" takes JAX if it is installed
            and the runs are long enough for compiling to pay.

    Raises:
        ValueError: for a name that is not known or a number out of range.

    >>> Plan(rounds=10)
    Traceback (most recent call last):
    ...
    ValueError: rounds must be a whole number from 256 to 65536, got 10
    """

    streams: tuple[str, ...] = tuple(STREAMS)
    learners: tuple[str, ...] | None = None
    rounds: int = 4096
    dim: int = 10
    seed: int = 0
    backend: Literal["auto", "jax", "numpy"] = "auto"

    def __post_init__(self) -> None:
        _known("stream", self.streams, STREAMS)
        if self.learners is not None:
            _known("learner", self.learners, LEARNERS)
        _whole("rounds", self.rounds, FEWEST_ROUNDS, MOST_ROUNDS)
        _whole("dim", self.dim, 1, MOST_DIM)
        _whole("seed", self.seed, 0, 2**63 - 1)
        _known("backend", (self.backend,), BACKENDS)
        if self.backend == "jax" and not importlib.util.find_spec("jax"):
            raise ValueError("backend 'jax' needs JAX, which is not installed: pip install \"samuel[jax]\"")

    @property
    def command(self) -> str:
        """What to type to play this again."""
        words = ["samuel play"]
        words += [f"--stream {name}" for name in self.streams] if self.streams != tuple(STREAMS) else []
        words += [f"--rounds {self.rounds}"]
        words += [f"--dim {self.dim} --seed {self.seed}"] if "drift" in self.streams else []
        words += [f"--learner {name}" for name in self.learners or ()]
        words += [f"--backend {self.backend}"] if self.backend != "auto" else []
        return " ".join(words)

    @property
    def engine(self) -> Literal["jax", "numpy"]:
        """The backend that "auto" stands for here."""
        if self.backend == "auto":
            return "jax" if self.rounds >= WORTH_COMPILING and importlib.util.find_spec("jax") else "numpy"
        return self.backend


@dataclass(frozen=True)
class WorstInterval:
    """The interval of a given length with the largest regret, and what is proved about it.

    Attributes:
        length: rounds in the interval.
        regret: how much more was lost than by the interval's own best fixed point.
        first: first round of the interval.
        last: last round of the interval.
        certificate: the measured certificate against any fixed point; None where there is none.
    """

    length: int
    regret: float
    first: int
    last: int
    certificate: float | None


@dataclass(frozen=True)
class Result:
    """What one learner did on one stream.

    Attributes:
        learner: its name in `LEARNERS`.
        label: its name on the page.
        rate: the learning rate it played with; None if it needs none.
        tried: every rate that was tried, and the total loss with it.
        total: total loss.
        worst: the worst interval of each length, the shortest first.
        microseconds: time of one round.
        cumulative: loss so far, after the rounds in `Contest.at`.
        path: the decision there, in one dimension; in more, the distance to the best fixed point of the
            present stretch, averaged over short stretches around the rounds in `Contest.path_at`.
    """

    learner: str
    label: str
    rate: float | None
    tried: tuple[tuple[float, float], ...]
    total: float
    worst: tuple[WorstInterval, ...]
    microseconds: float
    cumulative: np.ndarray
    path: np.ndarray

    def worst_on(self, length: int) -> WorstInterval:
        """The worst interval of that length."""
        return next(worst for worst in self.worst if worst.length == length)


@dataclass(frozen=True)
class Weights:
    """Where SAMUEL's weight lay in the course of a run, averaged over short stretches.

    Attributes:
        label: which learner.
        at: the round in the middle of each stretch.
        lengths: rounds in a block, one number per level.
        by_level: weight of each level, `(levels, stretches)`.
        rates: learning rates of the experts.
        by_rate: weight of each rate, `(rates, stretches)`.
    """

    label: str
    at: np.ndarray
    lengths: tuple[int, ...]
    by_level: np.ndarray
    rates: tuple[float, ...]
    by_rate: np.ndarray


@dataclass(frozen=True)
class Chain:
    """Regret and what bounds it, the largest over intervals of each length; each is at most the next.

    Attributes:
        label: which learner.
        lengths: rounds in the intervals.
        regret: what was lost more than by the interval's best fixed point.
        linearised: the same for linearised losses.
        measured: the certificate, from the gains that the experts had.
        guaranteed: the certificate, by the algorithm.
        trivial: what holds for any decisions whatever.
    """

    label: str
    lengths: tuple[int, ...]
    regret: tuple[float, ...]
    linearised: tuple[float, ...]
    measured: tuple[float, ...]
    guaranteed: tuple[float, ...]
    trivial: tuple[float, ...]


@dataclass(frozen=True)
class Growth:
    """Total loss for runs of several lengths, with the rates that the contest was played with.

    Attributes:
        rounds: lengths of the runs.
        totals: total loss for each, by label.
        best_fixed: total loss of the best fixed point of each run.
    """

    rounds: tuple[int, ...]
    totals: dict[str, tuple[float, ...]]
    best_fixed: tuple[float, ...]


@dataclass(frozen=True)
class Contest:
    """What all learners did on one stream.

    Attributes:
        stream: its name in `STREAMS`.
        label: its name on the page.
        about: what it is.
        rounds: length of the run.
        dim: dimension of the decisions.
        changes: the rounds in which the stream changes, round 0 first.
        at: the rounds at which curves are kept.
        path_at: the rounds at which `Result.path` is kept.
        results: one per learner.
        best_fixed: total loss of the best fixed point.
        best_fixed_cumulative: its loss so far.
        optimum: the best fixed point of the present stretch, in one dimension; None in more.
        lengths: the two lengths of intervals that tables show.
        weights: of the first SAMUEL that took part; None if none did.
        chain: of the same.
        growth: total loss for runs of several lengths, where the stream has them.
    """

    stream: str
    label: str
    about: str
    rounds: int
    dim: int
    changes: tuple[int, ...]
    at: np.ndarray
    path_at: np.ndarray
    results: tuple[Result, ...]
    best_fixed: float
    best_fixed_cumulative: np.ndarray
    optimum: np.ndarray | None
    lengths: tuple[int, int]
    weights: Weights | None = None
    chain: Chain | None = None
    growth: Growth | None = None


@dataclass(frozen=True)
class Report:
    """All contests of a plan, and with what they were played.

    Attributes:
        plan: what was asked for.
        contests: one per stream.
        seconds: how long it all took.
        date: when it ended.
        software: names and versions.
    """

    plan: Plan
    contests: tuple[Contest, ...]
    seconds: float
    date: str
    software: dict[str, str]


def run(plan: Plan, tell: Tell | None = None) -> Report:
    """Play everything in a plan and measure it.

    Args:
        plan: what to play.
        tell: called before each step with what is being done, the steps done and the steps in all.

    >>> report = run(Plan(streams=("two-valleys",), learners=("ogd-inverse",), rounds=256, backend="numpy"))
    >>> [result.label for result in report.contests[0].results]
    ['OGD, 1/t']
    """
    began = time.perf_counter()
    arenas = [STREAMS[name] for name in plan.streams]
    casts = [[LEARNERS[name] for name in plan.learners or arena.learners] for arena in arenas]
    steps = _Steps(sum(len(cast) * (2 if arena.grows else 1) for arena, cast in zip(arenas, casts, strict=True)), tell)
    contests = tuple(_contest(plan, arena, cast, steps) for arena, cast in zip(arenas, casts, strict=True))
    steps.end()
    date = datetime.now().astimezone().isoformat(timespec="minutes")
    return Report(plan, contests, time.perf_counter() - began, date, _software(plan.engine))


def summary(report: Report) -> dict[str, Any]:
    """The numbers of a report's tables as plain lists and dictionaries, fit for JSON."""
    return {
        "samuel": report.software["samuel"],
        "date": report.date,
        "command": report.plan.command,
        "seconds": round(report.seconds, 3),
        "software": report.software,
        "streams": [
            {
                "stream": contest.stream,
                "rounds": contest.rounds,
                "dim": contest.dim,
                "best_fixed_point": contest.best_fixed,
                "learners": [
                    {
                        "learner": result.learner,
                        "rate": result.rate,
                        "tried": [{"rate": rate, "total_loss": total} for rate, total in result.tried],
                        "total_loss": result.total,
                        "worst_intervals": [vars(worst) for worst in result.worst],
                        "microseconds_a_round": result.microseconds,
                    }
                    for result in contest.results
                ],
                "growth": None if contest.growth is None else vars(contest.growth),
            }
            for contest in report.contests
        ],
    }


class _Steps:
    """Counts the steps of a run aloud."""

    def __init__(self, total: int, tell: Tell | None) -> None:
        self.done, self.total, self.tell = -1, total, tell

    def next(self, what: str) -> None:
        self.done += 1
        if self.tell is not None:
            self.tell(what, self.done, self.total)

    def end(self) -> None:
        self.next("done")


def _contest(plan: Plan, arena: Arena, cast: Sequence[Contestant], steps: _Steps) -> Contest:
    stream, changes = arena.stream(plan), arena.changes(plan)
    data = stream.data(0, plan.rounds)
    at = thinned(plan.rounds)
    best = best_fixed_point(stream.loss, data, arena.domain, stream.dim)
    best_losses = np.asarray(stream.loss.value(best.point, data))
    optimum = _optimum(stream, arena.domain, (*changes, plan.rounds))
    results, weights, chain = [], None, None
    for contestant in cast:
        steps.next(f"{arena.label}: {contestant.label}")
        tried = _tune(plan, arena, stream, contestant) if contestant.tuned else ()
        rate = min(tried, key=lambda pair: pair[1])[0] if tried else None
        trace, seconds = _play(plan, arena, stream, contestant, rate)
        results.append(_result(contestant, trace, at, optimum, rate, tried, seconds))
        if weights is None and trace.weights is not None:
            weights, chain = _weights(contestant.label, trace), _chain(contestant.label, trace)
    growth = _growth(plan, arena, cast, results, steps) if arena.grows else None
    return Contest(
        stream=arena.name,
        label=arena.label,
        about=arena.about,
        rounds=plan.rounds,
        dim=stream.dim,
        changes=changes,
        at=at,
        path_at=at if stream.dim == 1 else _middles(plan.rounds),
        results=tuple(results),
        best_fixed=best.loss,
        best_fixed_cumulative=np.cumsum(best_losses)[at],
        optimum=optimum[at, 0] if stream.dim == 1 else None,
        lengths=table_lengths(plan.rounds),
        weights=weights,
        chain=chain,
        growth=growth,
    )


def _tune(plan: Plan, arena: Arena, stream: Stream, contestant: Contestant) -> tuple[tuple[float, float], ...]:
    """The total loss with every rate of the grid."""
    totals = []
    backend = "numpy" if plan.rounds <= QUICK else plan.engine
    for rate in RATES:
        learner = contestant.make(stream.dim, arena.domain, rate)
        trace = play(learner, stream, plan.rounds, record="losses", backend=backend, progress=False)
        totals.append((rate, float(np.sum(trace.losses))))
    return tuple(totals)


def _play(plan: Plan, arena: Arena, stream: Stream, contestant: Contestant, rate: float | None) -> tuple[Trace, float]:
    """The record of a run, and how many seconds it took once compiled."""

    def once() -> Trace:
        learner = contestant.make(stream.dim, arena.domain, rate)
        return play(learner, stream, plan.rounds, backend=plan.engine, progress=False)

    if plan.engine == "jax":
        once()  # compiles
    began = time.perf_counter()
    trace = once()
    return trace, time.perf_counter() - began


def _result(
    contestant: Contestant,
    trace: Trace,
    at: np.ndarray,
    optimum: np.ndarray,
    rate: float | None,
    tried: tuple[tuple[float, float], ...],
    seconds: float,
) -> Result:
    decisions = trace.needed("decision")
    if trace.rule.dim == 1:
        path = decisions[at, 0]
    else:
        path = averaged(np.linalg.norm(decisions - optimum, axis=-1), STRETCHES)
    return Result(
        learner=contestant.name,
        label=contestant.label,
        rate=rate,
        tried=tried,
        total=float(np.sum(trace.losses)),
        worst=tuple(_worst(trace, length) for length in interval_lengths(len(trace))),
        microseconds=1e6 * seconds / len(trace),
        cumulative=np.cumsum(trace.losses)[at],
        path=path,
    )


def _worst(trace: Trace, length: int) -> WorstInterval:
    worst = trace.worst(length, every=grid(len(trace), length))
    certificate = trace.certificate(worst.first, worst.last)
    proved = certificate.against == ANY_POINT and math.isfinite(certificate.measured)
    return WorstInterval(length, worst.regret, worst.first, worst.last, certificate.measured if proved else None)


def _weights(label: str, trace: Trace) -> Weights:
    rule: Any = trace.rule
    weights = trace.needed("p")
    levels = weights.shape[1]
    return Weights(
        label,
        at=_middles(len(trace)),
        lengths=tuple(rule.cover.length(level) for level in range(levels)),
        by_level=averaged(weights.sum(axis=2), STRETCHES).T,
        rates=tuple(base.learning_rate for base in rule.experts),
        by_rate=averaged(weights.sum(axis=1), STRETCHES).T,
    )


def _chain(label: str, trace: Trace) -> Chain:
    lengths = interval_lengths(len(trace))
    rows = []
    for length in lengths:
        every = grid(len(trace), length)
        starts = range(0, len(trace) - length + 1, every)
        proofs = [trace.certificate(start, start + length - 1) for start in starts]
        bounds = np.array([(p.linearised, p.measured, p.guaranteed, p.trivial) for p in proofs])
        rows.append((trace.worst(length, every=every).regret, *np.max(bounds, axis=0).tolist()))
    return Chain(label, lengths, *zip(*rows, strict=True))


def _growth(plan: Plan, arena: Arena, cast: Sequence[Contestant], results: Sequence[Result], steps: _Steps) -> Growth:
    """The contest for runs from 16 times shorter to 4 times longer.

    None of the learners knows the length of the run, so all lengths can be played side by side in one go as
    streams of a single run; each is read off at its own end.
    """
    rounds = tuple(plan.rounds * 2**power // 16 for power in range(7))
    streams = [TwoValleys(length) for length in rounds]
    parts = [stream.data(0, rounds[-1]) for stream in streams]
    together = Recorded(streams[0].loss, tuple(np.stack(arrays, axis=1) for arrays in zip(*parts, strict=True)))
    totals = {}
    for contestant, result in zip(cast, results, strict=True):
        steps.next(f"{arena.label}, runs of {rounds[0]} to {rounds[-1]} rounds: {contestant.label}")
        learner = contestant.make(together.dim, arena.domain, result.rate, streams=len(rounds))
        trace = play(learner, together, record="losses", backend=plan.engine, progress=False)
        lost = np.cumsum(trace.losses, axis=0)
        totals[contestant.label] = tuple(float(lost[length - 1, place]) for place, length in enumerate(rounds))
    best = tuple(
        best_fixed_point(stream.loss, stream.data(0, stream.rounds), arena.domain, stream.dim).loss
        for stream in streams
    )
    return Growth(rounds, totals, best)


def _optimum(stream: Stream, domain: Domain, edges: Sequence[int]) -> np.ndarray:
    """The best fixed point of the stretch that each round lies in, `(rounds, dim)`."""
    return np.concatenate(
        [
            np.tile(best_fixed_point(stream.loss, stream.data(a, b), domain, stream.dim).point, (b - a, 1))
            for a, b in pairwise(edges)
        ]
    )


def thinned(rounds: int, most: int = POINTS) -> np.ndarray:
    """At most so many rounds, evenly spread, the first and the last among them.

    >>> thinned(10, most=4)
    array([0, 3, 6, 9])
    """
    return np.unique(np.linspace(0, rounds - 1, min(rounds, most)).round().astype(int))


def averaged(values: np.ndarray, stretches: int) -> np.ndarray:
    """Means over so many stretches of the first axis, as equal in length as can be.

    >>> averaged(np.array([1.0, 3.0, 5.0, 7.0]), stretches=2)
    array([2., 6.])
    """
    edges = _edges(len(values), stretches)
    lengths = np.diff(edges).reshape(-1, *[1] * (values.ndim - 1))
    return np.add.reduceat(values, edges[:-1], axis=0) / lengths


def _edges(rounds: int, stretches: int) -> np.ndarray:
    return np.linspace(0, rounds, min(rounds, stretches) + 1).astype(int)


def _middles(rounds: int) -> np.ndarray:
    edges = _edges(rounds, STRETCHES)
    return (edges[:-1] + edges[1:] - 1) / 2


def interval_lengths(rounds: int) -> tuple[int, ...]:
    """The lengths of intervals that are looked at: doubling, up to the whole run.

    >>> interval_lengths(100)
    (8, 16, 32, 64)
    """
    return tuple(SHORTEST * 2**power for power in range((rounds // SHORTEST).bit_length()))


def table_lengths(rounds: int) -> tuple[int, int]:
    """The two lengths of intervals that tables show: about a 64th and an 8th of the run.

    >>> table_lengths(4096)
    (64, 512)
    """
    lengths = interval_lengths(rounds)
    short = max(0, len(lengths) - 7)
    return lengths[short], lengths[max(short + 1, len(lengths) - 4)]


def grid(rounds: int, length: int) -> int:
    """Rounds between two starts at which intervals of that length are looked at."""
    return max(1, length // 4, rounds // STARTS)


def _software(engine: str) -> dict[str, str]:
    import samuel

    found = {"samuel": samuel.__version__, "Python": platform.python_version(), "NumPy": np.__version__}
    if engine == "jax":
        try:
            found["JAX"] = version("jax")
        except PackageNotFoundError:  # installed in a way that left no name behind
            found["JAX"] = "unknown"
    return found


def _known(what: str, names: Sequence[str], table: Sequence[str] | dict[str, Any]) -> None:
    if not names:
        raise ValueError(f"no {what} is named: give at least one of {', '.join(table)}")
    for name in names:
        if name not in table:
            raise ValueError(f"{what} {name!r} is not known: choose from {', '.join(table)}")
    if len(set(names)) < len(names):
        twice = next(name for name in names if list(names).count(name) > 1)
        raise ValueError(f"{what} {twice!r} is named twice")


def _whole(name: str, value: Any, least: int, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"{name} must be a whole number from {least} to {most}, got {value!r}")
