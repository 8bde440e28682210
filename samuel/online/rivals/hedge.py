"""Hedge: the same experts for the whole run, weighted by their total losses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from samuel.core import Chosen
from samuel.core.arrays import Array, namespace
from samuel.core.options import real_array, whole_number
from samuel.online.bases.adagrad import Adagrad
from samuel.online.bases.stay import Stay
from samuel.online.domains import Domain, Simplex
from samuel.online.ensemble import default_learning_rates, positive
from samuel.online.learner import check_place
from samuel.online.rivals.rival import HORIZON, Rival, RivalRule, Weights, normalised, power


@dataclass(frozen=True, kw_only=True)
class FixedExpertsRule(RivalRule):
    """Experts that run from the first round to the last; a subclass weights them."""

    places: tuple[tuple[float, ...], ...] = ()
    """Initial points of the experts; empty to start all at the centre of the domain."""
    rate: float = 0.0
    """`a`; 0 for the default."""
    horizon: int = 0
    """Number of rounds; 0 if unknown, and the rate then falls with the round."""

    def first_points(self, decision: Array, slots: int) -> Array:
        points = self.start_points(decision, slots)
        if not self.places:
            return points
        xp = namespace(decision)
        return xp.zeros_like(points) + xp.asarray(self.places, dtype=points.dtype)

    def rate_at(self, t: Array | int, like: Array) -> Array | float:
        """`a` after `t` rounds: `sqrt(2 log N / T)` suits gains in [-1, 1]."""
        return self.rate or math.sqrt(2 * math.log(max(2, len(self.experts)))) * power(self.horizon or t, -0.5, like)


@dataclass(frozen=True, kw_only=True)
class HedgeRule(FixedExpertsRule):
    """Hedge as pure functions; `Hedge` explains them. State of an expert: the sum of its gains."""

    def born(self, like: Array, t: Array | int) -> Weights:
        return (namespace(like).zeros_like(like),)

    def rescaled(self, weights: Weights, factor: Array) -> Weights:
        return (weights[0] * factor,)

    def judge(self, weights: Weights, gains: Array, running: Array, t: Array | int) -> Weights:
        return (weights[0] + gains,)

    def weigh(self, weights: Weights, running: Array, t: Array | int) -> Array:
        return normalised(self.rate_at(t, weights[0]) * weights[0], running)


class FixedExperts(Rival):
    """Base class of learners whose experts run from the first round to the last: `Hedge` and `FixedShare`.

    Args:
        kind: the rule that weights them.
        dim: dimension of the decisions.
        domain: where they must lie; all of space by default.
        experts: points that never move, one expert each, `(experts, dim)`; on a simplex its corners by default.
            Elsewhere the experts are base learners with several learning rates, unless points are given.
        rate: `a`, for gains in [-1, 1].
        horizon: number of rounds, if known.
        settings: further fields of the rule.
        assumptions: conditions of the theory that were not given.
        options: those of every `Rival` except `newborns`.
    """

    rule: FixedExpertsRule

    def __init__(
        self,
        kind: type[FixedExpertsRule],
        dim: int,
        domain: Domain | None,
        *,
        experts: Any,
        rate: float | None,
        horizon: int | None,
        settings: dict[str, Any] | None = None,
        assumptions: tuple[str, ...] = (),
        **options: Any,
    ) -> None:
        dim, domain = check_place(dim, domain)
        if "newborns" in options:
            raise ValueError(
                f"newborns={options['newborns']!r} has no meaning here: the experts are the same for the whole run"
            )
        if rate is not None and horizon is not None:
            raise ValueError(f"give rate={rate!r} or horizon={horizon!r}, not both")
        named = [name for name in ("base", "learning_rates", "learners") if options.get(name) is not None]
        if experts is not None and named:
            raise ValueError(f"give experts or {named[0]}, not both")
        settings = dict(settings or {})
        if experts is None and not named and isinstance(domain, Simplex):
            experts = domain.total * np.eye(dim)
        if experts is not None:
            settings["places"] = places = _places(experts, domain, dim)
            options["learners"] = [Stay()] * len(places)
        elif not named:
            options |= {"base": Adagrad(), "learning_rates": default_learning_rates(Adagrad(), domain, dim)}
        if rate is not None:
            settings["rate"] = positive("rate", rate)
        elif horizon is not None:
            settings["horizon"] = whole_number("horizon", horizon, least=1)
        else:
            assumptions = (HORIZON, *assumptions)
        super().__init__(kind, dim, domain, cover=Chosen(), settings=settings, assumptions=assumptions, **options)


class Hedge(FixedExperts):
    """Hedge (weighted majority): fixed experts, with a regret bound over the whole run only.

    With gains `r` in [-1, 1] over `N` experts:

        p_i ~ exp(a sum r_i),   a = sqrt(2 log N / T),   or sqrt(2 log N / t) without a horizon

    Regret over the whole run against the best expert: `O(sqrt(T log N))`; on an interval inside it there is no
    bound (Littlestone and Warmuth 1994; Arora, Hazan and Kale 2012). It is the control that shows what blocks add.

    Args:
        dim: dimension of the decisions.
        domain: where they must lie; all of space by default.
        experts: points that never move, one expert each, `(experts, dim)`; on a simplex its corners by default.
            Elsewhere the experts are base learners, `Adagrad` with six learning rates unless others are named.
        rate: `a`, for gains in [-1, 1].
        horizon: number of rounds, if known.
        options: those of every `Rival` but `shortest` and `newborns`, and of every `Learner`.

    >>> from samuel.online import Hedge, Simplex
    >>> learner = Hedge(dim=3, domain=Simplex())
    >>> for _ in range(10):
    ...     learner.update([1.0, 0.0, 0.5])  # the losses of three experts
    >>> learner.predict().round(2)
    array([0.01, 0.92, 0.08])
    """

    def __init__(
        self,
        dim: int,
        domain: Domain | None = None,
        *,
        experts: Sequence[Any] | Any = None,
        rate: float | None = None,
        horizon: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(HedgeRule, dim, domain, experts=experts, rate=rate, horizon=horizon, **options)


def _places(experts: Any, domain: Domain, dim: int) -> tuple[tuple[float, ...], ...]:
    """Points given as experts; ValueError unless they are points of the domain."""
    points = real_array("experts", experts, float)
    if points.ndim != 2 or points.shape[1] != dim or not len(points):
        raise ValueError(f"experts must have the shape (experts, {dim}), got {points.shape}")
    inside = np.asarray(domain.contains(points))
    if not inside.all():
        outside = int(np.argmin(inside))
        raise ValueError(f"expert {outside}, {points[outside]}, is not in the domain {domain}")
    return tuple(tuple(float(number) for number in point) for point in points)
