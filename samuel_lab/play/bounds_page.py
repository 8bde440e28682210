"""Regret beside the bounds of the paper's Table 1, as tables, sentences and figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from samuel_lab.drawing import REFERENCE, Drawing, Line, blank, curves, log_axis, only_positive
from samuel_lab.play.bounds import ROWS, SHORTEST_FITTED, YARDSTICKS, Group, Measured
from samuel_lab.play.records import Contest, Result
from samuel_lab.tables import Cell, Table, Titled, column, number

DASHES = dict(zip(YARDSTICKS, ("solid", "longdash", "longdashdot", "dash", "dot", "dashdot"), strict=True))
"""How the line of each yardstick is dashed."""
INSIDE = {"calm": "a calm stretch", "storm": "a storm", "stretch": "a stretch"}
"""What intervals lie inside of, by the kind of stretch."""

Value = Callable[[Measured], float | None]


def bounds_tables(contest: Contest) -> list[Titled]:
    """What theory says of the learners, and worst regret, exponents and ratios beside it."""
    if not contest.groups:
        return []
    rows = []
    for result in _known(contest):
        row = ROWS[result.learner]
        made_of = YARDSTICKS[row.yardstick].label if row.yardstick else "–"
        source = f"control: {row.source}" if row.control else row.source
        rows.append((result.label, (Cell(row.bound), Cell(made_of), Cell(source))))
    made_of = ", ".join(f"{yardstick.label} ({yardstick.about})" for yardstick in YARDSTICKS.values())
    bounds = Titled(
        "what theory says of the regret on an interval I",
        Table(("", "bound", "made of", "by"), tuple(rows)),
        f"Without logarithms and constants, a bound is made of {made_of}. D₂ is the diameter of the domain, Dᵢ its "
        "width, G the largest norm of a gradient, which learners are given where they take it. A measured regret is "
        "that of a few streams: below its bound it says nothing against the method, and no regret here proves a bound.",
    )
    note = (
        "Worst regret: the largest over all intervals of that length inside one stretch, mean over the seeds (point at "
        f"a number to see the standard deviation). Powers and ratios are over lengths from {SHORTEST_FITTED} rounds "
        "on; a ratio is the largest of regret and bound on the same interval."
    )
    groups = [(f"intervals inside {INSIDE[group.kind]}", group_table(contest, group)) for group in contest.groups]
    return [bounds, *(Titled(title, table, note) for title, table in groups)]


def group_table(contest: Contest, group: Group) -> Table:
    """Worst regret, exponents and ratios of every learner on the intervals inside stretches of one kind."""
    assert contest.comparison is not None
    results = contest.results
    measured = [_on(result, group) for result in results]
    own = [ROWS[result.learner].yardstick if result.learner in ROWS else None for result in results]
    common = contest.comparison.tight[0]
    short, long = group.lengths[max(0, len(group.lengths) - 4)], group.lengths[-1]
    columns: list[tuple[str, str, list[Cell]]] = [
        (
            f"worst regret, {short} rounds",
            f"worst {short}",
            column([part.worst[group.lengths.index(short)] for part in measured]),
        ),
        (
            f"worst regret, {long} rounds",
            f"worst {long}",
            column([part.worst[-1] for part in measured], [f"± {number(part.deviation[-1])}" for part in measured]),
        ),
        ("grows as |I| to the power", "|I|^", [Cell(_power(part.exponent)) for part in measured]),
        (
            "its bound does",
            "bound: |I|^",
            [Cell(_power(group.exponents[yardstick] if yardstick else None)) for yardstick in own],
        ),
        (
            "regret over its bound",
            "/bound",
            [
                Cell(number(part.ratios[yardstick] if yardstick else None))
                for part, yardstick in zip(measured, own, strict=True)
            ],
        ),
        (
            f"regret over {YARDSTICKS[common].label}",
            f"/{YARDSTICKS[common].label}",
            column([part.ratios[common] for part in measured]),
        ),
    ]
    if any(part.exponent_in_T is not None for part in measured):
        columns.append(("grows as T to the power", "T^", [Cell(_power(part.exponent_in_T)) for part in measured]))
    heads, brief, _ = zip(*columns, strict=True)
    rows = [(result.label, tuple(cells[place] for _, _, cells in columns)) for place, result in enumerate(results)]
    return Table(("learner", *heads), tuple(rows), ("", *brief))


def bounds_findings(contest: Contest) -> list[str]:
    """Whether learners come out in the order of their bounds, in sentences made from the numbers."""
    if not contest.groups:
        return []
    assert contest.comparison is not None
    group = contest.groups[0]
    known = _known(contest)
    losing, winning = (
        [r for r in known if not ROWS[r.learner].control and ROWS[r.learner].yardstick in side]
        for side in (contest.comparison.loose, contest.comparison.tight)
    )
    said = []
    if losing and winning:
        said.append(_order(losing, winning, group, contest.comparison.loose[0]))
        for one in losing:
            beaten = [r.label for r in winning if _worst(r, group) >= _worst(one, group)]
            if beaten:
                said.append(f"{one.label} is no worse than {' and '.join(beaten)}, although its bound is looser.")
        if all(_on(result, group).exponent is not None for result in losing + winning):
            said.append(
                "The worst regret of the former grows as the length of the interval to these powers: "
                f"{_powers(losing, group, lambda m: m.exponent)}; that of the latter: "
                f"{_powers(winning, group, lambda m: m.exponent)}."
            )
    grown = [result for result in contest.results if _on(result, group).exponent_in_T is not None]
    if grown:
        said.append(
            f"The regret on the first {group.first} rounds after a change grows as the length of the run to these "
            f"powers: {_powers(grown, group, lambda m: m.exponent_in_T)}."
        )
    controls = [result for result in known if ROWS[result.learner].control]
    if controls:
        said.append(f"Controls, on the same intervals: {_values(controls, group)}.")
    return said


def by_length(contest: Contest, group: Group, lines: Sequence[Line]) -> Drawing:
    """The worst regret of every learner against the length of intervals, and the bounds; `lines` are the learners'."""
    figure = blank("rounds in the interval", "largest regret")
    lengths = np.asarray(group.lengths)
    grey = [
        Line(name, YARDSTICKS[name].label, "", lengths, np.asarray(values), REFERENCE | {"dash": dash, "width": 1})
        for (name, values), dash in zip(group.yardsticks.items(), DASHES.values(), strict=True)
    ]
    curves(figure, grey)
    curves(figure, lines, markers=True)
    log_axis(figure, "y", *(_on(result, group).worst for result in contest.results), *group.yardsticks.values())
    log_axis(figure, "x", ticks=group.lengths)
    return Drawing(
        f"{contest.stream}-{group.kind}-length",
        f"Worst regret on intervals inside {INSIDE[group.kind]}",
        figure,
        "Largest regret against the length of the interval, both axes logarithmic. On intervals of "
        f"{group.lengths[-1]} rounds: {_values(contest.results, group)}.",
        "The largest regret over all intervals of a length, mean over the seeds. Grey: what the bounds are made of, "
        "without logarithms and constants (largest value over the same intervals), so that slopes can be compared, and "
        "heights only among each other.",
    )


def by_run(contest: Contest, group: Group, lines: Sequence[Line]) -> Drawing:
    """The regret after changes against the length of the run."""
    figure = blank("rounds in the run, T", f"regret on the first {group.first} rounds")
    curves(figure, lines, markers=True)
    results = grown(contest, group)
    log_axis(figure, "y", *([value for value in _on(result, group).after if value] for result in results))
    log_axis(figure, "x", ticks=group.runs)
    return Drawing(
        f"{contest.stream}-{group.kind}-run",
        f"Regret at the start of {INSIDE[group.kind]}, late in longer runs",
        figure,
        f"Regret on the first {group.first} rounds after a change against the length of the run, both axes "
        f"logarithmic. Powers of growth: {_powers(results, group, lambda m: m.exponent_in_T)}.",
        f"The mean regret on the first {group.first} rounds of every {group.kind} that begins in the second half of a "
        "run. No learner knows the length of the run, so each run is the beginning of the next.",
    )


def drawings(contest: Contest, line: Callable[..., Line]) -> list[Drawing]:
    """The figures of a contest of Table 1; `line(result, x, y)` makes the line of a learner."""
    drawn = []
    for group in contest.groups:
        worst = [line(result, group.lengths, only_positive(_on(result, group).worst)) for result in contest.results]
        drawn.append(by_length(contest, group, worst))
        after = [
            line(result, group.runs, only_positive([value or 0.0 for value in _on(result, group).after]))
            for result in grown(contest, group)
        ]
        if after:
            drawn.append(by_run(contest, group, after))
    return drawn


def grown(contest: Contest, group: Group) -> list[Result]:
    """The learners whose growth with the length of the run is known."""
    return [result for result in contest.results if _on(result, group).exponent_in_T is not None]


def _known(contest: Contest) -> list[Result]:
    return [result for result in contest.results if result.learner in ROWS]


def _on(result: Result, group: Group) -> Measured:
    return next(part for part in result.measured if part.kind == group.kind)


def _worst(result: Result, group: Group) -> float:
    return _on(result, group).worst[-1]


def _power(value: float | None) -> str:
    return "–" if value is None else f"{value + 0.0:.2f}".replace("-0.00", "0.00").replace("-", "−")


def _values(results: Sequence[Result], group: Group) -> str:
    return ", ".join(f"{result.label} {number(_worst(result, group))}" for result in results)


def _powers(results: Sequence[Result], group: Group, value: Value) -> str:
    return ", ".join(f"{result.label} {_power(value(_on(result, group)))}" for result in results)


def _order(losing: Sequence[Result], winning: Sequence[Result], group: Group, loose: str) -> str:
    best, worst = (min(_worst(r, group) for r in losing), max(_worst(r, group) for r in winning))
    text = (
        f"Worst regret on intervals of {group.lengths[-1]} rounds inside {INSIDE[group.kind]}: "
        f"{_values(losing, group)} with a bound of the order of {YARDSTICKS[loose].label}; {_values(winning, group)} "
        "with a tighter one."
    )
    if worst < best:
        return f"{text} The order is that of the bounds, by a factor of {number(best / worst)} or more."
    return f"{text} The order is not that of the bounds throughout."
