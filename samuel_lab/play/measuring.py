"""Measurements on the trace of a run, for the tables and figures of a contest."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from samuel.core import Compact, Cover
from samuel.online import Domain, Learner, Stream, Trace
from samuel.online.certificates import ANY_POINT
from samuel.online.comparators import best_fixed_point
from samuel.online.regret import RegretMap
from samuel_lab.play.records import Chain, Map, Weights
from samuel_lab.tables import single

STRETCHES = 96
"""Number of sections of a run that averages are taken over."""
COLUMNS = 64
"""Columns of a map of regret."""


class Window(Stream):
    """A stream without its first rounds."""

    def __init__(self, stream: Stream, start: int) -> None:
        self.loss, self.dim, self.streams = stream.loss, stream.dim, stream.streams
        self.rounds = None if stream.rounds is None else stream.rounds - start
        self._stream, self._start = stream, start

    def data(self, start: int, stop: int) -> Any:
        return self._stream.data(self._start + start, self._start + stop)


class Tiled(Stream):
    """A stream repeated side by side."""

    def __init__(self, stream: Stream, times: int) -> None:
        self.loss, self.dim, self.rounds = stream.loss, stream.dim, stream.rounds
        self.streams = times * (stream.streams or 1)
        self._stream, self._times = stream, times

    def data(self, start: int, stop: int) -> Any:
        arrays = self._stream.data(start, stop)
        if self._stream.streams is None:
            arrays = tuple(array[:, None] for array in arrays)
        return tuple(np.concatenate([array] * self._times, axis=1) for array in arrays)


def averaged(values: np.ndarray, stretches: int) -> np.ndarray:
    """Means over sections of the first axis, of nearly equal length.

    >>> averaged(np.array([1.0, 3.0, 5.0, 7.0]), stretches=2)
    array([2., 6.])
    """
    edges = stretch_edges(len(values), stretches)
    lengths = np.diff(edges).reshape(-1, *[1] * (values.ndim - 1))
    return np.add.reduceat(values, edges[:-1], axis=0) / lengths


def stretch_edges(rounds: int, stretches: int = STRETCHES) -> np.ndarray:
    """The starts of the sections of a run, and the end of the last."""
    return np.linspace(0, rounds, min(rounds, stretches) + 1).astype(int)


def middles(rounds: int) -> np.ndarray:
    """The middle rounds of the sections of a run."""
    edges = stretch_edges(rounds)
    return (edges[:-1] + edges[1:] - 1) / 2


def state_bytes(learner: Learner) -> int:
    """Bytes of a learner's state per stream, without what streams share.

    >>> from samuel.online import OGD, Ball, Single
    >>> state_bytes(Single(OGD(0.1), dim=10, domain=Ball(1.0), streams=4))  # the decision alone
    80
    """
    return sum(array.nbytes for array in _arrays(learner._state)) // (learner.streams or 1)


def _arrays(tree: Any) -> Iterable[np.ndarray]:
    if isinstance(tree, np.ndarray):
        yield tree
    elif isinstance(tree, tuple):
        for part in tree:
            yield from _arrays(part)


def optimum(stream: Stream, domain: Domain, edges: Sequence[int]) -> np.ndarray:
    """For each round, the best fixed point of its segment between changes, `(rounds, dim)`."""
    return np.concatenate(
        [
            np.tile(best_fixed_point(stream.loss, stream.data(a, b), domain, stream.dim).point, (b - a, 1))
            for a, b in pairwise(edges)
        ]
    )


def as_map(rounds: int, lengths: Sequence[int], firsts: Sequence[np.ndarray], numbers: Sequence[np.ndarray]) -> Map:
    """Numbers for intervals of several lengths, aggregated to columns of equal width.

    A column has the maximum over all intervals that start in it; if there is none, the value of the column before.
    """
    edges = np.linspace(0, rounds, min(COLUMNS, rounds) + 1)
    values = np.full((len(lengths), len(edges) - 1), math.nan)
    for row, (length, starts, some) in enumerate(zip(lengths, firsts, numbers, strict=True)):
        begin = np.searchsorted(starts, edges[:-1])
        end = np.searchsorted(starts, edges[1:])
        for column, (a, b) in enumerate(zip(begin, end, strict=True)):
            if b > a:
                values[row, column] = np.max(some[a:b])
            elif a and edges[column] <= rounds - length:
                values[row, column] = some[a - 1]
        values[row] /= math.sqrt(length)
    return Map((edges[:-1] + edges[1:]) / 2, tuple(lengths), single(values))


def certificate_of(trace: Trace, first: int, last: int) -> float | None:
    """The measured certificate of an interval against any fixed point, or None."""
    rule: Any = trace.rule
    ensemble = hasattr(rule, "experts")
    if not hasattr(rule, "groups") or trace.gradients is None or (ensemble and trace.gains is None):
        return None
    certificate = trace.certificate(first, last)
    proved = certificate.against == ANY_POINT and math.isfinite(certificate.measured)
    return certificate.measured if proved else None


def chain_of(learner: str, label: str, trace: Trace, regrets: RegretMap) -> Chain:
    """The chain of bounds on the regret of a run, and a map of its certificates."""
    rows, measured = [], []
    for length, firsts, regret in zip(regrets.lengths, regrets.firsts, regrets.regret, strict=True):
        proofs = [trace.certificate(int(first), int(first) + length - 1) for first in firsts]
        bounds = np.array([(p.linearised, p.measured, p.guaranteed, p.trivial) for p in proofs])
        rows.append((float(np.max(regret)), *np.max(bounds, axis=0).tolist()))
        measured.append(bounds[:, 1])
    certificates = as_map(len(trace), regrets.lengths, regrets.firsts, measured)
    return Chain(learner, label, regrets.lengths, *zip(*rows, strict=True), map=certificates)


class Snapshot(NamedTuple):
    """The weights of the experts, `(slots, experts)`, in one round."""

    round: int
    p: np.ndarray


def weights_of(rule: Any, p: np.ndarray) -> Weights:
    """Summary over time of the weights `(rounds, slots, experts)` of every round."""
    rounds, slots, _ = p.shape
    experts, by_expert = _by_expert(rule, averaged(p.sum(axis=1), STRETCHES))
    if slots == 1:
        return Weights(middles(rounds), "", (), None, experts, by_expert)
    if _has_levels(rule.cover):
        levels = tuple(f"{_level_length(rule.cover, slot)}" for slot in range(slots))
        by_level = averaged(p.sum(axis=2), STRETCHES).T.astype(np.float32)
        return Weights(middles(rounds), "rounds in a block", levels, by_level, experts, by_expert)
    starts = stretch_edges(rounds)[:-1]
    return weights_by_age(rule, rounds, [Snapshot(int(t), p[t]) for t in starts], (experts, by_expert))


def weights_by_age(
    rule: Any,
    rounds: int,
    snapshots: Sequence[Snapshot],
    experts: tuple[tuple[str, ...], np.ndarray | None] | None = None,
) -> Weights:
    """The same, summed over blocks of about equal age: one row for each doubling."""
    cover, shortest = rule.cover, rule.cover.shortest
    rows = max(1, (rounds // shortest).bit_length())
    by_level = np.zeros((rows, len(snapshots)), dtype=np.float32)
    for column, (t, p) in enumerate(snapshots):
        for slot, weight in enumerate(p.sum(axis=-1)):
            block = cover.block(slot, t) if weight > 0 else None
            if block is not None:
                by_level[min(rows - 1, ((t - block[0]) // shortest).bit_length()), column] += weight
    levels = tuple(f"{shortest * 2**row // 2 if row else 0}+" for row in range(rows))
    if experts is None:
        experts = _by_expert(rule, np.stack([p.sum(axis=0) for _, p in snapshots]))
    return Weights(middles(rounds), "age of a block, rounds", levels, by_level, *experts)


def _by_expert(rule: Any, shares: np.ndarray) -> tuple[tuple[str, ...], np.ndarray | None]:
    """Names of the experts of a block, and their shares `(experts, sections)`; empty for a single expert."""
    if shares.shape[1] == 1:
        return (), None
    if getattr(rule, "places", ()):
        names = tuple(f"expert {number}" for number in range(shares.shape[1]))
    else:
        names = tuple(f"{base.learning_rate:.3g}" for base in rule.experts)
    return names, shares.T.astype(np.float32)


def _has_levels(cover: Cover) -> bool:
    return hasattr(cover, "length") or isinstance(cover, Compact)


def _level_length(cover: Any, slot: int) -> int:
    return cover.length(slot) if hasattr(cover, "length") else cover.shortest * 2**slot
