"""Sensitivity of SAMUEL to its two hyperparameters: the paper's 18 runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from samuel_lab.data import Progress as DataProgress
from samuel_lab.studies.settings import BadSetting, option
from samuel_lab.studies.within import WithinAnother
from samuel_lab.trial.experiment import Experiment
from samuel_lab.trial.methods import method
from samuel_lab.trial.trainers import Trainer

ALPHAS = {
    1: (1.0,),
    2: (0.99, 1.0),
    3: (0.9, 0.99, 1.0),
    6: (0.9, 0.97, 0.99, 0.997, 0.999, 1.0),
}
"""History decays by their number. The paper states only how many it used; these range from a memory of 10 steps to an
infinite one."""


@dataclass(frozen=True)
class Stability(WithinAnother):
    """SAMUEL with several numbers of history decays and of step sizes."""

    name: ClassVar[str] = "stability"
    title: ClassVar[str] = "Sensitivity to the hyperparameters"
    summary: ClassVar[str] = "18 runs of the paper's SAMUEL with different numbers of history decays and step sizes."

    decays: tuple[int, ...] = option(
        (2, 3, 6), f"Numbers of history decays, of {', '.join(map(str, ALPHAS))}.", least=1
    )
    step_sizes: tuple[int, ...] = option(
        (5, 10, 15, 20, 25, 30), "Numbers of step sizes eta of the weights.", least=1, most=60
    )

    def check(self) -> None:
        super().check()
        for number in self.decays:
            if number not in ALPHAS:
                raise BadSetting("decays", f"decays must be of {', '.join(map(str, ALPHAS))}, got {number}")
        for name, numbers in (("decays", self.decays), ("step_sizes", self.step_sizes)):
            if len(set(numbers)) < len(numbers):
                raise BadSetting(name, f"{name} must differ from each other, got {numbers}")
        if self.inner.base != "adagrad":
            raise BadSetting("task", f"task must be one with base adagrad, got {self.task}")

    def method_names(self) -> tuple[str, ...]:
        """The names of the trials."""
        return tuple(f"alphas={decays} etas={sizes}" for decays in self.decays for sizes in self.step_sizes)

    def experiment(self, progress: DataProgress) -> Experiment:
        return self.inner.experiment(progress)

    def method(self, name: str, experiment: Experiment) -> Trainer:
        decays, sizes = (int(part.partition("=")[2]) for part in name.split())
        settings = replace(self.inner, etas=sizes)
        found = method("samuel-full", replace(experiment, settings=settings, alphas=ALPHAS[decays]))
        label = f"{decays} decays, {sizes} step sizes"
        return found.with_(name=name, label=label, group="stability", extra={"alphas": decays, "etas": sizes})
