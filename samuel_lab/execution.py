"""Train what is left of a run: every trial of its plan."""

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
from samuel_lab.data import Progress as DataProgress
from samuel_lab.runs import Run, RunError
from samuel_lab.studies.settings import BadSetting
from samuel_lab.studies.study import DEVICES, Study
from samuel_lab.trial.experiment import Experiment
from samuel_lab.trial.training import Observer, Progress, Stop, Stopped, train

PACKAGES = ("jax", "flax", "optax", "orbax-checkpoint", "numpy")


DETERMINISTIC = "--xla_gpu_deterministic_ops=true"


def choose_device(device: str, deterministic: bool = True) -> None:
    """Select the CPU, a GPU, or JAX's default device; must be called before any computation.

    Args:
        device: "auto", "cpu" or "gpu".
        deterministic: whether results on a GPU must be reproducible.

    Raises:
        BadSetting: if it is not available.
    """
    if device not in DEVICES:
        raise BadSetting("device", f"device must be one of {', '.join(DEVICES)}, got {device!r}")
    flags = os.environ.get("XLA_FLAGS", "")
    if deterministic and DETERMINISTIC.partition("=")[0] not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {DETERMINISTIC}".strip()  # read when JAX first looks for devices
    if device == "cpu":
        # JAX prefers a GPU if there is one. Naming a platform that is not there would fail.
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
        except PackageNotFoundError:  # installed without metadata
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
    progress: Progress = lambda moment: None,
    data_progress: DataProgress = lambda what, done, total: None,
    planned: Callable[[Experiment, int], None] = lambda experiment, done: None,
    observers: Sequence[Observer] = (),
    repair: bool = False,
) -> None:
    """Train every incomplete trial of a run.

    Args:
        run: the folder.
        study: its settings.
        stop: requests an early stop.
        progress: called with the progress of training.
        data_progress: called with the progress of reading the data.
        planned: called before training with the plan and the number of complete trials.
        observers: called with every event.
        repair: drop damaged metrics and what follows (a copy is kept), with their checkpoints.

    Raises:
        Stopped: after a requested stop; another `execute` continues.
        RunError: if the folder cannot be used.
        BadSetting: if the data do not fit the study.
    """
    with run.locked():
        if repair:
            run.repair()
            run.drop_checkpoints()
        run.begin_session(environment())

        def reading(what: str, done: int, total: int) -> None:
            data_progress(what, done, total)
            _heed(stop, "stopped while the data were read")

        try:
            experiment = study.prepare(reading)
        except (ValueError, FileNotFoundError) as error:
            # Nothing was trained: an error in the data, such as a refused archive, is bad input.
            raise error if isinstance(error, BadSetting) else BadSetting("data", str(error)) from error
        run.settle_plan(experiment.plan)
        position = run.position(len(experiment.trials))
        run.refuse_checkpoints_after(position.trial)
        run.drop_checkpoints(keep=position.trial)
        if Checkpoints(run.checkpoint_folder(position.trial)).latest is None:
            run.metrics.cut(position.size)  # a trial killed before its first checkpoint is trained again
        planned(experiment, position.trial)
        remaining = range(position.trial, len(experiment.trials))
        # One seed at a time: the batches of a seed hold memory, and perhaps processes.
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
                        progress=progress,
                        observers=observers,
                    )
            finally:
                getattr(feed, "close", lambda: None)()


def _heed(stop: Stop | None, message: str) -> None:
    """Stop on request where there is nothing to save."""
    if stop is not None and stop.requested:
        raise Stopped(message)


@contextmanager
def observers_of(run: Run, study: Study) -> Iterator[list[Observer]]:
    """Context manager of further observers of events: TensorBoard, if the study has it enabled.

    Raises:
        RunError: if tensorboardX is not installed.
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
            # Events after the checkpoint of a resumed trial are written again.
            writers[name] = SummaryWriter(folder, purge_step=event["step"], flush_secs=1)
        for key, value in event.items():
            if key in ("loss", "accuracy", "test_loss", "rate", "shifts") and isinstance(value, int | float):
                writers[name].add_scalar(key, value, event["step"])

    try:
        yield [observe]
    finally:  # writers buffer until they are closed
        for writer in writers.values():
            writer.close()
