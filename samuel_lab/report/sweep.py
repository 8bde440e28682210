"""A sweep of learning rates beside SAMUEL: a curve of results by rate, and the results of runs without a rate."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from samuel_lab.drawing import Drawing, blank, line, log_axis
from samuel_lab.report.gathering import Method, Study
from samuel_lab.report.summary import LAST, Column, Results, Value, results, shift_columns

RATE = re.compile(r"([^@]+)@([\d.e+-]+)")
LEAST = 3
"""Rates that make a sweep."""


class Sweep(NamedTuple):
    """The methods of a study that differ in nothing but their learning rate."""

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


def sweep_drawings(study: Study, style: Mapping[str, Mapping[str, Any]], name: str) -> list[Drawing]:
    """For the columns that tell most, a curve of every sweep, and SAMUEL as points that have no rate."""
    swept = sweeps(study)
    if not swept:
        return []
    found = results(study)
    known = {column.key: place for place, column in enumerate(found.columns)}
    kept = [column for column in _columns(study) if column.key in known]
    return [_drawing(study, swept, found, known[column.key], style, name) for column in kept]


def _columns(study: Study) -> tuple[Column, ...]:
    if study.shift is None:
        return (LAST[0], LAST[2])
    *windows, before, _ = shift_columns(study)
    return (windows[-1], before)


def _drawing(
    study: Study,
    swept: list[Sweep],
    found: Results,
    place: int,
    style: Mapping[str, Mapping[str, Any]],
    name: str,
) -> Drawing:
    column = found.columns[place]
    values = {key: row[place] for key, _, row in found.rows}
    ours = [method for method in study.methods if method.group == "samuel" and values[method.trial].known]
    rates = sorted({rate for sweep in swept for rate in sweep.rates})
    nowhere = rates[0] ** 2 / rates[1]  # one place to the left of the curve
    figure = blank("learning rate", column.head)
    for sweep in swept:
        kept = [(rate, values[key]) for rate, key in zip(sweep.rates, sweep.methods, strict=True) if values[key].known]
        looks = dict(style[sweep.methods[0]]) | {"dash": "solid"}
        spread = {"type": "data", "array": [value.deviation or 0.0 for _, value in kept], "width": 3}
        line(figure, [rate for rate, _ in kept], [value.mean for _, value in kept], sweep.label, looks,
             markers=True, error_y=spread)  # fmt: skip
    for number, method in enumerate(ours):
        value, looks = values[method.trial], style[method.trial]
        at = nowhere * (rates[1] / rates[0]) ** (0.25 * (number - (len(ours) - 1) / 2))
        line(figure, [at], [value.mean], method.label, {}, mode="markers", legendgroup=method.trial,
             marker={"size": 10, "color": looks["color"], "symbol": number % 5},
             error_y={"type": "data", "array": [value.deviation or 0.0], "width": 3})  # fmt: skip
        line(figure, [at, rates[-1]], [value.mean] * 2, method.label, {"width": 1, "dash": "dot", "color": looks["color"]},
             legendgroup=method.trial, showlegend=False, hoverinfo="skip", hovertemplate=None)  # fmt: skip
    log_axis(figure, "x", ticks=rates)
    figure.update_xaxes(tickvals=[nowhere, *rates], ticktext=["none", *(f"{rate:g}" for rate in rates)])
    figure.update_layout(hovermode="closest")
    if column.percent:
        figure.update_yaxes(tickformat=".0%")
    elif all(value.mean > 0 for value in values.values() if value.known):
        log_axis(figure, "y", [value.mean for value in values.values() if value.known])
    said = "; ".join(_compared(column, sweep, values, ours) for sweep in swept)
    return Drawing(
        f"{name}-sweep-{column.key.replace('_', '-')}",
        f"A sweep of rates: {column.head}",
        figure,
        f"Line chart of the {column.said} by learning rate, on a logarithmic scale. {said}",
        f"{column.said.capitalize()}: the curve has one run for each rate, SAMUEL's points none. Means over seeds with "
        "one standard deviation.",
        half=True,
    )


def sweep_findings(study: Study) -> list[str]:
    """Which rate of a sweep is best, what the usual one gives, and where SAMUEL is without one."""
    found = results(study)
    kept = {column.key for column in _columns(study)}
    said = []
    for sweep in sweeps(study):
        for place, column in enumerate(found.columns):
            if column.key in kept:
                values = {key: row[place] for key, _, row in found.rows}
                ours = [method for method in study.methods if method.group == "samuel" and values[method.trial].known]
                said.append(_compared(column, sweep, values, ours))
    return [sentence for sentence in said if sentence]


def _compared(column: Column, sweep: Sweep, values: Mapping[str, Value], ours: list[Method]) -> str:
    known = [(rate, values[key]) for rate, key in zip(sweep.rates, sweep.methods, strict=True) if values[key].known]
    if not known:
        return ""
    unit = "%" if column.percent else ""
    sign = 1 if column.lower else -1
    best, top = min(known, key=lambda entry: sign * entry[1].mean)
    worst, bottom = max(known, key=lambda entry: sign * entry[1].mean)
    said = (
        f"{column.said.capitalize()} in a sweep of {len(sweep.rates)} rates of {sweep.label}: "
        f"{column.text(top.mean)}{unit} at the best, {best:g}, {column.text(bottom.mean)}{unit} at the worst, {worst:g}."
    )
    for method in ours:
        value = values[method.trial]
        beaten = int(np.sum([column.better(value.mean, one.mean) for _, one in known]))
        said += f" {method.label} has {column.text(value.mean)}{unit}, better than {beaten} of them."
    return said
