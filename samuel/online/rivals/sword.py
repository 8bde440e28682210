"""Sword: optimistic descent with many step sizes, for losses that change slowly from round to round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from samuel.core import Chosen, Linear
from samuel.core.arrays import Array, namespace
from samuel.core.options import whole_number
from samuel.online.bases.base import Base, Memory, Stepped, count_like, divide
from samuel.online.domains import Domain
from samuel.online.ensemble import positive
from samuel.online.learner import check_place
from samuel.online.rivals.ader import ROUNDS
from samuel.online.rivals.rival import HORIZON, Rival, RivalRule, RivalState, Weights, normalised, refuse_endless

SMOOTHNESS = "losses are L-smooth: L is taken to be the largest gradient over the diameter; smoothness=... says it"


@dataclass(frozen=True)
class OptimisticDescent(Base):
    """Two steps of gradient descent a round, the second in expectation of the same gradient again.

        y <- Proj(y - lr g / G),   x = Proj(y - lr g / G),   G the longest gradient so far

    Kept are `y - x` and `G`.
    """

    longest: float = 0.0
    """`G`, if known."""

    remembers_gradients_only: ClassVar[bool] = False

    def init(self, template: Array) -> Memory:
        return namespace(template).zeros_like(template), count_like(template) + self.longest

    def step(
        self, points: Array, memory: Memory, gradients: Array, learning_rate: Array | float, domain: Domain
    ) -> Stepped:
        xp = namespace(points)
        behind, longest = memory
        longest = xp.maximum(longest, xp.sqrt(xp.sum(gradients * gradients, axis=-1, keepdims=True)))
        step = learning_rate * divide(gradients + xp.zeros_like(points), longest)
        anchor = domain.project(points + behind - step)
        ahead = domain.project(anchor - step)
        return Stepped(ahead, (anchor - ahead, longest))


@dataclass(frozen=True, kw_only=True)
class SwordRule(RivalRule):
    """Sword++ as pure functions; `Sword` explains them.

    Kept of an expert, in units of `G D`: the sum of its gains less what its moves cost, the gain expected in the coming
    round, what its last move cost, and of all experts the sum of the squared surprises.
    """

    curvature: float = 1.0
    """`L D / G`."""

    def born(self, like: Array, t: Array | int) -> Weights:
        nothing = namespace(like).zeros_like(like)
        return nothing, nothing, nothing, nothing

    def rescaled(self, weights: Weights, factor: Array) -> Weights:
        total, expected, cost, surprise = weights
        return total * factor, expected * factor, cost, surprise * factor**2

    def judge(self, weights: Weights, gains: Array, running: Array, t: Array | int) -> Weights:
        xp = namespace(gains)
        total, expected, cost, surprise = weights
        # Half the range is the largest surprise in absolute value, once a constant is added to all gains.
        wrong = gains - expected
        largest, smallest = (extreme(wrong, axis=(-2, -1), keepdims=True) for extreme in (xp.max, xp.min))
        return total + gains - cost, expected, cost, surprise + ((largest - smallest) / 2) ** 2

    def foreseen(self, weights: Weights, gradient: Array, before: RivalState, points: Array) -> Weights:
        xp = namespace(points)
        total, _, _, surprise = weights
        bound = before.bound[..., None, None]
        gains = Linear(gradient).gains(before.decision, points)
        expected = xp.where(bound > 0, gains / xp.where(bound > 0, bound, 1.0), 0.0)
        move = (points - before.points) / self.domain.diameter(self.dim)
        return total, expected, 2 * self.curvature * xp.sum(move * move, axis=-1), surprise

    def weigh(self, weights: Weights, running: Array, t: Array | int) -> Array:
        xp = namespace(weights[0])
        total, expected, cost, surprise = weights
        largest = 1 / (8 * self.curvature)
        rate = xp.minimum(xp.zeros_like(surprise) + largest, xp.where(surprise > 0, surprise, largest**-2) ** -0.5)
        return normalised(rate * (total + expected - cost), running)


class Sword(Rival):
    """Sword++: little regret against any *sequence* of points, less still where gradients change slowly.

    Optimistic gradient descent with the step sizes `2^i D / (G sqrt(T))` up to `1 / (8 L)`, each from the first round
    to the last. Its points `x_i` are weighed by optimistic Hedge with a correction that holds the moves of the experts
    together: with `g` and `g'` the last gradient and the coming one,

        p_i ~ exp(-e (sum of l_i + m_i)),   l_i = <g', x_i> + 2 L |x_i - x_i before|^2,   m_i the same with g

    and `e` the smaller of `1 / (8 D^2 L)` and one over the root of the sum of `max_i (l_i - m_i)^2`. Regret against
    `u_1, ..., u_T` that move by `P` in all: `O(sqrt((1 + P + min(V, F)) (1 + P)))`, for `L`-smooth losses whose
    gradients vary by `V` and whose comparators lose `F` in all (Zhao, Zhang, Zhang and Zhou, NeurIPS 2020; with one
    gradient a round, as here, Journal of Machine Learning Research 2024; settings of the authors' implementation).

    Args:
        dim: dimension of the decisions.
        domain: where they must lie; of a finite diameter `D`.
        horizon: number of rounds `T`, if known; otherwise there are step sizes for a million.
        gradient_bound: `G`, a bound on the norm of gradients, if known.
        smoothness: `L`, at most how much gradients differ at points a distance of 1 apart, if known; it takes a
            `gradient_bound`, too.
        options: those of every `Learner`.

    >>> from samuel.online import Ball, Sword
    >>> learner = Sword(dim=2, domain=Ball(1.0))
    >>> for _ in range(100):
    ...     learner.update(2 * (learner.predict() - [0.3, 0.4]))
    >>> learner.predict().round(1)
    array([0.3, 0.4])
    """

    rule: SwordRule

    def __init__(
        self,
        dim: int,
        domain: Domain,
        *,
        horizon: int | None = None,
        gradient_bound: float | None = None,
        smoothness: float | None = None,
        **options: Any,
    ) -> None:
        dim, domain = check_place(dim, domain)
        refuse_endless("Sword", domain)
        if options.get("feedback", "linear") != "linear":
            raise ValueError(f"Sword takes feedback='linear', one gradient a round, got {options['feedback']!r}")
        if smoothness is not None and gradient_bound is None:
            raise ValueError(f"smoothness={smoothness!r} needs a gradient_bound, too")
        rounds = ROUNDS if horizon is None else whole_number("horizon", horizon, least=1)
        diameter, longest = domain.diameter(dim), 0.0
        if gradient_bound is not None:
            longest = positive("gradient_bound", gradient_bound)
        curvature = 1.0 if smoothness is None else positive("smoothness", smoothness) * diameter / longest
        smallest, count = rounds**-0.5, 1
        while smallest * 2.0**count <= 1 / (8 * curvature):
            count += 1
        learners = [OptimisticDescent(diameter * smallest * 2.0**power, longest) for power in range(count)]
        assumptions = [*[HORIZON] * (horizon is None), *[SMOOTHNESS] * (smoothness is None)]
        super().__init__(
            SwordRule,
            dim,
            domain,
            cover=Chosen(),
            learners=learners,
            gradient_bound=gradient_bound,
            assumptions=tuple(assumptions),
            settings={"curvature": curvature},
            **options,
        )
