"""Shift detector: two outlier gradients in a row mean that the data have shifted.

A gradient is an outlier if its squared norm exceeds `threshold` times the mean since the last shift *and* `threshold`
times the recent mean, so that gradients may grow slowly. A single outlier is taken for an odd batch. The detector does
not depend on learning rates: any training loop can use it.

It detects only shifts that make gradients larger: clipping before it hides them all, and new data on which the model is
about as bad as on the old (another text for a language model) change the direction of gradients, not their norm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from samuel.core.arrays import Array, flag, namespace
from samuel.core.options import between, whole_number

RECENT = 0.01
"""Weight of the newest gradient in the recent mean, after the first hundred."""


class ShiftState(NamedTuple):
    """State of a `ShiftDetector`."""

    since: Array
    """Rounds since the last shift, a whole number."""
    square: Array
    """Sum of the squared norms since then, outliers clipped."""
    recent: Array
    """Exponential moving average of the same."""
    leapt: Array
    """Whether the last gradient was an outlier."""
    shifts: Array
    """Number of shifts so far."""


@dataclass(frozen=True)
class ShiftDetector:
    """Detect a shift in the data from the squared norms of gradients.

    Args:
        threshold: ratio of a squared norm to its mean from which on it is an outlier.
        warmup: rounds at the start and after a shift without detection.

    >>> import numpy as np
    >>> detector = ShiftDetector()
    >>> state = detector.start(np.zeros(()))
    >>> for t in range(100):
    ...     state, shifted = detector.advance(state, np.array(1.0 if t < 60 else 25.0))
    ...     if shifted:
    ...         print("shift in round", t)
    shift in round 61
    """

    threshold: float = 10.0
    warmup: int = 32

    def __post_init__(self) -> None:
        between("threshold", self.threshold, 1.0, math.inf)
        whole_number("warmup", self.warmup, least=1)

    def start(self, like: Array) -> ShiftState:
        """The state before the first round; library, dtype and device are those of the scalar `like`."""
        xp = namespace(like)
        whole, zero = xp.astype(xp.zeros_like(like), xp.int32), like * 0
        return ShiftState(since=whole, square=zero, recent=zero, leapt=whole > 0, shifts=whole)

    def advance(
        self, state: ShiftState, square: Array, watching: Array | bool = True, usable: Array | bool = True
    ) -> tuple[ShiftState, Array]:
        """One round: the state after, and whether the data have shifted.

        Args:
            state: the state before.
            square: squared norm of the gradient, unclipped.
            watching: False to detect no shift (near the end of a run there is no time to learn again).
            usable: False to skip this gradient. One that is not finite adds nothing to the means.
        """
        xp = namespace(square)
        watching, usable = flag(watching, square), flag(usable, square)
        since = xp.astype(state.since, square.dtype)
        mean = state.square / xp.where(since > 0, since, xp.ones_like(since))
        usual = xp.where(mean > state.recent, mean, state.recent)
        leaps = watching & (state.since >= self.warmup) & (square > self.threshold * usual)
        finite = xp.where(square < math.inf, square, xp.zeros_like(square))
        in_proportion = xp.where(leaps, self.threshold * usual, finite)
        newest = 1 / (since + 1)
        newest = xp.where(newest > RECENT, newest, xp.zeros_like(newest) + RECENT)
        recent = state.recent + newest * (in_proportion - state.recent)
        shifted = leaps & state.leapt & usable

        zero, one = xp.zeros_like(state.since), xp.ones_like(state.since)
        after = ShiftState(
            since=xp.where(shifted, zero, state.since + 1),
            square=xp.where(shifted, 0.0, state.square + in_proportion),
            recent=xp.where(shifted, 0.0, recent),
            leapt=leaps & ~shifted,
            shifts=state.shifts + xp.where(shifted, one, zero),
        )
        return ShiftState(*(xp.where(usable, new, old) for new, old in zip(after, state, strict=True))), shifted
