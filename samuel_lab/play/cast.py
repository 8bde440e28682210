"""Learners of a contest by name, and how each is constructed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from samuel.core import Feedback
from samuel.core.arrays import Array, constant
from samuel.online import (
    AFLH,
    CBCE,
    FLH,
    OGD,
    SACS,
    SAOL,
    Adadelta,
    Adagrad,
    AdagradFull,
    Adam,
    Ader,
    Base,
    Domain,
    FixedShare,
    Hedge,
    Learner,
    ParameterFree,
    RMSprop,
    Samuel,
    ScaleFreeOGD,
    Single,
    Sword,
)
from samuel.online.ensemble import default_learning_rates
from samuel.online.learner import Info, Pace
from samuel.online.rivals.rival import rival_experts
from samuel.online.single import SingleRule, SingleState

RATES = tuple(2.0**power for power in range(-4, 4))
"""Rates tried for a learner that needs one; the best in hindsight plays."""
SMALL_RATES = tuple(2.0**power for power in range(-8, 0))
"""The same for learners whose steps are about their rate in every coordinate, however small the gradient."""

LARGE_RATES = tuple(2.0**power for power in range(0, 8))
"""The same for Adadelta, whose first steps are tiny."""

Family = Literal["single", "experts", "strongly adaptive", "samuel"]
FAMILIES: dict[Family, str] = {
    "single": "one learner",
    "experts": "fixed experts",
    "strongly adaptive": "rivals",
    "samuel": "SAMUEL",
}
"""Families of learners, and their names on the page."""


class Style(NamedTuple):
    """Colour, dashes and width of a line."""

    color: str
    dash: str = "solid"
    width: int = 2


@dataclass(frozen=True)
class Contestant:
    """A learner that can take part: its name and constructor.

    Attributes:
        name: on the command line.
        label: in tables and figures.
        about: description in one sentence.
        family: a key of `FAMILIES`.
        style: of its lines; learners of different families have different colours.
        make: `make(dim, domain, rate, **options)` makes a fresh learner; learners without a rate ignore it.
        base: for learners that need a rate, the base learner with that rate.
        rates: the rates tried; the best in hindsight plays.
    """

    name: str
    label: str
    about: str
    family: Family
    style: Style
    make: Callable[..., Learner]
    base: Base | None = None
    rates: tuple[float, ...] = ()

    @property
    def tuned(self) -> bool:
        """Whether it needs a learning rate and gets the best of a list in hindsight."""
        return bool(self.rates)

    @property
    def middle_rate(self) -> float | None:
        """The rate in the middle of the list: a guess without hindsight."""
        return self.rates[len(self.rates) // 2] if self.rates else None


def _tuned(name: str, label: str, about: str, style: Style, base: Base, rates: tuple[float, ...] = RATES) -> Contestant:
    def make(dim: int, domain: Domain, rate: float, **options: Any) -> Learner:
        return Single(replace(base, learning_rate=rate), dim, domain, **options)

    return Contestant(name, label, about, "single", style, make, base, rates)


def _as_it_comes(kind: Callable[..., Learner], **settings: Any) -> Callable[..., Learner]:
    return lambda dim, domain, rate, **options: kind(dim, domain, **settings, **options)


def _ogd_inverse(dim: int, domain: Domain, rate: float | None, **options: Any) -> Learner:
    return Single(OGD(1.0, "inverse"), dim, domain, **options)


def _scale_free(dim: int, domain: Domain, rate: float | None, **options: Any) -> Learner:
    (base,) = rival_experts(None, None, None, domain, dim)
    return Single(base, dim, domain, **options)


def _over_adagrad(kind: Callable[..., Learner]) -> Callable[..., Learner]:
    def make(dim: int, domain: Domain, rate: float | None, **options: Any) -> Learner:
        rates = default_learning_rates(Adagrad(), domain, dim)
        return kind(dim, domain, base=Adagrad(), learning_rates=rates, **options)

    return make


_FAVOUR_SMALL = tuple(rate**-0.5 for rate in RATES)

LEARNERS: dict[str, Contestant] = {
    contestant.name: contestant
    for contestant in (
        _tuned("ogd", "OGD", "Gradient descent with a constant rate.", Style("#0072b2"), OGD()),
        _tuned(
            "ogd-sqrt",
            "OGD, rate/√t",
            "Gradient descent with rates that fall as 1/√t.",
            Style("#0072b2", "dash"),
            OGD(schedule="sqrt"),
        ),
        Contestant(
            "ogd-inverse",
            "OGD, 1/t",
            "Gradient descent with the rates 1/t of the paper's example.",
            "single",
            Style("#56b4e9", "dash"),
            _ogd_inverse,
        ),
        Contestant(
            "scale-free",
            "Scale-free OGD",
            "Gradient descent with steps over the root of all squared gradients so far, and the rate that fits the "
            "domain: what the rivals run on every block.",
            "single",
            Style("#0072b2", "dot"),
            _scale_free,
        ),
        _tuned("adagrad", "Adagrad", "Adagrad with one rate for the whole run.", Style("#009e73"), Adagrad()),
        _tuned(
            "adagrad-full", "Adagrad, matrix", "Adagrad with the full matrix.", Style("#009e73", "dash"), AdagradFull()
        ),
        _tuned("adam", "Adam", "Adam with one rate for the whole run.", Style("#56b4e9"), Adam(), SMALL_RATES),
        _tuned(
            "rmsprop",
            "RMSprop",
            "RMSprop with one rate for the whole run.",
            Style("#56b4e9", "dot"),
            RMSprop(),
            SMALL_RATES,
        ),
        _tuned(
            "adadelta",
            "Adadelta",
            "Adadelta with a factor on its steps.",
            Style("#009e73", "dot"),
            Adadelta(),
            LARGE_RATES,
        ),
        Contestant(
            "hedge",
            "Hedge",
            "Hedge over Adagrad with six rates (over the corners of a simplex): good over the whole run only.",
            "experts",
            Style("#7a6fbe"),
            _as_it_comes(Hedge),
        ),
        Contestant(
            "fixed-share",
            "Fixed share",
            "Hedge that redistributes a share of the weight to all experts in every round.",
            "experts",
            Style("#7a6fbe", "dash"),
            _as_it_comes(FixedShare),
        ),
        Contestant(
            "fixed-share-past",
            "Fixed share, past",
            "Fixed share that redistributes by the experts' past weights.",
            "experts",
            Style("#7a6fbe", "dot"),
            _as_it_comes(FixedShare, past=True),
        ),
        Contestant(
            "ader",
            "Ader",
            "Gradient descent with many step sizes, weighed by Hedge, against any sequence of points.",
            "experts",
            Style("#7a6fbe", "longdash"),
            _as_it_comes(Ader),
        ),
        Contestant(
            "sword",
            "Sword",
            "Optimistic gradient descent with many step sizes, for losses that change slowly.",
            "experts",
            Style("#7a6fbe", "dashdot"),
            _as_it_comes(Sword),
        ),
        Contestant(
            "flh",
            "FLH",
            "Follow the leading history: a new expert every 8 rounds, all kept.",
            "strongly adaptive",
            Style("#b89b00"),
            _as_it_comes(FLH),
        ),
        Contestant(
            "aflh",
            "AFLH",
            "Follow the leading history, with all but a logarithm of the experts dropped.",
            "strongly adaptive",
            Style("#b89b00", "dash"),
            _as_it_comes(AFLH),
        ),
        Contestant(
            "saol",
            "SAOL",
            "Strongly adaptive online learner: a step size of the weights for every length of blocks.",
            "strongly adaptive",
            Style("#cc79a7"),
            _as_it_comes(SAOL),
        ),
        Contestant(
            "saol-cold",
            "SAOL, cold",
            "SAOL whose new experts start at the domain's centre, as first published.",
            "strongly adaptive",
            Style("#cc79a7", "dot"),
            _as_it_comes(SAOL, newborns="cold"),
        ),
        Contestant(
            "cbce",
            "CBCE",
            "Coin betting for changing environments.",
            "strongly adaptive",
            Style("#cc79a7", "dash"),
            _as_it_comes(CBCE),
        ),
        Contestant(
            "saol-adagrad",
            "SAOL (Adagrad)",
            "SAOL over the experts of SAMUEL, Adagrad with rates that fit the domain: only the weights differ.",
            "strongly adaptive",
            Style("#cc79a7", "longdash"),
            _over_adagrad(SAOL),
        ),
        Contestant(
            "cbce-adagrad",
            "CBCE (Adagrad)",
            "CBCE over the experts of SAMUEL, Adagrad with rates that fit the domain: only the weights differ.",
            "strongly adaptive",
            Style("#cc79a7", "longdashdot"),
            _over_adagrad(CBCE),
        ),
        Contestant(
            "sacs-adagrad",
            "SACS (Adagrad)",
            "SACS over the experts of SAMUEL, Adagrad with rates that fit the domain: only weights and blocks differ.",
            "strongly adaptive",
            Style("#cc79a7", "8px 3px"),
            _over_adagrad(SACS),
        ),
        Contestant(
            "aflh-adagrad",
            "AFLH (Adagrad)",
            "AFLH over the experts of SAMUEL, Adagrad with rates that fit the domain: only weights and blocks differ.",
            "strongly adaptive",
            Style("#b89b00", "longdash"),
            _over_adagrad(AFLH),
        ),
        Contestant(
            "sacs",
            "SACS",
            "Weights by AdaNormalHedge on blocks of which every other one is left out.",
            "strongly adaptive",
            Style("#cc79a7", "dashdot"),
            _as_it_comes(SACS),
        ),
        Contestant(
            "parameter-free",
            "Parameter-free",
            "No experts: every level of blocks corrects the one above by a bet of its own.",
            "strongly adaptive",
            Style("#b89b00", "dot"),
            _as_it_comes(ParameterFree),
        ),
        Contestant(
            "samuel",
            "SAMUEL",
            "SAMUEL at its defaults: Adagrad and gradient descent with many rates, whose experts never start anew.",
            "samuel",
            Style("#d55e00", "solid", 3),
            _as_it_comes(Samuel),
        ),
        Contestant(
            "samuel-blocks",
            "SAMUEL, blocks",
            "SAMUEL over Adagrad on blocks, with rates that fit the domain; new experts inherit.",
            "samuel",
            Style("#e69f00", "longdashdot"),
            _as_it_comes(Samuel, base=Adagrad()),
        ),
        Contestant(
            "samuel-full-matrix",
            "SAMUEL, matrix",
            "SAMUEL over Adagrad with the full matrix.",
            "samuel",
            Style("#d55e00", "dashdot", 3),
            _as_it_comes(Samuel, base=AdagradFull()),
        ),
        Contestant(
            "samuel-descent",
            "SAMUEL (descent)",
            "SAMUEL over gradient descent with steps over the root of all squared gradients so far.",
            "samuel",
            Style("#d55e00", "longdash"),
            _as_it_comes(Samuel, base=ScaleFreeOGD()),
        ),
        Contestant(
            "samuel-ogd",
            "SAMUEL (OGD, 8 rates)",
            "SAMUEL over gradient descent with all rates that OGD is tuned over. "
            "The wide list has a prior of rate^(-1/2), and new experts inherit.",
            "samuel",
            Style("#d55e00", "dash", 3),
            _as_it_comes(Samuel, base=OGD(), learning_rates=RATES, prior=_FAVOUR_SMALL, newborns="inherit"),
        ),
        Contestant(
            "samuel-ogd-equal",
            "SAMUEL (OGD, equal)",
            "The same rates with equal priors, and new experts that start fresh.",
            "samuel",
            Style("#d55e00", "dot"),
            _as_it_comes(Samuel, base=OGD(), learning_rates=RATES, newborns="warm"),
        ),
        Contestant(
            "samuel-cold",
            "SAMUEL, cold",
            "SAMUEL whose new experts start at the domain's centre.",
            "samuel",
            Style("#e69f00", "dash"),
            _as_it_comes(Samuel, base=Adagrad(), newborns="cold"),
        ),
        Contestant(
            "samuel-warm",
            "SAMUEL, warm",
            "SAMUEL whose new experts start at the decision, with their prior weight.",
            "samuel",
            Style("#e69f00"),
            _as_it_comes(Samuel, base=Adagrad(), newborns="warm"),
        ),
    )
}
"""Learners by name."""


@dataclass(frozen=True)
class _SweepRule(SingleRule):
    """A base learner with a different rate in every stream."""

    learning_rates: tuple[float, ...]

    def advance(
        self, state: SingleState, feedback: Feedback, chance: Array | None, record: bool, pace: Pace = "careful"
    ) -> tuple[SingleState, Info]:
        rates = constant(np.asarray(self.learning_rates)[:, None], state.decision)
        gradient = feedback.expert_gradients[..., 0, 0, :]
        points, memory, _ = self.base.step(state.decision, state.memory, gradient, rates, self.domain)
        return SingleState(state.round + 1, points, memory), {}


def sweep(contestant: Contestant, dim: int, domain: Domain, seeds: int) -> Learner:
    """A learner with all of its rates side by side: `streams` streams for each rate.

    All rates in one run take little longer than one, since a round of a simple learner is mostly overhead.

    >>> from samuel.online import Ball
    >>> sweep(LEARNERS["ogd"], dim=2, domain=Ball(1.0), seeds=3).streams
    24
    """
    if contestant.base is None:
        raise ValueError(f"{contestant.name} has no learning rate to sweep")
    rates = tuple(rate for rate in contestant.rates for _ in range(seeds))
    return Learner(_SweepRule(dim, domain, contestant.base, rates), streams=len(rates))
