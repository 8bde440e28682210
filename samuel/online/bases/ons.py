"""Online Newton Step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from samuel.core.arrays import Array, namespace
from samuel.online.bases.adagrad_full import distance_error, ridge_of
from samuel.online.bases.base import Base, Memory, Stepped
from samuel.online.domains import Domain, Free
from samuel.online.projections import apply, identity_like, length_of, transposed


@dataclass(frozen=True)
class ONS(Base):
    """Online Newton Step: logarithmic regret on exp-concave losses. `O(d^3)` a round.

        A += g g^T,   M = max |g|,   x <- Proj_A(x - lr M A^-1 g),   A = delta |g_1|^2 I at the start

    This is Hazan, Agarwal and Kale (2007) with `1 / gamma = lr M`, so that `lr` is in units of the domain and the
    scale of the losses does not matter. `g_1` is the first gradient that is not 0. The regret against `u` is at most

        delta |g_1| D_2^2 / (2 lr) + lr / 2 sum M_t g_t^T A_t^-1 g_t + sum <g_t, x_t - u>^2 / (2 lr M_t)

    The second sum is logarithmic. Where `exp(-alpha loss)` is concave, `f(x) - f(u)` is smaller than `<g, x - u>` by
    a square, and the last sum disappears if `lr >= 2 max(D_2, 1 / (alpha M))`: ask for
    `trace.certificate(exp_concavity=alpha)`.

    Args:
        learning_rate: `lr`; `2 D_2` where `alpha` is not small.
        delta: where the diagonal of `A` starts, in units of the first squared gradient.

    >>> from samuel.online import ONS, Single, Ball
    >>> learner = Single(ONS(1.0), dim=2, domain=Ball(1.0))
    >>> learner.update([30.0, 40.0])
    >>> learner.predict().round(6)
    array([-0.3, -0.4])
    """

    remembers_gradients_only: ClassVar[bool] = True

    delta: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.delta, int | float) or not 0 < self.delta < np.inf:
            raise ValueError(f"delta must be positive and finite, got {self.delta!r}")

    def init(self, template: Array) -> Memory:
        xp = namespace(template)
        matrix = xp.zeros((*template.shape, template.shape[-1]), dtype=template.dtype)
        return matrix, xp.zeros_like(template[..., :1])

    def step(
        self, points: Array, memory: Memory, gradients: Array, learning_rate: Array | float, domain: Domain
    ) -> Stepped:
        xp = namespace(points)
        length = length_of(gradients)
        first = xp.where(memory[1] > 0, 0.0, self.delta * length**2)[..., None] * identity_like(points)
        matrix = memory[0] + first + gradients[..., :, None] * gradients[..., None, :]
        longest = xp.maximum(memory[1], length)
        eigenvalues, vectors = xp.linalg.eigh(matrix)
        eigenvalues = xp.maximum(eigenvalues, xp.zeros_like(eigenvalues))
        metric = eigenvalues + ridge_of(points.dtype) * xp.max(eigenvalues, axis=-1, keepdims=True)
        metric = xp.where(metric > 0, metric, 1.0)  # no gradient yet
        direction = apply(vectors, apply(transposed(vectors), gradients) / metric)
        target = points - learning_rate * longest * direction
        if points.shape[-1] == 1:  # on a line all norms agree
            return Stepped(domain.project(target), (matrix, longest), xp.zeros_like(target[..., 0]))
        nearest, distance = domain.project_matrix(target, metric, vectors)
        if self.exact(domain):
            return Stepped(nearest, (matrix, longest))
        error = distance_error(distance, metric, domain) / xp.where(longest > 0, longest, 1.0)[..., 0]
        return Stepped(nearest, (matrix, longest), error)

    def bound(
        self, gradients: np.ndarray, learning_rates: np.ndarray, widths: np.ndarray, diameter: np.ndarray
    ) -> np.ndarray:
        squares = _reach(gradients, widths, diameter) ** 2 / _positive(_longest(gradients))
        return self._logarithmic(gradients, learning_rates, diameter) + np.sum(squares, axis=0) / (2 * learning_rates)

    def exp_concave_bound(
        self,
        gradients: np.ndarray,
        learning_rates: np.ndarray,
        widths: np.ndarray,
        diameter: np.ndarray,
        gains: np.ndarray,
        exp_concavity: float,
    ) -> np.ndarray:
        # f(x) - f(u) <= a - gamma / 2 a^2 with a = <g, x - u>, and the bound on <g, x(e) - u> has beta / 2 (a - r)^2.
        longest = _positive(_longest(gradients))
        beta = 1 / (learning_rates * longest)
        gamma = np.minimum(1 / (longest * diameter), exp_concavity) / 2
        room = gamma - beta
        with np.errstate(divide="ignore", invalid="ignore"):
            curved = np.where(gains == 0, 0.0, beta * gamma * gains**2 / (2 * room))
        fits = (room > 0) | ((room > -1e-12 * gamma) & (gains == 0))
        straight = beta / 2 * _reach(gradients, widths, diameter) ** 2
        return self._logarithmic(gradients, learning_rates, diameter) + np.sum(
            np.where(fits, np.minimum(curved, straight), straight), axis=0
        )

    def _logarithmic(self, gradients: np.ndarray, learning_rates: np.ndarray, diameter: np.ndarray) -> np.ndarray:
        """The bound without its last sum."""
        wide = gradients.astype(float)
        start, steps = np.array([self._sums(wide[:, j], gradients.dtype) for j in range(wide.shape[1])]).T
        return start * diameter**2 / (2 * learning_rates) + learning_rates / 2 * steps

    def _sums(self, gradients: np.ndarray, dtype: np.dtype) -> tuple[float, float]:
        """Factors of the squared diameter and the learning rate in the bound.

        Rounds with the same largest gradient are grouped: `sum g^T A^-1 g` over them is at most the growth of `log det
        A`, and at most their number.
        """
        longest = _longest(gradients)
        if not np.isfinite(longest).all():
            return np.inf, np.inf
        starts = np.flatnonzero(np.diff(longest, prepend=0.0) > 0)
        if not len(starts):  # no gradient but 0
            return 0.0, 0.0
        ridge, dim = ridge_of(dtype), gradients.shape[-1]
        first = float(longest[starts[0]])
        start, steps, top = self.delta * first, 0.0, 0.0
        matrix = self.delta * first**2 * np.eye(dim)
        before = _log_det(matrix, ridge)
        for begin, end in zip(starts, [*starts[1:], len(gradients)], strict=True):
            part, size = gradients[begin:end], longest[begin]
            matrix = matrix + part.T @ part
            after, largest = _log_det(matrix, ridge), np.linalg.eigvalsh(matrix)[-1]
            grown = after - before if np.isfinite(before) else np.inf  # squares of tiny gradients are 0
            steps += float(size) * min(max(0.0, grown), len(part))
            start += float(ridge * (largest - top) / size)
            before, top = after, largest
        return start, steps

    def exact(self, domain: Domain) -> bool:
        return isinstance(domain, Free)


def _log_det(matrix: np.ndarray, ridge: float) -> float:
    """`log det` of the matrix that steps are divided by: with the ridge, below which eigenvalues are rounding."""
    eigenvalues = np.maximum(np.linalg.eigvalsh(matrix), 0.0)
    with np.errstate(divide="ignore"):
        return float(np.sum(np.log(eigenvalues + ridge * eigenvalues[-1])))


def _reach(gradients: np.ndarray, widths: np.ndarray, diameter: np.ndarray) -> np.ndarray:
    """Upper bound on `|<g, x - u>|` in each round."""
    sizes = np.abs(gradients.astype(float))
    across = np.sum(np.where(sizes > 0, sizes, 0.0) * np.where(sizes > 0, widths, 0.0), axis=-1)
    return np.fmin(np.linalg.norm(sizes, axis=-1) * diameter, across)


def _longest(gradients: np.ndarray) -> np.ndarray:
    """The largest gradient norm so far, along the first axis."""
    return np.maximum.accumulate(np.linalg.norm(gradients.astype(float), axis=-1), axis=0)


def _positive(longest: np.ndarray) -> np.ndarray:
    """A nonzero denominator, with 1 in place of 0."""
    return np.where(longest > 0, longest, 1.0)
