"""The best fixed point in hindsight: what regret is measured against.

`best_fixed_point` finds it exactly where a formula is known (linear losses; squared losses in one dimension, on
all of space and on a ball), otherwise by accelerated projected gradient descent, until the duality gap
`max_u <grad f(x), x - u>` proves that it is within the tolerance.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from samuel.online.domains import Ball, Box, Domain, Free
from samuel.online.losses import Data, LinearLoss, LossFamily, SquaredLoss

TOLERANCE = 1e-8
"""How far above the minimum the solver may stop, relative to the size of the losses."""


class Comparator(NamedTuple):
    """A fixed point, its total loss, and by how much at most that is above the minimum."""

    point: np.ndarray
    loss: float
    gap: float


def best_fixed_point(loss: LossFamily, data: Data, domain: Domain, dim: int) -> Comparator:
    """The point of the domain with the smallest total loss over the rounds of the data.

    >>> import numpy as np
    >>> from samuel.online import Ball
    >>> best = best_fixed_point(LinearLoss(), (np.array([[3.0, 4.0]]),), Ball(1.0), dim=2)
    >>> best.point, best.loss
    (array([-0.6, -0.8]), -5.0)
    """
    data = tuple(np.asarray(array, dtype=float) for array in data)
    if isinstance(loss, LinearLoss):
        total = np.sum(data[0], axis=0)
        point = np.asarray(domain.lowest(total))
        return Comparator(point, float(total @ point), 0.0)
    if isinstance(loss, SquaredLoss):
        with np.errstate(all="ignore"):  # numbers too small to be squared may overflow on the way
            point = _least_squares(data, domain, dim)
        if point is not None:
            return Comparator(point, loss.total(point, data)[0], 0.0)
    return _descend(loss, data, domain, dim)


def _least_squares(data: Data, domain: Domain, dim: int) -> np.ndarray | None:
    features, target = data
    matrix, vector = features.T @ features, features.T @ target
    if isinstance(domain, Free):
        return np.linalg.lstsq(matrix, vector, rcond=None)[0]
    if isinstance(domain, Box) and dim == 1:
        return np.asarray(domain.project(np.array([vector[0] / matrix[0, 0] if matrix[0, 0] > 0 else 0.0])))
    if isinstance(domain, Ball):
        return _least_squares_on_ball(matrix, vector, np.asarray(domain.center_point(dim)), domain.radius)
    return None


def _least_squares_on_ball(matrix: np.ndarray, vector: np.ndarray, center: np.ndarray, radius: float) -> np.ndarray:
    """Minimise `x^T A x - 2 b^T x` over a ball: `(A + m I) z = b - A c`, with the `m >= 0` that fits."""
    eigenvalues, vectors = np.linalg.eigh(matrix)
    eigenvalues = np.maximum(eigenvalues, 0.0)
    turned = vectors.T @ (vector - matrix @ center)
    scale = max(float(eigenvalues[-1]), float(np.linalg.norm(turned)) / radius, 1e-300)
    usable = eigenvalues > 1e-13 * scale
    inside = np.where(usable, turned / np.where(usable, eigenvalues, 1.0), 0.0)
    if np.linalg.norm(inside) <= radius:
        return center + vectors @ inside
    low, high = 0.0, float(np.linalg.norm(turned)) / radius
    for _ in range(200):
        middle = (low + high) / 2
        if np.linalg.norm(turned / (eigenvalues + middle + 1e-300)) > radius:
            low = middle
        else:
            high = middle
    return center + vectors @ (turned / (eigenvalues + high + 1e-300))


def _descend(loss: LossFamily, data: Data, domain: Domain, dim: int, most: int = 20_000) -> Comparator:
    if not domain.bounded:
        raise ValueError(
            f"the best fixed point of {type(loss).__name__} on the unbounded {domain} has no finite search; name a "
            "bounded set of comparators with radius=..."
        )
    steepness = max(loss.curvature(data), 1e-12)
    point = previous = np.asarray(domain.center_point(dim))
    momentum = 1.0
    best = Comparator(point, np.inf, np.inf)
    for count in range(most):
        value, gradient = loss.total(point, data)
        if count % 10 == 0 or count < 10:
            gap = float(gradient @ (point - np.asarray(domain.lowest(gradient))))
            if value < best.loss or gap < best.gap:
                best = Comparator(point, value, gap)
            if gap <= TOLERANCE * (1 + abs(value)):
                break
        after = np.asarray(domain.project(point - gradient / steepness))
        if gradient @ (after - previous) > 0:
            momentum = 1.0  # going uphill: forget the momentum
        grown = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = after + (momentum - 1) / grown * (after - previous)
        previous, momentum = after, grown
        point = np.asarray(domain.project(ahead))
    return best
