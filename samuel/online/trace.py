"""The trace of a run: decisions, losses, regret and certificates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from samuel.core.options import whole_number
from samuel.online.certificates import Certificate, Comparison, certify, linearised_regret
from samuel.online.comparators import best_fixed_point, best_on_intervals, warn_if_inexact
from samuel.online.streams import Stream

if TYPE_CHECKING:
    from samuel.online.learner import Rule


class Worst(NamedTuple):
    """The interval of a given length with the largest regret."""

    regret: float
    first: int
    last: int


class Trace:
    """The record of a run, with its regret and certificates.

    Rounds are numbered from 0 (from where the learner stood, if it had played before); an interval is named by its
    first and its last round, both included. What was not recorded is None.

    Attributes:
        losses: loss of each round, `(rounds, *streams)`.
        decisions: `x`, `(rounds, *streams, dim)`.
        gradients: gradient of the loss at the decision.
        gains: `r(e)` of every expert, `(rounds, *streams, slots, experts)`; nan while a slot is closed.
        weights: `p(e)` of every expert, the same shape.

    >>> import numpy as np
    >>> from samuel.online import Samuel, Ball, play
    >>> trace = play(Samuel(dim=2, domain=Ball(1.0)), np.tile([3.0, 4.0], (64, 1)))
    >>> round(trace.regret(0, 63), 6) <= trace.certificate(0, 63).measured
    True
    """

    def __init__(self, rule: Rule, arrays: dict[str, np.ndarray], stream: Stream | None, first: int = 0) -> None:
        self.rule = rule
        self.arrays = arrays
        self.stream = stream
        self.first = first
        self.losses: np.ndarray = arrays["loss"]
        self.decisions: np.ndarray | None = arrays.get("decision")
        self.gradients: np.ndarray | None = arrays.get("gradient")
        self.gains: np.ndarray | None = arrays.get("gains")
        self.weights: np.ndarray | None = arrays.get("p")

    def __len__(self) -> int:
        return len(self.losses)

    def __repr__(self) -> str:
        return (
            f"Trace({type(self.rule).__name__}, rounds {self.first} to {self.last}, {', '.join(sorted(self.arrays))})"
        )

    @property
    def last(self) -> int:
        """Number of the last round."""
        return self.first + len(self) - 1

    @property
    def streams(self) -> int | None:
        """Number of streams; None for a single one."""
        return self.losses.shape[1] if self.losses.ndim > 1 else None

    def one(self, stream: int) -> Trace:
        """The trace of one of several streams."""
        if self.streams is None or not 0 <= stream < self.streams:
            raise ValueError(f"stream must be from 0 to {(self.streams or 0) - 1}, got {stream}")
        arrays = {name: array[:, stream] for name, array in self.arrays.items()}
        return Trace(self.rule, arrays, None if self.stream is None else _OneOf(self.stream, stream), self.first)

    def regret(
        self,
        first: int | None = None,
        last: int | None = None,
        *,
        comparator: Any = None,
        radius: float | None = None,
    ) -> float:
        """The regret on an interval: the loss minus that of the best fixed point of the interval.

        Args:
            first: first round of the interval; the first of the run by default.
            last: last round of the interval; the last of the run by default.
            comparator: a fixed point to compare with instead of the best one.
            radius: compare with points no further than this from the origin; needed on unbounded domains where the
                best fixed point would be infinitely far away.

        Warns:
            InexactComparator: if the loss of the best fixed point is not known to within 1e-6 (1 + the loss).
        """
        first, last = self._interval(first, last)
        stream = self._known_stream()
        data = stream.data(first - self.first, last - self.first + 1)
        comparison = Comparison.of(self.rule, comparator, radius)
        ours = float(np.sum(self.losses[first - self.first : last - self.first + 1]))
        loss = stream.loss
        if comparison.point is not None:
            return ours - loss.total(comparison.point, tuple(np.asarray(a, float) for a in data))[0]
        best = best_fixed_point(loss, data, comparison.domain, self.rule.dim)
        warn_if_inexact(best.loss, best.gap)
        return ours - best.loss

    def linearised_regret(
        self,
        first: int | None = None,
        last: int | None = None,
        *,
        comparator: Any = None,
        radius: float | None = None,
    ) -> float:
        """`sum <g, x> - min_u <sum g, u>`: never below the regret of convex losses, and known from gradients alone."""
        first, last = self._interval(first, last)
        return linearised_regret(self, first, last, Comparison.of(self.rule, comparator, radius))

    def certificate(
        self,
        first: int | None = None,
        last: int | None = None,
        *,
        comparator: Any = None,
        radius: float | None = None,
        exp_concavity: float | None = None,
    ) -> Certificate:
        """The certificate of an interval: an upper bound on the regret against any comparator.

        Args:
            first: first round of the interval; the first of the run by default.
            last: last round of the interval; the last of the run by default.
            comparator: one fixed point to compare with; all of the domain by default.
            radius: compare with all points no further than this from the origin. An unbounded domain needs one of
                the two.
            exp_concavity: `alpha`, if every `exp(-alpha loss)` is concave on the domain, as for squared losses of
                bounded errors and for the logistic loss. With `ONS` on a bounded domain the bound is then
                logarithmic, and on the regret itself, not the linearised one.
        """
        first, last = self._interval(first, last)
        return certify(self, first, last, Comparison.of(self.rule, comparator, radius), exp_concavity)

    def worst(self, length: int, *, radius: float | None = None, every: int = 1) -> Worst:
        """The interval of that many rounds with the largest regret.

        Args:
            length: rounds in the interval.
            radius: as for `regret`.
            every: distance between starts, to save time on long runs.
        """
        every, length = whole_number("every", every, least=1), whole_number("length", length, least=1)
        if length > len(self):
            raise ValueError(f"length must be at most {len(self)}, the rounds of the run, got {length}")
        self._interval(None, None)
        stream, domain = self._known_stream(), Comparison.of(self.rule, None, radius).domain
        starts = np.arange(0, len(self) - length + 1, every)
        best = best_on_intervals(stream.loss, stream.data(0, len(self)), domain, self.rule.dim, starts, length)
        warn_if_inexact(best.losses, best.gaps)
        regrets = interval_sums(self.losses, starts, length) - best.losses
        at = int(np.argmax(regrets))
        first = self.first + int(starts[at])
        return Worst(float(regrets[at]), first, first + length - 1)

    def needed(self, name: str) -> np.ndarray:
        """A recorded array by name; ValueError if it was not recorded."""
        if name not in self.arrays:
            raise ValueError(f"{name} was not recorded: play with record='all' (recorded: {', '.join(self.arrays)})")
        return self.arrays[name]

    def interval_slice(self, first: int, last: int) -> slice:
        """Where an interval of rounds stands in the arrays."""
        return slice(first - self.first, last - self.first + 1)

    def _known_stream(self) -> Stream:
        if self.stream is None:
            raise ValueError(
                "the losses of this run are not known as functions, only their gradients; ask for linearised_regret, "
                "which is never smaller for convex losses"
            )
        return self.stream

    def _interval(self, first: int | None, last: int | None) -> tuple[int, int]:
        if self.streams is not None:
            raise ValueError(f"this record holds {self.streams} streams: pick one first, as in trace.one(0)")
        first = self.first if first is None else first
        last = self.last if last is None else last
        if not all(isinstance(end, int | np.integer) for end in (first, last)) or not (
            self.first <= first <= last <= self.last
        ):
            raise ValueError(
                f"an interval lies within rounds {self.first} to {self.last} and does not end before it starts; got "
                f"first={first}, last={last}"
            )
        return first, last


class _OneOf(Stream):
    """One of several streams that run side by side."""

    def __init__(self, stream: Stream, number: int) -> None:
        self.loss, self.dim, self.rounds, self.streams = stream.loss, stream.dim, stream.rounds, None
        self._stream, self._number = stream, number

    def data(self, start: int, stop: int) -> Any:
        return tuple(array[:, self._number] for array in self._stream.data(start, stop))


def interval_sums(values: np.ndarray, starts: np.ndarray, length: int) -> np.ndarray:
    """The sums of `length` values from each start on.

    Of differences of running sums the large would swallow the small. Here an interval is the end of one block of that
    length and the beginning of the next, so that nothing outside of it comes in.

    >>> interval_sums(np.array([1e20, 1.0, 2.0, 3.0]), np.array([0, 1, 2]), length=2)
    array([1.e+20, 3.e+00, 5.e+00])
    """
    blocks = -(-len(values) // length) + 1
    padded = np.zeros(blocks * length)
    padded[: len(values)] = values
    padded = padded.reshape(blocks, length)
    block, place = np.divmod(starts, length)
    ends = np.cumsum(padded[:, ::-1], axis=1)[:, ::-1]
    beginnings = np.cumsum(padded, axis=1)
    next_block = np.where(place > 0, beginnings[np.minimum(block + 1, blocks - 1), place - 1], 0.0)
    return ends[block, place] + next_block
