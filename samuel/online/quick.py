"""An ordinary round of one stream in NumPy, by hand: for loops that predict and update, where every NumPy call counts.

`SamuelRule.advance` is the reference: it serves any library, any number of streams and every rare event. This is the
same arithmetic for the commonest round of all (one stream, linear feedback, averaging, nothing rare), with a fraction
of the calls. Where anything is out of the ordinary it says so and leaves the round to the reference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from samuel.core import combine
from samuel.core.feedback import Linear
from samuel.core.round import is_look
from samuel.core.weights import Weights, fractions, smallest_value
from samuel.online.bases.adagrad import COORDINATE_FLOOR, Adagrad
from samuel.online.bases.relative_ogd import RelativeOGD
from samuel.online.domains import Box, Domain

if TYPE_CHECKING:
    from samuel.core import Feedback
    from samuel.online.samuel import SamuelRule, SamuelState


def quick_round(rule: SamuelRule, state: SamuelState, feedback: Feedback) -> SamuelState | None:
    """The next state before any restart, or None if this round is not an ordinary one."""
    if type(feedback) is not Linear:
        return None
    gradient, experts = feedback.gradient, state.weights.weight.size
    points = state.points.reshape(experts, -1)
    judged = _judged(state.weights, np.dot(state.decision, gradient) - np.dot(points, gradient))
    if judged is None:
        return None
    weights, largest = judged
    group = rule.groups[0]
    stepped = group.base.step(
        state.points,
        state.memory[0],
        gradient[None, None, :],
        rule.columns[0].astype(points.dtype, copy=False),
        rule.domain,
    )
    p = weights.weight / weights.mass
    decision = rule.domain.tidy(np.dot(p.reshape(-1), stepped.points.reshape(experts, -1)))
    if not np.dot(decision, decision) < combine.farthest(decision) ** 2:  # False for nan
        return None
    recent = _recent(state, feedback, largest)
    return type(state)(state.round + 1, decision, stepped.points, (stepped.memory,), weights, p, recent)


def _judged(weights: Weights, gains: np.ndarray) -> tuple[Weights, float] | None:
    """The weights after these gains, and the largest of them; None if not all are ordinary."""
    bound, value = weights.bound, weights.value
    largest = max(np.maximum.reduce(gains), -np.minimum.reduce(gains))
    # False for nan, for a bound not yet known, and for gains that exceed it.
    if not (largest <= bound and bound > 0 and 0.5 <= weights.mass <= 2):
        return None
    if not np.minimum.reduce(weights.weight, axis=None) > 0:
        return None
    rates = fractions(value)
    factor = np.multiply((gains / bound)[:, None], rates)
    factor += 1
    factor = factor.reshape(value.shape)
    factor *= value
    np.maximum(factor, smallest_value(factor), out=factor)
    weight = np.dot(factor, rates)
    return Weights(factor, weight, np.add.reduce(weight, axis=None), *weights[3:]), largest


def _recent(state: SamuelState, feedback: Linear, largest: float) -> float:
    if state.recent < largest and largest > feedback.rounding(state.decision):
        return largest
    return state.recent


class LongLived(NamedTuple):
    """Constants of `long_lived_round`: rates as columns, and where the experts lie."""

    adagrad: np.ndarray
    descent: np.ndarray
    low: float
    high: float
    radius: float | None
    """Of the ball; None in a box."""
    prior: np.ndarray
    births: float


def long_lived(rule: SamuelRule) -> LongLived | None:
    """The constants of a rule over the default experts, or None if its rounds are left to the reference."""
    bases = [group.base for group in rule.groups]
    if not rule.cover.lasting or bases != [Adagrad(), RelativeOGD()]:
        return None
    domain: Domain = rule.domain
    if rule.lifted is not None and not rule.lifted.center:
        low, high, radius = -rule.lifted.radius, rule.lifted.radius, rule.lifted.radius
    elif isinstance(domain, Box) and isinstance(domain.low, float) and isinstance(domain.high, float):
        low, high, radius = domain.low, domain.high, None
    else:
        return None
    prior = np.asarray(rule.prior)
    adagrad, descent = rule.columns
    return LongLived(adagrad, descent, low, high, radius, prior[:, None], float(prior.sum() * rule.Q))


def long_lived_round(rule: SamuelRule, state: SamuelState, feedback: Feedback) -> SamuelState | None:
    """The next state with all that is due, or None if this round is not an ordinary one."""
    table = rule.long_lived
    ((squares,), (unit,)) = state.memory
    dtype = state.points.dtype
    if table is None or type(feedback) is not Linear or not unit[0, 0, 0] > 0 or dtype != np.float64:
        return None
    gradient, points, radius = feedback.gradient, state.points[0], table.radius
    mean = state.decision
    if rule.lifted is not None and radius is not None:
        mean = np.dot(state.p[0], points)
        if np.dot(mean, mean) > radius * radius:
            gradient = rule.lifted.inward(mean, gradient)
    judged = _judged(state.weights, np.dot(mean, gradient) - np.dot(points, gradient))
    if judged is None:
        return None
    weights, largest = judged

    squares = squares + gradient * gradient
    metric = np.sqrt(squares[0, 0])
    metric += COORDINATE_FLOOR * np.maximum.reduce(metric)
    first = len(table.adagrad)
    points = points.copy()
    boxed, free = points[:first], points[first:]
    boxed -= table.adagrad * (gradient / metric)
    free -= table.descent * (gradient / unit[0, 0, 0])
    clipped = points if radius is None else boxed
    np.maximum(clipped, table.low, out=clipped)
    np.minimum(clipped, table.high, out=clipped)
    if radius is not None and np.maximum.reduce(np.vecdot(free, free)) > radius * radius:
        free[:] = rule.domain.project(free)

    after = state.round + 1
    if after % rule.cover.rhythm == 0:
        if is_look(after, rule.cover.rhythm):
            return None
        weights = _endowed(weights, table)
    p = weights.weight / weights.mass
    decision = np.dot(p[0], points)
    if radius is None:
        decision = rule.domain.tidy(decision)
    elif np.dot(decision, decision) > radius * radius:
        decision = rule.domain.project(decision)
    if not np.dot(decision, decision) < combine.farthest(decision) ** 2:  # False for nan
        return None
    recent = _recent(state, Linear(gradient), largest)
    return type(state)(after, decision, points[None], ((squares,), (unit,)), weights, p, recent)


def _endowed(weights: Weights, table: LongLived) -> Weights:
    """The weights where a block starts: every pair is given its prior."""
    value = weights.value + table.prior * np.exp(-weights.log_unit)
    weight = np.dot(value, fractions(value))
    mass = np.add.reduce(weight, axis=None)
    return weights._replace(value=value, weight=weight, mass=mass, started=weights.started + table.births)
