"""Domains: where decisions may lie, and the nearest point of each in every norm that a learner needs.

A learner steps out of its domain and is brought back to the nearest point, in the norm its regret bound is
measured in: Euclidean (`project`), weighted by coordinates (`project_diagonal`, for Adagrad), or of a full
matrix (`project_matrix`, for full-matrix Adagrad). The first two are exact to rounding; the third says how far
from exact it is, so that a certificate can count it.

Domains are small frozen records of plain numbers: they can be compared, hashed, and passed to compiled code as
constants.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from numbers import Real
from typing import Any

import array_api_compat
import numpy as np

from samuel.core.arrays import Array, iterate, namespace, where_needed

Numbers = float | tuple[float, ...]
"""One number for all coordinates, or one for each."""


class Domain(ABC):
    """A closed convex set in which decisions lie. Start with `Ball` or `Box`; `Free` is no constraint at all.

    Points have their coordinates on the last axis; every method works along it and takes any leading axes.
    Arrays of NumPy, JAX (also under `jit`, `scan` and `vmap`) and torch come back as what they were, in the
    same precision.

    >>> import numpy as np
    >>> Box(0.0, 1.0).project(np.array([[2.0, 0.5], [-1.0, 0.25]]))
    array([[1.  , 0.5 ],
           [0.  , 0.25]])
    """

    @abstractmethod
    def check(self, dim: int) -> None:
        """Refuse a number of coordinates that this domain cannot have.

        Raises:
            ValueError: when points of the domain do not have `dim` coordinates.

        >>> Box((0.0, 0.0), 1.0).check(3)
        Traceback (most recent call last):
        ...
        ValueError: Box(low=(0.0, 0.0), high=1.0) has 2 coordinates, not dim = 3
        """

    @abstractmethod
    def project(self, point: Array) -> Array:
        """The point of the domain nearest to `point` in Euclidean distance; points inside stay as they are.

        >>> import numpy as np
        >>> Ball(1.0).project(np.array([3.0, 4.0]))
        array([0.6, 0.8])
        """

    @abstractmethod
    def project_diagonal(self, point: Array, metric: Array) -> Array:
        """The point `x` of the domain with the smallest `sum_i metric_i (x_i - point_i)^2`, to rounding.

        Args:
            point: shape `(..., d)`.
            metric: positive; broadcasts to the shape of `point`.

        >>> import numpy as np
        >>> Simplex().project_diagonal(np.array([1.0, 1.0]), np.array([3.0, 1.0]))
        array([0.75, 0.25])
        """

    @abstractmethod
    def project_matrix(self, point: Array, eigenvalues: Array, eigenvectors: Array) -> tuple[Array, Array]:
        """The point of the domain nearest to `point` in the norm of a matrix, and how near to nearest it is.

        The norm is `|v|_H = sqrt(v' H v)` with `H = V diag(e) V'`.

        Args:
            point: shape `(..., d)`.
            eigenvalues: `e`, positive; broadcasts to the shape of `point`.
            eigenvectors: `V`, orthonormal columns; shape `(..., d, d)`, leading axes broadcast likewise.

        Returns:
            A point `x` of the domain, and a bound on `|x - x*|_H`, where `x*` is the nearest point, of shape
            `point.shape[:-1]`. It covers rounding too, and is 0 for points inside, which stay as they are.

        >>> import numpy as np
        >>> tilt = np.array([[0.8, -0.6], [0.6, 0.8]])
        >>> x, error = Box(-1.0, 1.0).project_matrix(np.array([2.0, 0.0]), np.array([4.0, 1.0]), tilt)
        >>> x.round(6), bool(error < 1e-12)
        (array([1.      , 0.692308]), True)
        """

    @abstractmethod
    def lowest(self, gradient: Array) -> Array:
        """A point `u` of the domain at which `<gradient, u>` is smallest.

        Raises:
            ValueError: when the domain is unbounded, so that there is none.

        >>> import numpy as np
        >>> Simplex().lowest(np.array([0.3, -0.2, 0.1]))
        array([0., 1., 0.])
        """

    @property
    @abstractmethod
    def bounded(self) -> bool:
        """Whether the domain has a finite diameter.

        >>> Ball(1.0).bounded, HalfLine(0.0).bounded
        (True, False)
        """

    @abstractmethod
    def widths(self, dim: int) -> tuple[float, ...]:
        """How wide the domain is along each coordinate.

        >>> Box((0.0, 0.0), (1.0, float("inf"))).widths(2)
        (1.0, inf)
        """

    @abstractmethod
    def diameter(self, dim: int) -> float:
        """The largest Euclidean distance between two points of the domain.

        >>> Ball(3.0).diameter(2)
        6.0
        """

    @abstractmethod
    def center_point(self, dim: int) -> tuple[float, ...]:
        """A natural point of the domain to start from: its middle, or the point nearest to 0 if it has none.

        >>> Simplex().center_point(4)
        (0.25, 0.25, 0.25, 0.25)
        """

    @abstractmethod
    def contains(self, point: Array, tolerance: float = 1e-6) -> Array:
        """Which points lie in the domain: booleans of shape `point.shape[:-1]`.

        Args:
            point: shape `(..., d)`.
            tolerance: how far outside still counts as in, relative to the numbers that describe the domain.

        >>> import numpy as np
        >>> Ball(1.0).contains(np.array([[0.6, 0.8], [0.7, 0.8]]))
        array([ True, False])
        """


@dataclass(frozen=True)
class Ball(Domain):
    """All points at most `radius` away from `center`.

    Attributes:
        radius: positive.
        center: one number for all coordinates, or one for each.

    >>> import numpy as np
    >>> Ball(radius=2.0, center=(1.0, 0.0)).project(np.array([5.0, 0.0]))
    array([3., 0.])
    """

    radius: float = 1.0
    center: Numbers = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "radius", _size("radius", self.radius, "Free() is the whole space"))
        object.__setattr__(self, "center", _numbers("center", self.center))
        if not all(map(math.isfinite, _as_tuple(self.center))):
            raise ValueError(f"center is {self.center}; every coordinate must be finite")

    @cached_property
    def _centered(self) -> bool:
        return not any(_as_tuple(self.center))

    def _offset(self, point: Array) -> Array:
        """Where a point is, seen from the center and measured in radii."""
        if self._centered:
            return point if self.radius == 1.0 else point / self.radius
        return (point - _constant(self.center, point)) / self.radius

    def _place(self, offset: Array) -> Array:
        return self.radius * offset + (0.0 if self._centered else _constant(self.center, offset))

    def check(self, dim: int) -> None:
        """A center given coordinate by coordinate fixes the dimension."""
        _check_length(self, dim, self.center)

    def project(self, point: Array) -> Array:
        """Shrink towards the center."""
        xp = namespace(point)
        offset = self._offset(point)
        length = _length(offset)
        if self._centered:
            return point * (1.0 / xp.maximum(length, 1.0))  # exactly 1 inside
        return xp.where(length > 1.0, self._place(offset / xp.maximum(length, 1.0)), point)

    def project_diagonal(self, point: Array, metric: Array) -> Array:
        """`x_i = h_i z_i / (h_i + lambda)`, with the `lambda` that puts it on the sphere."""
        xp = namespace(point)
        offset = self._offset(point)
        outside = _length(offset) > 1.0

        def repair(point: Array) -> Array:
            # Points inside are only passengers here: any point outside will do in their place.
            nearest = _nearest_in_unit_ball(xp.where(outside, offset, 2.0), metric)
            return xp.where(outside, self._place(nearest), point)

        return where_needed(outside, repair, point)

    def project_matrix(self, point: Array, eigenvalues: Array, eigenvectors: Array) -> tuple[Array, Array]:
        """Turned into the eigenvectors' coordinates, the matrix is diagonal and the ball still a ball."""
        xp = namespace(point)
        offset = self._offset(point)
        outside = _length(offset) > 1.0

        def repair(point: Array, error: Array) -> tuple[Array, Array]:
            turned = _times(_transpose(eigenvectors), xp.where(outside, offset, 2.0))
            nearest = _times(eigenvectors, _nearest_in_unit_ball(turned, eigenvalues))
            nearest = self._place(nearest / xp.maximum(_length(nearest), 1.0))
            # The bound is for the point that is returned, so it is measured there, after all rounding.
            position = _times(_transpose(eigenvectors), self._offset(nearest))
            bound = self._bound(turned, position, eigenvalues)
            return xp.where(outside, nearest, point), xp.where(outside[..., 0], bound, error)

        return where_needed(outside, repair, point, xp.zeros_like(outside[..., 0], dtype=point.dtype))

    def _bound(self, target: Array, position: Array, eigenvalues: Array) -> Array:
        """How far `position` is from the point of the unit ball nearest to `target`, in this ball's units."""
        xp = namespace(target)
        gradient = eigenvalues * (position - target)
        length = _length(position)
        slope = (gradient * position).sum(-1)[..., None]
        gap = (_length(gradient) + slope)[..., 0]
        # The outward normals at a point of the sphere are its positive multiples. That rounding leaves it a
        # little off the sphere is what `distance_bound` allows for.
        residual = gradient + xp.maximum(-slope, 0.0) / length**2 * position
        return self.radius * _distance_bound(position, target, eigenvalues, gap, residual, diameter=2.0)

    def lowest(self, gradient: Array) -> Array:
        """The center, less a radius along the gradient."""
        xp = namespace(gradient)
        length = _length(gradient)
        return self._place(-gradient / xp.where(length > 0, length, 1.0))

    @property
    def bounded(self) -> bool:
        """Always."""
        return True

    def widths(self, dim: int) -> tuple[float, ...]:
        """Twice the radius."""
        self.check(dim)
        return (2 * self.radius,) * dim

    def diameter(self, dim: int) -> float:
        """Twice the radius."""
        self.check(dim)
        return 2 * self.radius

    def center_point(self, dim: int) -> tuple[float, ...]:
        """The center."""
        self.check(dim)
        return _spread(self.center, dim)

    def contains(self, point: Array, tolerance: float = 1e-6) -> Array:
        """Within the radius."""
        slack = tolerance * (self.radius + max(map(abs, _as_tuple(self.center))))
        return _length(self._offset(point))[..., 0] <= 1.0 + slack / self.radius


@dataclass(frozen=True)
class Box(Domain):
    """All points between two bounds in every coordinate; a bound may be infinite.

    Attributes:
        low: one number for all coordinates, or one for each; `-inf` for none.
        high: the same, above `low` everywhere; `inf` for none.

    >>> import numpy as np
    >>> Box(low=(0.0, -1.0), high=1.0).project(np.array([-3.0, -3.0]))
    array([ 0., -1.])
    """

    low: Numbers = -1.0
    high: Numbers = 1.0

    def __post_init__(self) -> None:
        low, high = _numbers("low", self.low), _numbers("high", self.high)
        if isinstance(low, tuple) and isinstance(high, tuple) and len(low) != len(high):
            raise ValueError(f"low has {len(low)} coordinates and high has {len(high)}; they must agree")
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)
        coordinates = max(len(_as_tuple(low)), len(_as_tuple(high)))
        for bottom, top in zip(_spread(low, coordinates), _spread(high, coordinates), strict=True):
            if not (bottom < top and bottom < math.inf and top > -math.inf):
                raise ValueError(f"low is {bottom} and high is {top}; low must be below high")

    def check(self, dim: int) -> None:
        """Bounds given coordinate by coordinate fix the dimension."""
        _check_length(self, dim, self.low)
        _check_length(self, dim, self.high)

    def project(self, point: Array) -> Array:
        """Clip."""
        xp = namespace(point)
        if self.low != -math.inf:
            point = xp.maximum(point, _operand(self.low, point))
        if self.high != math.inf:
            point = xp.minimum(point, _operand(self.high, point))
        return point

    def project_diagonal(self, point: Array, metric: Array) -> Array:
        """Clip: the coordinates do not meet, so their weights do not matter."""
        return self.project(point)

    def project_matrix(self, point: Array, eigenvalues: Array, eigenvectors: Array) -> tuple[Array, Array]:
        """By an interior-point method; see `_nearest_in_polytope`."""
        xp = namespace(point)
        clipped = self.project(point)
        outside = xp.any(clipped != point, axis=-1)
        none = xp.zeros_like(outside, dtype=point.dtype)
        if point.shape[-1] == 1:
            return clipped, none

        def repair(point: Array, error: Array) -> tuple[Array, Array]:
            low, high = _constant(self.low, point), _constant(self.high, point)
            nearest, bound = _nearest_in_polytope(self, point, eigenvalues, eigenvectors, low, high, None)
            return xp.where(outside[..., None], nearest, point), xp.where(outside, bound, error)

        return where_needed(outside, repair, point, none)

    def lowest(self, gradient: Array) -> Array:
        """The lower bound where the gradient is positive, the upper one elsewhere."""
        if not self.bounded:
            raise ValueError(_no_lowest(self))
        low, high = _constant(self.low, gradient), _constant(self.high, gradient)
        xp = namespace(gradient)
        return xp.where(gradient > 0, low, high)

    @property
    def bounded(self) -> bool:
        """Whether all bounds are finite."""
        return all(map(math.isfinite, (*_as_tuple(self.low), *_as_tuple(self.high))))

    def widths(self, dim: int) -> tuple[float, ...]:
        """From the lower bounds to the upper ones."""
        self.check(dim)
        return tuple(top - bottom for bottom, top in self.bounds(dim))

    def diameter(self, dim: int) -> float:
        """From corner to corner."""
        return math.hypot(*self.widths(dim))

    def center_point(self, dim: int) -> tuple[float, ...]:
        """The middle; where a bound is infinite, the number nearest to 0."""
        self.check(dim)
        return tuple(
            bottom / 2 + top / 2 if math.isfinite(top - bottom) else min(max(bottom, 0.0), top)
            for bottom, top in self.bounds(dim)
        )

    def bounds(self, dim: int) -> list[tuple[float, float]]:
        return list(zip(_spread(self.low, dim), _spread(self.high, dim), strict=True))

    def contains(self, point: Array, tolerance: float = 1e-6) -> Array:
        """Between the bounds."""
        xp = namespace(point)
        low, high = _constant(self.low, point), _constant(self.high, point)
        inside = (point >= low - tolerance * abs(low)) & (point <= high + tolerance * abs(high))
        return xp.all(inside, axis=-1)


@dataclass(frozen=True)
class Interval(Box):
    """The numbers from `low` to `high`, for decisions with one coordinate.

    >>> import numpy as np
    >>> Interval(0.0, 1.0).project(np.array([1.5]))
    array([1.])
    """

    low: float = field()  # no default, unlike the Box
    high: float = field()

    def __post_init__(self) -> None:
        _number("low", self.low)
        _number("high", self.high)
        super().__post_init__()

    def check(self, dim: int) -> None:
        """One coordinate."""
        if _dimension(dim) != 1:
            raise ValueError(f"{self} has 1 coordinate, not dim = {dim}; Box has any number of them")


@dataclass(frozen=True)
class HalfLine(Interval):
    """The numbers from `low` upwards, for decisions with one coordinate.

    >>> import numpy as np
    >>> HalfLine().project(np.array([[-2.0], [7.0]]))
    array([[0.],
           [7.]])
    """

    low: float = 0.0
    high: float = field(default=math.inf, init=False, repr=False)


@dataclass(frozen=True)
class Simplex(Domain):
    """All points with no negative coordinate and a given sum: portfolios, mixtures, probabilities.

    Attributes:
        total: the sum, positive.

    >>> import numpy as np
    >>> Simplex().project(np.array([1.0, 0.5, -2.0]))
    array([0.75, 0.25, 0.  ])
    """

    total: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "total", _size("total", self.total, "it is the sum of the coordinates"))

    def check(self, dim: int) -> None:
        """At least two coordinates: with one, there is nothing to decide."""
        if _dimension(dim) < 2:
            raise ValueError(f"{self} needs dim >= 2, got dim = {dim}")

    def _inside(self, point: Array) -> Array:
        # A sum can be right to rounding only.
        xp = namespace(point)
        rounding = point.shape[-1] * _eps(point) * self.total
        return xp.all(point >= 0, axis=-1) & (abs(point.sum(-1) - self.total) <= rounding)

    def project(self, point: Array) -> Array:
        """`max(0, point_i - theta)`, with the `theta` that makes the sum right."""
        return self.project_diagonal(point, namespace(point).ones_like(point))

    def project_diagonal(self, point: Array, metric: Array) -> Array:
        """`max(0, point_i - theta / metric_i)`, with the `theta` that makes the sum right."""
        xp = namespace(point)
        inside = self._inside(point)[..., None]

        def repair(point: Array) -> Array:
            return xp.where(inside, point, _nearest_in_simplex(point, metric, self.total))

        return where_needed(~inside, repair, point)

    def project_matrix(self, point: Array, eigenvalues: Array, eigenvectors: Array) -> tuple[Array, Array]:
        """By an interior-point method; see `_nearest_in_polytope`."""
        xp = namespace(point)
        inside = self._inside(point)

        def repair(point: Array, error: Array) -> tuple[Array, Array]:
            low, high = _constant(0.0, point), _constant(math.inf, point)
            nearest, bound = _nearest_in_polytope(
                self, point, eigenvalues, eigenvectors, low, high, self.total
            )
            return xp.where(inside[..., None], point, nearest), xp.where(inside, error, bound)

        return where_needed(~inside, repair, point, xp.zeros_like(inside, dtype=point.dtype))

    def lowest(self, gradient: Array) -> Array:
        """Everything on the coordinate with the smallest gradient."""
        xp = namespace(gradient)
        least = xp.argmin(gradient, axis=-1, keepdims=True)
        # Numbers the coordinates without making an array that might land on another device.
        places = xp.cumulative_sum(xp.ones_like(gradient, dtype=least.dtype), axis=-1) - 1
        return xp.where(places == least, _constant(self.total, gradient), _constant(0.0, gradient))

    @property
    def bounded(self) -> bool:
        """Always."""
        return True

    def widths(self, dim: int) -> tuple[float, ...]:
        """From 0 to the total."""
        self.check(dim)
        return (self.total,) * dim

    def diameter(self, dim: int) -> float:
        """From one corner to another."""
        self.check(dim)
        return self.total * math.sqrt(2.0)

    def center_point(self, dim: int) -> tuple[float, ...]:
        """All coordinates equal."""
        self.check(dim)
        return (self.total / dim,) * dim

    def contains(self, point: Array, tolerance: float = 1e-6) -> Array:
        """Nothing negative, and the sum right."""
        xp = namespace(point)
        slack = tolerance * self.total
        return xp.all(point >= -slack, axis=-1) & (abs(point.sum(-1) - self.total) <= slack)


@dataclass(frozen=True)
class Free(Domain):
    """The whole space: no constraint.

    >>> import numpy as np
    >>> Free().project(np.array([1e9, -1e9]))
    array([ 1.e+09, -1.e+09])
    """

    def check(self, dim: int) -> None:
        """Any dimension."""
        _dimension(dim)

    def project(self, point: Array) -> Array:
        """Nothing to do."""
        return point

    def project_diagonal(self, point: Array, metric: Array) -> Array:
        """Nothing to do."""
        return point

    def project_matrix(self, point: Array, eigenvalues: Array, eigenvectors: Array) -> tuple[Array, Array]:
        """Nothing to do."""
        return point, namespace(point).zeros_like(point[..., 0])

    def lowest(self, gradient: Array) -> Array:
        """There is none."""
        raise ValueError(_no_lowest(self))

    @property
    def bounded(self) -> bool:
        """Never."""
        return False

    def widths(self, dim: int) -> tuple[float, ...]:
        """Infinite."""
        self.check(dim)
        return (math.inf,) * dim

    def diameter(self, dim: int) -> float:
        """Infinite."""
        self.check(dim)
        return math.inf

    def center_point(self, dim: int) -> tuple[float, ...]:
        """The origin."""
        self.check(dim)
        return (0.0,) * dim

    def contains(self, point: Array, tolerance: float = 1e-6) -> Array:
        """Every point whose coordinates are numbers."""
        xp = namespace(point)
        return xp.all(xp.isfinite(point), axis=-1)


# --- The three projections that take more than a line --------------------------------------------------------


def _nearest_in_unit_ball(target: Array, metric: Array) -> Array:
    """The point of the unit ball nearest to a target outside it, in the norm weighted by `metric`.

    It is `x(lam)_i = h_i z_i / (h_i + lam)` where `1/|x(lam)| = 1`. The left side is concave and increasing in
    `lam` (Moré and Sorensen 1983), so a Newton step from anywhere ends left of the root, and converges from
    there quadratically. Where the metric spans many orders of magnitude, the first steps only grow `lam` by a
    factor of about 1.5 each; then the geometric mean of the two ends of the bracket is tried instead.
    """
    xp = namespace(target)
    h = metric / xp.max(metric, axis=-1, keepdims=True)
    tiny = float(xp.finfo(target.dtype).smallest_normal)
    close = 0.01 * _eps(target) ** 0.5  # the next error is of the order of this one's square

    # No coordinate and no sum of squares may exceed 1: two lower bounds on lam. After them |x_i| <= 1.
    each = xp.max(h * (abs(target) - 1.0), axis=-1, keepdims=True)
    low = xp.maximum(each, xp.min(h, axis=-1, keepdims=True) * (_length(target) - 1.0))
    low = xp.maximum(low, tiny)
    high = xp.maximum(_length(h * target), low)

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
    return nearest / _length(nearest)


def _nearest_in_simplex(target: Array, metric: Array, total: float) -> Array:
    """The point of the simplex nearest to a target, in the norm weighted by `metric`.

    It is `x_i = max(0, y_i - theta/h_i)`. If `S` are the coordinates with `h_i y_i > theta`, the sum is right
    for `theta_S = (sum_S y_i - total) / sum_S 1/h_i`. Any other set gives a smaller value, since it leaves out
    something positive or counts something negative: `theta` is the largest over all prefixes of the
    coordinates sorted by `h_i y_i`.
    """
    xp = namespace(target)
    h = xp.broadcast_to(metric / xp.max(metric, axis=-1, keepdims=True), target.shape)
    turning = h * target  # coordinate i is positive while theta is below this
    # Counted from the largest, so that targets far away do not drown the total in rounding.
    turning = turning - xp.max(turning, axis=-1, keepdims=True)
    order = xp.argsort(turning, axis=-1, descending=True)
    above = xp.cumulative_sum(xp.take_along_axis(turning / h, order, axis=-1), axis=-1)
    weight = xp.cumulative_sum(xp.take_along_axis(1.0 / h, order, axis=-1), axis=-1)
    theta = xp.max((above - total) / weight, axis=-1, keepdims=True)
    positive = turning > theta

    # Counted once more, from the positive coordinate with the smallest weight: all numbers that enter below
    # are then of the size of the result, however unequal the weights. Repeated because rounding may have
    # put a coordinate on the wrong side.
    pivot = xp.argmin(xp.where(positive, h, math.inf), axis=-1, keepdims=True)
    raised = (turning - xp.take_along_axis(turning, pivot, axis=-1)) / h
    nearest = raised
    for _ in range(3):
        above = xp.where(positive, raised, 0.0).sum(-1)[..., None]
        theta = (above - total) / xp.where(positive, 1.0 / h, 0.0).sum(-1)[..., None]
        nearest = xp.maximum(raised - theta / h, 0.0)
        positive = nearest > 0
    return nearest * (total / nearest.sum(-1)[..., None])


def _nearest_in_polytope(
    domain: Domain,
    target: Array,
    eigenvalues: Array,
    eigenvectors: Array,
    low: Array,
    high: Array,
    total: float | None,
) -> tuple[Array, Array]:
    """The point with `low <= x <= high`, and sum `total` where given, nearest in the norm of a matrix.

    Mehrotra's interior-point method (1992) finds out which bounds hold with equality. At each of its points
    they are guessed, and the nearest point of that face is computed directly, so that the result is exact to
    rounding once the guess is right; usually that is long before the method itself has converged. Stops when
    the bound on the distance is below `eps**0.6 * sqrt(e_max) (|y - x| + |x|)` (relative 4e-10 in double and
    7e-5 in single precision), or when there is nothing left to gain.

    Args:
        domain: the set described by the other arguments.
        target: shape `(..., d)`.
        eigenvalues: shape `(..., d)`.
        eigenvectors: shape `(..., d, d)`.
        low: lower bounds, `-inf` for none.
        high: upper bounds, `inf` for none.
        total: the sum of the coordinates, None where it is free.

    Returns:
        The point, and a bound on its distance from the nearest one.
    """
    xp = namespace(target)
    dim = target.shape[-1]
    eps = _eps(target)
    diameter = domain.diameter(dim)
    largest = xp.max(eigenvalues, axis=-1, keepdims=True)
    relative = eigenvalues / largest
    matrix = _product(eigenvectors * relative[..., None, :], _transpose(eigenvectors))
    diagonal = (eigenvectors * eigenvectors * relative[..., None, :]).sum(-1)
    scale = xp.sqrt(diagonal)
    unit = matrix / (scale[..., :, None] * scale[..., None, :])  # ones on the diagonal: better conditioned
    identity = _identity(unit)
    ridge = dim * eps  # keeps what rounding makes singular solvable

    has_low, has_high = xp.isfinite(low), xp.isfinite(high)
    floor, ceiling = xp.where(has_low, low, 0.0), xp.where(has_high, high, 0.0)

    def retract(x: Array) -> Array:
        x = xp.minimum(xp.maximum(x, low), high)
        if total is None:
            return x
        return x * (total / x.sum(-1)[..., None])

    def residual_and_gap(x: Array, gradient: Array) -> tuple[Array, Array | None]:
        """What is left of the gradient after an outward normal at `x`; and `max_u <gradient, x - u>`."""
        if total is None:
            down, up = xp.maximum(gradient, 0.0), xp.minimum(gradient, 0.0)
            residual = xp.where(x > low, down, 0.0) + xp.where(x < high, up, 0.0)
            if not domain.bounded:
                return residual, None
            return residual, (down * (x - low) + up * (x - high)).sum(-1)
        support = x > 0
        count = xp.where(support, xp.ones_like(x), 0.0).sum(-1)[..., None]
        price = xp.where(support, gradient, 0.0).sum(-1)[..., None] / count
        over = gradient - xp.min(gradient, axis=-1, keepdims=True)
        residual = gradient - price
        return xp.where(support, residual, xp.minimum(residual, 0.0)), (x * over).sum(-1)

    def bound(x: Array, allow: float) -> Array:
        residual, gap = residual_and_gap(x, _times(matrix, x - target))
        turned = _times(_transpose(eigenvectors), residual)
        return _distance_bound(x, target, relative, gap, turned, diameter, allow)

    def solve(matrix: Array, right: Array, free: Array) -> Array:
        """The step with `matrix @ step = right`; the sum of `x` stays as it is where it is fixed."""
        if total is None:
            return xp.linalg.solve(matrix, (right / scale)[..., None])[..., 0] / scale
        normal = xp.where(free, 1.0 / scale, 0.0)
        both = xp.linalg.solve(matrix, xp.stack([right / scale, normal], axis=-1))
        step, shift = both[..., 0], both[..., 1]
        share = (normal * step).sum(-1)[..., None] / (normal * shift).sum(-1)[..., None]
        return (step - share * shift) / scale

    def on_face(x: Array, at_low: Array, at_high: Array) -> Array:
        """The nearest point with these coordinates held at their bounds, brought back into the domain."""
        free = ~(at_low | at_high)
        if total is not None:
            x = xp.maximum(x, eps * total)  # should all that is free be 0, it shares the total
        x = retract(xp.where(at_low, floor, xp.where(at_high, ceiling, x)))
        both = free[..., :, None] & free[..., None, :]
        held = xp.where(both, unit, 0.0) + identity * xp.where(free, ridge, 1.0)[..., None]
        gradient = _times(matrix, x - target)
        move = solve(held, xp.where(free, -gradient, 0.0), free)
        return retract(xp.where(free, x + move, x))

    def better(found: Array, best: Array, error: Array) -> tuple[Array, Array]:
        new = bound(found, allow=0.0)
        return xp.where((new < error)[..., None], found, best), xp.where(new < error, new, error)

    nearest = domain.project_diagonal(target, diagonal)
    distance = _length(nearest - target)
    goal = eps**0.6 * (distance + _length(nearest))[..., 0]

    def try_face(carry: tuple[Array, ...]) -> tuple[Array, ...]:
        x, best, error = carry
        ahead = x - _times(matrix, x - target) / diagonal
        ahead = domain.project_diagonal(ahead, diagonal)
        x = on_face(x, ahead <= low, ahead >= high)
        return x, *better(x, best, error)

    # Most problems are easy: a few guesses along the gradient find the face.
    _, best, error = iterate(
        try_face, (nearest, nearest, bound(nearest, 0.0)), times=_GUESSES, done=lambda carry: carry[2] <= goal
    )

    # An interior point to start from, at some distance from every bound.
    ones = xp.ones_like(target)
    if total is None:
        away = xp.where(distance > 0, distance, 1.0)
        upwards = floor + xp.maximum(target - floor, away)
        downwards = ceiling - xp.maximum(ceiling - target, away)
        one_sided = xp.where(has_low, upwards, xp.where(has_high, downwards, target))
        x = xp.where(has_low & has_high, floor / 2 + ceiling / 2, one_sided)
    else:
        x = ones * (total / dim)
    below, above = xp.where(has_low, x - floor, ones), xp.where(has_high, ceiling - x, ones)
    bounds = (xp.where(has_low, ones, 0.0) + xp.where(has_high, ones, 0.0)).sum(-1)[..., None]

    def complementarity(below: Array, above: Array, lift: Array, press: Array) -> Array:
        return (below * lift + above * press).sum(-1)[..., None] / bounds

    def reach(value: Array, change: Array) -> Array:
        """How far one can go along `change` before something positive is used up."""
        falling = change < 0
        steps = xp.where(falling, value / -xp.where(falling, change, -1.0), math.inf)
        return xp.min(steps, axis=-1, keepdims=True)

    everywhere = ones > 0

    def step(carry: tuple[Array, ...]) -> tuple[Array, ...]:
        x, below, above, lift, press, best, error, finished = carry
        gradient = _times(matrix, x - target)
        system = unit + identity * ((lift / below + press / above) / diagonal + ridge)[..., None]

        def direction(aim_low: Array, aim_high: Array) -> tuple[Array, ...]:
            """Newton's step towards `below * lift = aim_low`, `above * press = aim_high`."""
            move = solve(system, aim_low / below - aim_high / above - gradient, everywhere)
            more = (
                xp.where(has_low, move, 0.0),
                xp.where(has_high, -move, 0.0),
                (aim_low - lift * move) / below - lift,
                (aim_high + press * move) / above - press,
            )
            length = ones[..., :1]
            for value, change in zip((below, above, lift, press), more, strict=True):
                length = xp.minimum(length, reach(value, change))
            return move, length, *more

        _, length, *more = direction(0.0 * ones, 0.0 * ones)
        ahead = [v + length * m for v, m in zip((below, above, lift, press), more, strict=True)]
        now = complementarity(below, above, lift, press)
        aim = now * (complementarity(*ahead) / now) ** 3
        aim_low = xp.where(has_low, aim - more[0] * more[2], 0.0)
        aim_high = xp.where(has_high, aim - more[1] * more[3], 0.0)
        move, length, *more = direction(aim_low, aim_high)
        length = xp.where(finished[..., None], 0.0, 0.995 * length)
        x = x + length * move
        below, above, lift, press = (
            v + length * m for v, m in zip((below, above, lift, press), more, strict=True)
        )

        at_low, at_high = has_low & (lift > diagonal * below), has_high & (press > diagonal * above)
        if total is not None:
            at_low = at_low & (x < xp.max(x, axis=-1, keepdims=True))  # something must carry the total
        best, error = better(on_face(x, at_low, at_high), best, error)
        best, error = better(retract(x), best, error)
        left = (bounds * complementarity(below, above, lift, press))[..., 0]
        finished = (error <= goal) | ~(left > (goal * eps**0.4) ** 2)
        return x, below, above, lift, press, best, error, finished

    mean = (abs(_times(matrix, x - target)) * xp.minimum(below, above)).sum(-1)[..., None] / dim
    start = xp.where(mean > 0, mean, 1.0)
    lift = xp.where(has_low, start / below, 0.0)
    press = xp.where(has_high, start / above, 0.0)
    carry = (x, below, above, lift, press, best, error, error <= goal)
    best = iterate(step, carry, times=50, done=lambda carry: carry[-1])[5]
    return best, xp.sqrt(largest[..., 0]) * bound(best, allow=1.0)


_GUESSES = 3


def _distance_bound(
    x: Array,
    target: Array,
    eigenvalues: Array,
    gap: Array | None,
    residual: Array,
    diameter: float,
    allow: float = 1.0,
) -> Array:
    """A bound on `|x - x*|_H`, where `x*` is the point of a convex set nearest to `target` in that norm.

    With `f(x) = |x - target|_H^2 / 2` and its gradient `g` at `x`, both of these hold for every `x` in the set:

        |x - x*|_H^2 <= 2 (f(x) - f(x*)) <= 2 max_u <g, x - u>                the duality gap
        |x - x*|_H   <= sqrt((g + v)' H^-1 (g + v))                           for every outward normal v at x

    The second is far smaller close to the solution, but needs `x` to lie on its face exactly.

    Args:
        x: shape `(..., d)`.
        target: shape `(..., d)`.
        eigenvalues: of `H`.
        gap: the duality gap; None where it is infinite.
        residual: `g + v`, in the coordinates of the eigenvectors.
        diameter: of the set.
        allow: 1 adds what rounding may have hidden, 0 does not.
    """
    xp = namespace(x)
    most, least = xp.max(eigenvalues, axis=-1), xp.min(eigenvalues, axis=-1)
    rounding = allow * 4.0 * x.shape[-1] ** 0.5 * _eps(x)
    distance = _length(x - target)[..., 0]
    noise = rounding * most * distance  # of the gradient
    bound = xp.sqrt((residual * residual / eigenvalues).sum(-1)) + noise / xp.sqrt(least)
    if gap is not None:
        bound = xp.minimum(bound, xp.sqrt(2.0 * (xp.maximum(gap, 0.0) + noise * diameter)))
    return bound + rounding * xp.sqrt(most) * (distance + _length(x)[..., 0])


# --- Arrays ----------------------------------------------------------------------------------------------------


def _length(vector: Array) -> Array:
    """Euclidean lengths along the last axis, which stays, with one entry."""
    if type(vector) is np.ndarray:
        try:
            with np.errstate(over="raise"):
                return np.sqrt((vector * vector).sum(-1))[..., None]
        except FloatingPointError:
            pass  # too long to be squared
    xp = namespace(vector)
    largest = xp.max(abs(vector), axis=-1, keepdims=True)
    largest = xp.where(largest > 0, largest, 1.0)
    scaled = vector / largest
    return largest * xp.sqrt((scaled * scaled).sum(-1))[..., None]


def _product(a: Array, b: Array) -> Array:
    """`a @ b` in the precision of its arguments: JAX takes less on accelerators unless told."""
    xp = namespace(a)
    return xp.matmul(a, b, precision="highest") if array_api_compat.is_jax_namespace(xp) else xp.matmul(a, b)


def _times(matrix: Array, vector: Array) -> Array:
    return _product(matrix, vector[..., None])[..., 0]


def _transpose(matrix: Array) -> Array:
    return namespace(matrix).matrix_transpose(matrix)


def _eps(array: Array) -> float:
    return float(namespace(array).finfo(array.dtype).eps)


@lru_cache(maxsize=256)
def _numpy_constant(values: Numbers, dtype: Any) -> np.ndarray:
    array = np.asarray(values, dtype=dtype)
    array.flags.writeable = False
    return array


def _constant(values: Numbers, like: Array) -> Array:
    """Numbers of a domain as an array that goes with another."""
    if type(like) is np.ndarray or array_api_compat.is_jax_array(like):
        return _numpy_constant(values, like.dtype)
    return namespace(like).asarray(values, dtype=like.dtype, device=array_api_compat.device(like))


def _operand(values: Numbers, like: Array) -> Any:
    """The same for arithmetic, where a single number can stay what it is."""
    return values if isinstance(values, float) else _constant(values, like)


def _identity(like: Array) -> Array:
    rows = tuple(tuple(float(i == j) for j in range(like.shape[-1])) for i in range(like.shape[-1]))
    return _constant(rows, like)  # type: ignore[arg-type]


# --- Arguments -------------------------------------------------------------------------------------------------


def _number(name: str, value: Any) -> float:
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        value = value.item()
    if not isinstance(value, Real) or isinstance(value, bool) or math.isnan(value):
        raise ValueError(f"{name} is {value!r}; it must be a number")
    return float(value)


def _numbers(name: str, value: Any) -> Numbers:
    if (
        isinstance(value, str | bytes | dict)
        or not hasattr(value, "__iter__")
        or getattr(value, "shape", None) == ()
    ):
        return _number(name, value)
    numbers = tuple(_number(f"{name}[{i}]", entry) for i, entry in enumerate(value))
    if not numbers:
        raise ValueError(f"{name} is empty; it must be a number, or one number for each coordinate")
    return numbers


def _size(name: str, value: Any, hint: str) -> float:
    number = _number(name, value)
    if not 0 < number < math.inf:
        raise ValueError(f"{name} is {number}; it must be positive and finite ({hint})")
    return number


def _as_tuple(values: Numbers) -> tuple[float, ...]:
    return values if isinstance(values, tuple) else (values,)


def _spread(values: Numbers, dim: int) -> tuple[float, ...]:
    return values if isinstance(values, tuple) else (values,) * dim


def _dimension(dim: Any) -> int:
    if not isinstance(dim, int | np.integer) or isinstance(dim, bool) or dim < 1:
        raise ValueError(f"dim is {dim!r}; it must be a positive whole number")
    return int(dim)


def _check_length(domain: Domain, dim: int, values: Numbers) -> None:
    if len(_spread(values, _dimension(dim))) != dim:
        raise ValueError(f"{domain} has {len(_as_tuple(values))} coordinates, not dim = {dim}")


def _no_lowest(domain: Domain) -> str:
    return (
        f"{domain} is unbounded, so a linear loss has no lowest point in it; "
        "use a bounded domain such as Ball(radius), or name a comparator"
    )
