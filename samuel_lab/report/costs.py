"""Measured cost of methods: time per step, per expert and in all."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from samuel_lab.report.gathering import Method, Study
from samuel_lab.report.reading import Trial
from samuel_lab.tables import Cell, Table, number, plain


@dataclass(frozen=True)
class Cost:
    """The measured cost of a method.

    Attributes:
        method: the method.
        step: seconds per step, the median over sections without compilation; for a search, when all networks train.
        training: seconds of training in all, with compilation, mean over seeds.
        testing: seconds of testing in all.
        complete: whether all its trials have ended.
        device: kind of device.
        devices: number of devices.
    """

    method: Method
    step: float | None
    training: float
    testing: float
    complete: bool
    device: str
    devices: int


def costs(study: Study) -> list[Cost]:
    """The cost of every method with measured times."""
    found = []
    for method in study.methods:
        timed = [(t, run) for t, run in zip(method.trials, method.runs, strict=True) if len(t.times.step)]
        if not timed:
            continue
        begin = max(study.plan.get("transitions") or [0]) if method.searches else 0
        paces = np.concatenate([_paces(trial, begin) for trial, _ in timed])
        session = (timed[0][1].sessions or ({},))[-1]
        found.append(
            Cost(
                method,
                float(np.median(paces)) if len(paces) else None,
                float(np.mean([trial.times.train.sum() for trial, _ in timed])),
                float(np.mean([trial.times.test.sum() for trial, _ in timed])),
                all(trial.ended for trial in method.trials),
                str(session.get("device", "unknown")),
                int(session.get("devices", 1)),
            )
        )
    return found


def projected(study: Study) -> bool:
    """Whether a study times some steps and projects the cost of the full protocol."""
    return any("protocol_trials" in method.first.plan for method in study.methods)


def whole(study: Study, cost: Cost) -> tuple[float | None, int, float | None]:
    """Seconds of training, number of schedules tried, and device hours in all, of a method.

    Measured; in a study that is `projected`, computed from the time per step and the steps of the full protocol, with
    the runs of a search one after another.
    """
    if not projected(study):
        return cost.training, cost.method.searches or 1, cost.training * cost.devices / 3600
    trials = int(cost.method.first.plan.get("protocol_trials", 1))
    if cost.step is None:
        return None, trials, None
    runtime = cost.step * int(study.plan.get("protocol_steps") or study.plan["rounds"])
    return runtime, trials, runtime * trials * cost.devices / 3600


def compute_table(study: Study) -> Table | None:
    """Time per step, in all and per expert, of every method."""
    found = costs(study)
    if not found:
        return None
    rows = []
    for cost in found:
        method = cost.method
        per_expert = None if cost.step is None else cost.step / method.experts
        rows.append(
            (
                method.label,
                (
                    Cell(f"{method.first.gradients}"),
                    Cell(f"{method.experts}"),
                    Cell(duration(cost.step)),
                    Cell(duration(per_expert)),
                    Cell(duration(cost.training) + ("" if cost.complete else "*")),
                    Cell(duration(cost.testing)),
                ),
            )
        )
    heads = ("method", "gradients a step", "experts", "a step", "a step, per expert", "training", "testing")
    short = ("", "gradients", "experts", "a step", "per expert", "training", "testing")
    return Table(heads, tuple(rows), short)


def search_cost_table(study: Study) -> Table | None:
    """The paper's table of compute: the total cost of a search, and of methods without one; see `projected`."""
    found = costs(study)
    if not projected(study) and not any(cost.method.searches for cost in found):
        return None
    rows = []
    for cost in found:
        device = cost.device if cost.devices == 1 else f"{cost.devices} × {cost.device}"
        runtime, trials, hours = whole(study, cost)
        per_expert = None if runtime is None else runtime / cost.method.experts
        cells = (device, duration(runtime), f"{trials}", duration(per_expert), number(hours))
        rows.append((cost.method.label, tuple(map(Cell, cells))))
    heads = ("method", "device", "runtime", "schedules tried", "runtime per expert", "device hours")
    return Table(heads, tuple(rows), ("", "device", "runtime", "schedules", "per expert", "device hours"))


def duration(seconds: float | None) -> str:
    """A duration formatted for readers.

    >>> duration(0.00123), duration(75.0), duration(7260.0), duration(None)
    ('1.23 ms', '75.0 s', '2.02 h', '–')
    """
    if seconds is None or not math.isfinite(seconds):
        return "–"
    for unit, name, limit in ((1e-6, "µs", 1e-3), (1e-3, "ms", 1.0), (1.0, "s", 120.0), (60.0, "min", 7200.0)):
        if seconds < limit:
            return f"{number(seconds / unit)} {name}"
    return f"{number(seconds / 3600)} h"


def _paces(trial: Trial, begin: int) -> np.ndarray:
    times = trial.times
    used = ~times.compiled & (times.steps > 0) & (times.step - times.steps >= begin)
    return times.train[used] / times.steps[used]


def cost_findings(study: Study) -> list[str]:
    """The cost of a search and of every variant of SAMUEL, in sentences."""
    known = [(cost, *whole(study, cost)) for cost in costs(study)]
    search = next(((cost, hours) for cost, _, trials, hours in known if trials > 1 and hours), None)
    if search is None:
        return []
    said = []
    for cost, _, _, hours in known:
        if cost.method.group == "samuel" and hours:
            ratio = search[1] / hours
            times = f"{number(ratio)} times less" if ratio >= 1 else f"{number(1 / ratio)} times as much"
            label, ours = search[0].method.label, cost.method.label
            said.append(f"{label} takes {number(search[1])} device hours, {ours} {number(hours)}: {times}.")
    return said


def costs_json(study: Study) -> list[dict[str, Any]]:
    """The same numbers for machines."""
    return [_cost_json(study, cost) for cost in costs(study)]


def _cost_json(study: Study, cost: Cost) -> dict[str, Any]:
    runtime, trials, hours = whole(study, cost)
    return {
        "method": cost.method.trial,
        "device": cost.device,
        "devices": cost.devices,
        "gradients_a_step": cost.method.first.gradients,
        "experts": cost.method.experts,
        "seconds_a_step": plain(cost.step),
        "seconds_training": plain(cost.training),
        "seconds_testing": plain(cost.testing),
        "schedules_tried": trials,
        "seconds_of_all": plain(runtime),
        "device_hours": plain(hours),
        "projected": projected(study),
        "complete": cost.complete,
    }
