"""FLH: a new expert in every round, all kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from samuel.core import AllIntervals, Cover
from samuel.core.arrays import Array, namespace
from samuel.core.options import whole_number
from samuel.online.domains import Domain
from samuel.online.ensemble import positive
from samuel.online.rivals.rival import HORIZON, Rival, RivalRule, Weights, log_sum, normalised, power


@dataclass(frozen=True, kw_only=True)
class FlhRule(RivalRule):
    """FLH as pure functions; `FLH` explains them. State of an expert: the logarithm of its share."""

    every: int
    """Rounds between two new experts."""
    rate: float = 0.0
    """`a`; 0 for one that falls as `t^(-1/2)`."""

    @property
    def rhythm(self) -> int:
        # With many experts, it pays to compile rounds without a new expert separately.
        return self.every if isinstance(self.cover, AllIntervals) else 1

    def born(self, like: Array, t: Array | int) -> Weights:
        return (namespace(like).zeros_like(like),)  # the share of a new expert is set by `settled`

    def judge(self, weights: Weights, gains: Array, running: Array, t: Array | int) -> Weights:
        rate = self.rate or power(t, -0.5, gains)
        return (weights[0] + rate * gains,)

    def settled(self, weights: Weights, running: Array, starts: Array, t: Array | int) -> Weights:
        """Normalise the shares of the old experts, then add that of the new one."""
        (log_share,) = weights
        xp = namespace(log_share)
        newcomers = starts.any()
        part = self.every * power(t + self.every, -1.0, log_share)  # 1 / number of experts so far
        left = xp.log(xp.where(part < 1, 1 - part, 1.0))
        old = log_share - log_sum(log_share, running & ~starts) + left
        new = xp.log(part / len(self.experts)) + xp.zeros_like(log_share)
        return (xp.where(newcomers, xp.where(starts, new, old), log_share),)

    def weigh(self, weights: Weights, running: Array, t: Array | int) -> Array:
        return normalised(weights[0], running)


class HistoryFollower(Rival):
    """Base class of `FLH` and `AFLH`, which differ in the cover."""

    def __init__(
        self,
        dim: int,
        domain: Domain | None,
        cover: Cover,
        every: int,
        horizon: int | None,
        exp_concavity: float | None,
        options: dict[str, Any],
    ) -> None:
        assumptions: tuple[str, ...] = ()
        settings: dict[str, Any] = {"every": every}
        if horizon is not None:
            settings["rate"] = whole_number("horizon", horizon, least=1) ** -0.5
        if exp_concavity is not None:
            if options.get("feedback", "linear") == "linear":
                raise ValueError(
                    f"exp_concavity={exp_concavity!r} is a property of losses, which linear feedback does not reveal: "
                    'choose feedback="loss" or feedback="full"'
                )
            if horizon is not None:
                raise ValueError(f"give exp_concavity={exp_concavity!r} or horizon={horizon}, not both")
            if options.get("gradient_bound") is not None:
                raise ValueError(
                    f"gradient_bound={options['gradient_bound']!r} has no use with exp_concavity={exp_concavity!r}: "
                    "gains are then not scaled"
                )
            settings |= {"rate": positive("exp_concavity", exp_concavity), "unscaled": True}
        elif horizon is None:
            assumptions = (HORIZON,)
        super().__init__(self.kind, dim, domain, cover=cover, assumptions=assumptions, settings=settings, **options)

    kind = FlhRule


class FLH(HistoryFollower):
    """Follow the leading history: a new expert in every round, all kept.

    With `m` experts so far, including the new one:

        p_i ~ p_i exp(a r_i),   then the new expert gets 1/m and the others are scaled by 1 - 1/m

    Regret on any interval, beside that of the base learner: `O(log T)` for exp-concave losses with `a` their
    exp-concavity; `O(sqrt(T) log T)` for convex ones with `a = T^(-1/2)`, vacuous on short intervals (Hazan and
    Seshadhri 2007). A round takes time and memory in proportion to the number of experts so far: `AFLH` prunes them.

    Args:
        dim: dimension of the decisions.
        domain: where they must lie; all of space by default.
        shortest: rounds between two new experts.
        horizon: number of rounds, if known: `a = T^(-1/2)`; otherwise `a` falls as `t^(-1/2)`.
        exp_concavity: `a` for losses such that `exp(-a l)` is concave; needs loss or full feedback. Gains are then
            not scaled.
        options: those of every `Rival`, and of every `Learner`.

    >>> from samuel.online import FLH, Ball
    >>> learner = FLH(dim=2, domain=Ball(1.0))
    >>> for _ in range(1000):
    ...     learner.update(2 * (learner.predict() - [0.3, 0.4]))
    >>> learner.predict().round(1)
    array([0.3, 0.4])
    """

    def __init__(
        self,
        dim: int,
        domain: Domain | None = None,
        *,
        shortest: int = 8,
        horizon: int | None = None,
        exp_concavity: float | None = None,
        **options: Any,
    ) -> None:
        cover = AllIntervals(shortest=whole_number("shortest", shortest, least=1))
        super().__init__(dim, domain, cover, cover.shortest, horizon, exp_concavity, options)
