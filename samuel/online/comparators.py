"""The best fixed point in hindsight, the comparator of regret.

Closed forms exist for linear losses, and for squared, absolute and pinball losses in one dimension. Other losses of
`<a, x>` (squared, logistic, absolute, pinball) are minimised by an interior-point method with a proved duality gap. For
your own families of losses or domains accelerated projected gradient descent runs until the duality gap `max_u <grad
f(x), x - u>` is small.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np

from samuel.online.domains import Ball, Box, Domain, Free, Simplex
from samuel.online.interior_point import Curved, Kinked, minimise
from samuel.online.losses import AbsoluteLoss, Data, LinearLoss, LogisticLoss, LossFamily, PinballLoss, SquaredLoss

TOLERANCE = 1e-8
"""Target duality gap, relative to 1 + the absolute loss."""
ROWS_AT_ONCE = 2**15
"""Rounds processed together: more would exceed the processor's cache."""


WORTH_A_WARNING = 1e-6
"""Relative gap above which regret comes with a warning."""


class InexactComparator(UserWarning):
    """A best fixed point is inexact, so that the regret may be larger than stated."""


class Comparator(NamedTuple):
    """A fixed point, its total loss, and its duality gap.

    The gap is proved. It is at most 1e-8 (1 + |loss|), even if some rounds are a million times as large as others,
    unless rounding prevents it, as in a ball of radius 10^12. On an unbounded domain it covers points up to ten times
    the scale of the data.
    """

    point: np.ndarray
    loss: float
    gap: float


class Comparators(NamedTuple):
    """Fixed points for several intervals `(intervals, dim)`, their total losses and gaps `(intervals,)`."""

    points: np.ndarray
    losses: np.ndarray
    gaps: np.ndarray


def best_fixed_point(loss: LossFamily, data: Data, domain: Domain, dim: int) -> Comparator:
    """The point of the domain with the smallest total loss over the rounds of the data.

    Args:
        loss: the loss family.
        data: its data, rounds along the first axis.
        domain: of the point.
        dim: number of coordinates.

    Raises:
        ValueError: if there is no minimum, because losses keep falling towards infinity.

    >>> import numpy as np
    >>> from samuel.online import Ball
    >>> best = best_fixed_point(LinearLoss(), (np.array([[3.0, 4.0]]),), Ball(1.0), dim=2)
    >>> best.point, best.loss
    (array([-0.6, -0.8]), -5.0)
    """
    found = best_fixed_points(loss, tuple(np.asarray(array)[None] for array in data), domain, dim)
    return Comparator(found.points[0], float(found.losses[0]), float(found.gaps[0]))


def best_fixed_points(loss: LossFamily, data: Data, domain: Domain, dim: int) -> Comparators:
    """The best fixed point of each of several intervals, all of the same length, at once.

    Args:
        loss: the loss family.
        data: its data, intervals along the first axis and their rounds along the second.
        domain: of the points.
        dim: number of coordinates.

    >>> import numpy as np
    >>> from samuel.online import Interval
    >>> readings = np.array([[1.0, 2.0, 9.0], [4.0, 4.0, 5.0]])
    >>> best_fixed_points(AbsoluteLoss(), (np.ones((2, 3, 1)), readings), Interval(0.0, 10.0), dim=1).points
    array([[2.],
           [4.]])
    """
    domain.check(dim)
    data = tuple(np.asarray(array, dtype=float) for array in data)
    if any(not np.isfinite(array).all() for array in data):
        bad = next(number for array in data for number in array[~np.isfinite(array)].flat)
        raise ValueError(f"the best fixed point needs finite data, got {bad}")
    if isinstance(loss, LinearLoss):
        totals = np.sum(data[0], axis=1)
        points = np.asarray(domain.lowest(totals))
        return Comparators(points, np.sum(totals * points, axis=-1), np.zeros(len(points)))
    known = isinstance(domain, Ball | Box | Simplex | Free)  # one of this library's domains
    if known and isinstance(loss, SquaredLoss):
        return _squared(data[0], data[1], domain, dim)
    if known and isinstance(loss, LogisticLoss):
        if not domain.bounded:
            raise ValueError(_no_end(loss, domain))
        features, label = data
        return Comparators(*minimise(LOGISTIC, -label[..., None] * features, np.zeros_like(label), domain, dim))
    if known and isinstance(loss, AbsoluteLoss):
        return _kinked(Kinked(-1.0, 1.0), data[0], data[1], domain, dim)
    if known and isinstance(loss, PinballLoss):
        return _kinked(Kinked(-loss.level, 1 - loss.level), data[0], data[1], domain, dim)
    found = [_descend(loss, tuple(array[i] for array in data), domain, dim) for i in range(len(data[0]))]
    return Comparators(*(np.array(part) for part in zip(*found, strict=True)))


def best_on_intervals(
    loss: LossFamily, data: Data, domain: Domain, dim: int, starts: np.ndarray, length: int
) -> Comparators:
    """The best fixed point of each of several intervals of one range of rounds.

    Args:
        loss: the loss family.
        data: its data, rounds along the first axis.
        domain: of the points.
        dim: number of coordinates.
        starts: where the intervals start in the data.
        length: rounds of each.

    >>> import numpy as np
    >>> from samuel.online import Interval
    >>> data = np.ones((4, 1)), np.array([0.0, 2.0, 4.0, 4.0])
    >>> best_on_intervals(SquaredLoss(), data, Interval(-1.0, 9.0), 1, starts=np.array([0, 2]), length=2).losses
    array([2., 0.])
    """
    parts = []
    for some in np.array_split(starts, -(-len(starts) * length // ROWS_AT_ONCE)):
        rounds = some[:, None] + np.arange(length)
        parts.append(best_fixed_points(loss, tuple(np.asarray(array)[rounds] for array in data), domain, dim))
    return Comparators(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def warn_if_inexact(losses: np.ndarray | float, gaps: np.ndarray | float) -> None:
    """Warn with `InexactComparator` if a gap is above 1e-6 (1 + |loss|).

    Args:
        losses: total losses of best fixed points.
        gaps: by how much at most they are above the minimum.

    >>> warn_if_inexact(3.0, 1e-9)
    """
    losses, gaps = np.atleast_1d(losses), np.atleast_1d(gaps)
    inexact = ~(gaps <= WORTH_A_WARNING * (1 + np.abs(losses)))
    if inexact.any():
        at = int(np.argmax(np.where(inexact, gaps / (1 + np.abs(losses)), 0.0)))
        warnings.warn(
            f"the best fixed point is not known exactly on {np.sum(inexact)} of {len(gaps)} intervals: its loss of "
            f"{losses[at]:.6g} may be {gaps[at]:.2g} above the smallest, and the regret so much larger than it says",
            InexactComparator,
            stacklevel=3,
        )


SQUARED = Curved(
    value=np.square,
    residual=lambda s: s / 2,
    curvature=lambda s: np.full_like(s, 2.0),
    excess=lambda r, s: (r - s / 2) ** 2,
    start=lambda r: 2 * r,
    low=-np.inf,
    high=np.inf,
)


def _softplus(r: np.ndarray) -> np.ndarray:
    return np.maximum(r, 0) + np.log1p(np.exp(-np.abs(r)))


def _coins_apart(r: np.ndarray, s: np.ndarray) -> np.ndarray:
    """Kullback-Leibler divergence between Bernoulli distributions."""
    tail = np.log1p(np.exp(-np.abs(r)))
    return s * (np.log(s) + np.maximum(-r, 0) + tail) + (1 - s) * (np.log1p(-s) + np.maximum(r, 0) + tail)


LOGISTIC = Curved(  # of minus the margin; the slope is the probability of an error
    value=_softplus,
    residual=lambda s: np.log(s) - np.log1p(-s),
    curvature=lambda s: s * (1 - s),
    excess=_coins_apart,
    start=lambda r: np.clip(0.5 * (1 + np.tanh(r / 2)), 0.1, 0.9),
    low=0.0,
    high=1.0,
)


def _squared(features: np.ndarray, target: np.ndarray, domain: Domain, dim: int) -> Comparators:
    if dim == 1:
        squares, products = np.sum(features[..., 0] ** 2, axis=-1), np.sum(features[..., 0] * target, axis=-1)
        best = products / np.where(squares > 0, squares, 1.0)
        return _clipped(SQUARED, best, features, target, domain)
    # d + 1 rows have the same sum of squares at every point as all of them.
    rows = np.asarray(np.linalg.qr(np.concatenate([features, target[..., None]], axis=-1), mode="r"))
    return Comparators(*minimise(SQUARED, rows[..., :-1], rows[..., -1], domain, dim))


def _kinked(loss: Kinked, features: np.ndarray, target: np.ndarray, domain: Domain, dim: int) -> Comparators:
    if dim == 1:
        best = _weighted_quantile(features[..., 0], target, loss)
        return _clipped(loss, best, features, target, domain)
    return Comparators(*minimise(loss, features, target, domain, dim))


def _weighted_quantile(feature: np.ndarray, target: np.ndarray, loss: Kinked) -> np.ndarray:
    """The first kink of `sum l(a x - y)` after which it does not decrease."""
    with np.errstate(all="ignore"):  # a feature may be too small for division
        kinks = np.where(feature == 0, 0.0, np.nan_to_num(target / feature))
    order = np.argsort(kinks, axis=-1)
    rise = np.take_along_axis(np.abs(feature) * (loss.high - loss.low), order, axis=-1)
    leftmost = np.sum(np.where(feature > 0, loss.low, loss.high) * feature, axis=-1, keepdims=True)
    place = np.argmax(leftmost + np.cumsum(rise, axis=-1) >= -1e-14 * np.abs(leftmost), axis=-1)
    return np.take_along_axis(np.take_along_axis(kinks, order, axis=-1), place[:, None], axis=-1)[:, 0]


def _clipped(
    loss: Curved | Kinked, best: np.ndarray, features: np.ndarray, target: np.ndarray, domain: Domain
) -> Comparators:
    """In one dimension the minimum over the domain is the projection of the unconstrained one."""
    points = np.asarray(domain.project(best[:, None]))
    losses = np.sum(loss.value(features[..., 0] * points - target), axis=-1)
    return Comparators(points, losses, np.zeros(len(points)))


def _no_end(loss: LossFamily, domain: Domain) -> str:
    return (
        f"the best fixed point of {type(loss).__name__} on the unbounded {domain} may be infinitely far away; name a "
        "bounded set of comparators with radius=..."
    )


def _descend(loss: LossFamily, data: Data, domain: Domain, dim: int, most: int = 20_000) -> Comparator:
    """Accelerated projected gradient descent, for losses known by values and gradients only."""
    if not domain.bounded:
        raise ValueError(_no_end(loss, domain))
    steepness = max(loss.curvature(data), 1e-12)
    if not np.isfinite(steepness):
        raise ValueError(
            f"the best fixed point of {type(loss).__name__} on {domain} is not known: its curvature is {steepness}; "
            "only AbsoluteLoss and PinballLoss may have kinks, on a Ball, Box, Simplex or Free"
        )
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
            momentum = 1.0  # the loss increases: reset the momentum
        grown = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = after + (momentum - 1) / grown * (after - previous)
        previous, momentum = after, grown
        point = np.asarray(domain.project(ahead))
    return best
