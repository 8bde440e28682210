"""Quantiles of a distribution that drifts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from samuel.online.losses import Data, LossFamily, PinballLoss
from samuel.online.streams.generated import Drift, Generated, along_the_line, check_drift, drifted

SHAPE, TARGETS = 1, 2


@dataclass(frozen=True)
class DriftingQuantile(Generated):
    """A quantile of positive numbers to be followed, while centre and spread of their distribution change.

    Targets are `exp(m + s z)` with `z` standard normal: skewed and positive, like residuals, prices or waiting
    times. `m` lies between -1 and 1 and `s` between 0.1 and 0.6. The decision is one number on `HalfLine()`, and
    the losses are pinball losses, so that the best fixed one is the empirical quantile.

    Args:
        level: which quantile, between 0 and 1.
        period: rounds between two changes.
        drift: "abrupt": `m` and `s` are new every `period` rounds; "gradual": they move evenly from one draw to the
            next; "recurring": abrupt, and the same few come back in turn.
        seed: the same seed gives the same stream, however it is cut.
        streams: how many independent streams run side by side; None for one.
        concepts: how many distributions recur.

    >>> stream = DriftingQuantile(level=0.9, period=1000)
    >>> _, target = stream.data(0, 1000)
    >>> centre, spread = stream.distribution(0, 1)[0]
    >>> round(float((target < np.exp(centre + 1.2816 * spread)).mean()), 2)  # 1.2816: the normal's 90 % quantile
    0.89
    """

    level: float = 0.9
    period: int = 1000
    drift: Drift = "abrupt"
    seed: int = 0  # pyright: ignore[reportIncompatibleVariableOverride]
    streams: int | None = None  # pyright: ignore[reportIncompatibleVariableOverride]
    concepts: int = 3
    dim = 1

    def __post_init__(self) -> None:
        PinballLoss(self.level)  # refuses a level that is none
        check_drift(self.drift, self.period, self.concepts)
        self.check()

    @property
    def loss(self) -> LossFamily:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The pinball loss of the level."""
        return PinballLoss(self.level)

    def distribution(self, start: int, stop: int) -> np.ndarray:
        """`m` and `s` of rounds `start..stop - 1`, `(rounds, *streams, 2)`."""
        rounds = np.arange(start, stop)
        return drifted(self.drift, self.period, self.concepts, rounds, self._concept, along_the_line)

    def _concept(self, number: int) -> np.ndarray:
        return self.random(SHAPE, number).uniform((-1.0, 0.1), (1.0, 0.6), size=(*self.batch, 2))

    def piece(self, number: int, start: int, stop: int) -> Data:
        shape = self.distribution(start, stop)
        normal = self.drawn(number, start, stop, (), TARGETS, "standard_normal")
        return np.ones((*normal.shape, 1)), np.exp(shape[..., 0] + shape[..., 1] * normal)
