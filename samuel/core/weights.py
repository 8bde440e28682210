"""Multiplicative weights with many step sizes, for experts that start and end at different times.

Every expert `e` is kept `Q` times, with the step sizes `eta_q = 1 / (B 2^q)`, `q = 1..Q`, where `B` bounds the gains. A
pair `(e, q)` starts with `v = pi(e)`, its prior, and is updated by

    v <- v * (1 + eta_q r(e)),        w(e, q) = eta_q v(e, q),        p(e) = sum_q w(e, q) / sum w.

`r(e)` is the gain of the expert: the loss of the decision minus its own. Since `|eta_q r| <= 1/2`, a weight
never becomes negative.

**Range.** Over a long block `v` spans more orders of magnitude than a float holds. It is kept in units that follow the
total weight, `v = value * exp(log_unit)`: the range of logarithms without a logarithm and an exponential per pair and
round. A value that would underflow is held at the smallest safe number; that only makes weights larger, so every bound
based on `log v <= L` remains valid, and moves the decision by less than rounding does.

**Unknown scale.** With no bound given, the first gains that are not all zero set `B` (and move no weight). When
later gains exceed `B`, all gains of that round are scaled by one factor (clipping each would bias the mixture), then
`B` doubles until it bounds them. As `eta_q` of the doubled bound is `eta_{q+1}` of the old one, the weights shift by
one place along `q`: the largest step size ends, and a new smallest one starts with the prior. `narrow` reverses it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from samuel.core.arrays import (
    ROUNDINGS,
    Array,
    along_slots,
    at_least,
    at_most,
    constant,
    is_deferred,
    matmul,
    namespace,
    peak,
)


class NoHealthyExpert(ArithmeticError):
    """Raised when no expert with finite numbers is left. The state is unchanged."""


class Weights(NamedTuple):
    """The weights of `slots x experts x Q` pairs, for any number of independent streams (leading axes)."""

    value: Array
    """`v` of every pair in units of `exp(log_unit)`, `(..., slots, experts, Q)`; 0 if closed or removed."""
    weight: Array
    """Of every expert, `B sum_q eta_q v` in the same units, `(..., slots, experts)`."""
    mass: Array
    """The sum of the experts' weights, shape `(...)`."""
    log_unit: Array
    """Logarithm of the unit, shape `(...)`."""
    log_ended: Array
    """Logarithm of the sum of `v` over all pairs that have ended, each frozen at its last value."""
    started: Array
    """`C`: the sum of the priors of all pairs ever started."""
    bound: Array
    """`B`, the bound on the gains; 0 as long as it is unknown."""


class Judged(NamedTuple):
    """Diagnostics of `judge`."""

    used: Array
    """Ratio of the gains that the weights were updated with to the gains, in [0, 1], shape `(...)`."""
    largest: Array
    """The largest absolute gain; where it exceeds the bound, `widen` must be called."""
    healthy: Array
    """False where a stream had no expert with a finite gain; its weights are then as they were."""


def number_of_rates(
    rounds: int | None = None,
    dim: int | None = None,
    diameter: float | None = None,
    gradient_bound: float | None = None,
) -> int:
    """Sufficient number `Q` of step sizes.

    With everything known, the paper's `4 log(d T D^2 G^2)`, where `D` is half the diameter of the domain. With
    only the number of rounds known `log2(T) / 2 + 2`: the best rate for a block of `n` rounds is never below
    `1 / (B sqrt(n))`. With nothing known 18, enough for `2^32` rounds.

    >>> number_of_rates(rounds=10_000, dim=10, diameter=2.0, gradient_bound=1.0), number_of_rates(10_000)
    (47, 9)
    """
    if rounds is None:
        return 18
    if dim is None or gradient_bound is None or diameter is None or not math.isfinite(diameter):
        return max(1, math.ceil(math.log2(rounds) / 2) + 2)
    radius = diameter / 2
    return max(1, math.ceil(4 * math.log(max(2.0, dim * rounds * radius**2 * gradient_bound**2))))


def begin(prior: Array, slots: int, Q: int, batch: tuple[int, ...] = (), bound: float = 0.0) -> Weights:
    """Weights with all slots closed; `restart` opens them.

    Args:
        prior: `pi`, one positive number per expert of a slot; its library and dtype are used throughout.
        slots: number of slots.
        Q: number of step sizes of each expert.
        batch: leading axes, one entry per independent stream.
        bound: `B`, a known bound on the gains; 0 if it is unknown.

    >>> import numpy as np
    >>> weights = restart(begin(np.ones(2), slots=1, Q=3), np.array([True]), np.ones(2))
    >>> shares(weights)
    array([[0.5, 0.5]])
    """
    zeros = constant(np.zeros((*batch, slots, prior.shape[-1], Q)), prior)
    nothing = constant(np.zeros(batch), prior)[()]  # a scalar: faster than an array of dimension 0
    return Weights(
        value=zeros,
        weight=zeros[..., 0],
        mass=nothing,
        log_unit=nothing,
        log_ended=nothing - math.inf,
        started=nothing,
        bound=nothing + bound,
    )


def grow(weights: Weights, slots: int) -> Weights:
    """The same weights with room for more slots, closed as yet.

    >>> import numpy as np
    >>> grow(begin(np.ones(2), slots=1, Q=3), slots=4).value.shape
    (4, 2, 3)
    """
    xp = namespace(weights.value)
    *batch, have, experts, Q = weights.value.shape
    room = constant(np.zeros((*batch, slots - have, experts, Q)), weights.value)
    value = xp.concat([weights.value, room], axis=-3)
    return weights._replace(value=value, weight=xp.concat([weights.weight, room[..., 0]], axis=-2))


def alive(weights: Weights) -> Array:
    """Which experts are active: their slot is open and their numbers are finite. Shape `(..., slots, experts)`."""
    return weights.weight > 0


def fractions(value: Array) -> Array:
    """`B eta_q = 2^-q` for values `(..., Q)`."""
    return constant(tuple([0.5**q for q in range(1, value.shape[-1] + 1)]), value)


def smallest_value(value: Array) -> float:
    """A value that can still be halved and multiplied by a small rate without becoming 0."""
    return 1e-290 if value.dtype.itemsize == 8 else 1e-30


def shares(weights: Weights) -> Array:
    """`p(e)`, the weight of each expert: not negative, summing to 1. Shape `(..., slots, experts)`.

    >>> import numpy as np
    >>> weights = restart(begin(np.ones(2), slots=1, Q=1, bound=1.0), np.array([True]), np.ones(2))
    >>> weights, _ = judge(weights, np.array([[0.5, -0.5]]))
    >>> shares(weights)
    array([[0.625, 0.375]])
    """
    return weights.weight / weights.mass[..., None, None]


def log_total(weights: Weights) -> Array:
    """`L`: the logarithm of the sum of `v` over all pairs ever started, the ended ones frozen."""
    return _log_sum(weights.log_ended, weights.log_unit + _log(weights.value.sum((-3, -2, -1))))


def log_values(weights: Weights) -> Array:
    """`log v` of every pair, `(..., slots, experts, Q)`; a large negative number where a slot is closed."""
    return weights.log_unit[..., None, None, None] + _log(weights.value)


def judge(
    weights: Weights, gains: Array, rounding: Array | float = 0.0, trusting: bool = False
) -> tuple[Weights, Judged]:
    """Update the weight of every expert by its gain in this round.

    A gain that is NaN or infinite removes the expert's weight until its slot restarts. If a stream has no finite gain,
    `NoHealthyExpert` is raised; under tracing, where nothing can be raised, its weights are unchanged and
    `Judged.healthy` is False.

    Args:
        weights: the weights the decision was made with.
        gains: `r(e)`, shape `(..., slots, experts)`; ignored for inactive experts.
        rounding: gains up to this size may be rounding errors, and do not set the scale.
        trusting: for compiled loops: skip the search for gains that are not finite (the result is invalid where
            `Judged.healthy` is False), and leave the experts' weights to `weigh`, which can be cheaper at the start of
            the next round than at the end of this one.

    >>> import numpy as np
    >>> weights = restart(begin(np.ones(3), slots=1, Q=4, bound=1.0), np.array([True]), np.ones(3))
    >>> weights, _ = judge(weights, np.array([[0.5, -0.5, np.nan]]))
    >>> shares(weights).round(3)
    array([[0.589, 0.411, 0.   ]])
    """
    xp = namespace(gains)
    value, bound, mass = weights.value, weights.bound, weights.mass
    good = weights.weight > 0
    everyone = not is_deferred(good) and bool(good.all())
    if not everyone:
        gains = xp.where(good, gains, 0.0)
    largest = peak(abs(gains))
    healthy = largest < _largest(value)  # False for nan
    if not trusting if is_deferred(healthy) else not healthy.all():  # some gain is not finite: find which
        everyone = False
        good = good & (abs(gains) < _largest(value))
        healthy = xp.any(good, axis=(-2, -1))
        good = _keeping(good, weights.weight > 0, healthy)
        gains = xp.where(good & healthy[..., None, None], gains, 0.0)
        value = xp.where(good[..., None], value, 0.0)
        largest = peak(abs(gains))
    # Gains over their bound, or over the largest of them if that is more; 0 in the round that sets the scale.
    known, smallest = bound > 0, smallest_value(value)
    unit = at_least(xp.maximum(bound, largest), smallest)
    relative = gains * (known / unit)[..., None, None]
    # In units of a power of two near the total weight: dividing by it does not round.
    doublings = xp.floor(xp.log2(mass))
    shrink = (0.5**doublings)[..., None, None]
    value = value * (shrink[..., None] + (relative * shrink)[..., None] * fractions(value))
    value = xp.maximum(value, smallest if everyone else xp.where(good, smallest, xp.zeros_like(gains))[..., None])
    log_unit = weights.log_unit + math.log(2) * doublings
    if trusting:
        after = weights._replace(value=value, log_unit=log_unit)
    else:
        after = _weighed(weights, value, log_unit)
    return after, Judged(bound / unit, largest * (known | (largest > rounding)), healthy)


def weigh(weights: Weights) -> Weights:
    """The weights with every expert's weight recomputed from the values."""
    return _weighed(weights, weights.value, weights.log_unit)


def restart(weights: Weights, starts: Array, prior: Array, inherit: bool = False) -> Weights:
    """Restart the marked slots: each of their experts begins with its prior.

    Args:
        weights: the weights so far.
        starts: which slots start a block, shape `(slots,)`.
        prior: `pi`, one number per expert of a slot, or of every slot: `(experts,)` or `(slots, experts)`. An expert
            with prior 0 is inactive until its slot restarts again.
        inherit: new experts keep the weights of their slot and *add* the prior, `v <- v + pi`. The sum of all `v` then
            grows by the prior alone, as with a fresh start, so the certificate remains valid.

    >>> import numpy as np
    >>> weights = begin(np.ones(2), slots=2, Q=3)
    >>> shares(restart(weights, np.array([True, False]), np.ones(2)))
    array([[0.5, 0.5],
           [0. , 0. ]])
    """
    xp = namespace(weights.value)
    mask = along_slots(xp.asarray(starts), weights.value, batch_axes=weights.value.ndim - 3)
    # Old and new in one unit: whichever of the two is larger.
    log_unit = at_least(weights.log_unit + _log(weights.mass), 0.0)
    smallest = smallest_value(weights.value)
    old = weights.value * xp.exp(weights.log_unit - log_unit)[..., None, None, None]
    old = xp.where(weights.value > 0, at_least(old, smallest), 0.0)
    new = at_least(prior[..., None] * xp.exp(-log_unit)[..., None, None, None], smallest)
    if prior.ndim > 1:  # a prior may be 0
        new = xp.where(prior[..., None] > 0, new, 0.0)
    log_ended = weights.log_ended
    if inherit:
        new = new + old
    else:
        ended = xp.where(mask, old, 0.0).sum((-3, -2, -1))
        log_ended = _log_sum(log_ended, log_unit + _log(ended))
    if prior.ndim > 1:
        births = (xp.where(mask[..., 0], prior, 0.0)).sum() * weights.value.shape[-1]
    else:
        births = mask.sum(dtype=prior.dtype) * (prior.sum() * weights.value.shape[-1])
    weights = weights._replace(log_ended=log_ended, started=weights.started + births)
    return _weighed(weights, xp.where(mask, new, old), log_unit)


def remove(weights: Weights, keep: Array) -> Weights:
    """Remove the weight of some experts until their slot restarts.

    Args:
        weights: the weights so far.
        keep: which experts stay, shape `(..., slots, experts)`.

    Raises:
        NoHealthyExpert: if no expert of a stream would be left (under tracing that stream is unchanged).
    """
    xp = namespace(weights.value)
    good = keep & alive(weights)
    good = _keeping(good, alive(weights), xp.any(good, axis=(-2, -1)))
    return _weighed(weights, xp.where(good[..., None], weights.value, 0.0), weights.log_unit)


def _keeping(good: Array, taking_part: Array, healthy: Array) -> Array:
    """The experts to keep; an error, or under tracing all of them, where a stream would be left with none."""
    if is_deferred(healthy):
        return good | (taking_part & ~healthy[..., None, None])
    if not healthy.all():
        raise NoHealthyExpert(_nobody(healthy))
    return good


def widen(weights: Weights, largest: Array, prior: Array, most: int | None = None) -> Weights:
    """Double `B` until it bounds the largest gain, and shift the weights to the new step sizes.

    Streams whose bound holds are unchanged.

    Args:
        weights: the weights so far.
        largest: `Judged.largest`.
        prior: `pi`: initial weights of new step sizes.
        most: doublings in one round, so that an outlier ends no more than as many step sizes; any number by default.
            The first gains of all set `B` without a limit.

    >>> import numpy as np
    >>> weights = restart(begin(np.ones(2), slots=1, Q=4), np.array([True]), np.ones(2))
    >>> for gains in ([[2.0, 0.0]], [[-5.0, 5.0]]):
    ...     weights, judged = judge(weights, np.array(gains))
    ...     weights = widen(weights, judged.largest, np.ones(2))
    ...     print(round(float(judged.used), 3), round(float(weights.bound), 3))
    0.0 2.0
    0.4 8.0
    >>> _, judged = judge(weights, np.array([[1e6, 0.0]]))
    >>> round(float(widen(weights, judged.largest, np.ones(2), most=1).bound), 3)
    16.0
    """
    xp = namespace(weights.value)
    bound, Q = weights.bound, weights.value.shape[-1]
    unknown = bound <= 0
    fits = unknown | (largest <= bound)
    doublings = xp.ceil(xp.log2(xp.where(fits, 1.0, largest)) - xp.log2(xp.where(fits, 1.0, bound)))
    doublings = at_most(doublings, Q + 1.0)  # beyond Q all step sizes are new, and any bound will do
    doublings = xp.where(bound * 2.0**doublings < largest, at_most(doublings + 1, Q + 1.0), doublings)
    if most is not None:
        doublings = at_most(doublings, float(most))
    doublings = xp.where(fits, 0.0, doublings)
    # Slightly above the largest gain, so that equal ones do not exceed it by rounding.
    above = largest * (1 + ROUNDINGS * float(xp.finfo(weights.value.dtype).eps))
    raised = xp.where(unknown | (doublings > Q), above, bound * 2.0**doublings)
    return _rescaled(weights, doublings, raised, prior)


def narrow(weights: Weights, largest: Array, prior: Array, least: float = 0.0, most: int | None = None) -> Weights:
    """Halve `B` while it bounds the largest recent gain, and shift the weights to the new step sizes.

    The smallest step sizes end, and larger ones start with the prior: after an outlier, or where gains have become
    small, experts are told apart as fast as if the large gains had never been. Streams without a recent gain are
    unchanged.

    Args:
        weights: the weights so far.
        largest: the largest recent gain, shape `(...)`.
        prior: `pi`: initial weights of new step sizes.
        least: a bound on the gains that is known; `B` does not fall below it.
        most: halvings at a time; any number by default.

    >>> import numpy as np
    >>> weights = restart(begin(np.ones(2), slots=1, Q=4, bound=64.0), np.array([True]), np.ones(2))
    >>> [float(narrow(weights, np.array(largest), np.ones(2)).bound) for largest in (0.0, 3.0, 40.0)]
    [64.0, 4.0, 64.0]
    """
    xp = namespace(weights.value)
    bound, Q = weights.bound, weights.value.shape[-1]
    tiny = smallest_value(weights.value)
    needed = at_least(largest, max(least, tiny))
    due = (bound >= 2 * needed) & (largest > 0)
    halvings = xp.floor(xp.log2(xp.where(due, bound, 1.0)) - xp.log2(xp.where(due, needed, 1.0)))
    halvings = xp.where(bound * 0.5**halvings < needed, halvings - 1, halvings)
    halvings = at_most(halvings, 2.0 * Q if most is None else float(most))  # from Q on all are new
    halvings = xp.where(due, halvings, 0.0)
    return _rescaled(weights, -halvings, xp.where(due, bound * 0.5**halvings, bound), prior)


def _rescaled(weights: Weights, places: Array, bound: Array, prior: Array) -> Weights:
    """Weights for another `B`: every step size moves down by so many places, and those without a past are born."""
    xp = namespace(weights.value)
    value, Q = weights.value, weights.value.shape[-1]
    place = constant(np.arange(Q), value)
    source = place + places[..., None]  # where the values of each place come from
    shift = xp.astype(place[:, None] == source[..., None, :], value.dtype)
    stays = (place >= places[..., None]) & (place < Q + places[..., None])
    ended = xp.where(stays[..., None, None, :], 0.0, value).sum((-3, -2, -1))
    new = prior[..., None] * xp.exp(-weights.log_unit)[..., None, None, None]
    new = xp.where(alive(weights)[..., None], at_least(new, smallest_value(value)), 0.0)
    old = (source >= 0) & (source < Q)
    value = xp.where(old[..., None, None, :], matmul(value, shift[..., None, :, :]), new)
    births = at_most(abs(places), Q) * xp.where(alive(weights), prior, 0.0).sum((-2, -1))
    weights = weights._replace(
        log_ended=_log_sum(weights.log_ended, weights.log_unit + _log(ended)),
        started=weights.started + births,
        bound=bound,
    )
    return _weighed(weights, value, weights.log_unit)


def _weighed(weights: Weights, value: Array, log_unit: Array) -> Weights:
    """The weights with new values, and the experts' weights that follow."""
    weight = matmul(value, fractions(value))
    return Weights(value, weight, weight.sum((-2, -1)), log_unit, weights.log_ended, weights.started, weights.bound)


def _log(array: Array) -> Array:
    """Logarithm, with a tiny number in place of 0."""
    xp = namespace(array)
    return xp.log(at_least(array, smallest_value(array)))


def _log_sum(a: Array, b: Array) -> Array:
    """`log(exp(a) + exp(b))`; minus infinity for an empty sum."""
    return namespace(a).logaddexp(a, b)


def _largest(value: Array) -> float:
    """Gains from here on are treated as infinite: their bound could not be doubled."""
    return 1e307 if value.dtype.itemsize == 8 else 1e37


def _nobody(healthy: Array) -> str:
    if healthy.ndim == 0:
        where = ""
    else:
        streams = [int(i) for i in np.flatnonzero(~np.asarray(healthy).ravel())[:5]]
        where = f" in stream(s) {', '.join(map(str, streams))}"
    return (
        f"every expert's gain is nan or infinite{where}; the weights are unchanged. Check the loss and the "
        "gradient of this round, and the largest learning rate."
    )
