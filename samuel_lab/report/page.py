"""The HTML report of runs: one self-contained file, which can be mailed and opened offline."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import samuel
from samuel_lab import drawing
from samuel_lab.drawing import Choice, Drawing
from samuel_lab.report import costs, summary
from samuel_lab.report.figures import drawings, drawn_at_first, family_of
from samuel_lab.report.gathering import Method, Study, notes, studies
from samuel_lab.report.reading import Recorded
from samuel_lab.report.sweep import sweep_findings
from samuel_lab.report.table_2 import NOTE, beside_the_papers
from samuel_lab.tables import Cell, Table, Titled


@dataclass(frozen=True)
class Section:
    """The section of one study."""

    name: str
    study: Study
    results: tuple[Titled, ...]
    findings: tuple[str, ...]
    notes: tuple[str, ...]
    lines: tuple[Choice, ...]
    drawings: tuple[Drawing, ...]
    compute: tuple[Titled, ...]
    facts: tuple[Titled, ...]
    methods: tuple[Method, ...]

    @property
    def seeds(self) -> int:
        """The largest number of seeds of a method."""
        return max((len(method.trials) for method in self.methods), default=0)


def render(recordeds: Sequence[Recorded]) -> str:
    """Render the page: for every study its tables, findings, figures, and the command that repeats it.

    Args:
        recordeds: runs, as read by `samuel_lab.report.reading.read`.

    Raises:
        ValueError: if there is none.
    """
    if not recordeds:
        raise ValueError("recordeds is empty: name at least one run to report")
    sections = [section(study, place) for place, study in enumerate(studies(recordeds))]
    return drawing.page(
        "study.html",
        [drawn for part in sections for drawn in part.drawings],
        sections=sections,
        title=sections[0].study.title if len(sections) == 1 else "Studies of SAMUEL",
        version=samuel.__version__,
        runs=list(recordeds),
    )


def write(recordeds: Sequence[Recorded], path: str | Path) -> None:
    """Write the page to a file, atomically."""
    drawing.save(Path(path), render(recordeds))


def section(study: Study, place: int = 0) -> Section:
    """The tables, sentences and figures of one study."""
    name = f"{re.sub(r'[^a-z0-9]+', '-', study.name.lower())}-{place}"
    first = drawn_at_first(study)
    return Section(
        name,
        study,
        tuple(_results(study)),
        (*summary.study_findings(study), *sweep_findings(study)),
        tuple(notes(study)),
        tuple(Choice(m.trial, m.label, family_of(m), m.trial in first) for m in study.methods if not m.searches),
        () if costs.projected(study) else tuple(drawings(study, name)),
        tuple(_compute(study)),
        tuple(_facts(study)),
        study.methods,
    )


def _results(study: Study) -> list[Titled]:
    if costs.projected(study):
        return []  # too few steps for accuracies
    seeds = max(len(method.trials) for method in study.methods) if study.methods else 0
    said = ["Best of each column in bold."]
    if seeds > 1:
        said.append(f"Mean ± standard deviation over {seeds} seeds.")
    if study.shift is not None:
        said.append(
            "Accuracies on the test set of the current classes. Means over the rounds after the shift weigh every "
            "measurement with the rounds since the previous one."
        )
    if study.search is not None:
        said.append(
            "Best, median and worst schedule are chosen in hindsight for every column. A rank is that of a method "
            "among the schedules."
        )
    table = summary.results_table(study)
    if _starred(table):
        said.append("* Some seeds are not complete.")
    found = [Titled("Results", table, " ".join(said))]
    grid = summary.stability_table(study)
    if grid is not None:
        found.append(Titled("Accuracy at the end by hyperparameters", grid, "Best in bold."))
    papers = beside_the_papers(study)
    if papers is not None:
        found.append(Titled("Beside the paper's Table 2", papers, NOTE))
    return found


def _compute(study: Study) -> list[Titled]:
    found = []
    table = costs.compute_table(study)
    if table is not None:
        found.append(
            Titled(
                "Time",
                table,
                "A step: the median over sections without compilation; for a search, when all its networks train. "
                "Experts: networks that train side by side, or experts weighted by SAMUEL that share a network. "
                "Training: in all, with compilation, for one seed." + (" * So far." if _starred(table) else ""),
            )
        )
    table = costs.search_cost_table(study)
    if table is not None:
        found.append(
            Titled(
                "What a search costs",
                table,
                _how_costs_are_known(study),
            )
        )
    return found


def _starred(table: Table) -> bool:
    return any("*" in cell.text for _, cells in table.rows for cell in cells)


def _how_costs_are_known(study: Study) -> str:
    said = "Runtime per expert is the runtime divided by the number of experts."
    if costs.projected(study):
        return (
            f"Projected from the time of a step: {study.plan['rounds']} steps of each were measured, and the full "
            f"protocol has {study.plan.get('protocol_steps')}. {said} Device hours are those of all schedules that are "
            "tried, one run after another."
        )
    return (
        "Measured. The search trains schedules with a common beginning once, and its networks side by side. "
        f"{said} Device hours are the runtime times the number of devices."
    )


def _facts(study: Study) -> list[Titled]:
    """Data, model, options and environment, as lists of facts."""
    plan = study.plan
    protocol = {key: plan.get(key) for key in ("rounds", "steps_per_epoch", "shift", "transitions", "windows", "batch")}
    found = [
        Titled("Protocol", _list_facts(protocol)),
        Titled("Data", _list_facts(plan.get("data") or {})),
        Titled("Model", _list_facts(plan.get("model") or {})),
    ]
    for run in study.runs:
        of = f", {run.name}" if len(study.runs) > 1 else ""
        found.append(Titled(f"Configuration{of}", _list_facts(run.config["options"])))
        for place, session in enumerate(run.sessions):
            which = f" of session {place + 1}" if len(run.sessions) > 1 else ""
            found.append(Titled(f"Environment{which}{of}", _list_facts(session)))
    return [titled for titled in found if titled.table.rows]


def _list_facts(facts: Mapping[str, Any]) -> Table:
    rows = [
        (key.replace("_", " "), (Cell(_words(value)),))
        for key, value in facts.items()
        if value is not None and value != [] and value != {}
    ]
    return Table(("", ""), tuple(rows))


def _words(value: Any) -> str:
    """A fact formatted for readers."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Mapping):
        return "; ".join(f"{key}: {_words(one)}" for key, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_words(one) for one in value)
    return str(value)
