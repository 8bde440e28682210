"""The folder of a run: everything needed to report it, and to resume it after any kill.

    config.json        study, settings, and the command that repeats it
    plan.json          what follows from settings and data: trials, their steps, the shift, ...
    environment.json   versions and device, one entry per session
    metrics.jsonl      measurements, one line per event; reproducible, however often the run was killed
    times.jsonl        durations, which are not reproducible
    checkpoints/       of the trial in progress
    lock               held by the process that trains the run
    stopped.json       why the last session ended early, if it did
    report.html        the page

A *trial* is one method trained with one seed. Trials run one after another. `metrics.jsonl` is append-only, except that
a resumed run first drops the lines written after its last checkpoint, and then writes the same lines again.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from samuel_lab.files import replace

FORMAT = 1
"""Version of the folder's format. Newer ones are refused."""
DIGITS = 6
"""Significant digits of the numbers in `metrics.jsonl`."""


Kinds = Mapping[str, tuple[Any, str]]
"""Entries of a file, with what they may be and what that is called."""
NAME, COUNT, SETTINGS = (str, "a text"), (int, "a whole number of at least 0"), (dict, "a dictionary")
LIST = (list, "a list")
CONFIG: Kinds = {"study": NAME, "options": SETTINGS, "command": NAME, "created": NAME}
PLAN: Kinds = {
    **dict.fromkeys(("study", "title", "about", "unit"), NAME),
    **dict.fromkeys(("rounds", "shift", "steps_per_epoch", "batch"), COUNT),
    **dict.fromkeys(("windows", "transitions", "trials"), LIST),
    **dict.fromkeys(("data", "model"), SETTINGS),
}
TRIAL: Kinds = {
    **dict.fromkeys(("trial", "label", "group", "about"), NAME),
    **dict.fromkeys(("seed", "steps", "networks", "gradients"), COUNT),
    **dict.fromkeys(("levels", "rates", "schedules"), LIST),
}
EVENT: Kinds = {"trial": NAME, "seed": COUNT, "step": COUNT, "steps": COUNT}


class RunError(Exception):
    """A problem with the folder of a run; the message says what can be done."""


class DamagedRun(RunError, ValueError):
    """A file of a run is damaged."""


class ChangedPlan(RunError):
    """Settings and data no longer give the plan that the run began with."""


class BusyRun(RunError):
    """Another process is training this run."""


@dataclass(frozen=True)
class Position:
    """Progress of a run.

    Attributes:
        trial: number of complete trials, and so the index of the next.
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
        """A new run in a new or empty folder.

        Raises:
            RunError: if the folder is not empty, or cannot be created.
        """
        run = cls(folder)
        if (run.folder / "config.json").exists():
            raise RunError(
                f"{run.folder} holds a run already: continue it with `samuel resume {folder}`, or choose another --out"
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
        """Open an existing run.

        Raises:
            RunError: if it is not the folder of a run, or was made by a newer version.
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
        return self._of_kinds("config.json", CONFIG, needed=("study", "options", "command"))

    @property
    def plan(self) -> dict[str, Any]:
        """What follows from the settings and the data; RunError if there is none yet."""
        if not (self.folder / "plan.json").is_file():
            raise RunError(
                f"{self.folder} has no plan.json: the run was stopped before its first trial. Continue it with "
                f"`samuel resume {self.folder}`"
            )
        plan = self._of_kinds("plan.json", PLAN, needed=("study", "rounds", "trials"))
        path, planned = self.folder / "plan.json", set()
        for place, entry in enumerate(plan["trials"]):
            wrong = _wrong_kind(entry, TRIAL, ("trial", "seed", "steps")) if isinstance(entry, dict) else repr(entry)
            wrong = wrong or "it is there twice" * ((entry["trial"], entry["seed"]) in planned)
            if wrong:
                raise DamagedRun(f"{path} is damaged in trial {place}: {wrong}")
            planned.add((entry["trial"], entry["seed"]))
        study = self.config["study"]
        if study != plan["study"]:
            raise DamagedRun(
                f"{path} is of the study {plan['study']!r}, and config.json names {study!r}: one was edited"
            )
        return plan

    def _of_kinds(self, name: str, kinds: Kinds, needed: Sequence[str]) -> dict[str, Any]:
        """One of the JSON files, whose entries are of the right kinds."""
        found = self.read(name)
        if wrong := _wrong_kind(found, kinds, needed):
            raise DamagedRun(f"{self.folder / name} is damaged: {wrong}")
        return found

    def read(self, name: str) -> dict[str, Any]:
        """One of the JSON files."""
        path = self.folder / name
        try:
            found = json.loads(path.read_bytes())
        except (OSError, ValueError) as error:
            raise DamagedRun(f"{path} cannot be read: {error}") from None
        if not isinstance(found, dict) or type(found.get("format")) is not int:
            raise DamagedRun(f"{path} is not a file of a run: it names no format")
        if found["format"] > FORMAT:
            raise RunError(
                f"{path} has format {found['format']}, and this version of samuel reads {FORMAT}: "
                "it was made by a newer one"
            )
        return found

    def write(self, name: str, content: Mapping[str, Any], new: bool = False) -> None:
        """Write one of the JSON files atomically; a `new` one only if there is none."""
        text = json.dumps({"format": FORMAT, **content}, indent=1, allow_nan=False) + "\n"
        replace(self.folder / name, text, new)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the run; it is released when the process ends, in any way.

        Raises:
            BusyRun: if another process holds it.
        """
        with open(self.folder / "lock", "a+", encoding="ascii") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.seek(0)
                holder = file.read().strip() or "unknown"
                raise BusyRun(f"{self.folder} is being trained by another process (number {holder})") from None
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
            self.metrics.open()
            self.times.open()
            self.times.cut_torn()  # metrics are truncated to the checkpoint; times may end in the middle of a line
            try:
                yield
            finally:
                self.metrics.close()
                self.times.close()
                file.truncate(0)

    @property
    def sessions(self) -> list[dict[str, Any]]:
        """The sessions of the run."""
        path = self.folder / "environment.json"
        if not path.exists():
            return []
        sessions = self.read(path.name).get("sessions")
        if not isinstance(sessions, list) or not all(isinstance(session, dict) for session in sessions):
            raise DamagedRun(
                f"{path} has no list of sessions: it is damaged. Delete it to continue; results do not depend on it"
            )
        return sessions

    def begin_session(self, environment: Mapping[str, Any]) -> None:
        """Add a session."""
        self.write("environment.json", {"sessions": [*self.sessions, {"started": now(), **environment}]})
        (self.folder / "stopped.json").unlink(missing_ok=True)

    def stopped(self, reason: str, message: str) -> None:
        """Record why the session ends early; a full disk is ignored."""
        with contextlib.suppress(OSError):
            self.write("stopped.json", {"reason": reason, "message": message, "at": now()})

    def settle_plan(self, plan: Mapping[str, Any]) -> None:
        """Write the plan, or check that it is unchanged.

        Raises:
            ChangedPlan: if settings and data now give a different plan.
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
        """The folder of the checkpoints of a trial."""
        return self.folder / "checkpoints" / f"trial_{trial:04d}"

    def refuse_checkpoints_after(self, trial: int) -> None:
        """Check that no trial after the next one, by the metrics, has checkpoints.

        Raises:
            DamagedRun: if one has: metrics are missing.
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
        """Progress of the run, from its metrics.

        A truncated last line, as a kill leaves it, does not count. Nothing on disk changes.

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
        """Truncate `metrics.jsonl` before its first damaged line, so that a resumed run writes the rest again.

        Returns the path of a copy of the damaged file, or None if there was nothing to repair.
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
    """An append-only file of JSON lines, each written whole or not at all.

    Args:
        path: the file.
        wrong: returns the problem of an event, or None.
    """

    def __init__(self, path: Path, wrong: Callable[[Mapping[str, Any]], str] = lambda event: "") -> None:
        self.path, self.wrong = path, wrong
        self._file: int | None = None

    def open(self) -> None:
        """Open for appending."""
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    @property
    def size(self) -> int:
        """Size in bytes."""
        return os.fstat(self._open()).st_size

    def append(self, event: Mapping[str, Any]) -> None:
        """Add a line.

        Raises:
            RunError: if it cannot be written; the file is then unchanged.
        """
        file, line = self._open(), (json.dumps(_rounded(event), allow_nan=False) + "\n").encode()
        before = self.size
        try:
            written = os.write(file, line)
            while written < len(line):  # a nearly full disk takes a part
                written += os.write(file, line[written:])
        except OSError as error:
            with contextlib.suppress(OSError):  # what cannot be truncated, such as a pipe, has taken nothing
                os.ftruncate(file, before)
            raise RunError(
                f"{self.path} could not be written: {error.strerror or error}. Nothing that was written is lost: make "
                f"room, then `samuel resume {self.path.parent}`"
            ) from None

    def sync(self) -> None:
        """Flush all lines to disk."""
        os.fsync(self._open())

    def digest(self, size: int) -> str:
        """SHA-256 of the first `size` bytes."""
        with open(self.path, "rb") as file:
            return hashlib.sha256(file.read(size)).hexdigest()

    def cut(self, size: int) -> None:
        """Truncate to `size` bytes."""
        os.ftruncate(self._open(), size)

    def cut_torn(self) -> None:
        """Drop a truncated last line, as a crash leaves it."""
        with open(self.path, "rb") as file:
            whole = sum(len(line) for line in file if line.endswith(b"\n"))
        if whole < self.size:
            self.cut(whole)

    def events(self) -> Iterator[tuple[dict[str, Any], int]]:
        """Every complete line, and where it ends.

        Raises:
            DamagedRun: for a line that is not a JSON object, or is invalid.
        """
        if not self.path.exists():
            return
        end = 0
        try:
            file = open(self.path, "rb")  # noqa: SIM115  closed below
        except OSError as error:
            raise DamagedRun(f"{self.path} cannot be read: {error.strerror or error}") from None
        with file:
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
                        f"{self.path}, line {number} is damaged: {wrong}. Nothing was changed. "
                        f"`samuel resume --repair {self.path.parent}` keeps a copy, drops this line and what follows, "
                        f"and computes it again"
                    )
                yield event, end

    def _open(self) -> int:
        if self._file is None:
            raise RuntimeError(f"{self.path} is open only while the run is locked")
        return self._file


def _wrong_kind(entry: Mapping[str, Any], kinds: Kinds, needed: Sequence[str]) -> str:
    """Which value of an entry is of the wrong kind, or nothing. What is not needed may be missing or None."""
    for name in [*needed, *kinds]:
        value, (kind, called) = entry.get(name), kinds[name]
        bad = not isinstance(value, kind) or isinstance(value, bool) or (isinstance(value, int) and value < 0)
        if bad and (value is not None or name in needed):
            return f"{name} must be {called}, got {value!r}"
    return ""


def wrong_measure(event: Mapping[str, Any]) -> str:
    """The problem of a line of `metrics.jsonl`, or nothing: values that are not numbers, accuracies above 1.

    >>> wrong_measure({"event": "measure", "trial": "samuel", "seed": 0, "step": 3, "accuracy": [0.5, 7.0]})
    'accuracy must lie between 0 and 1, got 7.0'
    """
    if event.get("event") not in ("measure", "end"):
        return f"unknown event {event.get('event')!r}"
    if wrong := _wrong_kind(event, EVENT, ("trial", "seed", "step")):
        return wrong
    for name, most in (("loss", None), ("test_loss", None), ("rate", None), ("accuracy", 1), ("weights", 1)):
        for value in _flat(event.get(name)):
            if not isinstance(value, int | float) or isinstance(value, bool):
                return f"{name} must be a number, got {value!r}"
            if most is not None and not 0 <= value <= most + 1e-4:  # weights rounded to 6 digits may add up to more
                return f"{name} must lie between 0 and {most}, got {value!r}"
    return ""


def wrong_time(entry: Mapping[str, Any]) -> str:
    """The problem of an entry of `times.jsonl`, or nothing.

    >>> wrong_time({"trial": "samuel", "seed": 0, "step": 8, "steps": 8, "train_seconds": -3})
    'train_seconds must be a number of at least 0, got -3'
    """
    if wrong := _wrong_kind(entry, EVENT, ("trial", "seed", "step", "steps")):
        return wrong
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
    """The time, in the format of the files."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _rounded(value: Any) -> Any:
    """Numbers with few digits; None for those that are not finite, which JSON cannot hold."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _rounded(one) for key, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list | tuple) else value


def _difference(where: str, one: Any, other: Any) -> tuple[str, Any, Any]:
    """The path at which two entries of a plan differ, and both values; in lists of equal length, the first
    difference."""
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
