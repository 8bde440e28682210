"""The streams of the Table 1 experiment: families on which the bounds of its rows differ."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from samuel.online import Ball, Box, Domain
from samuel.online.losses import Data, LinearLoss
from samuel.online.streams import SideBySide, Storms, Stream
from samuel.online.streams.generated import Generated

# Purposes of random numbers
PULL, RIPPLE, SIGNS, LOUD, THERE = range(1, 6)


@dataclass(frozen=True)
class Ripples(Generated):
    r"""A steady pull under a ripple that turns round after every round; long, calm and short, stormy by turns.

        g_t = size_t (pull u + sqrt(1 - pull^2) (-1)^t w)

    with orthogonal unit vectors `u` and `w` that are drawn anew for every stretch; `size_t` is 1 in storms and `scale`
    in the calm. The ripple adds up to nothing, but whoever answers it is always a round late: an expert that has just
    been born takes long steps and loses to it, one that has lived for long takes short ones and does not. So old
    experts must be found among the new, although in the calm their gains are small.

    Args:
        dim: number of coordinates, at least 2.
        calm: rounds of a calm stretch; each turn begins with it.
        storm: rounds of a storm.
        scale: size of gradients in the calm.
        pull: the part of the gradient that stays.
        seed: the same seed gives the same stream, however it is cut.
        streams: how many independent streams run side by side; None for one.

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
    r"""One loud coordinate with nothing to learn, and many quiet ones, seldom there, that always pull the same way.

    The first coordinate of the gradient is 1 or -1, with even chances. Each of the others is there with a chance of
    `chance`, and is `quiet / chance` then, with a sign that lasts for `period` rounds. What the quiet ones add up to is
    a good deal more than the loud one does, yet steps that are right for the loud one are far too short for them.

    Args:
        dim: number of coordinates.
        period: rounds between two draws of the signs.
        quiet: mean size of a quiet coordinate.
        chance: how often a quiet one is there.
        seed: the same seed gives the same stream, however it is cut.
        streams: how many independent streams run side by side; None for one.

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
        """The norm of the gradient where all coordinates are there."""
        return math.sqrt(1 + (self.dim - 1) * (self.quiet / self.chance) ** 2)

    def piece(self, number: int, start: int, stop: int) -> Data:
        numbers, place = np.unique(np.arange(start, stop) // self.period, return_inverse=True)
        shape = (*self.batch, self.dim)
        signs = np.stack([self.random(SIGNS, int(stretch)).random(size=shape) < 0.5 for stretch in numbers])
        there = self.drawn(number, start, stop, (self.dim,), THERE) < self.chance
        gradients = np.where(there, np.where(signs[place], 1.0, -1.0) * self.quiet / self.chance, 0.0)
        gradients[..., 0] = np.where(self.drawn(number, start, stop, (), LOUD) < 0.5, 1.0, -1.0)
        return (gradients,)


@dataclass(frozen=True)
class Stretch:
    """Rounds `first..stop - 1` between two changes of the stream, and of what kind they are."""

    kind: str
    first: int
    stop: int


@dataclass(frozen=True)
class Family:
    """Streams on which two rows of the table should come out apart.

    Attributes:
        name: what it is called on the command line.
        label: what it is called on the page.
        about: what its streams are.
        apart: which bounds it sets apart, and why.
        domain: where decisions lie.
        kinds: the kinds of stretches, the one to look at first.
        cut: how a turn of a run of so many rounds is cut: kinds and rounds of its stretches.
        stream: makes the stream of one seed, given the rounds of a run.
        gradient_bound: `G`, given the rounds of a run.
        loose: the bounds of those who should lose here.
        tight: the bounds of those who should win.
    """

    name: str
    label: str
    about: str
    apart: str
    domain: Domain
    kinds: tuple[str, ...]
    cut: Callable[[int], tuple[tuple[str, int], ...]]
    stream: Callable[[int, int], Stream]
    gradient_bound: Callable[[int], float]
    loose: tuple[str, ...]
    tight: tuple[str, ...]

    def streams(self, rounds: int, seeds: int) -> SideBySide:
        """The streams of the seeds `0..seeds - 1`, side by side."""
        return SideBySide([self.stream(rounds, seed) for seed in range(seeds)])

    def stretches(self, rounds: int) -> tuple[Stretch, ...]:
        """The stretches of a run; the last one may be cut short."""
        found: list[Stretch] = []
        while not found or found[-1].stop < rounds:
            for kind, length in self.cut(rounds):
                first = found[-1].stop if found else 0
                if first < rounds:
                    found.append(Stretch(kind, first, min(rounds, first + length)))
        return tuple(found)


def _part(rounds: int, thousandths: int) -> int:
    """A part of a run. Of 8192 rounds they are 532, 1040 and 1499: no block of a geometric cover starts with them."""
    return max(8, rounds * thousandths // 1000)


def _one_loud(rounds: int, seed: int = 0) -> OneLoud:
    dim, period = 20, _part(rounds, 127)
    # In a period all quiet coordinates together pull about sqrt(2 dim) times as much as the loud one does by chance.
    return OneLoud(dim, period, quiet=math.sqrt(2 / (dim * period)), seed=seed)


FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family(
            "changes",
            "Changes",
            "Gradients of norm 1 in 10 dimensions, on a ball of radius 1. Every coordinate has a preferred sign, which "
            "it takes 9 times in 10; all of them are drawn anew after about every 15th of the run.",
            "√T from √|I|: all gradients have the same norm, so the bounds of the later rows agree with √|I|. After a "
            "change late in the run, a bound of √T allows for many more rounds of the old ways than √|I| does.",
            Ball(1.0),
            ("stretch",),
            lambda rounds: (("stretch", _part(rounds, 65)),),
            lambda rounds, seed: Storms(10, _part(rounds, 65), _part(rounds, 65), scale=1.0, preference=0.8, seed=seed),
            lambda rounds: 1.0,
            ("horizon",),
            ("length", "norms", "squares", "coordinates", "matrix"),
        ),
        Family(
            "storms",
            "Calm and storms",
            "Gradients of norm 0.1 for three quarters of the time and of norm 1 for the rest, four turns of both, in "
            "10 dimensions on a ball of radius 1. A pull that lasts for a stretch lies under a ripple that turns round "
            "after every round: to answer it is to lose, and only experts with a long memory do not.",
            "√|I| from √Σ|g|²: in the calm the first is ten times the second. Weights whose steps are made for "
            "gradients of norm 1 hardly move there.",
            Ball(1.0),
            ("calm", "storm"),
            lambda rounds: (("calm", _part(rounds, 183)), ("storm", _part(rounds, 65))),
            lambda rounds, seed: Ripples(10, _part(rounds, 183), _part(rounds, 65), seed=seed),
            lambda rounds: 1.0,
            ("length",),
            ("squares", "coordinates", "matrix"),
        ),
        Family(
            "sparse",
            "Sparse and badly scaled",
            "One loud coordinate of random signs, and 19 quiet ones that are there one time in ten and always pull the "
            "same way, until their signs are drawn anew after about every eighth of the run; on a box from −1 to 1.",
            "D₂ √Σ|g|² from Σᵢ Dᵢ |gᵢ|₂: on a box in d dimensions D₂ is √d Dᵢ, while the sum over the coordinates is "
            "not much more than the loud one's part. Only steps for each coordinate are right for the quiet ones.",
            Box(-1.0, 1.0),
            ("stretch",),
            lambda rounds: (("stretch", _part(rounds, 127)),),
            _one_loud,
            lambda rounds: _one_loud(rounds).longest,
            ("squares",),
            ("coordinates",),
        ),
    )
}
"""The families of streams, by name."""
