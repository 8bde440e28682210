"""Streams of linear losses on which the bounds of the paper's Table 1 differ."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from samuel.online.losses import Data, LinearLoss
from samuel.online.streams.generated import Generated

# Purposes of random numbers
PULL, RIPPLE, SIGNS, LOUD, THERE = range(1, 6)


@dataclass(frozen=True)
class Ripples(Generated):
    r"""Linear losses with a constant part and a part of alternating sign, in long calm and short stormy stretches.

        g_t = size_t (pull u + sqrt(1 - pull^2) (-1)^t w)

    with orthogonal unit vectors `u` and `w` drawn anew for every stretch; `size_t` is 1 in storms and `scale` in the
    calm. The alternating part sums to zero, but a learner that follows it is always a round late: newborn experts take
    long steps and lose to it, old ones take short steps and do not. So learners must find the old experts among the
    new ones, although their gains in the calm are small.

    Args:
        dim: number of coordinates, at least 2.
        calm: rounds of a calm stretch, which comes first.
        storm: rounds of a storm.
        scale: size of gradients in the calm.
        pull: length of the constant part, relative to the gradient.
        seed: determines the stream.
        streams: number of independent streams side by side; None for one.

    >>> (gradients,) = Ripples(dim=4, calm=60, storm=20).data(58, 62)
    >>> np.linalg.norm(gradients, axis=-1).round(6)
    array([0.1, 0.1, 1. , 1. ])
    """

    dim: int = 10  # pyright: ignore[reportIncompatibleVariableOverride]
    calm: int = 1500
    storm: int = 500
    scale: float = 0.1
    pull: float = 0.3
    seed: int = 0  # pyright: ignore[reportIncompatibleVariableOverride]
    streams: int | None = None  # pyright: ignore[reportIncompatibleVariableOverride]
    loss = LinearLoss()

    def piece(self, number: int, start: int, stop: int) -> Data:
        rounds = np.arange(start, stop)
        turn = self.calm + self.storm
        stormy = rounds % turn >= self.calm
        numbers, place = np.unique(2 * (rounds // turn) + stormy, return_inverse=True)
        pull = np.stack([self._unit(PULL, int(stretch)) for stretch in numbers])
        ripple = np.stack([self._unit(RIPPLE, int(stretch)) for stretch in numbers])
        ripple -= np.sum(ripple * pull, axis=-1, keepdims=True) * pull
        ripple /= np.linalg.norm(ripple, axis=-1, keepdims=True)
        each = (-1, *(1,) * (pull.ndim - 1))
        to_and_fro = math.sqrt(1 - self.pull**2) * np.where(rounds % 2 == 0, 1.0, -1.0).reshape(each)
        size = np.where(stormy, 1.0, self.scale).reshape(each)
        return (size * (self.pull * pull[place] + to_and_fro * ripple[place]),)

    def _unit(self, purpose: int, stretch: int) -> np.ndarray:
        vector = self.random(purpose, stretch).normal(size=(*self.batch, self.dim))
        return vector / np.linalg.norm(vector, axis=-1, keepdims=True)


@dataclass(frozen=True)
class OneLoud(Generated):
    r"""One large coordinate of random sign, and many small, sparse ones of constant sign.

    The first coordinate of the gradient is 1 or -1 with equal probability. Each of the others is zero, except with
    probability `chance`, when it is `quiet / chance` with a sign that lasts for `period` rounds. The small coordinates
    add up to more than the large one, but steps of the right size for the large one are far too short for them.

    Args:
        dim: number of coordinates.
        period: rounds between two draws of the signs.
        quiet: mean size of a small coordinate.
        chance: probability that a small coordinate is not zero.
        seed: determines the stream.
        streams: number of independent streams side by side; None for one.

    >>> (gradients,) = OneLoud(dim=3).data(0, 1000)
    >>> np.abs(gradients).max(axis=0).round(6)
    array([1. , 0.1, 0.1])
    >>> np.abs(gradients.sum(axis=0)).round() > 5
    array([ True,  True,  True])
    """

    dim: int = 20  # pyright: ignore[reportIncompatibleVariableOverride]
    period: int = 1000
    quiet: float = 0.01
    chance: float = 0.1
    seed: int = 0  # pyright: ignore[reportIncompatibleVariableOverride]
    streams: int | None = None  # pyright: ignore[reportIncompatibleVariableOverride]
    loss = LinearLoss()

    @property
    def longest(self) -> float:
        """The largest norm of a gradient."""
        return math.sqrt(1 + (self.dim - 1) * (self.quiet / self.chance) ** 2)

    def piece(self, number: int, start: int, stop: int) -> Data:
        numbers, place = np.unique(np.arange(start, stop) // self.period, return_inverse=True)
        shape = (*self.batch, self.dim)
        signs = np.stack([self.random(SIGNS, int(stretch)).random(size=shape) < 0.5 for stretch in numbers])
        there = self.drawn(number, start, stop, (self.dim,), THERE) < self.chance
        gradients = np.where(there, np.where(signs[place], 1.0, -1.0) * self.quiet / self.chance, 0.0)
        gradients[..., 0] = np.where(self.drawn(number, start, stop, (), LOUD) < 0.5, 1.0, -1.0)
        return (gradients,)
