"""The numbers of README's first tables are those of the files that it names."""

import json
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROWS = {
    "SAMUEL": "samuel",
    "SAMUEL, the paper's Algorithm 1 fed with one gradient a round": "samuel-linear",
    "SAMUEL, the paper's Algorithm 2, five networks": "samuel-full",
    "SAMUEL, the paper's Algorithm 2, one gradient a step": "samuel-linear",
    "best of the 125, known in hindsight": "search:best",
    "median of them": "search:median",
    "AdaGrad, cosine": "adagrad/cosine",
    "Adam, constant": "adam/constant",
    "Adam, warm-up and cosine": "adam/warmup-cosine",
    "one of them, Adam with warm-up and cosine": "adam/warmup-cosine",
    "Adam, warm-up cosine at the usual 0.001": "adam/warmup-cosine",
    "AdamW 0.005, warm-up and cosine, weight decay 0.3": "adamw/warmup-cosine@0.005",
    "AdamW 0.01, linear, weight decay 0.3, SAMUEL's average": "adamw/linear@0.01+average",
    "AdamW, linear from 0.01 (Imagenette 0.001), weight decay 0.3, SAMUEL's average": (
        "adamw/linear@0.01+average",
        "adamw/linear@0.001+average",
    ),
    "D-Adapt AdamW": "dadapt-adamw",
    "DoG": "dog",
    "Mechanic": "mechanic",
    "MoMo": "momo",
    "Prodigy": "prodigy",
    "Schedule-Free AdamW": "schedule-free",
}
"""What README calls a method, and what the files call it; the first of several that a file has."""
BASELINES = "the best of the paper's 12 baselines at the paper's rates, column by column"
SHIFT = ("window_100", "window_500", "window_1000", "best_before", "best_after")
OFFLINE = ("cifar10_25_epochs", "imagenette", "sst2")


@cache
def results(name):
    """The rows of a file by their method."""
    (study,) = json.loads((ROOT / "results" / f"{name}.json").read_text())["studies"]
    return {row["method"]: row for row in study["rows"]}


def table_after(text):
    """The rows of README's first table after a text: label and cells, without bold."""
    readme = (ROOT / "README.md").read_text().replace("**", "")
    lines = readme[readme.index(text) :].split("\n\n| ", 1)[1].split("\n\n", 1)[0].splitlines()
    rows = [[cell.strip() for cell in line.removeprefix("|").removesuffix("|").split("|")] for line in lines[2:]]
    assert len(rows) > 3
    return [(row[0], row[1:]) for row in rows]


def found(name, label):
    """The row of a file that README's label means, None if the file has none."""
    assert label in ROWS, f"README has a row {label!r} that this test does not know: add it to ROWS"
    methods = ROWS[label] if isinstance(ROWS[label], tuple) else (ROWS[label],)
    return next((results(name)[method] for method in methods if method in results(name)), None)


def written(value, digits):
    """A number as README writes it: in percent, with the deviation where there are several seeds."""
    text = f"{100 * value['mean']:.{digits}f}"
    return text if value["deviation"] is None else f"{text} ± {100 * value['deviation']:.{digits}f}"


@pytest.mark.parametrize(
    ("text", "name"), [("The whole of the paper's protocol, 25", "shift_full"), ("A quarter of it", "shift_quarter")]
)
def test_the_tables_of_the_shift(text, name):
    for label, cells in table_after(text):
        if label == BASELINES:
            twelve = [row["values"] for method, row in results(name).items() if re.match("(sgd|adagrad|adam)/", method)]
            assert len(twelve) == 12
            assert cells[:5] == [f"{max(100 * row[key]['mean'] for row in twelve):.1f}" for key in SHIFT]
            continue
        values = found(name, label)["values"]
        assert cells[:5] == [written(values[key], 1) for key in SHIFT], label
        assert cells[5:] in ([], [str(len(values["best_after"]["seeds"]))]), label


def test_the_table_of_offline_studies():
    for label, cells in table_after("Nothing changes. Accuracy"):
        for name, accuracy, place in zip(OFFLINE, cells[::2], cells[1::2], strict=True):
            row = found(name, label)
            if row is None:
                assert (accuracy, place) == ("", ""), (label, name)
                continue
            assert accuracy == written(row["values"]["last_accuracy"], 2), (label, name)
            assert re.sub(r"\D", "", place) == str(row.get("rank_by_last") or ""), (label, name)
