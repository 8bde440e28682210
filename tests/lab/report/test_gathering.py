import json

import numpy as np
import pytest
from typer.testing import CliRunner

from samuel_lab import cli
from samuel_lab.report.gathering import notes, studies
from samuel_lab.report.reading import read
from samuel_lab.report.summary import as_json
from tests.lab.report.folders import change, cut, shift_run


def small(folder, **options):
    return read(shift_run(folder, **{"methods": ["samuel", "adam/cosine"], "seeds": (0, 1), **options}))


def names(study):
    return [(method.trial, [trial.seed for trial in method.trials]) for method in study.methods]


def test_runs_of_one_plan_stand_side_by_side(tmp_path):
    (study,) = studies(
        [small(tmp_path / "a", methods=["sgd/cosine"]), small(tmp_path / "b"), small(tmp_path / "c", seeds=(5,))]
    )
    # SAMUEL first; the seeds of one method count together.
    assert names(study) == [("samuel", [0, 1, 5]), ("sgd/cosine", [0, 1]), ("adam/cosine", [0, 1, 5])]
    assert [run.name for run in study.methods[0].runs] == ["b", "b", "c"]


@pytest.mark.parametrize("other", [{"rounds": 200}, {"shift": 96}, {"windows": (8, 24, 40)}])
def test_runs_of_other_plans_are_studies_of_their_own(tmp_path, other):
    assert len(studies([small(tmp_path / "a"), small(tmp_path / "b", **other)])) == 2


def test_a_method_that_was_set_up_differently_is_another_one(tmp_path):
    (study,) = studies([small(tmp_path / "a"), small(tmp_path / "b", seeds=(2,), options={"precision": "bfloat16"})])
    assert [method.label for method in study.methods] == [
        "SAMUEL (a)", "SAMUEL (b)", "Adam, cosine (a)", "Adam, cosine (b)",
    ]  # fmt: skip


def test_options_of_the_drop_in_make_no_other_methods_of_the_rest(tmp_path):
    methods = ["samuel", "samuel-linear", "adam/cosine"]
    (study,) = studies(
        [
            small(tmp_path / "a", methods=methods),
            small(tmp_path / "b", methods=methods, seeds=(2,), options={"samuel_base": "sgd"}),
        ]
    )
    assert names(study) == [
        ("samuel (a)", [0, 1]), ("samuel-linear", [0, 1, 2]), ("samuel (b)", [2]), ("adam/cosine", [0, 1, 2]),
    ]  # fmt: skip


def test_where_something_ran_makes_no_other_method_of_it(tmp_path):
    (study,) = studies(
        [small(tmp_path / "a"), small(tmp_path / "b", seeds=(2,), options={"device": "gpu", "first_seed": 2})]
    )
    assert names(study) == [("samuel", [0, 1, 2]), ("adam/cosine", [0, 1, 2])]


def test_the_same_trial_twice_counts_once(tmp_path):
    whole = small(tmp_path / "a")
    shift_run(tmp_path / "b", methods=["samuel", "adam/cosine"], seeds=(0, 1))
    cut(tmp_path / "b", 5)
    (study,) = studies([read(tmp_path / "b"), whole])
    assert names(study) == [("samuel", [0, 1]), ("adam/cosine", [0, 1])]
    assert study.complete  # the longer one counts
    assert "SAMUEL, seed 0 has the same results in several runs: counted once." in notes(study)


def test_the_same_trial_with_other_results_is_shown_beside_it(tmp_path):
    folder = shift_run(tmp_path / "b", methods=["samuel"], seeds=(0,))
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    lines[-2]["accuracy"] = 0.123
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (study,) = studies([small(tmp_path / "a", methods=["samuel"], seeds=(0,)), read(folder)])
    assert [method.label for method in study.methods] == ["SAMUEL (a)", "SAMUEL (b)"]


def test_other_data_make_another_study(tmp_path):
    one = small(tmp_path / "a")
    folder = shift_run(tmp_path / "b", methods=["samuel"], seeds=(3,))
    change(folder / "plan.json", data={"name": "digits", "train": 100, "test": 357})
    assert len(studies([one, read(folder)])) == 2


def test_parts_of_a_search_are_reported_as_the_search(tmp_path):
    small = ["--scale", "0.05", "--rates", "0.01,0.1,1", "--width", "4", "--placement", "scan"]
    runs = {"whole": "search", "parts": "search@0.1,samuel-adam", "rest": "search@0.01:1"}
    for name, methods in runs.items():
        command = ["run", "digits-offline", *small, "--methods", methods, "--out", str(tmp_path / name)]
        assert CliRunner().invoke(cli.app, command).exit_code == 0
    (whole,), (parts,) = (
        studies([read(tmp_path / name) for name in names]) for names in (["whole"], ["parts", "rest"])
    )
    assert names(parts) == [("samuel-adam", [0]), ("search", [0])]
    assert parts.search.searches == whole.search.searches == 27
    assert parts.search.label == whole.search.label
    found, expected = (
        dict(zip(study.search.first.schedules, study.search.first.accuracy.T, strict=True)) for study in (parts, whole)
    )
    assert found.keys() == expected.keys()
    for schedule, accuracy in expected.items():
        np.testing.assert_allclose(found[schedule], accuracy, atol=1e-6)
    assert parts.complete
    told = as_json([read(tmp_path / name) for name in ("parts", "rest")])["studies"][0]["rows"]
    assert next(row["label"] for row in told if "search" in row["method"]) == "best of 27 schedules"


def test_a_part_of_a_search_alone_is_what_it_says(tmp_path):
    folder = tmp_path / "part"
    command = ["run", "digits-offline", "--scale", "0.05", "--rates", "0.1,1", "--width", "4"]
    assert CliRunner().invoke(cli.app, [*command, "--methods", "search@1", "--out", str(folder)]).exit_code == 0
    (study,) = studies([read(folder)])
    assert [(method.trial, method.searches) for method in study.methods] == [("search@1", 4)]
