"""The training loop of all studies: steps, measurements, checkpoints."""

from __future__ import annotations

import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from samuel.jax import Checkpoints, DamagedCheckpoint
from samuel_lab.runs import DamagedRun, Run, RunError
from samuel_lab.trial.experiment import Experiment, Feed, Trial
from samuel_lab.trial.trainers import Batch, ExamBatch, Trainer

AHEAD = 8
"""Steps the host may be ahead of the device: enough to keep it busy, too few to fill its memory."""


class Stopped(Exception):
    """A stop was requested; the trial can be continued from its checkpoint."""


class Moment(NamedTuple):
    """Progress of the training of a trial."""

    trial: Trial
    number: int
    step: int
    rate: float | None
    accuracy: float | None
    loss: float | None


Progress = Callable[[Moment], None]
Observer = Callable[[Trial, dict[str, Any]], None]
"""Called with every event that is written; TensorBoard is one."""


AT_ONCE = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
"""Handlers that end a process started with these signals ignored, as shells start background jobs."""


class Stop:
    """Request a stop at the next step, with a checkpoint: by `request`, Ctrl-C or SIGTERM."""

    def __init__(self, announce: Callable[[], None] = lambda: None) -> None:
        self.requested = False
        self.announce = announce

    def request(self, *_: Any) -> None:
        """Stop at the next step."""
        self.requested = True

    @contextmanager
    def on_signals(self) -> Iterator[Stop]:
        """Stop at the next step on the first Ctrl-C or SIGTERM, and at once on the second."""
        if threading.current_thread() is not threading.main_thread():
            yield self  # only the main thread may set signal handlers
            return

        def once(number: int, frame: Any) -> None:
            self.request()
            self.announce()
            for each, handler in before.items():
                signal.signal(each, AT_ONCE[each] if handler is signal.SIG_IGN else handler)  # ignored below nohup

        before = {number: signal.signal(number, once) for number in AT_ONCE}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def train(
    run: Run,
    experiment: Experiment,
    number: int,
    feed: Feed,
    *,
    checkpoint_seconds: float = 60.0,
    stop: Stop | None = None,
    progress: Progress = lambda moment: None,
    observers: Sequence[Observer] = (),
) -> None:
    """Train one trial to its end, from its last checkpoint if it has one.

    The metrics are a function of the settings alone, wherever the run was killed and resumed.

    Args:
        run: the folder, locked.
        experiment: what the trials share.
        number: the index of the trial.
        feed: the batches of its seed.
        checkpoint_seconds: training time that a kill may lose; 0 saves after every measurement.
        stop: requests an early stop.
        progress: called about every step.
        observers: called with every event.

    Raises:
        Stopped: if a stop was requested. A checkpoint was written.
        DamagedRun: if the metrics do not match the checkpoint.
    """
    trial, stop = experiment.trials[number], stop or Stop()
    trainer = trial.method
    checkpoints = Checkpoints(run.checkpoint_folder(number), keep=1)
    step, state, total, since, measured = _begin(run, trainer, jax.random.key(trial.seed), checkpoints)
    last: dict[str, Any] = {"rate": None, "accuracy": None, "loss": None}
    report = partial(_report, progress, trial, number)

    def save() -> None:
        if step == checkpoints.latest:  # a stop right after a resume or a save
            return
        run.metrics.sync()
        size = run.metrics.size
        sums = total if since else _no_loss(trainer, step)
        whole = {"state": state, "total": sums, "since": since, "measured": measured}
        note = {"trial": trial.name, "seed": trial.seed, "size": size, "digest": run.metrics.digest(size)}
        try:
            checkpoints.save(step, whole, note)
        except OSError as error:
            raise RunError(
                f"a checkpoint could not be written to {checkpoints.folder}: {error.strerror or error}. The one before "
                f"it is whole: make room, then `samuel resume {run.folder}`"
            ) from error

    saved = began = time.perf_counter()
    waiting: deque[jax.Array] = deque()
    compiled = True
    spent = 0.0  # on checkpoints, which is not training
    for due in trial.measures:
        if due <= measured:
            continue  # measured before the checkpoint
        first = step
        while step < due:
            if stop.requested:
                save()
                raise Stopped(f"stopped at step {step} of {trial.title}")
            batch = feed.batch(step)
            compiled = compiled or trainer.compiles_at(step)
            state, loss = trainer.step(state, batch, step)
            total = loss if since == 0 else _add(total, loss)
            step, since = step + 1, since + 1
            waiting.append(loss)
            if len(waiting) > AHEAD:
                waiting.popleft().block_until_ready()
                report(step, last)
                # Not before a measurement: the checkpoint after it has the same step and another state.
                if step < due and checkpoint_seconds and time.perf_counter() - saved > checkpoint_seconds:
                    pause = time.perf_counter()
                    save()
                    saved = time.perf_counter()
                    spent += saved - pause
        mean = None if since == 0 else np.asarray(total, np.float64) / since
        trained = time.perf_counter()
        # Recomputed rather than kept: so many batches may not fit on the device.
        latest = map(feed.batch, range(max(0, step - trainer.recent), step))
        event, diverged = _measure(trainer, trial, state, step, mean, experiment.exam(step), latest)
        run.metrics.append(event)
        examined = time.perf_counter()
        took = {"train_seconds": trained - began - spent, "test_seconds": examined - trained, "compile": compiled}
        run.times.append({"trial": trial.name, "seed": trial.seed, "step": step, "steps": step - first, **took})
        for observe in observers:
            observe(trial, event)
        last = event
        report(step, last)
        measured, since, compiled, spent = step, 0, False, 0.0
        waiting.clear()
        if diverged:
            break
        if step < trial.steps and (stop.requested or time.perf_counter() - saved > checkpoint_seconds):
            save()
            saved = time.perf_counter()
            if stop.requested:
                raise Stopped(f"stopped at step {step} of {trial.title}")
        began = time.perf_counter()
    else:
        diverged = False
    run.metrics.append(_about(trial, "end", step) | {"diverged": diverged})
    run.metrics.sync()
    run.drop_checkpoints()


_add = jax.jit(jnp.add)


def _begin(run: Run, trainer: Trainer, key: jax.Array, checkpoints: Checkpoints) -> tuple[int, Any, Any, int, int]:
    """Step, state, sum of losses since the last measurement, their number, and the step of that measurement."""
    latest = checkpoints.latest
    if latest is None:
        return 0, trainer.init(key), None, 0, -1
    try:
        return _restored(run, trainer, key, checkpoints, latest)
    except DamagedCheckpoint as error:
        raise DamagedRun(
            f"{str(error).partition('. ')[0]}. Nothing was changed. `samuel resume --repair {run.folder}` retrains "
            f"this trial from its start"
        ) from error


def _restored(
    run: Run, trainer: Trainer, key: jax.Array, checkpoints: Checkpoints, latest: int
) -> tuple[int, Any, Any, int, int]:
    note = checkpoints.note(latest)
    whole = run.metrics.size >= note["size"] and run.metrics.digest(note["size"]) == note["digest"]
    if not whole:
        raise DamagedRun(
            f"{run.metrics.path} does not match the checkpoint of step {latest}, so neither can be trusted. Nothing "
            f"was changed. `samuel resume --repair {run.folder}` retrains this trial from its start"
        )
    like = {"state": trainer.init(key, latest), "total": _no_loss(trainer, latest), "since": 0, "measured": 0}
    step, found = checkpoints.restore(like=like)
    run.metrics.cut(note["size"])
    return step, found["state"], found["total"], found["since"], found["measured"]


def _no_loss(trainer: Trainer, step: int) -> jax.Array:
    count = trainer.losses(step)
    return jnp.zeros((count,) if count else (), jnp.float32)


def _measure(
    trainer: Trainer,
    trial: Trial,
    state: Any,
    step: int,
    loss: Any,
    exam: Iterable[ExamBatch],
    latest: Iterable[Batch],
) -> tuple[dict[str, Any], bool]:
    """The event to write, and whether training diverged."""
    score = trainer.score(state, exam, latest)
    facts = trainer.facts(state, step)
    event = _about(trial, "measure", step) | {
        "loss": None if loss is None else loss.tolist(),
        "accuracy": np.asarray(score.accuracy, np.float64).tolist(),
        "test_loss": np.asarray(score.loss, np.float64).tolist(),
        **facts,
    }
    diverged = loss is not None and not np.any(np.isfinite(loss)) and not np.any(np.isfinite(score.loss))
    return event, bool(diverged)


def _about(trial: Trial, event: str, step: int) -> dict[str, Any]:
    return {"event": event, "trial": trial.name, "seed": trial.seed, "step": step}


def _report(progress: Progress, trial: Trial, number: int, step: int, last: dict[str, Any]) -> None:
    def one(name: str) -> float | None:
        value = last[name]
        if isinstance(value, float) and not np.isfinite(value):
            return None
        if isinstance(value, list):  # of a search: its best
            finite = [each for each in value if each is not None]
            return None if not finite else (max if name == "accuracy" else min)(finite)
        return value

    progress(Moment(trial, number, step, one("rate"), one("accuracy"), one("loss")))
