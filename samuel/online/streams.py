"""Streams: sequences of losses, made lazily and the same each time they are asked for.

A stream knows its loss family, its dimension and how to make the data of any stretch of rounds. It never holds
more than the stretch that is being played, so it can be as long as you like.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from samuel.online.losses import Data, LinearLoss, LossFamily, SquaredLoss


class Stream(ABC):
    """A sequence of losses. A subclass sets the attributes and writes `data`."""

    loss: LossFamily
    """Which losses."""
    dim: int
    """Dimension of the decisions."""
    rounds: int | None = None
    """How many rounds there are; None for any number."""
    streams: int | None = None
    """How many independent streams run side by side; None for a single one without an axis of its own."""

    @abstractmethod
    def data(self, start: int, stop: int) -> Data:
        """The data of rounds `start..stop - 1`: arrays with the rounds as their first axis."""


@dataclass(frozen=True)
class Recorded(Stream):
    """A stream of losses whose data you have.

    Args:
        loss: the loss family.
        arrays: its data, rounds along the first axis; a second axis may hold independent streams.

    >>> import numpy as np
    >>> stream = Recorded(SquaredLoss(), (np.ones((5, 3)), np.zeros(5)))
    >>> stream.rounds, stream.dim
    (5, 3)
    """

    loss: LossFamily
    arrays: Sequence[Any]

    def __post_init__(self) -> None:
        arrays = tuple(_floats(array) for array in self.arrays)
        if not arrays or any(array.ndim == 0 for array in arrays):
            raise ValueError(f"a stream's data are arrays with rounds along their first axis, got {self.arrays!r}")
        lengths = {len(array) for array in arrays}
        if len(lengths) != 1 or 0 in lengths:
            shapes = ", ".join(str(array.shape) for array in arrays)
            raise ValueError(f"every array of a stream needs the same number of rounds, got shapes {shapes}")
        if arrays[0].ndim not in (2, 3):
            raise ValueError(f"the first array must be (rounds, dim) or (rounds, streams, dim), got {arrays[0].shape}")
        for array in arrays:
            if not np.isfinite(array).all():
                place = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
                raise ValueError(f"a stream's data must be finite, got {array[place]} at {place}")
        object.__setattr__(self, "arrays", arrays)
        object.__setattr__(self, "rounds", len(arrays[0]))
        object.__setattr__(self, "dim", arrays[0].shape[-1])
        object.__setattr__(self, "streams", arrays[0].shape[1] if arrays[0].ndim == 3 else None)

    def data(self, start: int, stop: int) -> Data:
        return tuple(array[start:stop] for array in self.arrays)


def _floats(numbers: Any) -> np.ndarray:
    """An array of floats, in the precision it has."""
    array = np.asarray(numbers)
    return array if array.dtype in (np.float32, np.float64) else array.astype(float)


def as_stream(stream: Any) -> Stream:
    """A stream as it is; an array of gradients `(rounds, [streams,] dim)` as linear losses."""
    if isinstance(stream, Stream):
        return stream
    array = _floats(stream)
    if array.ndim not in (2, 3):
        raise ValueError(
            "a stream is a samuel.online.Stream or an array of gradients (rounds, dim) or (rounds, streams, dim); "
            f"got an array of shape {array.shape}"
        )
    return Recorded(LinearLoss(), (array,))


@dataclass(frozen=True)
class TwoValleys(Stream):
    """The paper's example in one dimension: `(x + 1)^2` in the first half of the run, `(x - 1)^2` after it.

    Gradient descent with rates `1/t` has regret of order `log T` against the best fixed point, 0, and still
    loses of order `T`. A learner that is good on both halves loses no more than a power of `log T`.

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


@dataclass(frozen=True)
class DriftingRegression(Stream):
    """Linear regression whose true coefficients change all at once every `period` rounds.

    Features are Gaussian with norm about 1, coefficients lie on the sphere of the given radius, targets carry
    Gaussian noise.

    Args:
        dim: number of coefficients.
        period: rounds between two changes.
        noise: standard deviation of the noise on the targets.
        radius: norm of the true coefficients.
        seed: the same seed gives the same stream, however it is cut into stretches.
        streams: how many independent streams run side by side; None for one.

    >>> stream = DriftingRegression(dim=3, period=100)
    >>> features, target = stream.data(990, 1010)
    >>> features.shape, target.shape
    ((20, 3), (20,))
    """

    dim: int  # pyright: ignore[reportIncompatibleVariableOverride]
    period: int = 1000
    noise: float = 0.1
    radius: float = 1.0
    seed: int = 0
    streams: int | None = None  # pyright: ignore[reportIncompatibleVariableOverride]
    loss = SquaredLoss()

    def __post_init__(self) -> None:
        for name in ("dim", "period"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, got {getattr(self, name)!r}")
        for name in ("noise", "radius"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be at least 0, got {getattr(self, name)!r}")

    def data(self, start: int, stop: int) -> Data:
        pieces = [
            self._piece(number, max(start, number * self.period), min(stop, (number + 1) * self.period))
            for number in range(start // self.period, (stop - 1) // self.period + 1)
        ]
        return tuple(np.concatenate(parts) for parts in zip(*pieces, strict=True))

    def _piece(self, number: int, start: int, stop: int) -> Data:
        """Rounds `start..stop - 1`, all within the stretch `number` between two changes."""
        batch = () if self.streams is None else (self.streams,)
        random = np.random.default_rng((self.seed, number))
        truth = random.normal(size=(*batch, self.dim))
        truth *= self.radius / np.linalg.norm(truth, axis=-1, keepdims=True)
        offset = number * self.period
        # Drawn from the stretch's own generator from its start on, so that any cut gives the same numbers.
        features = random.normal(size=(stop - offset, *batch, self.dim + 1))[start - offset :]
        noise, features = features[..., -1], features[..., :-1] / np.sqrt(self.dim)
        return features, np.sum(features * truth, axis=-1) + self.noise * noise
