"""Adagrad: a step size for every coordinate, from the gradients seen there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from samuel.core.arrays import Array, namespace
from samuel.online.bases.base import Base, Memory, Stepped, check_decay, check_not_negative, divide
from samuel.online.domains import Domain

COORDINATE_FLOOR = 1e-12
"""Minimum weight of a coordinate relative to the largest, so that the projection is well defined."""


@dataclass(frozen=True)
class Adagrad(Base):
    """Diagonal Adagrad: large steps in rare coordinates, small ones in frequent coordinates.

        S += g^2,   H = diag(sqrt(delta + S)),   x <- Proj_H(x - lr H^-1 g)

    where `Proj_H` is the projection in the norm of `H` (with a Euclidean one the bound below is false on a ball).
    Regret: `sum_i D_i^2 / (2 lr) H_i + lr (H_i - sqrt(delta))` (Duchi, Hazan and Singer 2011). Best rate:
    `D_i / sqrt(2)`.

    Args:
        learning_rate: `lr`.
        delta: where `S` starts; 0 makes the learner scale-free.

    >>> from samuel.online import Adagrad, Single, Box
    >>> learner = Single(Adagrad(0.5), dim=2, domain=Box(-1.0, 1.0))
    >>> learner.update([100.0, -0.01])
    >>> learner.predict()
    array([-0.5,  0.5])
    """

    remembers_gradients_only: ClassVar[bool] = True
    lasting: ClassVar[bool] = True

    delta: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_not_negative("delta", self.delta)

    def init(self, template: Array) -> Memory:
        return (namespace(template).zeros_like(template),)

    def step(
        self, points: Array, memory: Memory, gradients: Array, learning_rate: Array | float, domain: Domain
    ) -> Stepped:
        squares = self.remember(memory[0]) + gradients * gradients
        metric = diagonal_metric(squares, self.delta)
        target = points - learning_rate * divide(gradients, metric)
        return Stepped(domain.project_diagonal(target, _positive(metric)), (squares,))

    def remember(self, squares: Array) -> Array:
        """The sum of squares before a new gradient is added."""
        return squares

    def later_bound(
        self,
        memory: Memory,
        gradients: np.ndarray,
        learning_rates: np.ndarray,
        widths: np.ndarray,
        diameter: np.ndarray,
    ) -> np.ndarray:
        before = memory[0].astype(float)
        squares = before + np.sum(gradients.astype(float) ** 2, axis=0)
        metric = diagonal_metric(squares, self.delta)
        grown = np.sqrt(self.delta + squares) - np.sqrt(self.delta + before)
        start = np.sum(widths**2 * metric, axis=-1)
        return start / (2 * learning_rates) + learning_rates * np.sum(grown, axis=-1)


@dataclass(frozen=True)
class DiscountedAdagrad(Adagrad):
    """Adagrad with exponential decay of the past by `alpha` per round (the paper's offline variant).

        S <- alpha S + g^2,   x <- Proj_H(x - lr H^-1 g),   H = diag(sqrt(delta + S))

    No regret bound is known, so a certificate with this base is against the experts only.

    Args:
        learning_rate: `lr`.
        delta: where `S` starts.
        alpha: decay of the past per round: a memory of `1 / (1 - alpha)` rounds.

    >>> from samuel.online import DiscountedAdagrad, Single, Free
    >>> learner = Single(DiscountedAdagrad(1.0, alpha=0.5), dim=1, domain=Free())
    >>> for gradient in (2.0, 1.0):
    ...     learner.update([gradient])
    >>> learner.predict().round(4)  # -1, then - 1 / sqrt(4 / 2 + 1)
    array([-1.5774])
    """

    lasting: ClassVar[bool] = False

    alpha: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        check_decay("alpha", self.alpha)

    def remember(self, squares: Array) -> Array:
        """A part `alpha` of it."""
        return self.alpha * squares

    def bound(
        self, gradients: np.ndarray, learning_rates: np.ndarray, widths: np.ndarray, diameter: np.ndarray
    ) -> np.ndarray:
        return np.full(learning_rates.shape, np.inf)


def diagonal_metric(squares: Array, delta: float) -> Array:
    """`sqrt(delta + S)`, raised by a tiny part of its largest entry so that no coordinate is free to move."""
    xp = namespace(squares)
    root = xp.sqrt(squares + delta)
    return root + COORDINATE_FLOOR * xp.max(root, axis=-1, keepdims=True)


def _positive(metric: Array) -> Array:
    """Before any gradient a point is its own projection in any norm."""
    return namespace(metric).where(metric > 0, metric, 1.0)
