"""Multiplicative weights with many step sizes, for experts that come and go.

Every expert `e` is kept `Q` times, with the rates `eta_q = 1 / (B 2^q)`, `q = 1..Q`, where `B` bounds the gains.
A pair `(e, q)` is born with `v = pi(e)`, its prior, and lives by

    v <- v * (1 + eta_q r(e)),        w(e, q) = eta_q v(e, q),        p(e) = sum_q w(e, q) / sum w.

`r(e)` is the gain of the expert: how much better than the decision it was. Since `|eta_q r| <= 1/2`, a weight
never becomes negative.

**Range.** Over a long block `v` spans more orders of magnitude than a float holds. We keep `v` as a share of its
sum, `value`, and the logarithm of the sum, `log_sum`: the range of logarithms, without a logarithm and an
exponential per pair and round. A share that would vanish is held at the smallest safe number instead; that only
makes weights larger, so every bound that rests on `log v <= L` stays true, and moves the decision by less than
rounding does.

**Unknown scale.** With no bound given, the first gains that are not all zero set `B` (and move no weight). When
later gains exceed `B`, all gains of that round are shrunk alike (one by one would bias the mixture), then `B`
doubles until it holds them. A rate that is now too large ends, and a new smallest one is born with the prior.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from samuel.core.arrays import Array, along_slots, is_traced, log_add, namespace, where_needed


class NoHealthyExpert(ArithmeticError):
    """Raised when not one expert is left whose numbers are finite. The state is as it was before."""


class Weights(NamedTuple):
    """The weights of `slots x experts x Q` pairs, for any number of independent streams (leading axes)."""

    value: Array
    """`v` of every living pair as a share of their sum, shape `(..., slots, experts, Q)`; 0 = closed or removed."""
    log_sum: Array
    """Logarithm of the sum of `v` over the living, shape `(...)`; minus infinity when no one lives."""
    log_ended: Array
    """The same for all pairs that have ended, frozen at their last value."""
    started: Array
    """`C`: the sum of the priors of all pairs ever started."""
    bound: Array
    """`B`, the bound on the gains; 0 as long as it is unknown."""
    fraction: Array
    """`eta_q B = 2^-q` for each of the `Q` places, shape `(..., Q)`; in any order once `B` has doubled."""


class Judged(NamedTuple):
    """What a round's judgement used, beside the new weights."""

    used: Array
    """Factor between the gains and the gains the weights were updated with, in [0, 1], shape `(...)`."""
    log_total: Array
    """`L`: logarithm of the sum of `v` over all pairs ever started, the ended ones frozen."""
    healthy: Array
    """False where a stream had no expert with a finite gain; its weights are then as they were."""


def number_of_rates(
    rounds: int | None = None,
    dim: int | None = None,
    diameter: float | None = None,
    gradient_bound: float | None = None,
) -> int:
    """How many rates `Q` are enough.

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
    """Weights with every slot closed; `restart` opens them.

    Args:
        prior: `pi`, one positive number per expert of a slot; its library and dtype are used throughout.
        slots: how many slots.
        Q: how many rates each expert is kept with.
        batch: leading axes, one entry per independent stream.
        bound: `B`, a known bound on the gains; 0 to find it out.

    >>> import numpy as np
    >>> weights = restart(begin(np.ones(2), slots=1, Q=3), np.array([True]), np.ones(2))
    >>> shares(weights)
    array([[0.5, 0.5]])
    """
    xp = namespace(prior)
    like = {"dtype": prior.dtype}
    fraction = 2.0 ** -xp.arange(1, Q + 1, **like)
    return Weights(
        value=xp.zeros((*batch, slots, prior.shape[-1], Q), **like),
        log_sum=xp.full(batch, -math.inf, **like),
        log_ended=xp.full(batch, -math.inf, **like),
        started=xp.zeros(batch, **like),
        bound=xp.full(batch, float(bound), **like),
        fraction=xp.broadcast_to(fraction, (*batch, Q)) + xp.zeros((*batch, Q), **like),
    )


def grow(weights: Weights, slots: int) -> Weights:
    """The same weights with room for more slots, closed as yet.

    >>> import numpy as np
    >>> grow(begin(np.ones(2), slots=1, Q=3), slots=4).value.shape
    (4, 2, 3)
    """
    xp = namespace(weights.value)
    *batch, have, experts, Q = weights.value.shape
    room = xp.zeros((*batch, slots - have, experts, Q), dtype=weights.value.dtype)
    return weights._replace(value=xp.concat([weights.value, room], axis=-3))


def alive(weights: Weights) -> Array:
    """Which experts take part: their slot is open and their numbers are finite. Shape `(..., slots, experts)`."""
    return weights.value[..., 0] > 0


def shares(weights: Weights) -> Array:
    """`p(e)`, the weight of each expert: not negative, summing to 1. Shape `(..., slots, experts)`.

    >>> import numpy as np
    >>> weights = restart(begin(np.ones(2), slots=1, Q=1, bound=1.0), np.array([True]), np.ones(2))
    >>> weights, _ = judge(weights, np.array([[0.5, -0.5]]), np.ones(2))
    >>> shares(weights)
    array([[0.625, 0.375]])
    """
    xp = namespace(weights.value)
    weight = xp.sum(weights.value * weights.fraction[..., None, None, :], axis=-1)
    return weight / xp.sum(weight, axis=(-2, -1), keepdims=True)


def log_total(weights: Weights) -> Array:
    """`L`: the logarithm of the sum of `v` over all pairs ever started, the ended ones frozen."""
    return log_add(weights.log_ended, weights.log_sum)


def judge(weights: Weights, gains: Array, prior: Array) -> tuple[Weights, Judged]:
    """Reward every expert for its gain in this round.

    A gain that is nan or infinite takes the expert's weight away until its slot restarts. If a stream has no
    finite gain at all, `NoHealthyExpert` is raised; under tracing, where nothing can be raised, that stream's
    weights stay as they were and `Judged.healthy` says so.

    Args:
        weights: the weights the decision was made with.
        gains: `r(e)`, shape `(..., slots, experts)`; ignored where an expert does not take part.
        prior: `pi`, as given to `begin`: new rates start with it when the scale doubles.

    >>> import numpy as np
    >>> weights = restart(begin(np.ones(3), slots=1, Q=4), np.array([True]), np.ones(3))
    >>> weights, _ = judge(weights, np.array([[2.0, 0.0, np.nan]]), np.ones(3))  # sets the scale
    >>> float(weights.bound), shares(weights)
    (2.0, array([[0.5, 0.5, 0. ]]))
    """
    xp = namespace(gains)
    value, bound = weights.value, weights.bound
    good = xp.isfinite(gains) & alive(weights)
    healthy = xp.any(good, axis=(-2, -1))
    if not is_traced(healthy) and not bool(xp.all(healthy)):
        raise NoHealthyExpert(_nobody(healthy))

    gains = xp.where(good, gains, xp.zeros_like(gains))
    largest = xp.max(xp.abs(gains), axis=(-2, -1))
    # Gains over their bound; 0 in the round that sets it. Everything below is in these units.
    unit = xp.maximum(bound, largest)
    relative = gains * xp.where(bound > 0, 1 / xp.where(unit > 0, unit, 1.0), 0.0)[..., None, None]
    floor = _smallest(value)
    value = xp.maximum(value * (1 + weights.fraction[..., None, None, :] * relative[..., None]), floor)
    value = xp.where(good[..., None], value, xp.zeros_like(value))
    value, log_sum = _normalised(value, weights.log_sum)
    kept = healthy[..., None, None, None]
    value, log_sum = xp.where(kept, value, weights.value), xp.where(healthy, log_sum, weights.log_sum)

    used = xp.where(bound > 0, bound / xp.where(unit > 0, unit, 1.0), 0.0)
    weights = weights._replace(value=value, log_sum=log_sum)
    weights = where_needed(largest > bound, lambda w: _widen(w, largest, prior), weights)
    return weights, Judged(used=used, log_total=log_total(weights), healthy=healthy)


def restart(weights: Weights, starts: Array, prior: Array, inherit: bool = False) -> Weights:
    """Start the marked slots anew: each of their experts begins with its prior.

    Args:
        weights: the weights so far.
        starts: which slots start a block, shape `(slots,)`.
        prior: `pi`, one number per expert of a slot.
        inherit: let newborns keep what their slot had and *add* the prior, `v <- v + pi`. The sum of all `v`
            then grows by the prior alone, as it does for a fresh start, so the certificate stays whole.

    >>> import numpy as np
    >>> weights = begin(np.ones(2), slots=2, Q=3)
    >>> shares(restart(weights, np.array([True, False]), np.ones(2)))
    array([[0.5, 0.5],
           [0. , 0. ]])
    """
    xp = namespace(weights.value)
    mask = along_slots(xp.asarray(starts), weights.value, batch_axes=weights.value.ndim - 3)
    # Old and new in one unit: whichever of the two is larger.
    unit = xp.maximum(weights.log_sum, xp.zeros_like(weights.log_sum))
    old = weights.value * xp.exp(weights.log_sum - unit)[..., None, None, None]
    new = prior[..., :, None] * xp.exp(-unit)[..., None, None, None]
    if inherit:
        log_ended = weights.log_ended
        new = new + old
    else:
        ended = xp.sum(xp.where(mask, old, xp.zeros_like(old)), axis=(-3, -2, -1))
        log_ended = log_add(weights.log_ended, unit + _log(ended))
    value, log_sum = _normalised(xp.where(mask, new, old), unit)
    count = xp.sum(xp.astype(mask, prior.dtype)) * xp.sum(prior) * weights.value.shape[-1]
    return weights._replace(
        value=value, log_sum=log_sum, log_ended=log_ended, started=weights.started + count
    )


def remove(weights: Weights, keep: Array) -> Weights:
    """Take the weight of some experts away until their slot restarts.

    Args:
        weights: the weights so far.
        keep: which experts stay, shape `(..., slots, experts)`.

    Raises:
        NoHealthyExpert: if no expert of a stream would be left (under tracing that stream stays as it was).
    """
    xp = namespace(weights.value)
    value = xp.where(keep[..., None], weights.value, xp.zeros_like(weights.value))
    healthy = xp.any(value[..., 0] > 0, axis=(-2, -1))
    if not is_traced(healthy) and not bool(xp.all(healthy)):
        raise NoHealthyExpert(_nobody(healthy))
    value, log_sum = _normalised(value, weights.log_sum)
    kept = healthy[..., None, None, None]
    return weights._replace(
        value=xp.where(kept, value, weights.value), log_sum=xp.where(healthy, log_sum, weights.log_sum)
    )


def _widen(weights: Weights, largest: Array, prior: Array) -> Weights:
    """Raise `B` to hold the largest gain; rates that are now too large give way to smaller ones."""
    xp = namespace(weights.value)
    bound, Q = weights.bound, weights.value.shape[-1]
    unknown = bound <= 0
    ratio = largest / xp.where(unknown, xp.ones_like(bound), bound)
    doublings = xp.ceil(xp.log2(xp.where(unknown | (ratio <= 1), xp.ones_like(ratio), ratio)))
    doubled = bound * 2.0**doublings
    doublings = xp.where(doubled < largest, doublings + 1, doublings)  # log2 may round down
    doublings = xp.where(unknown, xp.zeros_like(doublings), doublings)
    bound = xp.where(unknown, largest, bound * 2.0**doublings)

    q = doublings[..., None] + xp.round(xp.log2(weights.fraction))  # of eta_q times the new bound
    too_large = q > -0.5  # that is, not at most 1/2
    q = q - Q * xp.where(too_large, xp.floor(q / Q) + 1, xp.zeros_like(q))
    fraction = 2.0**q

    places = too_large[..., None, None, :]
    value = weights.value
    dropped = xp.sum(xp.where(places, value, xp.zeros_like(value)), axis=(-3, -2, -1))
    open_pairs = alive(weights)[..., None]
    born = prior[..., :, None] * xp.exp(-weights.log_sum)[..., None, None, None]
    born = xp.where(open_pairs, xp.maximum(born, _smallest(value)), xp.zeros_like(value))
    births = xp.sum(xp.where(open_pairs & places, prior[..., :, None], xp.zeros_like(value)), axis=(-3, -2, -1))
    log_ended = log_add(weights.log_ended, weights.log_sum + _log(dropped))
    value, log_sum = _normalised(xp.where(places, born, value), weights.log_sum)
    return Weights(value, log_sum, log_ended, weights.started + births, bound, fraction)


def _normalised(value: Array, log_unit: Array) -> tuple[Array, Array]:
    """Values in units of `exp(log_unit)`, as shares of their sum and the logarithm of that sum."""
    xp = namespace(value)
    total = xp.sum(value, axis=(-3, -2, -1))
    safe = xp.where(total > 0, total, xp.ones_like(total))
    return value / safe[..., None, None, None], log_unit + _log(total)


def _log(array: Array) -> Array:
    """Logarithm, with log 0 = -inf said on purpose."""
    xp = namespace(array)
    positive = array > 0
    return xp.where(positive, xp.log(xp.where(positive, array, xp.ones_like(array))), -math.inf)


def _smallest(value: Array) -> float:
    """A share that can still be halved and multiplied by the smallest rate without becoming 0."""
    return float(namespace(value).finfo(value.dtype).smallest_normal) * 2.0**26


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
