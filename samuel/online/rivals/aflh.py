"""AFLH: follow the leading history, pruned to a logarithmic number of experts."""

from __future__ import annotations

from typing import Any

from samuel.core import Pruned
from samuel.core.options import whole_number
from samuel.online.domains import Domain
from samuel.online.rivals.flh import HistoryFollower


class AFLH(HistoryFollower):
    """Follow the leading history, pruned (also known as FLH2): experts are dropped so that about `2 log2 t` remain.

    The weights are those of `FLH`. An expert that was born in round `i = r 2^k`, `r` odd and rounds counted from 1,
    is dropped at an age of `2^(k+2)` rounds, and the shares of the others are normalised, less that of the new expert.

    Regret on any interval: that of `FLH` times a factor `log T` (Hazan and Seshadhri 2007).

    Args:
        dim: dimension of the decisions.
        domain: where they must lie; all of space by default.
        shortest: rounds between two new experts.
        horizon: number of rounds, if known: `a = T^(-1/2)`; otherwise `a` falls as `t^(-1/2)`.
        exp_concavity: `a` for losses such that `exp(-a l)` is concave; needs loss or full feedback. Gains are then
            not scaled.
        options: those of every `Rival`, and of every `Learner`.

    >>> from samuel.online import AFLH, Ball
    >>> learner = AFLH(dim=2, domain=Ball(1.0))
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
        cover = Pruned(whole_number("shortest", shortest, least=1))
        super().__init__(dim, domain, cover, cover.shortest, horizon, exp_concavity, options)
