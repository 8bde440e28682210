"""Learners whose feedback comes some rounds late, as rules that `play` can compile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from samuel.core import Feedback
from samuel.core.arrays import Array, namespace
from samuel.online.learner import Info, Pace, Rule


class DelayedState(NamedTuple):
    """The learner within, and its last decisions."""

    round: Array | int
    decision: Array
    """The decision whose feedback comes next."""
    inner: Any
    """State of the learner; its round is kept in `round` alone."""
    past: Array
    """Its last decisions, shape `(..., delay, d)`: the one after `k` rounds is at `k % delay`."""


@dataclass(frozen=True)
class Delayed(Rule):
    """A rule that learns of each decision only after `delay - 1` more decisions were made.

    In round `r` its decision is the one that the rule within made after `max(0, r - delay + 1)` rounds of feedback; its
    gradient is then fed to the rule as it is now, which is what `Learner.update` does with a ticket.

    Args:
        rule: the rule within, for linear feedback.
        delay: rounds from a decision to its feedback; 1 for none that is late.
    """

    rule: Rule
    delay: int

    @property
    def limit(self) -> int | None:
        return self.rule.limit

    @property
    def rhythm(self) -> int:
        return self.rule.rhythm

    @property
    def random(self) -> bool:
        return self.rule.random

    def start(self, zero: Array, rounds: int) -> DelayedState:
        inner = self.rule.start(zero, rounds)._replace(round=np.zeros((), np.int32))
        xp = namespace(zero)
        past = inner.decision[..., None, :] + xp.zeros((self.delay, 1), dtype=zero.dtype)
        return DelayedState(0, inner.decision, inner, past)

    def grow(self, state: DelayedState, rounds: int) -> DelayedState:
        inner = self.rule.grow(state.inner._replace(round=state.round), rounds)
        return state._replace(inner=inner._replace(round=state.inner.round))

    def advance(
        self, state: DelayedState, feedback: Feedback, chance: Array | None, record: bool, pace: Pace = "careful"
    ) -> tuple[DelayedState, Info]:
        inner, info = self.rule.advance(state.inner._replace(round=state.round), feedback, chance, False, pace)
        return self._remembered(state, inner, state.round + 1), info

    def settle(self, state: DelayedState) -> tuple[DelayedState, Array | bool]:
        inner, usual = self.rule.settle(state.inner._replace(round=state.round))
        return self._remembered(state, inner, state.round), usual

    def decision_after(self, state: DelayedState, rounds: int) -> Array:
        """The decision of a coming round, if all feedback so far was given: fewer than `delay` rounds ahead."""
        return self._at(state.past, state.round + rounds + 1)

    def _remembered(self, state: DelayedState, inner: Any, round: Array | int) -> DelayedState:
        xp = namespace(state.past)
        # Written by number, so that a decision that is settled again takes its own place.
        past = xp.where(self._place(state.past, round), inner.decision[..., None, :], state.past)
        inner = inner._replace(round=state.inner.round)
        return DelayedState(round, self._at(past, round + 1), inner, past)

    def _place(self, past: Array, number: Array | int) -> Array:
        return (namespace(past).arange(self.delay) == number % self.delay)[:, None]

    def _at(self, past: Array, number: Array | int) -> Array:
        xp = namespace(past)
        return xp.sum(xp.where(self._place(past, number), past, xp.zeros_like(past)), axis=-2)
