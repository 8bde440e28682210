"""Domains: where decisions may lie, and the nearest point of each in every norm that a learner needs.

A learner steps out of its domain and is brought back to the nearest point, in the norm its regret bound is
measured in: Euclidean (`project`), weighted by coordinates (`project_diagonal`, for Adagrad), or of a full
matrix (`project_matrix`, for full-matrix Adagrad). The first two are exact to rounding; the third says how
far from exact it is, so that a certificate can count it.

Domains are small frozen records of plain numbers: they can be compared, hashed, and passed to compiled code
as constants.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from numbers import Real
from typing import Any

import array_api_compat
import numpy as np

from samuel.core.arrays import Array, is_traced, iterate, matmul, namespace, where_needed

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

    def tidy(self, point: Array) -> Array:
        """Undo what rounding did to a point that is in the domain but for rounding, where that is cheap."""
        return point

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

    def _outside(self, offset: Array) -> Array:
        # A point on the sphere can be there to rounding only, of its own coordinates and of the center's.
        largest = max(map(abs, _as_tuple(self.center)))
        return _length(offset) > 1.0 + 4.0 * _eps(offset) * (1.0 + largest / self.radius)

    def _place(self, offset: Array) -> Array:
        return self.radius * offset + (0.0 if self._centered else _constant(self.center, offset))

    def check(self, dim: int) -> None:
        _check_length(self, dim, self.center)

    def project(self, point: Array) -> Array:
        xp = namespace(point)
        offset = self._offset(point)
        length = _length(offset)
        if self._centered:
            return point * (1.0 / xp.maximum(length, 1.0))  # exactly 1 inside
        return xp.where(length > 1.0, self._place(offset / xp.maximum(length, 1.0)), point)

    def project_diagonal(self, point: Array, metric: Array) -> Array:
        xp = namespace(point)
        offset = self._offset(point)
        outside = self._outside(offset)

        def repair(point: Array) -> Array:
            # Points inside are only passengers here: any point outside will do in their place.
            nearest = _nearest_in_unit_ball(xp.where(outside, offset, 2.0), metric)
            return xp.where(outside, self._place(nearest), point)

        return where_needed(outside, repair, point)

    def project_matrix(self, point: Array, eigenvalues: Array, eigenvectors: Array) -> tuple[Array, Array]:
        xp = namespace(point)
        offset = self._offset(point)
        outside = self._outside(offset)

        def repair(point: Array, error: Array) -> tuple[Array, Array]:
            # In the coordinates of the eigenvectors the matrix is diagonal, and the ball is still a ball.
            turned = _times(_transpose(eigenvectors), xp.where(outside, offset, 2.0))
            nearest = _times(eigenvectors, _nearest_in_unit_ball(turned, eigenvalues))
            nearest = self._place(nearest / xp.maximum(_length(nearest), 1.0))
            # The bound is for the point that is returned, so it is measured there, after all rounding.
            position = _times(_transpose(eigenvectors), self._offset(nearest))
            bound = self._bound(turned, position, eigenvalues)
            return xp.where(outside, nearest, point), xp.where(outside[..., 0], bound, error)

        return where_needed(outside, repair, point, xp.zeros_like(outside[..., 0], dtype=point.dtype))

    def _bound(self, target: Array, position: Array, eigenvalues: Array) -> Array:
        """How far a position may be from the nearest one to a target; both in radii, from the center."""
        xp = namespace(target)
        gradient = eigenvalues * (position - target)
        length = _length(position)
        slope = (gradient * position).sum(-1)[..., None]
        gap = (_length(gradient) + slope)[..., 0]
        # The outward normals at a point of the sphere are its positive multiples. Rounding leaves the point a
        # little off the sphere: that distance is added.
        residual = gradient + xp.maximum(-slope, 0.0) / length**2 * position
        bound = _distance_bound(position, target, eigenvalues, gap, residual, diameter=2.0)
        off = xp.sqrt(xp.max(eigenvalues, axis=-1)) * abs(length[..., 0] - 1.0)
        return self.radius * (bound + off)

    def lowest(self, gradient: Array) -> Array:
        xp = namespace(gradient)
        length = _length(gradient)
        return self._place(-gradient / xp.where(length > 0, length, 1.0))

    @property
    def bounded(self) -> bool:
        return True

    def widths(self, dim: int) -> tuple[float, ...]:
        self.check(dim)
        return (2 * self.radius,) * dim

    def diameter(self, dim: int) -> float:
        self.check(dim)
        return 2 * self.radius

    def center_point(self, dim: int) -> tuple[float, ...]:
        self.check(dim)
        return _spread(self.center, dim)

    def contains(self, point: Array, tolerance: float = 1e-6) -> Array:
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
        _check_length(self, dim, self.low)
        _check_length(self, dim, self.high)

    def project(self, point: Array) -> Array:
        xp = namespace(point)
        if self.low != -math.inf:
            point = xp.maximum(point, _operand(self.low, point))
        if self.high != math.inf:
            point = xp.minimum(point, _operand(self.high, point))
        return point

    def tidy(self, point: Array) -> Array:
        return self.project(point)

    def project_diagonal(self, point: Array, metric: Array) -> Array:
        return self.project(point)

    def project_matrix(self, point: Array, eigenvalues: Array, eigenvectors: Array) -> tuple[Array, Array]:
        xp = namespace(point)
        clipped = self.project(point)
        outside = xp.any(clipped != point, axis=-1)
        none = xp.zeros_like(outside, dtype=point.dtype)
        if point.shape[-1] == 1:
            return clipped, none

        def repair(point: Array, error: Array) -> tuple[Array, Array]:
            low, high = _operand(self.low, point), _operand(self.high, point)
            nearest, bound = _nearest_in_polytope(self, point, eigenvalues, eigenvectors, low, high)
            return xp.where(outside[..., None], nearest, point), xp.where(outside, bound, error)

        return where_needed(outside, repair, point, none)

    def lowest(self, gradient: Array) -> Array:
        if not self.bounded:
            raise ValueError(_no_lowest(self))
        low, high = _constant(self.low, gradient), _constant(self.high, gradient)
        xp = namespace(gradient)
        return xp.where(gradient > 0, low, high)

    @property
    def bounded(self) -> bool:
        return all(map(math.isfinite, (*_as_tuple(self.low), *_as_tuple(self.high))))

    def widths(self, dim: int) -> tuple[float, ...]:
        return tuple(top - bottom for bottom, top in self.bounds(dim))

    def diameter(self, dim: int) -> float:
        return math.hypot(*self.widths(dim))

    def center_point(self, dim: int) -> tuple[float, ...]:
        return tuple(
            bottom / 2 + top / 2 if math.isfinite(top - bottom) else min(max(bottom, 0.0), top)
            for bottom, top in self.bounds(dim)
        )

    def bounds(self, dim: int) -> list[tuple[float, float]]:
        """The lower and the upper bound of each coordinate.

        >>> Box(low=(0.0, -1.0), high=1.0).bounds(2)
        [(0.0, 1.0), (-1.0, 1.0)]
        """
        self.check(dim)
        return list(zip(_spread(self.low, dim), _spread(self.high, dim), strict=True))

    def contains(self, point: Array, tolerance: float = 1e-6) -> Array:
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
        if _dimension(dim) < 2:
            raise ValueError(f"{self} needs dim >= 2, got dim = {dim}")

    def _inside(self, point: Array) -> Array:
        # A sum can be right to rounding only.
        xp = namespace(point)
        rounding = point.shape[-1] * _eps(point) * self.total
        return xp.all(point >= 0, axis=-1) & (abs(point.sum(-1) - self.total) <= rounding)

    def project(self, point: Array) -> Array:
        return self.project_diagonal(point, namespace(point).ones_like(point))

    def project_diagonal(self, point: Array, metric: Array) -> Array:
        xp = namespace(point)
        inside = self._inside(point)[..., None]

        def repair(point: Array) -> Array:
            return xp.where(inside, point, _nearest_in_simplex(point, metric, self.total))

        return where_needed(~inside, repair, point)

    def project_matrix(self, point: Array, eigenvalues: Array, eigenvectors: Array) -> tuple[Array, Array]:
        xp = namespace(point)
        inside = self._inside(point)

        def repair(point: Array, error: Array) -> tuple[Array, Array]:
            nearest, bound = _nearest_in_polytope(
                self, point, eigenvalues, eigenvectors, low=0.0, high=math.inf, total=self.total
            )
            return xp.where(inside[..., None], point, nearest), xp.where(inside, error, bound)

        return where_needed(~inside, repair, point, xp.zeros_like(inside, dtype=point.dtype))

    def lowest(self, gradient: Array) -> Array:
        xp = namespace(gradient)
        least = xp.argmin(gradient, axis=-1, keepdims=True)
        # Numbers the coordinates without making an array that might land on another device.
        places = xp.cumulative_sum(xp.ones_like(gradient, dtype=least.dtype), axis=-1) - 1
        return xp.where(places == least, _constant(self.total, gradient), _constant(0.0, gradient))

    @property
    def bounded(self) -> bool:
        return True

    def widths(self, dim: int) -> tuple[float, ...]:
        self.check(dim)
        return (self.total,) * dim

    def diameter(self, dim: int) -> float:
        self.check(dim)
        return self.total * math.sqrt(2.0)

    def center_point(self, dim: int) -> tuple[float, ...]:
        self.check(dim)
        return (self.total / dim,) * dim

    def contains(self, point: Array, tolerance: float = 1e-6) -> Array:
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
        _dimension(dim)

    def project(self, point: Array) -> Array:
        return point

    def project_diagonal(self, point: Array, metric: Array) -> Array:
        return point

    def project_matrix(self, point: Array, eigenvalues: Array, eigenvectors: Array) -> tuple[Array, Array]:
        return point, namespace(point).zeros_like(point[..., 0])

    def lowest(self, gradient: Array) -> Array:
        raise ValueError(_no_lowest(self))

    @property
    def bounded(self) -> bool:
        return False

    def widths(self, dim: int) -> tuple[float, ...]:
        self.check(dim)
        return (math.inf,) * dim

    def diameter(self, dim: int) -> float:
        self.check(dim)
        return math.inf

    def center_point(self, dim: int) -> tuple[float, ...]:
        self.check(dim)
        return (0.0,) * dim

    def contains(self, point: Array, tolerance: float = 1e-6) -> Array:
        xp = namespace(point)
        return xp.all(xp.isfinite(point), axis=-1)


# --- The projections that take more than a line -----------------------------------------------------------


def _nearest_in_unit_ball(target: Array, metric: Array) -> Array:
    """The point of the unit ball nearest to a target outside it, in the norm weighted by `metric`.

    It is `x(lam)_i = h_i z_i / (h_i + lam)` where `1/|x(lam)| = 1`. The left side is concave and increasing
    in `lam` (Moré and Sorensen 1983), so a Newton step from anywhere ends left of the root, and converges
    from there quadratically. Where the metric spans many orders of magnitude, the first steps only grow `lam`
    by a factor of about 1.5 each; then the geometric mean of the two ends of the bracket is tried instead.
    """
    xp = namespace(target)
    h = metric / xp.max(metric, axis=-1, keepdims=True)
    tiny = float(xp.finfo(target.dtype).smallest_normal)
    close = 0.01 * _eps(target) ** 0.5  # the next error is of the order of this one's square

    # Three lower bounds: no |x_i| may exceed 1, nor |x|, and Newton's step from 0 (close for near targets).
    # The first keeps |x_i| <= 1 from here on.
    length = _length(target)
    heading = target / length
    low = xp.max(h * (abs(target) - 1.0), axis=-1, keepdims=True)
    low = xp.maximum(low, (length - 1.0) * xp.min(h, axis=-1, keepdims=True))
    low = xp.maximum(low, (length - 1.0) / (heading * heading / h).sum(-1)[..., None])
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
    for `theta_S = (sum_S y_i - total) / sum_S 1/h_i`. Any other set gives a smaller value, since it leaves
    out something positive or counts something negative: `theta` is the largest over all prefixes of the
    coordinates sorted by `h_i y_i`.
    """
    xp = namespace(target)
    h = xp.broadcast_to(metric / xp.max(metric, axis=-1, keepdims=True), target.shape)
    turns = h * target  # coordinate i is positive while theta is below this
    # Counted from the largest, so that targets far away do not drown the total in rounding.
    turning = turns - xp.max(turns, axis=-1, keepdims=True)
    order = xp.argsort(-turning, axis=-1)
    above = xp.cumulative_sum(xp.take_along_axis(turning / h, order, axis=-1), axis=-1)
    weight = xp.cumulative_sum(xp.take_along_axis(1.0 / h, order, axis=-1), axis=-1)
    theta = xp.max((above - total) / weight, axis=-1, keepdims=True)

    # Once more for the positive coordinates alone, counted from the one with the smallest weight: all numbers
    # that enter are then of the size of the result, however unequal the weights. Repeated until no coordinate
    # changes sides, since rounding may have put some on the wrong one.
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


class _Polytope:
    """The points with `low <= x <= high`, and a given sum where there is one, seen in the norm of a matrix.

    Arrays called `pair` have the lower bounds' numbers first, the upper bounds' second, on a leading axis.
    """

    def __init__(
        self,
        domain: Box | Simplex,
        target: Array,
        eigenvalues: Array,
        eigenvectors: Array,
        low: float | Array,
        high: float | Array,
        total: float | None,
    ) -> None:
        self.xp = xp = namespace(target)
        self.domain, self.target, self.vectors, self.total = domain, target, eigenvectors, total
        self.values = eigenvalues
        self.matrix = _product(eigenvectors * eigenvalues[..., None, :], _transpose(eigenvectors))
        self.diagonal = (eigenvectors * eigenvectors * eigenvalues[..., None, :]).sum(-1)
        self.scale = xp.sqrt(self.diagonal)
        # Ones on the diagonal condition it better; the ridge keeps it solvable whatever rounding did to it.
        self.unit = self.matrix / (self.scale[..., :, None] * self.scale[..., None, :])
        self.identity = _identity(target)
        self.ridge = target.shape[-1] * _eps(target)

        self.ones = xp.ones_like(target)
        self.pair = xp.stack([low * self.ones, high * self.ones])
        self.exists = xp.isfinite(self.pair)
        self.finite = xp.where(self.exists, self.pair, 0.0)
        self.sign = xp.stack([self.ones, -self.ones])  # which way a bound pushes

    def gradient(self, x: Array) -> Array:
        """Of half the squared distance to the target."""
        return _times(self.matrix, x - self.target)

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
        """On the distance between `x` and the nearest point; see `_distance_bound`."""
        xp, gradient, (low, high) = self.xp, self.gradient(x), (self.pair[0], self.pair[1])
        slope = self.slope(x, gradient)
        down, up = xp.maximum(slope, 0.0), xp.minimum(slope, 0.0)
        residual = xp.where(x > low, down, 0.0) + xp.where(x < high, up, 0.0)
        gap = None
        if self.total is not None:
            gap = (x * (gradient - xp.min(gradient, axis=-1, keepdims=True))).sum(-1)
        elif self.domain.bounded:
            gap = (down * (x - low) + up * (x - high)).sum(-1)
        residual = _times(_transpose(self.vectors), residual)
        diameter = self.domain.diameter(x.shape[-1])
        return _distance_bound(x, self.target, self.values, gap, residual, diameter, allow)

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
            x = xp.maximum(x, self.ridge * self.total)  # should all that is free be 0, it shares the total
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
        """Take the bounds that a step down the gradient runs into to be those that hold."""
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


def _nearest_in_polytope(
    domain: Box | Simplex,
    target: Array,
    eigenvalues: Array,
    eigenvectors: Array,
    low: float | Array,
    high: float | Array,
    total: float | None = None,
) -> tuple[Array, Array]:
    """The point with `low <= x <= high`, and sum `total` where given, nearest in the norm of a matrix.

    The question is only which bounds hold with equality: the nearest point of that face is then computed
    directly, exact to rounding. A few guesses settle most cases. Where they do not, Mehrotra's interior-point
    method (1992) finds the face, in some 10 to 30 steps whatever the matrix; the guess is read off each of
    its points and is usually right long before the method itself has converged.

    Stops when the bound on the distance is below `eps**0.6 * sqrt(e_max) (|y - x| + |x|)`, which is relative
    4e-10 in double and 7e-5 in single precision, or when there is nothing left to gain.
    """
    xp = namespace(target)
    largest = xp.max(eigenvalues, axis=-1, keepdims=True)
    shape = _Polytope(domain, target, eigenvalues / largest, eigenvectors, low, high, total)
    nearest = domain.project_diagonal(target, shape.diagonal)
    distance = _length(nearest - target)
    size = (distance + _length(nearest))[..., 0]
    goal = _eps(target) ** 0.6 * size

    guessed = (nearest, nearest, shape.bound(nearest))
    _, best, error = iterate(shape.guess, guessed, times=4, done=lambda carry: carry[2] <= goal)

    def step(carry: tuple[Array, ...]) -> tuple[Array, ...]:
        x, slack, force, best, error, finished = carry
        x, slack, force = shape.advance(x, slack, force, finished)
        held = shape.exists & (force > shape.diagonal * slack)
        if total is not None:
            held = held & (x < xp.max(x, axis=-1, keepdims=True))  # something must carry the total
        best, error = shape.better(shape.on_face(x, held), best, error)
        best, error = shape.better(shape.retract(x), best, error)
        exhausted = ~(shape.product(slack, force)[..., 0] > (_eps(target) * size) ** 2)
        return x, slack, force, best, error, (error <= goal) | exhausted

    carry = (*shape.interior(distance), best, error, error <= goal)
    best = iterate(step, carry, times=50, done=lambda carry: carry[-1])[3]
    return best, xp.sqrt(largest[..., 0]) * shape.bound(best, allow=1.0)


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


# --- Arrays -----------------------------------------------------------------------------------------------


def _length(vector: Array) -> Array:
    """Euclidean lengths along the last axis, which stays, with one entry."""
    if type(vector) is np.ndarray:
        try:
            with np.errstate(over="raise"):
                return np.sqrt(np.vecdot(vector, vector))[..., None]
        except FloatingPointError:
            pass  # too long to be squared
    xp = namespace(vector)
    if is_traced(vector):
        # One pass, as a matrix product. A vector too long to be squared counts as infinitely long.
        return xp.sqrt(matmul(vector * vector, xp.ones((vector.shape[-1], 1), dtype=vector.dtype)))
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


@lru_cache(maxsize=64)
def _numpy_identity(dim: int, dtype: Any) -> np.ndarray:
    array = np.eye(dim, dtype=dtype)
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
    if type(like) is np.ndarray or array_api_compat.is_jax_array(like):
        return _numpy_identity(like.shape[-1], like.dtype)
    return namespace(like).eye(like.shape[-1], dtype=like.dtype, device=array_api_compat.device(like))


# --- Arguments --------------------------------------------------------------------------------------------


def _number(name: str, value: Any) -> float:
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        value = value.item()
    if not isinstance(value, Real) or isinstance(value, bool) or math.isnan(value):
        raise ValueError(f"{name} is {value!r}; it must be a number")
    return float(value)


def _numbers(name: str, value: Any) -> Numbers:
    scalar = not hasattr(value, "__iter__") or getattr(value, "shape", None) == ()
    if scalar or isinstance(value, str | bytes | dict):
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
