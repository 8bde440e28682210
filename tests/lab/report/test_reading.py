import json
import os
import re

import numpy as np
import pytest

from samuel_lab.report.reading import read, worker
from samuel_lab.runs import DamagedRun, Run, RunError
from tests.lab.report.folders import change, cut, offline_run, save, shift_run


def small(folder, **options):
    return shift_run(folder, methods=["samuel", "adam/cosine"], seeds=(0, 1), **options)


def lines_of(folder):
    return (folder / "metrics.jsonl").read_text().splitlines()


def test_a_run_is_read_back_as_it_was_written(tmp_path):
    recorded = read(small(tmp_path / "run"))
    assert recorded.complete
    assert recorded.notes == ()
    assert [(trial.trial, trial.seed) for trial in recorded.trials] == [
        ("samuel", 0), ("adam/cosine", 0), ("samuel", 1), ("adam/cosine", 1),
    ]  # fmt: skip
    trial = recorded.trials[2]
    written = [json.loads(line) for line in lines_of(tmp_path / "run")]
    mine = [event for event in written if (event["trial"], event["seed"]) == ("samuel", 1)][:-1]
    assert trial.steps.tolist() == [event["step"] for event in mine]
    assert trial.accuracy.tolist() == [event["accuracy"] for event in mine]
    assert np.isnan(trial.loss[0])
    assert trial.loss[1:].tolist() == [event["loss"] for event in mine[1:]]
    assert trial.weights.tolist() == [event["weights"] for event in mine]
    assert trial.by_level[:, -1].tolist() == pytest.approx(np.sum(mine[-1]["weights"], axis=1))
    assert trial.by_rate[:, -1].tolist() == pytest.approx(np.sum(mine[-1]["weights"], axis=0))
    assert (trial.base, recorded.trials[1].base, recorded.trials[1].weights) == ("", "adam", None)


def test_schedules_that_share_a_network_share_its_numbers(tmp_path):
    recorded = read(offline_run(tmp_path / "run"))
    trial = next(trial for trial in recorded.trials if trial.trial == "search")
    written = [json.loads(line) for line in lines_of(tmp_path / "run")]
    mine = [event for event in written if event["trial"] == "search"][:-1]
    assert trial.accuracy.shape == (10, 8)
    two, four, eight = mine[2]["accuracy"], mine[5]["accuracy"], mine[-1]["accuracy"]
    assert (len(two), len(four), len(eight)) == (2, 4, 8)
    assert trial.accuracy[2].tolist() == [two[0]] * 4 + [two[1]] * 4
    assert trial.accuracy[5].tolist() == [value for value in four for _ in range(2)]
    assert trial.accuracy[-1].tolist() == eight


def test_a_network_that_is_lost_leaves_a_gap(tmp_path):
    folder = offline_run(tmp_path / "run")
    lines = lines_of(folder)
    place = max(i for i, line in enumerate(lines) if '"search"' in line and '"measure"' in line)
    event = json.loads(lines[place])
    event["accuracy"][3] = event["test_loss"][3] = None
    lines[place] = json.dumps(event)
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    trial = read(folder).trials[-1]
    assert np.isnan(trial.accuracy[-1]).tolist() == [place == 3 for place in range(8)]


def test_a_run_that_has_measured_nothing_is_a_run(tmp_path):
    folder = small(tmp_path / "run")
    (folder / "metrics.jsonl").unlink()
    (folder / "times.jsonl").unlink()
    (folder / "environment.json").unlink()
    recorded = read(folder)
    assert not any(trial.started or trial.ended for trial in recorded.trials)
    assert recorded.notes == ("The run is not complete: 0 of 4 trials have ended.",)


@pytest.mark.parametrize(
    "torn", ['{"event": "measure", "tri', '{"event": "end", "trial": "samuel", "seed": 1}', "\x00"]
)
def test_a_torn_last_line_is_left_out_and_noted(tmp_path, torn):
    folder = small(tmp_path / "run")
    whole = read(folder)
    count = len(whole.trials[0].steps) + 1
    cut(folder, count + 3, torn)
    recorded = read(folder)
    assert [trial.ended for trial in recorded.trials] == [True, False, False, False]
    assert len(recorded.trials[1].steps) == 3
    assert recorded.notes[0] == "The last line of metrics.jsonl is truncated and ignored."


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("not json", "line 4 is damaged"),
        ("[1, 2]", "line 4 is damaged"),
        ('{"event": "measure", "trial": "sgd", "seed": 0, "step": 1}', "line 4: the plan has no trial 'sgd'"),
        ('{"event": "measure", "trial": "samuel", "seed": 0, "step": "1"}', "line 4 .*: step must be a whole"),
        ('{"event": "end", "trial": "samuel", "seed": 0, "step": 9999}', "line 4: .* was planned for 192 .* step 9999"),
        ('{"event": "measure", "trial": "samuel", "seed": 0, "step": 16}', "line 4: step 16 .* comes after step 32"),
        ('{"event": "pause", "trial": "samuel", "seed": 0, "step": 40}', "line 4 .*: unknown event 'pause'"),
    ],
)  # fmt: skip
def test_a_damaged_line_is_named(tmp_path, bad, message):
    folder = small(tmp_path / "run")
    lines = lines_of(folder)
    lines[3] = bad
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(DamagedRun, match=rf"metrics\.jsonl, {message}"):
        read(folder)


@pytest.mark.parametrize(
    ("change_of", "message"),
    [
        (lambda plan: plan.pop("rounds"), "rounds must be a whole number of at least 0, got None"),
        (lambda plan: plan.update(shift="late"), "shift must be a whole number of at least 0, got 'late'"),
        (lambda plan: plan.update(data=3), "data must be a dictionary, got 3"),
        (lambda plan: plan.update(trials={}), "trials must be a list, got {}"),
        (lambda plan: plan.update(trials=[3]), "in trial 0: 3"),
        (lambda plan: plan["trials"][1].update(label=7), "in trial 1: label must be a text, got 7"),
        (lambda plan: plan["trials"][1].update(steps="9"), "in trial 1: steps must be a whole .* got '9'"),
        (lambda plan: plan["trials"].append(plan["trials"][0]), "in trial 4: it is there twice"),
        (lambda plan: plan.update(study="offline"), "of the study 'offline', and config.json names 'digits'"),
    ],
)
def test_an_edited_plan_is_refused_by_what_is_wrong(tmp_path, change_of, message):
    folder = small(tmp_path / "run")
    plan = json.loads((folder / "plan.json").read_text())
    change_of(plan)
    save(folder / "plan.json", plan)
    with pytest.raises(DamagedRun, match=message):
        read(folder)


def test_weights_that_do_not_fit_the_plan_are_damage(tmp_path):
    folder = small(tmp_path / "run")
    lines = lines_of(folder)
    lines[3] = json.dumps({**json.loads(lines[3]), "weights": [[0.5, 0.5]]})
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(DamagedRun, match="do not fit plan.json"):
        read(folder)


def test_what_is_no_run_is_refused_with_what_a_run_has(tmp_path):
    with pytest.raises(RunError, match="is not a folder; a run is a folder made by `samuel run STUDY`"):
        read(tmp_path / "nothing")
    with pytest.raises(RunError, match="it has no config.json"):
        read(tmp_path)
    folder = small(tmp_path / "run")
    (folder / "plan.json").unlink()
    with pytest.raises(RunError, match="has no plan.json: the run was stopped before its first trial"):
        read(folder)


@pytest.mark.parametrize("name", ["config.json", "plan.json", "environment.json"])
def test_a_run_of_a_newer_version_is_refused(tmp_path, name):
    folder = small(tmp_path / "run")
    change(folder / name, format=2)
    with pytest.raises(RunError, match=f"{name} has format 2, and this version of samuel reads 1"):
        read(folder)


def test_of_times_that_stand_there_twice_the_last_counts(tmp_path):
    folder = small(tmp_path / "run")
    again = {
        "trial": "samuel",
        "seed": 0,
        "step": 32,
        "steps": 16,
        "train_seconds": 7.0,
        "test_seconds": 1.0,
        "compile": False,
    }
    with open(folder / "times.jsonl", "a") as file:
        file.write(json.dumps(again) + '\n{"trial": "sam')
    recorded = read(folder)
    times = recorded.trials[0].times
    assert times.step[:3].tolist() == [16, 32, 48]
    assert times.train[1] == 7.0
    assert times.compiled[:2].tolist() == [True, False]
    assert "The last line of times.jsonl is truncated and ignored." in recorded.notes


@pytest.mark.parametrize(
    ("line", "note"),
    [
        ("garbage", "Times from there on are ignored: .*times.jsonl, line 1 is damaged: .*garbage"),
        ('{"trial": "samuel", "seed": 0, "step": 16, "steps": 16, "train_seconds": -7}', "line 1 .* got -7"),
        ('{"trial": "samuel", "seed": 0, "step": "16", "steps": 16}', "line 1 .*: step must be a whole number"),
        ('{"trial": "sgd", "seed": 0, "step": 16, "steps": 16}', "Line 1 of times.jsonl is of a trial that was not"),
    ],
)
def test_garbage_in_the_times_is_named_and_keeps_nobody_from_the_results(tmp_path, line, note):
    folder = small(tmp_path / "run")
    whole = read(folder)
    lines = (folder / "times.jsonl").read_text().splitlines()
    (folder / "times.jsonl").write_text("\n".join([line, *lines[1:]]) + "\n")
    recorded = read(folder)
    assert np.array_equal(recorded.trials[0].accuracy, whole.trials[0].accuracy)
    assert [found for found in recorded.notes if re.search(note, found)] == list(recorded.notes)[:1]


def test_an_edited_number_of_seeds_is_found_and_named(tmp_path):
    folder = small(tmp_path / "run")
    config = json.loads((folder / "config.json").read_text())
    change(folder / "config.json", options={**config["options"], "seeds": 7})
    with pytest.raises(DamagedRun, match=r"config.json says seeds 7, and plan.json has trials of 2; one of them was"):
        read(folder)


def test_why_a_session_ended_and_what_diverged_is_noted(tmp_path):
    folder = small(tmp_path / "run")
    lines = lines_of(folder)
    end = next(place for place, line in enumerate(lines) if '"end"' in line)
    lines[end] = lines[end].replace("false", "true")
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    save(folder / "stopped.json", {"format": 1, "reason": "error", "message": "disk full", "at": "now"})
    change(folder / "environment.json", sessions=[{"device": "cpu"}] * 3)
    recorded = read(folder)
    assert recorded.trials[0].diverged
    assert recorded.notes == (
        "The last session ended early (error): disk full",
        "SAMUEL, seed 0 diverged and was stopped after step 192.",
        "The run was resumed 2 times, which does not change its results.",
    )


def test_who_works_on_a_run_is_known_while_it_does(tmp_path):
    folder = small(tmp_path / "run")
    assert worker(folder) is None
    with Run.open(folder).locked():
        assert worker(folder) == os.getpid()
    assert worker(folder) is None
    # A process that was killed leaves its number, which may be another one's by now.
    (folder / "lock").write_text(f"{os.getpid()}\n")
    assert worker(folder) is None
