"""Scale-free online gradient descent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from samuel.core.arrays import Array, namespace
from samuel.online.bases.base import Base, Memory, Stepped, count_like, divide
from samuel.online.domains import Domain


@dataclass(frozen=True)
class ScaleFreeOGD(Base):
    """Gradient descent whose step does not depend on the scale of the losses.

        x <- Proj(x - lr g / sqrt(sum |g|^2))

    Regret: `(D_2^2 / (2 lr) + lr) sqrt(sum |g|^2)` (Orabona and Pal 2018). Best rate: `D_2 / sqrt(2)`.

    >>> from samuel.online import ScaleFreeOGD, Single, Ball
    >>> learner = Single(ScaleFreeOGD(0.5), dim=2, domain=Ball(1.0))
    >>> learner.update([3e6, 4e6])
    >>> learner.predict()
    array([-0.3, -0.4])
    """

    remembers_gradients_only: ClassVar[bool] = True

    def init(self, template: Array) -> Memory:
        return (count_like(template),)

    def step(
        self, points: Array, memory: Memory, gradients: Array, learning_rate: Array | float, domain: Domain
    ) -> Stepped:
        xp = namespace(points)
        total = memory[0] + xp.sum(gradients * gradients, axis=-1, keepdims=True)
        return Stepped(domain.project(points - learning_rate * divide(gradients, xp.sqrt(total))), (total,))

    def bound(
        self, gradients: np.ndarray, learning_rates: np.ndarray, widths: np.ndarray, diameter: np.ndarray
    ) -> np.ndarray:
        norm = np.sqrt(np.sum(gradients.astype(float) ** 2, axis=(0, -1)))
        return (diameter**2 / (2 * learning_rates) + learning_rates) * norm
