"""Results of a contest: plain records of numbers and names, and their JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from samuel_lab.play.bounds import ROWS, Comparison, Group, Measured
from samuel_lab.play.plan import Plan
from samuel_lab.tables import plain


@dataclass(frozen=True)
class WorstInterval:
    """The interval of a given length with the largest regret, and its certificate.

    Attributes:
        length: rounds in the interval.
        regret: against the interval's own best fixed point; mean over seeds.
        spread: its standard deviation over seeds.
        first: first round of the interval, for the first seed.
        last: last round of the interval.
        first_regret: the regret on it.
        certificate: the measured certificate against any fixed point; None where there is none.
    """

    length: int
    regret: float
    spread: float
    first: int
    last: int
    first_regret: float
    certificate: float | None


@dataclass(frozen=True)
class Map:
    """A number for intervals of every length and start, divided by the root of the length.

    Attributes:
        at: the starts, one for each column.
        lengths: rounds of the intervals, one for each row.
        values: `(lengths, starts)`; nan where an interval would end after the run.
    """

    at: np.ndarray
    lengths: tuple[int, ...]
    values: np.ndarray


@dataclass(frozen=True)
class Weights:
    """A learner's weights over the course of a run.

    Attributes:
        at: the middle round of each section of the run.
        by: meaning of a row of `by_level`.
        levels: names of the rows, from below.
        by_level: weight of each level, `(levels, sections)`; None for learners without blocks.
        experts: names of the experts of a block: learning rates, or indices of fixed experts.
        by_expert: weight of each, `(experts, sections)`; None for a single expert.
    """

    at: np.ndarray
    by: str
    levels: tuple[str, ...]
    by_level: np.ndarray | None
    experts: tuple[str, ...]
    by_expert: np.ndarray | None


@dataclass(frozen=True)
class Result:
    """The result of one learner on one stream.

    Attributes:
        learner: its name in `LEARNERS`.
        label: its name on the page.
        family: its family.
        rate: its learning rate; None if it needs none.
        tried: every rate tried, with its total loss, mean over seeds.
        middle: the rate in the middle of the list; None if it needs none.
        totals: total loss, one for each seed.
        worst: the worst interval of each length, the shortest first.
        exponents: power of the length with which the worst regret grows, one for each seed; None where it is not
            positive and growing.
        microseconds: time of one round of one stream.
        memory: bytes of the learner's state at the end of the run, for one stream.
        cumulative: cumulative loss after the rounds in `Contest.at`; mean over seeds.
        path: for the first seed: in one dimension the decision; in more, the distance to the best fixed point of the
            current segment between changes, averaged around the rounds in `Contest.path_at`. None if not recorded.
        map: regret over starts and lengths, for the first seed.
        weights: for the first seed; None for learners without weights.
        measured: regret on the intervals that `Contest.groups` names, one for each.
    """

    learner: str
    label: str
    family: str
    rate: float | None
    tried: tuple[tuple[float, float], ...]
    middle: float | None
    totals: tuple[float, ...]
    worst: tuple[WorstInterval, ...]
    exponents: tuple[float | None, ...]
    microseconds: float
    memory: int
    cumulative: np.ndarray
    path: np.ndarray | None
    map: Map
    weights: Weights | None = None
    measured: tuple[Measured, ...] = ()

    @property
    def total(self) -> float:
        """Total loss, the mean over seeds."""
        return float(np.mean(self.totals))

    @property
    def spread(self) -> float:
        """The standard deviation of the total loss over seeds."""
        return float(np.std(self.totals, ddof=1)) if len(self.totals) > 1 else 0.0

    @property
    def exponent(self) -> float | None:
        """The mean of the exponents over seeds; None unless every seed has one."""
        known = [value for value in self.exponents if value is not None]
        return float(np.mean(known)) if len(known) == len(self.exponents) else None

    @property
    def middle_total(self) -> float | None:
        """The total loss with the rate in the middle of the list."""
        return None if self.middle is None else dict(self.tried)[self.middle]

    def worst_on(self, length: int) -> WorstInterval:
        """The worst interval of that length."""
        return next(worst for worst in self.worst if worst.length == length)


@dataclass(frozen=True)
class Chain:
    """Largest regret, and largest values of its bounds, over intervals of each length, in ascending order.

    Attributes:
        learner: which learner.
        label: its name on the page.
        lengths: rounds in the intervals.
        regret: against the interval's best fixed point.
        linearised: the same for linearised losses.
        measured: the certificate from the experts' gains.
        guaranteed: the certificate from the theorem.
        trivial: the bound for any decisions.
        map: the measured certificate over starts and lengths.
    """

    learner: str
    label: str
    lengths: tuple[int, ...]
    regret: tuple[float, ...]
    linearised: tuple[float, ...]
    measured: tuple[float, ...]
    guaranteed: tuple[float, ...]
    trivial: tuple[float, ...]
    map: Map


@dataclass(frozen=True)
class Growth:
    """Total loss for runs of several lengths, with the rates of the contest.

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
    """The results of all learners on one stream.

    Attributes:
        stream: its name in `STREAMS`.
        label: its name on the page.
        about: description.
        rounds: length of the run.
        dim: dimension of the decisions.
        steady: maximum length of intervals to which growth exponents are fitted.
        seeds: number of seeds.
        engine: backend of the computation.
        changes: the rounds in which the stream changes, round 0 first; () if unknown.
        at: rounds of the points of curves.
        path_at: rounds of the points of `Result.path`.
        results: one per learner.
        best_fixed: total loss of the best fixed point, mean over seeds; None for runs too long to find it.
        best_fixed_cumulative: its cumulative loss, for the first seed.
        optimum: the best fixed point of the current segment, in one dimension; None in more.
        chain: of the first SAMUEL among the learners; None if there is none.
        growth: total loss for runs of several lengths, where the stream has them.
        comparison: which bounds the stream sets apart, if it is one of the paper's Table 1.
        groups: of such a stream, the intervals inside its stretches.
    """

    stream: str
    label: str
    about: str
    rounds: int
    dim: int
    steady: int
    seeds: int
    engine: str
    changes: tuple[int, ...]
    at: np.ndarray
    path_at: np.ndarray
    results: tuple[Result, ...]
    best_fixed: float | None
    best_fixed_cumulative: np.ndarray | None
    optimum: np.ndarray | None
    chain: Chain | None = None
    growth: Growth | None = None
    comparison: Comparison | None = None
    groups: tuple[Group, ...] = ()

    @property
    def lengths(self) -> tuple[int, ...]:
        """The lengths of intervals in tables: those of 64, 512 and 4096 that fit in the run."""
        return tuple(worst.length for worst in self.results[0].worst if worst.length in TABLE_LENGTHS)


TABLE_LENGTHS = (64, 512, 4096)


@dataclass(frozen=True)
class Report:
    """All contests of a plan, with the software used.

    Attributes:
        plan: the plan.
        contests: one per stream.
        seconds: total time.
        date: of the end.
        software: names and versions.
    """

    plan: Plan
    contests: tuple[Contest, ...]
    seconds: float
    date: str
    software: dict[str, str]


def summary(report: Report) -> dict[str, Any]:
    """The numbers of a report's tables as JSON-serialisable lists and dictionaries."""
    return {
        "samuel": report.software["samuel"],
        "date": report.date,
        "command": report.plan.command,
        "seconds": round(report.seconds, 3),
        "jobs": report.plan.jobs,
        "software": report.software,
        "streams": [_stream(contest) for contest in report.contests],
    }


def _stream(contest: Contest) -> dict[str, Any]:
    return {
        "stream": contest.stream,
        "about": contest.about,
        "rounds": contest.rounds,
        "dim": contest.dim,
        "growth_exponents_up_to": contest.steady,
        "seeds": contest.seeds,
        "backend": contest.engine,
        "best_fixed_point": contest.best_fixed,
        "learners": [_learner(result) for result in contest.results],
        **({"bounds": _bounds(contest)} if contest.groups else {}),
        "growth": None if contest.growth is None else vars(contest.growth),
    }


def _learner(result: Result) -> dict[str, Any]:
    return {
        "learner": result.learner,
        "label": result.label,
        "family": result.family,
        "rate": result.rate,
        "tried": [{"rate": rate, "total_loss": finite(total)} for rate, total in result.tried],
        "total_loss": finite(result.total),
        "total_loss_deviation": finite(result.spread),
        "total_loss_by_seed": [finite(total) for total in result.totals],
        "total_loss_at_middle_rate": finite(result.middle_total),
        "worst_intervals": [
            {name: plain(value) if isinstance(value, float) else value for name, value in vars(worst).items()}
            for worst in result.worst
        ],
        "growth_exponent": plain(result.exponent),
        "growth_exponent_by_seed": [plain(exponent) for exponent in result.exponents],
        "microseconds_a_round": plain(result.microseconds),
        "memory_bytes": result.memory,
        **({"intervals": [_interval(result, part) for part in result.measured]} if result.measured else {}),
    }


def _bounds(contest: Contest) -> dict[str, Any]:
    """What theory says of the learners, and what their bounds are made of."""
    assert contest.comparison is not None
    return {
        "gradient_bound": plain(contest.comparison.gradient_bound),
        "stretches": [{"kind": kind, "rounds": length} for kind, length in contest.comparison.turn],
        "rows": {result.learner: vars(ROWS[result.learner]) for result in contest.results if result.learner in ROWS},
        "intervals": [
            {
                "inside": group.kind,
                "lengths": list(group.lengths),
                "yardsticks": {name: [plain(value) for value in values] for name, values in group.yardsticks.items()},
                "exponents": group.exponents,
                "first_rounds": group.first,
                "runs": list(group.runs),
            }
            for group in contest.groups
        ],
    }


def _interval(result: Result, part: Measured) -> dict[str, Any]:
    own = ROWS[result.learner].yardstick if result.learner in ROWS else None
    return {
        "inside": part.kind,
        "worst_regret": [plain(value) for value in part.worst],
        "standard_deviation": [plain(value) for value in part.deviation],
        "exponent": part.exponent,
        "regret_over_own_bound": None if own is None else plain(part.ratios[own]),
        "regret_over": {name: plain(ratio) for name, ratio in part.ratios.items()},
        "after_changes": [plain(value) for value in part.after],
        "exponent_in_T": part.exponent_in_T,
    }


def finite(value: float | None) -> float | None:
    """A number for JSON in full precision; None for NaN and infinities."""
    return value if value is not None and np.isfinite(value) else None
