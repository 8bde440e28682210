"""SACS: AdaNormalHedge over a compact cover."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from samuel.core import Compact
from samuel.core.arrays import Array, at_least, namespace
from samuel.core.options import whole_number
from samuel.online.domains import Domain
from samuel.online.rivals.rival import Rival, RivalRule, Weights


@dataclass(frozen=True, kw_only=True)
class SacsRule(RivalRule):
    """SACS as pure functions; `SACS` explains them. State of an expert: `R = sum r` and `C = sum |r|`."""

    def born(self, like: Array, t: Array | int) -> Weights:
        nothing = namespace(like).zeros_like(like)
        return nothing, nothing

    def rescaled(self, weights: Weights, factor: Array) -> Weights:
        total, size = weights
        return total * factor, size * factor

    def judge(self, weights: Weights, gains: Array, running: Array, t: Array | int) -> Weights:
        total, size = weights
        return total + gains, size + abs(gains)

    def weigh(self, weights: Weights, running: Array, t: Array | int) -> Array:
        xp = namespace(weights[0])
        total, size = weights
        more, less = (at_least(total + step, 0.0) ** 2 / (3 * (size + 1)) for step in (1.0, -1.0))
        # The difference of two exponentials, over a common factor that keeps them in range.
        top = xp.max(xp.where(running, more, 0.0), axis=(-2, -1), keepdims=True)
        return xp.where(running, -xp.exp(more - top) * xp.expm1(less - more), 0.0)


SMOOTH = "losses are smooth and at least 0: this is not checked, and other losses have no guarantee"


class SACS(Rival):
    """Strongly adaptive algorithm for convex and smooth functions: weights from a potential, without a step size.

    On blocks of doubling lengths, every other one left out, with `R = sum r` and `C = sum |r|` since an expert's
    birth:

        F(R, C) = exp(max(R, 0)^2 / (3 C)),   p ~ (F(R + 1, C + 1) - F(R - 1, C + 1)) / 2

    and equal shares where all are 0. Regret on any interval: of the order of the square root of the *loss* that the
    best fixed point has there, times `log T` factors, for smooth losses in [0, 1] and scale-free gradient descent
    as the base (Zhang, Liu and Zhou 2019; the weights are AdaNormalHedge, Luo and Schapire 2015).

    Args:
        dim: dimension of the decisions.
        domain: where they must lie; all of space by default.
        shortest: rounds in the shortest block.
        options: those of every `Rival`, and of every `Learner`.

    >>> from samuel.online import SACS, Ball
    >>> learner = SACS(dim=2, domain=Ball(1.0))
    >>> for _ in range(100):
    ...     learner.update(2 * (learner.predict() - [0.3, 0.4]))
    >>> learner.predict().round(1)
    array([0.3, 0.4])
    """

    def __init__(self, dim: int, domain: Domain | None = None, *, shortest: int = 8, **options: Any) -> None:
        cover = Compact(whole_number("shortest", shortest, least=1))
        super().__init__(SacsRule, dim, domain, cover=cover, assumptions=(SMOOTH,), **options)
