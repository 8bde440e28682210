"""Linear and logistic regression whose true coefficients drift."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from samuel.online.learner import whole_number
from samuel.online.losses import Data, LogisticLoss, SquaredLoss
from samuel.online.streams.generated import Drift, Generated, along_the_sphere, check_drift, check_number, drifted

LABELS, OUTLIERS = 1, 2
"""Keep the random numbers of labels and outliers apart from those of features."""
OUTLIER_SIZE = 10.0
"""How many times as large the features and the target of an outlier are."""


@dataclass(frozen=True)
class _Drifting(Generated):
    """Gaussian features of norm about 1, and coefficients on a sphere that drift."""

    dim: int  # pyright: ignore[reportIncompatibleVariableOverride]
    period: int = 1000
    noise: float = 0.1
    radius: float = 1.0
    seed: int = 0  # pyright: ignore[reportIncompatibleVariableOverride]
    streams: int | None = None  # pyright: ignore[reportIncompatibleVariableOverride]
    drift: Drift = "abrupt"
    concepts: int = 3

    def __post_init__(self) -> None:
        whole_number("dim", self.dim, least=1)
        check_number("noise", self.noise)
        check_number("radius", self.radius)
        check_drift(self.drift, self.period, self.concepts)
        self.check()

    @property
    def block(self) -> int:
        return self.period

    def truth(self, start: int, stop: int) -> np.ndarray:
        """The true coefficients in rounds `start..stop - 1`, `(rounds, *streams, dim)`."""
        rounds = np.arange(start, stop)
        return drifted(self.drift, self.period, self.concepts, rounds, self._concept, along_the_sphere)

    def _concept(self, number: int) -> np.ndarray:
        return self._point(self.random(number))

    def _point(self, random: np.random.Generator) -> np.ndarray:
        point = random.normal(size=(*self.batch, self.dim))
        return point * (self.radius / np.linalg.norm(point, axis=-1, keepdims=True))

    def _features(self, number: int, start: int, stop: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Features, what the true coefficients make of them, and standard normal noise."""
        random = self.random(number)
        point = self._point(random)  # drawn in any case, so that features are the same under every drift
        truth = point if self.drift == "abrupt" else self.truth(start, stop)
        offset = number * self.period
        # Drawn from the period's own generator from its start on, so that any cut gives the same numbers.
        features = random.normal(size=(stop - offset, *self.batch, self.dim + 1))[start - offset :]
        noise, features = features[..., -1], features[..., :-1] / np.sqrt(self.dim)
        return features, np.sum(features * truth, axis=-1), noise


@dataclass(frozen=True)
class DriftingRegression(_Drifting):
    """Linear regression whose true coefficients change with time.

    Features are Gaussian with norm about 1, coefficients lie on the sphere of the given radius, targets carry
    Gaussian noise. `Ball(radius)` holds the true coefficients.

    Args:
        dim: number of coefficients.
        period: rounds between two changes.
        noise: standard deviation of the noise on the targets.
        radius: norm of the true coefficients.
        seed: the same seed gives the same stream, however it is cut.
        streams: how many independent streams run side by side; None for one.
        drift: "abrupt": all at once every `period` rounds; "gradual": at constant speed along the sphere, from one
            draw to the next in `period` rounds; "recurring": abrupt, and the same few vectors come back in turn.
        concepts: how many vectors recur.
        outliers: share of rounds in another unit: features and target are 10 times as large, loss and gradient 100
            times.

    >>> stream = DriftingRegression(dim=3, period=100)
    >>> features, target = stream.data(990, 1010)
    >>> features.shape, target.shape
    ((20, 3), (20,))
    >>> returning = DriftingRegression(dim=3, period=100, drift="recurring", concepts=2)
    >>> bool((returning.truth(0, 1) == returning.truth(200, 201)).all())
    True
    """

    outliers: float = 0.0
    loss = SquaredLoss()

    def __post_init__(self) -> None:
        check_number("outliers", self.outliers, most=1.0)
        super().__post_init__()

    def piece(self, number: int, start: int, stop: int) -> Data:
        features, signal, noise = self._features(number, start, stop)
        target = signal + self.noise * noise
        if not self.outliers:
            return features, target
        offset = number * self.period
        chances = self.random(number, OUTLIERS).random(size=(stop - offset, *self.batch))[start - offset :]
        size = np.where(chances < self.outliers, OUTLIER_SIZE, 1.0)
        return size[..., None] * features, size * target


@dataclass(frozen=True)
class DriftingClassification(_Drifting):
    """Logistic regression whose true coefficients change with time.

    Features are Gaussian with norm about 1. A label is 1 with probability `1 / (1 + exp(-<a, u>))`, else -1, where
    `u` are the true coefficients: with `noise=0` they are the best that a learner can play, and `Ball(radius)`
    holds them.

    Args:
        dim: number of coefficients.
        period: rounds between two changes.
        noise: share of labels that are flipped after that, at most 1/2.
        radius: norm of the true coefficients; the larger, the clearer the labels.
        seed: the same seed gives the same stream, however it is cut.
        streams: how many independent streams run side by side; None for one.
        drift: "abrupt", "gradual" or "recurring"; see `DriftingRegression`.
        concepts: how many vectors recur.

    >>> features, labels = DriftingClassification(dim=3, period=100).data(0, 5)
    >>> features.shape, sorted(set(labels.tolist()))
    ((5, 3), [-1.0, 1.0])
    """

    noise: float = 0.0
    radius: float = 10.0
    loss = LogisticLoss()

    def __post_init__(self) -> None:
        check_number("noise", self.noise, most=0.5)
        super().__post_init__()

    def piece(self, number: int, start: int, stop: int) -> Data:
        features, signal, _ = self._features(number, start, stop)
        offset = number * self.period
        chances = self.random(number, LABELS).random(size=(stop - offset, *self.batch, 2))[start - offset :]
        label = np.where(chances[..., 0] < 0.5 * (1 + np.tanh(signal / 2)), 1.0, -1.0)
        return features, np.where(chances[..., 1] < self.noise, -label, label)
