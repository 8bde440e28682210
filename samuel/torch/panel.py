"""Who of the experts is judged how, under full and loss feedback: weights and losses, and no vector."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np

from samuel.core import certificate, combine
from samuel.core import weights as mw
from samuel.core.arrays import Array
from samuel.core.cover import Anytime, Cover, Fixed
from samuel.core.feedback import Full, reference_loss
from samuel.core.options import one_of, refuse_blind_sampling
from samuel.core.rays import check_rates
from samuel.core.rules import ANY_BASE, TRAITS, usual_rates


class PanelState(NamedTuple):
    """What is known about the experts, apart from their parameters."""

    round: Array
    """Rounds completed."""
    seed: Array
    """What everything random follows from, together with the round."""
    weights: mw.Weights
    """Of every expert, `slots x rates x Q` pairs."""
    ledger: certificate.Ledger
    """The sums the certificate is made of."""
    log_total: Array
    """`L` after the last round."""
    rate: Array
    """The learning rate of the last decision; before the first step, of the one to come."""

    unit = 1.0  # gains are used as they are
    shifts = 0  # nothing here restarts before its block ends


@dataclass(frozen=True)
class Panel:
    """Which experts there are, how they are judged, and how a decision is made of them.

    All options of `Samuel` that are about that, with the same names; it explains them. The experts are numbered: first
    those of slot 0, a slot's from the smallest rate to the largest.

    >>> from samuel.core import Fixed
    >>> panel = Panel(learning_rates=(0.1, 1.0), cover=Fixed(every=10), combine="best")
    >>> state, largest = panel.judge(panel.start(), loss=1.0, losses=np.array([[1.5, 0.5]], np.float32))
    >>> float(largest)  # the first gains set the scale, and move nothing
    0.5
    >>> state, _ = panel.judge(panel.widen(state, largest), loss=1.0, losses=np.array([[1.5, 0.5]], np.float32))
    >>> panel.chosen(state)
    1
    """

    learning_rates: Sequence[float]
    cover: Cover
    feedback: Literal["full", "loss"] = "full"
    combine: Literal["sample", "average", "best"] = "sample"
    Q: int | None = None
    bound: float | None = None
    prior: Sequence[float] | None = None
    newborns: Literal["fresh", "inherit"] = "fresh"
    seed: int = 0

    def __post_init__(self) -> None:
        one_of("feedback", self.feedback, ("full", "loss"))
        one_of("combine", self.combine, ("sample", "average", "best"))
        one_of("newborns", self.newborns, ("fresh", "inherit"))
        refuse_blind_sampling(self.combine, self.feedback)
        rates = check_rates(self.learning_rates)
        order = sorted(range(len(rates)), key=[float(rate) for rate in self.learning_rates].__getitem__)
        prior = _checked_prior(self.prior, len(rates))
        object.__setattr__(self, "prior", tuple(prior[place] for place in order))
        object.__setattr__(self, "learning_rates", rates)
        _check_cover(self.cover)
        if self.Q is None:
            object.__setattr__(self, "Q", mw.number_of_rates(self.cover.limit))
        if not _is_whole(self.Q, 1):
            raise ValueError(f"Q must be a whole number of at least 1, got {self.Q!r}")
        if self.bound is not None and not _is_positive(self.bound):
            raise ValueError(f"bound must be a positive number, got {self.bound!r}")
        if not _is_whole(self.seed, 0):
            raise ValueError(f"seed must be a whole number of at least 0, got {self.seed!r}")

    @cached_property
    def slots(self) -> int:
        """How many blocks run at once."""
        return self.cover.slots(2**31)

    @cached_property
    def rates(self) -> np.ndarray:
        """The learning rate of every expert, `(slots, rates)`."""
        return np.tile(np.asarray(self.learning_rates, np.float32), (self.slots, 1))

    @cached_property
    def _priors(self) -> np.ndarray:
        return np.asarray(self.prior, np.float32)

    def start(self) -> PanelState:
        """Before the first round."""
        assert self.Q is not None, "it was filled in"
        weights = mw.begin(self._priors, self.slots, self.Q, bound=self.bound or 0.0)
        weights = mw.restart(weights, self.cover.starts(0, self.slots), self._priors)
        ledger, total = certificate.open_ledger(weights), mw.log_total(weights)
        state = PanelState(np.int32(0), np.int64(self.seed), weights, ledger, total, np.float32(0))
        return self.with_rate(state)

    def shares(self, state: PanelState) -> np.ndarray:
        """The weight of every expert in the decision, in the order of their numbers."""
        return mw.shares(state.weights).ravel()

    def alive(self, state: PanelState) -> list[int]:
        """The experts that take part."""
        return [int(e) for e in np.flatnonzero(mw.alive(state.weights))]

    def chosen(self, state: PanelState) -> int:
        """The expert that is the decision: drawn by weight, or the heaviest; of an average, too, the heaviest."""
        p = mw.shares(state.weights)
        if self.combine == "sample":
            # From the round and not from a stream of numbers: nothing to save, and the same in every process.
            random = np.random.default_rng((int(state.seed), int(state.round)))
            return int(combine.draw(p, combine.uniform(random, like=p)))
        places = np.arange(p.size).reshape(*p.shape, 1)
        return int(combine.best(places, p)[0])

    def with_rate(self, state: PanelState) -> PanelState:
        """The state with the learning rate of its decision."""
        if self.combine == "average":
            rate = np.sum(mw.shares(state.weights) * self.rates)
        else:
            rate = self.rates.ravel()[self.chosen(state)]
        return state._replace(rate=rate)

    def judge(self, state: PanelState, loss: float, losses: np.ndarray) -> tuple[PanelState, Array]:
        """Reward every expert for how much better than the decision it was; beside the state, the largest gain.

        A sampled decision is judged by what its draw was worth on average, over the experts that have a finite loss.
        The same mean stands in for a decision whose own loss is not finite. Where no expert has a finite loss, nothing
        changes but the clock.

        Args:
            state: the state before.
            loss: of the decision.
            losses: of every expert, `(slots, rates)`; one that is not finite costs an expert its weight.
        """
        after = state._replace(round=state.round + 1)
        p, finite = mw.shares(state.weights), np.isfinite(losses) & mw.alive(state.weights)
        if not finite.any():
            return after, np.float32(0)
        own = np.float32(loss)
        reference = reference_loss(own, losses, p, sampled=self.combine == "sample")
        feedback = Full(reference, losses, gradients=None)
        gains = feedback.gains(None, None)
        try:
            weights, judged = mw.judge(state.weights, gains, feedback.rounding(None))
        except mw.NoHealthyExpert:  # all of them beyond what can be weighed
            return after, np.float32(0)
        lost = np.where(finite, (own if np.isfinite(own) else np.float32(math.inf)) - losses, 0)
        used = np.where(finite, gains * judged.used, 0)
        ledger = certificate.enter(state.ledger, lost, used, state.weights.bound)
        return after._replace(weights=weights, ledger=ledger), judged.largest

    def remove(self, state: PanelState, keep: np.ndarray) -> PanelState:
        """Without the experts that have diverged; as it was where that would leave none."""
        try:
            return state._replace(weights=mw.remove(state.weights, keep))
        except mw.NoHealthyExpert:
            return state

    def widen(self, state: PanelState, largest: Array) -> PanelState:
        """With a scale that holds the largest gain."""
        if largest <= state.weights.bound:
            return state
        return state._replace(weights=mw.widen(state.weights, largest, self._priors))

    def starts(self, state: PanelState) -> np.ndarray:
        """Which slots start a block now."""
        return np.asarray(self.cover.starts(int(state.round), self.slots))

    def restart(self, state: PanelState, starts: np.ndarray) -> PanelState:
        """With newborns in the marked slots."""
        weights = mw.restart(state.weights, starts, self._priors, inherit=self.newborns == "inherit")
        return state._replace(weights=weights, ledger=certificate.turn_page(state.ledger, starts, weights))


def usual_panel(base: str | None, feedback: str, **options: Any) -> Panel:
    """The panel for some options of `Samuel`; those that are None are the usual ones.

    Every expert costs a whole training step: the usual rates are few, and among them none that could ruin a network in
    one step, because a decision that is drawn at random may be any of them.

    >>> usual_panel("adam", "full").learning_rates
    (1e-05, 0.0001, 0.001, 0.01)
    """
    given = {name: value for name, value in options.items() if value is not None}
    low, high = (ANY_BASE if base is None else TRAITS[base]).decades
    usual: dict[str, Any] = {
        "learning_rates": usual_rates(low + 1, high - 2)[::2],
        "cover": Fixed(every=256),
        "combine": "sample" if feedback == "full" else "average",
    }
    return Panel(feedback=feedback, **usual | given)  # pyright: ignore[reportArgumentType]


def _check_cover(cover: Any) -> None:
    if not isinstance(cover, Cover):
        raise ValueError(f"cover must be a samuel.core cover such as Fixed(100), got {cover!r}")
    if isinstance(cover, Anytime) and cover.levels is None:
        raise ValueError(
            f"every level of a cover costs copies of the parameters, and {cover!r} has no last one: say how many, as "
            f"in Anytime(shortest={cover.shortest}, levels=4)"
        )


def _checked_prior(prior: Any, rates: int) -> tuple[float, ...]:
    if prior is None:
        return (1.0,) * rates
    try:
        listed = tuple(prior)
    except TypeError:
        raise ValueError(f"prior must be a list with one weight per rate, got {prior!r}") from None
    if len(listed) != rates:
        raise ValueError(f"prior needs one weight per rate ({rates}), got {len(listed)}")
    for weight in listed:
        if not _is_positive(weight):
            raise ValueError(f"prior must be positive numbers, got {weight!r}")
    return tuple(float(weight) for weight in listed)


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def _is_whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
