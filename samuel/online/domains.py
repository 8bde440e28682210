"""Domains: convex sets of decisions, with projections in every norm that a learner needs.

A learner projects its steps into the domain in the norm of its regret bound: Euclidean (`project`), diagonal
(`project_diagonal`, for Adagrad), or of a full matrix (`project_matrix`, for full-matrix Adagrad). The first two are
exact to rounding; the third returns a bound on its error, which certificates include.

Domains are frozen dataclasses of numbers: comparable, hashable, and constants of compiled code.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np

from samuel.core.arrays import Array, namespace, where_needed
from samuel.online.projections import (
    Numbers,
    apply,
    constant_like,
    distance_bound,
    eps_of,
    length_of,
    nearest_in_polytope,
    nearest_in_simplex,
    nearest_in_unit_ball,
    operand_like,
    transposed,
)


class Domain(ABC):
    """A closed convex set in which decisions lie. Start with `Ball` or `Box`; `Free` is no constraint at all.

    Points have their coordinates on the last axis, with any leading axes. Arrays of NumPy, JAX (also under `jit`,
    `scan` and `vmap`) and torch keep their library and precision.

    >>> import numpy as np
    >>> Box(0.0, 1.0).project(np.array([[2.0, 0.5], [-1.0, 0.25]]))
    array([[1.  , 0.5 ],
           [0.  , 0.25]])
    """

    @abstractmethod
    def check(self, dim: int) -> None:
        """Check the number of coordinates.

        Raises:
            ValueError: when points of the domain do not have `dim` coordinates.

        >>> Box((0.0, 0.0), 1.0).check(3)
        Traceback (most recent call last):
        ...
        ValueError: Box(low=(0.0, 0.0), high=1.0) has 2 coordinates, not dim = 3
        """

    @abstractmethod
    def project(self, point: Array) -> Array:
        """The Euclidean projection of `point` onto the domain; points inside are unchanged.

        >>> import numpy as np
        >>> Ball(1.0).project(np.array([3.0, 4.0]))
        array([0.6, 0.8])
        """

    def tidy(self, point: Array) -> Array:
        """Correct a point that is outside the domain by rounding only, where that is cheap."""
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
        """The projection of `point` onto the domain in the norm of a matrix, and a bound on its error.

        The norm is `|v|_H = sqrt(v' H v)` with `H = V diag(e) V'`.

        Args:
            point: shape `(..., d)`.
            eigenvalues: `e`, positive; broadcasts to the shape of `point`.
            eigenvectors: `V`, orthonormal columns; shape `(..., d, d)`, leading axes broadcast likewise.

        Returns:
            A point `x` of the domain, and a bound on `|x - x*|_H`, where `x*` is the nearest point, of shape
            `point.shape[:-1]`. It includes rounding, and is 0 for points inside, which are unchanged.

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
        """The width of the domain in each coordinate.

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
        """A point relative to the center, in units of the radius."""
        if self._centered:
            return point if self.radius == 1.0 else point / self.radius
        return (point - constant_like(self.center, point)) / self.radius

    def _outside(self, offset: Array) -> Array:
        # Points on the sphere are exact only up to rounding of their coordinates and the center's.
        largest = max(map(abs, _as_tuple(self.center)))
        return length_of(offset) > 1.0 + 4.0 * eps_of(offset) * (1.0 + largest / self.radius)

    def _place(self, offset: Array) -> Array:
        return self.radius * offset + (0.0 if self._centered else constant_like(self.center, offset))

    def check(self, dim: int) -> None:
        _check_length(self, dim, self.center)

    def project(self, point: Array) -> Array:
        xp = namespace(point)
        offset = self._offset(point)
        length = length_of(offset)
        if self._centered:
            return point * (1.0 / xp.maximum(length, 1.0))  # exactly 1 inside
        return xp.where(length > 1.0, self._place(offset / xp.maximum(length, 1.0)), point)

    def project_diagonal(self, point: Array, metric: Array) -> Array:
        xp = namespace(point)
        offset = self._offset(point)
        outside = self._outside(offset)

        def repair(point: Array) -> Array:
            # Points inside are replaced by an arbitrary point outside, whose result is discarded.
            nearest = nearest_in_unit_ball(xp.where(outside, offset, 2.0), metric)
            return xp.where(outside, self._place(nearest), point)

        return where_needed(outside, repair, point)

    def project_matrix(self, point: Array, eigenvalues: Array, eigenvectors: Array) -> tuple[Array, Array]:
        xp = namespace(point)
        offset = self._offset(point)
        outside = self._outside(offset)

        def repair(point: Array, error: Array) -> tuple[Array, Array]:
            # In the basis of eigenvectors the matrix is diagonal, and the ball remains a ball.
            turned = apply(transposed(eigenvectors), xp.where(outside, offset, 2.0))
            nearest = apply(eigenvectors, nearest_in_unit_ball(turned, eigenvalues))
            nearest = self._place(nearest / xp.maximum(length_of(nearest), 1.0))
            # The bound is computed for the returned point, after rounding.
            position = apply(transposed(eigenvectors), self._offset(nearest))
            bound = self._bound(turned, position, eigenvalues)
            return xp.where(outside, nearest, point), xp.where(outside[..., 0], bound, error)

        return where_needed(outside, repair, point, xp.zeros_like(outside[..., 0], dtype=point.dtype))

    def _bound(self, target: Array, position: Array, eigenvalues: Array) -> Array:
        """Bound on the distance of a position from the projection of a target; both in radii, from the center."""
        xp = namespace(target)
        gradient = eigenvalues * (position - target)
        length = length_of(position)
        slope = (gradient * position).sum(-1)[..., None]
        gap = (length_of(gradient) + slope)[..., 0]
        # The outward normals at a point of the sphere are its positive multiples. The distance of the point from the
        # sphere, due to rounding, is added.
        residual = gradient + xp.maximum(-slope, 0.0) / length**2 * position
        bound = distance_bound(position, target, eigenvalues, gap, residual, diameter=2.0)
        off = xp.sqrt(xp.max(eigenvalues, axis=-1)) * abs(length[..., 0] - 1.0)
        return self.radius * (bound + off)

    def lowest(self, gradient: Array) -> Array:
        xp = namespace(gradient)
        length = length_of(gradient)
        return self._place(-gradient / xp.where(length > 0, length, 1.0))

    @property
    def bounded(self) -> bool:
        return True

    def widths(self, dim: int) -> tuple[float, ...]:
        self.check(dim)
        return (2 * self.radius,) * dim

    @cached_property
    def bounding_box(self) -> Box:
        """The smallest box around the ball.

        >>> Ball(2.0).bounding_box
        Box(low=-2.0, high=2.0)
        """
        centers = _as_tuple(self.center)
        low, high = (tuple(place + side for place in centers) for side in (-self.radius, self.radius))
        return Box(low, high) if isinstance(self.center, tuple) else Box(low[0], high[0])

    def inward(self, point: Array, gradient: Array) -> Array:
        """The gradient without its part that pulls a point outside of the ball still further out.

        With `x` the projection of the point `y`, and `h` this gradient, `<h, y - u> >= <g, x - u>` for all `u` of the
        ball (Cutkosky and Orabona, COLT 2018).

        >>> import numpy as np
        >>> Ball(1.0).inward(np.array([2.0, 0.0]), np.array([-3.0, 1.0]))
        array([0., 1.])
        """
        xp = namespace(point)
        offset = self._offset(point)
        length = length_of(offset)
        normal = offset / xp.maximum(length, 1.0)
        slope = (gradient * normal).sum(-1)[..., None]
        return gradient - xp.where(length > 1.0, xp.minimum(slope, 0.0), 0.0) * normal

    def diameter(self, dim: int) -> float:
        self.check(dim)
        return 2 * self.radius

    def center_point(self, dim: int) -> tuple[float, ...]:
        self.check(dim)
        return _spread(self.center, dim)

    def contains(self, point: Array, tolerance: float = 1e-6) -> Array:
        slack = tolerance * (self.radius + max(map(abs, _as_tuple(self.center))))
        return length_of(self._offset(point))[..., 0] <= 1.0 + slack / self.radius


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
            point = xp.maximum(point, operand_like(self.low, point))
        if self.high != math.inf:
            point = xp.minimum(point, operand_like(self.high, point))
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
            low, high = operand_like(self.low, point), operand_like(self.high, point)
            nearest, bound = nearest_in_polytope(self, point, eigenvalues, eigenvectors, low, high)
            return xp.where(outside[..., None], nearest, point), xp.where(outside, bound, error)

        return where_needed(outside, repair, point, none)

    def lowest(self, gradient: Array) -> Array:
        if not self.bounded:
            raise ValueError(_no_lowest(self))
        low, high = constant_like(self.low, gradient), constant_like(self.high, gradient)
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
        low, high = constant_like(self.low, point), constant_like(self.high, point)
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
        # The sum is exact only up to rounding.
        xp = namespace(point)
        rounding = point.shape[-1] * eps_of(point) * self.total
        return xp.all(point >= 0, axis=-1) & (abs(point.sum(-1) - self.total) <= rounding)

    def project(self, point: Array) -> Array:
        return self.project_diagonal(point, namespace(point).ones_like(point))

    def project_diagonal(self, point: Array, metric: Array) -> Array:
        xp = namespace(point)
        inside = self._inside(point)[..., None]

        def repair(point: Array) -> Array:
            return xp.where(inside, point, nearest_in_simplex(point, metric, self.total))

        return where_needed(~inside, repair, point)

    def project_matrix(self, point: Array, eigenvalues: Array, eigenvectors: Array) -> tuple[Array, Array]:
        xp = namespace(point)
        inside = self._inside(point)

        def repair(point: Array, error: Array) -> tuple[Array, Array]:
            nearest, bound = nearest_in_polytope(
                self, point, eigenvalues, eigenvectors, low=0.0, high=math.inf, total=self.total
            )
            return xp.where(inside[..., None], point, nearest), xp.where(inside, error, bound)

        return where_needed(~inside, repair, point, xp.zeros_like(inside, dtype=point.dtype))

    def lowest(self, gradient: Array) -> Array:
        xp = namespace(gradient)
        least = xp.argmin(gradient, axis=-1, keepdims=True)
        # Indices of the coordinates, without an array that might be on another device.
        places = xp.cumulative_sum(xp.ones_like(gradient, dtype=least.dtype), axis=-1) - 1
        return xp.where(places == least, constant_like(self.total, gradient), constant_like(0.0, gradient))

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


# Arguments


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
