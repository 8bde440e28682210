"""How often intervals contained what they were made for, overall and in sliding windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from samuel.core.options import whole_number


@dataclass(frozen=True)
class Coverage:
    """How often intervals contained the truth, and how wide they were.

    Only finite intervals whose label has arrived are counted. A window is so many of them in a row, in the order in
    which their labels arrived. Arrays have the shape of a forecast: `([horizons], [streams])`.

    Attributes:
        target: the coverage that was asked for.
        horizons: how many steps ahead.
        window: intervals in a window.
        count: how many intervals were counted.
        overall: the share of them that contained the truth.
        recent: the same for the last window (all there are, until it is full).
        lowest: the smallest coverage of any full window; nan until there is one.
        highest: the largest.
        width: mean width.
        loss: mean pinball loss of the bounds: small if they are close to the best quantiles.

    >>> from samuel.online.conformal import Conformal
    >>> intervals = Conformal(coverage=0.5, window=4)
    >>> for value in (1.0, 2.0, -1.0, 1.5, 0.5, -2.0, 1.0, 0.5):
    ...     low, high = intervals.predict(0.0)
    ...     intervals.update(value)
    >>> print(intervals.coverage())
    1 ahead: covered 0.571 of 7 (wanted 0.5), 0.500 to 0.750 in windows of 4, width 3.04
    """

    target: float
    horizons: tuple[int, ...]
    window: int
    count: np.ndarray
    overall: np.ndarray
    recent: np.ndarray
    lowest: np.ndarray
    highest: np.ndarray
    width: np.ndarray
    loss: np.ndarray

    def __str__(self) -> str:
        numbers = (self.count, self.overall, self.lowest, self.highest, self.width)
        rows = zip(*(np.reshape(array, (len(self.horizons), -1)) for array in numbers), strict=True)
        lines = []
        for horizon, (count, overall, lowest, highest, width) in zip(self.horizons, rows, strict=True):
            total = int(count.sum())
            weights = count / max(total, 1)
            lines.append(
                f"{horizon} ahead: covered {_mean(overall, weights):.3f} of {total} (wanted {self.target:g}), "
                f"{_extreme(np.fmin, lowest):.3f} to {_extreme(np.fmax, highest):.3f} in windows of {self.window}, "
                f"width {_mean(width, weights):.3g}"
            )
        return "\n".join(lines)


def sliding_coverage(covered: Any, window: int) -> np.ndarray:
    """The share of covered intervals among the last `window`, at every time step.

    Args:
        covered: 1 where an interval contained the truth, 0 where it did not, nan where that is not known; time
            along the first axis, and any axes after it.
        window: how many known outcomes make a window.

    Returns:
        An array of the same shape; nan until a window is full, and where `covered` is nan.

    >>> sliding_coverage([1, 0, 1, 1, 1], window=4)
    array([ nan,  nan,  nan, 0.75, 0.75])
    """
    window = whole_number("window", window, least=1)
    covered = np.asarray(covered, dtype=float)
    if covered.ndim == 0:
        raise ValueError(f"covered needs time along its first axis, got the number {covered}")
    columns = covered.reshape(len(covered), -1)
    shares = np.full_like(columns, np.nan)
    for column, share in zip(columns.T, shares.T, strict=True):
        known = np.flatnonzero(~np.isnan(column))
        hits = np.concatenate([[0.0], np.cumsum(column[known])])
        share[known[window - 1 :]] = (hits[window:] - hits[:-window]) / window
    return shares.reshape(covered.shape)


class Totals(NamedTuple):
    """What there is to report of one horizon: sums, and the coverage of windows; an entry for each stream."""

    count: np.ndarray
    hits: np.ndarray
    width: np.ndarray
    loss: np.ndarray
    recent: np.ndarray
    lowest: np.ndarray
    highest: np.ndarray


class Tally:
    """Counts the intervals of one horizon as their labels arrive, in bounded memory."""

    def __init__(self, streams: int, window: int) -> None:
        self.window = window
        self._count = np.zeros(streams, dtype=int)
        self._hits, self._width, self._loss, self._inside = np.zeros((4, streams))
        self._lowest, self._highest = np.full((2, streams), np.nan)
        self._last = np.zeros((streams, window), dtype=bool)

    def add(self, known: np.ndarray, covered: np.ndarray, width: np.ndarray, loss: np.ndarray) -> None:
        """Count one interval of each stream where `known`."""
        streams = np.flatnonzero(known)
        covered = covered[streams]
        place = self._count[streams] % self.window
        self._inside[streams] += covered.astype(float) - self._last[streams, place]  # an unused place holds False
        self._last[streams, place] = covered
        self._count[streams] += 1
        self._hits[streams] += covered
        self._width[streams] += width[streams]
        self._loss[streams] += loss[streams]
        full = streams[self._count[streams] >= self.window]
        share = self._inside[full] / self.window
        self._lowest[full] = np.fmin(self._lowest[full], share)
        self._highest[full] = np.fmax(self._highest[full], share)

    def totals(self) -> Totals:
        """The numbers so far."""
        recent = _ratio(self._inside, np.minimum(self._count, self.window))
        return Totals(self._count, self._hits, self._width, self._loss, recent, self._lowest, self._highest)


def totals(covered: np.ndarray, width: np.ndarray, loss: np.ndarray, window: int) -> Totals:
    """The same numbers from arrays over time, `(times, streams)`, where `covered` is nan for what does not count."""
    known = ~np.isnan(covered)
    hits, widths, losses = (np.where(known, part, 0.0) for part in (covered, width, loss))
    shares = sliding_coverage(covered, window)
    later = np.cumsum(known[::-1], axis=0)[::-1] - known  # known outcomes after this one
    last = known & (later < window)
    return Totals(
        count=known.sum(axis=0),
        hits=hits.sum(axis=0),
        width=widths.sum(axis=0),
        loss=losses.sum(axis=0),
        recent=_ratio(np.where(last, hits, 0.0).sum(axis=0), last.sum(axis=0)),
        lowest=np.fmin.reduce(shares, axis=0),
        highest=np.fmax.reduce(shares, axis=0),
    )


def summary(
    target: float, horizons: tuple[int, ...], shape: tuple[int, ...], window: int, parts: list[Totals]
) -> Coverage:
    """The totals of all horizons as one record, with arrays of the given shape."""

    def gathered(arrays: list[np.ndarray]) -> np.ndarray:
        return np.stack(arrays).reshape(shape)

    return Coverage(
        target=target,
        horizons=horizons,
        window=window,
        count=gathered([part.count for part in parts]),
        overall=gathered([_ratio(part.hits, part.count) for part in parts]),
        recent=gathered([part.recent for part in parts]),
        lowest=gathered([part.lowest for part in parts]),
        highest=gathered([part.highest for part in parts]),
        width=gathered([_ratio(part.width, part.count) for part in parts]),
        loss=gathered([_ratio(part.loss, part.count) for part in parts]),
    )


def _ratio(part: np.ndarray, count: np.ndarray) -> np.ndarray:
    return np.where(count > 0, part / np.maximum(count, 1), np.nan)


def _mean(values: np.ndarray, weights: np.ndarray) -> float:
    return float(np.sum(np.where(weights > 0, values * weights, 0.0))) if weights.any() else np.nan


def _extreme(of: Any, values: np.ndarray) -> float:
    return float(of.reduce(values))
