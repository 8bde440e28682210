"""Sweeps of learning rates, compared with runs of SAMUEL, which has no rate."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from samuel_lab.report.gathering import DROP_INS, Method, Study
from samuel_lab.report.summary import LAST, Column, Value, results, shift_columns

RATE = re.compile(r"([^@]+)@([\d.e+-]+)")
LEAST = 3
"""Minimum number of rates of a sweep."""


class Sweep(NamedTuple):
    """Methods of a study that differ in their learning rate only."""

    label: str
    rates: tuple[float, ...]
    """In rising order."""
    methods: tuple[str, ...]


def sweeps(study: Study) -> list[Sweep]:
    """The sweeps in a study."""
    found: dict[str, list[tuple[float, Method]]] = {}
    for method in study.methods:
        parsed = RATE.fullmatch(method.trial.removesuffix("+average"))
        if parsed is not None and not method.searches:
            kind = parsed[1] + ("+average" if method.trial.endswith("+average") else "")
            found.setdefault(kind, []).append((float(parsed[2]), method))
    kept = [sorted(rated, key=lambda entry: entry[0]) for rated in found.values() if len(rated) >= LEAST]
    return [
        Sweep(
            rated[0][1].label.replace(f" {rated[0][0]:g}", ""),
            tuple(rate for rate, _ in rated),
            tuple(method.trial for _, method in rated),
        )
        for rated in kept
    ]


def columns(study: Study) -> tuple[Column, ...]:
    """The metrics by which sweeps are compared."""
    if study.shift is None:
        return (LAST[0], LAST[2])
    *windows, before, _ = shift_columns(study)
    return (windows[-1], before)


def sweep_findings(study: Study) -> list[str]:
    """The best and the worst rate of every sweep, and the result of SAMUEL, in sentences."""
    found = results(study)
    kept = {column.key for column in columns(study)}
    said = []
    for sweep in sweeps(study):
        for place, column in enumerate(found.columns):
            if column.key in kept:
                values = {key: row[place] for key, _, row in found.rows}
                ours = [method for method in study.methods if method.trial in DROP_INS and values[method.trial].known]
                said.append(compared(column, sweep, values, ours))
    return [sentence for sentence in said if sentence]


def compared(column: Column, sweep: Sweep, values: Mapping[str, Value], ours: list[Method]) -> str:
    """A sweep and runs without a rate, compared in one metric; empty without results."""
    known = [(rate, values[key]) for rate, key in zip(sweep.rates, sweep.methods, strict=True) if values[key].known]
    if not known:
        return ""
    unit = "%" if column.percent else ""
    sign = 1 if column.lower else -1
    best, top = min(known, key=lambda entry: sign * entry[1].mean)
    worst, bottom = max(known, key=lambda entry: sign * entry[1].mean)
    said = (
        f"{column.said.capitalize()} in a sweep of {len(sweep.rates)} rates of {sweep.label}: "
        f"{column.text(top.mean)}{unit} at the best, {best:g}, and {column.text(bottom.mean)}{unit} at the worst, "
        f"{worst:g}."
    )
    for method in ours:
        value = values[method.trial]
        beaten = int(np.sum([column.better(value.mean, one.mean) for _, one in known]))
        said += f" {method.label} has {column.text(value.mean)}{unit}, better than {beaten} of them."
    return said
