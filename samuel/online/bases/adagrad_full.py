"""Adagrad with the full matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from samuel.core.arrays import Array, namespace
from samuel.online.bases.base import Base, Memory, Stepped, check_not_negative, divide
from samuel.online.domains import Domain, Free


@dataclass(frozen=True)
class AdagradFull(Base):
    """Adagrad with the full matrix: adapts to any rotation and scaling of the gradients. `O(d^3)` a round.

        G += g g^T,   H = (delta I + G)^(1/2),   x <- Proj_H(x - lr H^-1 g)

    Regret: `D_2^2 / (2 lr) tr H + lr (tr H - d sqrt(delta))` (Duchi, Hazan and Singer 2011). Best rate:
    `D_2 / sqrt(2)`. On a box or a simplex `Proj_H` is computed to a tolerance; its cost is bounded in every round and
    included in the certificate.

    Args:
        learning_rate: `lr`.
        delta: what the diagonal of `G` starts with; 0 makes the learner scale-free.

    >>> from samuel.online import AdagradFull, Single, Ball
    >>> learner = Single(AdagradFull(0.5), dim=2, domain=Ball(1.0))
    >>> learner.update([30.0, 40.0])
    >>> learner.predict().round(6)
    array([-0.3, -0.4])
    """

    remembers_gradients_only: ClassVar[bool] = True

    delta: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_not_negative("delta", self.delta)

    def init(self, template: Array) -> Memory:
        xp = namespace(template)
        return (xp.zeros((*template.shape, template.shape[-1]), dtype=template.dtype),)

    def step(
        self, points: Array, memory: Memory, gradients: Array, learning_rate: Array | float, domain: Domain
    ) -> Stepped:
        xp = namespace(points)
        matrix = memory[0] + gradients[..., :, None] * gradients[..., None, :]
        eigenvalues, vectors = xp.linalg.eigh(matrix)
        metric = matrix_metric(eigenvalues, self.delta)
        turned = xp.sum(vectors * gradients[..., :, None], axis=-2)
        direction = xp.sum(vectors * divide(turned, metric)[..., None, :], axis=-1)
        positive = xp.where(metric > 0, metric, 1.0)
        target = points - learning_rate * direction
        if points.shape[-1] == 1:  # on a line all norms agree
            return Stepped(domain.project(target), (matrix,), xp.zeros_like(target[..., 0]))
        points, distance = domain.project_matrix(target, positive, vectors)
        if self.exact(domain):
            return Stepped(points, (matrix,))
        return Stepped(points, (matrix,), distance_error(distance, positive, domain))

    def bound(
        self, gradients: np.ndarray, learning_rates: np.ndarray, widths: np.ndarray, diameter: np.ndarray
    ) -> np.ndarray:
        wide = gradients.astype(float)
        eigenvalues = np.linalg.eigvalsh(np.einsum("nji,njk->jik", wide, wide))
        grown = np.sum(np.sqrt(np.maximum(eigenvalues, 0) + self.delta) - np.sqrt(self.delta), axis=-1)
        trace = np.sum(matrix_metric(eigenvalues, self.delta, gradients.dtype), axis=-1)
        return diameter**2 * trace / (2 * learning_rates) + learning_rates * grown

    def exact(self, domain: Domain) -> bool:
        return isinstance(domain, Free)


def distance_error(distance: Array, metric: Array, domain: Domain) -> Array:
    """Additional regret, times the learning rate, of a point at a distance from its projection in a matrix norm.

    `|x - u|_H^2 <= (|x* - u|_H + distance)^2` for every `u` of the domain.

    Args:
        distance: from the exact projection, in the norm of the matrix.
        metric: eigenvalues of the matrix.
        domain: of the points.
    """
    xp = namespace(distance)
    reach = xp.sqrt(xp.max(metric, axis=-1)) * domain.diameter(metric.shape[-1])
    return xp.where(distance > 0, distance * (reach + distance / 2), 0.0)


def matrix_metric(eigenvalues: Array, delta: float, dtype: Any = None) -> Array:
    """Eigenvalues of `(delta I + G + ridge)^(1/2)`, the ridge a tiny part of the largest eigenvalue of `G`.

    Zero eigenvalues are computed as rounding errors, whose roots are larger. The ridge dominates them, so that
    decisions do not depend on them; as it only grows, and the root is monotone, the regret bound holds with it.

    Args:
        eigenvalues: of `G`.
        delta: what the diagonal starts with.
        dtype: the precision of the run, if it was not that of the eigenvalues.
    """
    xp = namespace(eigenvalues)
    ridge = ridge_of(eigenvalues.dtype if dtype is None else dtype)
    positive = xp.maximum(eigenvalues, xp.zeros_like(eigenvalues))
    return xp.sqrt(positive + delta + ridge * xp.max(positive, axis=-1, keepdims=True))


def ridge_of(dtype: Any) -> float:
    """The ridge relative to the largest eigenvalue of `G`: 8e-10, and 1e-4 in float32."""
    return 1e-4 if dtype.itemsize == 4 else 8e-10
