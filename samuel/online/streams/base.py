"""Base class of streams, streams of given data, and streams side by side."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from samuel.core.options import real_array
from samuel.online.losses import Data, LinearLoss, LossFamily


class Stream(ABC):
    """A sequence of losses. A subclass sets the attributes and defines `data`."""

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
    """A stream of given data.

    Args:
        loss: the loss family.
        arrays: its data, rounds along the first axis; a second axis may hold independent streams.

    >>> import numpy as np
    >>> from samuel.online import SquaredLoss
    >>> stream = Recorded(SquaredLoss(), (np.ones((5, 3)), np.zeros(5)))
    >>> stream.rounds, stream.dim
    (5, 3)
    """

    loss: LossFamily
    arrays: Sequence[Any]

    def __post_init__(self) -> None:
        if not isinstance(self.loss, LossFamily):
            raise ValueError(f"loss must be a family of losses such as SquaredLoss(), got {self.loss!r}")
        arrays = tuple(real_array("a stream's data", array) for array in self.arrays)
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
        self.loss.check(arrays)
        object.__setattr__(self, "arrays", arrays)
        object.__setattr__(self, "rounds", len(arrays[0]))
        object.__setattr__(self, "dim", arrays[0].shape[-1])
        object.__setattr__(self, "streams", arrays[0].shape[1] if arrays[0].ndim == 3 else None)

    def data(self, start: int, stop: int) -> Data:
        return tuple(array[start:stop] for array in self.arrays)


def as_stream(stream: Any) -> Stream:
    """A stream unchanged; an array of gradients `(rounds, [streams,] dim)` as a stream of linear losses."""
    if isinstance(stream, Stream):
        return stream
    if np.ndim(stream) not in (2, 3):
        raise ValueError(
            "a stream is a samuel.online.Stream or an array of gradients (rounds, dim) or (rounds, streams, dim); "
            f"got an array of shape {np.shape(stream)}"
        )
    return Recorded(LinearLoss(), (stream,))


@dataclass(frozen=True)
class SideBySide(Stream):
    """Independent streams of one kind side by side, such as one stream with five seeds.

    As long as the shortest of them.

    Args:
        parts: the streams; of one loss family and one dimension, and without an axis of streams of their own.

    >>> from samuel.online import DriftingRegression
    >>> stream = SideBySide([DriftingRegression(dim=3, seed=seed) for seed in range(5)])
    >>> features, target = stream.data(0, 10)
    >>> stream.streams, features.shape, target.shape
    (5, (10, 5, 3), (10, 5))
    """

    parts: Sequence[Stream]

    def __post_init__(self) -> None:
        parts = tuple(self.parts) if isinstance(self.parts, Iterable) else ()
        if not parts or not all(isinstance(part, Stream) for part in parts):
            raise ValueError(f"streams side by side are a list of at least one Stream, got {self.parts!r}")
        first = parts[0]
        for number, part in enumerate(parts):
            if part.streams is not None:
                raise ValueError(
                    f"stream {number} holds {part.streams} streams side by side already; give single ones, streams=None"
                )
            for name in ("loss", "dim"):
                if getattr(part, name) != getattr(first, name):
                    raise ValueError(
                        f"streams side by side need one {name}, but stream 0 has {name}={getattr(first, name)!r} "
                        f"and stream {number} has {name}={getattr(part, name)!r}"
                    )
        lengths = [part.rounds for part in parts if part.rounds is not None]
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "loss", first.loss)
        object.__setattr__(self, "dim", first.dim)
        object.__setattr__(self, "rounds", min(lengths, default=None))
        object.__setattr__(self, "streams", len(parts))

    def data(self, start: int, stop: int) -> Data:
        made = [part.data(start, stop) for part in self.parts]
        return tuple(np.stack(arrays, axis=1) for arrays in zip(*made, strict=True))
