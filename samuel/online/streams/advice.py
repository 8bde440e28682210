"""Expert advice with a changing best expert."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from samuel.online.learner import whole_number
from samuel.online.losses import Data, LinearLoss
from samuel.online.streams.generated import Generated, check_number

ORDER, LOSSES = 1, 2


@dataclass(frozen=True)
class ExpertAdvice(Generated):
    """Expert advice: every expert loses 0 or 1 in each round, and the best of them changes every `period` rounds.

    All experts lose 1 with probability 1/2, save the best one of the period, for which it is `1/2 - gap`. A
    decision is a point of `Simplex()`: the shares with which experts are followed. Every expert is the best for one
    period before any of them is again, and never for two periods in a row.

    Args:
        dim: number of experts, at least 2.
        period: rounds for which one expert is the best.
        gap: by how much it is better, above 0 and at most 1/2.
        seed: the same seed gives the same stream, however it is cut.
        streams: how many independent streams run side by side; None for one.

    >>> stream = ExpertAdvice(dim=4, period=1000, gap=0.4)
    >>> (losses,) = stream.data(0, 1000)
    >>> bool(losses.sum(axis=0).argmin() == stream.best(0, 1)[0])
    True
    """

    dim: int = 10  # pyright: ignore[reportIncompatibleVariableOverride]
    period: int = 1000
    gap: float = 0.2
    seed: int = 0  # pyright: ignore[reportIncompatibleVariableOverride]
    streams: int | None = None  # pyright: ignore[reportIncompatibleVariableOverride]
    loss = LinearLoss()

    def __post_init__(self) -> None:
        whole_number("dim", self.dim, least=2)
        whole_number("period", self.period, least=1)
        check_number("gap", self.gap, most=0.5, above=True)
        self.check()

    def best(self, start: int, stop: int) -> np.ndarray:
        """The number of the best expert in rounds `start..stop - 1`, `(rounds, *streams)`."""
        turns = np.arange(start, stop) // self.period
        laps = turns // self.dim
        first, last = start // self.period // self.dim, max(stop - 1, start) // self.period // self.dim
        orders = np.stack([self._order(lap) for lap in range(first, last + 1)])
        return orders[laps - first, ..., turns % self.dim]

    def _order(self, lap: int) -> np.ndarray:
        """In which order the experts are the best, `(*streams, dim)`, in a lap of `dim` periods."""
        if self.dim == 2:  # they can only take turns
            return self._drawn_order(0)
        order = self._drawn_order(lap)
        if lap:
            again = order[..., :1] == self._drawn_order(lap - 1)[..., -1:]
            order = np.where(again, order[..., [1, 0, *range(2, self.dim)]], order)
        return order

    def _drawn_order(self, lap: int) -> np.ndarray:
        return self.random(ORDER, lap).permuted(np.tile(np.arange(self.dim), (*self.batch, 1)), axis=-1)

    def piece(self, number: int, start: int, stop: int) -> Data:
        best = np.arange(self.dim) == self.best(start, stop)[..., None]
        chance = self.drawn(number, start, stop, (self.dim,), LOSSES)
        return ((chance < np.where(best, 0.5 - self.gap, 0.5)).astype(float),)
