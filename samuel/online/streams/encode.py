"""Encode tables as streams of numbers: one pass, bounded memory, past rows only."""

from __future__ import annotations

import difflib
import math
import re
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal

import numpy as np

from samuel.core.options import one_of
from samuel.online.learner import whole_number
from samuel.online.losses import Data, LogisticLoss, LossFamily, PinballLoss, SquaredLoss
from samuel.online.streams.base import Stream

Task = Literal["regression", "classification", "quantile"]
Missing = Literal["refuse", "skip", "past mean"]
TASKS = ("regression", "classification", "quantile")
MISSING = ("refuse", "skip", "past mean")
Row = tuple[str, Sequence[str]]
"""Location of a row ("line 7"), and its cells."""

NO_VALUE = frozenset({"", "?", "na", "n/a", "nan", "null", "none"})
"""Case-insensitive markers of missing values."""
MOST_CATEGORIES = 50
"""Maximum number of categories of a column."""
FURTHEST = 5.0
"""Deviations from the past mean at which a standardised feature is clipped."""
WARM_UP = 10
"""Rows that only determine the scale of the target."""
CELLS_AT_ONCE = 20_000
"""Cells held in memory as text."""
LARGEST = 1e100
"""Numbers beyond this cannot be squared and summed."""
DECIMAL_COMMA = re.compile(r"\s*[+-]?\d*,\d+(e[+-]?\d+)?\s*", re.IGNORECASE)
"""Pattern of numbers with a decimal comma."""


@dataclass(frozen=True)
class Options:
    """Options of the encoding; the arguments of `CsvStream`."""

    task: Task = "regression"
    level: float = 0.5
    columns: Sequence[str] | None = None
    drop: Sequence[str] = ()
    missing: Missing = "refuse"
    scale: bool = True
    intercept: bool = True
    most_features: int = 100

    def __post_init__(self) -> None:
        one_of("task", self.task, TASKS)
        one_of("missing", self.missing, MISSING)
        whole_number("most_features", self.most_features, least=1)
        _ = self.loss  # refuses an invalid level
        for name in ("columns", "drop"):
            value = getattr(self, name)
            if isinstance(value, str) or not (value is None or all(isinstance(entry, str) for entry in value)):
                raise ValueError(f"{name} must be a list of column names, got {value!r}")
            object.__setattr__(self, name, value if value is None else tuple(value))

    @property
    def loss(self) -> LossFamily:
        """The losses of the task."""
        if self.task == "regression":
            return SquaredLoss()
        return LogisticLoss() if self.task == "classification" else PinballLoss(self.level)


@dataclass
class Column:
    """A column of a table, and its statistics."""

    name: str
    place: int
    """Index of the cell in a row."""
    words: bool | None = None
    """Whether it holds words, not numbers; None before the first value."""
    codes: dict[str, int] = field(default_factory=dict)
    """The words seen, in order of appearance, and their numbers."""
    low: float = math.inf
    """The least number, or number of a word, in rows that are rounds."""
    high: float = -math.inf
    """The greatest of them."""
    missing: int = 0

    @property
    def constant(self) -> bool:
        """Whether rows that are rounds have at most one value."""
        return not self.low < self.high


class Encoded(Stream):
    """A stream from a table; the base class of `CsvStream` and `RiverStream`.

    Attributes:
        names: the features, one for each coordinate of a decision.
        classes: for classification, the two values of the target: the first is -1 and the second 1.
        missing: how many values were missing, by column.
        skipped: number of rows skipped because of missing values.
        warm_up: rows before the first round, which only determine the scale of the target.
        encodings: by name of column: "number", "words" with their number, "target", or why it is dropped. An unnamed
            first column, as `DataFrame.to_csv` writes it, is an index and has the name "".
    """

    names: tuple[str, ...]
    classes: tuple[str, str] | None
    missing: dict[str, int]
    skipped: int
    warm_up: int
    encodings: dict[str, str]

    def __init__(
        self,
        source: str,
        header: Sequence[str],
        target: str,
        rows: Iterator[Row],
        options: Options,
        progress: Callable[[int], None] | None,
    ) -> None:
        table = _Table(source, header, target, options)
        table.read(rows, progress)
        self.loss: LossFamily = options.loss
        self.names = (*table.feature_names, *(("intercept",) if options.intercept else ()))
        self.dim: int = len(self.names)
        self.classes = table.classes
        self.missing = {column.name: column.missing for column in (*table.features, table.target) if column.missing}
        self.skipped = table.skipped
        self.warm_up = table.warm_up
        self.encodings = {name: table.encoding(name) for name in header}
        self.rounds: int | None = table.rows - table.warm_up
        self._table = table

    def data(self, start: int, stop: int) -> Data:
        table = self._table
        rows = self._stored(start, stop)
        features = np.ones((len(rows), self.dim))
        at = 0
        for number, column in enumerate(table.features):
            if column.words:
                # A missing word has no code (NaN), and so is all zeros.
                features[:, at : at + len(column.codes)] = rows[:, number, None] == np.arange(len(column.codes))
                at += len(column.codes)
            else:
                # Values missing before the first value of their column could not be standardised.
                features[:, at] = np.nan_to_num(rows[:, number], nan=0.0)
                at += 1
        target = rows[:, len(table.features)]
        return features, target if table.labels is None else table.labels[target.astype(int)]

    def target_scale(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Mean and deviation by which the targets of rounds `start..stop - 1` were standardised.

        A forecast `f` of a standardised target is the forecast `mean + deviation * f` in the units of the table.
        """
        if not self._table.scaled_target:
            return np.zeros(stop - start), np.ones(stop - start)
        rows = self._stored(start, stop)
        return rows[:, -2], rows[:, -1]

    def _stored(self, start: int, stop: int) -> np.ndarray:
        if not 0 <= start <= stop <= (self.rounds or 0):
            raise ValueError(f"rounds need 0 <= start <= stop <= {self.rounds}, got start={start} and stop={stop}")
        return self._table.stored(start + self.warm_up, stop + self.warm_up)


class _Table:
    """A table whose rows are read once, and kept as numbers in a temporary file.

    A stored row has a number for each feature (standardised, or the code of a word), the target (standardised, or
    the code of a class), and for a standardised target the mean and the deviation that were used.
    """

    def __init__(self, source: str, header: Sequence[str], target: str, options: Options) -> None:
        self.source = source
        self.options = options
        self.cells = len(header)
        self._choose(list(header), target)
        self.scaled_target = options.scale and options.task != "classification"
        self.width = len(self.features) + (3 if self.scaled_target else 1)
        self.rows = self.skipped = self.warm_up = 0
        self.first_missing: str | None = None
        self.class_names: list[str] = []
        self.classes: tuple[str, str] | None = None
        self.labels: np.ndarray | None = None
        self._past = _Past(len(self.features) + 1)
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the stream
        weakref.finalize(self, self._file.close)
        self._first_scaled: int | None = None

    def error(self, message: str) -> ValueError:
        """An error that names the table."""
        return ValueError(f"{self.source}: {message}")

    def _choose(self, header: list[str], target: str) -> None:
        """Which columns are used."""
        seen: set[str] = set()
        for number, name in enumerate(header, 1):
            if not name and number == 1:
                continue  # the index of a data frame
            if not name:
                raise self.error(f"column {number} of {len(header)} has no name in the header")
            if name in seen:
                raise self.error(f"two columns are called {name!r}; every column needs a name of its own")
            seen.add(name)
        options = self.options
        self._known(target, header, "the target")
        for option in ("columns", "drop"):
            for name in getattr(options, option) or ():
                self._known(name, header, f"given as {option}=")
                if name == target:
                    raise self.error(f"{name!r} is the target, so it cannot be given as {option}=")
        wanted = seen if options.columns is None else set(options.columns)
        self.target = Column(target, header.index(target), words=options.task == "classification")
        self.features = [
            Column(name, number)
            for number, name in enumerate(header)
            if name in wanted and name not in options.drop and name != target
        ]
        if not self.features:
            raise self.error(f"there is no column left to learn from beside the target {target!r}")
        self._check_width()

    def encoding(self, name: str) -> str:
        """The encoding of a column."""
        if name == self.target.name:
            return "target"
        column = next((column for column in self.features if column.name == name), None)
        if column is None:
            return "left out, as asked for" if name else "left out: the first column has no name, so it is an index"
        return f"words ({len(column.codes)})" if column.words else "number"

    def _known(self, name: str, header: list[str], role: str) -> None:
        if name and name in header:
            return
        if not isinstance(name, str):
            raise self.error(f"a column is named by a text, got {name!r}, {role}")
        folded = {known.casefold(): known for known in header}
        close = [folded[match] for match in difflib.get_close_matches(name.casefold(), folded, n=1)]
        guess = f" Did you mean {close[0]!r}?" if close else ""
        raise self.error(f"there is no column {name!r}, {role}.{guess} The columns are {_listed(header)}")

    def _check_width(self) -> None:
        """Refuse too many features as soon as possible."""
        width = sum(max(len(column.codes), 1) for column in self.features)
        if width > self.options.most_features:
            words = [column.name for column in self.features if len(column.codes) > 1]
            reason = f" (each value of {_listed(words)} is a feature of its own)" if words else ""
            raise self.error(
                f"there are {width} features or more{reason}, and at most {self.options.most_features} are allowed. "
                "Choose columns with columns= or drop=, or allow more with most_features="
            )

    def read(self, rows: Iterator[Row], progress: Callable[[int], None] | None) -> None:
        """Read all rows, check them and store them."""
        at_once = max(1, CELLS_AT_ONCE // self.cells)
        read = 0
        while chunk := list(islice(rows, at_once)):
            places, cells = zip(*chunk, strict=True)
            self._store(places, list(zip(*cells, strict=True)))
            read += len(chunk)
            if progress is not None:
                progress(read)
        self._check_all(read)
        if self.scaled_target:
            first = self.rows if self._first_scaled is None else self._first_scaled
            self.warm_up = max(min(WARM_UP, self.rows // 2), first)
        if self.rows - self.warm_up < 1:
            raise self.error(
                f"no row is left once the scale of the target {self.target.name!r} is known, for which the rows before "
                "must have two values; give scale=False to take the target as it is"
            )
        self._file.flush()

    def _store(self, places: Sequence[str], cells: list[Sequence[str]]) -> None:
        columns = [*self.features, self.target]
        numbers = np.stack([self._numbers(column, cells[column.place], places) for column in columns], axis=1)
        if any(column.words for column in self.features):
            self._check_width()
        absent = np.isnan(numbers)
        if absent.any():
            self._count_missing(columns, absent, places)
            # Without a target there is no loss, so the row is skipped whatever the option.
            keep = ~(absent if self.options.missing == "skip" else absent[:, -1:]).any(axis=1)
            self.skipped += int((~keep).sum())
            numbers = numbers[keep]
        if not len(numbers):
            return
        for column, known in zip(columns, numbers.T, strict=True):
            column.low = min(column.low, float(np.fmin.reduce(known, initial=math.inf)))
            column.high = max(column.high, float(np.fmax.reduce(known, initial=-math.inf)))
        self._file.write(self._scaled(numbers).tobytes())
        self.rows += len(numbers)

    def _numbers(self, column: Column, cells: Sequence[str], places: Sequence[str]) -> np.ndarray:
        """A number for every cell: its value, or the code of its word; nan for a missing one."""
        if column.words is None:
            first = next((cell for cell in cells if not _absent(cell)), None)
            if first is None:
                return np.full(len(cells), math.nan)
            column.words = _number(first) is None
            if column.words and DECIMAL_COMMA.fullmatch(first) and column is not self.target:
                place = places[cells.index(first)]
                raise self.error(
                    f"{place}, column {column.name!r}: {_shown(first)} has a comma where numbers have a point; if "
                    "it is a decimal comma, say decimal=','; if it separates thousands, write the numbers without; or "
                    f"leave the column out with drop=[{column.name!r}]"
                )
        if column.words:
            try:
                return np.array([column.codes[cell] for cell in cells], dtype=float)
            except KeyError:
                return np.array([self._code(column, cell, place) for cell, place in zip(cells, places, strict=True)])
        try:
            numbers = np.fromiter(map(float, cells), dtype=float, count=len(cells))
        except ValueError:
            pass
        else:
            if (np.abs(numbers) <= LARGEST).all() and "_" not in "".join(cells):
                return numbers
        return np.array([self._value(column, cell, place) for cell, place in zip(cells, places, strict=True)])

    def _value(self, column: Column, cell: str, place: str) -> float:
        if _absent(cell):
            return math.nan
        value = _number(cell)
        if value is None:
            hint = (
                "task='classification' takes a target of two words"
                if column is self.target
                else f"correct it, or leave the column out with drop=[{column.name!r}]"
            )
            if DECIMAL_COMMA.fullmatch(cell):
                hint = "if it is a decimal comma, say decimal=','; if it separates thousands, write numbers without"
            raise self.error(f"{place}, column {column.name!r}: {_shown(cell)} is not a number; {hint}")
        if not abs(value) <= LARGEST:
            reason = "too large to compute with" if math.isfinite(value) else "not a finite number"
            raise self.error(f"{place}, column {column.name!r}: {_shown(cell)} is {reason}")
        return value

    def _code(self, column: Column, cell: str, place: str) -> float:
        code = column.codes.get(cell)
        if code is not None:
            return code
        if _absent(cell):
            return math.nan
        word = cell.strip()
        if column is self.target:
            return self._class(column, word, place)
        if word not in column.codes:
            if len(column.codes) == MOST_CATEGORIES:
                odd = " (numbers are written like 1234.5, without signs that separate thousands, units or percent)"
                raise self.error(
                    f"{place}, column {column.name!r}: {_shown(word)} is the {MOST_CATEGORIES + 1}st value of this "
                    f"column of words, and at most {MOST_CATEGORIES} are encoded; leave it out with "
                    f"drop=[{column.name!r}]{odd * any(sign.isdigit() for sign in word)}"
                )
            column.codes[word] = len(column.codes)
        return column.codes[word]

    def _class(self, column: Column, word: str, place: str) -> float:
        """The code of a class; 1 and 1.0 are the same one."""
        value = _number(word)
        for known, name in enumerate(self.class_names):
            if name == word or (value is not None and _number(name) == value):
                column.codes[word] = known
                return known
        if len(self.class_names) == 2:
            first, second = self.class_names
            hint = " Is it a number to be forecast? Then task='regression'." if value is not None else ""
            raise self.error(
                f"{place}, column {column.name!r}: {_shown(word)} is a third class beside {_shown(first)} and "
                f"{_shown(second)}; classification is between two.{hint}"
            )
        self.class_names.append(word)
        column.codes[word] = len(self.class_names) - 1
        return column.codes[word]

    def _count_missing(self, columns: list[Column], absent: np.ndarray, places: Sequence[str]) -> None:
        for column, count in zip(columns, absent.sum(axis=0), strict=True):
            column.missing += int(count)
        if self.first_missing is None:
            row = int(absent.any(axis=1).argmax())
            self.first_missing = f"{places[row]}, column {columns[int(absent[row].argmax())].name!r}"

    def _scaled(self, numbers: np.ndarray) -> np.ndarray:
        """Rows as they are stored, standardised by the rows before each."""
        options = self.options
        mean, deviation = self._past.then(numbers)
        words = np.array([column.words is not False for column in self.features])  # or not known yet
        features, centre, spread = numbers[:, :-1], mean[:, :-1], deviation[:, :-1]
        absent = np.isnan(features) & ~words
        if options.scale:
            usable = np.where(spread > 0, spread, np.inf)  # the scale is not known yet
            standard = np.clip((features - centre) / usable, -FURTHEST, FURTHEST)
            features = np.where(words, features, np.where(absent, 0.0, standard))
        else:
            features = np.where(absent, centre, features)
        target = numbers[:, -1:]
        if not self.scaled_target:
            return np.ascontiguousarray(np.concatenate([features, target], axis=1))
        centre, spread = mean[:, -1:], deviation[:, -1:]
        if self._first_scaled is None and (spread > 0).any():
            self._first_scaled = self.rows + int((spread > 0).argmax())
        spread = np.where(spread > 0, spread, 1.0)
        return np.ascontiguousarray(np.concatenate([features, (target - centre) / spread, centre, spread], axis=1))

    def _check_all(self, read: int) -> None:
        """Checks after the last row."""
        missing = sum(column.missing for column in (*self.features, self.target))
        if missing and self.options.missing == "refuse":
            raise self.error(
                f"{self.first_missing}: there is no value, and so in {missing:,} cells in all "
                f"({', '.join(f'{c.name!r}: {c.missing:,}' for c in (*self.features, self.target) if c.missing)}). "
                "Leave such rows out with missing='skip', put the mean of the rows before in their place with "
                "missing='past mean', or leave columns out with drop="
            )
        if self.rows < 2:
            kept = f", of which {self.rows} can be used" if self.rows < read else ""
            raise self.error(
                f"there {'is' if read == 1 else 'are'} {read or 'no'} row{'s' * (read != 1)} of data{kept}; "
                "a stream needs at least 2"
            )
        for column in self.features:
            if column.constant:
                what = "no value at all" if column.low > column.high else "the same value in every row"
                raise self.error(
                    f"column {column.name!r} has {what}, so nothing can be learned from it; leave it out with "
                    f"drop=[{column.name!r}]"
                )
        if self.target.constant:
            raise self.error(f"the target {self.target.name!r} is the same in every row: there is nothing to learn")
        if self.options.task == "classification":
            # By number if both are numbers, else by alphabet.
            numbers = [_number(name) for name in self.class_names]
            first, second = sorted(self.class_names, key=None if None in numbers else float)
            self.classes = first, second
            self.labels = np.array([-1.0 if name == first else 1.0 for name in self.class_names])
        self._check_width()

    @property
    def feature_names(self) -> list[str]:
        """A name for every feature."""
        named = [[f"{c.name}={word}" for word in c.codes] if c.words else [c.name] for c in self.features]
        return [name for names in named for name in names]

    def stored(self, start: int, stop: int) -> np.ndarray:
        """Stored rows `start..stop - 1`."""
        self._file.seek(start * self.width * 8)
        numbers = np.frombuffer(self._file.read((stop - start) * self.width * 8))
        return numbers.reshape(stop - start, self.width)


class _Past:
    """Mean and deviation of all rows before each row, for rows that come in chunks."""

    def __init__(self, columns: int) -> None:
        self.origin = np.full(columns, math.nan)
        self.sums = np.zeros((3, columns))  # of ones, values and squares

    def then(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For each of the next rows the mean and the deviation of those before it; both 0 where there are none."""
        known = ~np.isnan(numbers)
        first = np.take_along_axis(numbers, known.argmax(axis=0)[None], axis=0)[0]
        self.origin = np.where(np.isnan(self.origin), first, self.origin)
        # Relative to the first value of the column: squares of large values would lose small differences.
        origin = np.where(np.isnan(self.origin), 0.0, self.origin)
        values = np.where(known, numbers - origin, 0.0)
        sums = np.cumsum(np.concatenate([self.sums[None], np.stack([known, values, values**2], axis=1)]), axis=0)
        self.sums = sums[-1]
        count, total, squares = sums[:-1].transpose(1, 0, 2)
        count = np.maximum(count, 1.0)
        mean = total / count
        deviation = np.sqrt(np.maximum(squares / count - mean**2, 0.0))
        return np.where(sums[:-1, 0] > 0, mean + origin, 0.0), deviation


def _absent(cell: str) -> bool:
    return cell.strip().casefold() in NO_VALUE


def _number(cell: str) -> float | None:
    """The number in a cell, or None."""
    try:
        return None if "_" in cell else float(cell)
    except ValueError:
        return None


def _shown(cell: str) -> str:
    return repr(cell if len(cell) <= 40 else cell[:37] + "...")


def _listed(names: Iterable[str], most: int = 20) -> str:
    names = list(names)
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + rest
