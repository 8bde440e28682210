"""A prepared study: opened data, scaled lengths, and its trials."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from samuel_lab.models import Task
from samuel_lab.trial.trainers import Batch, ExamBatch, Trainer


class Feed(Protocol):
    """Source of training batches. A feed that holds memory or processes also has a `close`."""

    def batch(self, step: int) -> Batch:
        """The batch of a step, numbered from 0; a pure function of the step."""
        ...


class MethodSettings(Protocol):
    """The settings of a study that methods read.

    Attributes:
        base: the base of the paper's experts and of the search.
        experts_adagrad: which AdaGrad those experts use, if the base is AdaGrad.
        weight_decay: added to gradients, for every base.
        baselines: default learning rates by base and schedule.
        etas: number of step sizes of the paper's weights; None for as many as the run needs.
        combine: how the paper's experts are combined into a decision under full feedback.
        placement: how the networks of experts and searches train on one device.
    """

    @property
    def base(self) -> str: ...
    @property
    def experts_adagrad(self) -> str: ...
    @property
    def weight_decay(self) -> float: ...
    @property
    def baselines(self) -> Mapping[tuple[str, str], float]: ...
    @property
    def etas(self) -> int | None: ...
    @property
    def combine(self) -> str: ...
    @property
    def placement(self) -> str | None: ...


@dataclass(frozen=True)
class Trial:
    """A method trained with one seed.

    Attributes:
        method: the trainer.
        seed: determines everything random.
        steps: the number of training steps.
        measures: steps after which to measure, increasing; the last is `steps`.
    """

    method: Trainer
    seed: int
    steps: int
    measures: Sequence[int] = field(repr=False)

    @property
    def name(self) -> str:
        """The name of the method."""
        return self.method.name

    @property
    def title(self) -> str:
        """Method and seed."""
        return f"{self.name}, seed {self.seed}"


@dataclass(frozen=True)
class Experiment:
    """What the trials of a study share, after the data were opened and the lengths scaled.

    Attributes:
        settings: the study; methods read their settings here.
        task: network and loss.
        steps: the number of steps of every trial.
        phases: candidate learning rates: one list, or one for each phase.
        transitions: steps at which the second and later phases start, and the paper's algorithm restarts.
        shortest: steps of the shortest block of the paper's Algorithm 1; None for Algorithm 2.
        alphas: history decays of Algorithm 2's experts.
        measures: steps after which to measure.
        feed: the batches of a seed.
        exam: the test batches for a measurement after so many steps.
        plan: the contents of `plan.json`.
        trials: in training order.
        optimizers: compiled steps by optimizer, shared by trials that differ in schedule or seed only.
    """

    settings: MethodSettings
    task: Task
    steps: int
    phases: tuple[tuple[float, ...], ...] = ()
    transitions: tuple[int, ...] = ()
    shortest: int | None = None
    alphas: tuple[float, ...] = (1.0,)
    measures: Sequence[int] = ()
    feed: Callable[[int], Feed] = field(default=lambda seed: _no_data(), repr=False)
    exam: Callable[[int], Iterable[ExamBatch]] = field(default=lambda step: (), repr=False)
    plan: Mapping[str, Any] = field(default_factory=dict)
    trials: tuple[Trial, ...] = ()
    optimizers: dict[Any, Trainer] = field(default_factory=dict, compare=False, repr=False)


def _no_data() -> Feed:
    raise ValueError("this experiment has no data")
