"""A stream that is hard for every learner."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from samuel.online.learner import whole_number
from samuel.online.losses import Data, LinearLoss
from samuel.online.streams.generated import Generated

SCALE, BIAS, SIGNS = 1, 2, 3


@dataclass(frozen=True)
class Adversary(Generated):
    """Random signs with a bias that changes before it can be estimated, on blocks of every length.

    Gradients have entries `+-1/sqrt(dim)`, so norm 1. Time is cut into stretches of `longest` rounds, each of them
    into blocks of `n = 2^k` rounds, with `k` drawn at random for the stretch. In a block every coordinate has its own
    bias of `n^(-1/2)`, up or down, the standard deviation of the mean of `n` signs. So it takes about `n` rounds to
    estimate its sign, and then it is redrawn. On `Ball(1.0)` every learner has expected regret of order `sqrt(n)` on a
    block.

    This is the oblivious adversary of lower-bound proofs. An adaptive one could punish a given learner more, but not
    violate bounds of order `sqrt(n)` on every interval: good learners differ by constants here, and a growth exponent
    of the worst regret clearly above 1/2 is due to the learner.

    Args:
        dim: number of coordinates.
        longest: rounds of the longest blocks, a power of 2.
        seed: the same seed gives the same stream, however it is cut.
        streams: how many independent streams run side by side; None for one.

    >>> (gradients,) = Adversary(dim=4).data(0, 3)
    >>> np.abs(gradients).max(), np.linalg.norm(gradients, axis=-1)
    (np.float64(0.5), array([1., 1., 1.]))
    """

    dim: int = 10  # pyright: ignore[reportIncompatibleVariableOverride]
    longest: int = 4096
    seed: int = 0  # pyright: ignore[reportIncompatibleVariableOverride]
    streams: int | None = None  # pyright: ignore[reportIncompatibleVariableOverride]
    loss = LinearLoss()

    def __post_init__(self) -> None:
        whole_number("dim", self.dim, least=1)
        longest = whole_number("longest", self.longest, least=1)
        if longest & (longest - 1):
            raise ValueError(f"longest must be a power of 2, as block lengths are, got {self.longest}")
        self.check()

    @property
    def block(self) -> int:
        return self.longest

    def blocks(self, start: int, stop: int) -> np.ndarray:
        """The length of the block in which each of the rounds `start..stop - 1` lies, `(rounds, *streams)`."""
        first = start // self.longest
        last = max(stop - 1, start) // self.longest
        lengths = np.stack([self._length(number) for number in range(first, last + 1)])
        return lengths[np.arange(start, stop) // self.longest - first]

    def _length(self, number: int) -> np.ndarray:
        return 2 ** self.random(SCALE, number).integers(self.longest.bit_length(), size=self.batch)

    def piece(self, number: int, start: int, stop: int) -> Data:
        length = np.asarray(self._length(number))
        within = np.arange(start, stop) - number * self.longest
        # Block j of a stretch has its bias from row j, of which as many are drawn as are needed to get there.
        which = within.reshape(-1, *(1,) * length.ndim) // length
        rows = int(which.max(initial=0)) + 1
        up = self.random(BIAS, number).random(size=(rows, *self.batch, self.dim)) < 0.5
        up = np.take_along_axis(up, which[..., None], axis=0)
        bias = np.where(up, 1.0, -1.0) * length[..., None] ** -0.5
        chance = self.drawn(number, start, stop, (self.dim,), SIGNS)
        return (np.where(chance < 0.5 * (1 + bias), 1.0, -1.0) / np.sqrt(self.dim),)
