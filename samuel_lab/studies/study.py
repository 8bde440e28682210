"""The base class of studies: settings, and the trials that follow from them.

A study is a frozen dataclass of settings. `prepare` opens the data and returns an `Experiment` with its plan and
trials; `samuel_lab.execution` trains them into the folder of a run. Methods read settings from the study, so a new
setting is one field here and one use there. To add a study, derive from `Study` (or from `Shift` or `Offline`, the
paper's two protocols), and add it to `samuel_lab.studies.catalogue`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np

from samuel_lab.data import Dataset, Split
from samuel_lab.data import Progress as DataProgress
from samuel_lab.data.batches import Resident, statistics
from samuel_lab.models import Task
from samuel_lab.studies.settings import BadSetting, Settings, option
from samuel_lab.trial import methods as named
from samuel_lab.trial import schedules
from samuel_lab.trial.experiment import Experiment, Feed, Trial
from samuel_lab.trial.trainers import Trainer

DEVICES = ("auto", "cpu", "gpu")
PRECISIONS = ("float32", "bfloat16")
EXAM_BATCH = 1000
"""Test examples in a batch."""


@dataclass(frozen=True)
class Study(Settings):
    """The settings that all studies share."""

    name: ClassVar[str]
    title: ClassVar[str]
    summary: ClassVar[str]
    """One sentence for lists."""
    model: ClassVar[str]
    """The name of the network."""
    needs_data: ClassVar[str] = ""
    """What `--data` must be; empty if it is not required."""
    takes_data: ClassVar[bool] = True
    """False if the data come with a library."""

    methods: tuple[str, ...] = option(
        ("samuel",),
        "Methods to train, separated by commas: names such as samuel, samuel-linear, samuel-full, prodigy, "
        "adam/cosine, adam/cosine@0.003, and the groups baselines and peers. `samuel list` lists all.",
    )
    seeds: int = option(3, "Number of seeds of every method.", least=1, most=1000)
    first_seed: int = option(0, "The first seed.", least=0, most=10**6)
    scale: float = option(
        1.0,
        "Fraction of the full protocol: scales rounds, transitions and the shortest block.",
        above=0,
        most=1,
    )
    data: Path | None = option(None, "Path of the data.")
    cache: Path | None = option(
        None, "Folder for decoded data.", shown="$SAMUEL_CACHE, or samuel in the user's cache folder"
    )
    device: str = option("auto", "Device.", choices=DEVICES)
    precision: str = option("float32", "Precision of the network; parameters are float32.", choices=PRECISIONS)
    deterministic: bool = option(True, "On a GPU, use deterministic operations only; exact resuming requires them.")
    placement: str = option(
        "scan",
        "How several networks train on one device: in parallel (map) or one after another (scan).",
        choices=("map", "scan"),
    )
    checkpoint_seconds: float = option(
        60.0, "Seconds between checkpoints, which a kill may lose; 0 saves at every measurement.", least=0
    )
    tensorboard: bool = option(False, "Also write TensorBoard event files into the folder of the run.")
    experts_adagrad: str = option(
        "optax",
        "AdaGrad of the experts of samuel-full and samuel-linear: optax's, whose sum of squares begins at 0.1, or "
        "plain, whose sum begins at 0.",
        choices=tuple(named.EXPERTS_ADAGRAD),
    )

    # Defaults that methods read. Without annotations they are not fields.
    base = "adagrad"
    weight_decay = 0.0
    etas = None
    combine = "sample"

    @classmethod
    def data_in_short(cls) -> str:
        """Whether `--data` is required, in a word."""
        return "yes" if cls.needs_data else "no"

    def check(self) -> None:
        try:
            names = named.expand(self.methods)
        except ValueError as error:
            raise BadSetting("methods", str(error)) from None
        if not names:
            raise BadSetting("methods", "methods is empty: name at least one")
        for name in names:
            found = named.parse(name)
            if found is not None and found.schedule == "step":
                self._check_step(name, found)
        if self.data is not None and not self.takes_data:
            raise BadSetting("data", f"data: the study {self.name} has its own, got {self.data}")
        if self.needs_data and self.data is None:
            raise BadSetting("data", f"data is missing: give {self.needs_data}")
        if self.data is not None and not self.data.exists():
            raise BadSetting("data", f"data: {self.data} does not exist; give {self.needs_data or 'a path'}")

    def _check_step(self, name: str, found: named.Scheduled) -> None:
        raise BadSetting("methods", f"method {name!r} needs an offline study: this one has no transitions")

    @abstractmethod
    def experiment(self, progress: DataProgress) -> Experiment:
        """Open the data and scale the protocol; without trials."""

    @property
    def baselines(self) -> Mapping[tuple[str, str], float]:
        """Default learning rates by base and schedule."""
        return schedules.BASELINES

    def method_names(self) -> tuple[str, ...]:
        """The methods to train."""
        return named.expand(self.methods)

    def method(self, name: str, experiment: Experiment) -> Trainer:
        """A method of this study by its name."""
        return named.method(name, experiment)

    def seeds_of(self, name: str) -> range:
        """The seeds of a method; of a search only the first."""
        return range(self.first_seed, self.first_seed + (1 if named.is_search(name) else self.seeds))

    @property
    def dtype(self) -> Any:
        """The precision of the network."""
        return jnp.bfloat16 if self.precision == "bfloat16" else jnp.float32

    def prepare(self, progress: DataProgress = lambda what, done, total: None) -> Experiment:
        """Open the data, and make the plan and its trials.

        Args:
            progress: called with the progress of reading.

        Raises:
            BadSetting, ValueError, OSError: if the data do not fit the study.
        """
        experiment = self.experiment(progress)
        methods = [self.method(name, experiment) for name in self.method_names()]
        # Seed by seed: an interrupted run then has all methods with fewer seeds.
        trials = tuple(
            Trial(method, seed, experiment.steps, experiment.measures)
            for seed in range(self.first_seed, self.first_seed + self.seeds)
            for method in methods
            if seed in self.seeds_of(method.name)
        )
        plan = {
            "study": self.name,
            "title": self.title,
            "rounds": experiment.steps,
            "steps_per_epoch": None,
            "shift": None,
            "windows": [],
            "transitions": list(experiment.transitions),
            **experiment.plan,
            "trials": [{**trial.method.row, "seed": trial.seed, "steps": trial.steps} for trial in trials],
        }
        return replace(experiment, plan=plan, trials=trials)


class Shifted:
    """Batches of one feed before a step, and of another from it on."""

    def __init__(self, before: Feed, after: Feed, shift: int) -> None:
        self.before, self.after, self.shift = before, after, shift

    def batch(self, step: int) -> Any:
        """The batch of a step."""
        return self.before.batch(step) if step < self.shift else self.after.batch(step - self.shift)


def resident(split: Split, batch: int, seed: int, augment: Literal["crop-flip"] | None, stats: Any) -> Resident:
    """Batches from examples in device memory."""
    mean, std = stats
    return Resident(split, batch, seed, augment, mean, std)


def stats_of(split: Split) -> tuple[Any, Any]:
    """Mean and deviation per channel; None for text."""
    return statistics(split) if split.inputs.dtype == np.uint8 else (None, None)


def facts_about(dataset: Dataset, train: int, test: int) -> dict[str, Any]:
    """The data in the plan, with the numbers of examples used."""
    used = {"name": dataset.name, "train": train, "test": test, "classes": list(dataset.classes)}
    return used | dataset.facts | used  # facts have the numbers of all examples


def count(task: Task) -> int:
    """The number of parameters of a network, without initialising it."""
    params, _ = jax.eval_shape(task.init, jax.random.key(0))
    return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(params))


def evenly(first: int, last: int, points: int) -> list[int]:
    """Evenly spaced integers from the first to the last.

    >>> evenly(0, 10, 3)
    [0, 5, 10]
    """
    return np.unique(np.linspace(first, last, max(2, points)).round().astype(int)).tolist()
