"""A fixed expert."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from samuel.core.arrays import Array
from samuel.online.bases.base import Base, Memory, Stepped
from samuel.online.domains import Domain


@dataclass(frozen=True)
class Stay(Base):
    """A fixed expert, such as a corner of a simplex.

    It has no regret bound of its own, and is weighted by others, such as `Hedge`.

    Args:
        learning_rate: not used.

    >>> from samuel.online import Single, Stay, Box
    >>> learner = Single(Stay(), dim=1, domain=Box(0.0, 1.0))
    >>> learner.update([3.0])
    >>> learner.predict()
    array([0.5])
    """

    remembers_gradients_only: ClassVar[bool] = True

    def init(self, template: Array) -> Memory:
        return ()

    def step(
        self, points: Array, memory: Memory, gradients: Array, learning_rate: Array | float, domain: Domain
    ) -> Stepped:
        return Stepped(points, memory)
