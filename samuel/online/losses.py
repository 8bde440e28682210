"""Losses: families of convex functions of a decision, with one set of numbers ("data") per round.

`value` and `gradient` take decisions of shape `(..., d)` and the data of one round, written over arrays of any
library, so that a run can be compiled. `data` is a tuple of arrays whose leading axes are those of the streams.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from samuel.core.arrays import Array, namespace

Data = tuple[Array, ...]
LARGEST = 1e150
"""The largest gradients: squares of larger ones could not be added up."""


@dataclass(frozen=True)
class LossFamily(ABC):
    """A family of convex losses `l(x; data)`. A subclass defines `value`, `gradient` and `curvature`."""

    @abstractmethod
    def value(self, point: Array, data: Data) -> Array:
        """Loss at each point, shape `(...)`."""

    @abstractmethod
    def gradient(self, point: Array, data: Data) -> Array:
        """A (sub)gradient at each point, shape `(..., d)`."""

    @abstractmethod
    def curvature(self, data: Data) -> float:
        """Upper bound on the curvature of the sum of the losses, infinite for losses with kinks."""

    def check(self, data: Data) -> None:
        """ValueError for data of several rounds that do not fit the family."""
        if not data:
            raise ValueError(f"{type(self).__name__} needs data, got none")

    def total(self, point: np.ndarray, data: Data) -> tuple[float, np.ndarray]:
        """Sum of the losses over rounds (first axis of the data), and its gradient, at one point."""
        return float(np.sum(self.value(point, data))), np.sum(self.gradient(point, data), axis=0)


class _OfFeatures(LossFamily):
    """Losses of `<a, x>` beside a target, data `(a, y)`."""

    def check(self, data: Data) -> None:
        shapes = [np.shape(array) for array in data]
        if len(shapes) != 2 or shapes[1] != shapes[0][:-1]:
            raise ValueError(
                f"{type(self).__name__} takes features (rounds, [streams,] dim) and targets (rounds, "
                f"[streams]), got shapes {', '.join(map(str, shapes))}"
            )


@dataclass(frozen=True)
class LinearLoss(LossFamily):
    """`<g, x>`, data `(g,)`.

    >>> import numpy as np
    >>> float(LinearLoss().value(np.array([1.0, 2.0]), (np.array([3.0, -1.0]),)))
    1.0
    """

    def check(self, data: Data) -> None:
        if len(data) != 1:
            raise ValueError(f"data of linear losses are one array of gradients, got {len(data)} arrays")
        largest = float(np.max(np.abs(data[0])))
        if not largest <= LARGEST:
            raise ValueError(f"gradients must be at most {LARGEST:g} in size, to be squared, got {largest:g}")

    def value(self, point: Array, data: Data) -> Array:
        return namespace(point).sum(point * data[0], axis=-1)

    def gradient(self, point: Array, data: Data) -> Array:
        return data[0] + 0 * point

    def curvature(self, data: Data) -> float:
        return 0.0


@dataclass(frozen=True)
class SquaredLoss(_OfFeatures):
    """`(<a, x> - y)^2`, data `(a, y)`: features and target of linear regression.

    >>> import numpy as np
    >>> float(SquaredLoss().value(np.array([1.0, 2.0]), (np.array([3.0, -1.0]), np.array(3.0))))
    4.0
    """

    def value(self, point: Array, data: Data) -> Array:
        features, target = data
        error = namespace(point).sum(point * features, axis=-1) - target
        return error * error

    def gradient(self, point: Array, data: Data) -> Array:
        features, target = data
        error = namespace(point).sum(point * features, axis=-1) - target
        return (2 * error)[..., None] * features

    def curvature(self, data: Data) -> float:
        features = np.asarray(data[0])
        return 2 * float(np.linalg.norm(features.reshape(-1, features.shape[-1]), 2)) ** 2


@dataclass(frozen=True)
class LogisticLoss(_OfFeatures):
    """`log(1 + exp(-y <a, x>))`, data `(a, y)` with `y` -1 or 1: logistic regression.

    >>> import numpy as np
    >>> float(LogisticLoss().value(np.zeros(2), (np.array([3.0, -1.0]), np.array(1.0)))).__round__(6)
    0.693147
    """

    def check(self, data: Data) -> None:
        super().check(data)
        other = np.setdiff1d(data[1], (-1, 1))
        if other.size:
            raise ValueError(f"labels of a LogisticLoss are -1 and 1, got {other[0]:g}; write 2 * y - 1 for 0 and 1")

    def value(self, point: Array, data: Data) -> Array:
        xp = namespace(point)
        features, label = data
        margin = -label * xp.sum(point * features, axis=-1)
        return xp.maximum(margin, xp.zeros_like(margin)) + xp.log1p(xp.exp(-xp.abs(margin)))

    def gradient(self, point: Array, data: Data) -> Array:
        xp = namespace(point)
        features, label = data
        margin = -label * xp.sum(point * features, axis=-1)
        slope = -label * 0.5 * (1 + xp.tanh(margin / 2))
        return slope[..., None] * features

    def curvature(self, data: Data) -> float:
        features = np.asarray(data[0])
        return 0.25 * float(np.linalg.norm(features.reshape(-1, features.shape[-1]), 2)) ** 2


@dataclass(frozen=True)
class AbsoluteLoss(_OfFeatures):
    """`|<a, x> - y|`, data `(a, y)`: regression to the median.

    >>> import numpy as np
    >>> float(AbsoluteLoss().value(np.array([1.0, 2.0]), (np.array([3.0, -1.0]), np.array(3.0))))
    2.0
    """

    def value(self, point: Array, data: Data) -> Array:
        xp = namespace(point)
        features, target = data
        return xp.abs(xp.sum(point * features, axis=-1) - target)

    def gradient(self, point: Array, data: Data) -> Array:
        xp = namespace(point)
        features, target = data
        return xp.sign(xp.sum(point * features, axis=-1) - target)[..., None] * features

    def curvature(self, data: Data) -> float:
        return math.inf


@dataclass(frozen=True)
class PinballLoss(_OfFeatures):
    """`max(level (y - <a, x>), (level - 1) (y - <a, x>))`, data `(a, y)`: regression to a quantile.

    Forecasts below the target cost `level` per unit, those above `1 - level`.

    Args:
        level: the quantile, between 0 and 1.

    >>> import numpy as np
    >>> loss, data = PinballLoss(0.9), (np.ones(1), np.array(2.0))
    >>> [round(float(loss.value(np.array([x]), data)), 3) for x in (1.0, 3.0)]
    [0.9, 0.1]
    """

    level: float = 0.5

    def __post_init__(self) -> None:
        if not isinstance(self.level, int | float) or not 0 < self.level < 1:
            raise ValueError(f"level must lie between 0 and 1, got {self.level!r}")

    def value(self, point: Array, data: Data) -> Array:
        xp = namespace(point)
        features, target = data
        short = target - xp.sum(point * features, axis=-1)
        return xp.maximum(self.level * short, (self.level - 1) * short)

    def gradient(self, point: Array, data: Data) -> Array:
        xp = namespace(point)
        features, target = data
        short = target - xp.sum(point * features, axis=-1)
        # At the kink any slope between the two is a subgradient; 0 is one.
        slope = (1 - self.level) * (short < 0) - self.level * (short > 0)
        return xp.astype(slope, point.dtype)[..., None] * features

    def curvature(self, data: Data) -> float:
        return math.inf
