"""Long calm phases and short storms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from samuel.online.learner import whole_number
from samuel.online.losses import Data, LinearLoss
from samuel.online.streams.generated import Generated, check_number

DIRECTIONS, SIGNS, WHICH = 1, 2, 3


@dataclass(frozen=True)
class Storms(Generated):
    """Long calm phases of small gradients, broken by short storms of large ones: the paper's Table 1 as a stream.

    Calm and storm take turns. In a phase, calm or storm, every coordinate of the gradients is up or down with a
    preference of its own that lasts for the phase; in the next one it is drawn anew. So there is something to
    learn in every phase, and what was learned in the last is worth nothing. Gradients have norm 1 in storms and
    norm `scale` in the calm.

    What the bounds of the table say of an interval `I` here, with decisions of width 1:

    - `sqrt(T)`: no more about a calm phase than about the whole run.
    - `sqrt(|I|)`: for a calm phase of `n` rounds `sqrt(n)`, although no decision could lose more than about
      `scale * n` in it. Up to `n = scale^-2` rounds that is no bound at all, and a learner that is no better than
      it (with steps or weights made for gradients of norm 1) has not moved yet.
    - `sqrt(sum |g|^2)`: `scale * sqrt(n)` in the calm and `sqrt(storm)` for a storm, so that for lengths between a
      storm and the next one the worst regret hardly grows with the length, while `sqrt(|I|)` does. The two are
      apart by `1/scale` in the calm; it shows if `scale` is above `1/sqrt(calm)`, as with the defaults.
    - a sum over coordinates, `sum_i |g_i|_2` (diagonal Adagrad as base): the same as the last when all coordinates
      are alike. With `sparse=True` a round has one coordinate, the `i`-th with a chance that falls as `i^-2`. Then
      `sum |g|^2` is what it was, and on a box of width 1 (diameter `sqrt(dim)`) the last bound is
      `sqrt(dim) sqrt(sum |g|^2)`, but `sum_i |g_i|_2` is about `log(dim) sqrt(sum |g|^2)`: rare coordinates are
      learned at steps of their own.

    Play on `Ball(1.0)`, and with `sparse=True` on `Box(-1.0, 1.0)`. The defaults are no powers of 2, so that
    phases do not begin where blocks of a geometric cover do.

    Args:
        dim: number of coordinates.
        calm: rounds of a calm phase; each turn begins with it.
        storm: rounds of a storm.
        scale: norm of gradients in the calm, above 0 and at most 1 (no storms then).
        preference: how clear the direction is: the mean of a sign, above 0 and at most 1.
        sparse: one coordinate at a time.
        seed: the same seed gives the same stream, however it is cut.
        streams: how many independent streams run side by side; None for one.

    >>> stream = Storms(dim=4, calm=1000, storm=50)
    >>> (gradients,) = stream.data(998, 1002)
    >>> np.linalg.norm(gradients, axis=-1).round(6)
    array([0.05, 0.05, 1.  , 1.  ])
    """

    dim: int = 10  # pyright: ignore[reportIncompatibleVariableOverride]
    calm: int = 1000
    storm: int = 50
    scale: float = 0.05
    preference: float = 0.5
    sparse: bool = False
    seed: int = 0  # pyright: ignore[reportIncompatibleVariableOverride]
    streams: int | None = None  # pyright: ignore[reportIncompatibleVariableOverride]
    loss = LinearLoss()

    def __post_init__(self) -> None:
        for name in ("dim", "calm", "storm"):
            whole_number(name, getattr(self, name), least=1)
        for name in ("scale", "preference"):
            check_number(name, getattr(self, name), most=1.0, above=True)
        self.check()

    def stormy(self, start: int, stop: int) -> np.ndarray:
        """Which of the rounds `start..stop - 1` lie in a storm."""
        return np.arange(start, stop) % (self.calm + self.storm) >= self.calm

    def _directions(self, start: int, stop: int) -> np.ndarray:
        """The preferred sign of each coordinate, `(rounds, *streams, dim)`."""
        turn = self.calm + self.storm
        phase = 2 * (np.arange(start, stop) // turn) + self.stormy(start, stop)
        numbers, place = np.unique(phase, return_inverse=True)
        signs = [self.random(DIRECTIONS, int(number)).random(size=(*self.batch, self.dim)) < 0.5 for number in numbers]
        return np.where(np.reshape(signs, (-1, *self.batch, self.dim)), 1.0, -1.0)[place]

    def piece(self, number: int, start: int, stop: int) -> Data:
        chance = self.drawn(number, start, stop, (self.dim,), SIGNS)
        gradients = np.where(chance < 0.5 * (1 + self.preference), 1.0, -1.0) * self._directions(start, stop)
        if self.sparse:
            chances = np.arange(1.0, self.dim + 1) ** -2.0
            bounds = np.cumsum(chances / chances.sum())[:-1]
            which = np.searchsorted(bounds, self.drawn(number, start, stop, (), WHICH), side="right")
            gradients = np.where(np.arange(self.dim) == which[..., None], gradients, 0.0)
        else:
            gradients /= np.sqrt(self.dim)
        norm = np.where(self.stormy(start, stop), 1.0, self.scale)
        return (norm.reshape(-1, *(1,) * (gradients.ndim - 1)) * gradients,)
