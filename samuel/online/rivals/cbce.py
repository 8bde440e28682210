"""CBCE: experts weighted by coin betting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from samuel.core import Anytime
from samuel.core.arrays import Array, namespace
from samuel.online.domains import Domain
from samuel.online.rivals.rival import Rival, RivalRule, Weights, doubling, normalised


@dataclass(frozen=True, kw_only=True)
class CbceRule(RivalRule):
    """CBCE as pure functions; `CBCE` explains them.

    State of an expert: `sum g`, the logarithm of its wealth `1 + sum g w`, its age and the logarithm of its prior. As
    `w` is the share `sum g / (n + 1)` of the wealth, the wealth is a product of positive factors.
    """

    def born(self, like: Array, t: Array | int) -> Weights:
        nothing = namespace(like).zeros_like(like)
        return nothing, nothing, nothing, nothing + self._log_prior(like, t)

    def judge(self, weights: Weights, gains: Array, running: Array, t: Array | int) -> Weights:
        xp = namespace(gains)
        total, log_wealth, lived, log_prior = weights
        bet = total / (lived + 1)
        # Experts without weight cannot lose.
        counted = xp.where(bet > 0, gains, xp.maximum(gains, xp.zeros_like(gains)))
        return total + counted, log_wealth + xp.log1p(counted * bet), lived + running, log_prior

    def weigh(self, weights: Weights, running: Array, t: Array | int) -> Array:
        xp = namespace(weights[0])
        total, log_wealth, lived, log_prior = weights
        bet = total / (lived + 1)
        lucky = running & (bet > 0)
        return normalised(log_prior + log_wealth + xp.log(xp.where(lucky, bet, 1.0)), lucky)

    def prior(self, weights: Weights, running: Array) -> Array:
        return normalised(weights[-1], running)

    def _log_prior(self, like: Array, t: Array | int) -> Array:
        xp, cover = namespace(like), cast(Anytime, self.cover)
        start = xp.asarray(t // cover.shortest + 1, dtype=like.dtype)
        # log2 of a power of 2 may be rounded down.
        levels = xp.floor(xp.log2(start) + 1e-6)
        return -2 * xp.log(start) - xp.log(1 + levels)


class CBCE(Rival):
    """Coin betting for changing environment: every expert's weight is the stake of a gambler on its gains.

    On blocks of doubling lengths, with gains `r` clipped to [-1, 1], `n` the age of an expert and `J1` the
    number of the start of its block (counted from 1, in units of the shortest block):

        g = r if w > 0 else max(r, 0),   w = (sum g) / (n + 1) * (1 + sum g w),   p_J ~ pi_J max(w_J, 0)
        pi_J ~ 1 / (J1^2 (1 + floor(log2 J1))),   p = pi where every w is 0 or less

    Decisions depend on the sign of sums near 0, and so on rounding: compiled long runs may differ from runs by hand in
    a percent of their loss.

    Regret on any interval: `O(sqrt(|I| log T))` for gains in [-1, 1]: a factor `sqrt(log T)` less than SAOL (Jun,
    Orabona, Wright and Willett 2017).

    Args:
        dim: dimension of the decisions.
        domain: where they must lie; all of space by default.
        shortest: rounds in the shortest block.
        options: those of every `Rival`, and of every `Learner`.

    >>> from samuel.online import CBCE, Ball
    >>> learner = CBCE(dim=2, domain=Ball(1.0))
    >>> for _ in range(100):
    ...     learner.update(2 * (learner.predict() - [0.3, 0.4]))
    >>> learner.predict().round(1)
    array([0.3, 0.4])
    """

    def __init__(self, dim: int, domain: Domain | None = None, *, shortest: int = 8, **options: Any) -> None:
        super().__init__(CbceRule, dim, domain, cover=doubling(shortest), **options)
