"""Ader: descent with many step sizes, weighed by Hedge, to follow any sequence of points."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from samuel.core import Chosen
from samuel.core.arrays import Array, namespace
from samuel.core.options import whole_number
from samuel.online.bases.base import Base
from samuel.online.bases.ogd import OGD
from samuel.online.bases.scale_free import ScaleFreeOGD
from samuel.online.domains import Domain
from samuel.online.ensemble import positive
from samuel.online.learner import check_place
from samuel.online.rivals.hedge import HedgeRule
from samuel.online.rivals.rival import HORIZON, Rival, Weights, power, refuse_endless

ROUNDS = 2**20
"""For how many rounds there are step sizes, where the horizon is not known."""


@dataclass(frozen=True, kw_only=True)
class AderRule(HedgeRule):
    """Ader as pure functions; `Ader` explains them."""

    def rate_at(self, t: Array | int, like: Array) -> Array | float:
        """`sqrt(2 / T)`, or `sqrt(1 / t)` where the horizon is not known, for gains in [-1, 1]."""
        return math.sqrt(2 if self.horizon else 1) * power(self.horizon or t, -0.5, like)

    def weigh(self, weights: Weights, running: Array, t: Array | int) -> Array:
        return super().weigh(weights, running, t) * self.prior(weights, running)

    def prior(self, weights: Weights, running: Array) -> Array:
        """`1 / (i (i + 1))` for the i-th step size: small ones are favoured."""
        place = namespace(weights[0]).arange(1, len(self.experts) + 1, dtype=weights[0].dtype)
        return running / (place * (place + 1))


class Ader(Rival):
    """Adaptive learning for dynamic environments: little regret against any *sequence* of points.

    Gradient descent with the step sizes `2^i D / G sqrt(7 / (2 T))`, `i = 0, 1, ..., ceil(log2(1 + 4 T / 7) / 2)`, each
    from the first round to the last, weighed by Hedge with the rate `sqrt(2 / T)` for gains over `G D`, and a prior
    that favours small steps (Zhang, Lu and Zhou, NeurIPS 2018; with linear feedback the improved Ader, which needs one
    gradient a round).

    Regret against `u_1, ..., u_T` that move by `P` in all: at most

        3/4 G sqrt(2 T (7 D^2 + 4 D P)) + 1/2 G D sqrt(2 T) (1 + 2 ln(k + 1))

    with `k = floor(log2(1 + 4 P / (7 D)) / 2) + 1`, if `G` and `T` are known. Where one of them is not, steps are
    `2^i D sqrt(7 / 2)` over the root of the sum of all squared gradients so far.

    Args:
        dim: dimension of the decisions.
        domain: where they must lie; of a finite diameter `D`.
        horizon: number of rounds `T`, if known.
        gradient_bound: `G`, a bound on the norm of gradients, if known.
        options: `feedback`, as for every `Rival`, and those of every `Learner`.

    >>> from samuel.online import Ader, Ball
    >>> learner = Ader(dim=2, domain=Ball(1.0))
    >>> for _ in range(300):
    ...     learner.update(2 * (learner.predict() - [0.3, 0.4]))
    >>> learner.predict().round(1)
    array([0.3, 0.4])
    """

    rule: AderRule

    def __init__(
        self,
        dim: int,
        domain: Domain,
        *,
        horizon: int | None = None,
        gradient_bound: float | None = None,
        **options: Any,
    ) -> None:
        dim, domain = check_place(dim, domain)
        refuse_endless("Ader", domain)
        rounds = ROUNDS if horizon is None else whole_number("horizon", horizon, least=1)
        unit = domain.diameter(dim) * math.sqrt(7 / 2)
        factors = [2.0**power for power in range(math.ceil(math.log2(1 + 4 * rounds / 7) / 2) + 1)]
        learners: list[Base] = [ScaleFreeOGD(unit * factor) for factor in factors]
        if horizon is not None and gradient_bound is not None:
            smallest = unit / positive("gradient_bound", gradient_bound) / math.sqrt(rounds)
            learners = [OGD(smallest * factor) for factor in factors]
        super().__init__(
            AderRule,
            dim,
            domain,
            cover=Chosen(),
            learners=learners,
            gradient_bound=gradient_bound,
            assumptions=(HORIZON,) if horizon is None else (),
            settings={"horizon": horizon or 0},
            **options,
        )
