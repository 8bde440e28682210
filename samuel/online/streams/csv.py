"""Streams from CSV files."""

from __future__ import annotations

import csv
import importlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import IO, Any

from samuel.core.options import one_of
from samuel.online.streams.encode import DECIMAL_COMMA, Encoded, Missing, Options, Row, Task

PACKED = {".gz": "gzip", ".bz2": "bz2", ".xz": "lzma"}
"""Modules for compressed files; imported when needed, since not every Python is built with all of them."""
MARK = b"\xef\xbb\xbf"
"""The byte-order mark of UTF-8."""


class CsvStream(Encoded):
    """A CSV file as a stream: each row a round, in the order of the file.

    The first line names the columns; the file is UTF-8, plain or compressed (.gz, .bz2, .xz). It is read once, row
    by row, and kept as numbers in a temporary file on disk, so that its length does not matter for memory. One
    column is the target, all others are features unless `columns` or `drop` say otherwise:

    - A column whose first value is a number must hold numbers. With `scale=True` they are standardised by mean and
      deviation of the *rows before*: nothing is used that was not known at the time. They are 0 until there is a
      deviation, and clipped at 5 deviations, for columns that were constant for long.
    - Any other column holds words, at most 50 of them, and is one-hot encoded.
    - A first column without a name is the index that `DataFrame.to_csv` writes, and is left out.
    - With `intercept=True` the last feature is 1 in every round.

    For regression and quantiles the target is standardised by the rows before, too (and not clipped), so that decisions
    of moderate size suit any file; `target_scale` inverts this. The first 10 rows (half of the rows, in a file of less
    than 20; more if the target is constant in them) are not rounds: they only determine its scale. With `scale=False`
    numbers are unchanged and every row is a round. For classification the target has two values, and every row is a
    round. `encodings` describes each column.

    Args:
        path: the file.
        target: the column to forecast.
        task: "regression" (squared loss), "classification" (logistic loss) or "quantile" (pinball loss).
        level: the quantile, for `task="quantile"`.
        columns: the columns to use as features; all others by default.
        drop: columns to drop.
        missing: treatment of missing values (an empty cell, NA, NaN, null, ?): "refuse" the file, "skip" the row, or
            impute the "past mean" of the column (for words: all zeros). Rows without a target are always skipped.
        scale: standardise numbers by the past.
        intercept: add a feature that is always 1.
        most_features: maximum number of features.
        separator: between two cells.
        decimal: decimal mark, "." or ",".
        progress: called with the number of rows read.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: for a file that cannot be used, with the line, the column and the value.

    >>> import tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "weather.csv"
    >>> _ = file.write_text("sky,wind,rain\\nclear,3,no\\ncloudy,5,yes\\ncloudy,4,yes\\nclear,2,no\\n")
    >>> stream = CsvStream(file, target="rain", task="classification")
    >>> stream.rounds, stream.names, stream.classes
    (4, ('sky=clear', 'sky=cloudy', 'wind', 'intercept'), ('no', 'yes'))
    >>> features, labels = stream.data(2, 4)
    >>> features  # the wind by mean and deviation of 3, 5 and of 3, 5, 4
    array([[ 0.        ,  1.        ,  0.        ,  1.        ],
           [ 1.        ,  0.        , -2.44948974,  1.        ]])
    >>> labels
    array([ 1., -1.])
    """

    def __init__(
        self,
        path: str | PathLike[str],
        target: str,
        task: Task = "regression",
        *,
        level: float = 0.5,
        columns: Sequence[str] | None = None,
        drop: Sequence[str] = (),
        missing: Missing = "refuse",
        scale: bool = True,
        intercept: bool = True,
        most_features: int = 100,
        separator: str = ",",
        decimal: str = ".",
        progress: Callable[[int], None] | None = None,
    ) -> None:
        options = Options(task, level, columns, drop, missing, scale, intercept, most_features)
        if not isinstance(separator, str) or len(separator) != 1 or separator in '"\r\n':
            raise ValueError(f"separator must be a single character, got {separator!r}")
        one_of("decimal", decimal, (".", ","))
        self.path: Path = Path(path)
        self._remake = (fspath(path), target, options, separator, decimal)
        name = str(path)
        file, damaged = _opened(self.path)
        with file:
            try:
                rows = _rows(file, name, separator)
                header = _header(rows, name, target, separator)
                even = _even(rows, name, len(header))
                even = even if decimal == "." else _with_points(even, name)
                super().__init__(name, header, target, even, options, progress)
            except damaged as error:
                raise ValueError(f"{name}: the file cannot be read to its end: {error}") from None

    def __reduce__(self) -> Any:
        """A copy reads the file again: the temporary file belongs to the process."""
        path, target, options, separator, decimal = self._remake
        return partial(CsvStream, **vars(options), separator=separator, decimal=decimal), (path, target)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path.name}: {self.rounds} rounds, {self.dim} features, {self.loss}>"


def _opened(path: Path) -> tuple[IO[bytes], tuple[type[Exception], ...]]:
    """A file to read, and the exceptions that mean it is damaged."""
    try:
        if path.is_dir():
            raise ValueError(f"{path} is a folder; a CSV file is wanted")
        if not path.exists():
            raise FileNotFoundError(f"there is no file {path}")
    except FileNotFoundError:
        raise
    except OSError as error:  # a name that no file can have
        raise ValueError(f"{path}: the file cannot be read: {error.strerror or error}") from None
    packed = PACKED.get(path.suffix.lower())
    try:
        if packed is None:
            return path.open("rb"), (OSError,)
        module = importlib.import_module(packed)
        errors = [getattr(module, "LZMAError", OSError), getattr(getattr(module, "zlib", None), "error", OSError)]
        return module.open(path, "rb"), (OSError, EOFError, *errors)
    except ImportError:
        raise ValueError(f"{path}: this Python cannot read {path.suffix} files; unpack it first") from None
    except OSError as error:
        raise ValueError(f"{path}: the file cannot be read: {error.strerror or error}") from None


def _lines(file: IO[bytes], name: str) -> Iterator[str]:
    for number, line in enumerate(file, 1):
        if number == 1 and line.startswith(MARK):
            line = line[len(MARK) :]
        try:
            yield line.decode()
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{name}: line {number}, byte {error.start + 1} of the line is 0x{line[error.start]:02x}, which is "
                "not UTF-8; save the file as UTF-8"
            ) from None


def _rows(file: IO[bytes], name: str, separator: str) -> Iterator[tuple[int, list[str]]]:
    """The rows that are not empty, each with the line on which it begins."""
    reader = csv.reader(_lines(file, name), delimiter=separator, strict=True)
    line = 1
    while True:
        try:
            row = next(reader, None)
        except csv.Error as error:
            to = f" to {reader.line_num}" if reader.line_num > line else ""
            old = "new-line character" in str(error)
            reason = "lines end with a carriage return alone; save the file with usual line ends" if old else error
            raise ValueError(f"{name}: line {line}{to}: {reason}") from None
        if row is None:
            return
        if len(row) > 1 or any(cell.strip() for cell in row):
            yield line, row
        line = reader.line_num + 1


def _header(rows: Iterator[tuple[int, list[str]]], name: str, target: str, separator: str) -> list[str]:
    _, header = next(rows, (0, None))
    if header is None:
        raise ValueError(f"{name} is empty; its first line must name the columns")
    header = [cell.strip() for cell in header]
    other = next((mark for mark in ";\t|," if mark != separator and mark in header[0]), None)
    if len(header) == 1 and other and target != header[0]:
        raise ValueError(
            f"{name}: the first line has one column only, {header[0]!r}; if cells are separated by {other!r}, "
            f"say separator={other!r}"
        )
    return header


def _even(rows: Iterator[tuple[int, list[str]]], name: str, cells: int) -> Iterator[Row]:
    """Rows that have as many cells as the header."""
    for line, row in rows:
        if len(row) != cells:
            raise ValueError(f"{name}: line {line} has {len(row)} cell{'s' * (len(row) > 1)}, and the header {cells}")
        yield f"line {line}", row


def _with_points(rows: Iterator[Row], name: str) -> Iterator[Row]:
    """Rows in which numbers have a decimal point where they had a comma."""
    for place, row in rows:
        for cell in row:
            if "." in cell and cell.replace(".", "", 1).strip(" +-").isdigit():
                raise ValueError(
                    f"{name}: {place}: {cell!r} has a decimal point, and decimal=',' says that numbers have a comma"
                )
        yield place, [cell.replace(",", ".") if DECIMAL_COMMA.fullmatch(cell) else cell for cell in row]
