"""The paper's online experiment: half of the classes, then, without notice, the other half."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from flax import linen as nn

from samuel_lab.data import Dataset
from samuel_lab.data import Progress as DataProgress
from samuel_lab.data.batches import Exam
from samuel_lab.data.cifar10 import cifar10
from samuel_lab.data.digits import digits
from samuel_lab.models import ConvNet, ResNet18, Task
from samuel_lab.studies.settings import BadSetting, changed, option
from samuel_lab.studies.study import EXAM_BATCH, Shifted, Study, count, evenly, facts_about, resident, stats_of
from samuel_lab.trial import methods as named
from samuel_lab.trial.experiment import Experiment

POINTS = 64
"""Measurements before the shift, and about as many after the last window."""


def measures(rounds: int, shift: int, windows: Sequence[int]) -> list[int]:
    """The rounds after which to measure: 64 before the shift, closely after it, and 64 to the end.

    The paper does not state how often it evaluates. Here the first window is measured after every round, and each
    longer one at a hundred points; `samuel_lab.report.summary.window_mean` weighs unequal distances.

    >>> measures(rounds=1000, shift=600, windows=(4, 200))[62:74]
    [581, 591, 600, 601, 602, 603, 604, 605, 607, 609, 611, 613]
    """
    found = set(evenly(0, shift, POINTS + 1))
    last = 0
    for window in windows:
        window = min(window, rounds - shift)
        found |= set(range(shift + last + 1, shift + window + 1, 1 if not last else max(1, window // 100)))
        found.add(shift + window)
        last = window
    found |= set(evenly(shift + last, rounds, min(POINTS, rounds - shift - last) + 1))
    return sorted(found)


@dataclass(frozen=True)
class Shift(Study):
    """Online learning on CIFAR-10: five classes, then the other five."""

    name: ClassVar[str] = "shift"
    title: ClassVar[str] = "A shift without notice, CIFAR-10"
    summary: ClassVar[str] = "Online: five classes of CIFAR-10, then without notice the other five; ResNet-18."
    model: ClassVar[str] = "ResNet-18"
    needs_data: ClassVar[str] = (
        "CIFAR-10: the folder of its binary files, an image folder train/CLASS, test/CLASS, or an archive of either"
    )

    methods: tuple[str, ...] = changed(Study, "methods", ("samuel", "samuel-linear", "baselines", "peers"))
    rounds: int = option(25_600, "Rounds of the full protocol.", least=10, most=10**9)
    shift: int = option(17_000, "The round at which the classes change.", least=5)
    windows: tuple[int, ...] = option(
        (100, 500, 1000), "Rounds after the shift over which accuracy is averaged; not scaled.", least=1
    )
    shortest: int = option(200, "Rounds in the shortest block of the paper's algorithm.", least=1)
    rates: tuple[float, ...] = option(
        (0.05, 0.1, 0.25, 0.5, 1.0), "Candidate learning rates of the paper's algorithm.", above=0
    )
    first: tuple[str, ...] = option(("dog", "frog", "horse", "ship", "truck"), "The classes before the shift.")
    then: tuple[str, ...] = option(("airplane", "automobile", "bird", "cat", "deer"), "The classes after it.")
    batch: int = option(512, "Examples in a batch.", least=1)
    width: int = option(64, "Width of the network's first layer.", least=1)
    stem: str = option(
        "3x3",
        "First layer: a 3x3 convolution, or, as for ImageNet, a 7x7 convolution and a pooling, which downsample by 4.",
        choices=("3x3", "7x7"),
    )
    augment: str = option(
        "none",
        "Augmentation of training images: none, or random shifts by up to 4 pixels and flips.",
        choices=("none", "crop-flip"),
    )
    examples: int | None = option(None, "Number of examples of each class.", least=1, shown="all")
    combine: str = option(
        "sample", "How samuel-full combines its experts into a decision.", choices=("sample", "average", "best")
    )

    def check(self) -> None:
        super().check()
        if not self.shift < self.rounds:
            raise BadSetting("shift", f"shift must be before the last of {self.rounds} rounds, got {self.shift}")
        if len(self.first) != len(self.then):
            raise BadSetting(
                "then",
                f"then must have as many classes as first, {len(self.first)}: the network has one output for "
                f"each; got {len(self.then)}",
            )
        for name, classes in (("first", self.first), ("then", self.then)):
            if len(set(classes)) < len(classes):
                raise BadSetting(name, f"{name} must have every class once, got {', '.join(classes)}")
        both = set(self.first) & set(self.then)
        if both:
            raise BadSetting("then", f"then must have other classes than first; {sorted(both)[0]} is in both")
        for name in filter(named.is_search, self.method_names()):
            raise BadSetting("methods", f"method {name!r} needs an offline study: this one has no transitions")
        if len(set(self.rates)) < len(self.rates):
            raise BadSetting("rates", f"rates must differ from each other, got {self.rates}")
        if list(self.windows) != sorted(set(self.windows)):
            raise BadSetting("windows", f"windows must be increasing, got {self.windows}")
        self.scaled()

    def scaled(self) -> tuple[int, int, int]:
        """Rounds, the round of the shift, and the shortest block at this scale."""
        rounds, shift = round(self.rounds * self.scale), round(self.shift * self.scale)
        if shift < 2 or rounds - shift < 2:
            raise BadSetting(
                "scale", f"scale {self.scale:g} leaves {shift} rounds before the shift and {rounds - shift} after it"
            )
        # Rounded up: not more block lengths than in the full protocol.
        return rounds, shift, max(1, -(-rounds * self.shortest // self.rounds))

    def dataset(self, progress: DataProgress) -> Dataset:
        """The data."""
        assert self.data is not None, "validated by `check`"
        return cifar10(self.data, cache=self.cache, progress=progress)

    def network(self) -> nn.Module:
        """The network."""
        small = self.stem == "3x3"
        return ResNet18(classes=len(self.first), width=self.width, small_images=small, dtype=self.dtype)

    def experiment(self, progress: DataProgress) -> Experiment:
        dataset = self.dataset(progress)
        for name in (*self.first, *self.then):
            if name not in dataset.classes:
                raise BadSetting("first", f"unknown class {name!r}; choose from {', '.join(dataset.classes)}")
        groups = [[dataset.classes.index(name) for name in names] for names in (self.first, self.then)]
        train, test = dataset.train, dataset.test
        if self.examples:
            train, test = train.first(self.examples), test.first(self.examples)
        trains, tests = [train.only(group) for group in groups], [test.only(group) for group in groups]
        rounds, shift, shortest = self.scaled()
        # The classes after the shift are not known in advance: statistics come from the first ones.
        stats = stats_of(trains[0])
        exams = [Exam(split, EXAM_BATCH, *stats) for split in tests]
        task = Task(self.network(), np.zeros((1, *train.inputs.shape[1:]), np.float32), len(self.first))
        augment = "crop-flip" if self.augment == "crop-flip" else None
        windows = sorted({min(window, rounds - shift) for window in self.windows})
        sizes = sum(map(len, trains)), sum(map(len, tests))
        return Experiment(
            self,
            task,
            rounds,
            phases=(self.rates,),
            shortest=shortest,
            measures=measures(rounds, shift, windows),
            feed=lambda seed: Shifted(
                *(resident(one, self.batch, seed, augment, stats) for one in trains), shift=shift
            ),
            exam=lambda step: exams[step > shift],
            plan={
                "about": self._about(rounds, shift),
                "unit": "round",
                "shift": shift,
                "windows": windows,
                "chance": 1 / len(self.first),
                "data": facts_about(dataset, *sizes),
                "model": {"name": self.model, "parameters": count(task)},
                "batch": self.batch,
            },
        )

    def _about(self, rounds: int, shift: int) -> str:
        return (
            f"A network learns the classes {', '.join(self.first)}; after {shift} of {rounds} rounds, without notice, "
            f"the data change to {', '.join(self.then)}. Accuracy is on test images of the current classes."
        )


DIGITS_RATES: dict[tuple[str, str], float] = {
    ("sgd", "constant"): 0.45,
    ("sgd", "cosine"): 0.9,
    ("sgd", "warmup-cosine"): 1.0,
    ("sgd", "exponential"): 1.2,
    ("adagrad", "constant"): 0.4,
    ("adagrad", "cosine"): 0.4,
    ("adagrad", "warmup-cosine"): 0.45,
    ("adagrad", "exponential"): 0.35,
    ("adam", "constant"): 0.01,
    ("adam", "cosine"): 0.02,
    ("adam", "warmup-cosine"): 0.035,
    ("adam", "exponential"): 0.05,
}
"""The learning rates of the twelve baselines on digits: the best of six to nine multiples of the paper's rate each, by
the mean of the five metrics over three seeds that the study does not use (100 to 102): results/digits_rates.json."""


@dataclass(frozen=True)
class Digits(Shift):
    """The shift study on scikit-learn's digits, in seconds."""

    name: ClassVar[str] = "digits"
    title: ClassVar[str] = "A shift without notice, digits"
    summary: ClassVar[str] = (
        "Online: scikit-learn's digits 5-9, then without notice 0-4; a small network, no data needed."
    )
    model: ClassVar[str] = "a small convolutional network"
    needs_data: ClassVar[str] = ""
    takes_data: ClassVar[bool] = False

    methods: tuple[str, ...] = changed(
        Study, "methods", ("samuel", "samuel-untold", "samuel-adam", "samuel-linear", "samuel-full", "baselines")
    )
    rounds: int = changed(Shift, "rounds", 768)
    shift: int = changed(Shift, "shift", 512)
    windows: tuple[int, ...] = changed(Shift, "windows", (10, 50, 100))
    shortest: int = changed(Shift, "shortest", 6)
    first: tuple[str, ...] = changed(Shift, "first", ("5", "6", "7", "8", "9"))
    then: tuple[str, ...] = changed(Shift, "then", ("0", "1", "2", "3", "4"))
    batch: int = changed(Shift, "batch", 64)
    width: int = changed(Shift, "width", 16)
    placement: str = changed(Study, "placement", "map")

    def check(self) -> None:
        for name in ("stem", "augment"):
            if name in self.changed():
                raise BadSetting(name, f"{name} is an option of the study shift; digits are too small for it")
        super().check()

    @property
    def baselines(self) -> Mapping[tuple[str, str], float]:
        return DIGITS_RATES

    def dataset(self, progress: DataProgress) -> Dataset:
        return digits(progress=progress)

    def network(self) -> nn.Module:
        return ConvNet(classes=len(self.first), width=self.width, dtype=self.dtype)
