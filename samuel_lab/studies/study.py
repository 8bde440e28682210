"""What a study is: settings that say what to train, and the trials that follow from them.

A study is a frozen dataclass of settings. `prepare` opens the data and gives the plan and its trials;
`samuel_lab.execution` trains them. To add one, derive from `Study` (or from `Shift` or `Offline`, which have the
paper's two protocols), and name it in `samuel_lab.studies.catalogue`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from samuel.core.rules import RULES, TRAITS
from samuel_lab.data import Dataset, Split
from samuel_lab.data import Tell as TellData
from samuel_lab.data.batches import Resident, statistics
from samuel_lab.models import Task
from samuel_lab.studies.settings import BadSetting, Settings, option
from samuel_lab.trial import methods as named
from samuel_lab.trial.methods import Method, Setup
from samuel_lab.trial.optimizers import WEIGHT_DECAY
from samuel_lab.trial.trainers import ExamBatch, Trainer
from samuel_lab.trial.training import Feed, Lesson, Trial

DEVICES = ("auto", "cpu", "gpu")
PRECISIONS = ("float32", "bfloat16")
EXAM_BATCH = 1000
"""How many examples are judged at once."""


class Prepared(NamedTuple):
    """A study whose data are open."""

    plan: dict[str, Any]
    """What `plan.json` of a run holds."""
    trials: tuple[Trial, ...]
    close: Callable[[], None] = lambda: None
    """Lets go of what trials share: memory, and processes that decode."""


class Course(NamedTuple):
    """What all trials of a study have in common."""

    setup: Setup
    feed: Callable[[int], Feed]
    """The batches that a seed gives."""
    exam: Callable[[int], Iterable[ExamBatch]]
    """The exam that is due when so many steps are complete."""
    measures: Sequence[int]
    plan: dict[str, Any]
    """What to say about it in the plan."""


@dataclass(frozen=True)
class Study(Settings):
    """The settings that all studies share."""

    name: ClassVar[str]
    title: ClassVar[str]
    summary: ClassVar[str]
    """One sentence for lists."""
    model: ClassVar[str]
    """What the network is called."""
    needs_data: ClassVar[str] = ""
    """What `--data` must be; empty where it need not be given."""
    takes_data: ClassVar[bool] = True
    """False where the data come with a library."""

    methods: tuple[str, ...] = option(
        ("samuel",),
        "What to train, separated by commas: names such as samuel, samuel-linear, samuel-full, prodigy, adam/cosine, "
        "adam/cosine@0.003, and the groups baselines and peers. `samuel list` shows all.",
    )
    seeds: int = option(3, "How many seeds every method is trained with.", least=1, most=1000)
    first_seed: int = option(0, "The first of the seeds.", least=0, most=10**6)
    scale: float = option(
        1.0,
        "A fraction of the full protocol: rounds, transitions and the shortest block shrink together.",
        above=0,
        most=1,
    )
    data: Path | None = option(None, "Where the data are.")
    cache: Path | None = option(
        None, "Where decoded data are kept.", shown="$SAMUEL_CACHE, or samuel in the user's cache folder"
    )
    device: str = option("auto", "Where to compute.", choices=DEVICES)
    precision: str = option("float32", "What the network computes in; parameters are float32.", choices=PRECISIONS)
    deterministic: bool = option(
        True, "On a GPU, use only operations that give the same twice, without which no resume is exact."
    )
    placement: str = option(
        "scan",
        "How several networks train on one device: side by side (map) or one after another (scan).",
        choices=("map", "scan"),
    )
    checkpoint_seconds: float = option(60.0, "How many seconds a kill may cost; 0 saves at every measurement.", least=0)
    tensorboard: bool = option(False, "Write TensorBoard event files into the folder of the run, too.")
    experts_adagrad: str = option(
        "optax",
        "The AdaGrad of the experts of samuel-full and samuel-linear: optax's, whose sum of squares begins at 0.1, or "
        "plain, whose sum begins at 0.",
        choices=tuple(named.EXPERTS_ADAGRAD),
    )
    samuel_base: str = option("adam", "What the drop-in `samuel` gets its directions from.", choices=tuple(TRAITS))
    samuel_rule: str = option("samuel", "The drop-in's rule.", choices=tuple(RULES))
    samuel_horizon: bool = option(True, "Whether the drop-in is told the number of steps.")
    samuel_weight_decay: float | None = option(
        None,
        "Decoupled weight decay of the drop-in: its matrices shrink by this times its learning rate in every step.",
        least=0,
        shown=f"{WEIGHT_DECAY:g} over adam, otherwise 0",
    )

    @classmethod
    def data_in_short(cls) -> str:
        """Whether `--data` is needed, in a word."""
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
            raise BadSetting("data", f"data: the study {self.name} brings its own, got {self.data}")
        if self.needs_data and self.data is None:
            raise BadSetting("data", f"data is missing: give {self.needs_data}")
        if self.data is not None and not self.data.exists():
            raise BadSetting("data", f"data: there is nothing at {self.data}; give {self.needs_data or 'a path'}")

    def _check_step(self, name: str, found: named.Scheduled) -> None:
        raise BadSetting("methods", f"method {name!r} is a step schedule, and this study has no transitions")

    @abstractmethod
    def course(self, tell: TellData) -> Course:
        """Open the data and say what is trained and how it is measured."""

    def method_names(self) -> tuple[str, ...]:
        """The methods to train."""
        return named.expand(self.methods)

    def method(self, name: str, setup: Setup) -> Method:
        """A method of this study by its name."""
        return named.method(name, setup)

    def seeds_of(self, name: str) -> range:
        """The seeds a method is trained with: a search only with the first."""
        return range(self.first_seed, self.first_seed + (1 if named.is_search(name) else self.seeds))

    @property
    def dtype(self) -> Any:
        """What the network computes in."""
        return jnp.bfloat16 if self.precision == "bfloat16" else jnp.float32

    def prepare(self, tell: TellData = lambda what, done, total: None) -> Prepared:
        """Open the data and make the plan.

        Args:
            tell: is told what is being read, and how far.

        Raises:
            BadSetting, ValueError, OSError: if the data are not what the study needs.
        """
        course = self.course(tell)
        feeds = _Feeds(course.feed)
        found = [self.method(name, course.setup) for name in self.method_names()]
        trials, rows = [], []
        trainers = {method.name: method.trainer() for method in found}
        # Seed by seed, so that a run cut short has all methods with fewer seeds rather than the other way round.
        for seed in range(self.first_seed, self.first_seed + self.seeds):
            for method in found:
                if seed not in self.seeds_of(method.name):
                    continue
                trainer = trainers[method.name]
                trials.append(
                    Trial(
                        method.name,
                        seed,
                        method.label,
                        method.group,
                        method.about,
                        rounds=course.setup.rounds,
                        measures=course.measures,
                        lesson=_lesson(trainer, feeds, course.exam, seed),
                    )
                )
                rows.append({**_row(trials[-1], trainer), **method.extra})
        plan = {
            "study": self.name,
            "title": self.title,
            "rounds": course.setup.rounds,
            "steps_per_epoch": None,
            "shift": None,
            "windows": [],
            "transitions": list(course.setup.transitions),
            **course.plan,
            "trials": rows,
        }
        return Prepared(plan, tuple(trials), feeds.close)


class _Feeds:
    """The batches of one seed at a time: trials come seed by seed, and feeds hold memory and processes."""

    def __init__(self, make: Callable[[int], Feed]) -> None:
        self.make = make
        self.seed: int | None = None
        self.feed: Feed | None = None

    def __call__(self, seed: int) -> Feed:
        if self.feed is None or seed != self.seed:
            self.close()
            self.seed, self.feed = seed, self.make(seed)
        return self.feed

    def close(self) -> None:
        """End the feed there is."""
        feed, self.feed = self.feed, None
        close = getattr(feed, "close", None)
        if close is not None:
            close()


def _lesson(
    trainer: Trainer, feeds: _Feeds, exam: Callable[[int], Iterable[ExamBatch]], seed: int
) -> Callable[[], Lesson]:
    return lambda: Lesson(trainer, feeds(seed), exam, jax.random.key(seed))


def _row(trial: Trial, trainer: Trainer) -> dict[str, Any]:
    """A trial as the plan tells it."""
    return {
        "trial": trial.name,
        "seed": trial.seed,
        "label": trial.label,
        "group": trial.group,
        "about": trial.about,
        "steps": trial.rounds,
        "networks": trainer.networks,
        "gradients": trainer.gradients,
        "levels": None if trainer.levels is None else list(trainer.levels),
        "rates": None if trainer.rates is None else list(trainer.rates),
        "schedules": None if trainer.schedules is None else [list(one) for one in trainer.schedules],
    }


HELP = {entry.name: entry.metadata["help"] for entry in fields(Study)}
"""The help texts of the settings that all studies share, for those that change a default."""


class Shifted:
    """Batches of one feed, and from a step on those of another."""

    def __init__(self, before: Feed, after: Feed, shift: int) -> None:
        self.before, self.after, self.shift = before, after, shift

    def batch(self, step: int) -> Any:
        """The batch of a step."""
        return self.before.batch(step) if step < self.shift else self.after.batch(step - self.shift)


def resident(split: Split, batch: int, seed: int, augment: Literal["crop-flip"] | None, stats: Any) -> Resident:
    """Batches from examples on the device."""
    mean, std = stats
    return Resident(split, batch, seed, augment, mean, std)


def stats_of(split: Split) -> tuple[Any, Any]:
    """Mean and deviation per channel; nothing for text."""
    return statistics(split) if split.inputs.dtype == np.uint8 else (None, None)


def facts_about(dataset: Dataset, train: int, test: int) -> dict[str, Any]:
    """What the plan says about the data."""
    used = {"name": dataset.name, "train": train, "test": test, "classes": list(dataset.classes)}
    return used | dataset.facts | used  # facts tell how many there are, the plan how many are used


def count(task: Task) -> int:
    """How many parameters a network has; nothing is computed."""
    params, _ = jax.eval_shape(task.init, jax.random.key(0))
    return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(params))


def evenly(first: int, last: int, points: int) -> list[int]:
    """So many whole numbers from the first to the last, evenly spread.

    >>> evenly(0, 10, 3)
    [0, 5, 10]
    """
    return np.unique(np.linspace(first, last, max(2, points)).round().astype(int)).tolist()
