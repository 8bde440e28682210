"""Figures of sweeps of learning rates: a curve, and SAMUEL as points without a rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from samuel_lab.drawing import Drawing, blank, line, log_axis
from samuel_lab.report.gathering import DROP_INS, Study
from samuel_lab.report.summary import Results, Value, results
from samuel_lab.report.sweep import Sweep, columns, compared, sweeps


def sweep_drawings(study: Study, style: Mapping[str, Mapping[str, Any]], name: str) -> list[Drawing]:
    """For two metrics, a curve of every sweep, and SAMUEL as points without a rate."""
    swept = sweeps(study)
    if not swept:
        return []
    found = results(study)
    known = {column.key: place for place, column in enumerate(found.columns)}
    kept = [column for column in columns(study) if column.key in known]
    return [_drawing(study, swept, found, known[column.key], style, name) for column in kept]


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
    ours = [method for method in study.methods if method.trial in DROP_INS and values[method.trial].known]
    rates = sorted({rate for sweep in swept for rate in sweep.rates})
    nowhere = rates[0] ** 2 / rates[1]  # to the left of the curve
    figure = blank("learning rate", column.head)
    for sweep in swept:
        kept = [(rate, values[key]) for rate, key in zip(sweep.rates, sweep.methods, strict=True) if values[key].known]
        line(
            figure,
            [rate for rate, _ in kept],
            [value.mean for _, value in kept],
            sweep.label,
            {**style[sweep.methods[0]], "dash": "solid"},
            markers=True,
            error_y=_deviations([value for _, value in kept]),
            meta={"line": sweep.methods[0], "family": ""},
        )
    for number, method in reversed(list(enumerate(ours))):  # the first on top
        value, looks, meta = values[method.trial], style[method.trial], {"line": method.trial, "family": ""}
        at = nowhere * (rates[1] / rates[0]) ** (0.25 * (number - (len(ours) - 1) / 2))
        level = {**looks, "width": 1, "dash": "dot"}
        line(figure, [at, rates[-1]], [value.mean] * 2, method.label, level, meta=meta, showlegend=False)
        marker = {"size": 10, "color": looks["color"], "symbol": number % 5}
        more = {"mode": "markers", "marker": marker, "error_y": _deviations([value]), "meta": meta}
        line(figure, [at], [value.mean], method.label, dict(looks), **more)
    log_axis(figure, "x", ticks=rates)
    figure.update_xaxes(tickvals=[nowhere, *rates], ticktext=["none", *(f"{rate:g}" for rate in rates)])
    figure.update_layout(hovermode="closest")
    if column.percent:
        figure.update_yaxes(tickformat=".0%")
    elif all(value.mean > 0 for value in values.values() if value.known):
        log_axis(figure, "y", [value.mean for value in values.values() if value.known])
    said = "; ".join(compared(column, sweep, values, ours) for sweep in swept)
    return Drawing(
        f"{name}-sweep-{column.key.replace('_', '-')}",
        f"A sweep of rates: {column.head}",
        figure,
        f"Line chart of the {column.said} by learning rate, on a logarithmic scale. {said}",
        f"{column.said.capitalize()}: the curve has a run for each rate; SAMUEL's points have no rate. Means over "
        "seeds, with bars of one standard deviation.",
        half=True,
    )


def _deviations(values: Sequence[Value]) -> dict[str, Any]:
    """Error bars of one standard deviation."""
    return {"type": "data", "array": [value.deviation or 0.0 for value in values], "width": 3}
