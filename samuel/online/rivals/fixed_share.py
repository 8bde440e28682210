"""Fixed share: Hedge that redistributes a share of the weight in every round, to track the best expert."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from samuel.core.arrays import Array, at_least, namespace
from samuel.online.domains import Domain
from samuel.online.rivals.hedge import FixedExperts, FixedExpertsRule
from samuel.online.rivals.rival import Weights, normalised, power


@dataclass(frozen=True, kw_only=True)
class FixedShareRule(FixedExpertsRule):
    """Fixed share as pure functions; `FixedShare` explains them.

    State of an expert: its share, and the mean of its shares before redistribution.
    """

    share: float = -1.0
    """`alpha`; below 0 for one that falls as `1 / (t + 1)`."""
    past: bool = False
    """Whether to redistribute in proportion to past weights, not equally."""

    def born(self, like: Array, t: Array | int) -> Weights:
        equal = namespace(like).zeros_like(like) + 1 / len(self.experts)
        return equal, equal

    def rescaled(self, weights: Weights, factor: Array) -> Weights:
        # Shares are exponentials of sums of gains, so that smaller sums are powers of the shares.
        xp = namespace(weights[0])
        tempered = weights[0] ** factor
        return tempered / xp.sum(tempered, axis=(-2, -1), keepdims=True), weights[1]

    def judge(self, weights: Weights, gains: Array, running: Array, t: Array | int) -> Weights:
        xp = namespace(gains)
        shares, mean = weights
        # Relative to the largest gain, and no share exactly 0: not all can underflow, and each can recover.
        shares = at_least(shares, float(xp.finfo(shares.dtype).tiny))
        posterior = shares * normalised(self.rate_at(t, gains) * gains, running)
        posterior = posterior / xp.sum(posterior, axis=(-2, -1), keepdims=True)
        share = power(t + 1, -1.0, gains) if self.share < 0 else self.share
        back = mean if self.past else 1 / len(self.experts)
        return (1 - share) * posterior + share * back, mean + (posterior - mean) * power(t + 1, -1.0, gains)

    def weigh(self, weights: Weights, running: Array, t: Array | int) -> Array:
        return weights[0]


CHANGES = "the number of changes is known: without it, shares fall as 1 / (t + 1); give share=..."


class FixedShare(FixedExperts):
    """Tracking the best expert: after every round a share of the weight is redistributed to all experts.

    With gains `r` in [-1, 1] over `N` experts, `v` the weights after a round and `p` those of the next:

        v_i ~ p_i exp(a r_i),   p_i = (1 - alpha) v_i + alpha / N

    (Herbster and Warmuth 1998). With `past=True` the share is redistributed in proportion to the mean of all past `v`,
    including the initial one (Bousquet and Warmuth 2002): an expert that was good before returns sooner. Regret against
    experts that change `k` times: `O(sqrt(T (k log(T / k) + (k + 1) log N)))` with `alpha = k / T`, and rate and
    horizon to match.

    Args:
        dim: dimension of the decisions.
        domain: where they must lie; all of space by default.
        share: `alpha`; by default `1 / (t + 1)` after `t` rounds, as in `FLH`.
        past: redistribute in proportion to past weights.
        experts: fixed points, one expert each, `(experts, dim)`; on a simplex its corners by default.
            Elsewhere the experts are base learners, `Adagrad` with six learning rates unless others are named.
        rate: `a`, for gains in [-1, 1].
        horizon: number of rounds, if known.
        options: those of every `Rival` but `shortest` and `newborns`, and of every `Learner`.

    >>> from samuel.online import FixedShare, Simplex
    >>> learner = FixedShare(dim=3, domain=Simplex(), share=0.01)
    >>> for t in range(100):
    ...     learner.update([1.0, 0.0, 0.5] if t < 50 else [0.0, 1.0, 0.5])
    >>> learner.predict().round(2)
    array([0.91, 0.03, 0.06])
    """

    def __init__(
        self,
        dim: int,
        domain: Domain | None = None,
        *,
        share: float | None = None,
        past: bool = False,
        experts: Sequence[Any] | Any = None,
        rate: float | None = None,
        horizon: int | None = None,
        **options: Any,
    ) -> None:
        if share is not None and (not isinstance(share, int | float) or not 0 <= share <= 1):
            raise ValueError(f"share must be from 0 to 1, got {share!r}")
        settings = {"share": -1.0 if share is None else float(share), "past": bool(past)}
        assumptions = (CHANGES,) if share is None else ()
        super().__init__(
            FixedShareRule,
            dim,
            domain,
            experts=experts,
            rate=rate,
            horizon=horizon,
            settings=settings,
            assumptions=assumptions,
            **options,
        )
