"""Read a run folder as plain records: of a run that is finished, in progress or was killed.

`samuel_lab.runs` describes the folder.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from samuel_lab.runs import DamagedRun, Run, RunError

NUMBERS = ("loss", "accuracy", "test_loss", "rate")
"""The numbers of a measurement; those missing or not finite become nan."""


@dataclass(frozen=True)
class Times:
    """Durations, one entry for every timed section of a trial.

    Attributes:
        step: the last step of the section.
        steps: number of steps in it.
        train: seconds of training.
        test: seconds of testing.
        compiled: whether it includes compilation.
    """

    step: np.ndarray
    steps: np.ndarray
    train: np.ndarray
    test: np.ndarray
    compiled: np.ndarray


@dataclass(frozen=True)
class Trial:
    """One method trained with one seed: its plan, and its measurements so far.

    Arrays have one entry, or row, for every measurement. For a search, `loss`, `accuracy` and `test_loss` have a column
    for every schedule; schedules with a common beginning share a network and its numbers.

    Attributes:
        trial: name of the method.
        seed: the seed.
        label: name of the method on pages.
        group: `samuel`, `baseline`, `peer`, `search` or `stability`.
        about: description of the method, in a sentence.
        planned: number of steps in all.
        networks: number of networks that train side by side at the end.
        gradients: number of gradients per step.
        levels: block lengths, one per row of the weights; None for a block as long as the run.
        rates: candidate learning rates, one per column of the weights.
        schedules: for a search, the learning rates per phase of every schedule.
        plan: the complete entry of the plan.
        steps: number of complete steps at each measurement.
        loss: mean training loss since the previous measurement.
        accuracy: on the current test set.
        test_loss: on the current test set.
        rate: the learning rate in use.
        weights: shape (measurements, levels, rates); None for methods without weights.
        ended: whether the trial is complete.
        diverged: whether it was stopped because no loss was finite.
        times: durations.
    """

    trial: str
    seed: int
    label: str
    group: str
    about: str
    planned: int
    networks: int
    gradients: int
    levels: tuple[int | None, ...] | None
    rates: tuple[float, ...] | None
    schedules: tuple[tuple[float, ...], ...] | None
    plan: Mapping[str, Any]
    steps: np.ndarray
    loss: np.ndarray
    accuracy: np.ndarray
    test_loss: np.ndarray
    rate: np.ndarray
    weights: np.ndarray | None
    ended: bool
    diverged: bool
    times: Times

    @property
    def done(self) -> int:
        """Number of steps known to be complete."""
        return int(self.steps[-1]) if len(self.steps) else 0

    @property
    def started(self) -> bool:
        """Whether anything was measured."""
        return len(self.steps) > 0

    @property
    def base(self) -> str:
        """The name of the base if the method is a base with a schedule, else ""."""
        return self.trial.partition("/")[0] if "/" in self.trial else ""

    @property
    def rate_names(self) -> list[str]:
        """Names of the columns of the weights: a candidate rate, or one for each phase."""
        phases = self.plan.get("phases") or [self.rates or ()]
        return [" → ".join(f"{rate:.4g}" for rate in rates) for rates in zip(*phases, strict=True)]

    @cached_property
    def by_level(self) -> np.ndarray:
        """Shares of the weight, shape (levels, measures)."""
        return np.zeros((0, 0)) if self.weights is None else self.weights.sum(axis=2).T

    @cached_property
    def by_rate(self) -> np.ndarray:
        """Shares of the weight, shape (rates, measures)."""
        return np.zeros((0, 0)) if self.weights is None else self.weights.sum(axis=1).T


@dataclass(frozen=True)
class Recorded:
    """The contents of a run folder.

    Attributes:
        folder: its path.
        config: the study, its options and the command.
        plan: what follows from these and the data.
        sessions: versions and device, one entry for every start and resume.
        trials: in the order of the plan.
        stopped: why the last session ended early, if it did.
        notes: remarks, in sentences.
    """

    folder: Path
    config: Mapping[str, Any]
    plan: Mapping[str, Any]
    sessions: tuple[Mapping[str, Any], ...]
    trials: tuple[Trial, ...]
    stopped: Mapping[str, Any] | None
    notes: tuple[str, ...]

    @property
    def study(self) -> str:
        """The name of the study."""
        return self.plan["study"]

    @property
    def name(self) -> str:
        """The name of the folder."""
        return self.folder.name

    @property
    def complete(self) -> bool:
        """Whether every trial has ended."""
        return all(trial.ended for trial in self.trials)

    @property
    def ended(self) -> int:
        """Number of complete trials."""
        return sum(trial.ended for trial in self.trials)


def read(folder: str | Path) -> Recorded:
    """Read the folder of a run, finished or not.

    A truncated last line, as a kill leaves it, is dropped and noted.

    Args:
        folder: the folder of a run.

    Raises:
        RunError: if it is not the folder of a run, the run has no plan yet, or a newer version made it.
        DamagedRun: if a file is damaged; the message names the file and the line.
    """
    run = Run.open(Path(folder))
    plan = run.plan
    notes: list[str] = []
    try:
        _check_seeds(run, plan["trials"])
        known = {(entry["trial"], entry["seed"]): entry["steps"] for entry in plan["trials"]}
        measures, ends = _events(run, known, notes)
        times = _times(run, known, notes)
        trials = tuple(
            _trial(entry, measures.get(key, []), ends.get(key), times.get(key, {}))
            for entry in plan["trials"]
            for key in [(entry["trial"], entry["seed"])]
        )
    except RunError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedRun(f"{run.folder}: the measurements do not fit plan.json ({error!r})") from error
    stopped = run.read("stopped.json") if (run.folder / "stopped.json").exists() else None
    recorded = Recorded(run.folder, run.config, plan, tuple(run.sessions), trials, stopped, ())
    return Recorded(**{**vars(recorded), "notes": (*notes, *_remarks(recorded))})


def worker(folder: str | Path) -> int | None:
    """The ID of the process that is training a run, or None."""
    path = Path(folder) / "lock"
    try:
        number = int(path.read_text(encoding="ascii").strip() or 0)
        if not number:
            return None
        os.kill(number, 0)
    except PermissionError:
        pass  # a process of another user
    except (OSError, ValueError):
        return None
    # The ID of a killed process may have been reused, so check whether the lock is held. Last, because the check takes
    # the lock for a moment.
    try:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return number
    except OSError:
        return None
    return None


Key = tuple[str, int]


def _check_seeds(run: Run, trials: list[Any]) -> None:
    """Refuse settings whose number of seeds is not that of the plan."""
    wanted = run.config["options"].get("seeds")
    # A search is trained with the first seed only.
    planned = {entry["seed"] for entry in trials if not str(entry["trial"]).startswith("search")}
    if wanted is not None and planned and wanted != len(planned):
        raise DamagedRun(
            f"{run.folder}: config.json says seeds {wanted!r}, and plan.json has trials of {len(planned)}; one of them "
            "was changed after the run began"
        )


def _events(
    run: Run, known: Mapping[Key, int], notes: list[str]
) -> tuple[dict[Key, list[dict[str, Any]]], dict[Key, dict[str, Any]]]:
    measures: dict[Key, list[dict[str, Any]]] = {}
    ends: dict[Key, dict[str, Any]] = {}
    path = run.metrics.path
    for place, event in _lines(run.metrics, notes):
        key = (event["trial"], event["seed"])
        if key not in known:
            raise DamagedRun(f"{path}, line {place}: the plan has no trial {key[0]!r} with seed {key[1]!r}")
        if event["step"] > known[key]:
            raise DamagedRun(
                f"{path}, line {place}: {key[0]}, seed {key[1]} was planned for {known[key]} steps, got step "
                f"{event['step']}"
            )
        if event["event"] == "end":
            ends[key] = event
            continue
        before = measures.setdefault(key, [])
        if before and before[-1]["step"] >= event["step"]:
            raise DamagedRun(
                f"{path}, line {place}: step {event['step']} of {key[0]}, seed {key[1]} comes after step "
                f"{before[-1]['step']}"
            )
        before.append(event)
    return measures, ends


def _times(run: Run, known: Mapping[Key, int], notes: list[str]) -> dict[Key, dict[int, dict[str, Any]]]:
    """Entries by trial and step; of steps repeated after a resume, the last entry counts.

    Durations are not results, so a damaged line is noted and does not prevent a report.
    """
    found: dict[Key, dict[int, dict[str, Any]]] = {}
    try:
        for place, entry in _lines(run.times, notes):
            key = (entry["trial"], entry["seed"])
            if key not in known:
                notes.append(f"Line {place} of times.jsonl is of a trial that was not planned, and is ignored.")
            else:
                found.setdefault(key, {})[entry["step"]] = entry
    except DamagedRun as error:
        notes.append(f"Times from there on are ignored: {str(error).partition(' Nothing was changed.')[0]}")
    return found


def _lines(lines: Any, notes: list[str]) -> Any:
    """The complete lines of a file with their numbers; a truncated last line is noted."""
    size = lines.path.stat().st_size if lines.path.exists() else 0
    end = 0
    for place, (event, until) in enumerate(lines.events(), start=1):
        end = until
        yield place, event
    if end < size:
        notes.append(f"The last line of {lines.path.name} is truncated and ignored.")


def _trial(
    entry: Mapping[str, Any],
    measures: list[dict[str, Any]],
    end: Mapping[str, Any] | None,
    times: Mapping[int, Mapping[str, Any]],
) -> Trial:
    schedules = entry.get("schedules")
    width = len(schedules) if schedules else None
    numbers = {name: _column([m.get(name) for m in measures], width if name != "rate" else None) for name in NUMBERS}
    weights = None
    if entry.get("levels") and entry.get("rates"):
        shape = (len(measures), len(entry["levels"]), len(entry["rates"]))
        weights = np.full(shape, np.nan)
        for place, measure in enumerate(measures):
            if measure.get("weights") is not None:
                weights[place] = np.array(measure["weights"], dtype=float).reshape(shape[1:])
    return Trial(
        trial=entry["trial"],
        seed=entry["seed"],
        label=entry.get("label", entry["trial"]),
        group=entry.get("group", "baseline"),
        about=entry.get("about", ""),
        planned=entry["steps"],
        networks=entry.get("networks", 1),
        gradients=entry.get("gradients", 1),
        levels=_tuple(entry.get("levels")),
        rates=_tuple(entry.get("rates")),
        schedules=tuple(tuple(rates) for rates in schedules) if schedules else None,
        plan=entry,
        steps=np.array([measure["step"] for measure in measures], dtype=np.int64),
        **numbers,
        weights=weights,
        ended=end is not None,
        diverged=bool(end and end.get("diverged")),
        times=_timed(times),
    )


def _column(values: list[Any], width: int | None) -> np.ndarray:
    if width is None:
        return np.array([np.nan if value is None else value for value in values], dtype=float)
    columns = np.full((len(values), width), np.nan)
    for place, value in enumerate(values):
        if value is None:
            continue
        alive = np.atleast_1d(np.array(value, dtype=float))  # None becomes nan
        columns[place] = np.repeat(alive, width // len(alive))
    return columns


def _timed(times: Mapping[int, Mapping[str, Any]]) -> Times:
    entries = [times[step] for step in sorted(times)]

    def column(name: str, kind: Any) -> np.ndarray:
        return np.array([entry.get(name) or 0 for entry in entries], dtype=kind)

    return Times(
        column("step", np.int64),
        column("steps", np.int64),
        column("train_seconds", float),
        column("test_seconds", float),
        column("compile", bool),
    )


def _tuple(values: Any) -> tuple[Any, ...] | None:
    return None if values is None else tuple(values)


def _remarks(recorded: Recorded) -> list[str]:
    """Remarks on incomplete, resumed and diverged trials."""
    said = []
    if not recorded.complete:
        said.append(f"The run is not complete: {recorded.ended} of {len(recorded.trials)} trials have ended.")
    if recorded.stopped:
        reason = recorded.stopped.get("message") or recorded.stopped.get("reason")
        said.append(f"The last session ended early ({recorded.stopped.get('reason')}): {reason}")
    for trial in recorded.trials:
        if trial.diverged:
            said.append(f"{trial.label}, seed {trial.seed} diverged and was stopped after step {trial.done}.")
    if len(recorded.sessions) > 1:
        said.append(f"The run was resumed {len(recorded.sessions) - 1} times, which does not change its results.")
    return said
