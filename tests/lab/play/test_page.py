import os
import re
from dataclasses import replace

import numpy as np
import pytest

from samuel_lab.drawing import plotly, round_numbers, save
from samuel_lab.play import page
from samuel_lab.play.cast import LEARNERS
from samuel_lab.play.figures import cumulative_loss, drawings
from samuel_lab.tables import number


def with_totals(contest, **totals):
    """The same contest, had the learners lost so much, and those not named far more."""
    results = [replace(r, totals=(totals.get(r.learner.replace("-", "_"), 1000.0),)) for r in contest.results]
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


def test_the_table_shows_what_a_seed_makes(seeded):
    contest = seeded.contests[0]
    table = page.results_table(contest)
    assert table.heads[2] == "total loss, 2 seeds"
    for (_, cells), result in zip(table.rows, contest.results, strict=False):
        assert cells[1].text == f"{number(result.total)} ± {number(result.spread, digits=2)}"


def test_the_table_has_a_column_for_every_length_that_fits(report):
    for contest, lengths in ((report.contests[0], ["64"]),):
        table = page.results_table(contest)
        assert [head for head in table.short if head.startswith("worst")] == [f"worst {length}" for length in lengths]
        assert table.short[-3:] == ("exponent", "µs a round", "memory")
        for _, cells in table.rows:
            assert len(cells) == len(table.heads) - 1 == len(table.short) - 1


def test_the_table_shows_what_the_middle_of_the_list_of_rates_would_have_given(report):
    contest = report.contests[0]
    cells = dict(page.results_table(contest).rows)
    ogd = contest.results[0]
    assert cells["OGD"][2].text == number(dict(ogd.tried)[1.0])
    assert cells["SAMUEL"][2].text == "–"


def test_a_best_rate_at_the_end_of_the_list_is_pointed_out(report):
    contest = report.contests[0]
    ended = replace(contest.results[0], rate=8.0)
    inside = replace(contest.results[0], rate=1.0)
    for result, hint in ((ended, "at the end of the list: a rate beyond it may be better"), (inside, "")):
        table = page.results_table(replace(contest, results=(result, *contest.results[1:])))
        assert table.rows[0][1][0].hint == hint


def test_certificates_stand_beside_the_regret_of_the_same_interval(seeded):
    contest = seeded.contests[0]
    table = page.certificates_table(contest)
    assert [name for name, _ in table.rows] == ["FLH", "AFLH", "SAOL", "SAMUEL", "SAMUEL, blocks"]
    samuel = contest.results[-1].worst_on(64)
    cells = dict(table.rows)["SAMUEL, blocks"]
    assert [cell.text for cell in cells[:2]] == [number(samuel.first_regret), number(samuel.certificate)]
    assert cells[0].hint == f"rounds {samuel.first} to {samuel.last}"
    assert page.certificates_table(replace(contest, results=contest.results[:1])) is None


def test_findings_are_true_when_samuel_loses_and_when_it_wins(report):
    contest = report.contests[1]
    loses = page.findings(with_totals(contest, ogd=10.0, ogd_sqrt=80.0, adagrad=90.0, samuel=20.0, samuel_ogd=30.0))
    assert loses[0].startswith("Lowest total loss: 10.0, by OGD with rate ")
    assert loses[1].startswith("Of the others without a learning rate, SAOL")
    assert "loses 20.0: 2.00 times as much as OGD" in loses[2]
    wins = page.findings(with_totals(contest, ogd=40.0, ogd_sqrt=80.0, adagrad=90.0, samuel=30.0, samuel_ogd=20.0))
    assert wins[0].startswith("Lowest total loss: 20.0, by SAMUEL (OGD, 8 rates).")
    assert "SAMUEL, without a learning rate, loses 30.0" in wins[2]
    assert "SAMUEL (OGD, 8 rates), without a learning rate, loses 20.0: 2.00 times less than OGD" in wins[3]


def test_the_learner_that_was_best_without_a_rate_is_recommended_and_samuel_said_to_trail(report):
    contest = report.contests[1]
    trails = page.recommendation(with_totals(contest, ogd=10.0, samuel=40.0, samuel_ogd=20.0))
    assert trails == (
        "Recommended here: SAMUEL (OGD, 8 rates), which lost least of those without a learning rate: 20.0. "
        "SAMUEL at its defaults trails: 40.0, 2.00 times as much as it."
    )
    leads = page.recommendation(with_totals(contest, ogd=10.0, samuel=20.0, samuel_ogd=40.0))
    assert leads == "Recommended here: SAMUEL, which lost least of those without a learning rate: 20.0."
    assert leads in page.findings(with_totals(contest, ogd=10.0, samuel=20.0, samuel_ogd=40.0))
    assert page.recommendation(replace(contest, results=contest.results[:1])) is None


def test_findings_about_negative_losses_are_differences_and_not_ratios(report):
    contest = report.contests[1]
    said = page.findings(with_totals(contest, ogd=-40.0, samuel=-30.0, samuel_ogd=-50.0))
    assert "SAMUEL, without a learning rate, loses −30.0: 10.0 more than OGD" in said[2]
    assert "loses −50.0: 10.0 less than OGD" in said[3]


def test_findings_name_every_form_of_samuel_and_not_only_the_best(report):
    for contest in report.contests:
        forms = [result.label for result in contest.results if result.family == "samuel"]
        sentences = [sentence for sentence in page.findings(contest) if ", without a learning rate, loses" in sentence]
        assert [sentence.partition(", without")[0] for sentence in sentences] == forms


def test_findings_say_who_is_best_on_the_worst_interval_and_where_samuel_stands(report):
    contest = report.contests[1]

    def with_regrets(**regrets):
        results = [
            replace(
                r,
                worst=tuple(
                    replace(w, regret=regrets.get(r.learner.replace("-", "_"), 50.0)) if w.length == 64 else w
                    for w in r.worst
                ),
            )
            for r in contest.results
        ]
        return page.findings(replace(contest, results=tuple(results)))[-1]

    assert with_regrets(saol=1.0, ogd=2.0, samuel=3.0) == (
        "Smallest worst regret on 64 rounds: 1.00, by SAOL; the best SAMUEL, SAMUEL, is number 3 of 8 with 3.00."
    )
    assert with_regrets(saol=2.0, samuel=1.0) == "Smallest worst regret on 64 rounds: 1.00, by SAMUEL."


def test_findings_need_no_rival(report):
    contest = report.contests[1]
    alone = replace(contest, results=contest.results[-1:])
    assert len(page.findings(alone)) == 1
    assert "Highest" not in page.findings(alone)[0]


def test_every_figure_has_a_description_and_a_caption(report, seeded):
    for contest in (*report.contests, *seeded.contests[1:]):
        drawn = drawings(contest)
        assert len({drawing.name for drawing in drawn}) == len(drawn)
        for drawing in drawn:
            assert drawing.alt.endswith(".")
            assert drawing.caption.endswith(".")
            axes = drawing.figure.layout.to_plotly_json()
            for kind in ("xaxis", "yaxis"):
                assert any(name.startswith(kind) and axis["title"].get("text") for name, axis in axes.items())


def test_of_many_learners_the_best_of_each_family_are_drawn_at_first(seeded):
    contest = seeded.contests[0]
    many = tuple(
        replace(result, learner=name, label=name, family=LEARNERS[name].family, totals=(float(place),))
        for place, (name, result) in enumerate(zip(LEARNERS, 4 * contest.results, strict=False))
    )
    drawing = cumulative_loss(replace(contest, results=many))
    drawn = {trace.name for trace in drawing.figure.data if trace.visible is not False}
    assert len(drawing.figure.data) == len(many) + 2  # the best fixed point, and the band of those not drawn
    assert drawn == {
        "ogd", "ogd-sqrt", "hedge", "fixed-share", "flh", "aflh", "samuel", "samuel-blocks", "best fixed point",
        f"{len(many) - 8} others, lowest to highest",
    }  # fmt: skip
    assert f"grey band: the other {len(many) - 8}." in drawing.caption


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
    own = html.replace(plotly(), "")
    assert not re.search(r"https?://|//cdn|<link(?! rel=\"icon\" href=\"data:,\")|src=", own)
    assert "default-src 'none'" in own
    assert len(html) < 3e6


def test_the_page_says_how_it_was_made(report):
    html = page.render(report)
    assert report.plan.command in html
    assert f"samuel {report.software['samuel']}, {report.date[:10]}" in html


def test_names_are_escaped(report):
    contest = replace(report.contests[1], about="1 < 2 & </script>", growth=None)
    html = page.render(replace(report, contests=(contest,)))
    assert "1 &lt; 2 &amp; &lt;/script&gt;" in html
    assert html.count("</script>") == 3


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
