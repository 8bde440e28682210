"""The settings of a contest: validated at construction, with the command that repeats it."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from samuel.online.play import WORTH_COMPILING
from samuel_lab.play.arenas import ALL, DEFAULT_STREAMS, ONE_DIMENSION, STREAMS, Table
from samuel_lab.play.cast import LEARNERS

FEWEST_ROUNDS, MOST_ROUNDS = 256, 65_536
MOST_DIM = 100
MOST_SEEDS = 100
MOST_JOBS = 256
BACKENDS = ("auto", "jax", "numpy")


@dataclass(frozen=True)
class Plan:
    """Settings of a contest: streams, learners and rounds.

    Args:
        streams: names from `STREAMS`.
        learners: names from `LEARNERS`, for every stream; None for the defaults of each stream.
        rounds: length of the runs; tables have their own.
        dim: dimension of the decisions; some streams have one dimension.
        seed: of the data of the streams.
        seeds: number of seeds of each stream, from `seed` on; tables are played once.
        backend: "jax" compiles the runs, "numpy" loops over rounds; "auto" uses JAX if it is installed and the runs are
            long enough for compilation to pay off.
        tables: CSV files and data sets of river, played after the streams.
        jobs: number of processes.

    Raises:
        ValueError: for a name that is not known or a number out of range.

    >>> Plan(rounds=10)
    Traceback (most recent call last):
    ...
    ValueError: rounds must be a whole number from 256 to 65536, got 10
    """

    streams: tuple[str, ...] = DEFAULT_STREAMS
    learners: tuple[str, ...] | None = None
    rounds: int = 4096
    dim: int = 10
    seed: int = 0
    seeds: int = 1
    backend: Literal["auto", "jax", "numpy"] = "auto"
    tables: tuple[Table, ...] = ()
    jobs: int = 1

    def __post_init__(self) -> None:
        if not self.tables or self.streams:
            check_names("stream", self.streams, STREAMS)
        if self.learners is not None:
            check_names("learner", self.learners, LEARNERS)
        _whole("rounds", self.rounds, FEWEST_ROUNDS, MOST_ROUNDS)
        _whole("dim", self.dim, 1, MOST_DIM)
        _whole("seed", self.seed, 0, 2**63 - 1)
        _whole("seeds", self.seeds, 1, MOST_SEEDS)
        _whole("jobs", self.jobs, 1, MOST_JOBS)
        check_names("backend", (self.backend,), BACKENDS)
        if self.backend == "jax" and not importlib.util.find_spec("jax"):
            raise ValueError("backend 'jax' needs JAX, which is not installed: pip install \"samuel-optim[jax]\"")

    @property
    def command(self) -> str:
        """The command that repeats this."""
        words = ["samuel play"]
        everything = self.streams == ALL and self.learners == tuple(LEARNERS)
        if everything:
            words += ["--all"]
        elif self.streams != DEFAULT_STREAMS or self.tables:
            words += [f"--stream {name}" for name in self.streams]
        words += [word for table in self.tables for word in table.words]
        lengths = {table.rounds for table in self.tables} | ({self.rounds} if self.streams else set())
        words += [f"--rounds {next(iter(lengths))}"] if len(lengths) == 1 and None not in lengths else []
        words += [f"--dim {self.dim}"] if any(name not in ONE_DIMENSION for name in self.streams) else []
        words += [f"--seed {self.seed}"] if any(name != "two-valleys" for name in self.streams) else []
        words += [f"--seeds {self.seeds}"] if self.seeds > 1 else []
        words += [] if everything else [f"--method {name}" for name in self.learners or ()]
        words += [f"--backend {self.backend}"] if self.backend != "auto" else []
        return " ".join(words)

    def engine(self, rounds: int) -> Literal["jax", "numpy"]:
        """The backend of a run of that many rounds, with "auto" resolved."""
        if self.backend == "auto":
            return "jax" if rounds >= WORTH_COMPILING and importlib.util.find_spec("jax") else "numpy"
        return self.backend


def check_names(what: str, names: Sequence[str], table: Iterable[str]) -> None:
    """Refuse an empty list, unknown names and duplicates."""
    known = tuple(table)
    if not names:
        raise ValueError(f"no {what} is named: give at least one of {', '.join(known)}")
    for name in names:
        if name not in known:
            raise ValueError(f"unknown {what} {name!r}; choose from {', '.join(known)}")
    if len(set(names)) < len(names):
        twice = next(name for name in names if list(names).count(name) > 1)
        raise ValueError(f"{what} {twice!r} is named twice")


def _whole(name: str, value: Any, least: int, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"{name} must be a whole number from {least} to {most}, got {value!r}")
