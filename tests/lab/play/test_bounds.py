"""The paper's Table 1: its streams, what is measured on them, and what the page says of it."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from typer.testing import CliRunner

from samuel.online import SAOL, Recorded, play
from samuel.online.losses import LinearLoss
from samuel.online.streams import SideBySide
from samuel_lab import cli
from samuel_lab.play import bounds_page, page
from samuel_lab.play.arenas import ALL, STREAMS, TABLE1
from samuel_lab.play.bounds import ROWS, YARDSTICKS, exponent
from samuel_lab.play.cast import LEARNERS
from samuel_lab.play.contest import run
from samuel_lab.play.figures import STYLES, drawings
from samuel_lab.play.plan import Plan
from samuel_lab.play.records import summary
from samuel_lab.play.streams import OneLoud, Ripples

ROUNDS = 512
FEW = ("saol", "parameter-free", "samuel-blocks", "adagrad")


def played(*streams, learners=FEW, rounds=ROUNDS, seeds=2):
    return run(Plan(streams=streams, learners=learners, rounds=rounds, seeds=seeds, backend="numpy"))


@pytest.fixture(scope="module")
def report():
    """Every stream of Table 1 with a few learners, as short as exponents allow."""
    return played(*TABLE1)


@pytest.fixture(params=TABLE1)
def arena(request):
    return STREAMS[request.param](Plan(rounds=ROUNDS))


def the(report, stream):
    return next(contest for contest in report.contests if contest.stream == f"table1-{stream}")


def gradients_of(arena, rounds=ROUNDS, seeds=2):
    (gradients,) = SideBySide([arena.stream(seed) for seed in range(seeds)]).data(0, rounds)
    return gradients


def on(contest, learner, kind):
    (result,) = (result for result in contest.results if result.learner == learner)
    return next(part for part in result.measured if part.kind == kind)


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
    (gradients,) = STREAMS["table1-sparse"](Plan(rounds=8192)).stream(0).data(0, 1040)
    loud, *quiet = np.abs(gradients.sum(axis=0))
    assert (gradients[:, 1:] != 0).mean() == pytest.approx(0.1, abs=0.02)
    assert sum(quiet) > 3 * loud
    assert np.abs(gradients[:, 1:]).max() < 0.2  # each of them is small beside the loud one, which has size 1


def test_no_gradient_is_longer_than_the_bound_that_learners_are_given(arena):
    assert np.linalg.norm(gradients_of(arena), axis=-1).max() <= arena.comparison.gradient_bound + 1e-12


def test_stretches_fill_the_run_and_begin_where_the_stream_changes(arena):
    stretches = arena.comparison.stretches(ROUNDS)
    assert [part.first for part in stretches] == [0, *(part.stop for part in stretches[:-1])]
    assert stretches[-1].stop == ROUNDS
    assert arena.changes == tuple(part.first for part in stretches)
    assert {part.kind for part in stretches} == set(arena.comparison.kinds)
    gradients = gradients_of(arena, seeds=1)[:, 0]
    pulls = [gradients[part.first : part.stop - (part.stop - part.first) % 2].sum(axis=0) for part in stretches]
    quiet = slice(1, None) if arena.name == "table1-sparse" else slice(None)
    for before, after in pairwise(pulls):
        cosine = before[quiet] @ after[quiet] / np.linalg.norm(before[quiet]) / np.linalg.norm(after[quiet])
        assert cosine < 0.9


def intervals(arena, kind, length, rounds):
    """Every interval that is looked at, as first rounds."""
    return [
        first
        for part in arena.comparison.stretches(rounds)
        if part.kind == kind
        for first in range(part.first, part.stop - length + 1, max(1, length // 4))
    ]


def test_worst_regret_and_ratios_are_those_of_the_intervals_themselves():
    (contest,) = played("table1-storms", learners=("saol",), seeds=1).contests
    arena = STREAMS["table1-storms"](Plan(rounds=ROUNDS))
    gradients = gradients_of(arena, seeds=1)[:, 0]
    learner = SAOL(10, arena.domain, gradient_bound=1.0)
    trace = play(learner, Recorded(LinearLoss(), (gradients,)), record="decisions", backend="numpy")
    for kind in arena.comparison.kinds:
        measured = on(contest, "saol", kind)
        ratios = []
        for length, worst in zip(measured.lengths, measured.worst, strict=True):
            inside = intervals(arena, kind, length, ROUNDS)
            regrets = [trace.regret(first, first + length - 1) for first in inside]
            assert worst == pytest.approx(max(regrets))
            roots = [2 * np.linalg.norm(gradients[first : first + length]) for first in inside]
            ratios.append(max(regret / root for regret, root in zip(regrets, roots, strict=True)))
        long = [ratio for length, ratio in zip(measured.lengths, ratios, strict=True) if length >= 32]
        assert measured.ratios["squares"] == pytest.approx(max(long))


def test_yardsticks_are_what_their_names_say(report):
    (group,), arena = the(report, "sparse").groups, STREAMS["table1-sparse"](Plan(rounds=ROUNDS))
    gradients = gradients_of(arena)
    length, diameter, bound = group.lengths[-1], 2 * math.sqrt(20), arena.comparison.gradient_bound
    assert group.yardsticks["horizon"][-1] == pytest.approx(diameter * bound * math.sqrt(ROUNDS))
    assert group.yardsticks["length"][-1] == pytest.approx(diameter * bound * math.sqrt(length))
    found = np.empty((2, 4))
    for seed in range(2):
        rows = []
        for first in intervals(arena, "stretch", length, ROUNDS):
            some = gradients[first : first + length, seed]
            norms, nuclear = np.linalg.norm(some, axis=1), np.linalg.svd(some, compute_uv=False).sum()
            by_coordinate = 2 * np.linalg.norm(some, axis=0).sum()
            roots = diameter * math.sqrt(bound * norms.sum()), diameter * math.sqrt(norms @ norms)
            rows.append([*roots, by_coordinate, diameter * nuclear])
        found[seed] = np.max(rows, axis=0)
    names = ("norms", "squares", "coordinates", "matrix")
    assert [group.yardsticks[name][-1] for name in names] == pytest.approx(found.mean(axis=0).tolist())


def test_the_bounds_differ_where_a_stream_says_so(report):
    storms = the(report, "storms").groups[0].yardsticks
    assert storms["length"][-1] == pytest.approx(10 * storms["squares"][-1])
    sparse = the(report, "sparse").groups[0].yardsticks
    assert sparse["squares"][-1] > 1.5 * sparse["coordinates"][-1]
    changes = the(report, "changes").groups[0].yardsticks
    assert changes["squares"] == pytest.approx(changes["length"])
    for contest in report.contests:
        for group in contest.groups:  # the hidden factor: a full matrix never has the smaller bound
            assert all(
                m >= s - 1e-9 for m, s in zip(group.yardsticks["matrix"], group.yardsticks["squares"], strict=True)
            )


def test_the_growth_with_the_run_is_that_of_the_first_rounds_after_changes():
    rounds = 1024
    (contest,) = played("table1-changes", learners=("ogd-inverse",), rounds=rounds, seeds=1).contests
    (group,), arena = contest.groups, STREAMS["table1-changes"](Plan(rounds=rounds))
    stream = Recorded(LinearLoss(), (gradients_of(arena, rounds, seeds=1)[:, 0],))
    trace = play(LEARNERS["ogd-inverse"].make(10, arena.domain, None), stream, record="decisions", backend="numpy")
    measured = on(contest, "ogd-inverse", "stretch")
    assert group.runs == (256, 512, 1024)
    for length, after in zip(group.runs, measured.after, strict=True):
        starts = [part.first for part in arena.comparison.stretches(rounds)]
        starts = [first for first in starts if length // 2 <= first <= length - group.first]
        assert after == pytest.approx(np.mean([trace.regret(first, first + group.first - 1) for first in starts]))
    slope = np.polyfit(np.log(group.runs), np.log(measured.after), 1)[0]
    assert measured.exponent_in_T == pytest.approx(slope, abs=1e-4)


def test_an_exponent_needs_two_long_lengths_and_positive_values():
    assert exponent([8, 16, 32, 64, 128], [9, 9, 1, 2, 4]) == pytest.approx(1.0)
    assert exponent([8, 16, 32], [1.0, 2.0, 4.0]) is None
    assert exponent([32, 64], [1.0, -1.0]) is None


def test_every_row_plays_by_default_but_full_matrices_on_balls_only(arena):
    assert set(ROWS) - set(arena.learners) == ({"samuel-full-matrix"} if arena.name == "table1-sparse" else set())
    assert set(ROWS) <= set(LEARNERS)
    assert {row.yardstick for row in ROWS.values()} == {*YARDSTICKS, None}


def test_rows_of_the_table_have_lines_of_their_own():
    assert len({(STYLES[row]["color"], STYLES[row]["dash"]) for row in ROWS}) == len(ROWS)


def test_all_leaves_out_the_streams_that_were_made_for_the_table():
    assert not set(ALL) & set(TABLE1)
    assert Plan(streams=ALL, learners=tuple(LEARNERS)).command.startswith("samuel play --all")


def with_worst(contest, **last):
    """The same contest, had the learners had such worst regrets on the longest intervals."""
    results = []
    for result in contest.results:
        (first, *others) = result.measured
        first = replace(first, worst=(*first.worst[:-1], last[result.learner.replace("-", "_")]))
        results.append(replace(result, measured=(first, *others)))
    return replace(contest, results=tuple(results))


def test_findings_say_whether_the_order_is_that_of_the_bounds(report):
    storms = the(report, "storms")
    as_theory = page.findings(with_worst(storms, saol=40.0, parameter_free=20.0, samuel_blocks=10.0, adagrad=5.0))
    assert any(said.endswith("The order is that of the bounds, by a factor of 2.00 or more.") for said in as_theory)
    assert not any("is no worse than" in sentence for sentence in as_theory)
    assert as_theory[-1] == "Controls, on the same intervals: Adagrad 5.00."
    otherwise = page.findings(with_worst(storms, saol=15.0, parameter_free=20.0, samuel_blocks=10.0, adagrad=5.0))
    assert any(said.endswith("The order is not that of the bounds throughout.") for said in otherwise)
    assert "SAOL is no worse than Parameter-free, although its bound is looser." in otherwise


def test_the_lowest_of_a_column_is_bold(report):
    storms = with_worst(the(report, "storms"), saol=15.0, parameter_free=20.0, samuel_blocks=10.0, adagrad=12.0)
    table = bounds_page.group_table(storms, storms.groups[0])
    assert {name: (cells[1].text, cells[1].best) for name, cells in table.rows} == {
        "SAOL": ("15.0", False),
        "Parameter-free": ("20.0", False),
        "SAMUEL, blocks": ("10.0", True),
        "Adagrad": ("12.0", False),
    }
    assert dict(table.rows)["Adagrad"][4].text == "–"  # Adagrad has no bound on intervals to be compared with


def test_the_summary_has_every_number_of_the_tables(report):
    for stream, contest in zip(summary(report)["streams"], report.contests, strict=True):
        assert [part["inside"] for part in stream["bounds"]["intervals"]] == [group.kind for group in contest.groups]
        for found, result in zip(stream["learners"], contest.results, strict=True):
            for part, measured in zip(found["intervals"], result.measured, strict=True):
                assert part["worst_regret"] == pytest.approx(measured.worst, rel=1e-5)
                own = ROWS[result.learner].yardstick
                expected = None if own is None else pytest.approx(measured.ratios[own], rel=1e-5)
                assert part["regret_over_own_bound"] == expected


def test_the_page_shows_bounds_and_describes_their_figures(report):
    html = page.render(report)
    for contest in report.contests:
        for drawing in drawings(contest):
            assert f'id="{drawing.name}"' in html
            assert drawing.alt.endswith(".")
            assert drawing.caption.endswith(".")
        for titled in bounds_page.bounds_tables(contest):
            assert f"{contest.label}: {titled.title}" in html


def test_the_command_prints_the_tables(tmp_path):
    words = ["play", "--stream", "table1-storms", "--method", "adagrad", "--method", "saol", "--rounds", "256", "--out"]
    environment = {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}
    result = CliRunner().invoke(cli.app, [*words, str(tmp_path / "a.html")], env=environment)
    assert result.exit_code == 0, result.output
    assert "calm and storms: what theory says of the regret on an interval I" in result.stdout
    assert "calm and storms: intervals inside a calm stretch" in result.stdout
    assert "calm and storms: intervals inside a storm" in result.stdout
