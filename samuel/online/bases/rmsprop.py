"""RMSprop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from samuel.core.arrays import Array, namespace
from samuel.online.bases.base import Base, Memory, Stepped, check_decay, check_not_negative, divide
from samuel.online.domains import Domain


@dataclass(frozen=True)
class RMSprop(Base):
    """RMSprop: the gradient over the root of its averaged square (Tieleman and Hinton 2012).

        s <- decay s + (1 - decay) g^2,   x <- Proj(x - lr g / (sqrt(s) + epsilon))

    No regret bound holds, so a certificate with this base is against the experts only.

    Args:
        learning_rate: `lr`.
        decay: how much of the averaged square is kept.
        epsilon: added to the root; 0 makes the learner scale-free.

    >>> from samuel.online import RMSprop, Single, Free
    >>> learner = Single(RMSprop(0.1, decay=0.75), dim=1, domain=Free())
    >>> learner.update([3.0])
    >>> learner.predict().round(6)
    array([-0.2])
    """

    remembers_gradients_only: ClassVar[bool] = True

    decay: float = 0.9
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        super().__post_init__()
        check_decay("decay", self.decay)
        check_not_negative("epsilon", self.epsilon)

    def init(self, template: Array) -> Memory:
        return (namespace(template).zeros_like(template),)

    def step(
        self, points: Array, memory: Memory, gradients: Array, learning_rate: Array | float, domain: Domain
    ) -> Stepped:
        square = self.decay * memory[0] + (1 - self.decay) * gradients * gradients
        direction = divide(gradients, namespace(points).sqrt(square) + self.epsilon)
        return Stepped(domain.project(points - learning_rate * direction), (square,))
