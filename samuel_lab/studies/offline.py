"""The paper's offline experiments: every three-phase step schedule, against SAMUEL in one run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from samuel_lab.data import Dataset, Split
from samuel_lab.data import Progress as DataProgress
from samuel_lab.data.batches import Exam, normalised
from samuel_lab.data.cifar10 import cifar10
from samuel_lab.data.digits import digits
from samuel_lab.data.folders import image_folder
from samuel_lab.data.pipeline import MEAN, STD, Pipeline, centre_crops
from samuel_lab.data.sst2 import sst2
from samuel_lab.models import BiLSTM, ConvNet, ResNet18, ResNet50, Task
from samuel_lab.studies.settings import BadSetting, changed, option
from samuel_lab.studies.study import EXAM_BATCH, Study, count, evenly, facts_about, resident, stats_of
from samuel_lab.trial import methods as named
from samuel_lab.trial import schedules
from samuel_lab.trial.experiment import Experiment
from samuel_lab.trial.trainers import ExamBatch

POINTS = 20
"""Measurements of a trial, at least; longer ones are measured after every epoch."""
RATES = (0.0001, 0.001, 0.01, 0.1, 1.0)
"""The candidates of the paper's text. The pseudo-code of its Algorithm 2 lists 1, 0.1, 0.001, 0.0001 and 0.00001,
without 0.01, which its experiments use."""


def measures(rounds: int, steps_per_epoch: int, transitions: Sequence[int]) -> list[int]:
    """The steps after which to measure: every epoch, at least 20 points, and every transition.

    >>> measures(100, steps_per_epoch=40, transitions=(50,))[:6]
    [0, 5, 10, 15, 20, 25]
    """
    points = max(POINTS, rounds // steps_per_epoch)
    return sorted({*evenly(0, rounds, points + 1), *transitions})


@dataclass(frozen=True)
class Offline(Study):
    """The settings of offline studies: epochs, transitions, candidate rates."""

    epochs: float = option(250.0, "Epochs of the full protocol.", above=0, most=10**6)
    transitions: tuple[float, ...] = option(
        (125.0, 200.0), "The epochs at which the second and third phase start.", above=0
    )
    rates: tuple[float, ...] = option(RATES, "Candidate learning rates of the first phase.", above=0)
    divide: float = option(1.0, "Factor by which candidates fall from each phase to the next.", least=1)
    base: str = option(
        "adagrad", "Optimizer of the search and of the paper's experts.", choices=tuple(named.optimizers.BASES)
    )
    weight_decay: float = option(0.0, "L2 weight decay, added to gradients.", least=0)
    etas: int = option(10, "Number of step sizes eta of the paper's weights.", least=1, most=60)
    batch: int = option(256, "Examples in a batch.", least=1)
    examples: int | None = option(None, "Number of examples of each class.", least=1, shown="all")
    methods: tuple[str, ...] = changed(
        Study,
        "methods",
        ("search", "samuel-full", "samuel", "adam/warmup-cosine", "peers"),
        Study.__dataclass_fields__["methods"].metadata["help"] + " `search` is every step schedule.",
    )
    seeds: int = changed(Study, "seeds", 1, "Number of seeds of every method; the search uses the first only.")

    def check(self) -> None:
        super().check()
        if list(self.transitions) != sorted(set(self.transitions)):
            raise BadSetting("transitions", f"transitions must be increasing, got {self.transitions}")
        if self.transitions and not self.transitions[-1] < self.epochs:
            raise BadSetting(
                "transitions", f"transitions must be before the end, epoch {self.epochs:g}, got {self.transitions}"
            )
        if len(set(self.rates)) < len(self.rates):
            raise BadSetting("rates", f"rates must differ from each other, got {self.rates}")
        if self.base != "adagrad" and "experts_adagrad" in self.changed():
            raise BadSetting("experts_adagrad", f"experts_adagrad needs base adagrad, got base {self.base}")
        for name in filter(named.is_search, self.method_names()):
            unknown = [rate for rate in named.first_rates(name) if rate not in self.rates]
            if unknown:
                raise BadSetting(
                    "methods",
                    f"method {name!r}: no schedule begins with {unknown[0]:g}; rates are "
                    f"{', '.join(f'{rate:g}' for rate in self.rates)}",
                )

    def _check_step(self, name: str, found: named.Scheduled) -> None:
        phases = len(self.transitions) + 1
        if len(found.rates) != phases:
            raise BadSetting("methods", f"method {name!r} needs {phases} rates, one for each phase")

    @property
    def phases(self) -> tuple[tuple[float, ...], ...]:
        """Candidate learning rates of every phase."""
        return tuple(
            tuple(float(f"{rate / self.divide**phase:.12g}") for rate in self.rates)
            for phase in range(len(self.transitions) + 1)
        )

    @property
    def baselines(self) -> Mapping[tuple[str, str], float]:
        """Default learning rates by base and schedule."""
        return schedules.BASELINES | {("adam", "warmup-cosine"): 0.001}

    def scaled(self, steps_per_epoch: int) -> tuple[int, tuple[int, ...]]:
        """Steps, and the steps at which phases start, at this scale."""
        rounds = round(self.epochs * self.scale * steps_per_epoch)
        transitions = tuple(round(epoch * self.scale * steps_per_epoch) for epoch in self.transitions)
        edges = (0, *transitions, rounds)
        if any(late - early < 1 for early, late in pairwise(edges)):
            raise BadSetting(
                "scale",
                f"scale {self.scale:g} leaves phases without a step: {rounds} steps, transitions at {transitions}",
            )
        return rounds, transitions

    def of_task(
        self,
        task: Task,
        steps_per_epoch: int,
        feed: Any,
        exam: Iterable[ExamBatch],
        plan: dict[str, Any],
    ) -> Experiment:
        """The experiment, given opened data."""
        rounds, transitions = self.scaled(steps_per_epoch)
        phases = ""
        if transitions:
            schedules = math.prod(map(len, self.phases))
            phases = f", phases start at {', '.join(map(str, transitions))}; {schedules} step schedules"
        shared = {
            "unit": "step",
            "steps_per_epoch": steps_per_epoch,
            "chance": 1 / task.classes,
            "model": {"name": self.model, "parameters": count(task)},
            "batch": self.batch,
            # Unscaled, for the compute table.
            "protocol_steps": round(self.epochs * steps_per_epoch),
            "about": f"{self.summary} {rounds} steps ({rounds / steps_per_epoch:.3g} epochs){phases}.",
        }
        return Experiment(
            self,
            task,
            rounds,
            phases=self.phases,
            transitions=transitions,
            measures=measures(rounds, steps_per_epoch, transitions),
            feed=feed,
            exam=lambda step: exam,
            plan=shared | plan,
        )


@dataclass(frozen=True)
class InMemory(Offline):
    """An offline study whose data fit on the device."""

    augment: ClassVar[Literal["crop-flip"] | None] = None

    def dataset(self, progress: DataProgress) -> Dataset:
        """The data."""
        raise NotImplementedError

    def network(self, dataset: Dataset) -> nn.Module:
        """The network."""
        raise NotImplementedError

    def experiment(self, progress: DataProgress) -> Experiment:
        dataset = self.dataset(progress)
        train, test = dataset.train, dataset.test
        if self.examples:
            train, test = train.first(self.examples), test.first(self.examples)
        stats = stats_of(train)
        kind = np.float32 if train.inputs.dtype == np.uint8 else np.int32
        task = Task(self.network(dataset), np.zeros((1, *train.inputs.shape[1:]), kind), len(dataset.classes))
        return self.of_task(
            task,
            max(1, len(train) // self.batch),
            lambda seed: resident(train, self.batch, seed, self.augment, stats),
            Exam(test, EXAM_BATCH, *stats),
            {"data": facts_about(dataset, len(train), len(test))},
        )


@dataclass(frozen=True)
class Cifar10(InMemory):
    """CIFAR-10: 125 step schedules, and SAMUEL in one run."""

    name: ClassVar[str] = "cifar10"
    title: ClassVar[str] = "125 schedules against one run, CIFAR-10"
    summary: ClassVar[str] = "Offline: ten classes of CIFAR-10 with crops and flips; ResNet-18; AdaGrad step schedules."
    model: ClassVar[str] = "ResNet-18"
    needs_data: ClassVar[str] = (
        "CIFAR-10: the folder of its binary files, an image folder train/CLASS, test/CLASS, or an archive of either"
    )
    augment: ClassVar[Literal["crop-flip"] | None] = "crop-flip"

    width: int = option(64, "Width of the network's first layer.", least=1)

    def dataset(self, progress: DataProgress) -> Dataset:
        assert self.data is not None, "validated by `check`"
        return cifar10(self.data, cache=self.cache, progress=progress)

    def network(self, dataset: Dataset) -> nn.Module:
        return ResNet18(classes=len(dataset.classes), width=self.width, dtype=self.dtype)


@dataclass(frozen=True)
class Sst2(InMemory):
    """SST-2, sentiment of sentences, with a bidirectional LSTM."""

    name: ClassVar[str] = "sst2"
    title: ClassVar[str] = "125 schedules against one run, SST-2"
    summary: ClassVar[str] = "Offline: sentiment of SST-2's phrases; bidirectional LSTM; SGD with momentum."
    model: ClassVar[str] = "bidirectional LSTM"
    needs_data: ClassVar[str] = "SST-2: a folder with train.tsv and dev.tsv, or an archive of one"

    epochs: float = changed(Offline, "epochs", 25.0)
    transitions: tuple[float, ...] = changed(Offline, "transitions", (15.0, 20.0))
    base: str = changed(Offline, "base", "momentum")
    weight_decay: float = changed(Offline, "weight_decay", 3e-6)
    batch: int = changed(Offline, "batch", 64)
    embedding: int = option(300, "Dimension of word embeddings.", least=1)
    hidden: int = option(256, "Numbers of the LSTM's memory, in each direction.", least=1)
    length: int = option(64, "Longer phrases are cut to so many words.", least=1)

    def dataset(self, progress: DataProgress) -> Dataset:
        assert self.data is not None, "validated by `check`"
        return sst2(self.data, cache=self.cache, length=self.length, progress=progress)

    def network(self, dataset: Dataset) -> nn.Module:
        return BiLSTM(
            classes=len(dataset.classes),
            vocabulary=dataset.facts["vocabulary"],
            embedding=self.embedding,
            hidden=self.hidden,
            dtype=self.dtype,
        )


@dataclass(frozen=True)
class DigitsOffline(InMemory):
    """The offline protocol on scikit-learn's digits, in seconds."""

    name: ClassVar[str] = "digits-offline"
    title: ClassVar[str] = "125 schedules against one run, digits"
    summary: ClassVar[str] = "The offline protocol on scikit-learn's digits with a small network: no data needed."
    model: ClassVar[str] = "a small convolutional network"
    takes_data: ClassVar[bool] = False

    epochs: float = changed(Offline, "epochs", 20.0)
    transitions: tuple[float, ...] = changed(Offline, "transitions", (10.0, 16.0))
    batch: int = changed(Offline, "batch", 64)
    width: int = option(16, "Width of the network's first layer.", least=1)
    placement: str = changed(Study, "placement", "map")
    methods: tuple[str, ...] = changed(
        Offline, "methods", ("search", "samuel-full", "samuel-linear", "samuel", "adam/warmup-cosine", "peers")
    )

    def dataset(self, progress: DataProgress) -> Dataset:
        return digits(progress=progress)

    def network(self, dataset: Dataset) -> nn.Module:
        return ConvNet(classes=len(dataset.classes), width=self.width, dtype=self.dtype)


@dataclass(frozen=True)
class DigitsSweep(DigitsOffline):
    """A sweep of AdamW's learning rates against one run without a rate, on data without a shift."""

    name: ClassVar[str] = "digits-sweep"
    title: ClassVar[str] = "A sweep of AdamW's rates against one run, digits"
    summary: ClassVar[str] = "A sweep of AdamW's rates against SAMUEL without one, on scikit-learn's digits."

    transitions: tuple[float, ...] = changed(DigitsOffline, "transitions", (), shown="none")
    methods: tuple[str, ...] = changed(Offline, "methods", ("samuel", "samuel-untold", "samuel-adam", "adamw-rates"))
    seeds: int = changed(Study, "seeds", 3)


class Streamed:
    """Batches that worker processes decode while the network trains."""

    def __init__(self, pipeline: Pipeline, stats: tuple[Any, Any]) -> None:
        self.pipeline = pipeline
        self._normalise = jax.jit(lambda images: normalised(images, *stats))

    def batch(self, step: int) -> tuple[jax.Array, jax.Array]:
        """The batch of a step, on the device."""
        images, labels = self.pipeline.batch(step)
        # The pipeline reuses the memory of a batch.
        return self._normalise(jnp.array(images, copy=True)), jnp.array(labels, copy=True)

    def close(self) -> None:
        """End the worker processes."""
        self.pipeline.close()


class StreamedExam:
    """Test data too large for the device, sent batch by batch."""

    def __init__(self, split: Split, stats: tuple[Any, Any], batch: int) -> None:
        self.split, self.size = split, min(batch, len(split))
        self._normalise = jax.jit(lambda images: normalised(images, *stats))

    def __len__(self) -> int:
        return -(-len(self.split) // self.size)

    def __iter__(self) -> Iterator[ExamBatch]:
        for first in range(0, len(self.split), self.size):
            images = np.asarray(self.split.inputs[first : first + self.size])
            labels = np.asarray(self.split.labels[first : first + self.size])
            missing = self.size - len(labels)
            mask = np.pad(np.ones(len(labels), np.float32), (0, missing))
            images = np.pad(images, ((0, missing), *[(0, 0)] * (images.ndim - 1)))
            yield self._normalise(jnp.asarray(images)), jnp.asarray(np.pad(labels, (0, missing))), jnp.asarray(mask)


@dataclass(frozen=True)
class ImageNet(Offline):
    """ImageNet, or an image folder of its shape: ResNet-50, images decoded during training."""

    name: ClassVar[str] = "imagenet"
    title: ClassVar[str] = "125 schedules against one run, ImageNet"
    summary: ClassVar[str] = "Offline: an image folder of ImageNet's shape; ResNet-50; SGD with Nesterov momentum."
    model: ClassVar[str] = "ResNet-50"
    needs_data: ClassVar[str] = (
        "an image folder with train/CLASS and val/CLASS, as ImageNet has it, or an archive of one"
    )

    epochs: float = changed(Offline, "epochs", 100.0)
    transitions: tuple[float, ...] = changed(Offline, "transitions", (50.0, 75.0))
    rates: tuple[float, ...] = changed(Offline, "rates", (0.2, 0.4, 0.6, 0.8, 1.0))
    divide: float = changed(Offline, "divide", 10.0)
    base: str = changed(Offline, "base", "nesterov")
    batch: int = changed(Offline, "batch", 1024)
    width: int = option(64, "Width of the network's first layer.", least=1)
    size: int = option(224, "Side of the crops, in pixels.", least=8, most=1024)
    workers: int | None = option(None, "Number of decoding processes.", least=1, most=1024, shown="one per core")

    def experiment(self, progress: DataProgress) -> Experiment:
        assert self.data is not None, "validated by `check`"
        folder = image_folder(self.data, cache=self.cache, progress=progress)
        train, val = folder.train, folder.val
        if self.examples:
            train, val = train.first(self.examples), val.first(self.examples)
        crops, seen = centre_crops(val, folder.classes, self.size, cache=self.cache, progress=progress)
        task = Task(
            ResNet50(classes=len(folder.classes), width=self.width, dtype=self.dtype),
            np.zeros((1, self.size, self.size, 3), np.float32),
            len(folder.classes),
        )

        def feed(seed: int) -> Streamed:
            pipeline = Pipeline(
                train,
                self.batch,
                seed,
                size=self.size,
                workers=self.workers,
                shard=(jax.process_index(), jax.process_count()),
            )
            return Streamed(pipeline, (MEAN, STD))

        used = {"name": "images", "train": len(train.paths), "test": len(val.paths), "classes": list(folder.classes)}
        return self.of_task(
            task,
            max(1, len(train.paths) // self.batch),
            feed,
            StreamedExam(crops, (MEAN, STD), batch=min(250, self.batch)),
            {"data": used | folder.facts | used | {"test_images": seen}},
        )
