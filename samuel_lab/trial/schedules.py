"""Learning rates as functions of the round: the paper's four schedules and others, in optax's formulas.

Computed outside the device in double precision, so that a table, a plot and a training loop show the same numbers.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from samuel.core.options import one_of

PROTOCOL = 25_600
"""The rounds of the paper's online experiment, which its schedules' proportions refer to."""


@dataclass(frozen=True)
class Schedule(ABC):
    """A learning rate for every round: `schedule(round)`, with rounds counted from 0."""

    def __call__(self, round: int) -> float:
        """The learning rate of a round; after the last one planned, what the formula goes on with."""
        if not round >= 0:
            raise ValueError(f"round must be at least 0, got {round!r}")
        return self.at(round)

    @abstractmethod
    def at(self, round: int) -> float:
        """The learning rate of a round that is not negative."""

    @abstractmethod
    def describe(self) -> str:
        """The schedule in a few words, with its numbers."""


@dataclass(frozen=True)
class Constant(Schedule):
    """The same learning rate in every round.

    >>> Constant(0.2)(17_000)
    0.2
    """

    rate: float

    def __post_init__(self) -> None:
        _positive(rate=self.rate)

    def at(self, round: int) -> float:
        return self.rate

    def describe(self) -> str:
        return f"constant {self.rate:g}"


@dataclass(frozen=True)
class Cosine(Schedule):
    """Half a wave of the cosine, from the full rate down to 0: `rate (1 + cos(pi t / rounds)) / 2`.

    Loshchilov and Hutter 2017; `optax.cosine_decay_schedule` with `alpha=0`.

    >>> Cosine(0.2, rounds=100)(50)
    0.1
    """

    rate: float
    rounds: int

    def __post_init__(self) -> None:
        _positive(rate=self.rate)
        _at_least(1, rounds=self.rounds)

    def at(self, round: int) -> float:
        return self.rate * _half_wave(round / self.rounds)

    def describe(self) -> str:
        return f"cosine from {self.rate:g} to 0 over {self.rounds} rounds"


@dataclass(frozen=True)
class WarmupCosine(Schedule):
    """A straight line up to the peak, then half a wave of the cosine: `optax.warmup_cosine_decay_schedule`.

    Args:
        peak: the largest rate, reached at round `warmup`.
        rounds: the length of all of it, the warm-up included.
        warmup: the rounds of the rise.
        initial: the rate of round 0.
        end: the rate after `rounds`.

    >>> schedule = WarmupCosine(peak=0.5, rounds=110, warmup=10, initial=0.0)
    >>> schedule(0), schedule(5), schedule(10), schedule(60), schedule(110)
    (0.0, 0.25, 0.5, 0.25, 0.0)
    """

    peak: float
    rounds: int
    warmup: int
    initial: float = 1e-5
    end: float = 0.0

    def __post_init__(self) -> None:
        _positive(peak=self.peak)
        _at_least(0, initial=self.initial, end=self.end, warmup=self.warmup)
        if not self.warmup < self.rounds:
            raise ValueError(f"warmup must be shorter than the {self.rounds!r} rounds, got {self.warmup!r}")

    def at(self, round: int) -> float:
        if round < self.warmup:
            return self.initial + (self.peak - self.initial) * round / self.warmup
        wave = _half_wave((round - self.warmup) / (self.rounds - self.warmup))
        return self.end + (self.peak - self.end) * wave

    def describe(self) -> str:
        rise = f"warm-up from {self.initial:g} to {self.peak:g} over {self.warmup} rounds"
        return f"{rise}, then cosine to {self.end:g} at round {self.rounds}"


@dataclass(frozen=True)
class Exponential(Schedule):
    """A rate that is multiplied by `decay` every `transition` rounds, smoothly: `optax.exponential_decay`.

    >>> schedule = Exponential(0.6, transition=3000)
    >>> schedule(0), schedule(3000), schedule(6000)
    (0.6, 0.3, 0.15)
    """

    rate: float
    transition: int
    decay: float = 0.5

    def __post_init__(self) -> None:
        _positive(rate=self.rate, decay=self.decay)
        _at_least(1, transition=self.transition)

    def at(self, round: int) -> float:
        return self.rate * self.decay ** (round / self.transition)

    def describe(self) -> str:
        return f"{self.rate:g} times {self.decay:g} every {self.transition} rounds"


@dataclass(frozen=True)
class Linear(Schedule):
    """A straight line down to 0: `optax.linear_schedule`.

    >>> Linear(0.4, rounds=100)(75)
    0.1
    """

    rate: float
    rounds: int

    def __post_init__(self) -> None:
        _positive(rate=self.rate)
        _at_least(1, rounds=self.rounds)

    def at(self, round: int) -> float:
        return self.rate * (1 - min(round / self.rounds, 1.0))

    def describe(self) -> str:
        return f"linear from {self.rate:g} to 0 over {self.rounds} rounds"


@dataclass(frozen=True)
class CosineRestarts(Schedule):
    """A cosine that starts again from the full rate, each time for twice as long (Loshchilov and Hutter 2017, "SGDR").

    Args:
        rate: the rate at the beginning of each period.
        first: the rounds of the first period.

    >>> schedule = CosineRestarts(1.0, first=10)
    >>> [round(schedule(t), 3) for t in (0, 5, 9, 10, 20, 30, 50)]
    [1.0, 0.5, 0.024, 1.0, 0.5, 1.0, 0.5]
    """

    rate: float
    first: int

    def __post_init__(self) -> None:
        _positive(rate=self.rate)
        _at_least(1, first=self.first)

    def at(self, round: int) -> float:
        # Periods 0..n-1 take first (2^n - 1) rounds together.
        period = (int(round) // self.first + 1).bit_length() - 1
        length = self.first * 2**period
        start = length - self.first
        return self.rate * _half_wave((round - start) / length)

    def describe(self) -> str:
        return f"cosine from {self.rate:g} to 0, restarted after {self.first} rounds and then twice as late each time"


@dataclass(frozen=True)
class Increasing(Schedule):
    """A rate that grows exponentially over the run: `rate growth^(t / rounds)` (Li and Arora 2020).

    Meant for networks with normalisation layers, whose weights may grow along with it.

    >>> schedule = Increasing(0.01, rounds=100, growth=100)
    >>> schedule(0), schedule(50), schedule(100)
    (0.01, 0.1, 1.0)
    """

    rate: float
    rounds: int
    growth: float = 100.0

    def __post_init__(self) -> None:
        _positive(rate=self.rate, growth=self.growth)
        _at_least(1, rounds=self.rounds)

    def at(self, round: int) -> float:
        return self.rate * self.growth ** (round / self.rounds)

    def describe(self) -> str:
        return f"growing from {self.rate:g} to {self.rate * self.growth:g} over {self.rounds} rounds"


@dataclass(frozen=True)
class Step(Schedule):
    """One rate for each phase of the run: phase `i + 1` begins with round `transitions[i]`.

    >>> schedule = Step((1.0, 0.1, 0.01), transitions=(125, 200))
    >>> schedule(124), schedule(125), schedule(199), schedule(200)
    (1.0, 0.1, 0.1, 0.01)
    """

    rates: Sequence[float]
    transitions: Sequence[int]

    def __post_init__(self) -> None:
        object.__setattr__(self, "rates", tuple(self.rates))
        object.__setattr__(self, "transitions", tuple(self.transitions))
        for rate in self.rates:
            _positive(rates=rate)
        if len(self.rates) != len(self.transitions) + 1:
            raise ValueError(
                f"{len(self.transitions)} transitions make {len(self.transitions) + 1} phases, got {len(self.rates)} "
                f"rates: {self.rates!r}"
            )
        if any(late <= early for early, late in itertools.pairwise((0, *self.transitions))):
            raise ValueError(f"transitions must be rounds above 0 in increasing order, got {self.transitions!r}")

    def at(self, round: int) -> float:
        return self.rates[bisect_right(self.transitions, round)]

    def describe(self) -> str:
        rates = ", ".join(f"{rate:g}" for rate in self.rates)
        if not self.transitions:
            return f"constant {rates}"
        return f"{rates}, changing at {', '.join(map(str, self.transitions))}"


def _scaled(length: int, rounds: int) -> int:
    """A length of the full protocol, shrunk in proportion to a run."""
    return max(1, round(length * rounds / PROTOCOL))


def _warmup_cosine_for(rate: float, rounds: int) -> Schedule:
    # A run of one round has no time to warm up, and a rate below the usual beginning has no need to.
    return WarmupCosine(rate, rounds, warmup=min(_scaled(1000, rounds), rounds - 1), initial=min(1e-5, rate))


SCHEDULES: dict[str, Callable[[float, int], Schedule]] = {
    "constant": lambda rate, rounds: Constant(rate),
    "cosine": Cosine,
    "warmup-cosine": _warmup_cosine_for,
    "exponential": lambda rate, rounds: Exponential(rate, transition=_scaled(3000, rounds)),
    "linear": Linear,
    # Four periods, 1 + 2 + 4 + 8 parts of the run; rounded up, so that none begins just before the end.
    "cosine-restarts": lambda rate, rounds: CosineRestarts(rate, first=math.ceil(rounds / 15)),
    "increasing": Increasing,
}
"""The schedules with a name: what makes each, from a rate and the rounds of the run."""


def make(name: str, rate: float, rounds: int) -> Schedule:
    """A schedule by name for a run of some length, in the proportions of the paper's.

    The paper's run has 25,600 rounds, a warm-up of 1,000 from a rate of 1e-5, and halves the rate of "exponential"
    every 3,000; in shorter and longer runs these shrink and grow with the run. "cosine-restarts" has four periods,
    each twice as long as the one before, and the last ends with the run; "increasing" ends at 100 times its rate.

    Args:
        name: one of `SCHEDULES`.
        rate: the largest learning rate; for "increasing" the first one.
        rounds: the rounds of the run.

    >>> make("warmup-cosine", 0.15, 1536).describe()
    'warm-up from 1e-05 to 0.15 over 60 rounds, then cosine to 0 at round 1536'
    """
    one_of("schedule", name, tuple(SCHEDULES))
    _positive(rate=rate)
    _at_least(1, rounds=rounds)
    return SCHEDULES[name](rate, rounds)


BASELINES: dict[tuple[str, str], float] = {
    ("sgd", "constant"): 0.15,
    ("sgd", "cosine"): 0.3,
    ("sgd", "warmup-cosine"): 0.5,
    ("sgd", "exponential"): 0.6,
    ("adagrad", "constant"): 0.2,
    ("adagrad", "cosine"): 0.2,
    ("adagrad", "warmup-cosine"): 0.15,
    ("adagrad", "exponential"): 0.35,
    ("adam", "constant"): 0.001,
    ("adam", "cosine"): 0.001,
    ("adam", "warmup-cosine"): 0.005,
    ("adam", "exponential"): 0.005,
}
"""The paper's twelve baselines (its appendix): base and schedule, and the learning rate it tuned for them."""


def product(phases: Sequence[Sequence[float]]) -> list[tuple[float, ...]]:
    """Every step schedule that takes one rate from each phase, the last phase changing fastest.

    The order is that of `samuel.jax.Sweep.schedules`.

    Args:
        phases: the candidate rates of each phase, different ones.

    >>> product([(1.0, 0.1), (0.5, 0.05)])
    [(1.0, 0.5), (1.0, 0.05), (0.1, 0.5), (0.1, 0.05)]
    """
    for rates in phases:
        if not rates or len(set(rates)) != len(rates):
            raise ValueError(f"each phase needs rates, all different, got {tuple(rates)!r}")
    return list(itertools.product(*phases))


def _half_wave(share: float) -> float:
    """From 1 at the beginning to 0 at the end and after it."""
    return (1 + math.cos(math.pi * min(share, 1.0))) / 2


def _positive(**numbers: float) -> None:
    for name, value in numbers.items():
        if not 0 < value < math.inf:
            raise ValueError(f"{name} must be a positive number, got {value!r}")


def _at_least(least: int, **numbers: float) -> None:
    for name, value in numbers.items():
        if not least <= value < math.inf:
            raise ValueError(f"{name} must be at least {least}, got {value!r}")
