"""What goes wrong rarely: saving around a measurement, damaged files beside the metrics, devices that are not there."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from samuel.jax import Checkpoints
from samuel_lab.execution import choose_device, execute
from samuel_lab.report.gathering import studies
from samuel_lab.report.reading import read
from samuel_lab.report.summary import results
from samuel_lab.runs import DamagedRun, Run, RunError
from samuel_lab.studies.compute import Compute
from samuel_lab.studies.offline import DigitsOffline
from samuel_lab.studies.settings import BadSetting
from samuel_lab.studies.shift import Digits
from samuel_lab.studies.study import Study, facts_about
from samuel_lab.trial.experiment import Experiment, Trial
from samuel_lab.trial.trainers import Score, Trainer
from samuel_lab.trial.training import Stop, Stopped
from tests.lab.report.folders import offline_run, shift_run

MEASURES = (0, 10, 20)  # more steps between two of them than the loop runs ahead, so that it saves there too


class Adding(Trainer):
    """Its parameter is the sum of all batches so far."""

    group = "baseline"

    def __init__(self, name):
        self.name = self.label = name

    def init(self, key, round=0):
        return jnp.zeros(())

    def step(self, state, batch, round):
        return state + batch, batch

    def score(self, state, exam, latest=()):
        return Score(np.asarray(state) / 1000, np.asarray(state))

    def facts(self, state, round):
        return {"rate": None}


class Steps:
    """Batches are the numbers of steps."""

    def __init__(self, closed):
        self.closed = closed

    def close(self):
        self.closed.append(True)

    def batch(self, step):
        return jnp.asarray(float(step))


@dataclass(frozen=True)
class Two(Study):
    """Two trials of the trainer above."""

    name: ClassVar[str] = "two"
    closed: ClassVar[list] = []

    def experiment(self, progress):
        raise NotImplementedError

    def prepare(self, progress=lambda what, done, total: None):
        trials = tuple(Trial(Adding(name), 0, MEASURES[-1], MEASURES) for name in ("first", "second"))
        rows = [{"trial": trial.name, "seed": 0, "steps": trial.steps} for trial in trials]
        plan = {"study": "two", "rounds": MEASURES[-1], "trials": rows}
        feed = lambda seed: Steps(self.closed)  # noqa: E731
        return Experiment(self, None, MEASURES[-1], feed=feed, plan=plan, trials=trials)


@pytest.fixture
def run(tmp_path):
    return Run.create(tmp_path / "run", "two", {}, "samuel run two")


def stopped_in_second_trial(run):
    stop = Stop()

    def progress(moment):
        if moment.number == 1 and moment.step > 12:
            stop.request()

    with pytest.raises(Stopped):
        execute(run, Two(), stop=stop, progress=progress)
    return run


def test_a_run_that_saves_all_the_time_saves_no_step_in_two_states(run):
    execute(run, Two(checkpoint_seconds=1e-9))
    assert read(run.folder).complete


def test_a_stop_during_a_measurement_after_which_nothing_was_saved_yet_leaves_a_run_to_go_on_with(run):
    stop = Stop()
    with pytest.raises(Stopped):
        execute(run, Two(checkpoint_seconds=1e-9), stop=stop, observers=[lambda trial, event: stop.request()])
    execute(run, Two(checkpoint_seconds=1e-9))
    assert read(run.folder).complete


def test_times_that_a_crash_cut_off_go_on_with_a_line_of_their_own(run):
    stopped_in_second_trial(run)
    with open(run.times.path, "ab") as file:
        file.write(b'{"trial": "second", "se')
    execute(run, Two())
    assert all(json.loads(line) for line in run.times.path.read_text().splitlines())
    assert read(run.folder).trials[1].times.step.tolist() == [0, 10, 20]


def test_damaged_times_are_noted_and_do_not_hide_the_results(tmp_path):
    folder = shift_run(tmp_path / "run")
    path = folder / "times.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], "{" + lines[1], *lines[2:], ""]))
    recorded = read(folder)
    assert recorded.complete
    assert [note for note in recorded.notes if "times.jsonl, line 2" in note]


def test_metrics_that_lost_trials_which_come_before_a_checkpoint_are_refused(run):
    stopped_in_second_trial(run)
    lines = run.metrics.path.read_bytes().splitlines(keepends=True)
    run.metrics.path.write_bytes(b"".join(lines[:2]))
    with pytest.raises(DamagedRun, match="0 complete trials, and .*trial_0001 is a checkpoint of a later one"):
        execute(run, Two())
    assert run.metrics.path.read_bytes() == b"".join(lines[:2])
    assert Checkpoints(run.checkpoint_folder(1)).latest is not None
    execute(run, Two(), repair=True)
    assert run.metrics.path.read_bytes().startswith(b"".join(lines[:4]))
    assert read(run.folder).complete


def test_a_damaged_checkpoint_is_told_with_what_can_be_done(run):
    stopped_in_second_trial(run)
    checkpoints = Checkpoints(run.checkpoint_folder(1))
    for values in checkpoints.folder.rglob("d/*"):
        values.write_bytes(b"?" + values.read_bytes()[1:])
    with pytest.raises(DamagedRun, match="damaged.* `samuel resume --repair .* retrains this trial"):
        execute(run, Two())
    execute(run, Two(), repair=True)
    assert read(run.folder).complete


def test_what_trials_share_is_let_go_of_at_the_end_and_after_a_stop(run, monkeypatch):
    monkeypatch.setattr(Two, "closed", [])
    stopped_in_second_trial(run)
    assert len(Two.closed) == 1
    execute(run, Two())
    assert len(Two.closed) == 2


def test_a_plan_that_changed_is_told_down_to_what_changed(run):
    with run.locked():
        run.settle_plan({"trials": [{"trial": "one", "steps": 3}, {"trial": "two", "steps": 3}]})
        with pytest.raises(RunError, match=r"trials\[1\]\.steps was 3 and would now be 4\."):
            run.settle_plan({"trials": [{"trial": "one", "steps": 3}, {"trial": "two", "steps": 4}]})


def test_a_gpu_is_looked_for_without_naming_its_kinds_to_jax():
    """Where a kind is named that is not there, JAX fails for it even if it has found another."""
    before = jax.config.jax_platforms
    if jax.devices()[0].platform == "gpu":
        choose_device("gpu")
    else:
        with pytest.raises(BadSetting, match="device gpu is not available here: JAX finds cpu"):
            choose_device("gpu")
    assert jax.config.jax_platforms == before
    with pytest.raises(BadSetting, match="device must be one of auto, cpu, gpu, got 'tpu'"):
        choose_device("tpu")


def test_the_plan_counts_the_examples_that_are_used():
    study = DigitsOffline(examples=5, methods=("adam/constant",))
    assert [study.prepare().plan["data"][split] for split in ("train", "test")] == [50, 50]
    dataset = study.dataset(lambda what, done, total: None)
    assert facts_about(dataset, 1, 2)["train"] == 1


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: Digits(methods=("samuel", "search")), "methods"),
        (lambda: Digits(rates=(0.1, 0.1)), "rates"),
    ],
    ids=["search-online", "rates-twice"],
)
def test_what_would_silently_be_something_else_is_refused(make, name):
    with pytest.raises(BadSetting) as caught:
        make()
    assert caught.value.name == name


def test_weights_are_named_by_the_rates_of_every_phase_where_these_change(tmp_path):
    folder = shift_run(tmp_path / "run", methods=["samuel"], seeds=(0,))
    assert read(folder).trials[0].rate_names == ["0.001", "0.01", "0.1"]
    plan = json.loads((folder / "plan.json").read_text())
    plan["trials"][0]["phases"] = [[0.001, 0.01, 0.1], [0.0001, 0.001, 0.01]]
    (folder / "plan.json").write_text(json.dumps(plan))
    assert read(folder).trials[0].rate_names == ["0.001 → 0.0001", "0.01 → 0.001", "0.1 → 0.01"]


def test_a_stop_asked_for_between_trials_or_while_data_are_read_trains_nothing_more(run):
    stop = Stop()
    stop.request()
    with pytest.raises(Stopped):
        execute(run, Two(), stop=stop)
    assert run.metrics.path.read_bytes() == b""
    reading = Run.create(run.folder.with_name("reading"), "digits", {}, "samuel run digits")
    stop = Stop()
    told = []

    def data_progress(what, done, total):
        told.append(what)
        stop.request()

    with pytest.raises(Stopped):
        execute(reading, Digits(methods=("samuel",)), stop=stop, data_progress=data_progress)
    assert len(told) == 1
    assert not (reading.folder / "plan.json").exists()


def test_a_trial_that_diverged_has_no_last_accuracy(tmp_path):
    folder = offline_run(tmp_path / "run")
    (before,) = studies([read(folder)])
    assert results(before).of("adam/cosine")[0].known
    path = folder / "metrics.jsonl"
    events = [json.loads(line) for line in path.read_text().splitlines()]
    for event in events:
        if event["event"] == "end" and event["trial"] == "adam/cosine":
            event["diverged"] = True
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    (after,) = studies([read(folder)])
    last, best, test_loss = results(after).of("adam/cosine")
    assert (last.diverged, best.diverged, test_loss.diverged) == (1, 0, 1)


@pytest.mark.parametrize("name", ["width", "size"])
def test_a_setting_that_the_task_does_not_have_is_refused(name, tmp_path):
    (tmp_path / "data").mkdir()
    with pytest.raises(BadSetting, match=f"{name}: the task sst2 has no such setting, got 16"):
        Compute(task="sst2", data=tmp_path / "data", **{name: 16})


def test_of_two_runs_that_begin_in_one_folder_at_once_only_one_does(tmp_path, monkeypatch):
    first = Run.create(tmp_path / "run", "digits", {"seeds": 1}, "first")
    # The second one looked into the folder before the first one wrote.
    monkeypatch.setattr(Path, "exists", lambda path: False)
    monkeypatch.setattr(Path, "iterdir", lambda path: iter(()))
    with pytest.raises(RunError, match="taken by another run"):
        Run.create(tmp_path / "run", "digits", {"seeds": 2}, "second")
    monkeypatch.undo()
    assert first.config["command"] == "first"
    assert sorted(path.name for path in first.folder.iterdir()) == ["config.json"]
