"""SAMUEL: base learners on many intervals, chosen by multiplicative weights with many step sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np

from samuel.core import Anytime, Cover, Feedback, Full, Geometric, Lasting, Linear, combine
from samuel.core import round as core_round
from samuel.core import weights as mw
from samuel.core.arrays import Array, is_traced, namespace, where_needed
from samuel.core.options import one_of, refuse_blind_sampling
from samuel.online import ensemble
from samuel.online.bases.adagrad import Adagrad
from samuel.online.bases.base import Base
from samuel.online.domains import Ball, Domain
from samuel.online.ensemble import (
    EnsembleRule,
    choose_experts,
    default_learning_rates,
    listed,
    long_lived_experts,
    positive,
)
from samuel.online.learner import Info, Learner, Pace, check_options, check_place, whole_number
from samuel.online.quick import LongLived, long_lived, long_lived_round, quick_round

FEEDBACK = ("linear", "loss", "full")
COMBINE = ("average", "sample", "best")
NEWBORNS = (*ensemble.NEWBORNS, "inherit")


class SamuelState(NamedTuple):
    """The experts, their weights and the decision made from them."""

    round: Array | int
    """Rounds completed."""
    decision: Array
    """`x`, shape `(..., d)`."""
    points: Array
    """`x(e)` of every expert, shape `(..., slots, experts, d)`."""
    memory: tuple[tuple[Array, ...], ...]
    """What the base learners remember, one entry per group of equal ones."""
    weights: mw.Weights
    p: Array
    """The weight of every expert in the decision, shape `(..., slots, experts)`."""
    recent: Array
    """The largest gain since the scale of the weights was last looked at, shape `(...)`."""


@dataclass(frozen=True, kw_only=True)
class SamuelRule(EnsembleRule):
    """Algorithm 1 as pure functions; `Samuel` explains the options."""

    prior: tuple[float, ...]
    Q: int
    bound: float
    combine: str
    against_draw: bool = False
    """Whether the gains of a sampled decision are taken against the loss of the expert drawn, not the mean."""

    @cached_property
    def lifted(self) -> Ball | None:
        """The ball whose bounding box Adagrad moves in; the decision is then the mean's projection onto the ball.

        In a box Adagrad's projection is clipping, in a ball it is a search in each round.
        """
        if not (isinstance(self.domain, Ball) and self.dim > 1 and self.cover.lasting):
            return None
        fits = self.feedback == "linear" and self.combine == "average"
        return self.domain if fits and any(isinstance(group.base, Adagrad) for group in self.groups) else None

    def room(self, base: Base) -> Domain:
        return self.lifted.bounding_box if self.lifted and isinstance(base, Adagrad) else self.domain

    @cached_property
    def quick(self) -> bool:
        """Whether an ordinary round of one stream may be played by `quick_round`."""
        alone = len(self.groups) == 1 and not self.cover.lasting
        return self.feedback == "linear" and self.combine == "average" and alone

    @cached_property
    def long_lived(self) -> LongLived | None:
        """What `long_lived_round` needs for an ordinary round of one stream; None if it cannot play it."""
        return long_lived(self) if self.feedback == "linear" and self.combine == "average" else None

    @property
    def rhythm(self) -> int:
        return self.cover.rhythm

    @property
    def random(self) -> bool:
        return self.combine == "sample"

    def rules(self, like: Array) -> core_round.Rules:
        """What its rounds follow, with the prior in the library and dtype of an array."""
        prior = namespace(like).asarray(self.prior, dtype=like.dtype)
        return core_round.Rules(self.cover, prior, self.cover.lasting or self.newborns == "inherit", self.bound)

    def start(self, zero: Array, rounds: int) -> SamuelState:
        slots, batch = self.cover.slots(rounds), tuple(zero.shape[:-1])
        decision = zero + self.center(zero)
        points = self.start_points(decision, slots)
        weights = core_round.begin(self.rules(zero), slots, self.Q, batch)
        return SamuelState(0, decision, points, self.fresh(points), weights, mw.shares(weights), weights.started * 0)

    def grow(self, state: SamuelState, rounds: int) -> SamuelState:
        slots = self.cover.slots(rounds)
        if slots <= state.points.shape[-3]:
            return state
        points, memory = self.grown(state, slots)
        weights = mw.grow(state.weights, slots)
        return state._replace(points=points, memory=memory, weights=weights, p=mw.shares(weights))

    def advance(
        self,
        state: SamuelState,
        feedback: Feedback,
        chance: Array | None,
        record: bool,
        pace: Pace = "careful",
    ) -> tuple[SamuelState, Info]:
        if not record and type(state.decision) is np.ndarray and state.decision.ndim == 1:
            after = None
            if self.quick:
                after = quick_round(self, state, feedback)
                after = after if after is None else self._turned(after)
            elif self.long_lived:
                after = long_lived_round(self, state, feedback)
            if after is not None:
                return after, {"healthy": True}
        mean = state.decision
        if self.lifted and isinstance(feedback, Linear):
            mean = combine.average(state.points, state.p)
            feedback = Linear(self.lifted.inward(mean, feedback.gradient))
        gains, excess = self._gains(mean, state, feedback)
        bound = state.weights.bound
        rounding = feedback.rounding(mean)
        after, judged = core_round.judge(state, gains, rounding, trusting=pace != "careful")
        weights = after.weights
        points, memory, error = self.take_steps(state, feedback)
        after = after._replace(points=points, memory=memory)
        if pace == "careful":
            healthy = judged.healthy & self._some_finite(after) if is_traced(bound) else judged.healthy
            after = core_round.finish(after, judged.largest, self.rules(points), _Experts(self, chance))
            info: Info = {"healthy": healthy}
        else:
            usual = (judged.largest <= bound).all()
            if pace == "due":
                rules = self.rules(points)
                usual = usual & ~core_round.falls(after, rules).any()
                after = core_round.restart(self.settle(after)[0], rules, _Experts(self, chance))
                after = core_round.looked(after, rules)
            info = {"usual": usual}
        if record:
            info |= {"gains": gains, "p": state.p, "used": judged.used, "bound": bound}
            info |= {"log_total": mw.log_total(weights), "started": state.weights.started}
            if excess is not None:
                info["excess"] = excess
            if not self.exact:
                info["error"] = error + namespace(gains).zeros_like(gains)
            if not self.domain.bounded:
                info["points"] = state.points
            if isinstance(feedback, Full):
                info["expert_gradients"] = feedback.gradients
            if self.lifted and isinstance(feedback, Linear):
                info["fed"] = feedback.gradient
            if self.cover.lasting:
                info |= {
                    f"memory {g} {i}": part for g, memory in enumerate(state.memory) for i, part in enumerate(memory)
                }
        return after, info

    def _gains(self, mean: Array, state: SamuelState, feedback: Feedback) -> tuple[Array, Array | None]:
        gains = feedback.gains(mean, state.points)
        if self.combine != "sample" or self.against_draw or not isinstance(feedback, Full):
            return gains, None
        # A sampled decision is judged by what its draw was worth on average; the luck of the draw is the excess.
        xp = namespace(gains)
        taking_part = xp.where(state.p > 0, feedback.losses, xp.zeros_like(feedback.losses))
        mean = xp.sum(state.p * taking_part, axis=(-2, -1))
        return mean[..., None, None] - feedback.losses, feedback.loss - mean

    def settle(self, state: SamuelState) -> tuple[SamuelState, Array]:
        state = self._decide(state._replace(weights=mw.weigh(state.weights)), None)
        return state, combine.usable(state.decision).all()

    def _turned(self, state: SamuelState) -> SamuelState:
        """The state after a quick round, with what is due at the end of blocks."""
        if state.round % self.cover.rhythm:
            return state
        rules, experts = self.rules(state.points), _Experts(self, None)
        if not core_round.is_due(state, rules):
            return state
        return experts.decided(core_round.narrow(core_round.restart(state, rules, experts), rules))

    def _some_finite(self, state: SamuelState) -> Array:
        """Whether each stream has an expert with finite numbers, for compiled loops, which can raise no error."""
        xp = namespace(state.points)
        finite = xp.all(combine.usable(state.points), axis=-1) & mw.alive(state.weights)
        return xp.any(finite, axis=(-2, -1))

    def _origin(self, state: SamuelState) -> Array:
        """Where newborns start."""
        xp = namespace(state.points)
        if self.newborns == "cold":
            return self.center(state.points)
        decision = state.decision[..., None, None, :]
        if self.newborns == "warm":
            return decision
        # The slot's own mean, so that a slot that hands on its weight does not move the decision.
        share, has = core_round.bequests(state.weights)
        points = xp.where((share > 0)[..., None], state.points, xp.zeros_like(state.points))
        mean = xp.sum(share[..., None] * points, axis=-2, keepdims=True)
        return xp.where(has[..., None, None], mean, decision)

    def _decide(self, state: SamuelState, chance: Array | None) -> SamuelState:
        p = mw.shares(state.weights)
        decision = self._combined(state.points, p, chance)
        return SamuelState(state.round, decision, state.points, state.memory, state.weights, p, state.recent)

    def _combined(self, points: Array, p: Array, chance: Array | None) -> Array:
        if self.combine == "sample":
            assert chance is not None, "a rule that samples is given a random number"
            return combine.sample(points, p, chance)
        if self.combine == "best":
            return combine.best(points, p)
        mean = combine.average(points, p)
        return self.lifted.project(mean) if self.lifted else self.domain.tidy(mean)


class _Experts(NamedTuple):
    """Experts that are points of a domain; see `samuel.core.round.Population`."""

    rule: SamuelRule
    chance: Array | None

    def decided(self, state: SamuelState) -> SamuelState:
        return self.rule._decide(state, self.chance)

    def diverged(self, state: SamuelState) -> Array:
        return ~combine.usable(state.decision).all()

    def sifted(self, state: SamuelState) -> tuple[SamuelState, Array]:
        xp = namespace(state.points)
        finite = xp.all(combine.usable(state.points), axis=-1)
        return state._replace(points=xp.where(finite[..., None], state.points, 0.0)), finite

    def reborn(self, state: SamuelState, starts: Array) -> SamuelState:
        if self.rule.cover.lasting:
            return self._healed(state)
        points, memory = self.rule.reborn(state, starts, self.rule._origin(state))
        return state._replace(points=points, memory=memory)

    def _healed(self, state: SamuelState) -> SamuelState:
        """The state with the experts that had diverged at the decision, and the memory they share finite again."""
        xp = namespace(state.points)
        dead = ~mw.alive(state.weights)
        if not is_traced(dead) and not dead.any():
            return state
        points = xp.where(dead[..., None], state.decision[..., None, None, :], state.points)
        memory = tuple(
            tuple(xp.where(combine.usable(old), old, new) for old, new in zip(*pair, strict=True))
            for pair in zip(state.memory, self.rule.fresh(state.points), strict=True)
        )
        return state._replace(points=points, memory=memory)

    def when(self, needed: Any, change: Callable[[Any], Any], state: Any) -> Any:
        return where_needed(needed, change, state)


class Samuel(Learner):
    """SAMUEL: no learning rate to choose, and near-optimal regret on every interval of the run.

    Base learners with several learning rates are weighed in each round by how much better than the decision they were,
    and the decision is their weighted average. By default, on a bounded domain, these are Adagrad with seven rates and
    gradient descent with six, in units of the domain and of the gradients, which never start anew
    (`docs/mathematics.md`). With any of `base`, `learning_rates`, `learners`, `cover` and `newborns` they run on blocks
    of many lengths, as in the paper.

    Args:
        dim: dimension of the decisions.
        domain: where they must lie; all of space by default. Bounded domains have the full guarantee.
        base: what every expert does with its gradients, on blocks (`Adagrad()` if other options ask for blocks).
        learning_rates: candidates for the base learner; one expert per rate in every slot. By default six rates
            that fit the domain: its width (diameter, for bases without a step per coordinate) over `sqrt(2)`, and
            powers of 4 less; on an unbounded domain five powers of ten from 0.001.
        learners: instead of `base` and `learning_rates`, any list of base learners with rates of their own.
        cover: which stretches of time get experts of their own: for the default experts `Lasting()`, for others
            `Anytime()`, or `Geometric(horizon)` if a horizon is given.
        horizon: number of rounds, if known.
        gradient_bound: `G`, a bound on the norm of gradients, if known. The scale of the gains is found out
            otherwise, and then multiplying all losses by a constant changes no decision (with a base learner that
            is scale-free).
        Q: how many step sizes the weights are kept with; see `samuel.core.weights.number_of_rates`.
        prior: weight of every learner of a slot at birth; equal if not given, or for the default experts larger for
            small rates.
        newborns: on blocks, "inherit" (start at the mean of the block that ended, take over its weight and add the
            prior), "warm" (at the decision, with the prior) or "cold" (at the domain's centre, with the prior). By
            default "inherit", and "warm" from the first late gradient on: experts that went too far hand nothing on.
        combine: "average" (for convex losses), "sample" or "best".
        feedback: "linear" (one gradient a round), "loss" (and each expert's loss) or "full" (each expert's loss
            and gradient).
        options: `streams`, `seed`, `dtype`, `record`, as for every `Learner`.

    >>> import numpy as np
    >>> from samuel.online import Samuel, Ball
    >>> learner = Samuel(dim=3, domain=Ball(1.0))
    >>> target = np.array([0.6, 0.0, -0.2])
    >>> for t in range(300):
    ...     if t == 200:
    ...         target = -target  # nobody tells the learner
    ...     x = learner.predict()
    ...     learner.update(2 * (x - target))
    >>> bool(np.abs(learner.predict() - target).max() < 0.05)
    True
    """

    rule: SamuelRule

    def __init__(
        self,
        dim: int,
        domain: Domain | None = None,
        *,
        base: Base | None = None,
        learning_rates: Sequence[float] | None = None,
        learners: Sequence[Base] | None = None,
        cover: Cover | None = None,
        horizon: int | None = None,
        gradient_bound: float | None = None,
        Q: int | None = None,
        prior: Sequence[float] | None = None,
        newborns: Literal["warm", "cold", "inherit"] | None = None,
        combine: Literal["average", "sample", "best"] = "average",
        feedback: Literal["linear", "loss", "full"] = "linear",
        **options: Any,
    ) -> None:
        dim, domain = check_place(dim, domain)
        one_of("feedback", feedback, FEEDBACK)
        one_of("combine", combine, COMBINE)
        self._newborns_chosen = newborns is not None
        given = (base, learning_rates, learners, cover, newborns)
        default = all(option is None for option in given) and feedback == "linear" and combine == "average"
        default = default and domain.bounded  # elsewhere nothing stops an expert whose rate is too large
        newborns = "inherit" if newborns is None else newborns
        one_of("newborns", newborns, NEWBORNS)
        refuse_blind_sampling(combine, feedback)
        if gradient_bound is not None:
            gradient_bound = positive("gradient_bound", gradient_bound)
        if gradient_bound is not None and not domain.bounded:
            raise ValueError(
                f"gradient_bound={gradient_bound} bounds the gains on a bounded domain only, got {domain!r}"
            )
        if default:
            experts, priors = long_lived_experts(domain, dim)
            prior = priors if prior is None else prior
            cover = Lasting(horizon=None if horizon is None else whole_number("horizon", horizon, least=1))
        else:
            experts = choose_experts(base, learning_rates, learners, domain, dim, default=Adagrad())
            cover = _cover(cover, horizon)
            _check_lasting(cover, experts)
        diameter = domain.diameter(dim)
        if Q is None:
            Q = mw.number_of_rates(cover.limit, dim, diameter, gradient_bound)
        Q = whole_number("Q", Q, least=1)
        rule = SamuelRule(
            dim=dim,
            domain=domain,
            experts=experts,
            cover=cover,
            prior=_prior(prior, len(experts)),
            Q=Q,
            bound=0.0,
            newborns=newborns,
            combine=combine,
            feedback=feedback,
        )
        if gradient_bound is not None:
            farthest = rule.lifted.bounding_box.diameter(dim) if rule.lifted else diameter
            rule = replace(rule, bound=gradient_bound * farthest)
        super().__init__(rule, **check_options(options))

    @classmethod
    def as_printed(
        cls,
        dim: int,
        domain: Domain,
        horizon: int,
        gradient_bound: float,
        *,
        base: Base | None = None,
        learning_rates: Sequence[float] | None = None,
        shortest: int = 1,
        combine: Literal["average", "sample"] = "average",
        **options: Any,
    ) -> Samuel:
        """Algorithm 1 of Lu et al. (2022) with every choice as in its pseudo-code.

        Full feedback: every expert is fed the gradient at its own point, and its gain is `l(x) - l(x(e))`. Geometric
        intervals up to the horizon; experts that start at the domain's centre with the weight `min(1/2, eta_q)`;
        `eta_q = 1 / (2 G D 2^q)` for `q = 1..Q`, `Q = 4 log(d T D^2 G^2)` rounded up, `D` half the domain's diameter.

        Args:
            dim: `d`, the dimension of the decisions.
            domain: a bounded one.
            horizon: `T`.
            gradient_bound: `G`. The paper assumes that `G` and `D` are above 1, where `min(1/2, eta_q)` is `eta_q`;
                here `G D` must be at least 1/2, for the same reason.
            base: the algorithm `A` (`Adagrad()` by default).
            learning_rates: one expert per rate on every interval; by default one, the best in the worst case. The
                paper's experiments have 0.05, 0.1, 0.25, 0.5 and 1.
            shortest: rounds in the shortest interval; 200 in the paper's experiments.
            combine: "average", or "sample" to draw an expert by weight, whose loss is then `l(x)`.
            options: `streams`, `seed`, `dtype`, `record`, as for every `Learner`.

        >>> from samuel.online import Ball, DriftingRegression, Samuel, play
        >>> learner = Samuel.as_printed(dim=2, domain=Ball(1.0), horizon=64, gradient_bound=4.0)
        >>> trace = play(learner, DriftingRegression(dim=2, period=32), rounds=64)
        >>> learner.rule.Q, trace.weights.shape  # seven levels of intervals, one expert each
        (31, (64, 7, 1))
        """
        dim, domain = check_place(dim, domain)
        gradient_bound = positive("gradient_bound", gradient_bound)
        if combine not in ("average", "sample"):
            raise ValueError(f"combine must be one of average, sample, got {combine!r}")
        if domain.bounded and gradient_bound * domain.diameter(dim) < 1:
            raise ValueError(
                f"gradient_bound={gradient_bound:g} on {domain}: G D is below 1/2, and the paper assumes G > 1 and "
                f"D > 1; give at least {1 / domain.diameter(dim):g}, a larger bound is a bound too"
            )
        if learning_rates is None and (base is None or isinstance(base, Base)):
            learning_rates = default_learning_rates(base or Adagrad(), domain, dim)[-1:]
        learner = cls(
            dim,
            domain,
            base=base,
            learning_rates=learning_rates,
            cover=Geometric(whole_number("horizon", horizon, least=1), whole_number("shortest", shortest, least=1)),
            gradient_bound=gradient_bound,
            newborns="cold",
            combine=combine,
            feedback="full",
            **options,
        )
        learner.rule = replace(learner.rule, against_draw=True)
        return learner

    @property
    def late_rule(self) -> SamuelRule:
        if self._newborns_chosen or self.rule.feedback == "full":  # full feedback is taken at the present decision
            return self.rule
        return replace(self.rule, newborns="warm")

    @property
    def learning_rates(self) -> tuple[float, ...]:
        """The learning rate of each expert of a slot."""
        return tuple(base.learning_rate for base in self.rule.experts)

    def weights(self) -> Any:
        """How the decision is made up: the weight of each expert, shape `(*streams, slots, experts)`."""
        return self._state.p.copy()


def _cover(cover: Cover | None, horizon: int | None) -> Cover:
    if horizon is not None:
        horizon = whole_number("horizon", horizon, least=1)
    if cover is None:
        return Anytime() if horizon is None else Geometric(horizon, shortest=min(8, horizon))
    if not isinstance(cover, Cover):
        raise ValueError(f"cover must be a samuel.core cover such as Anytime(), got {cover!r}")
    if horizon is not None and cover.limit != horizon:
        raise ValueError(f"horizon={horizon} and cover={cover} disagree: give one of them")
    return cover


def _check_lasting(cover: Cover, experts: tuple[Base, ...]) -> None:
    for expert in experts if cover.lasting else ():
        if not expert.lasting:
            raise ValueError(
                f"{cover} never starts experts anew, and no bound is known for {expert!r} then; use a cover of blocks "
                "such as Anytime(), or base learners such as Adagrad() and RelativeOGD()"
            )


def _prior(prior: Sequence[float] | None, experts: int) -> tuple[float, ...]:
    if prior is None:
        return (1.0,) * experts
    numbers = listed("prior", prior)
    if len(numbers) != experts:
        raise ValueError(f"prior needs one number per learner of a slot ({experts}), got {len(numbers)}")
    return tuple(positive("every prior", value) for value in numbers)
