"""Tables of numbers for pages and the terminal, as plain records."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Cell:
    """One cell of a table, and whether it is the best of its column."""

    text: str
    best: bool = False
    hint: str = ""


@dataclass(frozen=True)
class Table:
    """A table: headers, and rows of a name and cells. `short` has headers for a narrow terminal."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    short: tuple[str, ...] = ()


@dataclass(frozen=True)
class Titled:
    """A table with its title and the words below it."""

    title: str
    table: Table
    note: str = ""


def number(value: float | None, digits: int = 3) -> str:
    """A number formatted for readers: few digits, an exponent only if it is huge or tiny.

    >>> number(2391.7505), number(17.074), number(0.00012345), number(None)
    ('2392', '17.1', '0.000123', '–')
    """
    if value is None or not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    if -5 < size < 7:
        return f"{value:.{max(0, digits - 1 - size)}f}".replace("-", "−")
    return f"{value:.{digits - 1}e}".replace("-", "−")


def column(
    values: Sequence[float | None], hints: Sequence[str] | None = None, more: Sequence[str] | None = None
) -> list[Cell]:
    """The cells of a column, the lowest in bold; `more` is what stands behind the numbers.

    >>> [(cell.text, cell.best) for cell in column([2.0, None, 1.0])]
    [('2.00', False), ('–', False), ('1.00', True)]
    """
    lowest = number(min((value for value in values if value is not None), default=None))
    nothing = [""] * len(values)
    return [
        Cell(number(value) + after, best=value is not None and number(value) == lowest, hint=hint)
        for value, hint, after in zip(values, hints or nothing, more or nothing, strict=True)
    ]


def plain(value: float | None) -> float | None:
    """A number for JSON: six significant digits; None for NaN and infinities.

    >>> plain(0.123456789), plain(math.nan)
    (0.123457, None)
    """
    return float(f"{value:.6g}") if value is not None and math.isfinite(value) else None


def thinned(count: int, most: int) -> np.ndarray:
    """At most so many places out of `count`, evenly spread, the first and the last among them.

    >>> thinned(10, most=4), thinned(0, most=4)
    (array([0, 3, 6, 9]), array([], dtype=int64))
    """
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int))


def single(values: np.ndarray) -> np.ndarray:
    """Numbers in single precision, enough for a figure; those beyond its range at the end of it.

    >>> single(np.array([1.0, 1e300]))
    array([1.0000000e+00, 3.4028235e+38], dtype=float32)
    """
    most = float(np.finfo(np.float32).max)
    return np.clip(values, -most, most).astype(np.float32)
