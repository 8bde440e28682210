"""The numbers of a study: tables, findings in sentences, and JSON.

Runs are merged in `gathering`; costs are in `costs`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from samuel_lab.report.costs import cost_findings, costs_json, projected
from samuel_lab.report.gathering import Method, Study, notes, studies
from samuel_lab.report.reading import Recorded, Trial
from samuel_lab.tables import Cell, Table, number, plain

COPIED = ("rounds", "unit", "shift", "windows", "transitions", "batch", "data", "model")
"""Entries of the plan that the JSON summary repeats."""
ERRORS = 2.0
"""A difference counts as clear if it is larger than this many standard errors."""


@dataclass(frozen=True)
class Value:
    """A metric of a method, over its seeds.

    Attributes:
        values: one for every seed that has it.
        wanted: number of seeds.
        diverged: number of seeds whose trial diverged before it could be measured.
    """

    values: tuple[float, ...]
    wanted: int
    diverged: int = 0

    @property
    def known(self) -> bool:
        """Whether there is a mean. There is none if a seed diverged: the mean of the others would be biased."""
        return bool(self.values) and not self.diverged

    @property
    def partial(self) -> bool:
        """Whether trials of some seeds have not ended."""
        return self.known and len(self.values) < self.wanted

    @property
    def mean(self) -> float:
        """The mean over seeds; nan if there is none."""
        return float(np.mean(self.values)) if self.known else math.nan

    @property
    def deviation(self) -> float | None:
        """The standard deviation over seeds; None for fewer than two."""
        return float(np.std(self.values, ddof=1)) if self.known and len(self.values) > 1 else None

    @property
    def hint(self) -> str:
        """Which seeds are missing, in words."""
        if self.diverged:
            return f"{self.diverged} of {self.wanted} seeds diverged"
        return f"{len(self.values)} of {self.wanted} seeds so far" if len(self.values) < self.wanted else ""


def clearly_differ(one: Value, other: Value) -> bool | None:
    """Whether two means differ by more than two standard errors of the difference; None if unknown.

    >>> clearly_differ(Value((0.8, 0.9), 2), Value((0.2, 0.3), 2)), clearly_differ(Value((0.8,), 1), Value((0.2,), 1))
    (True, None)
    """
    if one.deviation is None or other.deviation is None:
        return None
    error = math.sqrt(one.deviation**2 / len(one.values) + other.deviation**2 / len(other.values))
    return abs(one.mean - other.mean) > ERRORS * error


@dataclass(frozen=True)
class Column:
    """A metric by which methods are compared.

    Attributes:
        key: its name in JSON.
        head: its name in tables.
        short: the same for a narrow terminal.
        said: the same in a sentence.
        percent: whether it is displayed in percent.
        lower: whether lower is better.
    """

    key: str
    head: str
    short: str
    said: str
    percent: bool = True
    lower: bool = False

    def text(self, value: float) -> str:
        """A value as displayed in tables."""
        if not math.isfinite(value):
            return "–"
        return f"{100 * value:.2f}" if self.percent else number(value)

    def shown(self, value: Value) -> str:
        """A mean with its deviation."""
        if value.diverged:
            return "diverged"
        if not value.known:
            return "–"
        if value.deviation is None:
            return self.text(value.mean)
        spread = f"{100 * value.deviation:.2f}" if self.percent else number(value.deviation, 2)
        return f"{self.text(value.mean)} ± {spread}"

    def best(self, values: Iterable[Value]) -> str | None:
        """The best mean as displayed; means that read the same are equally good."""
        means = [value.mean for value in values if value.known]
        return self.text(min(means) if self.lower else max(means)) if means else None

    def better(self, one: float, other: float) -> bool:
        """Whether one value is better than another."""
        return one < other if self.lower else one > other


@dataclass(frozen=True)
class Results:
    """The metrics of a study, and the values of every method in the order of the columns."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, str, tuple[Value, ...]], ...]
    """Name, label and values of each method."""

    def of(self, name: str) -> tuple[Value, ...]:
        """The values of a method."""
        return next(values for key, _, values in self.rows if key == name)


def window_mean(steps: np.ndarray, accuracy: np.ndarray, shift: int, window: int) -> float | None:
    """The mean accuracy over steps `shift + 1` to `shift + window`; None if not known to the end.

    A measurement stands for the steps since the previous one, so measurements need not be equidistant.

    >>> window_mean(np.array([10, 11, 14]), np.array([0.9, 0.1, 0.5]), shift=10, window=4)
    0.4
    """
    if not len(steps) or steps[-1] < shift + window:
        return None
    starts = np.concatenate([[0], steps[:-1]])
    weight = np.clip(steps, shift, shift + window) - np.clip(starts, shift, shift + window)
    used = weight > 0
    return float(np.average(accuracy[used], weights=weight[used]))


def results(study: Study) -> Results:
    """The metrics of every method."""
    columns = shift_columns(study) if study.shift is not None else LAST
    rows = []
    for method in study.methods:
        if method.searches:
            rows += _search_rows(method, columns)
        else:
            measured = [[_measure(column, trial, study) for trial in method.trials] for column in columns]
            rows.append((method.trial, method.label, tuple(_value(found, method.trials) for found in measured)))
    kept = [place for place in range(len(columns)) if any(values[place].values for _, _, values in rows)]
    if not kept:
        kept = list(range(len(columns)))
    rows = [(key, label, tuple(values[place] for place in kept)) for key, label, values in rows]
    return Results(tuple(columns[place] for place in kept), tuple(rows))


def shift_columns(study: Study) -> tuple[Column, ...]:
    """The five metrics of the paper's online experiment: windows after the shift, best before, best after."""
    unit = study.plan.get("unit", "round")
    return (
        *(
            Column(
                f"window_{window}",
                f"first {window} {unit}s after the shift",
                f"first {window}",
                f"mean accuracy in the first {window} {unit}s after the shift",
            )
            for window in study.windows
        ),
        Column("best_before", "best before the shift", "best before", "best accuracy before the shift"),
        Column("best_after", "best after the shift", "best after", "best accuracy after the shift"),
    )


LAST = (
    Column("last_accuracy", "last accuracy", "last accuracy", "accuracy at the end"),
    Column("best_accuracy", "best accuracy", "best accuracy", "best accuracy of the run"),
    Column("last_test_loss", "last test loss", "last test loss", "test loss at the end", percent=False, lower=True),
)
"""The metrics of studies without a shift."""


def results_table(study: Study) -> Table:
    """The table of results, the best of each column marked; with a search, each method's rank among its schedules."""
    found = results(study)
    best = [column.best([values[place] for _, _, values in found.rows]) for place, column in enumerate(found.columns)]
    ranked = ranks(study)
    # The unit is in the header, not in every cell.
    heads = ["method", *(f"{c.head}, %" if c.percent else c.head for c in found.columns)]
    short = ["", *(f"{c.short} %" if c.percent else c.short for c in found.columns)]
    if ranked:
        total = study.search.searches if study.search else 0
        heads += [f"rank of {total} by last", f"rank of {total} by best"]
        short += [f"of {total} by last", f"of {total} by best"]
    rows = []
    for key, label, values in found.rows:
        cells = [
            Cell(
                column.shown(value) + ("*" if value.partial else ""),
                best=value.known and column.text(value.mean) == best[place],
                hint=value.hint,
            )
            for place, (column, value) in enumerate(zip(found.columns, values, strict=True))
        ]
        if ranked:
            cells += [Cell(ordinal(rank) if rank else "") for rank in ranked.get(key, (None, None))]
        rows.append((label, tuple(cells)))
    return Table(tuple(heads), tuple(rows), tuple(short))


def ranks(study: Study) -> dict[str, tuple[int | None, int | None]]:
    """The rank of each method among the schedules of the search, by last and by best accuracy."""
    search = study.search
    if search is None or not all(trial.ended for trial in search.trials):
        return {}
    last, best = schedule_accuracies(search)
    found = {}
    for method in study.methods:
        if not method.searches:
            values = [_value([_measure(c, t, study) for t in method.trials], method.trials) for c in LAST[:2]]
            found[method.trial] = (_rank(values[0], last), _rank(values[1], best))
    return found


def schedule_accuracies(search: Method) -> tuple[np.ndarray, np.ndarray]:
    """The last and the best accuracy of every schedule of a search, means over seeds; nan counts as 0."""
    trials = [trial for trial in search.trials if trial.started]
    last = np.mean([np.nan_to_num(trial.accuracy[-1]) for trial in trials], axis=0)
    best = np.mean([np.nan_to_num(trial.accuracy).max(axis=0) for trial in trials], axis=0)
    return last, best


def best_schedule(search: Method) -> tuple[float, ...]:
    """The learning rates, per phase, of the schedule with the highest last accuracy."""
    last, _ = schedule_accuracies(search)
    return (search.first.schedules or ())[int(np.argmax(last))]


def in_order_of_merit(study: Study, methods: Iterable[Method]) -> list[Method]:
    """Methods sorted by the first metric of the study, the best first; those without it are last."""
    found = results(study)
    column = found.columns[0]

    def rank(method: Method) -> tuple[bool, float]:
        value = found.of(method.trial)[0]
        return not value.known, value.mean * (1 if column.lower else -1) if value.known else 0.0

    return sorted(methods, key=rank)


def stability_table(study: Study) -> Table | None:
    """Last accuracies of a stability study by number of history decays and number of rates eta."""
    cells: dict[tuple[int, int], Value] = {}
    for method in study.methods:
        if method.group == "stability" and {"alphas", "etas"} <= method.first.plan.keys():
            place = (method.first.plan["alphas"], method.first.plan["etas"])
            cells[place] = _value([_measure(LAST[0], trial, study) for trial in method.trials], method.trials)
    if not cells:
        return None
    alphas, etas = (sorted({place[axis] for place in cells}) for axis in (0, 1))
    column = LAST[0]
    best = column.best(cells.values())
    rows = []
    for alpha in alphas:
        found = [cells.get((alpha, eta), Value((), 0)) for eta in etas]
        shown = [Cell(column.shown(v), best=v.known and column.text(v.mean) == best, hint=v.hint) for v in found]
        rows.append((f"{alpha} decays", tuple(shown)))
    heads = tuple(f"{eta} etas" for eta in etas)
    return Table(("last accuracy, %", *heads), tuple(rows), ("", *heads))


def spread(study: Study) -> tuple[float, float] | None:
    """The lowest and the highest mean last accuracy of a stability study."""
    methods = [method for method in study.methods if method.group == "stability"]
    values = [_value([_measure(LAST[0], t, study) for t in method.trials], method.trials) for method in methods]
    means = [value.mean for value in values if value.known]
    return (min(means), max(means)) if means else None


def findings(recordeds: Sequence[Recorded]) -> list[str]:
    """Findings of all studies, in sentences made from the numbers."""
    return [sentence for study in studies(recordeds) for sentence in study_findings(study)]


def study_findings(study: Study) -> list[str]:
    """Findings of one study, in sentences made from the numbers: also where SAMUEL is not the best."""
    low_high = spread(study)
    if low_high is not None:
        low, high = low_high
        count = sum(method.group == "stability" for method in study.methods)
        return [
            f"Accuracies at the end of the {count} trials with different hyperparameters are between "
            f"{100 * low:.2f} and {100 * high:.2f}%, {100 * (high - low):.2f} points apart."
        ]
    if projected(study):
        return cost_findings(study)
    said, found = [], results(study)
    ours = [method for method in study.methods if method.group == "samuel"]
    rivals = [row for row in found.rows if not row[0].endswith((":median", ":worst"))]  # a search reports its best
    for place, column in enumerate(found.columns):
        said += _about(column, [(key, label, values[place]) for key, label, values in rivals], ours)
    return [*said, *_about_search(study), *cost_findings(study)]


def as_json(recordeds: Sequence[Recorded]) -> dict[str, Any]:
    """The numbers of every table as JSON-serialisable dictionaries, for each study.

    Made for publication: of the paths of data and cache it has the last names only.
    """
    return {"format": 1, "studies": [_study_json(study) for study in studies(recordeds)]}


def ordinal(place: int) -> str:
    """A place in a ranking.

    >>> [ordinal(place) for place in (1, 2, 3, 4, 11, 22, 113)]
    ['1st', '2nd', '3rd', '4th', '11th', '22nd', '113th']
    """
    ending = "th" if place % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(place % 10, "th")
    return f"{place}{ending}"


def _measure(column: Column, trial: Trial, study: Study) -> float | None:
    """The metric of a column for a trial; None if not known (yet)."""
    accuracy, steps = trial.accuracy, trial.steps
    if not trial.started:
        return None
    shift = study.shift or 0
    if column.key.startswith("window_"):
        found = window_mean(steps, accuracy, shift, int(column.key.removeprefix("window_")))
        return found if found is not None and math.isfinite(found) else None
    if column.key == "best_before":
        return _highest(accuracy[steps <= shift]) if trial.ended or trial.done >= shift else None
    if not trial.ended:
        return None
    if column.key == "best_after":
        return _highest(accuracy[steps > shift])
    if column.key == "best_accuracy":
        return _highest(accuracy)
    last = (accuracy if column.key == "last_accuracy" else trial.test_loss)[-1]
    # A diverged network still predicts a class, always the same one.
    return float(last) if math.isfinite(last) and not trial.diverged else None


def _highest(values: np.ndarray) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.max()) if len(known) else None


def _value(found: Sequence[float | None], trials: Sequence[Trial]) -> Value:
    lost = sum(value is None and trial.diverged for value, trial in zip(found, trials, strict=True))
    return Value(tuple(value for value in found if value is not None), len(found), lost)


def _search_rows(method: Method, columns: Sequence[Column]) -> list[tuple[str, str, tuple[Value, ...]]]:
    """The best, the median and the worst of the schedules, column by column."""
    kinds = {
        "best": f"best of {method.searches} schedules",
        "median": "median of them",
        "worst": "worst of them",
    }
    gathered: dict[str, list[Value]] = {kind: [] for kind in kinds}
    for column in columns:
        values: dict[str, list[float | None]] = {kind: [] for kind in kinds}
        for trial in method.trials:
            found = _of_schedules(column, trial)
            for kind, one in zip(kinds, found, strict=True):
                values[kind].append(one)
        for kind in kinds:
            gathered[kind].append(_value(values[kind], method.trials))
    return [(f"{method.trial}:{kind}", label, tuple(gathered[kind])) for kind, label in kinds.items()]


def _of_schedules(column: Column, trial: Trial) -> tuple[float | None, float | None, float | None]:
    """Best, median and worst; a schedule without a finite value is worse than all others, and becomes None."""
    if not trial.ended or not trial.started or column not in LAST:
        return None, None, None
    worst = math.inf if column.lower else -math.inf
    if column.key == "best_accuracy":
        found = np.where(np.isfinite(trial.accuracy), trial.accuracy, worst).max(axis=0)
    else:
        last = (trial.accuracy if column.key == "last_accuracy" else trial.test_loss)[-1]
        found = np.where(np.isfinite(last), last, worst)
    picked = [found.min(), np.median(found), found.max()]
    if not column.lower:
        picked.reverse()
    best, median, lowest = (float(value) if math.isfinite(value) else None for value in picked)
    return best, median, lowest


def _rank(value: Value, schedules: np.ndarray) -> int | None:
    return 1 + int(np.sum(schedules > value.mean)) if value.known else None


def _about(column: Column, rows: list[tuple[str, str, Value]], ours: Sequence[Method]) -> list[str]:
    """The best of a column, and the rank of every variant of SAMUEL."""
    known = [(key, label, value) for key, label, value in rows if value.known]
    if len(known) < 2:
        return []
    known.sort(key=lambda row: row[2].mean, reverse=not column.lower)
    top = column.text(known[0][2].mean)
    first = [row for row in known if column.text(row[2].mean) == top]
    unit = "%" if column.percent else ""
    so_far = "so far, " if any(value.partial or not value.known for _, _, value in rows) else ""
    head = f"{so_far}{column.said}"
    said = [f"{head[0].upper()}{head[1:]}: {_listed([row[1] for row in first])} is best with {top}{unit}"]
    if len(first) > 1:
        said[0] = said[0].replace(" is best with", " are best with")
    names = [method.trial for method in ours]
    if len(first) == 1 and first[0][0] in names:
        rival = next((row for row in known if row[0] not in names), None)
        if rival is not None:
            said[0] += f"; next among the others is {rival[1]} {_apart(column, first[0][2], rival[2])}"
    said[0] += "."
    order = {method.trial: place for place, method in enumerate(ours)}
    behind = [
        (order[key], label, value) for key, label, value in known if key in order and (key, label, value) not in first
    ]
    for place, (_, label, value) in enumerate(sorted(behind, key=lambda row: row[0])):
        rank = ordinal(rank_among(column, value, [other for _, _, other in known]))
        shown = f"{column.text(value.mean)}{unit}"
        if place == 0:
            said.append(f"{label} is {rank} of {len(known)} with {shown}, {_apart(column, known[0][2], value)}.")
        else:
            said.append(f"{label}: {rank} with {shown}.")
    return [" ".join(said)]


def rank_among(column: Column, value: Value, others: Iterable[Value]) -> int:
    """The place of a mean in a column; means that read the same share a place."""
    text = column.text(value.mean)
    return 1 + sum(column.better(one.mean, value.mean) and column.text(one.mean) != text for one in others)


def _apart(column: Column, best: Value, value: Value) -> str:
    if column.percent:  # of the displayed numbers, so that readers can subtract them
        far = f"{abs(round(100 * best.mean, 2) - round(100 * value.mean, 2)):.2f} points"
    else:
        far = number(abs(best.mean - value.mean))
    clear = clearly_differ(best, value)
    if clear is None:
        return f"{far} behind"
    return f"{far} behind, {'a clear difference' if clear else 'within two standard errors'}"


def _about_search(study: Study) -> list[str]:
    search, ranked = study.search, ranks(study)
    if search is None or not ranked:
        return []
    rates = ", ".join(f"{rate:g}" for rate in best_schedule(search))
    said = [f"The best of the {search.searches} schedules at the end has the rates {rates}, one for each phase."]
    for method in study.methods:
        last, best = ranked.get(method.trial, (None, None))
        if method.group == "samuel" and last and best:
            said.append(
                f"Among the {search.searches} schedules {method.label} would be {ordinal(last)} by the accuracy at the "
                f"end and {ordinal(best)} by the best accuracy of the run."
            )
    return said


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _run_json(run: Recorded) -> dict[str, Any]:
    options, command = dict(run.config["options"]), run.config.get("command")
    for key in ("data", "cache"):
        path = options.get(key)
        if path and Path(path).is_absolute():
            options[key] = Path(path).name
            if command:  # whole words only: a cache in /c must not change adam/cosine
                command = re.sub(rf"(?<![^\s'\"=]){re.escape(path)}(?![^\s'\"])", Path(path).name, command)
    return {
        "name": run.name,
        "command": command,
        "created": run.config.get("created"),
        "options": options,
        "complete": run.complete,
        "sessions": list(run.sessions),
    }


def _study_json(study: Study) -> dict[str, Any]:
    found, ranked = results(study), ranks(study)
    plan = dict(study.plan)
    if source := (plan.get("data") or {}).get("source"):
        plan["data"] = {**plan["data"], "source": Path(source).name}
    abouts = {method.trial: method.about for method in study.methods}
    entry: dict[str, Any] = {
        "study": study.name,
        "title": study.title,
        **{key: plan.get(key) for key in COPIED},
        "complete": study.complete,
        "runs": [_run_json(run) for run in study.runs],
        "columns": [{"key": c.key, "head": c.head, "better": "lower" if c.lower else "higher"} for c in found.columns],
        "rows": [
            _row_json(key, label, abouts.get(key), values, found.columns, ranked.get(key))
            for key, label, values in found.rows
        ],
        "compute": costs_json(study),
        "findings": study_findings(study),
        "notes": notes(study),
    }
    search = study.search
    if search is not None and ranked:
        last, best = schedule_accuracies(search)
        entry["search"] = {
            "schedules": [list(rates) for rates in search.first.schedules or ()],
            "last_accuracy": [plain(value) for value in last],
            "best_accuracy": [plain(value) for value in best],
        }
    low_high = spread(study)
    if low_high is not None:
        entry["spread"] = {"lowest": plain(low_high[0]), "highest": plain(low_high[1])}
    return entry


def _row_json(
    key: str,
    label: str,
    about: str | None,
    values: Sequence[Value],
    columns: Sequence[Column],
    ranked: tuple[int | None, int | None] | None,
) -> dict[str, Any]:
    row: dict[str, Any] = {"method": key, "label": label} | ({"about": about} if about else {})
    row["values"] = {
        column.key: {
            "mean": plain(value.mean),
            "deviation": plain(value.deviation),
            "seeds": [plain(one) for one in value.values],
            "wanted": value.wanted,
            "diverged": value.diverged,
        }
        for column, value in zip(columns, values, strict=True)
    }
    if ranked is not None:
        row["rank_by_last"], row["rank_by_best"] = ranked
    return row
