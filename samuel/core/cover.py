"""Covers: which intervals get experts of their own.

A cover cuts time into blocks, on several levels at once. One *slot* per level holds the block that is running
now, so that the state of an algorithm has a fixed shape: a slot *restarts* when its block ends. `t` counts the
rounds completed so far, so the decision for round `t` (numbered from 0) is made when `t` rounds are complete.

    geometric  level k: blocks of n_0 2^k rounds from the start            needs the horizon (the paper's cover)
    anytime    level k opens when t reaches n_0 2^k, level 0 at once       needs no horizon
    fixed      one level of blocks of n_0 rounds
    lasting    a block from every n_0-th round on to the end, all in one slot, since its experts go on
    chosen     one level whose blocks start at given rounds
    all        a block from every round on: Theta(t) work, for short runs
    pruned     the same, but most of them end early, so that about 2 log2(t) run at once
    compact    level k has blocks of n_0 2^k rounds, every other one left out: one block starts at a time
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from samuel.core.arrays import Array, beside, namespace


class Tile(NamedTuple):
    """An interval `first..last` (both included) that begins with a block of a cover and lies inside it.

    `slot` is None for rounds before the first block: there only the trivial bound holds.
    """

    slot: int | None
    first: int
    last: int


@dataclass(frozen=True)
class Cover(ABC):
    """A set of blocks of rounds with experts of their own. Start with `Anytime`."""

    @abstractmethod
    def slots(self, rounds: int) -> int:
        """Number of slots needed for that many rounds and the decision after them."""

    @abstractmethod
    def starts(self, t: Array, slots: int) -> Array:
        """Which of the slots start a block when `t` rounds are complete: booleans of shape `(slots,)`.

        `t` is a number, or an array of shape `()` of any library, traced or not.
        """

    @abstractmethod
    def block(self, slot: int, t: int) -> tuple[int, int] | None:
        """The block of a slot that runs in round `t`, as (first round, rounds); None while it is closed."""

    def running(self, t: Array, slots: int) -> Array:
        """Which of the slots have a block that runs in round `t`: booleans of shape `(slots,)`.

        >>> Anytime(shortest=4).running(9, 3)
        array([ True,  True, False])
        """
        return beside(np.ones(slots, dtype=bool), t)

    @property
    def limit(self) -> int | None:
        """The largest number of rounds; None for no limit."""
        return None

    @property
    def lasting(self) -> bool:
        """Whether blocks go on when the next one starts in their slot: its experts stay, and are given the prior."""
        return False

    @property
    def rhythm(self) -> int:
        """Blocks start only at rounds `t` divisible by this."""
        return 1

    def starts_at(self, t: int) -> list[int]:
        """The slots that start a block at `t`, the one with the longest block last.

        >>> Geometric(horizon=16).starts_at(4)
        [0, 1, 2]
        """
        begun = np.asarray(self.starts(t, self.slots(t + 1)))
        return [int(slot) for slot in np.flatnonzero(begun)]

    def tile(self, first: int, last: int) -> Iterator[Tile]:
        """Tile the rounds `first..last` with few intervals, each a block or the beginning of one.

        Greedy: from the left, the longest block that starts there; the last one may be truncated. Rounds before the
        first start are tiles without a slot.

        >>> [tuple(tile) for tile in Anytime(shortest=1).tile(3, 11)]
        [(0, 3, 3), (2, 4, 7), (3, 8, 11)]
        """
        if not 0 <= first <= last:
            raise ValueError(f"an interval needs 0 <= first <= last, got first={first}, last={last}")
        here = first
        while here <= last:
            begun = self.starts_at(here)
            if not begun:
                yield Tile(None, here, here)
                here += 1
                continue
            longest = max(begun, key=lambda slot: self._length(slot, here))
            end = min(last, here + self._length(longest, here) - 1)
            yield Tile(longest, here, end)
            here = end + 1

    def _length(self, slot: int, t: int) -> int:
        block = self.block(slot, t)
        assert block is not None, "a slot that starts a block has one"
        return block[1]


class _Levels(Cover):
    """Level k has blocks of `shortest * 2**k` rounds, laid end to end from round 0."""

    shortest: int

    def length(self, slot: int) -> int:
        """Rounds in a block of this slot."""
        return self.shortest * 2**slot

    @property
    def rhythm(self) -> int:
        """Blocks of every level start at multiples of the shortest."""
        return self.shortest


@dataclass(frozen=True)
class Geometric(_Levels):
    """The paper's cover: every level runs from the start, the longest block holds the whole horizon.

    Attributes:
        horizon: rounds in all.
        shortest: rounds in the shortest block, `n_0`.
        levels: how many levels at most, the shortest first; by default as many as the horizon needs.

    >>> cover = Geometric(horizon=25_600, shortest=200)
    >>> [cover.length(slot) for slot in range(cover.slots(25_600))]
    [200, 400, 800, 1600, 3200, 6400, 12800, 25600]
    """

    horizon: int
    shortest: int = 1
    levels: int | None = None

    def __post_init__(self) -> None:
        _positive("horizon", self.horizon)
        _positive("shortest", self.shortest)
        if self.levels is not None:
            _positive("levels", self.levels)

    @property
    def limit(self) -> int:
        """The horizon."""
        return self.horizon

    def slots(self, rounds: int) -> int:
        return _at_most(self.levels, 1 + max(0, math.ceil(math.log2(self.horizon / self.shortest))))

    def starts(self, t: Array, slots: int) -> Array:
        return t % beside(_lengths(self.shortest, slots), t) == 0

    def block(self, slot: int, t: int) -> tuple[int, int] | None:
        length = self.length(slot)
        return t - t % length, length


@dataclass(frozen=True)
class Anytime(_Levels):
    """Doubling blocks with no horizon: a level joins when there is enough past to fill one of its blocks.

    Attributes:
        shortest: rounds in the shortest block, `n_0`. 1 certifies every interval from its first round; a larger one
            saves work and is often better in practice, at the price of a trivial bound on up to `n_0 - 1` rounds of an
            interval that starts off the grid.
        levels: how many levels at most; the longest blocks then repeat. Unlimited by default.

    >>> cover = Anytime(shortest=1)
    >>> [cover.slots(rounds) for rounds in (1, 2, 3, 4, 5, 1000, 1_000_000)]
    [1, 2, 2, 3, 3, 10, 20]
    """

    shortest: int = 8
    levels: int | None = None

    def __post_init__(self) -> None:
        _positive("shortest", self.shortest)
        if self.levels is not None:
            _positive("levels", self.levels)

    def slots(self, rounds: int) -> int:
        return _at_most(self.levels, max(1, (max(1, rounds) // self.shortest).bit_length()))

    def starts(self, t: Array, slots: int) -> Array:
        lengths = beside(_lengths(self.shortest, slots), t)
        openings = beside(_openings(self.shortest, slots), t)
        return (t % lengths == 0) & (t >= openings)

    def running(self, t: Array, slots: int) -> Array:
        return t >= beside(_openings(self.shortest, slots), t)

    def block(self, slot: int, t: int) -> tuple[int, int] | None:
        length = self.length(slot)
        if slot > 0 and t < length:
            return None
        return t - t % length, length


@dataclass(frozen=True)
class Fixed(_Levels):
    """One level of blocks of equal length.

    >>> [t for t in range(10) if Fixed(every=4).starts_at(t)]
    [0, 4, 8]
    """

    every: int

    def __post_init__(self) -> None:
        _positive("every", self.every)

    @property
    def shortest(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """All blocks are of one length."""
        return self.every

    def slots(self, rounds: int) -> int:
        return 1

    def starts(self, t: Array, slots: int) -> Array:
        return t % beside(_lengths(self.shortest, 1), t) == 0

    def block(self, slot: int, t: int) -> tuple[int, int] | None:
        return t - t % self.shortest, self.shortest


@dataclass(frozen=True)
class Lasting(Cover):
    """A block from every `every`-th round on to the end of the run, at the cost of a single one.

    All blocks share one slot and its experts, which go on when a block starts: that only adds the prior to their
    weights. So any interval is one tile, and its regret bound is that of experts with a past. For base learners with
    such a bound (`samuel.online.Base.lasting`).

    Attributes:
        every: rounds between two starts.
        horizon: length of the run, if known.

    >>> [tuple(tile) for tile in Lasting(every=4).tile(7, 80)]
    [(None, 7, 7), (0, 8, 80)]
    """

    every: int = 8
    horizon: int | None = None

    def __post_init__(self) -> None:
        _positive("every", self.every)
        if self.horizon is not None:
            _positive("horizon", self.horizon)

    @property
    def limit(self) -> int | None:
        """The horizon."""
        return self.horizon

    @property
    def lasting(self) -> bool:
        return True

    @property
    def rhythm(self) -> int:
        """A block starts every so many rounds."""
        return self.every

    def slots(self, rounds: int) -> int:
        return 1

    def starts(self, t: Array, slots: int) -> Array:
        return t % beside(_lengths(self.every, 1), t) == 0

    def block(self, slot: int, t: int) -> tuple[int, int] | None:
        return t - t % self.every, _FOREVER


@dataclass(frozen=True)
class Chosen(Cover):
    """One level whose blocks start at round 0 and at given rounds (the paper's transition points).

    >>> [t for t in range(10) if Chosen((3, 7)).starts_at(t)]
    [0, 3, 7]
    """

    rounds: Sequence[int] = ()

    def __post_init__(self) -> None:
        try:
            rounds = tuple(self.rounds)
        except TypeError:
            raise ValueError(f"rounds must be a list of rounds, got {self.rounds!r}") from None
        for round in rounds:
            if round != 0:  # a block starts at 0 in any case
                _positive("a restart round", round)
        rounds = tuple(int(round) for round in rounds)
        object.__setattr__(self, "rounds", tuple(sorted({0, *rounds})))

    def slots(self, rounds: int) -> int:
        return 1

    def starts(self, t: Array, slots: int) -> Array:
        hit = beside(np.asarray(self.rounds), t) == t
        return namespace(hit).any(hit)[None]

    def block(self, slot: int, t: int) -> tuple[int, int] | None:
        first = max(round for round in self.rounds if round <= t)
        later = [round for round in self.rounds if round > t]
        return first, (later[0] - first) if later else _FOREVER


@dataclass(frozen=True)
class AllIntervals(Cover):
    """A block from every round to the end of the run: all intervals.

    The bound is smaller by a factor of sqrt(log T), but work and memory grow with every round; for short runs and
    comparisons.

    Attributes:
        horizon: length of the run; None to grow with the run.
        shortest: rounds between the starts of two blocks.

    >>> [tuple(tile) for tile in AllIntervals(horizon=100).tile(17, 80)]
    [(17, 17, 80)]
    """

    horizon: int | None = None
    shortest: int = 1

    def __post_init__(self) -> None:
        if self.horizon is not None:
            _positive("horizon", self.horizon)
        _positive("shortest", self.shortest)

    @property
    def limit(self) -> int | None:
        """The horizon."""
        return self.horizon

    @property
    def rhythm(self) -> int:
        """A block starts every so many rounds."""
        return self.shortest

    def slots(self, rounds: int) -> int:
        if self.horizon is not None:
            return -(-self.horizon // self.shortest)
        # Grow by an eighth, so that arrays are seldom reallocated and little of them is unused.
        needed = rounds // self.shortest + 1
        step = max(1, (1 << needed.bit_length()) // 16)
        return -(-needed // step) * step

    def starts(self, t: Array, slots: int) -> Array:
        return beside(self.shortest * np.arange(slots), t) == t

    def running(self, t: Array, slots: int) -> Array:
        return beside(self.shortest * np.arange(slots), t) <= t

    def block(self, slot: int, t: int) -> tuple[int, int] | None:
        first = slot * self.shortest
        if t < first:
            return None
        return first, _FOREVER if self.horizon is None else self.horizon - first


@dataclass(frozen=True)
class Pruned(Cover):
    """A block from every round on, most of which end early: about `2 log2(t)` run at a time.

    With rounds counted from 1, a block that starts in round `i = r 2^k`, `r` odd, runs for `2^(k+2) + 1` rounds. For
    every earlier round, a block that started near it is still running (Hazan and Seshadhri, ICML 2009).

    Attributes:
        shortest: rounds between the starts of two blocks; all lengths are counted in these.

    >>> cover = Pruned()
    >>> [int(cover.running(t, cover.slots(t + 1)).sum()) for t in (0, 1, 3, 15, 255, 4095)]
    [1, 2, 4, 8, 16, 24]
    """

    shortest: int = 1

    def __post_init__(self) -> None:
        _positive("shortest", self.shortest)

    @property
    def rhythm(self) -> int:
        """A block starts every so many rounds."""
        return self.shortest

    def slots(self, rounds: int) -> int:
        return _TOGETHER * (rounds // self.shortest + 1).bit_length()

    def starts(self, t: Array, slots: int) -> Array:
        return (t % self.shortest == 0) & (self._age(t, slots) == 0)

    def running(self, t: Array, slots: int) -> Array:
        age = self._age(t, slots)
        return (age >= 0) & (age <= beside(4 * _powers(slots, _TOGETHER), t))

    def block(self, slot: int, t: int) -> tuple[int, int] | None:
        age = int(self._age(t, slot + 1)[slot])
        units = 4 * int(_powers(slot + 1, _TOGETHER)[slot]) + 1
        if not 0 <= age < units:
            return None
        return (t // self.shortest - age) * self.shortest, units * self.shortest

    def _age(self, t: Array, slots: int) -> Array:
        """Age of each slot's newest block in units of `shortest`; negative before its first."""
        now = t // self.shortest + 1
        power = beside(_powers(slots, _TOGETHER), t)
        place = beside(np.arange(slots) % _TOGETHER, t)
        latest = (now // power - 1) // 2  # number of the newest block of that level, -1 if there is none
        own = latest - (latest - place) % _TOGETHER  # of the newest block in this slot
        return now - (2 * own + 1) * power + (own < 0) * (-2 * now - 8 * power)


@dataclass(frozen=True)
class Compact(Cover):
    """Doubling blocks without every other one: a single block starts at a time.

    With rounds counted from 1, level `k` has the blocks that start at odd multiples of `2^k` and run for `2^k`
    rounds (Zhang, Liu and Zhou 2019).

    Attributes:
        shortest: rounds in the shortest block; all lengths are counted in these.

    >>> [Compact().starts_at(t) for t in range(8)]
    [[0], [1], [0], [2], [0], [1], [0], [3]]
    """

    shortest: int = 1

    def __post_init__(self) -> None:
        _positive("shortest", self.shortest)

    @property
    def rhythm(self) -> int:
        """A block starts every so many rounds."""
        return self.shortest

    def slots(self, rounds: int) -> int:
        return (rounds // self.shortest + 1).bit_length()

    def starts(self, t: Array, slots: int) -> Array:
        power = beside(_powers(slots), t)
        return (t % self.shortest == 0) & ((t // self.shortest + 1) % (2 * power) == power)

    def running(self, t: Array, slots: int) -> Array:
        return (t // self.shortest + 1) // beside(_powers(slots), t) % 2 == 1

    def block(self, slot: int, t: int) -> tuple[int, int] | None:
        now = t // self.shortest + 1
        if (now >> slot) % 2 == 0:
            return None
        return (((now >> slot) << slot) - 1) * self.shortest, self.shortest * 2**slot


_TOGETHER = 3
"""Maximum number of blocks of one level of `Pruned` that run at a time."""
_FOREVER = 2**62
"""Length of a block without an end."""


def _at_most(levels: int | None, needed: int) -> int:
    return needed if levels is None else min(levels, needed)


def _positive(name: str, value: Any) -> None:
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")


@lru_cache(maxsize=256)
def _lengths(shortest: int, slots: int) -> np.ndarray:
    return _frozen(shortest * 2 ** np.arange(slots, dtype=np.int64))


@lru_cache(maxsize=256)
def _powers(slots: int, each: int = 1) -> np.ndarray:
    """`2^k` for slots of which `each` belong to one level."""
    return _frozen(2 ** (np.arange(slots, dtype=np.int64) // each))


@lru_cache(maxsize=256)
def _openings(shortest: int, slots: int) -> np.ndarray:
    openings = shortest * 2 ** np.arange(slots, dtype=np.int64)
    openings[0] = 0
    return _frozen(openings)


def _frozen(array: np.ndarray) -> np.ndarray:
    array.setflags(write=False)  # shared by every caller
    return array
