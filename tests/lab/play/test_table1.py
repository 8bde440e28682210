"""The Table 1 experiment: its streams, its numbers, its page and its command."""

import json
import math
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from samuel.online import SAOL, Recorded, play
from samuel.online.losses import LinearLoss
from samuel_lab import cli
from samuel_lab.drawing import plotly
from samuel_lab.play import table1_page as page
from samuel_lab.play.table1 import KNOWN, METHODS, OWN, YARDSTICKS, Plan, exponent, run, summary
from samuel_lab.play.table1_streams import FAMILIES, OneLoud, Ripples

ROUNDS = 512
FEW = ("saol", "parameter-free", "samuel", "adagrad")


@pytest.fixture(scope="module")
def report():
    """Every family with a few methods, as short as exponents allow."""
    return run(Plan(methods=FEW, rounds=ROUNDS, seeds=2))


def the(report, family):
    return next(experiment for experiment in report.experiments if experiment.family == family)


@pytest.mark.parametrize(
    "stream", [Ripples(dim=3, calm=60, storm=20), OneLoud(dim=3, period=50)], ids=["ripples", "loud"]
)
def test_a_stream_is_the_same_however_it_is_cut(stream):
    (whole,) = stream.data(0, 1500)
    (part,) = stream.data(1000, 1100)
    assert np.array_equal(part, whole[1000:1100])
    assert not np.array_equal(whole, replace(stream, seed=1).data(0, 1500)[0])


def test_a_ripple_adds_up_to_nothing_and_leaves_the_pull():
    (gradients,) = Ripples(dim=5, calm=60, storm=20, scale=0.1, pull=0.3).data(0, 80)
    assert np.linalg.norm(gradients[:60].sum(axis=0)) == pytest.approx(60 * 0.1 * 0.3)
    assert np.linalg.norm(gradients[60:].sum(axis=0)) == pytest.approx(20 * 0.3)


def test_the_quiet_coordinates_together_pull_more_than_the_loud_one():
    (gradients,) = FAMILIES["sparse"].stream(8192, 0).data(0, 1040)
    loud, *quiet = np.abs(gradients.sum(axis=0))
    assert (gradients[:, 1:] != 0).mean() == pytest.approx(0.1, abs=0.02)
    assert sum(quiet) > 3 * loud
    assert np.abs(gradients[:, 1:]).max() < 0.2  # each of them is small beside the loud one, which has size 1


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_no_gradient_is_longer_than_the_methods_are_told(family):
    (gradients,) = family.streams(ROUNDS, 2).data(0, ROUNDS)
    assert np.linalg.norm(gradients, axis=-1).max() <= family.gradient_bound(ROUNDS) + 1e-12


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_stretches_fill_the_run_and_begin_where_the_stream_changes(family):
    stretches = family.stretches(ROUNDS)
    assert [part.first for part in stretches] == [0, *(part.stop for part in stretches[:-1])]
    assert stretches[-1].stop == ROUNDS
    assert {part.kind for part in stretches} == set(family.kinds)
    (gradients,) = family.stream(ROUNDS, 0).data(0, ROUNDS)
    pulls = [gradients[part.first : part.stop - (part.stop - part.first) % 2].sum(axis=0) for part in stretches]
    quiet = slice(1, None) if family.name == "sparse" else slice(None)
    for before, after in pairwise(pulls):
        cosine = before[quiet] @ after[quiet] / np.linalg.norm(before[quiet]) / np.linalg.norm(after[quiet])
        assert cosine < 0.9


def intervals(family, kind, length, rounds):
    """Every interval that is looked at, as first rounds."""
    return [
        first
        for part in family.stretches(rounds)
        if part.kind == kind
        for first in range(part.first, part.stop - length + 1, max(1, length // 4))
    ]


def test_worst_regret_and_ratios_are_those_of_the_intervals_themselves():
    plan = Plan(families=("storms",), methods=("saol",), rounds=512, seeds=1)
    experiment = run(plan).experiments[0]
    family = FAMILIES["storms"]
    (gradients,) = family.stream(512, 0).data(0, 512)
    learner = SAOL(10, family.domain, gradient_bound=1.0)
    trace = play(learner, Recorded(LinearLoss(), (gradients,)), record="decisions", backend="numpy")
    for kind in family.kinds:
        measured = experiment.of("saol", KNOWN).on(kind)
        ratios = []
        for length, worst in zip(measured.lengths, measured.worst, strict=True):
            inside = intervals(family, kind, length, 512)
            regrets = [trace.regret(first, first + length - 1) for first in inside]
            assert worst == pytest.approx(max(regrets))
            roots = [2 * np.linalg.norm(gradients[first : first + length]) for first in inside]
            ratios.append(max(regret / root for regret, root in zip(regrets, roots, strict=True)))
        long = [ratio for length, ratio in zip(measured.lengths, ratios, strict=True) if length >= 32]
        assert measured.ratios["squares"] == pytest.approx(max(long))


def test_yardsticks_are_what_their_names_say(report):
    (group,), family = the(report, "sparse").groups, FAMILIES["sparse"]
    (gradients,) = family.streams(ROUNDS, 2).data(0, ROUNDS)
    length, diameter, bound = group.lengths[-1], 2 * math.sqrt(20), family.gradient_bound(ROUNDS)
    assert group.yardsticks["horizon"][-1] == pytest.approx(diameter * bound * math.sqrt(ROUNDS))
    assert group.yardsticks["length"][-1] == pytest.approx(diameter * bound * math.sqrt(length))
    found = np.empty((2, 4))
    for seed in range(2):
        rows = []
        for first in intervals(family, "stretch", length, ROUNDS):
            some = gradients[first : first + length, seed]
            norms, nuclear = np.linalg.norm(some, axis=1), np.linalg.svd(some, compute_uv=False).sum()
            by_coordinate = 2 * np.linalg.norm(some, axis=0).sum()
            roots = diameter * math.sqrt(bound * norms.sum()), diameter * math.sqrt(norms @ norms)
            rows.append([*roots, by_coordinate, diameter * nuclear])
        found[seed] = np.max(rows, axis=0)
    names = ("norms", "squares", "coordinates", "matrix")
    assert [group.yardsticks[name][-1] for name in names] == pytest.approx(found.mean(axis=0).tolist())


def test_the_bounds_differ_where_a_family_says_so(report):
    storms = the(report, "storms").groups[0].yardsticks
    assert storms["length"][-1] == pytest.approx(10 * storms["squares"][-1])
    sparse = the(report, "sparse").groups[0].yardsticks
    assert sparse["squares"][-1] > 1.5 * sparse["coordinates"][-1]
    changes = the(report, "changes").groups[0].yardsticks
    assert changes["squares"] == pytest.approx(changes["length"])
    for experiment in report.experiments:
        for group in experiment.groups:  # the hidden factor: a full matrix never has the smaller bound
            assert all(
                m >= s - 1e-9 for m, s in zip(group.yardsticks["matrix"], group.yardsticks["squares"], strict=True)
            )


def test_methods_that_cannot_be_told_a_scale_play_once(report):
    for experiment in report.experiments:
        played = [(result.method, result.scale) for result in experiment.results]
        assert played == [
            ("saol", KNOWN), ("saol", OWN), ("parameter-free", OWN),
            ("samuel", KNOWN), ("samuel", OWN), ("adagrad", OWN),
        ]  # fmt: skip
        assert [(result.method, result.scale) for result in experiment.main()] == [
            ("saol", KNOWN), ("parameter-free", OWN), ("samuel", KNOWN), ("adagrad", OWN),
        ]  # fmt: skip


def test_the_growth_with_the_run_is_that_of_the_first_rounds_after_changes():
    rounds = 1024
    experiment = run(Plan(families=("changes",), methods=("adagrad",), rounds=rounds, seeds=1)).experiments[0]
    (group,), family = experiment.groups, FAMILIES["changes"]
    (gradients,) = family.stream(rounds, 0).data(0, rounds)
    learner = METHODS["adagrad"].make(10, family.domain)
    trace = play(learner, Recorded(LinearLoss(), (gradients,)), record="decisions", backend="numpy")
    measured = experiment.results[0].on("stretch")
    assert group.runs == (256, 512, 1024)
    for length, after in zip(group.runs, measured.after, strict=True):
        starts = [part.first for part in family.stretches(rounds)]
        starts = [first for first in starts if length // 2 <= first <= length - group.first]
        assert after == pytest.approx(np.mean([trace.regret(first, first + group.first - 1) for first in starts]))
    slope = np.polyfit(np.log(group.runs), np.log(measured.after), 1)[0]
    assert measured.exponent_in_T == pytest.approx(slope, abs=1e-4)


def test_an_exponent_needs_two_long_lengths_and_positive_values():
    assert exponent([8, 16, 32, 64, 128], [9, 9, 1, 2, 4]) == pytest.approx(1.0)
    assert exponent([8, 16, 32], [1.0, 2.0, 4.0]) is None
    assert exponent([32, 64], [1.0, -1.0]) is None


def test_full_matrices_play_on_balls_only():
    plan = Plan()
    assert "samuel-full" in {row.name for row in plan.rows(FAMILIES["storms"])}
    assert "samuel-full" not in {row.name for row in plan.rows(FAMILIES["sparse"])}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rounds": 255}, "rounds must be a whole number from 256 to 65536, got 255"),
        ({"rounds": 1e3}, "got 1000.0"),
        ({"seeds": 0}, "seeds must be a whole number from 1 to 20, got 0"),
        ({"families": ("rain",)}, "family 'rain' is not known: choose from changes, storms, sparse"),
        ({"families": ()}, "no family is named"),
        ({"methods": ("flh", "flh")}, "method 'flh' is named twice"),
    ],
)
def test_a_plan_that_cannot_be_played_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Plan(**options)


def test_a_plan_says_how_to_play_it_again():
    assert Plan().command == "samuel table1 --rounds 8192 --seeds 3"
    plan = Plan(families=("storms",), methods=("flh", "saol"), rounds=512, seeds=1)
    assert plan.command == "samuel table1 --rounds 512 --seeds 1 --family storms --method flh --method saol"


def test_every_method_has_a_line_of_its_own_and_a_yardstick_that_exists():
    assert page.STYLES.keys() == METHODS.keys()
    assert len({(style["color"], style["dash"]) for style in page.STYLES.values()}) == len(METHODS)
    assert {method.yardstick for method in METHODS.values()} == {*YARDSTICKS, None}
    assert page.DASHES.keys() == YARDSTICKS.keys()


def with_worst(experiment, **last):
    """The same experiment, had the methods had such worst regrets on the longest intervals."""
    kind = experiment.groups[0].kind
    results = []
    for result in experiment.results:
        value = last[result.method.replace("-", "_")]
        parts = [replace(m, worst=(*m.worst[:-1], value)) if m.kind == kind else m for m in result.measured]
        results.append(replace(result, measured=tuple(parts)))
    return replace(experiment, results=tuple(results))


def test_findings_say_whether_the_order_is_that_of_the_bounds(report):
    storms = the(report, "storms")
    as_theory = page.findings(with_worst(storms, saol=40.0, parameter_free=20.0, samuel=10.0, adagrad=5.0))
    assert as_theory[0].endswith("The order is that of the bounds, by a factor of 2.00 or more.")
    assert not any("is no worse than" in sentence for sentence in as_theory)
    assert as_theory[-1] == "Controls, on the same intervals: Adagrad 5.00."
    otherwise = page.findings(with_worst(storms, saol=15.0, parameter_free=20.0, samuel=10.0, adagrad=5.0))
    assert otherwise[0].endswith("The order is not that of the bounds throughout.")
    assert otherwise[1] == "SAOL is no worse than ParameterFree, although its bound is looser."


def test_the_lowest_of_a_column_is_bold(report):
    storms = with_worst(the(report, "storms"), saol=15.0, parameter_free=20.0, samuel=10.0, adagrad=12.0)
    table = page.results_table(storms, storms.groups[0])
    assert {name: (cells[2].text, cells[2].best) for name, cells in table.rows} == {
        "SAOL": ("15.0", False),
        "ParameterFree": ("20.0", False),
        "SAMUEL (Adagrad)": ("10.0", True),
        "Adagrad": ("12.0", False),
    }
    assert table.rows[-1][1][5].text == "–"  # Adagrad has no bound on intervals to be compared with


def test_the_summary_is_strict_json_with_every_number_of_the_tables(report):
    loaded = json.loads(json.dumps(summary(report), allow_nan=False))
    assert [family["family"] for family in loaded["families"]] == list(FAMILIES)
    for family, experiment in zip(loaded["families"], report.experiments, strict=True):
        for found, result in zip(family["results"], experiment.results, strict=True):
            for part, measured in zip(found["intervals"], result.measured, strict=True):
                assert part["worst_regret"] == pytest.approx(measured.worst, rel=1e-5)
                own = METHODS[result.method].yardstick
                expected = None if own is None else pytest.approx(measured.ratios[own], rel=1e-5)
                assert part["regret_over_own_bound"] == expected


def test_the_page_names_nothing_outside_itself_and_describes_its_figures(report):
    html = page.render(report)
    assert not re.search(r"https?://|src=", html.replace(plotly(), ""))
    assert report.plan.command in html
    for experiment in report.experiments:
        for drawing in page.drawings(experiment):
            assert f'id="{drawing.name}"' in html
            assert drawing.alt.endswith(".")
            assert drawing.caption.endswith(".")


def call(*words):
    return CliRunner().invoke(cli.app, ["table1", *words], env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})


QUICK = ("--rounds", "256", "--seeds", "1", "--family", "storms", "--method", "adagrad", "--method", "saol")


def test_the_command_prints_tables_and_writes_the_page(tmp_path):
    result = call(*QUICK, "--out", str(tmp_path / "a" / "b.html"))
    assert result.exit_code == 0, result.output
    assert "Calm and storms: intervals inside a calm" in result.stdout
    assert "Calm and storms: intervals inside a storm" in result.stdout
    assert "SAOL" in result.stdout
    assert (tmp_path / "a" / "b.html").read_text().startswith("<!doctype html>")


def test_the_command_prints_json_and_nothing_else_on_standard_output(tmp_path):
    result = call(*QUICK, "--json", "--out", str(tmp_path / "b.html"))
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert [row["method"] for row in found["methods"]] == ["adagrad", "saol"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--family", "rain"), "family 'rain' is not known"),
        (("--rounds", "10"), "rounds must be a whole number from 256"),
        (("--rounds", "many"), "many"),
    ],
)
def test_the_command_refuses_what_cannot_be(tmp_path, words, message):
    result = call(*words, "--out", str(tmp_path / "b.html"))
    assert result.exit_code == 2
    assert message in re.sub(r"[\s│]+", " ", result.output)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("heading", "family", "length"),
    [("## Changes", "changes", 512), ("## Calm", "storms", 1024), ("## Sparse", "sparse", 1024)],
    ids=["changes", "storms", "sparse"],
)
def test_the_documentation_quotes_the_results_file(heading, family, length):
    root = Path(__file__).parents[3]
    results = json.loads((root / "results" / "table1.json").read_text())
    found = next(part for part in results["families"] if part["family"] == family)
    place = found["intervals"][0]["lengths"].index(length)
    labels = {method["method"]: method["label"] for method in results["methods"]}
    measured = {}
    for result in found["results"]:
        measured.setdefault(labels[result["method"]], result["intervals"][0]["worst_regret"][place])
    text = (root / "docs" / "table1.md").read_text().partition(heading)[2].partition("\n## ")[0]
    heads, _, *rows = [
        [cell.strip(" *") for cell in line.split("|")[1:-1]] for line in text.splitlines() if "|" in line[:1]
    ]
    column = next(number for number, head in enumerate(heads) if re.search(rf"\b{length:,} rounds$", head))
    quoted = {row[0]: float(row[column]) for row in rows}
    assert quoted == {label: pytest.approx(value, rel=0.01) for label, value in measured.items()}
