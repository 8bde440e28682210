"""Online gradient descent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from samuel.core.arrays import Array, namespace
from samuel.online.bases.base import Base, Memory, Stepped, count_like
from samuel.online.domains import Domain

SCHEDULES = ("constant", "sqrt", "inverse")


@dataclass(frozen=True)
class OGD(Base):
    """Online gradient descent: step against the gradient, project back into the domain.

        x <- Proj(x - lr_n g),   lr_n = lr,  lr / sqrt(n)  or  lr / n   in the n-th round

    Regret, for rates that do not increase: `D_2^2 / (2 lr_n) + 1/2 sum lr_t |g_t|^2` (Zinkevich 2003).

    Args:
        learning_rate: `lr`.
        schedule: "constant", "sqrt" (`1/sqrt(n)`) or "inverse" (`1/n`, for strongly convex losses).

    >>> from samuel.online import OGD, Single, Interval
    >>> learner = Single(OGD(0.5, schedule="inverse"), dim=1, domain=Interval(-1.0, 1.0))
    >>> for _ in range(2):
    ...     learner.update(2 * (learner.predict() + 1))  # gradient of (x + 1)^2
    >>> learner.predict()
    array([-1.])
    """

    remembers_gradients_only: ClassVar[bool] = True

    schedule: Literal["constant", "sqrt", "inverse"] = "constant"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.schedule not in SCHEDULES:
            raise ValueError(f"schedule must be one of {', '.join(SCHEDULES)}, got {self.schedule!r}")

    def init(self, template: Array) -> Memory:
        return () if self.schedule == "constant" else (count_like(template),)

    def step(
        self, points: Array, memory: Memory, gradients: Array, learning_rate: Array | float, domain: Domain
    ) -> Stepped:
        if self.schedule != "constant":
            count = memory[0] + 1
            memory = (count,)
            slowing = namespace(count).sqrt(count) if self.schedule == "sqrt" else count
            learning_rate = learning_rate / slowing
        return Stepped(domain.project(points - learning_rate * gradients), memory)

    def bound(
        self, gradients: np.ndarray, learning_rates: np.ndarray, widths: np.ndarray, diameter: np.ndarray
    ) -> np.ndarray:
        n = np.arange(1, len(gradients) + 1)
        factor = {"constant": np.ones(n.shape), "sqrt": n**-0.5, "inverse": 1 / n}[self.schedule]
        squares = np.sum(gradients.astype(float) ** 2, axis=-1)
        return diameter**2 / (2 * learning_rates * factor[-1]) + learning_rates / 2 * (factor @ squares)
