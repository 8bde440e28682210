"""Sparse, badly scaled features."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from samuel.core.options import one_of
from samuel.online.learner import whole_number
from samuel.online.losses import Data, LogisticLoss, LossFamily, SquaredLoss
from samuel.online.streams.generated import Generated, check_number

# Purposes of random numbers
SCALES, COEFFICIENTS, WHICH, VALUES, NOISE = range(1, 6)


@dataclass(frozen=True)
class SparseRegression(Generated):
    """Regression on sparse features with different frequencies and scales.

    Think of words in a text. In each round `active` draws are made among the features, feature `i` with a chance
    that falls as `i^-power`; those drawn get a Gaussian value of their own scale, between `10^-decades` and 1, and
    all others are 0. The true coefficients lie between half of `radius` and `radius`, with random signs, whatever
    the scale, and are drawn anew every `period` rounds. Play on `Box(-radius, radius)`, which holds them.

    No single learning rate suits it: one for the frequent, large features is far too small for rare or small ones.
    Regret of gradient descent is of order `D_inf sqrt(d) sqrt(sum_i |g_i|_2^2)`, that of diagonal Adagrad `D_inf sum_i
    |g_i|_2` (`g_i` the i-th coordinates of all gradients, `D_inf` the width of the box), which is smaller by up to
    `sqrt(d)` when a few coordinates have most of the gradient (Corollary 3 of the paper). With `rotated=True` features
    are rotated at random: no coordinate is special, and only a full matrix adapts to the few directions that matter
    (Corollary 1). Then play on `Ball(radius * sqrt(dim))`.

    Args:
        dim: number of features.
        period: rounds between two changes of the coefficients.
        task: "regression" (squared loss) or "classification" (logistic loss, labels -1 and 1).
        active: draws of features in a round; the same may be drawn twice, so at most so many are there.
        power: exponent of the decrease of frequencies; 0 for equal ones.
        decades: range of the scales, in powers of ten.
        noise: standard deviation of the noise on targets; for classification the share of labels flipped.
        radius: bound of every true coefficient.
        rotated: rotate features at random. They are then not sparse, though gradients still have few large directions.
        seed: the same seed gives the same stream, however it is cut.
        streams: how many independent streams run side by side; None for one.

    >>> stream = SparseRegression(dim=50)
    >>> features, target = stream.data(0, 1000)
    >>> bool(((features != 0).sum(axis=-1) <= 3).all())
    True
    >>> often = (features != 0).mean(axis=0)
    >>> bool(often[0] > 10 * often[-1])
    True
    """

    dim: int  # pyright: ignore[reportIncompatibleVariableOverride]
    period: int = 1000
    task: Literal["regression", "classification"] = "regression"
    active: int = 3
    power: float = 1.0
    decades: float = 2.0
    noise: float = 0.01
    radius: float = 1.0
    rotated: bool = False
    seed: int = 0  # pyright: ignore[reportIncompatibleVariableOverride]
    streams: int | None = None  # pyright: ignore[reportIncompatibleVariableOverride]

    def __post_init__(self) -> None:
        for name in ("dim", "period", "active"):
            whole_number(name, getattr(self, name), least=1)
        one_of("task", self.task, ("regression", "classification"))
        for name in ("power", "decades"):
            check_number(name, getattr(self, name), most=10.0)
        check_number("noise", self.noise, most=np.inf if self.task == "regression" else 0.5)
        check_number("radius", self.radius, above=True)
        self.check()

    @property
    def loss(self) -> LossFamily:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Squared or logistic, by the task."""
        return SquaredLoss() if self.task == "regression" else LogisticLoss()

    @cached_property
    def scales(self) -> np.ndarray:
        """The scale of each feature, `(*streams, dim)`: evenly spaced powers of ten in random order."""
        powers = np.tile(np.linspace(-self.decades, 0.0, self.dim), (*self.batch, 1))
        return 10.0 ** self.random(SCALES).permuted(powers, axis=-1)

    @cached_property
    def _rotation(self) -> np.ndarray:
        return np.linalg.qr(self.random(SCALES, 1).normal(size=(*self.batch, self.dim, self.dim)))[0]

    def truth(self, start: int, stop: int) -> np.ndarray:
        """The true coefficients in rounds `start..stop - 1`, `(rounds, *streams, dim)`."""
        coefficients = self._coefficients(start, stop)
        return self._turned(coefficients) if self.rotated else coefficients

    def _coefficients(self, start: int, stop: int) -> np.ndarray:
        number = np.arange(start, stop) // self.period
        first, last = start // self.period, max(stop - 1, start) // self.period
        return np.stack([self._concept(n) for n in range(first, last + 1)])[number - first]

    def _concept(self, number: int) -> np.ndarray:
        uniform = self.random(COEFFICIENTS, number).uniform(-1.0, 1.0, size=(*self.batch, self.dim))
        return self.radius * (0.5 * np.copysign(1.0, uniform) + 0.5 * uniform)

    def _turned(self, points: np.ndarray) -> np.ndarray:
        return np.einsum("...ij,t...j->t...i", self._rotation, points)

    def piece(self, number: int, start: int, stop: int) -> Data:
        chances = np.arange(1.0, self.dim + 1) ** -self.power
        bounds = np.cumsum(chances / chances.sum())
        which = np.searchsorted(bounds[:-1], self.drawn(number, start, stop, (self.active,), WHICH), side="right")
        there = np.zeros((stop - start, *self.batch, self.dim), dtype=bool)
        np.put_along_axis(there, which, True, axis=-1)
        values = self.drawn(number, start, stop, (self.dim,), VALUES, "standard_normal")
        features = np.where(there, values * self.scales, 0.0)
        signal = np.sum(features * self._coefficients(start, stop), axis=-1)
        if self.rotated:
            features = self._turned(features)
        if self.task == "regression":
            return features, signal + self.noise * self.drawn(number, start, stop, (), NOISE, "standard_normal")
        chance = self.drawn(number, start, stop, (2,), NOISE)
        label = np.where(chance[..., 0] < 0.5 * (1 + np.tanh(signal / 2)), 1.0, -1.0)
        return features, np.where(chance[..., 1] < self.noise, -label, label)
