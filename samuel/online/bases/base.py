"""Base class of base learners: two pure functions and, if known, a regret bound."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from samuel.core.arrays import Array, namespace
from samuel.online.domains import Domain

Memory = tuple[Array, ...]
"""Memory of a base learner: arrays whose leading axes are those of the points."""


class Stepped(NamedTuple):
    """Points and memory after a step, and the cost of an inexact projection."""

    points: Array
    memory: Memory
    error: Array | float = 0.0
    """Additional regret by an inexact projection in this step, times the learning rate; 0 if exact."""


@dataclass(frozen=True)
class Base(ABC):
    """A base learner: how an expert uses the gradients of its block.

    A subclass defines `init` and `step`, and `bound` if its regret is bounded. They take arrays of any library with any
    leading axes, so that all experts of all slots and streams step together:

        points      (..., d)     where the learners are
        gradients   (..., d)     broadcasts against the points
        memory      (..., *)     what `init` made

    Attributes:
        learning_rate: used if the learner runs alone; under SAMUEL a list of rates may replace it.

    >>> from samuel.online import Base, Stepped, Single, Ball
    >>> class SignDescent(Base):
    ...     def init(self, template):
    ...         return ()
    ...     def step(self, points, memory, gradients, learning_rate, domain):
    ...         sign = (gradients > 0) * 1.0 - (gradients < 0)
    ...         return Stepped(domain.project(points - learning_rate * sign), memory)
    >>> learner = Single(SignDescent(learning_rate=0.25), dim=2, domain=Ball(1.0))
    >>> learner.update([1.0, -3.0])
    >>> learner.predict()
    array([-0.25,  0.25])
    """

    learning_rate: float = 1.0

    remembers_gradients_only: ClassVar[bool] = False
    """True if `memory` depends on the gradients only: experts with the same gradients then share one."""

    lasting: ClassVar[bool] = False
    """True if the regret is bounded from any round on: `later_bound`."""

    def __post_init__(self) -> None:
        check_learning_rate(self.learning_rate)

    @abstractmethod
    def init(self, template: Array) -> Memory:
        """The initial memory; `template` has the shape and dtype of gradients."""

    @abstractmethod
    def step(
        self, points: Array, memory: Memory, gradients: Array, learning_rate: Array | float, domain: Domain
    ) -> Stepped:
        """Take one step from `points` and stay in the domain."""

    def bound(
        self, gradients: np.ndarray, learning_rates: np.ndarray, widths: np.ndarray, diameter: np.ndarray
    ) -> np.ndarray:
        """Upper bound on the regret over these gradients, from any start in the domain.

        Args:
            gradients: those the learner was given, shape `(rounds, rates or 1, d)`, in the precision of the run.
            learning_rates: shape `(rates,)`.
            widths: `D_i`, largest distance from the comparator in each coordinate, `(rates or 1, d)`.
            diameter: `D_2`, the same in Euclidean norm, `(rates or 1,)`.

        Returns:
            One bound per rate; infinite where none is known.
        """
        if self.lasting:
            return self.later_bound(self.init(gradients[0]), gradients, learning_rates, widths, diameter)
        return np.full(learning_rates.shape, math.inf)

    def later_bound(
        self,
        memory: Memory,
        gradients: np.ndarray,
        learning_rates: np.ndarray,
        widths: np.ndarray,
        diameter: np.ndarray,
    ) -> np.ndarray:
        """Upper bound on the regret over gradients that came after others, for a base that is `lasting`.

        Args:
            memory: before the first of them, arrays of shape `(rates or 1, *)`.
            gradients: as for `bound`.
            learning_rates: as for `bound`.
            widths: as for `bound`.
            diameter: as for `bound`.
        """
        raise NotImplementedError(f"{type(self).__name__} has no bound that starts later")

    def exp_concave_bound(
        self,
        gradients: np.ndarray,
        learning_rates: np.ndarray,
        widths: np.ndarray,
        diameter: np.ndarray,
        gains: np.ndarray,
        exp_concavity: float,
    ) -> np.ndarray:
        """Upper bound on a decision's regret on exp-concave losses beyond the sum of the learner's gains over it.

        By default `bound`, which holds for all convex losses.

        Args:
            gradients: those at the decision, as for `bound`.
            learning_rates: as for `bound`.
            widths: as for `bound`.
            diameter: as for `bound`.
            gains: of the learner over the decision, `(rounds, rates)`; 0 where it is the learner's own.
            exp_concavity: `alpha`, such that every `exp(-alpha loss)` is concave on the domain.
        """
        return self.bound(gradients, learning_rates, widths, diameter)

    def exact(self, domain: Domain) -> bool:
        """Whether `step` projects exactly, so that `Stepped.error` is always 0."""
        return True


class Group(NamedTuple):
    """Experts of a slot that differ only in their learning rate, which step together."""

    base: Base
    first: int
    learning_rates: tuple[float, ...]

    @property
    def place(self) -> slice:
        """Their indices among the experts of a slot."""
        return slice(self.first, self.first + len(self.learning_rates))


def check_learning_rate(value: Any) -> float:
    """The learning rate as a float; ValueError unless it is a positive finite number."""
    try:
        rate = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"a learning rate must be a positive number, got {value!r}") from None
    if not (math.isfinite(rate) and rate > 0):
        raise ValueError(f"a learning rate must be positive and finite, got {value!r}")
    return rate


def check_decay(name: str, value: float) -> None:
    """ValueError unless `0 <= value < 1`."""
    if not isinstance(value, int | float) or not 0 <= value < 1:
        raise ValueError(f"{name} must be at least 0 and below 1, got {value!r}")


def check_not_negative(name: str, value: float) -> None:
    """ValueError unless `value` is finite and at least 0."""
    if not isinstance(value, int | float) or not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{name} must be at least 0 and finite, got {value!r}")


def count_like(template: Array) -> Array:
    """A counter at 0 for each learner, shape `(..., 1)`."""
    return namespace(template).zeros_like(template[..., :1])


def divide(numerator: Array, denominator: Array) -> Array:
    """`numerator / denominator`, with 0 / 0 = 0: no step before the first gradient."""
    xp = namespace(denominator)
    return numerator / xp.where(denominator > 0, denominator, 1.0)
