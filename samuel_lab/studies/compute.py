"""What a search over schedules costs, and what SAMUEL does: the paper's table of compute, measured."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from samuel_lab.data import Tell as TellData
from samuel_lab.studies.settings import option
from samuel_lab.studies.study import Course
from samuel_lab.studies.within import WithinAnother
from samuel_lab.trial import schedules
from samuel_lab.trial.methods import Method, Setup, method


@dataclass(frozen=True)
class Compute(WithinAnother):
    """Time a step, per expert and in all: one schedule of a search, and SAMUEL under full and linear feedback."""

    name: ClassVar[str] = "compute"
    title: ClassVar[str] = "What a search costs, and what SAMUEL does"
    summary: ClassVar[str] = (
        "Measured time a step: one schedule of a search of 125, SAMUEL with full and linear feedback."
    )

    steps: int = option(40, "Steps of each method; the median over stretches of four is taken.", least=8)

    def method_names(self) -> tuple[str, ...]:
        """One schedule, and the forms of SAMUEL."""
        return (f"{self.inner.base}/constant", "samuel-full", "samuel-linear", "samuel")

    def course(self, tell: TellData) -> Course:
        course = self.inner.course(tell)
        # Long enough to measure; restarts where the protocol has them, in proportion.
        before = course.setup.rounds
        transitions = sorted({max(1, round(self.steps * at / before)) for at in course.setup.transitions})
        setup = replace(course.setup, rounds=self.steps, transitions=tuple(transitions))
        if len(transitions) + 1 != len(setup.phases):
            setup = replace(setup, phases=setup.phases[: len(transitions) + 1])
        about = (
            f"{self.summary} {self.steps} steps of each on the task of {self.task}, which has "
            f"{course.plan['protocol_steps']} steps in the full protocol."
        )
        trials = len(schedules.product(self.inner.phases))
        plan = course.plan | {"about": about, "protocol_trials": trials}
        return course._replace(setup=setup, measures=[0, *range(4, self.steps, 4), self.steps], plan=plan)

    def method(self, name: str, setup: Setup) -> Method:
        found = method(name, setup)
        if name != self.method_names()[0]:
            return found._replace(extra={"protocol_trials": 1})
        trials = len(schedules.product(self.inner.phases))
        return found._replace(
            label=f"{found.label.partition(',')[0]}, a search of {trials}", extra={"protocol_trials": trials}
        )
