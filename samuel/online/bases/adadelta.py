"""Adadelta."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from samuel.core.arrays import Array, namespace
from samuel.online.bases.base import Base, Memory, Stepped, check_decay, check_not_negative, divide
from samuel.online.domains import Domain


@dataclass(frozen=True)
class Adadelta(Base):
    """Adadelta: the gradient in units of its own size, times the size of past steps (Zeiler 2012).

        s <- decay s + (1 - decay) g^2,   step = sqrt(u + epsilon) / sqrt(s + epsilon) g,
        u <- decay u + (1 - decay) step^2,   x <- Proj(x - lr step)

    No regret bound holds, so a certificate with this base is against the experts only.

    Args:
        learning_rate: `lr`.
        decay: how much of the averages is kept.
        epsilon: added under both roots; it sets the size of the first steps, so it must not be 0.

    >>> from samuel.online import Adadelta, Single, Free
    >>> learner = Single(Adadelta(1.0, epsilon=0.01), dim=1, domain=Free())
    >>> learner.update([1.0])
    >>> learner.predict().round(4)  # - sqrt(0.01) / sqrt(0.1 + 0.01)
    array([-0.3015])
    """

    remembers_gradients_only: ClassVar[bool] = True

    decay: float = 0.9
    epsilon: float = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        check_decay("decay", self.decay)
        check_not_negative("epsilon", self.epsilon)
        if self.epsilon == 0:
            raise ValueError("epsilon must be above 0 for Adadelta, got 0: its first step would be 0 for ever")

    def init(self, template: Array) -> Memory:
        zero = namespace(template).zeros_like(template)
        return (zero, zero)

    def step(
        self, points: Array, memory: Memory, gradients: Array, learning_rate: Array | float, domain: Domain
    ) -> Stepped:
        xp = namespace(points)
        square, moved = memory
        square = self.decay * square + (1 - self.decay) * gradients * gradients
        direction = divide(xp.sqrt(moved + self.epsilon), xp.sqrt(square + self.epsilon)) * gradients
        moved = self.decay * moved + (1 - self.decay) * direction * direction
        return Stepped(domain.project(points - learning_rate * direction), (square, moved))
