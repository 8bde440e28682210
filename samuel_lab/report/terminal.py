"""Results in the terminal: tables of runs, and comparisons."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from samuel_lab import tables as plain_tables
from samuel_lab.report.costs import compute_table, projected, search_cost_table
from samuel_lab.report.gathering import DROP_INS, Study, notes, studies
from samuel_lab.report.reading import Recorded
from samuel_lab.report.summary import (
    Column,
    Results,
    Value,
    clearly_differ,
    ordinal,
    rank_among,
    results,
    results_table,
    stability_table,
)
from samuel_lab.report.sweep import sweep_findings


def show(console: Console, recordeds: Sequence[Recorded]) -> None:
    """Print the tables, findings and notes of every study of some runs."""
    for study in studies(recordeds):
        for table in study_tables(study):
            console.print(table)
            console.print()
        for sentence in [*sweep_findings(study), *standing(study)]:
            console.print(sentence, soft_wrap=True, markup=False, highlight=False)
        for note in notes(study):
            console.print(f"Note: {note}", soft_wrap=True, markup=False)


def study_tables(study: Study) -> list[Table]:
    """The tables of a study."""
    seeds = max((len(method.trials) for method in study.methods), default=1)
    over = f": mean ± deviation over {seeds} seeds" if seeds > 1 else ""
    so_far = "" if study.complete else " (not finished)"
    found = [] if projected(study) else [shown(results_table(study), f"{study.title}{over}{so_far}")]
    for table, title in (
        (stability_table(study), "By hyperparameters"),
        (compute_table(study), "Time"),
        (search_cost_table(study), "What a search costs" + (", projected" if projected(study) else "")),
    ):
        if table is not None:
            found.append(shown(table, title))
    return found


def standing(study: Study) -> list[str]:
    """The rank of the drop-in in every metric, in a sentence."""
    found = results(study)
    first = next((method for method in study.methods if method.trial in DROP_INS), None)
    if first is None or len(found.rows) < 2 or projected(study):
        return []
    places = []
    for place, column in enumerate(found.columns):
        known = [values[place] for _, _, values in found.rows if values[place].known]
        own = found.of(first.trial)[place]
        if own.known:
            places.append(f"{ordinal(rank_among(column, own, known))} of {len(known)} in {column.said}")
    return [f"{first.label}: {', '.join(places)}."] if places else []


def shown(table: plain_tables.Table, title: str) -> Table:
    """A table for rich, the best of each column in bold."""
    drawn = _empty(title)
    name, *heads = table.short or table.heads
    # In a narrow terminal names break, numbers do not.
    texts = [[cell.text.replace(" ± ", "±") for cell in cells] for _, cells in table.rows]
    drawn.add_column(name, overflow="fold")
    for place, head in enumerate(heads):
        widest = max((len(row[place]) for row in texts), default=0)
        drawn.add_column(head, justify="right", vertical="bottom", min_width=widest)
    for (label, cells), row in zip(table.rows, texts, strict=True):
        shown = (Text(text, style="bold" if cell.best else "") for text, cell in zip(row, cells, strict=True))
        drawn.add_row(escape(label), *shown)
    return drawn


def compare(recordeds: Sequence[Recorded]) -> RenderableType:
    """Compare runs: the settings that differ, then every number with its difference from the first run.

    A difference is called clear if it is larger than two standard errors, which need two seeds.

    Raises:
        ValueError: if there are not at least two runs.
    """
    if len(recordeds) < 2:
        raise ValueError(f"comparing takes at least two runs, got {len(recordeds)}")
    names = _names(recordeds)
    parts: list[RenderableType] = [_settings(recordeds, names)]
    same = [place for place, recorded in enumerate(recordeds) if recorded.study == recordeds[0].study]
    for place, recorded in enumerate(recordeds):
        if place not in same:
            parts.append(
                f"{names[place]} is a run of {recorded.study}, not of {recordeds[0].study}: no numbers to compare."
            )
    if len(same) > 1:
        parts += _numbers([recordeds[place] for place in same], [names[place] for place in same])
    return Group(*parts)


def _settings(recordeds: Sequence[Recorded], names: Sequence[str]) -> RenderableType:
    described = [_described(recorded) for recorded in recordeds]
    keys = list(dict.fromkeys(key for facts in described for key in facts))
    different = [key for key in keys if len({_words(facts.get(key)) for facts in described}) > 1]
    if not different:
        return Text("The runs have the same settings, versions and device.")
    drawn = _empty("Where the runs differ")
    drawn.add_column("", no_wrap=True)
    for name in names:
        drawn.add_column(escape(name), overflow="fold")
    for key in different:
        drawn.add_row(key, *(escape(_words(facts.get(key))) for facts in described))
    return drawn


def _described(recorded: Recorded) -> dict[str, Any]:
    """All settings, facts and versions, by name."""
    plan, session = recorded.plan, (recorded.sessions or ({},))[-1]
    model, data = plan.get("model") or {}, plan.get("data") or {}
    return {
        "study": recorded.study,
        **dict(recorded.config["options"]),
        **{key: plan.get(key) for key in ("rounds", "shift", "windows", "transitions", "batch")},
        "model": model.get("name"),
        "parameters": model.get("parameters"),
        **{f"data: {key}": data.get(key) for key in ("name", "train", "test", "checksum") if key in data},
        **{key: session.get(key) for key in ("samuel", "python", "jax", "flax", "optax", "numpy", "device", "devices")},
        "complete": recorded.complete,
    }


def _numbers(recordeds: Sequence[Recorded], names: Sequence[str]) -> list[RenderableType]:
    found = [results(studies([recorded])[0]) for recorded in recordeds]
    labels = {key: label for each in reversed(found) for key, label, _ in each.rows}
    where = {key: [key in [row[0] for row in each.rows] for each in found] for key in labels}
    drawn = _empty("Results")
    drawn.add_column("method", overflow="fold")
    drawn.add_column("")
    drawn.add_column(escape(names[0]), justify="right")
    for name in names[1:]:
        drawn.add_column(escape(name), justify="right")
        drawn.add_column("difference", justify="right")
    columns = list({column.key: column for each in found for column in each.columns}.values())
    for key in dict.fromkeys(key for each in found for key, _, _ in each.rows if sum(where[key]) > 1):
        for place, column in enumerate(columns):
            values = [_find(each, key, column) for each in found]
            cells = [_cell(column, values[0])]
            for value in values[1:]:
                cells += [_cell(column, value), _difference(column, values[0], value)]
            unit = " %" if column.percent else ""
            name = escape(labels[key]) if place == 0 else ""
            drawn.add_row(name, f"{column.short}{unit}", *cells, end_section=place == len(columns) - 1)
    said = [f"Differences are from {names[0]}. Clear: larger than two standard errors of the difference."]
    if any(not recorded.complete for recorded in recordeds):
        said.append("* Some seeds are not complete.")
    for place, name in enumerate(names):
        alone = [labels[key] for key, there in where.items() if sum(there) == 1 and there[place]]
        if alone:
            said.append(f"Only in {name}: {'; '.join(alone)}.")
    shared: list[RenderableType] = [drawn] if drawn.row_count else [Text("The runs have no method in common.")]
    return [*shared, *(Text(sentence, style="dim") for sentence in said)]


def _cell(column: Column, value: Value) -> str:
    return column.shown(value).replace(" ± ", "±") + ("*" if value.partial else "")


def _find(found: Results, key: str, column: Column) -> Value:
    for name, _, values in found.rows:
        if name == key:
            for one, value in zip(found.columns, values, strict=True):
                if one.key == column.key:
                    return value
    return Value((), 0)


def _difference(column: Column, first: Value, value: Value) -> str:
    if not first.known or not value.known:
        return ""
    difference = value.mean - first.mean
    text = f"{100 * difference:+.2f}" if column.percent else f"{difference:+.3g}"
    return text.replace("-", "−") + (" clear" if clearly_differ(first, value) else "")


def _names(recordeds: Sequence[Recorded]) -> list[str]:
    names = [recorded.name for recorded in recordeds]
    return names if len(set(names)) == len(names) else [str(recorded.folder) for recorded in recordeds]


def _words(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple) and not any(isinstance(one, list | tuple | Mapping) for one in value):
        return ", ".join(map(_words, value))
    return json.dumps(value)


def _empty(title: str) -> Table:
    return Table(
        title=escape(title),
        title_justify="left",
        title_style="bold",
        box=SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),  # five means with deviations fit into 100 columns
    )
