"""Joins the rows of a report to a file here: new methods are added, new seeds of known ones join the others.

    samuel report RUN... --json > report.json
    samuel play --all --method samuel --json > report.json    likewise: learners and streams are added
    python results/join.py results/imagenette.json report.json --rename "samuel-adam*=samuel-adam=SAMUEL over Adam"

Means, deviations and places in the search are computed again; the sentences about the numbers are left out, since they
are written by the report. What a row is renamed to has the form METHOD=NEW METHOD=NEW LABEL; a METHOD that ends with *
stands for all that begin so, whose seeds are joined. Without a name of their own rows join those that are there.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

from samuel_lab.files import replace
from samuel_lab.report.summary import Value

DIGITS = 6
"""Significant digits of a number, as in reports."""


def renamed(method: str, renames: list[list[str]]) -> tuple[str, str | None]:
    """What a method of the report is called in the file, and its label where it has a new one."""
    for old, new, label in renames:
        if method == old or (old.endswith("*") and method.startswith(old[:-1])):
            return new, label
    return method, None


def together(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """The values of a method with the seeds of both."""
    seeds, wanted = [*one["seeds"], *other["seeds"]], one["wanted"] + other["wanted"]
    value = Value(tuple(seeds), wanted, one["diverged"] + other["diverged"])
    mean = value.mean if value.known else None  # one that diverged has none, as in reports
    short = [None if number is None else float(f"{number:.{DIGITS}g}") for number in (mean, value.deviation)]
    return {"mean": short[0], "deviation": short[1], "seeds": seeds, "wanted": wanted, "diverged": value.diverged}


def join(study: dict[str, Any], new: dict[str, Any], renames: list[list[str]], only: set[str]) -> None:
    """Put the rows of a study into another, of the same length and with the same columns."""
    for key in ("study", "rounds", "batch", "columns", "shift", "transitions", "windows", "data", "model"):
        if study[key] != new[key]:
            raise ValueError(f"the report's {key} is {new[key]}, the file's {study[key]}: they cannot be compared")
    there = {(run["name"], run["created"]) for run in study["runs"]}
    for run in new["runs"]:
        if not only and (run["name"], run["created"]) in there:
            raise ValueError(f"the run {run['name']} of {run['created']} is in the file already")
    rows = {row["method"]: row for row in study["rows"]}
    for row in new["rows"]:
        if only and row["method"] not in only:
            continue
        method, label = renamed(row["method"], renames)
        row = {**row, "method": method, "label": label or row["label"]}
        known = rows.get(method)
        if known is not None:
            row["values"] = {key: together(value, row["values"][key]) for key, value in known["values"].items()}
            row["label"] = known["label"]
        for kind in ("last", "best"):
            if "search" in study:
                ours = row["values"][f"{kind}_accuracy"]["mean"]
                better = None if ours is None else sum(one > ours for one in study["search"][f"{kind}_accuracy"])
                row[f"rank_by_{kind}"] = None if better is None else 1 + better
        rows[method] = row
    study["rows"] = list(rows.values())
    study["runs"] += new["runs"]
    study["findings"] = []


def join_streams(contests: dict[str, Any], new: dict[str, Any]) -> None:
    """Add learners of another `samuel play --json` to each stream, and streams that the file lacks.

    >>> old = {"command": "samuel play", "streams": [{"stream": "a", "rounds": 4, "learners": [{"learner": "x"}]}]}
    >>> new = {"command": "samuel play --method y", "streams": [
    ...     {"stream": "a", "rounds": 4, "learners": [{"learner": "y"}]}, {"stream": "b", "rounds": 4, "learners": []}]}
    >>> join_streams(old, new)
    >>> [(stream["stream"], len(stream["learners"])) for stream in old["streams"]], old["command"]
    ([('a', 2), ('b', 0)], 'samuel play; samuel play --method y')
    """
    streams = {stream["stream"]: stream for stream in contests["streams"]}
    for stream in new["streams"]:
        known = streams.setdefault(stream["stream"], stream)
        if known is stream:
            continue
        for key in ("rounds", "dim", "seeds", "best_fixed_point"):
            if not math.isclose(known.get(key) or 0, stream.get(key) or 0, rel_tol=1e-9):
                raise ValueError(
                    f"{key} of {stream['stream']} is {stream[key]} here and {known[key]} in the file: they cannot be "
                    "compared"
                )
        there = {learner["learner"] for learner in known["learners"]}
        known["learners"] += [learner for learner in stream["learners"] if learner["learner"] not in there]
    contests["streams"] = list(streams.values())
    contests["command"] = f"{contests['command']}; {new['command']}"


def main() -> None:
    """Join a report to a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("report", type=Path)
    parser.add_argument("--rename", action="append", default=[], help="METHOD=NEW METHOD=NEW LABEL")
    parser.add_argument("--only", action="append", default=[], help="only this method of the report")
    parser.add_argument("--note", action="append", default=[], help="a sentence to add to the file's notes")
    arguments = parser.parse_args()
    text = arguments.file.read_text()
    content, indent = json.loads(text), len(text.split('"', 1)[0].split("\n")[1])  # as it is, so that a change is seen
    report = json.loads(arguments.report.read_text())
    if "streams" in content:
        join_streams(content, report)
        count = len(content["streams"])
    else:
        (study,), (new,) = content["studies"], report["studies"]
        join(study, new, [rename.split("=") for rename in arguments.rename], set(arguments.only))
        study["notes"] += arguments.note
        count = len(study["rows"])
    replace(arguments.file, json.dumps(content, indent=indent) + "\n")
    print(f"{arguments.file}: {count} {'streams' if 'streams' in content else 'rows'}")


if __name__ == "__main__":
    main()
