"""Regret on every interval: a map over starts and lengths, and the growth of its maximum with the length.

The best fixed points of the intervals depend on the stream alone. `hindsight` finds them once, for a grid of intervals,
and `regret_map` sets the losses of any run beside them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from samuel.online.certificates import ANY_POINT, within
from samuel.online.comparators import best_on_intervals, warn_if_inexact
from samuel.online.domains import Domain
from samuel.online.learner import whole_number
from samuel.online.losses import Data, LossFamily
from samuel.online.streams import Stream, as_stream
from samuel.online.trace import Trace, Worst, interval_sums

SHORTEST = 8
"""Rounds in the shortest interval."""
STARTS = 256
"""About the maximum number of starts for each length."""
WINDOW = 2**16
"""Rounds held in memory, unless an interval is longer."""


@dataclass(frozen=True)
class Grid:
    """A grid of intervals: doubling lengths, starts at least a quarter of the length apart.

    Args:
        rounds: rounds of the run.
        shortest: rounds of the shortest intervals.
        starts: about the maximum number of starts for each length. Fewer take less time.
        longest: rounds of the longest intervals, at most; as long as the run by default.

    >>> grid = Grid(rounds=100)
    >>> grid.lengths
    (8, 16, 32, 64)
    >>> grid.starts_of(32)
    array([ 0,  8, 16, 24, 32, 40, 48, 56, 64])
    """

    rounds: int
    shortest: int = SHORTEST
    starts: int = STARTS
    longest: int | None = None

    def __post_init__(self) -> None:
        for name in ("rounds", "shortest", "starts"):
            whole_number(name, getattr(self, name), least=1)
        if self.longest is not None:
            whole_number("longest", self.longest, least=self.shortest)
        if self.shortest > self.rounds:
            raise ValueError(
                f"a run of {self.rounds} rounds has no intervals of shortest={self.shortest}: play on, or ask for "
                "shorter ones"
            )

    @property
    def lengths(self) -> tuple[int, ...]:
        """Rounds of the intervals: doubling, up to the whole run."""
        longest = self.rounds if self.longest is None else min(self.rounds, self.longest)
        return tuple(self.shortest * 2**power for power in range((longest // self.shortest).bit_length()))

    def starts_of(self, length: int) -> np.ndarray:
        """First rounds of the intervals of a length, counted from the first round of the run."""
        return np.arange(0, self.rounds - length + 1, max(1, length // 4, self.rounds // self.starts))


@dataclass(frozen=True)
class Hindsight:
    """Losses of the best fixed points on every interval of a grid; made by `hindsight`.

    Attributes:
        grid: the intervals.
        domain: of the points.
        losses: for each length, the total loss of the best point of every interval.
        gaps: for each length, the duality gaps.
        loss: the loss family of the stream.
        first: the data of its first round, by which it is recognised.
    """

    grid: Grid
    domain: Domain
    losses: tuple[np.ndarray, ...]
    gaps: tuple[np.ndarray, ...]
    loss: LossFamily
    first: Data

    def is_of(self, stream: Stream) -> bool:
        """Whether a stream begins like this one."""
        data = stream.data(0, 1)
        return self.loss == stream.loss and all(map(np.array_equal, self.first, data))


def hindsight(
    stream: Any,
    domain: Domain,
    rounds: int | None = None,
    *,
    radius: float | None = None,
    shortest: int = SHORTEST,
    longest: int | None = None,
    starts: int = STARTS,
) -> Hindsight:
    """Find the best fixed point of every interval of a grid, once for all learners of a stream.

    Args:
        stream: a `Stream`, or an array of gradients `(rounds, dim)` of linear losses.
        domain: where the points may lie.
        rounds: number of rounds; by default all of the stream.
        radius: bound on the norm of the points, for unbounded domains.
        shortest: rounds of the shortest intervals.
        longest: rounds of the longest intervals, at most; as long as the run by default. No more of the stream is held
            in memory than the longest interval, or 65,536 rounds.
        starts: about the maximum number of starts for each length. Time is in proportion to it.

    Warns:
        InexactComparator: if the loss of a best fixed point is not known to within 1e-6 (1 + the loss).

    >>> from samuel.online import Interval, TwoValleys
    >>> best = hindsight(TwoValleys(rounds=64), Interval(-1.0, 1.0))
    >>> best.grid.lengths
    (8, 16, 32, 64)
    >>> float(best.losses[-1][0]), float(best.losses[0][0])  # all 64 rounds, and the first 8
    (64.0, 0.0)
    """
    stream = as_stream(stream)
    if stream.streams is not None:
        raise ValueError(f"the stream holds {stream.streams} streams: pick one first, as in trace.one(0).stream")
    if rounds is None:
        rounds = stream.rounds
        if rounds is None:
            raise ValueError(f"{type(stream).__name__} has no end: give the number of rounds")
    rounds = whole_number("rounds", rounds, least=1)
    if stream.rounds is not None and rounds > stream.rounds:
        raise ValueError(f"rounds must be from 1 to {stream.rounds}, got {rounds}")
    domain.check(stream.dim)
    domain = domain if radius is None else within(domain, radius, stream.dim)
    grid = Grid(rounds, shortest, starts, longest)
    found = [_best(stream, domain, grid.starts_of(length), length) for length in grid.lengths]
    losses, gaps = zip(*found, strict=True)
    warn_if_inexact(np.concatenate(losses), np.concatenate(gaps))
    return Hindsight(grid, domain, losses, gaps, stream.loss, stream.data(0, 1))


def _best(stream: Stream, domain: Domain, starts: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Losses and gaps of the best points of all intervals of one length, with a window of the stream at a time."""
    window = max(WINDOW, length)
    losses, gaps = np.empty(len(starts)), np.empty(len(starts))
    here = 0
    while here < len(starts):
        first = int(starts[here])
        some = slice(here, int(np.searchsorted(starts, first + window - length, side="right")))
        data = tuple(np.asarray(array, float) for array in stream.data(first, int(starts[some][-1]) + length))
        best = best_on_intervals(stream.loss, data, domain, stream.dim, starts[some] - first, length)
        losses[some], gaps[some] = best.losses, best.gaps
        here = some.stop
    return losses, gaps


@dataclass(frozen=True)
class RegretMap:
    """Regret over starts and lengths of intervals; made by `regret_map`.

    Attributes:
        lengths: rounds of the intervals.
        firsts: for each length, the first rounds of the intervals.
        regret: for each length, the regret on every one of them.
        measured: for each length, the certificates from the experts' gains, NaN where none is known against any fixed
            point. None if they were not requested, or the method has none.
        guaranteed: the same from the algorithm's bound.
    """

    lengths: tuple[int, ...]
    firsts: tuple[np.ndarray, ...]
    regret: tuple[np.ndarray, ...]
    measured: tuple[np.ndarray, ...] | None = None
    guaranteed: tuple[np.ndarray, ...] | None = None

    def worst(self, length: int) -> Worst:
        """The interval of that length with the largest regret."""
        if length not in self.lengths:
            raise ValueError(f"length must be one of {', '.join(map(str, self.lengths))}, got {length!r}")
        place = self.lengths.index(length)
        at = int(np.argmax(self.regret[place]))
        first = int(self.firsts[place][at])
        return Worst(float(self.regret[place][at]), first, first + length - 1)

    def exponent(self, shortest: int | None = None, longest: int | None = None) -> float:
        """How the worst regret grows with the length: `growth_exponent` over the lengths within two limits."""
        lengths = [
            length
            for length in self.lengths
            if (shortest is None or length >= shortest) and (longest is None or length <= longest)
        ]
        if len(lengths) < 2:
            raise ValueError(
                f"a slope needs two lengths: shortest={shortest}, longest={longest} leaves {len(lengths)} of "
                f"{', '.join(map(str, self.lengths))}"
            )
        return growth_exponent(lengths, [self.worst(length).regret for length in lengths])


def regret_map(
    trace: Trace,
    best: Hindsight | None = None,
    *,
    certificates: bool = False,
    radius: float | None = None,
    shortest: int = SHORTEST,
    starts: int = STARTS,
) -> RegretMap:
    """The regret of a run on a grid of intervals.

    Args:
        trace: of the run; the losses suffice.
        best: the result of `hindsight` for the stream and domain of the run, which several runs can share; by default
            it is computed here.
        certificates: also compute the certificate of every interval; the run must have been recorded in full.
        radius: as for `hindsight`, for unbounded domains. With `best`, it is used for the certificates only.
        shortest: as for `hindsight`.
        starts: as for `hindsight`.

    >>> from samuel.online import Interval, Samuel, TwoValleys, play
    >>> trace = play(Samuel(dim=1, domain=Interval(-1.0, 1.0)), TwoValleys(rounds=256))
    >>> regrets = regret_map(trace, certificates=True)
    >>> worst = regrets.worst(64)
    >>> round(worst.regret, 6) == round(trace.regret(worst.first, worst.last), 6)
    True
    >>> all((bound >= regret - 1e-9).all() for bound, regret in zip(regrets.measured, regrets.regret))
    True
    """
    if trace.streams is not None:
        raise ValueError(f"this record holds {trace.streams} streams: pick one first, as in trace.one(0)")
    if best is None:
        if trace.stream is None:
            raise ValueError(
                "the losses of this run are not known as functions, so the best fixed points are not either"
            )
        best = hindsight(trace.stream, trace.rule.domain, len(trace), radius=radius, shortest=shortest, starts=starts)
    elif best.grid.rounds != len(trace):
        raise ValueError(f"hindsight was taken over {best.grid.rounds} rounds, the run has {len(trace)}")
    elif trace.rule.domain.bounded and best.domain != trace.rule.domain:
        raise ValueError(f"hindsight was taken on {best.domain}, the run was on {trace.rule.domain}")
    elif trace.stream is not None and not best.is_of(trace.stream):
        raise ValueError("hindsight was taken of another stream: the first round of the run has other data")
    lengths = best.grid.lengths
    offsets = tuple(best.grid.starts_of(length) for length in lengths)
    regret = tuple(
        interval_sums(trace.losses, starts, length) - losses
        for length, starts, losses in zip(lengths, offsets, best.losses, strict=True)
    )
    firsts = tuple(starts + trace.first for starts in offsets)
    bounds = _certificates(trace, lengths, firsts, radius) if certificates else None
    return RegretMap(lengths, firsts, regret, *(bounds or (None, None)))


def _certificates(
    trace: Trace, lengths: Sequence[int], firsts: Sequence[np.ndarray], radius: float | None
) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]] | None:
    """Measured and guaranteed bounds on every interval; None for a method that has none."""
    if not hasattr(trace.rule, "cover") or not hasattr(trace.rule, "groups"):
        return None
    measured, guaranteed = [], []
    for length, starts in zip(lengths, firsts, strict=True):
        proofs = [trace.certificate(int(first), int(first) + length - 1, radius=radius) for first in starts]
        known = np.array([proof.against == ANY_POINT for proof in proofs])
        measured.append(np.where(known, [proof.measured for proof in proofs], math.nan))
        guaranteed.append(np.where(known, [proof.guaranteed for proof in proofs], math.nan))
    return tuple(measured), tuple(guaranteed)


def growth_exponent(lengths: Sequence[float], worst: Sequence[float]) -> float:
    """The power of the length with which the worst regret grows: 0.5 for a square root, 1 for linear growth.

    The slope of the straight line through the logarithms, by least squares; nan where a worst regret is not positive.

    Args:
        lengths: of the intervals, at least two different ones.
        worst: the largest regret on intervals of each length.

    >>> round(growth_exponent([16, 64, 256], [8.0, 16.0, 32.0]), 6)
    0.5
    """
    lengths_, worst_ = np.asarray(lengths, dtype=float), np.asarray(worst, dtype=float)
    if lengths_.ndim != 1 or lengths_.shape != worst_.shape:
        raise ValueError(f"every length needs one worst regret, got shapes {lengths_.shape} and {worst_.shape}")
    if not (lengths_ > 0).all() or len(set(lengths_.tolist())) < 2:
        raise ValueError(f"a slope needs at least two different positive lengths, got {list(lengths)}")
    if not (worst_ > 0).all() or not np.isfinite(worst_).all():
        return math.nan
    x, y = np.log(lengths_), np.log(worst_)
    x = x - np.mean(x)
    return float(x @ y / (x @ x))
