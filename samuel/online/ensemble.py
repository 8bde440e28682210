"""Base class of learners with many experts on the blocks of a cover.

`EnsembleRule` holds the experts' points, performs their steps and starts new ones where a block begins. Subclasses
weight the experts: SAMUEL (`samuel.online.samuel`) and its rivals (`samuel.online.rivals`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from samuel.core import Cover, Feedback
from samuel.core.arrays import Array, along_slots, constant, namespace
from samuel.online.bases.adagrad import Adagrad
from samuel.online.bases.base import Base, Group, check_learning_rate
from samuel.online.bases.relative_ogd import RelativeOGD
from samuel.online.domains import Domain
from samuel.online.learner import Rule

NEWBORNS = ("warm", "cold")


@dataclass(frozen=True, kw_only=True)
class EnsembleRule(Rule):
    """Experts on the blocks of a cover; a subclass weights them.

    A state also has `points` `(..., slots, experts, d)` and `memory`, one entry per group of equal base learners.
    """

    experts: tuple[Base, ...]
    cover: Cover
    newborns: str
    feedback: str = "linear"

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """The experts of a slot, with neighbours that differ only in their learning rate grouped."""
        groups: list[Group] = []
        for place, base in enumerate(self.experts):
            kind = replace(base, learning_rate=1.0)
            if groups and groups[-1].base == kind:
                last = groups[-1]
                groups[-1] = last._replace(learning_rates=(*last.learning_rates, base.learning_rate))
            else:
                groups.append(Group(kind, place, (base.learning_rate,)))
        return tuple(groups)

    @cached_property
    def columns(self) -> tuple[np.ndarray, ...]:
        """The learning rates of each group, to be broadcast against its points."""
        return tuple(np.asarray(group.learning_rates)[:, None] for group in self.groups)

    @property
    def limit(self) -> int | None:
        return self.cover.limit

    @property
    def exact(self) -> bool:
        """Whether all projections are exact."""
        return all(group.base.exact(self.domain) for group in self.groups)

    def points(self, state: Any) -> Array:
        return state.points

    def room(self, base: Base) -> Domain:
        """Where a base learner's experts lie."""
        return self.domain

    def start_points(self, decision: Array, slots: int) -> Array:
        """Initial points of experts: all at the decision."""
        xp = namespace(decision)
        points = xp.zeros((*decision.shape[:-1], slots, len(self.experts), self.dim), dtype=decision.dtype)
        return points + decision[..., None, None, :]

    def take_steps(self, state: Any, feedback: Feedback) -> tuple[Array, tuple[Any, ...], Array | float]:
        """The experts' points and memory after a step of their base learners, and the errors of projections."""
        xp = namespace(state.points)
        gradients = feedback.expert_gradients
        stepped = []
        for group, column, memory in zip(self.groups, self.columns, state.memory, strict=True):
            alone = len(self.groups) == 1
            own = gradients if gradients.shape[-2] == 1 or alone else gradients[..., group.place, :]
            points = state.points if alone else state.points[..., group.place, :]
            rates = constant(column, points)
            stepped.append(group.base.step(points, memory, own, rates, self.room(group.base)))
        memory = tuple(step.memory for step in stepped)
        if len(stepped) == 1:
            return stepped[0].points, memory, stepped[0].error
        points = xp.concat([step.points for step in stepped], axis=-2)
        zero = xp.zeros_like(points[..., 0])
        error = xp.concat(
            [step.error + zero[..., group.place] for group, step in zip(self.groups, stepped, strict=True)],
            axis=-1,
        )
        return points, memory, error

    def grown(self, state: Any, slots: int) -> tuple[Array, tuple[tuple[Array, ...], ...]]:
        """Points and memory extended to more slots."""
        xp = namespace(state.points)
        batch = state.points.ndim - 3
        room = self.start_points(state.decision, slots - state.points.shape[-3])
        memory = tuple(
            tuple(xp.concat(pair, axis=batch) for pair in zip(old, new, strict=True))
            for old, new in zip(state.memory, self.fresh(room), strict=True)
        )
        return xp.concat([state.points, room], axis=-3), memory

    def reborn(self, state: Any, starts: Array, origin: Array) -> tuple[Array, tuple[tuple[Array, ...], ...]]:
        """Points and memory with the experts of starting slots reset to the given origin."""
        xp = namespace(state.points)
        batch = state.decision.ndim - 1
        points = xp.where(along_slots(starts, state.points, batch), origin, state.points)
        memory = tuple(
            tuple(xp.where(along_slots(starts, old, batch), new, old) for old, new in zip(*pair, strict=True))
            for pair in zip(state.memory, self.fresh(state.points), strict=True)
        )
        return points, memory

    def fresh(self, points: Array) -> tuple[tuple[Array, ...], ...]:
        """Initial memory of base learners, for points of that shape."""
        zero = namespace(points).zeros_like(points)
        alike = self.feedback != "full"  # every expert of a slot is given the same gradient
        return tuple(
            group.base.init(
                zero[..., :1, :] if alike and group.base.remembers_gradients_only else zero[..., group.place, :]
            )
            for group in self.groups
        )

    def center(self, like: Array) -> Array:
        """The centre of the domain, the first decision."""
        return namespace(like).asarray(self.domain.center_point(self.dim), dtype=like.dtype)


def choose_experts(
    base: Base | None,
    learning_rates: Sequence[float] | None,
    learners: Sequence[Base] | None,
    domain: Domain,
    dim: int,
    default: Base,
) -> tuple[Base, ...]:
    """The experts of a slot from the options: a list of base learners, or one with a list of learning rates."""
    if learners is not None:
        if base is not None or learning_rates is not None:
            raise ValueError("give either learners or base and learning_rates, not both")
        learners = listed("learners", learners)
        for learner in learners:
            if not isinstance(learner, Base):
                raise ValueError(f"learners must be base learners such as OGD(0.1), got {learner!r}")
        return tuple(learners)
    base = default if base is None else base
    if not isinstance(base, Base):
        raise ValueError(f"base must be a base learner such as Adagrad(), got {base!r}")
    if learning_rates is None:
        learning_rates = default_learning_rates(base, domain, dim)
    rates = listed("learning_rates", learning_rates)
    return tuple(replace(base, learning_rate=check_learning_rate(rate)) for rate in rates)


def long_lived_experts(domain: Domain, dim: int) -> tuple[tuple[Base, ...], tuple[float, ...]]:
    """The experts of the default `Samuel` on a bounded domain, which never start anew, and their priors.

    Priors are `(rate / reach)^(-1/2)`, where `reach` is the size of the domain, and for descent a quarter of that: a
    run begins with small steps, and only the logarithm of a prior enters the regret bound.

    >>> from samuel.online import Ball
    >>> experts, priors = long_lived_experts(Ball(1.0), dim=2)
    >>> len(experts), [round(prior, 2) for prior in priors[-2:]]
    (13, [0.5, 0.25])
    """
    bases = (Adagrad(), 1.0), (RelativeOGD(), 0.25)
    experts, priors = [], []
    for base, share in bases:
        rates = default_learning_rates(base, domain, dim)
        if isinstance(base, Adagrad):
            rates = (*rates, 4 * rates[-1])
        experts += [replace(base, learning_rate=rate) for rate in rates]
        priors += [share * (rate / _reach(base, domain, dim)) ** -0.5 for rate in rates]
    return tuple(experts), tuple(priors)


def default_learning_rates(base: Base, domain: Domain, dim: int) -> tuple[float, ...]:
    """Candidates for a scale-free base: the minimax rate, and smaller ones.

    >>> from samuel.online import Adagrad, Ball
    >>> [round(rate, 4) for rate in default_learning_rates(Adagrad(), Ball(1.0), dim=2)]
    [0.0014, 0.0055, 0.0221, 0.0884, 0.3536, 1.4142]
    """
    if not domain.bounded:
        return (0.001, 0.01, 0.1, 1.0, 10.0)
    largest = _reach(base, domain, dim) / (1 if isinstance(base, RelativeOGD) else math.sqrt(2))
    return tuple(largest / 4.0**power for power in (5, 4, 3, 2, 1, 0))


def _reach(base: Base, domain: Domain, dim: int) -> float:
    """The size of a bounded domain for a base learner: the width of a coordinate, or the diameter."""
    return max(domain.widths(dim)) if isinstance(base, Adagrad) else domain.diameter(dim)


def listed(name: str, values: Any) -> tuple[Any, ...]:
    """A non-empty list as a tuple; ValueError otherwise."""
    try:
        listed = tuple(values)
    except TypeError:
        raise ValueError(f"{name} must be a list, got {values!r}") from None
    if not listed:
        raise ValueError(f"{name} is empty: give at least one")
    return listed


def positive(name: str, value: Any) -> float:
    """A number as a float; ValueError unless it is positive and finite."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(value, str) or not (math.isfinite(number) and number > 0):
        raise ValueError(f"{name} must be positive and finite, got {value!r}")
    return number
