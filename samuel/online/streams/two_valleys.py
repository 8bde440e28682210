"""The paper's example in one dimension."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from samuel.online.losses import Data, SquaredLoss
from samuel.online.streams.base import Stream


@dataclass(frozen=True)
class TwoValleys(Stream):
    """The paper's example in one dimension: `(x + 1)^2` in the first half of the run, `(x - 1)^2` after it.

    Gradient descent with rates `1/t` has regret of order `log T` against the best fixed point, 0, but a loss of order
    `T`. A learner that is good on both halves loses at most a power of `log T`.

    >>> from samuel.online import TwoValleys
    >>> stream = TwoValleys(rounds=8)
    >>> stream.data(0, 8)[1]
    array([-1., -1., -1., -1.,  1.,  1.,  1.,  1.])
    """

    rounds: int  # pyright: ignore[reportIncompatibleVariableOverride]
    loss = SquaredLoss()
    dim = 1

    def __post_init__(self) -> None:
        if not isinstance(self.rounds, int) or self.rounds < 2:
            raise ValueError(f"the example needs at least 2 rounds, got rounds={self.rounds}")

    def data(self, start: int, stop: int) -> Data:
        target = np.where(np.arange(start, stop) < self.rounds // 2, -1.0, 1.0)
        return np.ones((stop - start, 1)), target
