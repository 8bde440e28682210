"""The paper's Table 2 beside the same methods of a run."""

from __future__ import annotations

from samuel_lab.report.gathering import Study
from samuel_lab.report.summary import results
from samuel_lab.studies.paper import SOURCE, TABLE_2
from samuel_lab.tables import Cell, Table

NOTE = (
    f"Accuracies in percent, ours below the paper's ({SOURCE}), which are means over three seeds at 25,600 rounds. "
    "What makes them differ is in docs/claims.md."
)


def beside_the_papers(study: Study) -> Table | None:
    """The rows of the paper's Table 2 for the methods of a run, each with ours below; None if there are none."""
    if study.name != "shift":
        return None
    found = results(study)
    known = {key: (label, values) for key, label, values in found.rows if key in TABLE_2}
    if not known:
        return None
    rows = []
    for key, (label, values) in known.items():
        printed = [TABLE_2[key].get(column.key) for column in found.columns]
        theirs = tuple(Cell("–" if one is None else f"{one.mean:.2f} ± {one.deviation:.2f}") for one in printed)
        ours = tuple(Cell(column.shown(value)) for column, value in zip(found.columns, values, strict=True))
        rows += [(f"{label}, the paper", theirs), (f"{label}, this run", ours)]
    return Table(("method", *(column.head for column in found.columns)), tuple(rows))
