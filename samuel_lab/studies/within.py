"""Studies with the task of another study and their own methods."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar

from samuel_lab.studies.offline import Cifar10, DigitsOffline, ImageNet, Offline, Sst2
from samuel_lab.studies.settings import BadSetting, option
from samuel_lab.studies.study import Study

TASKS: dict[str, type[Offline]] = {
    "cifar10": Cifar10,
    "imagenet": ImageNet,
    "sst2": Sst2,
    "digits-offline": DigitsOffline,
}


@dataclass(frozen=True)
class WithinAnother(Study):
    """A study with the task, data and length of an offline study."""

    name: ClassVar[str]

    task: str = option("cifar10", "The study whose network and data to use.", choices=tuple(TASKS))
    methods: tuple[str, ...] = option((), "Not an option of this study.", shown="the study's own")
    seeds: int = option(1, "Number of seeds.", least=1, most=1000)
    epochs: float | None = option(None, "Epochs of the full protocol.", above=0, most=10**6, shown="the task's")
    transitions: tuple[float, ...] | None = option(
        None, "The epochs at which the second and third phase start.", above=0, shown="the task's"
    )
    batch: int | None = option(None, "Examples in a batch.", least=1, shown="the task's")
    examples: int | None = option(None, "Number of examples of each class.", least=1, shown="all")
    width: int | None = option(None, "Width of the network's first layer.", least=1, shown="the task's")
    size: int | None = option(None, "Side of the crops of imagenet, in pixels.", least=8, shown="the task's")
    placement: str | None = option(
        None,
        Study.__dataclass_fields__["placement"].metadata["help"],
        choices=("map", "scan"),
        shown="the task's",
    )

    @classmethod
    def data_in_short(cls) -> str:
        return "as the task does"

    @cached_property
    def inner(self) -> Offline:
        """The study of the task."""
        kind = TASKS[self.task]
        own = {"methods", "seeds"}
        shared = {entry.name for entry in fields(kind)} & {entry.name for entry in fields(self)} - own
        given: dict[str, Any] = {name: getattr(self, name) for name in shared}
        return kind(**{name: value for name, value in given.items() if value is not None})

    def check(self) -> None:
        if self.methods:
            raise BadSetting("methods", f"methods: this study has its own, got {', '.join(self.methods)}")
        known = {entry.name for entry in fields(TASKS[self.task])}
        for name in ("width", "size"):
            if name not in known and getattr(self, name) is not None:
                raise BadSetting(name, f"{name}: the task {self.task} has no such setting, got {getattr(self, name)}")
        _ = self.inner
