"""The training loop and the run around it: stopped, crashed or killed anywhere, what is measured stays the same.

The trainer here is as small as one can be, so that every step can be tried; what real ones do is in `test_resume.py`.
"""

import errno
import json
import signal
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from samuel.jax import Checkpoints
from samuel_lab.execution import environment, execute
from samuel_lab.runs import DamagedRun, Run, RunError
from samuel_lab.studies.study import Study
from samuel_lab.trial.experiment import Experiment, Trial
from samuel_lab.trial.trainers import Score, Trainer
from samuel_lab.trial.training import Stop, Stopped

ROUNDS = 12
MEASURES = (0, 3, 4, 8, 12)


class Sums(Trainer):
    """Its parameter is the sum of all batches so far, with noise of its own; its loss is the last batch."""

    recent = 2
    group, about = "baseline", "A sum."

    def __init__(self, name):
        self.name = self.label = name

    def init(self, key, round=0):
        return {"sum": jnp.zeros(()), "key": key}

    def step(self, state, batch, round):
        key = jax.random.fold_in(state["key"], round)
        value = batch + jax.random.uniform(key)
        return {"sum": state["sum"] + value, "key": state["key"]}, value

    def score(self, state, exam, latest=()):
        return Score(np.asarray(state["sum"]) / 1000, np.asarray(state["sum"]) + sum(exam) + sum(latest))

    def facts(self, state, round):
        return {"rate": 0.5**round}


class Numbers:
    """Batches are numbers. May call something at a step, as a machine that fails there would."""

    def __init__(self, trouble_at=None, trouble=None, numbers=None):
        self.trouble_at, self.trouble, self.numbers = trouble_at, trouble, numbers

    def batch(self, step):
        if step == self.trouble_at:
            self.trouble()
        return jnp.asarray(float(step) if self.numbers is None else self.numbers[step])


@dataclass(frozen=True)
class Tiny(Study):
    """Two trials of the trainer above."""

    name: ClassVar[str] = "tiny"
    trouble: ClassVar[dict] = {}

    def experiment(self, progress):
        raise NotImplementedError

    def prepare(self, progress=lambda what, done, total: None):
        trials = tuple(Trial(Sums(name), seed, ROUNDS, MEASURES) for seed, name in enumerate(("one", "two")))
        rows = [{"trial": trial.name, "seed": trial.seed} for trial in trials]
        plan = {"study": "tiny", "rounds": ROUNDS, "trials": rows}
        feed = lambda seed: Numbers(**self.trouble.get(("one", "two")[seed], {}))  # noqa: E731
        exam = lambda step: [step > 6]  # noqa: E731
        return Experiment(self, None, ROUNDS, feed=feed, exam=exam, plan=plan, trials=trials)


@pytest.fixture(autouse=True)
def no_trouble(monkeypatch):
    monkeypatch.setattr(Tiny, "trouble", {})


def started(folder):
    return Run.create(folder, "tiny", {}, "samuel run tiny")


def go_on(run, **options):
    execute(run, Tiny(checkpoint_seconds=options.pop("checkpoint_seconds", 0)), **options)
    return run.metrics.path.read_text()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The metrics of a run that nothing went wrong with."""
    return go_on(started(tmp_path_factory.mktemp("whole") / "run"), checkpoint_seconds=60)


def crash():
    raise RuntimeError("the machine fails")


def test_every_measurement_is_one_line_and_every_trial_ends_with_one(whole):
    events = [json.loads(line) for line in whole.splitlines()]
    assert [(event["event"], event["trial"], event["step"]) for event in events] == [
        (kind, trial, step)
        for trial in ("one", "two")
        for kind, step in [*(("measure", step) for step in MEASURES), ("end", ROUNDS)]
    ]
    assert events[5] == {"event": "end", "trial": "one", "seed": 0, "step": 12, "diverged": False}


def test_a_measurement_tells_the_mean_loss_since_the_one_before(whole):
    first = [json.loads(line) for line in whole.splitlines()][:5]
    noise = [float(jax.random.uniform(jax.random.fold_in(jax.random.key(0), step))) for step in range(ROUNDS)]
    losses = [step + noise[step] for step in range(ROUNDS)]
    means = [None, np.mean(losses[:3]), losses[3], np.mean(losses[4:8]), np.mean(losses[8:])]
    assert [event["loss"] for event in first] == [None, *(pytest.approx(mean, rel=1e-5) for mean in means[1:])]
    assert [event["accuracy"] for event in first] == pytest.approx(
        [sum(losses[:step]) / 1000 for step in MEASURES], rel=1e-5
    )
    # The exam is the one that is due at the step, and the trainer sees the last two batches.
    offsets = [event["test_loss"] - 1000 * event["accuracy"] for event in first]
    assert offsets == pytest.approx([0, 1 + 2, 2 + 3, 6 + 7 + 1, 10 + 11 + 1], abs=1e-3)
    assert [event["rate"] for event in first] == pytest.approx([0.5**step for step in MEASURES], rel=1e-5)


def test_there_is_no_time_in_the_metrics(whole, tmp_path):
    assert go_on(started(tmp_path / "again")) == whole
    run = Run.open(tmp_path / "again")
    times = [json.loads(line) for line in run.times.path.read_text().splitlines()]
    assert [(entry["trial"], entry["step"]) for entry in times] == [(t, m) for t in ("one", "two") for m in MEASURES]
    assert sum(entry["steps"] for entry in times) == 2 * ROUNDS
    # The first measurement compiles the exam, and the first steps compile the step.
    assert [entry["compile"] for entry in times[:5]] == [True, True, False, False, False]
    assert not any("seconds" in line or "time" in line for line in whole.splitlines())


@pytest.mark.parametrize(
    ("step", "seconds"), [*((step, 0) for step in range(ROUNDS)), (0, 60), (4, 60), (9, 60)], ids=str
)
def test_a_run_that_crashed_at_any_step_goes_on_to_the_same_metrics(whole, tmp_path, step, seconds):
    run = started(tmp_path / "run")
    Tiny.trouble = {"two": {"trouble_at": step, "trouble": crash}}
    with pytest.raises(RuntimeError, match="the machine fails"):
        go_on(run, checkpoint_seconds=seconds)
    assert whole.startswith(run.metrics.path.read_text())
    Tiny.trouble = {}
    assert go_on(run, checkpoint_seconds=seconds) == whole


@pytest.mark.parametrize("step", [0, 1, 2, 3, 6, 7, 10, 11])
def test_a_run_that_was_asked_to_stop_at_any_step_goes_on_to_the_same_metrics(whole, tmp_path, step):
    run, stop = started(tmp_path / "run"), Stop()
    Tiny.trouble = {"one": {"trouble_at": step, "trouble": stop.request}}
    place = f"step {step + 1} of one" if step < 11 else "step 0 of two"
    with pytest.raises(Stopped, match=f"stopped at {place}, seed {int(step == 11)}"):
        go_on(run, stop=stop, checkpoint_seconds=60)
    Tiny.trouble = {}
    assert go_on(run, checkpoint_seconds=60) == whole
    assert [session["pid"] for session in run.read("environment.json")["sessions"]] == [environment()["pid"]] * 2


@pytest.mark.parametrize("inherited", [signal.default_int_handler, signal.SIG_IGN], ids=["default", "ignored"])
def test_the_first_signal_asks_to_stop_and_a_second_one_does_at_once(inherited):
    before = signal.signal(signal.SIGINT, inherited)
    try:
        with Stop().on_signals() as stop:
            signal.raise_signal(signal.SIGINT)
            assert stop.requested
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is inherited
    finally:
        signal.signal(signal.SIGINT, before)


def test_handlers_of_signals_are_given_back():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with Stop().on_signals():
        assert signal.getsignal(signal.SIGTERM) != before[1]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def crashed(folder, step=9):
    """A run that was ended in its second trial, with a checkpoint of step 8 and lines after it."""
    run = started(folder)
    Tiny.trouble = {"two": {"trouble_at": step, "trouble": crash}}
    with pytest.raises(RuntimeError):
        go_on(run)
    Tiny.trouble = {}
    assert Checkpoints(run.checkpoint_folder(1)).latest == 8
    return run


@pytest.mark.parametrize("torn", ['{"event": "measure", "trial": "tw', "{", '{"event": "measure"}'])
def test_a_torn_last_line_is_written_again(whole, tmp_path, torn):
    run = crashed(tmp_path / "run")
    with run.metrics.path.open("a") as file:
        file.write(torn)
    assert go_on(run) == whole


def test_lines_after_the_checkpoint_are_written_again(whole, tmp_path):
    run = crashed(tmp_path / "run")
    with run.metrics.path.open("a") as file:
        file.write(whole.splitlines(keepends=True)[10])  # measured, and killed before it was saved
    assert go_on(run) == whole


@pytest.mark.parametrize("leftover", ["samuel_0.orbax-checkpoint-tmp", None])
def test_a_kill_while_the_first_checkpoint_is_written_doubles_no_line(whole, tmp_path, leftover):
    run = started(tmp_path / "run")
    Tiny.trouble = {"two": {"trouble_at": 9, "trouble": crash}}
    with pytest.raises(RuntimeError):
        go_on(run, checkpoint_seconds=60)
    run.checkpoint_folder(1).mkdir(parents=True)
    if leftover:
        (run.checkpoint_folder(1) / leftover).mkdir()
    Tiny.trouble = {}
    assert go_on(run) == whole


def test_metrics_that_a_checkpoint_does_not_belong_to_are_not_built_upon(whole, tmp_path):
    run = crashed(tmp_path / "run")
    changed = run.metrics.path.read_text().replace('"step": 3', '"step": 2')
    run.metrics.path.write_text(changed)
    with pytest.raises(DamagedRun, match="does not match the checkpoint of step 8.*--repair"):
        go_on(run)
    assert run.metrics.path.read_text() == changed
    assert Checkpoints(run.checkpoint_folder(1)).latest == 8


def test_lost_metrics_are_not_built_upon_either(whole, tmp_path):
    run = crashed(tmp_path / "run")
    lines = run.metrics.path.read_text().splitlines(keepends=True)
    run.metrics.path.write_text("".join(lines[:-1]))
    with pytest.raises(DamagedRun, match="does not match the checkpoint of step 8"):
        go_on(run)
    assert go_on(run, repair=True) == whole


@pytest.mark.parametrize("line", [0, 4, 7], ids=lambda line: f"line-{line + 1}")
def test_damaged_metrics_are_refused_and_repaired_to_the_same_ones(whole, tmp_path, line):
    run = crashed(tmp_path / "run")
    lines = run.metrics.path.read_text().splitlines(keepends=True)
    lines[line] = lines[line][:20] + "\n"
    damaged = "".join(lines)
    run.metrics.path.write_text(damaged)
    with pytest.raises(DamagedRun, match=f"line {line + 1} is damaged"):
        go_on(run)
    assert run.metrics.path.read_text() == damaged
    assert go_on(run, repair=True) == whole
    (aside,) = run.folder.glob("metrics.damaged.*.jsonl")
    assert aside.read_text() == damaged


def test_a_complete_run_is_left_as_it_is(whole, tmp_path):
    run = started(tmp_path / "run")
    go_on(run)
    assert list((run.folder / "checkpoints").iterdir()) == []
    Tiny.trouble = {name: {"trouble_at": 0, "trouble": crash} for name in ("one", "two")}
    done = []
    assert go_on(run, planned=lambda prepared, complete: done.append(complete)) == whole
    assert done == [2]


def test_a_run_that_was_planned_differently_is_refused(tmp_path):
    run = crashed(tmp_path / "run")
    plan = json.loads((run.folder / "plan.json").read_text())
    (run.folder / "plan.json").write_text(json.dumps({**plan, "rounds": 13}))
    before = run.metrics.path.read_text()
    with pytest.raises(RunError, match="rounds was 13 and would now be 12"):
        go_on(run)
    assert run.metrics.path.read_text() == before


def test_a_checkpoint_that_the_disk_does_not_take_is_told_and_the_one_before_it_used(whole, tmp_path, monkeypatch):
    run = started(tmp_path / "run")
    save = Checkpoints.save

    def full(self, step, *rest):
        if step == 8:
            raise OSError(errno.ENOSPC, "No space left on device")
        save(self, step, *rest)

    monkeypatch.setattr(Checkpoints, "save", full)
    with pytest.raises(RunError, match="checkpoint could not be written .*No space"):
        go_on(run)
    monkeypatch.undo()
    assert Checkpoints(run.checkpoint_folder(0)).latest == 4
    assert go_on(run) == whole


def test_a_trial_with_nothing_finite_left_ends_early_and_the_next_one_begins(tmp_path, whole):
    numbers = [float(step) for step in range(5)] + [float("inf")] * 7
    Tiny.trouble = {"one": {"numbers": numbers}}
    lines = go_on(started(tmp_path / "run")).splitlines(keepends=True)
    events = [json.loads(line) for line in lines]
    assert [(event["event"], event["step"]) for event in events[:5]] == [
        ("measure", 0), ("measure", 3), ("measure", 4), ("measure", 8), ("end", 8),
    ]  # fmt: skip
    assert events[3]["loss"] is events[3]["test_loss"] is None
    assert events[4]["diverged"] is True
    assert lines[5:] == whole.splitlines(keepends=True)[6:]


def test_those_who_watch_are_told_every_event_and_where_training_is(tmp_path, whole):
    events, moments = [], []
    go_on(
        started(tmp_path / "run"),
        observers=[lambda trial, event: events.append((trial.name, event["step"]))],
        progress=moments.append,
    )
    assert events == [(trial, step) for trial in ("one", "two") for step in MEASURES]
    assert [(moment.number, moment.step) for moment in moments if moment.step == ROUNDS][-1] == (1, ROUNDS)
    assert {moment.trial.name for moment in moments} == {"one", "two"}
    accuracies = [moment.accuracy for moment in moments if moment.accuracy is not None]
    assert accuracies[-1] == pytest.approx(json.loads(whole.splitlines()[-2])["accuracy"], rel=1e-5)
