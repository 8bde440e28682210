"""Adam."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from samuel.core.arrays import Array, namespace
from samuel.online.bases.base import (
    Base,
    Memory,
    Stepped,
    check_decay,
    check_not_negative,
    count_like,
    divide,
)
from samuel.online.domains import Domain


@dataclass(frozen=True)
class Adam(Base):
    """Adam: averaged gradients over the root of averaged squares (Kingma and Ba 2014).

        m <- b1 m + (1 - b1) g,   s <- b2 s + (1 - b2) g^2,
        x <- Proj(x - lr (m / (1 - b1^n)) / (sqrt(s / (1 - b2^n)) + epsilon))

    No regret bound holds, so a certificate with this base is against the experts only.

    Args:
        learning_rate: `lr`.
        b1: how much of the averaged gradient is kept.
        b2: how much of the averaged square is kept.
        epsilon: added to the root; 0 makes the learner scale-free.

    >>> from samuel.online import Adam, Single, Free
    >>> learner = Single(Adam(0.1), dim=2, domain=Free())
    >>> learner.update([5.0, -0.5])
    >>> learner.predict().round(6)
    array([-0.1,  0.1])
    """

    remembers_gradients_only: ClassVar[bool] = True

    b1: float = 0.9
    b2: float = 0.999
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        super().__post_init__()
        check_decay("b1", self.b1)
        check_decay("b2", self.b2)
        check_not_negative("epsilon", self.epsilon)

    def init(self, template: Array) -> Memory:
        zero = namespace(template).zeros_like(template)
        return (zero, zero, count_like(template))

    def step(
        self, points: Array, memory: Memory, gradients: Array, learning_rate: Array | float, domain: Domain
    ) -> Stepped:
        xp = namespace(points)
        mean, square, count = memory
        count = count + 1
        mean = self.b1 * mean + (1 - self.b1) * gradients
        square = self.b2 * square + (1 - self.b2) * gradients * gradients
        root = xp.sqrt(square / (1 - self.b2**count)) + self.epsilon
        direction = divide(mean / (1 - self.b1**count), root)
        return Stepped(domain.project(points - learning_rate * direction), (mean, square, count))
