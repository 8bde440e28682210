import os
import re
from dataclasses import replace

import numpy as np
import pytest

from samuel.studies.drawing import plotly, round_numbers, save
from samuel.studies.play import page
from samuel.studies.play.figures import drawings
from samuel.studies.tables import Cell, number


def with_totals(contest, **totals):
    """The same contest, had the learners lost so much, and those not named far more."""
    results = [replace(r, total=totals.get(r.learner.replace("-", "_"), 1000.0)) for r in contest.results]
    return replace(contest, results=tuple(results))


def test_the_best_of_each_column_is_bold(report):
    contest = with_totals(
        report.contests[0], ogd=9.0, ogd_inverse=8.0, adagrad=8.001, samuel=70.0, samuel_ogd=80.0, samuel_cold=99.0
    )
    losses = {name: cells[1] for name, cells in page.results_table(contest).rows}
    # 8.00 and 8.00: what reads the same is marked the same.
    assert [name for name, cell in losses.items() if cell.best] == ["OGD, 1/t", "Adagrad"]
    assert losses["SAMUEL"].text == "70.0"
    assert not losses["best fixed point"].best


def test_a_learner_without_a_certificate_shows_none(report):
    contest = report.contests[0]
    unproved = tuple(replace(worst, certificate=None) for worst in contest.results[0].worst)
    contest = replace(contest, results=(replace(contest.results[0], worst=unproved), *contest.results[1:]))
    assert page.results_table(contest).rows[0][1][3] == Cell("–", hint="rounds 128 to 135")


def test_findings_are_true_when_samuel_loses_and_when_it_wins(report):
    contest = report.contests[1]
    loses = page.findings(with_totals(contest, ogd=10.0, ogd_sqrt=80.0, adagrad=90.0, samuel=20.0, samuel_ogd=30.0))
    assert loses[0].startswith("Lowest total loss: 10.0, by OGD with rate ")
    assert "loses 20.0: 2.00 times as much as OGD" in loses[1]
    wins = page.findings(with_totals(contest, ogd=40.0, ogd_sqrt=80.0, adagrad=90.0, samuel=30.0, samuel_ogd=20.0))
    assert wins[0].startswith("Lowest total loss: 20.0, by SAMUEL (OGD, 8 rates).")
    assert "SAMUEL, which is not told what rate to use, loses 30.0" in wins[1]
    assert "SAMUEL (OGD, 8 rates), which is not told what rate to use, loses 20.0: 2.00 times less than OGD" in wins[2]


def test_findings_name_every_form_of_samuel_and_not_only_the_best(report):
    for contest in report.contests:
        forms = [result.label for result in contest.results if result.learner.startswith("samuel")]
        sentences = page.findings(contest)[1:]
        assert [sentence.partition(", which")[0] for sentence in sentences] == forms


def test_findings_need_no_rival(report):
    contest = report.contests[1]
    alone = replace(contest, results=contest.results[-1:])
    assert len(page.findings(alone)) == 1
    assert "Highest" not in page.findings(alone)[0]


def test_every_figure_has_a_description_and_a_caption(report):
    for contest in report.contests:
        drawn = drawings(contest)
        assert len({drawing.name for drawing in drawn}) == len(drawn)
        for drawing in drawn:
            assert drawing.alt.endswith(".")
            assert drawing.caption.endswith(".")
            axes = drawing.figure.layout
            assert axes.xaxis.title.text
            assert axes.yaxis.title.text


def test_a_learner_keeps_its_colour_in_every_figure(report):
    colours = {}
    for contest in report.contests:
        for drawing in drawings(contest):
            for trace in drawing.figure.data:
                if trace.type == "scatter" and trace.name in {result.label for result in contest.results}:
                    colours.setdefault(trace.name, set()).add(trace.line.color)
    assert {len(found) for found in colours.values()} == {1}


def test_the_page_names_nothing_outside_itself(report):
    html = page.render(report)
    own = html.replace(str(plotly()), "")
    assert not re.search(r"https?://|//cdn|<link(?! rel=\"icon\" href=\"data:,\")|src=", own)
    assert "default-src 'none'" in own
    assert len(html) < 7e6


def test_the_page_says_how_it_was_made(report):
    html = page.render(report)
    assert report.plan.command in html
    assert f"samuel {report.software['samuel']}, {report.date[:10]}" in html


def test_names_are_escaped(report):
    contest = replace(report.contests[1], about="1 < 2 & </script>", growth=None)
    html = page.render(replace(report, contests=(contest,)))
    assert "1 &lt; 2 &amp; &lt;/script&gt;" in html
    assert html.count("</script>") == 2


def test_numbers_read_well():
    assert [number(value) for value in (0.0, 5.0, 99.96, 1234567.0, -0.5, 1e9, 3e-7, np.inf, None)] == [
        "0", "5.00", "100.0", "1234567", "−0.500", "1.00e+09", "3.00e−07", "–", "–",
    ]  # fmt: skip


def test_labels_of_a_logarithmic_axis_enclose_the_values():
    assert round_numbers(np.array([0.3, 7.0])) == [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0]
    assert round_numbers(np.array([1e-4, 1e3]))[::7] == [1e-4, 1e3]
    assert round_numbers(np.array([-1.0, np.nan])) == [1.0]


def test_saving_makes_folders_and_replaces_what_was_there(tmp_path):
    path = tmp_path / "new" / "report.html"
    save(path, "one")
    save(path, "two")
    assert path.read_text() == "two"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_a_save_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, error):
    path = tmp_path / "report.html"
    save(path, "old")

    def fail(*_):
        raise error

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(type(error)):
        save(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
