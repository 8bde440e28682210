"""SAOL: the first strongly adaptive learner."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import numpy as np

from samuel.core import Anytime
from samuel.core.arrays import Array, constant, namespace
from samuel.online.domains import Domain
from samuel.online.rivals.rival import Rival, RivalRule, Weights, doubling, normalised


@dataclass(frozen=True, kw_only=True)
class SaolRule(RivalRule):
    """SAOL as pure functions; `SAOL` explains them. State of an expert: the logarithm of its weight."""

    def born(self, like: Array, t: Array | int) -> Weights:
        return (namespace(like).zeros_like(like) + namespace(like).log(self._rates(like)),)

    def judge(self, weights: Weights, gains: Array, running: Array, t: Array | int) -> Weights:
        return (weights[0] + namespace(gains).log1p(self._rates(gains) * gains),)

    def weigh(self, weights: Weights, running: Array, t: Array | int) -> Array:
        return normalised(weights[0], running)

    def _rates(self, like: Array) -> Array:
        """`eta_I` of every slot, `(slots, 1)`."""
        return constant(_rates(cast(Anytime, self.cover).shortest, like.shape[-2]), like)


@lru_cache(maxsize=256)
def _rates(shortest: int, slots: int) -> np.ndarray:
    return np.minimum(0.5, (shortest * 2.0 ** np.arange(slots)) ** -0.5)[:, None]


class SAOL(Rival):
    """Strongly adaptive online learner: one step size for the weights of every block, fixed by its length.

    On blocks of doubling lengths, with `r_I` the gain of the expert on block `I` over the decision:

        eta_I = min(1/2, |I|^(-1/2)),   w_I = eta_I at birth,   w_I <- w_I (1 + eta_I r_I),   p_I ~ w_I

    Regret on any interval: `O(sqrt(|I|) log T)` for gains in [-1, 1], independent of the gradients (Daniely, Gonen
    and Shalev-Shwartz 2015, who draw an expert by `p`; here the decision is the average, as suits convex losses).

    Args:
        dim: dimension of the decisions.
        domain: where they must lie; all of space by default.
        shortest: rounds in the shortest block.
        options: those of every `Rival`, and of every `Learner`.

    >>> from samuel.online import SAOL, Ball
    >>> learner = SAOL(dim=2, domain=Ball(1.0))
    >>> for _ in range(100):
    ...     learner.update(2 * (learner.predict() - [0.3, 0.4]))
    >>> learner.predict().round(1)
    array([0.3, 0.4])
    """

    def __init__(self, dim: int, domain: Domain | None = None, *, shortest: int = 8, **options: Any) -> None:
        super().__init__(SaolRule, dim, domain, cover=doubling(shortest), **options)
