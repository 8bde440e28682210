"""Streams from the data sets of river."""

from __future__ import annotations

import contextlib
import datetime
import inspect
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any

from samuel.core.options import one_of
from samuel.online.learner import whole_number
from samuel.online.streams.encode import TASKS, Encoded, Missing, Options, Row, Task

TARGET = "the target"
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class RiverStream(Encoded):
    """A data set of [river](https://riverml.xyz) as a stream; river must be installed.

    `river_datasets()` lists those that come with river, for regression or for two classes. Rows are encoded as in
    `CsvStream`; dates are numbers of days.

    Args:
        dataset: the name of a data set that comes with river, such as "Phishing"; or any data set of river's, such
            as one that you have downloaded.
        task: "regression", "classification" or "quantile"; what the data set is made for by default.
        level: which quantile, for `task="quantile"`.
        columns: the features to use; all of them by default.
        drop: features to leave out.
        missing: "refuse", "skip" or "past mean".
        scale: standardise numbers by the past.
        intercept: add a feature that is always 1.
        most_features: refuse a data set that makes more features than this.
        rows: number of rows; all by default. Required for data sets without an end.
        progress: called with the number of rows read.

    Raises:
        ValueError: if river is not installed, or the data set cannot be used.

    >>> import importlib.util
    >>> if importlib.util.find_spec("river"):
    ...     stream = RiverStream("Phishing")
    ...     assert (stream.rounds, stream.dim, stream.classes) == (1250, 10, ("0", "1"))
    """

    def __init__(
        self,
        dataset: Any,
        task: Task | None = None,
        *,
        level: float = 0.5,
        columns: Sequence[str] | None = None,
        drop: Sequence[str] = (),
        missing: Missing = "refuse",
        scale: bool = True,
        intercept: bool = True,
        most_features: int = 100,
        rows: int | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        if task is not None:
            one_of("task", task, TASKS)
        if rows is not None:
            whole_number("rows", rows, least=2)
        data = _dataset(dataset)
        name = type(data).__name__
        made_for = _task(data)
        if task is None and made_for is None:
            raise ValueError(
                f"{name} is made for {data.task.lower()}; streams are for regression or for two classes: "
                f"{', '.join(river_datasets())}"
            )
        chosen: Task = task or made_for or "regression"
        options = Options(chosen, level, columns, drop, missing, scale, intercept, most_features)
        if rows is None and data.n_samples is None:
            raise ValueError(f"{name} has no end: give the number of rows, as in rows=10_000")
        self.name = name
        self._remake = (dataset, options, rows)
        with _closing(iter(data)) as pairs:
            pairs = islice(pairs, rows)
            first = next(pairs, None)
            if first is None:
                raise ValueError(f"{name} has no rows")
            keys = list(first[0])
            header = [*map(str, keys), TARGET]
            super().__init__(name, header, TARGET, _rows(chain([first], pairs), keys), options, progress)

    def __reduce__(self) -> Any:
        """A copy reads the data set again: the temporary file belongs to the process."""
        dataset, options, rows = self._remake
        return partial(RiverStream, **vars(options), rows=rows), (dataset,)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {self.rounds} rounds, {self.dim} features, {self.loss}>"


def river_datasets() -> tuple[str, ...]:
    """The names of the data sets that come with river and that `RiverStream` can play.

    >>> import importlib.util
    >>> if importlib.util.find_spec("river"):
    ...     assert "Phishing" in river_datasets()
    """
    return tuple(sorted(name for name, kind in _packaged().items() if _task(kind()) is not None))


def _river() -> Any:
    try:
        from river import datasets
    except ImportError:
        raise ValueError("the data sets of river need river, which is not installed: pip install river") from None
    return datasets


def _packaged() -> dict[str, Any]:
    """The data sets whose file comes with river: nothing is ever downloaded."""
    datasets = _river()
    base = datasets.base
    return {
        name: kind
        for name, kind in inspect.getmembers(datasets, inspect.isclass)
        if issubclass(kind, base.FileDataset) and not issubclass(kind, base.RemoteDataset)
    }


def _dataset(dataset: Any) -> Any:
    base = _river().base
    if isinstance(dataset, str):
        kind = _packaged().get(dataset)
        if kind is None:
            other = getattr(_river(), dataset, None)
            reason = "is not among the data sets that come with river"
            if inspect.isclass(other) and issubclass(other, base.RemoteDataset):
                reason = f"has to be downloaded first: call river.datasets.{dataset}().download() and pass the object"
            raise ValueError(f"{dataset!r} {reason}; those that need no download: {', '.join(river_datasets())}")
        return kind()
    if not isinstance(dataset, base.Dataset):
        raise ValueError(f"dataset must be a name or a data set of river's, got {dataset!r}")
    if isinstance(dataset, base.RemoteDataset) and not dataset.is_downloaded:
        raise ValueError(f"{type(dataset).__name__} is not downloaded yet: call its download() first")
    return dataset


def _task(dataset: Any) -> Task | None:
    """The task of a data set, if it is supported."""
    base = _river().base
    tasks: dict[str, Task] = {base.REG: "regression", base.BINARY_CLF: "classification"}
    return tasks.get(dataset.task)


@contextlib.contextmanager
def _closing(pairs: Iterator[Any]) -> Iterator[Iterator[Any]]:
    """The rows of a data set; its file is closed afterwards even if rows are left."""
    try:
        yield pairs
    finally:
        with warnings.catch_warnings():
            # river closes its file at the end of the rows only, and leaves the rest to the garbage collector.
            warnings.simplefilter("ignore", ResourceWarning)
            if isinstance(pairs, Generator):
                pairs.close()


def _rows(pairs: Iterator[tuple[dict[Any, Any], Any]], keys: list[Any]) -> Iterator[Row]:
    for number, (features, target) in enumerate(pairs, 1):
        yield f"row {number}", [*(_cell(features.get(key)) for key in keys), _cell(target)]


def _cell(value: Any) -> str:
    """A value as it would be written in a file."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, datetime.date):
        if not isinstance(value, datetime.datetime):
            value = datetime.datetime(value.year, value.month, value.day)
        if value.tzinfo is None:
            value = value.replace(tzinfo=datetime.UTC)
        return repr((value - EPOCH).total_seconds() / 86400)
    return str(value)
