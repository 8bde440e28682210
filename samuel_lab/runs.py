"""The folder of a run: everything about it on disk, so that nothing is ever lost and any kill can be resumed from.

    config.json        the study and its settings, and the command that made it
    plan.json          what follows from the settings and the data: the trials, their steps, the shift, ...
    environment.json   versions and device, one entry for every session that worked on the run
    metrics.jsonl      what was measured, one line an event; the same for the same settings, however often killed
    times.jsonl        how long it took, which is never the same twice
    checkpoints/       of the trial that is being trained
    lock               held by the process that works on the run
    stopped.json       why the last session ended early, if it did
    report.html        the page

A *trial* is one method trained with one seed. Trials come one after another. `metrics.jsonl` is only ever appended to,
but for one case: a resumed run first drops the lines that were written after its last checkpoint, and then writes them
again, the same ones.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from samuel_lab.files import replace

FORMAT = 1
"""Of the folder. Folders with a larger one are refused."""
DIGITS = 6
"""Significant digits of the numbers in `metrics.jsonl`."""


class RunError(Exception):
    """Something is wrong with the folder of a run; the message says what, and what can be done."""


class DamagedRun(RunError, ValueError):
    """A file of a run is not as it was written."""


class ChangedPlan(RunError):
    """Settings and data of today make another plan than when the run began."""


class BusyRun(RunError):
    """Another process works on this run."""


@dataclass(frozen=True)
class Position:
    """Where a run stands.

    Attributes:
        trial: how many trials are complete, and so the number of the one to go on with.
        size: bytes of `metrics.jsonl` up to the end of the last complete trial.
    """

    trial: int
    size: int


class Run:
    """The folder of a run.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = Run.create(Path(folder) / "first", "digits", {"seeds": 3}, "samuel run digits")
    ...     with run.locked():
    ...         run.metrics.append({"event": "measure", "step": 1, "loss": 0.123456789})
    ...     Run.open(run.folder).config["options"], run.metrics.path.read_text()
    ({'seeds': 3}, '{"event": "measure", "step": 1, "loss": 0.123457}\\n')
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder).absolute()
        self.metrics = Lines(self.folder / "metrics.jsonl", wrong_measure)
        self.times = Lines(self.folder / "times.jsonl", wrong_time)

    @classmethod
    def create(cls, folder: Path, study: str, options: Mapping[str, Any], command: str) -> Run:
        """A new run in a folder that does not exist yet, or is empty.

        Raises:
            RunError: if there is something already, or the folder cannot be made.
        """
        run = cls(folder)
        if (run.folder / "config.json").exists():
            raise RunError(
                f"{run.folder} holds a run already: go on with it by `samuel resume {folder}`, or choose another --out"
            )
        try:
            run.folder.mkdir(parents=True, exist_ok=True)
            found = sorted(path.name for path in run.folder.iterdir())
        except OSError as error:
            raise RunError(f"{run.folder} cannot be made: {error.strerror or error}") from None
        if found:
            raise RunError(f"{run.folder} is not empty ({found[0]}, ...): choose a new folder with --out")
        config = {"study": study, "options": dict(options), "command": command, "created": now()}
        try:
            run.write("config.json", config, new=True)
        except FileExistsError:
            raise RunError(f"{run.folder} was taken by another run just now: choose another --out") from None
        except OSError as error:
            raise RunError(f"{run.folder} cannot be written to: {error.strerror or error}") from None
        return run

    @classmethod
    def open(cls, folder: Path) -> Run:
        """A run that exists.

        Raises:
            RunError: if the folder is none, or a newer samuel made it.
        """
        run = cls(folder)
        if not run.folder.is_dir():
            raise RunError(f"{run.folder} is not a folder; a run is a folder made by `samuel run STUDY`")
        if not (run.folder / "config.json").is_file():
            raise RunError(f"{run.folder} is not the folder of a run: it has no config.json")
        _ = run.config
        return run

    @property
    def config(self) -> dict[str, Any]:
        """The study and its settings."""
        config = self.read("config.json")
        if not isinstance(config.get("study"), str) or not isinstance(config.get("options"), dict):
            raise DamagedRun(f"{self.folder / 'config.json'} names no study and options: it is not as it was written")
        return config

    def read(self, name: str) -> dict[str, Any]:
        """One of the JSON files."""
        path = self.folder / name
        try:
            found = json.loads(path.read_bytes())
        except (OSError, ValueError) as error:
            raise DamagedRun(f"{path} cannot be read: {error}") from None
        if not isinstance(found, dict) or not isinstance(found.get("format"), int):
            raise DamagedRun(f"{path} is not a file of a run: it names no format")
        if found["format"] > FORMAT:
            raise RunError(
                f"{path} has format {found['format']}, and this version of samuel reads {FORMAT}: a newer one made it"
            )
        return found

    def write(self, name: str, content: Mapping[str, Any], new: bool = False) -> None:
        """Write one of the JSON files, whole or not at all; a `new` one only where there is none."""
        text = json.dumps({"format": FORMAT, **content}, indent=1, allow_nan=False) + "\n"
        replace(self.folder / name, text, new)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only process that works on this run; the lock ends with the process, however that ends.

        Raises:
            BusyRun: if another process works on it.
        """
        with open(self.folder / "lock", "a+", encoding="ascii") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.seek(0)
                holder = file.read().strip() or "unknown"
                raise BusyRun(f"{self.folder} is being worked on by another process (number {holder})") from None
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
            self.metrics.open()
            self.times.open()
            self.times.cut_torn()  # metrics are cut where a checkpoint says; these would go on in the middle of a line
            try:
                yield
            finally:
                self.metrics.close()
                self.times.close()
                file.truncate(0)

    @property
    def sessions(self) -> list[dict[str, Any]]:
        """Who worked on the run, one entry for every session."""
        path = self.folder / "environment.json"
        if not path.exists():
            return []
        sessions = self.read(path.name).get("sessions")
        if not isinstance(sessions, list) or not all(isinstance(session, dict) for session in sessions):
            raise DamagedRun(
                f"{path} has no list of sessions: it is not as it was written. Delete it to go on without; results do "
                "not depend on it"
            )
        return sessions

    def begin_session(self, environment: Mapping[str, Any]) -> None:
        """Note who goes on with the run."""
        self.write("environment.json", {"sessions": [*self.sessions, {"started": now(), **environment}]})
        (self.folder / "stopped.json").unlink(missing_ok=True)

    def stopped(self, reason: str, message: str) -> None:
        """Note why the session ends early. A disk that takes no more is no reason to fail again."""
        with contextlib.suppress(OSError):
            self.write("stopped.json", {"reason": reason, "message": message, "at": now()})

    def settle_plan(self, plan: Mapping[str, Any]) -> None:
        """Write the plan, or see that it is still the same.

        Raises:
            ChangedPlan: if settings and data of today make another plan than when the run began.
        """
        plan = {"format": FORMAT, **json.loads(json.dumps(plan))}
        if not (self.folder / "plan.json").exists():
            self.write("plan.json", plan)
            return
        before = self.read("plan.json")
        for key in sorted(before.keys() | plan.keys()):
            if before.get(key) != plan.get(key):
                where, was, would_be = _difference(key, before.get(key), plan.get(key))
                raise ChangedPlan(
                    f"this run was planned differently: {where} was {_short(was)} and would now be {_short(would_be)}. "
                    f"The data or the version of samuel changed; start a new run"
                )

    def checkpoint_folder(self, trial: int) -> Path:
        """Where the checkpoints of a trial are."""
        return self.folder / "checkpoints" / f"trial_{trial:04d}"

    def refuse_checkpoints_after(self, trial: int) -> None:
        """See that no later trial than that which the metrics say comes next has been begun.

        Raises:
            DamagedRun: if one was: the metrics of the trials before it are gone.
        """
        parent = self.folder / "checkpoints"
        for path in sorted(parent.glob("trial_*")) if parent.is_dir() else ():
            if path > self.checkpoint_folder(trial):
                raise DamagedRun(
                    f"{self.metrics.path} has {trial} complete trials, and {path} is a checkpoint of a later one: "
                    f"lines are missing. Nothing was changed. `samuel resume --repair {self.folder}` computes them "
                    f"again"
                )

    def drop_checkpoints(self, keep: int | None = None) -> None:
        """Delete the checkpoints of all trials but one."""
        parent = self.folder / "checkpoints"
        for path in sorted(parent.glob("trial_*")) if parent.is_dir() else ():
            if keep is None or path != self.checkpoint_folder(keep):
                shutil.rmtree(path, ignore_errors=True)

    def position(self, trials: int) -> Position:
        """Where the run stands, from its metrics.

        A last line without an end, as a kill leaves it, does not count. Nothing on the disk changes.

        Raises:
            DamagedRun: for a line that is no event.
        """
        ended, size = 0, 0
        for event, end in self.metrics.events():
            if event.get("event") == "end":
                ended, size = ended + 1, end
        if ended > trials:
            raise DamagedRun(f"{self.metrics.path} has {ended} complete trials, and the plan has {trials}")
        return Position(ended, size)

    def repair(self) -> str | None:
        """Cut `metrics.jsonl` before its first damaged line, so that a resumed run writes the rest again.

        The file as it was is kept beside it. Gives its name, or None if there was nothing to repair.
        """
        good = 0
        try:
            for _, good in self.metrics.events():  # noqa: B007  the end of the last good line
                pass
        except DamagedRun:
            aside = self.metrics.path.with_name(f"metrics.damaged.{int(datetime.now(UTC).timestamp())}.jsonl")
            shutil.copy2(self.metrics.path, aside)
            with open(self.metrics.path, "r+b") as file:
                file.truncate(good)
            return str(aside)
        return None


class Lines:
    """A file of JSON lines that is appended to: each line whole, or not at all.

    Args:
        path: the file.
        wrong: says what is wrong with an event, or nothing.
    """

    def __init__(self, path: Path, wrong: Callable[[Mapping[str, Any]], str] = lambda event: "") -> None:
        self.path, self.wrong = path, wrong
        self._file: int | None = None

    def open(self) -> None:
        """Ready to append."""
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def close(self) -> None:
        """No more lines."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    @property
    def size(self) -> int:
        """Bytes so far."""
        return os.fstat(self._open()).st_size

    def append(self, event: Mapping[str, Any]) -> None:
        """Add a line.

        Raises:
            RunError: if the disk does not take it; the file is then as it was.
        """
        file, line = self._open(), (json.dumps(_rounded(event), allow_nan=False) + "\n").encode()
        before = self.size
        try:
            written = os.write(file, line)
            while written < len(line):  # a disk about to be full takes a part
                written += os.write(file, line[written:])
        except OSError as error:
            with contextlib.suppress(OSError):  # what cannot be cut, such as a pipe, has taken nothing either
                os.ftruncate(file, before)
            raise RunError(
                f"{self.path} could not be written: {error.strerror or error}. Nothing that was written is lost: make "
                f"room, then `samuel resume {self.path.parent}`"
            ) from None

    def sync(self) -> None:
        """See that all lines are on the disk."""
        os.fsync(self._open())

    def digest(self, size: int) -> str:
        """The SHA-256 of the first so many bytes."""
        with open(self.path, "rb") as file:
            return hashlib.sha256(file.read(size)).hexdigest()

    def cut(self, size: int) -> None:
        """Drop what comes after so many bytes."""
        os.ftruncate(self._open(), size)

    def cut_torn(self) -> None:
        """Drop a last line that was not written to its end, as a crash leaves it."""
        with open(self.path, "rb") as file:
            whole = sum(len(line) for line in file if line.endswith(b"\n"))
        if whole < self.size:
            self.cut(whole)

    def events(self) -> Iterator[tuple[dict[str, Any], int]]:
        """Every whole line and where it ends. A last line without an end is left out.

        Raises:
            DamagedRun: for a line that is not a JSON object, or has something wrong in it.
        """
        if not self.path.exists():
            return
        end = 0
        with open(self.path, "rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    return
                end += len(line)
                try:
                    event = json.loads(line)
                except ValueError:
                    event = None
                wrong = self.wrong(event) if isinstance(event, dict) else repr(line[:60])
                if wrong or not isinstance(event, dict):
                    raise DamagedRun(
                        f"{self.path}, line {number} is not as it was written: {wrong}. Nothing was changed. "
                        f"`samuel resume --repair {self.path.parent}` keeps a copy, drops this line and what follows, "
                        f"and computes it again"
                    )
                yield event, end

    def _open(self) -> int:
        if self._file is None:
            raise RuntimeError(f"{self.path} is not open: it is while the run is locked")
        return self._file


def wrong_measure(event: Mapping[str, Any]) -> str:
    """What is wrong with the numbers of a measure, or nothing: what is no number, and accuracies beyond 1.

    >>> wrong_measure({"step": 3, "loss": None, "accuracy": [0.5, 7.0]})
    'accuracy must lie between 0 and 1, got 7.0'
    """
    for name, most in (("loss", None), ("test_loss", None), ("rate", None), ("accuracy", 1), ("weights", 1)):
        for value in _flat(event.get(name)):
            if not isinstance(value, int | float) or isinstance(value, bool):
                return f"{name} must be a number, got {value!r}"
            if most is not None and not 0 <= value <= most + 1e-4:  # weights of 6 digits may add up to more
                return f"{name} must lie between 0 and {most}, got {value!r}"
    return ""


def wrong_time(entry: Mapping[str, Any]) -> str:
    """What is wrong with an entry of `times.jsonl`, or nothing.

    >>> wrong_time({"trial": "samuel", "seed": 0, "step": 8, "steps": 8, "train_seconds": -3})
    'train_seconds must be a number of at least 0, got -3'
    """
    if not isinstance(entry.get("trial"), str):
        return f"trial must be a name, got {entry.get('trial')!r}"
    for name in ("seed", "step", "steps"):
        if not isinstance(entry.get(name), int) or isinstance(entry[name], bool) or entry[name] < 0:
            return f"{name} must be a whole number of at least 0, got {entry.get(name)!r}"
    for name in ("train_seconds", "test_seconds"):
        value = entry.get(name)
        if value is not None and (not isinstance(value, int | float) or isinstance(value, bool) or not value >= 0):
            return f"{name} must be a number of at least 0, got {value!r}"
    return ""


def _flat(value: Any) -> Iterator[Any]:
    """The entries of nested lists that are not None."""
    if isinstance(value, list):
        for one in value:
            yield from _flat(one)
    elif value is not None:
        yield value


def now() -> str:
    """The time, as files tell it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _rounded(value: Any) -> Any:
    """Numbers with few digits; what is not finite becomes None, for which JSON has a word."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _rounded(one) for key, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list | tuple) else value


def _difference(where: str, one: Any, other: Any) -> tuple[str, Any, Any]:
    """Where two entries of a plan differ, and what each has there; in lists as long as each other, the first place."""
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        place = next(place for place, both in enumerate(zip(one, other, strict=True)) if both[0] != both[1])
        where, one, other = f"{where}[{place}]", one[place], other[place]
        if isinstance(one, dict) and isinstance(other, dict):
            key = next(key for key in sorted(one | other) if one.get(key) != other.get(key))
            return f"{where}.{key}", one.get(key), other.get(key)
    return where, one, other


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "..."
