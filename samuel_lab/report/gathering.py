"""Merge runs of one study whose plans agree: their methods side by side."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from samuel_lab.report.reading import Recorded, Trial

SAME = ("study", "rounds", "unit", "steps_per_epoch", "shift", "windows", "transitions", "batch")
"""Entries of the plan that must be equal for runs to be merged, besides data and model."""
ASIDE = frozenset(
    (
        *("methods", "seeds", "first_seed", "data", "cache", "device", "placement"),
        *("checkpoint_seconds", "tensorboard", "workers"),
    )
)
"""Options that do not change what a method learns."""
DROP_IN, DROP_INS = "samuel_", ("samuel", "samuel+average", "samuel-untold", "samuel-adam")
"""Options with this prefix, of older versions, apply to these methods only."""
PART = "search@"
"""Prefix of the names of parts of a search."""


@dataclass(frozen=True)
class Method:
    """A method of a study: the trials of all its seeds, and the run of each."""

    trial: str
    label: str
    group: str
    about: str
    trials: tuple[Trial, ...]
    runs: tuple[Recorded, ...]

    @property
    def first(self) -> Trial:
        """The trial of the first seed."""
        return self.trials[0]

    @property
    def base(self) -> str:
        """The name of the base if the method is a base with a schedule, else ""."""
        return self.first.base

    @property
    def searches(self) -> int:
        """Number of schedules of a search; 0 for other methods."""
        return len(self.first.schedules or ())

    @property
    def experts(self) -> int:
        """Number of experts that share the work of a step: networks, or experts weighted by SAMUEL."""
        shared = len(self.first.levels or ()) * len(self.first.rates or ())
        return max(self.first.networks, self.first.gradients, shared)


@dataclass(frozen=True)
class Study:
    """Merged runs of one study whose plans agree."""

    runs: tuple[Recorded, ...]
    methods: tuple[Method, ...]
    notes: tuple[str, ...] = ()

    @property
    def plan(self) -> Mapping[str, Any]:
        """The common plan of the runs; the methods are in `methods`."""
        return self.runs[0].plan

    @property
    def name(self) -> str:
        """The study's name."""
        return self.runs[0].study

    @property
    def title(self) -> str:
        """The title of the study."""
        return self.plan.get("title") or self.name

    @property
    def shift(self) -> int | None:
        """The last step before the classes change; None if they do not."""
        return self.plan.get("shift")

    @property
    def windows(self) -> tuple[int, ...]:
        """Numbers of rounds after the shift over which accuracy is averaged."""
        return tuple(self.plan.get("windows") or ())

    @property
    def complete(self) -> bool:
        """Whether every trial has ended."""
        return all(trial.ended for method in self.methods for trial in method.trials)

    @property
    def search(self) -> Method | None:
        """The search over schedules; None if there is none with results."""
        return next((m for m in self.methods if m.searches and any(t.started for t in m.trials)), None)


def studies(recordeds: Sequence[Recorded]) -> list[Study]:
    """Merge runs of the same study and plan, in the given order.

    Seeds of a method are merged if their runs configured it alike. If not, or if two runs have different results for
    the same seed, methods are listed separately, with the name of their run.
    """
    grouped: dict[str, list[Recorded]] = {}
    for recorded in recordeds:
        grouped.setdefault(_same(recorded.plan), []).append(recorded)
    return [_put_together(runs) for runs in grouped.values()]


def notes(study: Study) -> list[str]:
    """Remarks on the runs."""
    several = len(study.runs) > 1
    return [
        *study.notes,
        *(f"{run.name}: {note}" if several else note for run in study.runs for note in run.notes),
    ]


def _same(plan: Mapping[str, Any]) -> str:
    """The facts that must be equal for runs to be merged, as text."""
    data, model = plan.get("data") or {}, plan.get("model") or {}
    facts = [plan.get(key) for key in SAME]
    facts += [data.get(key) for key in ("name", "train", "test", "classes", "checksum")]
    return json.dumps([*facts, model.get("name"), model.get("parameters")], sort_keys=True)


def _put_together(runs: Sequence[Recorded]) -> Study:
    notes: list[str] = []
    # By the name of a method and the configuration of its seeds.
    found: dict[tuple[str, str], list[tuple[Recorded, Trial]]] = {}
    for run, trials in _with_whole_searches(runs):
        for trial in trials:
            options = {key: value for key, value in run.config["options"].items() if _matters(key, trial.trial)}
            setup = json.dumps([options, {k: v for k, v in trial.plan.items() if k != "seed"}], sort_keys=True)
            entries = found.setdefault((trial.trial, setup), [])
            twin = next((other for _, other in entries if other.seed == trial.seed), None)
            if twin is None:
                entries.append((run, trial))
            elif (longer := _longer_of_the_same(twin, trial)) is not None:
                entries[:] = [(run, trial) if o is twin and longer is trial else (r, o) for r, o in entries]
                if twin.started and trial.started:
                    notes.append(
                        f"{trial.label}, seed {trial.seed} has the same results in several runs: counted once."
                    )
            else:
                found[trial.trial, f"{setup} {run.folder}"] = [(run, trial)]
    names = [name for name, _ in found]
    methods = []
    for (name, _), entries in found.items():
        first_run, first = entries[0]
        label, key = first.label, name
        if names.count(name) > 1:
            where = first_run.name if len({run.name for run in runs}) == len(runs) else str(first_run.folder)
            label, key = f"{label} ({where})", f"{name} ({where})"
        trials, origins = tuple(trial for _, trial in entries), tuple(run for run, _ in entries)
        methods.append(Method(key, label, first.group, first.about, trials, origins))
    return Study(tuple(runs), tuple(_in_order(methods)), tuple(dict.fromkeys(notes)))


def _matters(option: str, method: str) -> bool:
    """Whether an option may change what a method learns."""
    return option not in ASIDE and (method in DROP_INS or not option.startswith(DROP_IN))


def _with_whole_searches(runs: Sequence[Recorded]) -> list[tuple[Recorded, list[Trial]]]:
    """The trials of every run, with the parts of a search merged into the first of them."""
    parts: dict[int, list[Trial]] = {}
    for trial in (trial for run in runs for trial in run.trials):
        found = parts.setdefault(trial.seed, [])
        begun = {schedule for part in found for schedule in part.schedules or ()}
        if trial.trial.startswith(PART) and trial.started and not begun.intersection(trial.schedules or ()):
            found.append(trial)
    whole = {id(found[0]): _joined(found) for found in parts.values() if len(found) > 1}
    dropped = {id(part) for found in parts.values() if len(found) > 1 for part in found[1:]}
    return [(run, [whole.get(id(t), t) for t in run.trials if id(t) not in dropped]) for run in runs]


def _joined(parts: Sequence[Trial]) -> Trial:
    """A search merged from its parts, as far as all of them are complete."""
    length = min(len(part.steps) for part in parts)
    first = parts[0]
    schedules = tuple(schedule for part in parts for schedule in part.schedules or ())
    columns = {
        name: np.concatenate([getattr(part, name)[:length] for part in parts], axis=1)
        for name in ("loss", "accuracy", "test_loss")
    }
    same_times = all(np.array_equal(part.times.step, first.times.step) for part in parts)
    times = first.times
    if same_times:  # one after another on one device
        train, test = (np.sum([getattr(part.times, name) for part in parts], axis=0) for name in ("train", "test"))
        times = replace(times, train=train, test=test)
    label = first.label.replace(f"{len(first.schedules or ())} step", f"{len(schedules)} step")
    networks, gradients = (sum(getattr(part, name) for part in parts) for name in ("networks", "gradients"))
    return replace(
        first,
        trial=PART.rstrip("@"),
        label=label,
        about=f"{len(schedules)} step schedules, searched in {len(parts)} parts.",
        networks=networks,
        gradients=gradients,
        schedules=schedules,
        plan={**first.plan, "schedules": [list(schedule) for schedule in schedules]},
        steps=first.steps[:length],
        rate=first.rate[:length],
        ended=all(part.ended for part in parts),
        diverged=all(part.diverged for part in parts),
        times=times,
        **columns,
    )


def _longer_of_the_same(one: Trial, other: Trial) -> Trial | None:
    """If one trial is the beginning of the other, the longer one, else None."""
    length = min(len(one.steps), len(other.steps))
    alike = np.array_equal(one.steps[:length], other.steps[:length]) and np.array_equal(
        one.accuracy[:length], other.accuracy[:length], equal_nan=True
    )
    if not alike:
        return None
    return one if (one.ended, len(one.steps)) >= (other.ended, len(other.steps)) else other


def _in_order(methods: list[Method]) -> list[Method]:
    """SAMUEL first, then the others in the order of the plan."""
    return sorted(methods, key=lambda method: method.group != "samuel")
