"""Optimistic online gradient descent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from samuel.core.arrays import Array, namespace
from samuel.online.bases.base import Base, Memory, Stepped, count_like, divide
from samuel.online.domains import Domain


@dataclass(frozen=True)
class OptimisticOGD(Base):
    """Optimistic gradient descent: a step ahead along a hint, the gradient expected next; scale-free.

        S += |g - h|^2,   x <- Proj(x - lr (g - h + h') / sqrt(S))

    with the hint `h` of this round and `h'` of the next. A hint is the last gradient, `h' = g`, unless
    `Single.update(gradient, hint=...)` gives another; the first is 0.

    Regret: `(D_2^2 / (2 lr) + lr) sqrt(sum |g - h|^2)`, small where gradients change slowly or can be predicted
    (Rakhlin and Sridharan 2013; in this form, with one projection, Joulani, Gyorgy and Szepesvari 2017). Best rate:
    `D_2 / sqrt(2)`.

    >>> from samuel.online import OptimisticOGD, Single, Ball
    >>> learner = Single(OptimisticOGD(0.1), dim=2, domain=Ball(1.0))
    >>> for _ in range(2):
    ...     learner.update([3e6, 4e6])
    ...     print(learner.predict())
    [-0.12 -0.16]
    [-0.18 -0.24]
    """

    remembers_gradients_only: ClassVar[bool] = True

    def init(self, template: Array) -> Memory:
        xp = namespace(template)
        none = xp.zeros_like(template)
        return count_like(template), none, none + xp.nan

    def step(
        self, points: Array, memory: Memory, gradients: Array, learning_rate: Array | float, domain: Domain
    ) -> Stepped:
        xp = namespace(points)
        total, hint, coming = memory
        error = gradients - hint
        total = total + xp.sum(error * error, axis=-1, keepdims=True)
        following = xp.where(xp.isnan(coming), gradients, coming)
        ahead = divide(error + following, xp.sqrt(total))
        return Stepped(domain.project(points - learning_rate * ahead), (total, following, hint + xp.nan))

    @staticmethod
    def expecting(memory: Memory, hint: Array) -> Memory:
        """The same memory, with a hint for the round after the coming one in place of the coming gradient."""
        return memory[0], memory[1], hint + namespace(hint).zeros_like(memory[2])

    def bound(
        self, gradients: np.ndarray, learning_rates: np.ndarray, widths: np.ndarray, diameter: np.ndarray
    ) -> np.ndarray:
        last = np.concatenate([np.zeros_like(gradients[:1]), gradients[:-1]])
        return self.hinted_bound(gradients, last, learning_rates, diameter)

    def hinted_bound(
        self, gradients: np.ndarray, hints: np.ndarray, learning_rates: np.ndarray, diameter: np.ndarray
    ) -> np.ndarray:
        """The bound for other hints than the last gradient; shapes as for `bound`."""
        errors = gradients.astype(float) - hints.astype(float)
        return (diameter**2 / (2 * learning_rates) + learning_rates) * np.sqrt(np.sum(errors**2, axis=(0, -1)))
