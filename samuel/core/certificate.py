"""The certificate: an upper bound on the regret against any expert, computed from the run itself.

For an expert `e` on a block that started in round `a`, on any prefix `[a, t]` of the block and for any rate
alive since `a`, `log(1 + z) >= z - z^2` (for `z >= -1/2`) and `v_t(e, q) <= V_t` give

    sum r(e)  <=  (L_t - log pi(e)) / eta_q  +  eta_q sum r'(e)^2  +  sum (r(e) - r'(e)),

where `L_t = log V_t` is the logarithm of the sum of `v` over all pairs ever started, and `r'` the gain that was
used (the gain itself, unless the scale was set or doubled in that round). Nothing is assumed: not convexity, not even
that the decision was made with these weights. If the decision is the average and feedback is linear (or full, on convex
losses), then `L_t <= log C_t`, with `C_t` the sum of the priors of all pairs started: that is the theorem.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from samuel.core.arrays import Array, along_slots, constant, namespace
from samuel.core.weights import Weights, log_values


def gain_bound(log_total: Array, log_prior: Array, rates: Array, square: Array, slack: Array) -> Array:
    """Upper bound on an expert's total gain, by the best of the step sizes (last axis).

    Args:
        log_total: `L_t` (measured), or `log C_t` (the theorem's); like `log_prior`, to be broadcast against `rates`.
        log_prior: `log pi(e)`, or the logarithm of what each pair was born with.
        rates: `eta_q`, shape `(..., Q)`; NaN for one that did not exist throughout.
        square: `sum r'(e)^2`.
        slack: `sum (r(e) - r'(e))`.

    >>> import numpy as np
    >>> rates = np.array([0.5, 0.25, 0.125])
    >>> float(gain_bound(np.log(8.0), np.log(1.0), rates, square=np.array(32.0), slack=np.array(0.0)))
    16.317766166719345
    """
    xp = namespace(rates)
    usable = xp.isfinite(rates) & (rates > 0)
    rate = xp.where(usable, rates, xp.ones_like(rates))
    bounds = (log_total - log_prior) / rate + rate * square[..., None]
    return xp.min(xp.where(usable, bounds, math.inf), axis=-1) + slack


def rates_alive(bound_then: Array, highest: Array, Q: int, lowest: Array | None = None) -> Array:
    """The step sizes that existed from one bound on the gains on, under all bounds since; NaN for the others.

    Args:
        bound_then: the first bound.
        highest: the highest since.
        Q: how many step sizes there are at a time.
        lowest: the lowest since; the first, if it never fell.

    >>> import numpy as np
    >>> rates_alive(np.array(1.0), np.array(2.0), Q=3)
    array([  nan, 0.25 , 0.125])
    >>> rates_alive(np.array(1.0), np.array(1.0), Q=3, lowest=np.array(0.5))
    array([0.5 , 0.25,  nan])
    """
    xp = namespace(bound_then)
    bound_then = bound_then[..., None]
    rates = constant(0.5 ** np.arange(1, Q + 1), bound_then) / xp.where(bound_then > 0, bound_then, 1.0)
    fits = (rates * highest[..., None] < 0.75) & (bound_then > 0)  # powers of two apart: 1/2 fits, 1 does not
    if lowest is not None:
        fits &= rates * lowest[..., None] > 0.75 * 2.0**-Q
    return xp.where(fits, rates, math.nan)


class Ledger(NamedTuple):
    """Running sums over each expert's current block, from which the certificate is computed.

    For runs without a record, such as an optimizer that trains a network and carries a ledger in its state. With a
    record, the same sums are differences of cumulative sums.
    """

    gain: Array
    """`sum r(e)`, shape `(..., slots, experts)`."""
    used: Array
    """`sum r'(e)`, the gains that the weights were updated with."""
    square: Array
    """`sum r'(e)^2`."""
    log_birth: Array
    """`log v` of every pair when its block began, `(..., slots, experts, Q)`; for a fresh newborn, `log pi`."""
    bound: Array
    """Bound on the gains at the block's start, or the first known after it; shape `(..., slots)`."""


def open_ledger(weights: Weights) -> Ledger:
    """An empty ledger for experts that start with these weights."""
    xp = namespace(weights.value)
    zero = xp.zeros_like(weights.weight)
    return Ledger(zero, zero, zero, log_values(weights), weights.bound[..., None] + zero[..., 0])


def enter(ledger: Ledger, gains: Array, used_gains: Array, bound: Array) -> Ledger:
    """Add one round: its gains, those the weights were updated with, and the bound on gains before it."""
    xp = namespace(gains)
    known = xp.where(ledger.bound > 0, ledger.bound, bound[..., None])
    return ledger._replace(
        gain=ledger.gain + gains,
        used=ledger.used + used_gains,
        square=ledger.square + used_gains**2,
        bound=known,
    )


def reset(ledger: Ledger, starts: Array, weights: Weights) -> Ledger:
    """Reset the sums of the marked slots, for experts that start with these weights."""
    xp = namespace(ledger.gain)
    starts = xp.asarray(starts)
    fresh = open_ledger(weights)

    def chosen(new: Array, old: Array) -> Array:
        slots_at = weights.weight.ndim - 2
        return xp.where(along_slots(starts, old, batch_axes=slots_at), new, old)

    return Ledger(*(chosen(new, old) for new, old in zip(fresh, ledger, strict=True)))


def running_bound(ledger: Ledger, log_total: Array, bound: Array) -> Array:
    """Upper bound on the regret of the decisions against each expert of the running blocks.

    Args:
        ledger: the sums of the running blocks.
        log_total: `L` after the last round entered.
        bound: the bound on gains before the last round entered.

    >>> import numpy as np
    >>> from samuel.core import weights as mw
    >>> weights = mw.restart(mw.begin(np.ones(2), slots=1, Q=2, bound=1.0), np.array([True]), np.ones(2))
    >>> gains = np.array([[0.5, -0.5]])
    >>> ledger = enter(open_ledger(weights), gains, gains, weights.bound)
    >>> weights, _ = mw.judge(weights, gains)
    >>> running_bound(ledger, mw.log_total(weights), weights.bound).round(2)
    array([[2.9, 2.9]])
    """
    xp = namespace(ledger.gain)
    rates = rates_alive(ledger.bound, bound[..., None], ledger.log_birth.shape[-1])[..., None, :]
    rates = rates + xp.zeros_like(ledger.log_birth)
    bounds = gain_bound(log_total[..., None, None, None], ledger.log_birth, rates, ledger.square, -ledger.used)
    # No scale known since the block began: no weight has moved, so the gains themselves are the bound.
    return ledger.gain + xp.where((ledger.bound > 0)[..., None], bounds, 0.0)
