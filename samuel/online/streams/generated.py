"""Base class of random streams: blocks with their own generators, and kinds of drift."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from samuel.core.options import one_of
from samuel.online.learner import whole_number
from samuel.online.losses import Data
from samuel.online.streams.base import Stream

Drift = Literal["abrupt", "gradual", "recurring"]
DRIFTS = ("abrupt", "gradual", "recurring")
BLOCK = 1024
"""Default rounds per generator."""


class Generated(Stream):
    """An endless stream of random numbers.

    Time is cut into blocks of equal length, and every block has a random generator of its own. So any range of rounds
    can be made independently, and does not depend on how the stream is cut.
    """

    seed: int

    @property
    def batch(self) -> tuple[int, ...]:
        """The axis of the streams, if there is one."""
        return () if self.streams is None else (self.streams,)

    @property
    def block(self) -> int:
        """Rounds in a block."""
        return BLOCK

    def random(self, *place: int) -> np.random.Generator:
        """The generator of a key; trailing zeros of the key make no difference."""
        return np.random.default_rng((self.seed, *place))

    @abstractmethod
    def piece(self, number: int, start: int, stop: int) -> Data:
        """Rounds `start..stop - 1`, all within block `number`."""

    def data(self, start: int, stop: int) -> Data:
        if not 0 <= start <= stop:
            raise ValueError(f"rounds need 0 <= start <= stop, got start={start} and stop={stop}")
        block = self.block
        last = max(stop - 1, start) // block
        pieces = [
            self.piece(number, max(start, number * block), min(stop, (number + 1) * block))
            for number in range(start // block, last + 1)
        ]
        return tuple(np.concatenate(parts) for parts in zip(*pieces, strict=True))

    def drawn(
        self, number: int, start: int, stop: int, shape: tuple[int, ...], purpose: int, draw: str = "random"
    ) -> np.ndarray:
        """Random numbers of the given shape for each of these rounds of a block, drawn from the block's start on."""
        offset = number * self.block
        rows = getattr(self.random(purpose, number), draw)(size=(stop - offset, *self.batch, *shape))
        return rows[start - offset :]

    def check(self) -> None:
        """Check the seed and the number of streams."""
        whole_number("seed", self.seed, least=0)
        if self.streams is not None:
            whole_number("streams", self.streams, least=1)


def check_drift(drift: Any, period: Any, concepts: Any) -> None:
    """Check the kind of drift."""
    one_of("drift", drift, DRIFTS)
    whole_number("period", period, least=1)
    whole_number("concepts", concepts, least=2)


def check_number(name: str, value: Any, least: float = 0.0, most: float = math.inf, above: bool = False) -> None:
    """Refuse what is not a finite number from `least` to `most`; or, with `above`, not above `least`."""
    fits = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not fits or not math.isfinite(value) or not (least < value if above else least <= value) or value > most:
        lower = f"above {least:g}" if above else f"of at least {least:g}"
        upper = "" if most == math.inf else f" and at most {most:g}"
        raise ValueError(f"{name} must be a number {lower}{upper}, got {value!r}")


def drifted(
    drift: Drift,
    period: int,
    concepts: int,
    rounds: np.ndarray,
    concept: Callable[[int], np.ndarray],
    between: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray],
) -> np.ndarray:
    """The concept of each round, with a new concept every `period` rounds.

    Args:
        drift: "abrupt": concept `n` holds in period `n`; "gradual": on the way from concept `n` to the next;
            "recurring": concepts 0, 1, ... `concepts - 1` in turn.
        period: rounds in a period.
        concepts: how many concepts recur.
        rounds: increasing numbers of rounds.
        concept: the numbers of a concept, an array.
        between: a point on the way between two concepts, for shares of the way `(n, 1, ..., 1)`.

    Returns:
        The concept of each round, rounds along the first axis.
    """
    number = rounds // period
    numbers = range(int(number[0]), int(number[-1]) + 1) if len(number) else range(0, 1)
    place = number - numbers[0]
    if drift == "recurring":
        known = {n: concept(n) for n in {n % concepts for n in numbers}}
        return np.stack([known[n % concepts] for n in numbers])[place]
    points = np.stack([concept(n) for n in numbers])
    if drift == "abrupt":
        return points[place]
    points = np.concatenate([points, concept(numbers[-1] + 1)[None]])
    share = (rounds - number * period) / period
    return between(points[place], points[place + 1], share.reshape(-1, *(1,) * (points.ndim - 1)))


def along_the_sphere(origin: np.ndarray, goal: np.ndarray, share: np.ndarray) -> np.ndarray:
    """A point on the way between two points of a sphere around 0, on the shorter great circle, at constant speed."""
    radius = np.linalg.norm(origin, axis=-1, keepdims=True)
    radius = np.where(radius > 0, radius, 1.0)
    cosine = np.clip(np.sum(origin * goal, axis=-1, keepdims=True) / radius**2, -1.0, 1.0)
    angle = np.arccos(cosine)
    sine = np.sin(angle)
    # In one dimension, and for points that coincide, there is no great circle: interpolate linearly.
    straight = sine < 1e-6
    sine = np.where(straight, 1.0, sine)
    ahead = np.where(straight, share, np.sin(share * angle) / sine)
    behind = np.where(straight, 1 - share, np.sin((1 - share) * angle) / sine)
    return behind * origin + ahead * goal


def along_the_line(origin: np.ndarray, goal: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Linear interpolation between two points."""
    return (1 - share) * origin + share * goal
