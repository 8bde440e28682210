"""Projections onto a ball, a simplex and a polytope in non-Euclidean norms, for `domains`.

All functions take arrays of any library with any leading axes, and can be compiled.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import array_api_compat
import numpy as np

from samuel.core.arrays import Array, is_traced, iterate, matmul, namespace

if TYPE_CHECKING:
    from samuel.online.domains import Domain

Numbers = float | tuple[float, ...]
"""One number for all coordinates, or one for each."""


def nearest_in_unit_ball(target: Array, metric: Array) -> Array:
    """The point of the unit ball nearest to a target outside it, in the norm weighted by `metric`.

    It is `x(lam)_i = h_i z_i / (h_i + lam)` where `1/|x(lam)| = 1`. The left side is concave and increasing
    in `lam` (Moré and Sorensen 1983), so a Newton step from anywhere ends left of the root, and converges
    from there quadratically. Where the metric spans many orders of magnitude, the first steps only grow `lam`
    by a factor of about 1.5 each; then the geometric mean of the two ends of the bracket is tried instead.
    """
    xp = namespace(target)
    h = metric / xp.max(metric, axis=-1, keepdims=True)
    tiny = float(xp.finfo(target.dtype).smallest_normal)
    close = 0.01 * eps_of(target) ** 0.5  # the next error is of the order of this one's square

    # Three lower bounds: no |x_i| may exceed 1, nor |x|, and Newton's step from 0 (close for near targets).
    # The first keeps |x_i| <= 1 from here on.
    length = length_of(target)
    heading = target / length
    low = xp.max(h * (abs(target) - 1.0), axis=-1, keepdims=True)
    low = xp.maximum(low, (length - 1.0) * xp.min(h, axis=-1, keepdims=True))
    low = xp.maximum(low, (length - 1.0) / (heading * heading / h).sum(-1)[..., None])
    low = xp.maximum(low, tiny)
    high = xp.maximum(length_of(h * target), low)

    def step(carry: tuple[Array, ...]) -> tuple[Array, ...]:
        low, high, leap, _ = carry
        here = xp.where(leap, xp.sqrt(low) * xp.sqrt(high), low)
        shrunk = h / (h + here) * target
        squares = shrunk * shrunk
        square = squares.sum(-1)[..., None]
        slope = (squares * (here / (h + here))).sum(-1)[..., None]
        length = xp.sqrt(square)
        newton = here + here * (square * (length - 1.0) / xp.maximum(slope, tiny))
        beyond = length <= 1.0
        high = xp.where(beyond, xp.minimum(high, here), high)
        raised = xp.minimum(xp.maximum(low, newton), high)
        settled = ~leap & ~(raised - low > close * low)
        leap = (beyond | (newton > 1.5 * here)) & (high > 4.0 * raised)
        return raised, high, leap, settled

    never = low < 0  # an array of False
    low, *_ = iterate(step, (low, high, never, never), times=60, done=lambda carry: carry[3])
    nearest = h / (h + low) * target
    return nearest / length_of(nearest)


def nearest_in_simplex(target: Array, metric: Array, total: float) -> Array:
    """The point of the simplex nearest to a target, in the norm weighted by `metric`.

    It is `x_i = max(0, y_i - theta/h_i)`. If `S` are the coordinates with `h_i y_i > theta`, the sum is right
    for `theta_S = (sum_S y_i - total) / sum_S 1/h_i`. Any other set gives a smaller value, since it leaves
    out something positive or counts something negative: `theta` is the largest over all prefixes of the
    coordinates sorted by `h_i y_i`.
    """
    xp = namespace(target)
    h = xp.broadcast_to(metric / xp.max(metric, axis=-1, keepdims=True), target.shape)
    turns = h * target  # coordinate i is positive while theta is below this
    # Relative to the largest, so that rounding of distant targets does not exceed the total.
    turning = turns - xp.max(turns, axis=-1, keepdims=True)
    order = xp.argsort(-turning, axis=-1)
    above = xp.cumulative_sum(xp.take_along_axis(turning / h, order, axis=-1), axis=-1)
    weight = xp.cumulative_sum(xp.take_along_axis(1.0 / h, order, axis=-1), axis=-1)
    theta = xp.max((above - total) / weight, axis=-1, keepdims=True)

    # Again for the positive coordinates only, relative to the one with the smallest weight: all terms are then of the
    # size of the result, however unequal the weights. Repeated until the set of positive coordinates is stable.
    def step(carry: tuple[Array, ...]) -> tuple[Array, ...]:
        positive, _, _ = carry
        pivot = xp.argmin(xp.where(positive, h, math.inf), axis=-1, keepdims=True)
        raised = (turns - xp.take_along_axis(turns, pivot, axis=-1)) / h
        above = xp.where(positive, raised, 0.0).sum(-1)[..., None]
        theta = (above - total) / xp.where(positive, 1.0 / h, 0.0).sum(-1)[..., None]
        nearest = xp.maximum(raised - theta / h, 0.0)
        return nearest > 0, nearest, xp.all((nearest > 0) == positive, axis=-1)

    never = theta[..., 0] > math.inf  # an array of False
    start = (turning > theta, h * 0.0, never)
    nearest = iterate(step, start, times=target.shape[-1], done=lambda carry: carry[2])[1]
    return nearest * (total / nearest.sum(-1)[..., None])


class Polytope:
    """The points with `low <= x <= high`, and a given sum where there is one, seen in the norm of a matrix.

    Arrays called `pair` have the lower bounds' numbers first, the upper bounds' second, on a leading axis.
    """

    def __init__(
        self,
        domain: Domain,
        target: Array,
        eigenvalues: Array,
        eigenvectors: Array,
        low: float | Array,
        high: float | Array,
        total: float | None,
    ) -> None:
        xp = namespace(target)
        self.xp: Any = xp
        self.domain: Domain = domain
        self.target: Array = target
        self.vectors: Array = eigenvectors
        self.total: float | None = total
        self.values: Array = eigenvalues
        self.matrix: Array = matmul(eigenvectors * eigenvalues[..., None, :], transposed(eigenvectors))
        self.diagonal: Array = (eigenvectors * eigenvectors * eigenvalues[..., None, :]).sum(-1)
        self.scale: Array = xp.sqrt(self.diagonal)
        # Ones on the diagonal condition it better; the ridge keeps it solvable whatever rounding did to it.
        self.unit: Array = self.matrix / (self.scale[..., :, None] * self.scale[..., None, :])
        self.identity: Array = identity_like(target)
        self.ridge: Array = target.shape[-1] * eps_of(target)

        self.ones: Array = xp.ones_like(target)
        self.pair: Array = xp.stack([low * self.ones, high * self.ones])
        self.exists: Array = xp.isfinite(self.pair)
        self.finite: Array = xp.where(self.exists, self.pair, 0.0)
        self.sign: Array = xp.stack([self.ones, -self.ones])  # which way a bound pushes

    def gradient(self, x: Array) -> Array:
        """Of half the squared distance to the target."""
        return apply(self.matrix, x - self.target)

    def slope(self, x: Array, gradient: Array) -> Array:
        """What is left of the gradient when the sum cannot change: less its mean where `x` is positive."""
        if self.total is None:
            return gradient
        weight = self.xp.where(x > 0, 1.0 / self.diagonal, 0.0)
        return gradient - ((weight * gradient).sum(-1) / weight.sum(-1))[..., None]

    def retract(self, x: Array) -> Array:
        """Bring back into the set what is already close to it."""
        x = self.xp.minimum(self.xp.maximum(x, self.pair[0]), self.pair[1])
        return x if self.total is None else x * (self.total / x.sum(-1)[..., None])

    def bound(self, x: Array, allow: float = 0.0) -> Array:
        """On the distance between `x` and the nearest point; see `distance_bound`."""
        xp, gradient, (low, high) = self.xp, self.gradient(x), (self.pair[0], self.pair[1])
        slope = self.slope(x, gradient)
        down, up = xp.maximum(slope, 0.0), xp.minimum(slope, 0.0)
        residual = xp.where(x > low, down, 0.0) + xp.where(x < high, up, 0.0)
        gap = None
        if self.total is not None:
            gap = (x * (gradient - xp.min(gradient, axis=-1, keepdims=True))).sum(-1)
        elif self.domain.bounded:
            gap = (down * (x - low) + up * (x - high)).sum(-1)
        residual = apply(transposed(self.vectors), residual)
        diameter = self.domain.diameter(x.shape[-1])
        return distance_bound(x, self.target, self.values, gap, residual, diameter, allow)

    def solve(self, system: Array, right: Array, free: Array) -> Array:
        """The step with `system @ step = right` in scaled coordinates, which leaves a given sum as it is."""
        xp, right = self.xp, right / self.scale
        if self.total is None:
            return xp.linalg.solve(system, right[..., None])[..., 0] / self.scale
        normal = xp.where(free, 1.0 / self.scale, 0.0)
        both = xp.linalg.solve(system, xp.stack([right, normal], axis=-1))
        step, shift = both[..., 0], both[..., 1]
        share = (normal * step).sum(-1) / (normal * shift).sum(-1)
        return (step - share[..., None] * shift) / self.scale

    def on_face(self, x: Array, held: Array) -> Array:
        """The nearest point with the coordinates of a pair of masks held at their bounds, brought back."""
        xp = self.xp
        free = ~(held[0] | held[1])
        if self.total is not None:
            x = xp.maximum(x, self.ridge * self.total)  # if all free coordinates are 0, they share the total
        x = self.retract(xp.where(free, x, xp.where(held[0], self.finite[0], self.finite[1])))
        system = xp.where(free[..., :, None] & free[..., None, :], self.unit, 0.0)
        system = system + self.identity * xp.where(free, self.ridge * self.ones, 1.0)[..., None]
        step = self.solve(system, xp.where(free, -self.gradient(x), 0.0), free)
        return self.retract(xp.where(free, x + step, x))

    def better(self, x: Array, best: Array, error: Array) -> tuple[Array, Array]:
        """Of two points, the one with the smaller bound."""
        new = self.bound(x)
        is_better = new < error
        return self.xp.where(is_better[..., None], x, best), self.xp.where(is_better, new, error)

    def guess(self, carry: tuple[Array, ...]) -> tuple[Array, ...]:
        """Guess the active bounds: those that a gradient step runs into."""
        x, best, error = carry
        ahead = x - self.slope(x, self.gradient(x)) / self.diagonal
        x = self.on_face(x, self.xp.stack([ahead <= self.pair[0], ahead >= self.pair[1]]))
        return x, *self.better(x, best, error)

    def interior(self, distance: Array) -> tuple[Array, Array, Array]:
        """A point away from all bounds, its slacks, and forces in balance with them."""
        xp = self.xp
        if self.total is None:
            away = xp.where(distance > 0, distance, 1.0)
            # From a single bound inwards; the middle between two; the target where there is none.
            inwards = self.finite + self.sign * xp.maximum(self.sign * (self.target - self.finite), away)
            x = xp.where(self.exists[0], inwards[0], xp.where(self.exists[1], inwards[1], self.target))
            middle = self.finite[0] / 2 + self.finite[1] / 2
            x = xp.where(self.exists[0] & self.exists[1], middle, x)
        else:
            x = self.ones * (self.total / self.target.shape[-1])
        slack = xp.where(self.exists, self.sign * (x - self.finite), 1.0)
        product = (abs(self.gradient(x)) * xp.min(slack, axis=0)).sum(-1)[..., None] / self.target.shape[-1]
        force = xp.where(self.exists, xp.where(product > 0, product, 1.0) / slack, 0.0)
        return x, slack, force

    def product(self, slack: Array, force: Array) -> Array:
        """The sum of slack times force over all bounds: 0 at the nearest point."""
        return self.xp.sum(slack * force, axis=(0, -1))[..., None]

    def advance(self, x: Array, slack: Array, force: Array, frozen: Array) -> tuple[Array, Array, Array]:
        """One step of Mehrotra's method: predict, then aim at the products that the prediction allows."""
        xp, gradient = self.xp, self.gradient(x)
        barrier = xp.sum(force / slack, axis=0) / self.diagonal + self.ridge
        system = self.unit + self.identity * barrier[..., None]

        def direction(aim: Array) -> tuple[Array, Array, Array, Array]:
            """Newton's step towards `slack * force = aim`, and how far one can go along it."""
            step = self.solve(system, xp.sum(self.sign * aim / slack, axis=0) - gradient, self.ones > 0)
            in_slack = xp.where(self.exists, self.sign * step, 0.0)
            in_force = (aim - force * in_slack) / slack - force
            length = self.ones[..., :1]
            for value, change in ((slack, in_slack), (force, in_force)):
                falling = change < 0
                steps = xp.where(falling, value / xp.where(falling, -change, 1.0), 1.0)
                length = xp.minimum(length, xp.min(steps, axis=(0, -1))[..., None])
            return length, step, in_slack, in_force

        length, _, in_slack, in_force = direction(xp.zeros_like(slack))
        now = self.product(slack, force)
        ahead = self.product(slack + length * in_slack, force + length * in_force)
        count = xp.sum(xp.where(self.exists, xp.ones_like(slack), 0.0), axis=(0, -1))[..., None]
        aim = xp.where(self.exists, now / count * (ahead / now) ** 3 - in_slack * in_force, 0.0)
        length, step, in_slack, in_force = direction(aim)
        length = xp.where(frozen[..., None], 0.0, 0.995 * length)  # short of the bounds
        return x + length * step, slack + length * in_slack, force + length * in_force


def nearest_in_polytope(
    domain: Domain,
    target: Array,
    eigenvalues: Array,
    eigenvectors: Array,
    low: float | Array,
    high: float | Array,
    total: float | None = None,
) -> tuple[Array, Array]:
    """The point with `low <= x <= high`, and sum `total` where given, nearest in the norm of a matrix.

    Given the active bounds, the nearest point of that face is computed directly, exact to rounding. A few guesses
    suffice in most cases; otherwise Mehrotra's interior-point method (SIAM J. Optim. 1992) finds the face in 10 to 30
    steps: the active set guessed from its iterates is usually right long before it has converged.

    Stops when the bound on the distance is below `eps**0.6 * sqrt(e_max) (|y - x| + |x|)`, which is relative 4e-10 in
    double and 7e-5 in single precision, or without further progress.
    """
    xp = namespace(target)
    largest = xp.max(eigenvalues, axis=-1, keepdims=True)
    shape = Polytope(domain, target, eigenvalues / largest, eigenvectors, low, high, total)
    nearest = domain.project_diagonal(target, shape.diagonal)
    distance = length_of(nearest - target)
    size = (distance + length_of(nearest))[..., 0]
    goal = eps_of(target) ** 0.6 * size

    guessed = (nearest, nearest, shape.bound(nearest))
    _, best, error = iterate(shape.guess, guessed, times=4, done=lambda carry: carry[2] <= goal)

    def step(carry: tuple[Array, ...]) -> tuple[Array, ...]:
        x, slack, force, best, error, finished = carry
        x, slack, force = shape.advance(x, slack, force, finished)
        held = shape.exists & (force > shape.diagonal * slack)
        if total is not None:
            held = held & (x < xp.max(x, axis=-1, keepdims=True))  # one coordinate must be free for the sum
        best, error = shape.better(shape.on_face(x, held), best, error)
        best, error = shape.better(shape.retract(x), best, error)
        exhausted = ~(shape.product(slack, force)[..., 0] > (eps_of(target) * size) ** 2)
        return x, slack, force, best, error, (error <= goal) | exhausted

    carry = (*shape.interior(distance), best, error, error <= goal)
    best = iterate(step, carry, times=50, done=lambda carry: carry[-1])[3]
    return best, xp.sqrt(largest[..., 0]) * shape.bound(best, allow=1.0)


def distance_bound(
    x: Array,
    target: Array,
    eigenvalues: Array,
    gap: Array | None,
    residual: Array,
    diameter: float,
    allow: float = 1.0,
) -> Array:
    """A bound on `|x - x*|_H`, where `x*` is the point of a convex set nearest to `target` in that norm.

    With `f(x) = |x - target|_H^2 / 2` and its gradient `g` at `x`, both of these hold for all `x` in the set:

        |x - x*|_H^2 <= 2 (f(x) - f(x*)) <= 2 max_u <g, x - u>      the duality gap
        |x - x*|_H   <= sqrt((g + v)' H^-1 (g + v))                 for every outward normal v at x

    The second is far smaller close to the solution, but needs `x` to lie on its face exactly.

    Args:
        x: shape `(..., d)`.
        target: shape `(..., d)`.
        eigenvalues: of `H`.
        gap: the duality gap; None where it is infinite.
        residual: `g + v`, in the coordinates of the eigenvectors.
        diameter: of the set.
        allow: 1 adds a bound on rounding errors, 0 does not.
    """
    xp = namespace(x)
    most, least = xp.max(eigenvalues, axis=-1), xp.min(eigenvalues, axis=-1)
    rounding = allow * 4.0 * x.shape[-1] ** 0.5 * eps_of(x)
    distance = length_of(x - target)[..., 0]
    noise = rounding * most * distance  # of the gradient
    bound = xp.sqrt((residual * residual / eigenvalues).sum(-1)) + noise / xp.sqrt(least)
    if gap is not None:
        bound = xp.minimum(bound, xp.sqrt(2.0 * (xp.maximum(gap, 0.0) + noise * diameter)))
    return bound + rounding * xp.sqrt(most) * (distance + length_of(x)[..., 0])


# Arrays


def length_of(vector: Array) -> Array:
    """Euclidean lengths along the last axis, which stays, with one entry."""
    if type(vector) is np.ndarray:
        try:
            with np.errstate(over="raise"):
                return np.sqrt(np.vecdot(vector, vector))[..., None]
        except FloatingPointError:
            pass  # too long to be squared
    xp = namespace(vector)
    if is_traced(vector):
        # One pass, as a matrix product. The norm is infinite if its square overflows.
        return xp.sqrt(matmul(vector * vector, xp.ones((vector.shape[-1], 1), dtype=vector.dtype)))
    largest = xp.max(abs(vector), axis=-1, keepdims=True)
    largest = xp.where(largest > 0, largest, 1.0)
    scaled = vector / largest
    return largest * xp.sqrt((scaled * scaled).sum(-1))[..., None]


def apply(matrix: Array, vector: Array) -> Array:
    """A matrix times a vector."""
    return matmul(matrix, vector[..., None])[..., 0]


def transposed(matrix: Array) -> Array:
    """A matrix, rows and columns exchanged."""
    return namespace(matrix).matrix_transpose(matrix)


def eps_of(array: Array) -> float:
    """Machine epsilon of an array's precision."""
    return float(namespace(array).finfo(array.dtype).eps)


@lru_cache(maxsize=256)
def _numpy_constant(values: Numbers, dtype: Any) -> np.ndarray:
    array = np.asarray(values, dtype=dtype)
    array.flags.writeable = False
    return array


@lru_cache(maxsize=64)
def _numpy_identity(dim: int, dtype: Any) -> np.ndarray:
    array = np.eye(dim, dtype=dtype)
    array.flags.writeable = False
    return array


def constant_like(values: Numbers, like: Array) -> Array:
    """Numbers of a domain as an array that goes with another."""
    if type(like) is np.ndarray or array_api_compat.is_jax_array(like):
        return _numpy_constant(values, like.dtype)
    return namespace(like).asarray(values, dtype=like.dtype, device=array_api_compat.device(like))


def operand_like(values: Numbers, like: Array) -> Any:
    """The same for arithmetic, where a single number can stay what it is."""
    return values if isinstance(values, float) else constant_like(values, like)


def identity_like(like: Array) -> Array:
    """The identity matrix that goes with vectors like these."""
    if type(like) is np.ndarray or array_api_compat.is_jax_array(like):
        return _numpy_identity(like.shape[-1], like.dtype)
    return namespace(like).eye(like.shape[-1], dtype=like.dtype, device=array_api_compat.device(like))
