"""An ordinary round of one stream in NumPy, by hand: for loops that ask and tell, where every NumPy call counts.

`SamuelRule.advance` is the reference: it serves any library, any number of streams and every rare event. This is the
same arithmetic for the commonest round of all (one stream, linear feedback, averaging, nothing rare), with half the
calls. Where anything is out of the ordinary it says so and leaves the round to the reference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from samuel.core import combine
from samuel.core.feedback import Linear
from samuel.core.weights import Weights, fractions, smallest_value

if TYPE_CHECKING:
    from samuel.core import Feedback
    from samuel.online.samuel import SamuelRule, SamuelState


def quick_round(rule: SamuelRule, state: SamuelState, feedback: Feedback) -> SamuelState | None:
    """The next state before any restart, or None if this round is not an ordinary one."""
    weights = state.weights
    if type(feedback) is not Linear or not 0.5 <= weights.mass <= 2:
        return None
    gradient, experts = feedback.gradient, weights.weight.size
    points = state.points.reshape(experts, -1)
    gains = np.dot(state.decision, gradient) - np.dot(points, gradient)
    largest = np.abs(gains).max()
    # False for nan, for a bound not yet known, and for gains that exceed it.
    if not largest <= weights.bound or weights.weight.min() <= 0 or weights.bound <= 0:
        return None
    rates = fractions(weights.value)
    factor = (gains / weights.bound)[:, None] * rates
    factor += 1
    factor *= weights.value.reshape(experts, -1)
    np.maximum(factor, smallest_value(factor), out=factor)
    weight = np.dot(factor, rates)
    mass = weight.sum()

    group = rule.groups[0]
    stepped = group.base.step(
        state.points,
        state.memory[0],
        gradient[None, None, :],
        rule.columns[0].astype(points.dtype, copy=False),
        rule.domain,
    )
    p = weight / mass
    decision = rule.domain.tidy(np.dot(p, stepped.points.reshape(experts, -1)))
    if not np.dot(decision, decision) < combine.farthest(decision) ** 2:  # False for nan
        return None
    shape = weights.weight.shape
    judged = Weights(factor.reshape(weights.value.shape), weight.reshape(shape), mass, *weights[3:])
    recent = state.recent
    if recent < largest and largest > feedback.rounding(state.decision):
        recent = largest
    return type(state)(state.round + 1, decision, stepped.points, (stepped.memory,), judged, p.reshape(shape), recent)
