"""Base classes of the rivals: experts on the blocks of a cover, scaled gains, a weighted average.

A rival defines how experts are weighted: a subclass of `RivalRule` with three functions of its weights.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from samuel.core import Anytime, Cover, Feedback, Full, combine
from samuel.core.arrays import Array, is_traced, namespace
from samuel.core.options import one_of, whole_number
from samuel.online import ensemble
from samuel.online.bases.base import Base
from samuel.online.bases.scale_free import ScaleFreeOGD
from samuel.online.domains import Domain
from samuel.online.ensemble import EnsembleRule, choose_experts, default_learning_rates, positive
from samuel.online.learner import Info, Learner, Pace, check_options, check_place

Weights = tuple[Array, ...]
"""Per-expert state of a rival: arrays `(..., slots, experts)`."""

FEEDBACK = ("linear", "loss", "full")


class RivalState(NamedTuple):
    """The experts, their weights' state, and the decision."""

    round: Array | int
    decision: Array
    points: Array
    """`x(e)` of every expert, shape `(..., slots, experts, d)`."""
    memory: tuple[tuple[Array, ...], ...]
    weights: Weights
    p: Array
    """The weight of every expert in the decision, shape `(..., slots, experts)`; 0 where no block is running."""
    fit: Array
    """Which experts have finite numbers, `(..., slots, experts)`; the others have no weight until their slot
    restarts."""
    bound: Array
    """The largest absolute gain so far, or its given bound, shape `(...)`."""


@dataclass(frozen=True, kw_only=True)
class RivalRule(EnsembleRule):
    """Experts on the blocks of a cover, weighted by a subclass with `born`, `judge` and `weigh`.

    The subclass gets gains divided by the largest one so far, so that they lie in [-1, 1], as the theory of all rivals
    requires; or divided by `bound`, if it is not 0, and clipped.
    """

    bound: float = 0.0
    unscaled: bool = False
    """Whether `judge` is given the gains themselves."""

    @abstractmethod
    def born(self, like: Array, t: Array | int) -> Weights:
        """The state of experts that start when `t` rounds are complete; `like` is `(..., slots, experts)`."""

    @abstractmethod
    def judge(self, weights: Weights, gains: Array, running: Array, t: Array | int) -> Weights:
        """The same after a round in which the experts had these gains.

        Args:
            weights: the state so far.
            gains: in [-1, 1], 0 where an expert is not running; `(..., slots, experts)`.
            running: which experts are; broadcasts against the gains.
            t: rounds completed, this one among them.
        """

    @abstractmethod
    def weigh(self, weights: Weights, running: Array, t: Array | int) -> Array:
        """Weight of each expert in the coming round: at least 0, on any scale; `(..., slots, experts)`."""

    def settled(self, weights: Weights, running: Array, starts: Array, t: Array | int) -> Weights:
        """The weights after new experts have started; unchanged by default."""
        return weights

    def rescaled(self, weights: Weights, factor: Array) -> Weights:
        """The weights after a change of the unit of gains, for weights that depend on sums of gains.

        `factor` is the old unit over the new one, 1 in most rounds; `(..., 1, 1)`. Unchanged by default: in products
        of `1 + rate * gain` (SAOL, CBCE) and shares mixed with those of newcomers (FLH) a gain counts in the unit of
        its round.
        """
        return weights

    def foreseen(self, weights: Weights, gradient: Array, before: RivalState, points: Array) -> Weights:
        """The weights after the experts have moved to `points`; unchanged by default.

        `gradient` is the one at the decision; `before` is the state before the round, with the bound after it.
        """
        return weights

    def prior(self, weights: Weights, running: Array) -> Array:
        """The weights where all are 0; equal shares by default."""
        return running

    def scaled(self, gains: Array, bound: Array) -> tuple[Array, Array]:
        """Gains on the scale that `judge` takes, and the bound after them."""
        xp = namespace(gains)
        if self.unscaled:
            return gains, bound
        if self.bound > 0:
            return xp.clip(gains / self.bound, -1.0, 1.0), bound
        bound = xp.maximum(bound, xp.max(xp.abs(gains), axis=(-2, -1)))
        return gains / xp.where(bound > 0, bound, 1.0)[..., None, None], bound

    def start(self, zero: Array, rounds: int) -> RivalState:
        xp = namespace(zero)
        slots = self.cover.slots(rounds)
        decision = zero + self.center(zero)
        points = self.first_points(decision, slots)
        like = points[..., 0]
        running = self._running(like, 0)
        weights = self.settled(self.born(like, 0), running, self._starts(like, 0), 0)
        bound = xp.zeros_like(zero[..., 0]) + self.bound
        fit = xp.ones(like.shape, dtype=xp.bool)
        state = RivalState(0, decision, points, self.fresh(points), weights, like, fit, bound)
        return self._decided(state, running)

    def first_points(self, decision: Array, slots: int) -> Array:
        """Initial points of the experts."""
        return self.start_points(decision, slots)

    def grow(self, state: RivalState, rounds: int) -> RivalState:
        slots, have = self.cover.slots(rounds), state.points.shape[-3]
        if slots <= have:
            return state
        xp = namespace(state.points)
        points, memory = self.grown(state, slots)
        room = points[..., have:, :, 0]
        weights = tuple(
            xp.concat(pair, axis=-2) for pair in zip(state.weights, self.born(room, state.round), strict=True)
        )
        p = xp.concat([state.p, xp.zeros_like(room)], axis=-2)
        fit = xp.concat([state.fit, xp.ones(room.shape, dtype=xp.bool)], axis=-2)
        return state._replace(points=points, memory=memory, weights=weights, p=p, fit=fit)

    def advance(
        self, state: RivalState, feedback: Feedback, chance: Array | None, record: bool, pace: Pace = "careful"
    ) -> tuple[RivalState, Info]:
        xp = namespace(state.points)
        running = self._running(state.p, state.round)
        gains = feedback.gains(state.decision, state.points)
        finite = xp.isfinite(gains)
        counted = running & state.fit & finite
        # An expert at the decision has a gain of 0 up to rounding, which is removed.
        rounding = feedback.rounding(state.decision)[..., None, None]
        used, bound = self.scaled(xp.where(counted & (xp.abs(gains) > rounding), gains, 0.0), state.bound)
        t = state.round + 1
        weights = state.weights
        if self.bound == 0:
            grown = xp.where(bound > 0, state.bound / xp.where(bound > 0, bound, 1.0), 1.0)
            weights = self.rescaled(weights, grown[..., None, None])
        weights = self.judge(weights, used, counted, t)
        points, memory, error = self.take_steps(state, feedback)
        weights = self.foreseen(weights, feedback.expert_gradients[..., 0, 0, :], state._replace(bound=bound), points)
        fit = state.fit & finite & xp.all(combine.usable(points), axis=-1)
        points = xp.where(fit[..., None], points, state.decision[..., None, None, :])
        after = state._replace(round=t, points=points, memory=memory, weights=weights, fit=fit, bound=bound)
        running = self._running(state.p, t)
        starts = self._starts(state.p, t)
        if pace != "quiet" and (is_traced(t) or bool(starts.any())):
            after = self._restarted(after, running, starts)
        after = self._decided(after, running)
        info: Info = {"healthy": xp.all(combine.usable(after.decision), axis=-1)}
        if record:
            info |= {"gains": xp.where(counted, gains, xp.nan), "p": state.p}
            if not self.exact:
                info["error"] = error + xp.zeros_like(gains)
            if not self.domain.bounded:
                info["points"] = state.points
            if isinstance(feedback, Full):
                info["expert_gradients"] = feedback.gradients
        return after, info

    def _restarted(self, state: RivalState, running: Array, starts: Array) -> RivalState:
        xp = namespace(state.points)
        origin = self.center(state.points) if self.newborns == "cold" else state.decision[..., None, None, :]
        points, memory = self.reborn(state, starts[:, 0], origin)
        born = self.born(state.p, state.round)
        weights = tuple(xp.where(starts, new, old) for new, old in zip(born, state.weights, strict=True))
        weights = self.settled(weights, running, starts, state.round)
        return state._replace(points=points, memory=memory, weights=weights, fit=state.fit | starts)

    def _decided(self, state: RivalState, running: Array) -> RivalState:
        xp = namespace(state.points)
        fit = running & state.fit
        weight = xp.where(fit, self.weigh(state.weights, fit, state.round), 0.0)
        total = xp.sum(weight, axis=(-2, -1), keepdims=True)
        prior = xp.where(fit, self.prior(state.weights, running) + xp.zeros_like(weight), 0.0)
        weight = xp.where(total > 0, weight, prior)
        p = weight / xp.sum(weight, axis=(-2, -1), keepdims=True)
        return state._replace(p=p, decision=self.domain.tidy(combine.average(state.points, p)))

    def _running(self, like: Array, t: Array | int) -> Array:
        """Which slots run in round `t`, `(slots, 1)`."""
        return namespace(like).asarray(self.cover.running(t, like.shape[-2]))[:, None]

    def _starts(self, like: Array, t: Array | int) -> Array:
        """Which slots start a block when `t` rounds are complete, `(slots, 1)`."""
        return namespace(like).asarray(self.cover.starts(t, like.shape[-2]))[:, None]


class Rival(Learner):
    """Base class of SAMUEL's rivals: experts on the blocks of a cover.

    All of them take these options, and `shortest` if they start new experts:

    Args:
        kind: the rule that weights the experts.
        dim: dimension of the decisions.
        domain: where they must lie; all of space by default.
        cover: intervals with experts of their own.
        base: base learner of every expert; by default `ScaleFreeOGD` with the rate that fits the domain, or 1 on an
            unbounded one.
        learning_rates: several rates for the base learner instead; one expert per rate on every block.
        learners: instead of `base` and `learning_rates`, any list of base learners with rates of their own.
        newborns: "warm" (start at the decision) or "cold" (at the domain's centre).
        gradient_bound: `G`, a bound on the norm of gradients, if known: gains are then measured in units of `G`
            times the diameter of the domain. Otherwise in units of the largest gain so far.
        feedback: "linear" (one gradient a round), "loss" (and each expert's loss) or "full" (each expert's loss
            and gradient).
        assumptions: conditions of the theory that were not given.
        settings: further fields of the rule.
        options: `streams`, `seed`, `dtype`, `record`, as for every `Learner`.
    """

    rule: RivalRule

    assumptions: tuple[str, ...]
    """Conditions of the theory that were not given, and what is done instead."""

    def __init__(
        self,
        kind: type[RivalRule],
        dim: int,
        domain: Domain | None,
        *,
        cover: Cover,
        base: Base | None = None,
        learning_rates: Sequence[float] | None = None,
        learners: Sequence[Base] | None = None,
        newborns: Literal["warm", "cold"] = "warm",
        gradient_bound: float | None = None,
        feedback: Literal["linear", "loss", "full"] = "linear",
        assumptions: tuple[str, ...] = (),
        settings: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        dim, domain = check_place(dim, domain)
        one_of("feedback", feedback, FEEDBACK)
        one_of("newborns", newborns, ensemble.NEWBORNS)
        rule = kind(
            dim=dim,
            domain=domain,
            experts=rival_experts(base, learning_rates, learners, domain, dim),
            cover=cover,
            newborns=newborns,
            bound=gain_bound(gradient_bound, domain, dim),
            feedback=feedback,
            **(settings or {}),
        )
        super().__init__(rule, **check_options(options))
        scaled = gradient_bound is None and not rule.unscaled
        self.assumptions = (*assumptions, BOUNDED) if scaled else assumptions

    @property
    def learning_rates(self) -> tuple[float, ...]:
        """The learning rate of each expert of a block."""
        return tuple(base.learning_rate for base in self.rule.experts)

    def weights(self) -> Any:
        """The weight of each expert in the decision, shape `(*streams, slots, experts)`."""
        return self._state.p.copy()


BOUNDED = "gains lie in [-1, 1]: they are divided by the largest one so far; give gradient_bound=... if known"
"""Condition of all rivals' theory."""
HORIZON = "the horizon is known: without one, rates fall as t^(-1/2); give horizon=..."
"""Condition of the theory of some."""


def rival_experts(
    base: Base | None,
    learning_rates: Sequence[float] | None,
    learners: Sequence[Base] | None,
    domain: Domain,
    dim: int,
) -> tuple[Base, ...]:
    """The experts of a block from the options; by default one, scale-free gradient descent."""
    if base is None and learners is None and learning_rates is None:
        rate = default_learning_rates(ScaleFreeOGD(), domain, dim)[-1] if domain.bounded else 1.0
        return (ScaleFreeOGD(rate),)
    if base is not None and learners is None and learning_rates is None and isinstance(base, Base):
        return (base,)  # with its own rate
    return choose_experts(base, learning_rates, learners, domain, dim, default=ScaleFreeOGD())


def gain_bound(gradient_bound: float | None, domain: Domain, dim: int) -> float:
    """Upper bound on gains from a bound on gradients; 0 if unknown."""
    if gradient_bound is None:
        return 0.0
    gradient_bound = positive("gradient_bound", gradient_bound)
    if not domain.bounded:
        raise ValueError(f"gradient_bound={gradient_bound} bounds the gains on a bounded domain only, got {domain!r}")
    return gradient_bound * domain.diameter(dim)


def refuse_endless(name: str, domain: Domain) -> None:
    """ValueError for a domain without a diameter."""
    if not domain.bounded:
        raise ValueError(f"{name} needs a bounded domain, such as Ball(1.0), got {domain!r}")


def doubling(shortest: int) -> Cover:
    """The geometric cover without a horizon."""
    return Anytime(whole_number("shortest", shortest, least=1))


def normalised(log_weight: Array, running: Array) -> Array:
    """Weights from their logarithms, the largest of those that are running being 1; 0 for the others."""
    xp = namespace(log_weight)
    log_weight = xp.where(running, log_weight, -xp.inf)
    top = xp.max(log_weight, axis=(-2, -1), keepdims=True)
    return xp.where(running, xp.exp(log_weight - xp.where(xp.isfinite(top), top, 0.0)), 0.0)


def log_sum(log_weight: Array, running: Array) -> Array:
    """Logarithm of the sum of weights over the experts that are running, `(..., 1, 1)`."""
    xp = namespace(log_weight)
    top = xp.max(xp.where(running, log_weight, -xp.inf), axis=(-2, -1), keepdims=True)
    top = xp.where(xp.isfinite(top), top, 0.0)
    total = xp.sum(
        xp.where(running, xp.exp(xp.where(running, log_weight, top) - top), 0.0), axis=(-2, -1), keepdims=True
    )
    return top + xp.log(xp.where(total > 0, total, 1.0))


def power(t: Array | int, exponent: float, like: Array) -> Array:
    """`t ** exponent` in the precision of an array, 1 for a `t` of 0."""
    number = namespace(like).asarray(t + (t == 0), dtype=like.dtype)
    return number**exponent
