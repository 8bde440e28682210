"""Online gradient descent in units of the first gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from samuel.core.arrays import Array, namespace
from samuel.online.bases.base import Base, Memory, Stepped, divide
from samuel.online.domains import Domain
from samuel.online.projections import length_of


@dataclass(frozen=True)
class RelativeOGD(Base):
    """Online gradient descent whose constant rate is in units of the domain, whatever the scale of the gradients.

        x <- Proj(x - lr / |g_1| g)

    with `g_1` the first gradient that is not 0. Regret from any round on:
    `D_2^2 |g_1| / (2 lr) + lr / (2 |g_1|) sum |g|^2` (Zinkevich, ICML 2003).

    Args:
        learning_rate: `lr`, the length of the first step.

    >>> from samuel.online import RelativeOGD, Single, Ball
    >>> learner = Single(RelativeOGD(0.5), dim=2, domain=Ball(1.0))
    >>> learner.update([30.0, 40.0])
    >>> learner.predict()
    array([-0.3, -0.4])
    """

    remembers_gradients_only: ClassVar[bool] = True
    lasting: ClassVar[bool] = True

    def init(self, template: Array) -> Memory:
        return (namespace(template).zeros_like(template[..., :1]),)

    def step(
        self, points: Array, memory: Memory, gradients: Array, learning_rate: Array | float, domain: Domain
    ) -> Stepped:
        (unit,) = memory
        unit = namespace(unit).where(unit > 0, unit, length_of(gradients))
        return Stepped(domain.project(points - learning_rate * divide(gradients, unit)), (unit,))

    def later_bound(
        self,
        memory: Memory,
        gradients: np.ndarray,
        learning_rates: np.ndarray,
        widths: np.ndarray,
        diameter: np.ndarray,
    ) -> np.ndarray:
        wide = gradients.astype(float)
        lengths = np.sqrt(np.sum(wide**2, axis=-1))
        first = np.take_along_axis(lengths, np.argmax(lengths > 0, axis=0)[None], axis=0)[0]
        unit = np.where(memory[0][..., 0] > 0, memory[0][..., 0], first)
        rates = learning_rates / np.where(unit > 0, unit, 1.0)
        bound = diameter**2 / (2 * rates) + rates / 2 * np.sum(lengths**2, axis=0)
        return np.where(unit > 0, bound, 0.0)  # no gradient yet: no regret
