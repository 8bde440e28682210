"""Carry out a run: every trial of its plan, from wherever it stands."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from typing import Any

import jax

import samuel
from samuel.jax import Checkpoints
from samuel_lab.data import Tell as TellData
from samuel_lab.runs import Run, RunError
from samuel_lab.studies.settings import BadSetting
from samuel_lab.studies.study import DEVICES, Study
from samuel_lab.trial.experiment import Experiment
from samuel_lab.trial.training import Observer, Stop, Stopped, Tell, train

PACKAGES = ("jax", "flax", "optax", "orbax-checkpoint", "numpy")


DETERMINISTIC = "--xla_gpu_deterministic_ops=true"


def choose_device(device: str, deterministic: bool = True) -> None:
    """Compute on the CPU, on a GPU, or on what JAX finds; before anything is computed.

    Args:
        device: "auto", "cpu" or "gpu".
        deterministic: whether a GPU is to give the same result twice.

    Raises:
        BadSetting: if it is not there.
    """
    if device not in DEVICES:
        raise BadSetting("device", f"device must be one of {', '.join(DEVICES)}, got {device!r}")
    flags = os.environ.get("XLA_FLAGS", "")
    if deterministic and DETERMINISTIC.partition("=")[0] not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {DETERMINISTIC}".strip()  # read when JAX first looks for devices
    if device == "cpu":
        # A GPU is what JAX takes first where there is one. To name its kinds would fail for the one that is not there.
        jax.config.update("jax_platforms", "cpu")
    try:
        found = jax.devices()
    except RuntimeError as error:
        raise BadSetting("device", f"device {device} is not available here: {error}") from None
    wanted = {"cpu": "cpu", "gpu": "gpu"}.get(device)
    if wanted and found[0].platform != wanted:
        raise BadSetting("device", f"device {device} is not available here: JAX finds {found[0].platform}")


def environment() -> dict[str, Any]:
    """Versions, device and cores of this process."""
    found: dict[str, Any] = {"samuel": samuel.__version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # installed in a way that left no name behind
            found[package] = "unknown"
    device = jax.devices()[0]
    return found | {
        "platform": platform.platform(),
        "device": device.device_kind,
        "devices": jax.device_count(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "pid": os.getpid(),
    }


def execute(
    run: Run,
    study: Study,
    *,
    stop: Stop | None = None,
    tell: Tell = lambda moment: None,
    tell_data: TellData = lambda what, done, total: None,
    planned: Callable[[Experiment, int], None] = lambda experiment, done: None,
    observers: Sequence[Observer] = (),
    repair: bool = False,
) -> None:
    """Train every trial of a run that is not complete yet.

    Args:
        run: the folder.
        study: its settings.
        stop: asks to stop early.
        tell: called with the progress of training.
        tell_data: called with the progress of reading the data.
        planned: called with the plan and its number of complete trials before training begins.
        observers: called with every event.
        repair: drop damaged metrics and what follows them (a copy is kept), and the checkpoints with them.

    Raises:
        Stopped: if asked to stop; `execute` again goes on from there.
        RunError: if the folder cannot be worked on.
        BadSetting: if the data are not what the study needs.
    """
    with run.locked():
        if repair:
            run.repair()
            run.drop_checkpoints()
        run.begin_session(environment())

        def reading(what: str, done: int, total: int) -> None:
            tell_data(what, done, total)
            _heed(stop, "stopped while the data were read")

        try:
            experiment = study.prepare(reading)
        except (ValueError, FileNotFoundError) as error:
            # Nothing was trained: what the data have wrong with them is bad input, such as an archive that is refused.
            raise error if isinstance(error, BadSetting) else BadSetting("data", str(error)) from error
        run.settle_plan(experiment.plan)
        position = run.position(len(experiment.trials))
        run.refuse_checkpoints_after(position.trial)
        run.drop_checkpoints(keep=position.trial)
        if Checkpoints(run.checkpoint_folder(position.trial)).latest is None:
            run.metrics.cut(position.size)  # what a kill left of a trial without a checkpoint is trained again
        planned(experiment, position.trial)
        remaining = range(position.trial, len(experiment.trials))
        # Seed by seed: batches of one seed hold memory, and may come from processes.
        for seed, numbers in groupby(remaining, lambda number: experiment.trials[number].seed):
            feed = None
            try:
                for number in numbers:
                    title = experiment.trials[number].title
                    _heed(stop, f"stopped at step 0 of {title}" if number > position.trial else "stopped at once")
                    feed = feed or experiment.feed(seed)
                    train(
                        run,
                        experiment,
                        number,
                        feed,
                        checkpoint_seconds=study.checkpoint_seconds,
                        stop=stop,
                        tell=tell,
                        observers=observers,
                    )
            finally:
                getattr(feed, "close", lambda: None)()


def _heed(stop: Stop | None, message: str) -> None:
    """Stop, if asked to, where there is nothing to save."""
    if stop is not None and stop.requested:
        raise Stopped(message)


@contextmanager
def observers_of(run: Run, study: Study) -> Iterator[list[Observer]]:
    """Who else is handed the events of a run, as long as this lasts: TensorBoard, where the study asks for it.

    Raises:
        RunError: if what that needs is not installed.
    """
    if not study.tensorboard:
        yield []
        return
    try:
        from tensorboardX import SummaryWriter
    except ModuleNotFoundError:
        raise RunError(
            'tensorboard needs tensorboardX, which is not installed: pip install "samuel-optim[tensorboard]"'
        ) from None

    writers: dict[str, Any] = {}

    def observe(trial: Any, event: dict[str, Any]) -> None:
        name = f"{trial.name.replace('/', '-')}-{trial.seed}"
        if name not in writers:
            for old in writers.values():
                old.close()
            writers.clear()
            folder = str(run.folder / "tensorboard" / name)
            # What was written beyond the checkpoint that a resumed trial comes from is written again.
            writers[name] = SummaryWriter(folder, purge_step=event["step"], flush_secs=1)
        for key, value in event.items():
            if key in ("loss", "accuracy", "test_loss", "rate", "shifts") and isinstance(value, int | float):
                writers[name].add_scalar(key, value, event["step"])

    try:
        yield [observe]
    finally:  # writers are ahead of their files until they are closed
        for writer in writers.values():
            writer.close()
