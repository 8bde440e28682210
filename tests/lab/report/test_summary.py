import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest

from samuel_lab.report import summary
from samuel_lab.report.gathering import studies
from samuel_lab.report.reading import read
from samuel_lab.report.summary import Column, Value, clearly_differ, window_mean
from tests.lab.report.folders import cut, shift_run

ACCURACY = Column("best_before", "best", "best", "best accuracy")


def the(recorded):
    (study,) = studies([recorded])
    return study


def with_accuracies(recorded, **accuracies):
    """The same run, had every measure of a method given that accuracy, one for each seed, and those not named 0.1."""
    trials = []
    for trial in recorded.trials:
        values = accuracies.get(trial.trial.replace("/", "_").replace("-", "_"), (0.1, 0.1, 0.1))
        trials.append(replace(trial, accuracy=np.full_like(trial.accuracy, values[trial.seed])))
    return replace(recorded, trials=tuple(trials))


@pytest.mark.parametrize(
    ("steps", "accuracy", "shift", "window", "mean"),
    [
        # Measured every step: the plain mean; what was measured at the shift is from before it.
        ([9, 10, 11, 12], [0.9, 0.9, 0.1, 0.3], 10, 2, 0.2),
        # A measure stands for the steps since the one before: 1 x 0.1 + 3 x 0.5 over 4.
        ([10, 11, 14], [0.9, 0.1, 0.5], 10, 4, 0.4),
        # Nothing was measured at the shift: the first measure stands for the steps after it only.
        ([8, 12, 14], [0.9, 0.2, 0.6], 10, 4, 0.4),
        # The window ends between two measures: 2 x 0.2 + 1 x 0.5 over 3.
        ([10, 12, 20], [0.9, 0.2, 0.5], 10, 3, 0.3),
        # One measure for all of it.
        ([0, 50], [0.9, 0.7], 10, 4, 0.7),
    ],
)  # fmt: skip
def test_the_mean_over_a_window_weighs_measures_with_their_steps(steps, accuracy, shift, window, mean):
    assert window_mean(np.array(steps), np.array(accuracy), shift, window) == pytest.approx(mean)


@pytest.mark.parametrize("steps", [[], [9], [9, 10], [9, 10, 13]])
def test_a_window_that_is_not_measured_to_its_end_has_no_mean(steps):
    assert window_mean(np.array(steps), np.full(len(steps), 0.5), 10, 4) is None


def test_deviations_take_two_seeds():
    assert Value((0.2, 0.4), 2).deviation == pytest.approx(math.sqrt(0.02))
    assert Value((0.2,), 1).deviation is None
    assert ACCURACY.shown(Value((0.2, 0.4), 2)) == "30.00 ± 14.14"
    assert ACCURACY.shown(Value((0.2,), 1)) == "20.00"
    assert ACCURACY.shown(Value((), 3)) == "–"


def test_a_method_that_lost_a_seed_has_no_mean():
    value = Value((0.9, 0.8), 3, diverged=1)
    assert ACCURACY.shown(value) == "diverged"
    assert not value.known
    assert value.hint == "1 of 3 seeds diverged"
    assert ACCURACY.best([value, Value((0.5,), 1)]) == "50.00"


def test_differences_are_clear_beyond_two_standard_errors():
    # Deviations of 0.1 and two seeds each: the difference has a standard error of 0.1.
    spread = 0.1 / math.sqrt(2)
    low = Value((0.5 - spread, 0.5 + spread), 2)
    assert clearly_differ(low, Value((0.69 - spread, 0.69 + spread), 2)) is False
    assert clearly_differ(low, Value((0.71 - spread, 0.71 + spread), 2)) is True
    assert clearly_differ(low, Value((0.9,), 1)) is None


def test_the_five_metrics_of_a_shift_are_those_of_the_paper(shifted):
    found = summary.results(the(shifted))
    assert [column.key for column in found.columns] == [
        "window_8",
        "window_16",
        "window_32",
        "best_before",
        "best_after",
    ]
    values = found.of("adam/cosine")
    trials = [trial for trial in shifted.trials if trial.trial == "adam/cosine"]
    before = [trial.accuracy[trial.steps <= 128].max() for trial in trials]
    after = [trial.accuracy[trial.steps > 128].max() for trial in trials]
    assert values[3].values == pytest.approx(before)
    assert values[3].deviation == pytest.approx(np.std(before, ddof=1))
    assert values[4].values == pytest.approx(after)
    assert values[0].values == pytest.approx([window_mean(t.steps, t.accuracy, 128, 8) for t in trials])


def test_the_best_of_each_column_is_marked_and_ties_together(shifted):
    same = {"adam_cosine": (0.9, 0.8, 0.7), "sgd_cosine": (0.8, 0.8, 0.800001), "samuel": (0.79, 0.79, 0.79)}
    table = summary.results_table(the(with_accuracies(shifted, **same)))
    assert [label for label, cells in table.rows if cells[0].best] == ["SGD, cosine", "Adam, cosine"]
    assert dict(table.rows)["Adam, cosine"][0].text == "80.00 ± 10.00"


def test_what_an_unfinished_run_knows_is_told_and_marked(tmp_path):
    folder = shift_run(tmp_path / "run", methods=["samuel", "adam/cosine"], seeds=(0, 1))
    count = len(read(folder).trials[0].steps)
    # SAMUEL's seed 1 has come to step 136, eight after the shift.
    until = 2 * (count + 1) + int(np.flatnonzero(read(folder).trials[0].steps == 136)[0]) + 1
    cut(folder, until)
    study = the(read(folder))
    ours, rival = summary.results(study).of("samuel"), summary.results(study).of("adam/cosine")
    assert [len(value.values) for value in ours] == [2, 1, 1, 2, 1]
    assert [len(value.values) for value in rival] == [1] * 5
    cells = dict(summary.results_table(study).rows)["SAMUEL"]
    assert ["*" in cell.text for cell in cells] == [False, True, True, False, True]
    assert cells[1].hint == "1 of 2 seeds so far"
    assert summary.study_findings(study)[1].startswith("So far, mean accuracy in the first 16 rounds after the shift")


def test_findings_are_true_when_samuel_wins_and_when_it_loses(shifted):
    wins = with_accuracies(shifted, samuel=(0.9, 0.91, 0.92), adam_cosine=(0.8, 0.8, 0.8), sgd_cosine=(0.2, 0.2, 0.2))
    assert summary.findings([wins])[0] == (
        "Mean accuracy in the first 8 rounds after the shift: SAMUEL is best with 91.00%; next among the others is "
        "Adam, cosine 11.00 points behind, a clear difference."
    )
    loses = with_accuracies(
        shifted, samuel=(0.7, 0.7, 0.7), adam_cosine=(0.6, 0.8, 0.85), sgd_cosine=(0.75, 0.75, 0.75)
    )
    assert summary.findings([loses])[-1] == (
        "Best accuracy after the shift: SGD, cosine and Adam, cosine are best with 75.00%. SAMUEL is 3rd of 13 with "
        "70.00%, 5.00 points behind, a clear difference."
    )


def test_methods_that_read_the_same_share_a_place(shifted):
    equal = with_accuracies(
        shifted, samuel=(0.7, 0.7, 0.7), adam_cosine=(0.8, 0.8, 0.8), sgd_cosine=(0.7, 0.7, 0.700001)
    )
    assert "SAMUEL is 2nd of 13 with 70.00%" in summary.findings([equal])[-1]


def test_findings_tell_of_every_column_and_every_form_of_samuel(shifted, searched):
    assert len(summary.findings([shifted])) == 5
    for sentence in summary.findings([searched])[:3]:
        assert "SAMUEL is " in sentence
        assert re.search("SAMUEL full( is | are |: )", sentence)


def test_ranks_are_those_among_the_schedules(searched):
    # Schedules end at about 0.4, 0.45, ..., 0.75.
    changed = with_accuracies(searched, samuel=(0.9, 0.9), samuel_full=(0.62, 0.62), adam_cosine=(0.0, 0.0))
    search = [trial for trial in searched.trials if trial.trial == "search"]
    kept = [t if t.trial != "search" else next(s for s in search if s.seed == t.seed) for t in changed.trials]
    study = the(replace(changed, trials=tuple(kept)))
    ranked = summary.ranks(study)
    assert (ranked["samuel"], ranked["samuel-full"], ranked["adam/cosine"]) == ((1, 1), (4, 4), (9, 9))
    said = "SAMUEL full would be 4th by the accuracy at the end and 4th by the best accuracy of the run."
    assert any(said in sentence for sentence in summary.study_findings(study))
    assert summary.best_schedule(study.search) == (0.1, 0.1, 0.1)


def test_a_search_is_told_by_its_best_median_and_worst_schedule(searched):
    found = summary.results(the(searched))
    search = [trial for trial in searched.trials if trial.trial == "search"]
    last = [trial.accuracy[-1] for trial in search]
    loss = [trial.test_loss[-1] for trial in search]
    assert found.of("search:best")[0].values == pytest.approx([values.max() for values in last])
    assert found.of("search:median")[0].values == pytest.approx([np.median(values) for values in last])
    assert found.of("search:worst")[0].values == pytest.approx([values.min() for values in last])
    assert found.of("search:best")[2].values == pytest.approx([values.min() for values in loss])


def test_ranks_wait_for_the_search_to_end(searched):
    trials = [replace(t, ended=False) if (t.trial, t.seed) == ("search", 1) else t for t in searched.trials]
    study = the(replace(searched, trials=tuple(trials)))
    assert summary.ranks(study) == {}
    assert len(summary.results_table(study).heads) == 4


def test_a_schedule_that_is_lost_is_worse_than_all(searched):
    trials = []
    for trial in searched.trials:
        if trial.trial == "search":
            accuracy = trial.accuracy.copy()
            accuracy[-1, :5] = np.nan
            trial = replace(trial, accuracy=accuracy)
        trials.append(trial)
    study = the(replace(searched, trials=tuple(trials)))
    found = summary.results(study)
    assert found.of("search:best")[0].mean == pytest.approx(0.75, abs=0.01)
    assert not found.of("search:median")[0].known
    assert summary.ranks(study)["samuel"][0] == 1


def test_stability_is_a_grid_and_a_spread(varied):
    study = the(varied)
    grid = summary.stability_table(study)
    assert [name for name, _ in grid.rows] == ["2 decays", "3 decays", "6 decays"]
    assert grid.heads == ("last accuracy, %", "5 etas", "10 etas")
    last = {trial.trial: trial.accuracy[-1] for trial in varied.trials}
    assert grid.rows[2][1][0].text == f"{100 * last['samuel-6x5']:.2f}"
    low, high = min(last.values()), max(last.values())
    assert summary.spread(study) == (low, high)
    assert summary.study_findings(study) == [
        f"Accuracies at the end of the 6 trials with different hyperparameters are between {100 * low:.2f} and "
        f"{100 * high:.2f}%, {100 * (high - low):.2f} points apart."
    ]


def test_the_summary_for_machines_is_strict_json(shifted, searched, varied):
    told = json.loads(json.dumps(summary.as_json([shifted, searched, varied]), allow_nan=False))
    online, offline, stability = told["studies"]
    assert online["rows"][0]["method"] == "samuel"
    best = online["rows"][0]["values"]["best_before"]
    assert best["mean"] == pytest.approx(np.mean(best["seeds"]), rel=1e-5)
    assert best["deviation"] == pytest.approx(np.std(best["seeds"], ddof=1), rel=1e-3)
    assert len(offline["search"]["schedules"]) == len(offline["search"]["last_accuracy"]) == 8
    assert offline["rows"][0]["rank_by_last"] == 1
    assert stability["spread"]["lowest"] <= stability["spread"]["highest"]
    assert all(study["findings"] and study["runs"][0]["command"].startswith("samuel run") for study in told["studies"])


def test_a_run_that_has_measured_nothing_has_a_table_without_numbers(tmp_path):
    folder = shift_run(tmp_path / "run", methods=["samuel", "adam/cosine"], seeds=(0,))
    cut(folder, 0)
    study = the(read(folder))
    assert [[cell.text for cell in cells] for _, cells in summary.results_table(study).rows] == [["–"] * 5] * 2
    assert summary.study_findings(study) == []


def test_the_summary_for_machines_names_no_folders_of_this_one(tmp_path):
    data, cache = "/home/somebody/data sets/cifar10.tar.xz", "/c"
    methods = ["samuel", "adam/cosine"]
    folder = shift_run(tmp_path / "run", methods=methods, seeds=(0,), options={"data": data, "cache": cache})
    for file, entry in (
        ("config.json", {"command": f"samuel run digits --methods adam/cosine --cache /c --data '{data}'"}),
        ("plan.json", {}),
    ):
        told = json.loads((folder / file).read_text())
        told |= entry
        told.get("data", {})["source"] = data
        (folder / file).write_text(json.dumps(told))
    (study,) = summary.as_json([read(folder)])["studies"]
    command = "samuel run digits --methods adam/cosine --cache c --data 'cifar10.tar.xz'"
    assert study["runs"][0]["command"] == command
    assert [row["method"] for row in study["rows"]] == methods
    assert study["data"]["source"] == study["runs"][0]["options"]["data"] == "cifar10.tar.xz"
    assert "/home" not in json.dumps(study)
