"""Minimising sums of `l(<a, x> - y)` over a domain, with a proof of how near to the minimum one is.

A primal-dual interior-point method for many problems of one size at once. Every bound of the domain has a slack
`w > 0` and a dual number `z > 0`, and Newton steps lead towards `w z = mu`, with `mu` falling to 0. The losses are seen
from their slopes `s`, which are unknowns too: the residual `r = <a, x> - y` is to be where the slope is `s`. Where
slopes have limits there are two slacks more, `p` and `q`, whose dual numbers are what `s` has left to either limit, and
it is `r - p + q` that is to be where the slope is `s`: without them a loss that is all but straight far out, like the
logistic one, lets no long step through. A step costs O(n d^2).

Where rounds are of very different sizes the Hessian forgets the small ones. Problems whose proof is not good enough are
solved again without it, by the QR decomposition of its square root, and with the slopes corrected until they add up.

The proof is made from the slopes alone, whatever has led to them. For any `s_t` that are slopes of `l` somewhere,

    min_u sum l(r_t(u))  >=  sum l(r_t) - gap,    gap = sum (l(r_t) - s_t r_t + l*(s_t)) + max_u <sum s_t a_t, x - u>

with `l*(s)` the largest `s r - l(r)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from samuel.online.domains import Ball, Box, Domain, Free, Simplex

Array = np.ndarray
Solver = Callable[[np.ndarray], np.ndarray]

AIM = 1e-10
"""The gap to stop at, relative to 1 + the sum of the losses."""
ENOUGH = 1e-8
"""The gap, relative to the same, above which a problem is solved again with more care."""
MOST_STEPS = 100
PATIENCE = 6
"""Steps without a better gap after which a problem is left as it is, once `mu` is small: rounding allows no more."""
REACH = 10.0
"""Where the domain is unbounded, the gap is for points so many times as far away as is natural for the data."""
FAR = 1e12
"""A ball is searched as far as a residual can be so many times 1 + the largest target: squares must not overflow."""
TO_THE_EDGE = 0.99
"""Part of the way to an edge that a step may go."""
NEAR = 0.1
"""How far below `mu` the product of slack and dual number of a ball may be."""
RIDGE = 1e-13
"""Keeps directions in which nothing changes out of the steps; relative to the diagonal of the Hessian."""
TINY = 1e-15
"""The same for the square root of the Hessian."""
REFINEMENTS = 2
"""How often a step is corrected by what is left of the equations."""


class Curved(NamedTuple):
    """A loss of the residual without kinks, never negative, seen from its slopes.

    `residual(s)` is where the slope is `s`, `curvature(s)` how fast it changes there, `start(r)` a slope to begin with
    at `r`. `excess(r, s)` is `l(r) - s r + l*(s)`: 0 where `s` is the slope at `r`, positive elsewhere.
    """

    value: Callable[[Array], Array]
    residual: Callable[[Array], Array]
    curvature: Callable[[Array], Array]
    excess: Callable[[Array, Array], Array]
    start: Callable[[Array], Array]
    low: float
    high: float
    """Limits of the slopes."""


class Kinked(NamedTuple):
    """The loss `max(low r, high r)` of the residual, with `low < 0 < high`, seen from its slopes as well."""

    low: float
    high: float

    def residual(self, slope: Array) -> Array:
        """All slopes between the limits are at the kink."""
        return 0 * slope

    def curvature(self, slope: Array) -> Array:
        """The slope changes at once."""
        return np.full_like(slope, np.inf)

    def start(self, residual: Array) -> Array:
        """No slope."""
        return 0 * residual

    def value(self, residual: Array) -> Array:
        """The loss at each residual."""
        return np.maximum(self.low * residual, self.high * residual)

    def excess(self, residual: Array, slope: Array) -> Array:
        """`l(r) - s r`, as `l*` is 0 for every slope from `low` to `high`."""
        return np.maximum((self.low - slope) * residual, (self.high - slope) * residual)


class Minimum(NamedTuple):
    """Points `(problems, d)`, the sums of their losses, and by how much at most these are above the minimum."""

    points: Array
    losses: Array
    gaps: Array


def minimise(loss: Curved | Kinked, features: Array, target: Array, domain: Domain, dim: int) -> Minimum:
    """The points of a domain with the smallest `sum l(<a, x> - y)`, one for each problem.

    Args:
        loss: `l`.
        features: `a`, of shape `(problems, rounds, dim)`.
        target: `y`, of shape `(problems, rounds)`.
        domain: a ball, a box, a simplex or all of space; there must be a minimum in it.
        dim: number of coordinates.

    >>> import numpy as np
    >>> from samuel.online import Box
    >>> found = minimise(Kinked(-1.0, 1.0), np.eye(2)[None], np.array([[0.25, 3.0]]), Box(-1.0, 1.0), dim=2)
    >>> found.points.round(6), found.losses.round(6), bool(found.gaps < 1e-8)
    (array([[0.25, 1.  ]]), array([2.]), True)
    """
    with np.errstate(all="ignore"):  # a step that leads nowhere is known by its gap, and not kept
        if not isinstance(domain, Free):
            region = _Region.of(domain, dim)
            return (_solved if region.center is None else _solved_in_a_ball)(loss, region, features, target)
        # Where any coordinates will do, take those in which the features are as different as can be.
        size = _or_one(np.max(np.abs(features), axis=1, keepdims=True))
        left, singular, right = np.linalg.svd(features / size, full_matrices=False)
        kept = singular > 1e-13 * singular[:, :1]
        found = _solved(loss, _Region.of(domain, left.shape[-1]), left * kept[:, None, :], target)
        points, turned = np.zeros_like(size[:, 0]), np.where(kept, found.points, 0.0)
        for _ in range(1 + REFINEMENTS):
            there = np.matmul(np.matmul(features, points[..., None])[..., 0][:, None, :], left)[:, 0]
            back = np.where(kept, turned - there, 0.0) / np.where(kept, singular, 1.0)
            points = points + np.matmul(back[:, None, :], right)[:, 0] / size[:, 0]
        losses = np.sum(loss.value(np.matmul(features, points[..., None])[..., 0] - target), axis=-1)
        return Minimum(points, losses, found.gaps + np.maximum(losses - found.losses, 0.0))


def _solved(loss: Curved | Kinked, region: _Region, features: Array, target: Array) -> Minimum:
    """The minima, those that are hard to find with more care."""
    found = _Method(loss, region).run(features, target)
    hard = ~(found.gaps <= ENOUGH * (1 + found.losses))
    if hard.any():
        again = _Method(loss, region, careful=True).run(features[hard], target[hard])
        closer = again.gaps < found.gaps[hard]
        at = np.flatnonzero(hard)[closer]
        for part, better in zip(found, again, strict=True):
            part[at] = better[closer]
    return found


def _solved_in_a_ball(loss: Curved | Kinked, ball: _Region, features: Array, target: Array) -> Minimum:
    """The minima over a ball that may be beyond all measure."""
    far = FAR * (1 + np.max(np.abs(target))) / np.min(_or_one(np.max(np.abs(features), axis=(1, 2))))
    if ball.radius <= far:
        return _solved(loss, ball, features, target)
    found = _solved(loss, ball._replace(radius=far), features, target)
    # On the way to a point of the whole ball a convex loss falls no faster than within the smaller one.
    away = np.linalg.norm(found.points - ball.center, axis=-1)
    times = (ball.radius + away) / np.maximum(far - away, 0.0)
    return found._replace(gaps=np.fmin(found.gaps * times, found.losses))


class _Region(NamedTuple):
    """A domain: bounds for each coordinate, and perhaps a sum of the coordinates, or a ball."""

    low: Array
    high: Array
    total: float | None = None
    center: Array | None = None
    radius: float = 0.0

    @classmethod
    def of(cls, domain: Domain, dim: int) -> _Region:
        far = np.full(dim, np.inf)
        if isinstance(domain, Ball):
            return cls(-far, far, center=np.asarray(domain.center_point(dim)), radius=domain.radius)
        if isinstance(domain, Simplex):
            return cls(np.zeros(dim), far, total=domain.total)
        if isinstance(domain, Box):
            low, high = np.array(domain.bounds(dim)).T
            return cls(low, high)
        return cls(-far, far)

    @property
    def sides(self) -> tuple[Array, Array]:
        """`C` and `c` with `C x + c > 0` inside: one row for each finite bound."""
        low, high = np.isfinite(self.low), np.isfinite(self.high)
        one = np.eye(len(low))
        return np.concatenate([one[low], -one[high]]), np.concatenate([-self.low[low], self.high[high]])

    def start(self, unit: Array) -> Array:
        """A point inside for each problem, at the distance `unit` from a bound that has none opposite."""
        if self.center is not None:
            return self.center + 0 * unit
        if self.total is not None:
            return np.full_like(unit, self.total / unit.shape[-1])
        low, high = np.isfinite(self.low), np.isfinite(self.high)
        inner = np.where(low, self.low + unit, np.where(high, self.high - unit, 0.0))
        return np.where(low & high, self.low / 2 + self.high / 2, inner)

    def most(self, gradient: Array, point: Array, unit: Array) -> Array:
        """`max_u <gradient, point - u>` over the domain, as far out as `REACH` says where it is unbounded."""
        if self.center is not None:
            along = np.sum(gradient * (point - self.center), axis=-1)
            return along + self.radius * np.linalg.norm(gradient, axis=-1)
        if self.total is not None:
            return np.sum(gradient * point, axis=-1) - self.total * np.min(gradient, axis=-1)
        reach = REACH * (np.abs(point) + unit)
        low = np.where(np.isfinite(self.low), self.low, point - reach)
        high = np.where(np.isfinite(self.high), self.high, point + reach)
        return np.sum(np.maximum(gradient * (point - low), gradient * (point - high)), axis=-1)


class _State(NamedTuple):
    """Where every problem stands; the problems are the first axis of all arrays."""

    A: Array
    y: Array
    unit: Array
    """How large a coordinate must be for the largest feature to reach the largest target."""
    ceiling: Array
    """The largest `mu`."""
    x: Array
    s: Array
    """Slopes of the losses."""
    p: Array
    q: Array
    """Slacks of the limits of the slopes; empty where they have none."""
    z: Array
    """Dual numbers of the bounds."""
    rim: Array
    """Dual number of the ball."""
    mu: Array
    step: Array
    """Length of the last step, from 0 to 1."""

    def only(self, which: Array) -> _State:
        return _State(*(array[which] for array in self))

    def residual(self, x: Array) -> Array:
        return np.matmul(self.A, x[..., None])[..., 0] - self.y

    def total(self, slopes: Array) -> Array:
        return np.matmul(slopes[:, None, :], self.A)[:, 0]


class _Method:
    """The interior-point method for one kind of loss and one domain."""

    def __init__(self, loss: Curved | Kinked, region: _Region, careful: bool = False) -> None:
        self.loss, self.region, self.careful = loss, region, careful
        self.limited = bool(np.isfinite(loss.high - loss.low))
        self.C, self.c = region.sides
        self.ball = region.center is not None
        self.pairs = len(self.c) + self.ball
        self.bounded = self.ball or region.total is not None or bool(np.isfinite(region.high - region.low).all())

    def run(self, features: Array, target: Array) -> Minimum:
        """Step until every gap is small or cannot be made smaller."""
        state = self._begin(features, target)
        count = len(features)
        best = Minimum(state.x.copy(), np.full(count, np.inf), np.full(count, np.inf))
        place, waited = np.arange(count), np.zeros(count)
        for _ in range(MOST_STEPS):
            residual, losses, gaps = self._judge(state)
            better = gaps < best.gaps[place]
            at = place[better]
            best.points[at], best.losses[at], best.gaps[at] = state.x[better], losses[better], gaps[better]
            aim = AIM * (1 + losses)
            waited = np.where(better | (state.mu > 0.01 * aim), 0, waited + 1)
            going = (best.gaps[place] > AIM * (1 + best.losses[place])) & (waited < PATIENCE)
            if not going.any():
                break
            if 2 * np.sum(going) <= len(going):
                state, place, waited = state.only(going), place[going], waited[going]
                residual, gaps = residual[going], gaps[going]
            state = self._advance(state, residual, gaps)
        return best

    def _begin(self, A: Array, y: Array) -> _State:
        steep, top = np.max(np.abs(A), axis=1), np.max(np.abs(y), axis=1)[:, None]
        unit = np.where((steep > 0) & (top > 0), top / _or_one(steep), 1.0)
        x = self.region.start(unit)
        one, none = np.ones(len(x)), np.zeros((len(x), 0))
        state = _State(A, y, unit, one, x, s=y, p=none, q=none, z=none, rim=one, mu=one, step=one)
        r = state.residual(x)
        state = state._replace(s=self.loss.start(r))
        mu = self.region.most(state.total(state.s), x, unit) / max(1, self.pairs)
        if self.limited:
            apart = r - self.loss.residual(state.s)
            room = np.maximum(np.mean(np.abs(apart), axis=-1), mu / r.shape[-1])[:, None] + 1e-300
            p, q = np.maximum(apart, 0) + room, np.maximum(-apart, 0) + room
            mu = np.mean(p * (self.loss.high - state.s) + q * (state.s - self.loss.low), axis=-1) / 2
            state = state._replace(p=p, q=q)
        mu = np.maximum(mu, 1e-300)
        return state._replace(mu=mu, ceiling=mu, z=mu[:, None] / self._slack(x), rim=mu / self._inside(x))

    def _slack(self, x: Array) -> Array:
        return x @ self.C.T + self.c

    def _inside(self, x: Array) -> Array:
        """The slack of the ball, `(R^2 - |x - c|^2) / 2`."""
        if not self.ball:
            return np.ones(len(x))
        return (self.region.radius**2 - np.sum((x - self.region.center) ** 2, axis=-1)) / 2

    def _judge(self, state: _State) -> tuple[Array, Array, Array]:
        """Residuals, sums of the losses, and what the slopes prove about these."""
        r = state.residual(state.x)
        losses = np.sum(self.loss.value(r), axis=-1)
        excess = np.sum(self.loss.excess(r, state.s), axis=-1)
        gaps = excess + self.region.most(state.total(state.s), state.x, state.unit)
        gaps = np.maximum(np.fmin(gaps, losses), 0.0)  # no loss is negative: a sum near 0 is near its minimum
        return r, losses, np.where(np.isfinite(losses), gaps, np.inf)

    def _target(self, state: _State, gaps: Array) -> Array:
        """The `mu` to step towards: much smaller after a long step, hardly after a short one."""
        easing = np.where(state.step > 0.9, 0.05, np.where(state.step > 0.4, 0.2, 0.6))
        if isinstance(self.loss, Kinked) or not self.bounded:
            return easing * state.mu
        # Curved losses may take many steps to the edge: mu must not be spent before they are there.
        pairs = max(1, self.pairs + 2 * state.p.shape[-1])
        return easing * np.maximum(state.mu, np.minimum(gaps / pairs, state.ceiling))

    def _advance(self, state: _State, r: Array, gaps: Array) -> _State:
        """One Newton step for all problems, from where the residuals are `r`."""
        A, x, s, p, q, z, rim = state.A, state.x, state.s, state.p, state.q, state.z, state.rim
        loss, mu = self.loss, self._target(state, gaps)
        goal = mu[:, None]
        w, inside = self._slack(x), self._inside(x)
        out = x - self.region.center if self.ball else 0 * x
        above, below = loss.high - s, s - loss.low
        # The step of the slopes is ds = weight (dr + ahead), so that the system is one in dx alone.
        give, ahead = 1 / loss.curvature(s), r - loss.residual(s)
        if isinstance(loss, Kinked):
            ahead = p - q  # this is r, without the rounding of r, which the weight would blow up
        if self.limited:
            give, ahead = give + p / above + q / below, ahead - goal / above + goal / below
        weight = 1 / give
        solve = self._solver(A, weight, z / w, rim, rim / inside, out)
        gradient = state.total(s + weight * ahead) - (goal / w) @ self.C + (mu / inside)[:, None] * out
        dx = solve(-gradient)
        dr, dw, along = np.matmul(A, dx[..., None])[..., 0], dx @ self.C.T, np.sum(out * dx, axis=-1)
        ds, dz = weight * (dr + ahead), goal / w - z - z / w * dw
        drim = self.ball * (mu / inside - rim + rim / inside * along)
        for _ in range(REFINEMENTS * self.careful):
            # Large weights have blown up the rounding of dr: what the slopes do not add up to is solved for as well.
            left = state.total(s + ds) - (z + dz) @ self.C + (rim + drim)[:, None] * out + self.ball * rim[:, None] * dx
            more = solve(-left)
            dx, dw, ds = dx + more, dw + more @ self.C.T, ds + weight * np.matmul(A, more[..., None])[..., 0]
            dz, drim = dz - z / w * (more @ self.C.T), drim + rim / inside * np.sum(out * more, axis=-1)
        if self.limited:
            dp, dq = goal / above - p + p / above * ds, goal / below - q - q / below * ds
        else:
            dp, dq = p, q
        slacks = ((w, dw), (z, dz), (above, -ds), (below, ds), (p, dp), (q, dq), (rim[:, None], drim[:, None]))
        step = np.minimum(1.0, TO_THE_EDGE * np.min([_room(slack, change) for slack, change in slacks], axis=0))
        step = self._off_the_rim(state, step, dx, drim, mu)
        far = step[:, None]
        x = x + far * dx
        if self.region.total is not None:  # undo the rounding
            x = x * (self.region.total / np.sum(x, axis=-1, keepdims=True))
        return state._replace(
            x=x,
            s=np.clip(s + far * ds, loss.low + 1e-300, loss.high - 1.2e-16),
            p=p + far * dp,
            q=q + far * dq,
            z=z + far * dz,
            rim=rim + step * drim,
            mu=(1 - step) * state.mu + step * mu,  # not the mean of w z, which may fall while steps get nowhere
            step=step,
        )

    def _solver(self, A: Array, weight: Array, bound: Array, rim: Array, outward: Array, out: Array) -> Solver:
        """What solves `H dx = right`: `H` has these weights for rounds, bounds, the ball, and the way out of it."""
        keeps_sum = self.region.total is not None
        if self.careful:
            rows = [np.sqrt(weight)[..., None] * A, np.sqrt(bound)[..., None] * self.C]
            if self.ball:
                rows.append(np.sqrt(rim)[:, None, None] * np.eye(A.shape[-1]))
                rows.append((np.sqrt(outward)[:, None] * out)[:, None])
            return _by_rows(np.concatenate(rows, axis=1), keeps_sum)
        hessian = np.matmul(np.swapaxes(A, 1, 2), weight[..., None] * A)
        hessian += outward[:, None, None] * out[:, :, None] * out[:, None, :]
        _diagonal(hessian)[...] += bound @ np.abs(self.C) + self.ball * rim[:, None]
        return lambda right: _solve(hessian, right, keeps_sum)

    def _off_the_rim(self, state: _State, step: Array, dx: Array, drim: Array, mu: Array) -> Array:
        """Steps halved until they stay off the rim of a ball: close to it, all that follow would be tiny."""
        for _ in range(60 if self.ball else 0):
            product = self._inside(state.x + step[:, None] * dx) * (state.rim + step * drim)
            fine = product >= NEAR * ((1 - step) * state.mu + step * mu)
            if fine.all():
                break
            step = np.where(fine, step, step / 2)
        return step


def _solve(hessian: Array, right: Array, keeps_sum: bool) -> Array:
    """Newton steps, of coordinates that may be of very different sizes; `keeps_sum`: those with sum 0."""
    dim = right.shape[-1]
    scale = _or_one(np.sqrt(_diagonal(hessian)))
    even, right = hessian / (scale[:, :, None] * scale[:, None, :]), right / scale
    if keeps_sum:
        row = np.append(1 / scale, 0 * scale[:, :1], axis=1)
        row /= np.max(row, axis=-1, keepdims=True)
        even = np.append(np.append(even, row[:, None, :-1], axis=1), row[:, :, None], axis=2)
        right = np.append(right, 0 * right[:, :1], axis=1)
    even[~np.isfinite(even).all(axis=(1, 2))] = np.eye(even.shape[-1])  # lost, but must not stop the others
    stable = even.copy()
    _diagonal(stable)[:, :dim] += RIDGE
    found = np.linalg.solve(stable, right[..., None])
    for _ in range(REFINEMENTS):  # what the ridge has changed, and rounding
        found = found + np.linalg.solve(stable, right[..., None] - even @ found)
    return found[:, :dim, 0] / scale


def _by_rows(rows: Array, keeps_sum: bool) -> Solver:
    """What solves `rows^T rows dx = right` for rows that may be of very different sizes; `keeps_sum`: with sum 0."""
    dim = rows.shape[-1]
    basis = np.linalg.svd(np.ones((1, dim)))[2][1:].T if keeps_sum else np.eye(dim)
    rows = rows @ basis
    rows[~np.isfinite(rows).all(axis=(1, 2))] = 0.0  # lost, but must not stop the others
    size = _or_one(np.sqrt(np.sum(rows**2, axis=1)))[:, None, :]
    rows = rows / size
    # The largest rows first: the decomposition keeps what the small ones say only if it comes to them last.
    order = np.argsort(-np.max(np.abs(rows), axis=-1), axis=-1)
    one = np.broadcast_to(np.eye(rows.shape[-1]), (len(rows), rows.shape[-1], rows.shape[-1]))
    sorted_rows = np.concatenate([np.take_along_axis(rows, order[..., None], axis=1), TINY * one], axis=1)
    inverse = np.linalg.solve(np.linalg.qr(sorted_rows, mode="r"), one)

    def solve(right: Array) -> Array:
        right = (right @ basis)[..., None] / np.swapaxes(size, 1, 2)
        found = np.zeros_like(right)
        for _ in range(1 + REFINEMENTS):
            wrong = right - np.swapaxes(rows, 1, 2) @ (rows @ found)
            found = found + inverse @ (np.swapaxes(inverse, 1, 2) @ wrong)
        return (found[..., 0] / size[:, 0]) @ basis.T

    return solve


def _diagonal(matrices: Array) -> Array:
    """The diagonals of matrices, to be read and written."""
    return np.einsum("...ii->...i", matrices)


def _or_one(numbers: Array) -> Array:
    """The numbers, with 1 in place of 0: fit to divide by."""
    return np.where(numbers > 0, numbers, 1.0)


def _room(slack: Array, change: Array) -> Array:
    """The length of step at which the first slack of each problem becomes 0."""
    return 1 / np.abs(np.fmax.reduce(-change / slack, axis=-1, initial=0.0))  # abs: no -0.0
