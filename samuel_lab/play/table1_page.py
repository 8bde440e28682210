"""The Table 1 experiment as tables, sentences, figures and a page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from samuel_lab import drawing
from samuel_lab.drawing import REFERENCE, Drawing, Line, blank, curves, log_axis, only_positive, save
from samuel_lab.play.table1 import (
    METHODS,
    OWN,
    SHORTEST_FITTED,
    YARDSTICKS,
    Experiment,
    Group,
    Measured,
    Report,
    Result,
)
from samuel_lab.play.table1_streams import FAMILIES
from samuel_lab.tables import Cell, Table, number

__all__ = ["bounds_table", "drawings", "findings", "render", "results_table", "save", "section"]

STYLES: dict[str, dict[str, Any]] = {
    "flh": {"color": "#0072b2", "dash": "solid", "width": 2},
    "aflh": {"color": "#0072b2", "dash": "dash", "width": 2},
    "saol": {"color": "#009e73", "dash": "solid", "width": 2},
    "cbce": {"color": "#009e73", "dash": "dash", "width": 2},
    "sacs": {"color": "#cc79a7", "dash": "solid", "width": 2},
    "parameter-free": {"color": "#e69f00", "dash": "solid", "width": 2},
    "samuel-descent": {"color": "#d55e00", "dash": "dash", "width": 3},
    "samuel-full": {"color": "#d55e00", "dash": "dashdot", "width": 3},
    "samuel": {"color": "#d55e00", "dash": "solid", "width": 3},
    "samuel-warm": {"color": "#d55e00", "dash": "dot", "width": 2},
    "saol-adagrad": {"color": "#009e73", "dash": "dot", "width": 2},
    "hedge": {"color": "#56b4e9", "dash": "dash", "width": 2},
    "adagrad": {"color": "#56b4e9", "dash": "solid", "width": 2},
}
"""How the line of each method looks: methods of one row of the table share a colour."""
DASHES = {
    "horizon": "solid",
    "length": "longdash",
    "norms": "longdashdot",
    "squares": "dash",
    "coordinates": "dot",
    "matrix": "dashdot",
}
"""How the line of each yardstick is dashed."""
INSIDE = {"calm": "a calm stretch", "storm": "a storm", "stretch": "a stretch"}
"""What intervals lie inside of, by the kind of stretch."""


@dataclass(frozen=True)
class Section:
    """What the page shows of one family."""

    experiment: Experiment
    label: str
    about: str
    apart: str
    tables: tuple[tuple[str, Table], ...]
    findings: tuple[str, ...]
    drawings: tuple[Drawing, ...]


def render(report: Report) -> str:
    """The page as text: tables, figures and how to make it again."""
    sections = [section(experiment) for experiment in report.experiments]
    return drawing.page(
        "table1.html",
        [drawn for part in sections for drawn in part.drawings],
        report=report,
        sections=sections,
        bounds=bounds_table(report),
        yardsticks=list(YARDSTICKS.values()),
        fitted=SHORTEST_FITTED,
    )


def bounds_table(report: Report) -> Table:
    """What theory says of every method of a report."""
    rows = []
    for method in map(METHODS.__getitem__, report.plan.methods):
        made_of = YARDSTICKS[method.yardstick].label if method.yardstick else "–"
        source = f"control: {method.source}" if method.control else method.source
        rows.append((method.label, (Cell(method.row), Cell(made_of), Cell(source))))
    return Table(("method", "bound by theory", "made of", "by"), tuple(rows))


def section(experiment: Experiment) -> Section:
    """The tables, sentences and figures of one family."""
    family = FAMILIES[experiment.family]
    tables = tuple(
        (f"{family.label}: intervals inside {INSIDE[group.kind]}", results_table(experiment, group))
        for group in experiment.groups
    )
    return Section(
        experiment, family.label, family.about, family.apart, tables, findings(experiment), tuple(drawings(experiment))
    )


def results_table(experiment: Experiment, group: Group) -> Table:
    """Worst regret, exponents and ratios of every method on the intervals inside stretches of one kind."""
    results = experiment.main()
    measured = [result.on(group.kind) for result in results]
    methods = [METHODS[result.method] for result in results]
    common = FAMILIES[experiment.family].tight[0]
    short, long = _shown(group)
    unscaled = [experiment.of(result.method, OWN) for result in results]
    label = YARDSTICKS[common].label
    columns: list[tuple[str, str, list[Cell]]] = [
        ("bound by theory", "bound", [Cell(method.row, hint=method.source) for method in methods]),
        (
            f"worst regret, {short} rounds",
            f"worst {short}",
            _column([part.worst[group.lengths.index(short)] for part in measured]),
        ),
        (
            f"worst regret, {long} rounds",
            f"worst {long}",
            _column([part.worst[-1] for part in measured], [f"± {number(part.deviation[-1])}" for part in measured]),
        ),
        ("grows as |I| to the power", "|I|^", [Cell(_power(part.exponent)) for part in measured]),
        (
            "its bound does",
            "bound: |I|^",
            [Cell(_power(group.exponents[m.yardstick] if m.yardstick else None)) for m in methods],
        ),
        (
            "regret over its bound",
            "/bound",
            [
                Cell(number(part.ratios[method.yardstick] if method.yardstick else None))
                for part, method in zip(measured, methods, strict=True)
            ],
        ),
        (f"regret over {label}", f"/{label}", _column([part.ratios[common] for part in measured])),
    ]
    if any(part.exponent_in_T is not None for part in measured):
        columns.append(("grows as T to the power", "T^", [Cell(_power(part.exponent_in_T)) for part in measured]))
    worst = [None if result is None else result.on(group.kind).worst[-1] for result in unscaled]
    columns.append((f"scale not told: worst regret, {long} rounds", f"not told: {long}", _column(worst)))
    rows = [(method.label, tuple(cells[place] for _, _, cells in columns)) for place, method in enumerate(methods)]
    heads, brief, _ = zip(*columns, strict=True)
    return Table(("method", *heads), tuple(rows), ("", *brief))


def findings(experiment: Experiment) -> tuple[str, ...]:
    """What one sees in the numbers, in sentences made from them: also where they do not show what the bounds say."""
    family, group = FAMILIES[experiment.family], experiment.groups[0]
    rows = [result for result in experiment.main() if not METHODS[result.method].control]
    losing, winning = (
        [result for result in rows if METHODS[result.method].yardstick in side] for side in (family.loose, family.tight)
    )
    said = []
    if losing and winning:
        said.append(_order(losing, winning, group, family.loose[0]))
        said += _against_the_order(losing, winning, group)
    if losing and winning and all(result.on(group.kind).exponent is not None for result in losing + winning):
        said.append(
            "The worst regret of the former grows as the length of the interval to these powers: "
            f"{_powers(losing, group, lambda m: m.exponent)}; that of the latter: "
            f"{_powers(winning, group, lambda m: m.exponent)}."
        )
    grown = [result for result in experiment.main() if result.on(group.kind).exponent_in_T is not None]
    if grown:
        said.append(
            f"The regret on the first {group.first} rounds after a change grows as the length of the run to these "
            f"powers: {_powers(grown, group, lambda m: m.exponent_in_T)}."
        )
    controls = [result for result in experiment.main() if METHODS[result.method].control]
    if controls:
        said.append(f"Controls, on the same intervals: {_values(controls, group)}.")
    return tuple(said)


def drawings(experiment: Experiment) -> list[Drawing]:
    """All figures of a family."""
    drawn = [by_length(experiment, group) for group in experiment.groups]
    return drawn + [
        by_run(experiment, group)
        for group in experiment.groups
        if any(result.on(group.kind).exponent_in_T is not None for result in experiment.main())
    ]


def by_length(experiment: Experiment, group: Group) -> Drawing:
    """The worst regret of every method against the length of intervals, and the bounds."""
    family = FAMILIES[experiment.family]
    figure = blank("rounds in the interval", "largest regret")
    lengths = np.asarray(group.lengths)
    grey = [{**REFERENCE, "dash": DASHES[name], "width": 1} for name in group.yardsticks]
    bounds = [
        Line(name, YARDSTICKS[name].label, "", lengths, np.asarray(values), style)
        for (name, values), style in zip(group.yardsticks.items(), grey, strict=True)
    ]
    curves(figure, bounds)
    curves(
        figure,
        [_line(result, lengths, only_positive(result.on(group.kind).worst)) for result in experiment.main()],
        markers=True,
    )
    worst = [result.on(group.kind).worst for result in experiment.main()]
    log_axis(figure, "y", *worst, *group.yardsticks.values())
    log_axis(figure, "x", ticks=group.lengths)
    return Drawing(
        f"{family.name}-{group.kind}-length",
        f"Worst regret on intervals inside {INSIDE[group.kind]}",
        figure,
        "Largest regret against the length of the interval, both axes logarithmic. On intervals of "
        f"{group.lengths[-1]} rounds: {_values(experiment.main(), group)}.",
        "The largest regret over all intervals of a length, mean over the seeds; methods of one row of the table have "
        "one colour. Grey: what the bounds are made of, without logarithms and constants (largest value over the same "
        "intervals), so that slopes can be compared, and heights only among each other.",
    )


def by_run(experiment: Experiment, group: Group) -> Drawing:
    """The regret after changes against the length of the run."""
    family = FAMILIES[experiment.family]
    figure = blank("rounds in the run, T", f"regret on the first {group.first} rounds")
    results = [result for result in experiment.main() if result.on(group.kind).exponent_in_T is not None]
    after = [[value or 0.0 for value in result.on(group.kind).after] for result in results]
    lines = [_line(r, np.asarray(group.runs), only_positive(y)) for r, y in zip(results, after, strict=True)]
    curves(figure, lines, markers=True)
    log_axis(figure, "y", *([value for value in result.on(group.kind).after if value] for result in results))
    log_axis(figure, "x", ticks=group.runs)
    powers = _powers(results, group, lambda m: m.exponent_in_T)
    return Drawing(
        f"{family.name}-{group.kind}-run",
        f"Regret at the start of {INSIDE[group.kind]}, late in longer runs",
        figure,
        f"Regret on the first {group.first} rounds after a change against the length of the run, both axes "
        f"logarithmic. Powers of growth: {powers}.",
        f"The mean regret on the first {group.first} rounds of every {group.kind} that begins in the second half of a "
        "run. No method knows the length of the run, so each run is the beginning of the next.",
    )


def _line(result: Result, x: np.ndarray, y: np.ndarray) -> Line:
    return Line(result.method, METHODS[result.method].label, "", x, y, STYLES[result.method])


def _shown(group: Group) -> tuple[int, int]:
    """The two lengths that tables show."""
    lengths = group.lengths
    return lengths[max(0, len(lengths) - 4)], lengths[-1]


def _column(values: Sequence[float | None], hints: Sequence[str] | None = None) -> list[Cell]:
    known = [value for value in values if value is not None]
    lowest = number(min(known)) if known else None
    return [
        Cell(number(value), best=value is not None and number(value) == lowest, hint=hint)
        for value, hint in zip(values, hints or [""] * len(values), strict=True)
    ]


def _power(value: float | None) -> str:
    return "–" if value is None else f"{value + 0.0:.2f}".replace("-0.00", "0.00").replace("-", "−")


def _at_the_end(result: Result, group: Group) -> float:
    return result.on(group.kind).worst[-1]


def _values(results: Sequence[Result], group: Group) -> str:
    return ", ".join(f"{METHODS[r.method].label} {number(_at_the_end(r, group))}" for r in results)


def _powers(results: Sequence[Result], group: Group, value: Callable[[Measured], float | None]) -> str:
    return ", ".join(f"{METHODS[r.method].label} {_power(value(r.on(group.kind)))}" for r in results)


def _order(losing: Sequence[Result], winning: Sequence[Result], group: Group, loose: str) -> str:
    best, worst = (min(_at_the_end(r, group) for r in losing), max(_at_the_end(r, group) for r in winning))
    text = (
        f"Worst regret on intervals of {group.lengths[-1]} rounds inside {INSIDE[group.kind]}: "
        f"{_values(losing, group)} with "
        f"a bound of the order of {YARDSTICKS[loose].label}; {_values(winning, group)} with a tighter one."
    )
    if worst < best:
        return f"{text} The order is that of the bounds, by a factor of {number(best / worst)} or more."
    return f"{text} The order is not that of the bounds throughout."


def _against_the_order(losing: Sequence[Result], winning: Sequence[Result], group: Group) -> list[str]:
    """Who does as well as someone with a tighter bound."""
    said = []
    for one in losing:
        beaten = [r for r in winning if _at_the_end(r, group) >= _at_the_end(one, group)]
        if beaten:
            names = " and ".join(METHODS[r.method].label for r in beaten)
            said.append(f"{METHODS[one.method].label} is no worse than {names}, although its bound is looser.")
    return said
