"""The compute of a search over schedules and of SAMUEL: the paper's table, measured."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from samuel_lab.data import Progress as DataProgress
from samuel_lab.studies.settings import option
from samuel_lab.studies.within import WithinAnother
from samuel_lab.trial.experiment import Experiment
from samuel_lab.trial.methods import method
from samuel_lab.trial.trainers import Trainer


@dataclass(frozen=True)
class Compute(WithinAnother):
    """Time a step, in total and per expert: one schedule of a search, and SAMUEL under full and linear feedback."""

    name: ClassVar[str] = "compute"
    title: ClassVar[str] = "What a search costs, and what SAMUEL does"
    summary: ClassVar[str] = (
        "Measured time a step: one schedule of a search of 125, SAMUEL with full and linear feedback."
    )

    steps: int = option(40, "Steps of each method; times are medians over groups of four.", least=8)

    def method_names(self) -> tuple[str, ...]:
        """One schedule, and the variants of SAMUEL."""
        return (f"{self.inner.base}/constant", "samuel-full", "samuel-linear", "samuel")

    def experiment(self, progress: DataProgress) -> Experiment:
        found = self.inner.experiment(progress)
        # Long enough to measure, with the restarts of the protocol in proportion.
        transitions = tuple(sorted({max(1, round(self.steps * at / found.steps)) for at in found.transitions}))
        about = (
            f"{self.summary} {self.steps} steps of each on the task of {self.task}, which has "
            f"{found.plan['protocol_steps']} steps in the full protocol."
        )
        return replace(
            found,
            steps=self.steps,
            transitions=transitions,
            phases=found.phases[: len(transitions) + 1],
            measures=[0, *range(4, self.steps, 4), self.steps],
            plan={**found.plan, "about": about, "protocol_trials": self._schedules},
        )

    def method(self, name: str, experiment: Experiment) -> Trainer:
        found = method(name, experiment)
        if name != self.method_names()[0]:
            return found.with_(extra={"protocol_trials": 1})
        label = f"{found.label.partition(',')[0]}, a search of {self._schedules}"
        return found.with_(label=label, extra={"protocol_trials": self._schedules})

    @property
    def _schedules(self) -> int:
        return math.prod(map(len, self.inner.phases))
