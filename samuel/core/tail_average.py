"""Tail average: the running average of the parameters over the last part of training since the last restart.

    average <- average + pace (parameters - average),        pace = (power + 1) / (t + power + 1)

after `t` rounds since the restart weighs round `i` by about `i^power` (polynomial-decay averaging, Shamir and Zhang,
ICML 2013): an average over about the last `1 / (power + 1)` of them, whatever the length of the run. It does not depend
on learning rates: any optimizer can use it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from samuel.core.arrays import Array, flag, namespace
from samuel.core.options import between


class TailState(NamedTuple):
    """State of a `TailAverage`."""

    count: Array
    """Rounds since the last restart."""
    pace: Array
    """Weight of the parameters in the last update of the average."""


@dataclass(frozen=True)
class TailAverage:
    """Average the parameters over the last part of a run.

    Args:
        power: exponent of the weights over time: 8 averages about the last ninth.

    >>> import numpy as np
    >>> tail = TailAverage(power=1)
    >>> state, mean = tail.start(np.zeros(())), 0.0  # the average begins with the parameters as they are
    >>> for x in (3.0, 6.0, 9.0):
    ...     state = tail.advance(state)
    ...     mean += state.pace * (x - mean)
    >>> round(float(mean), 3)
    6.0
    """

    power: float = 8.0

    def __post_init__(self) -> None:
        between("power", self.power, 0.0, math.inf)

    def start(self, like: Array) -> TailState:
        """The state before the first round; library, dtype and device are those of the scalar `like`."""
        return TailState(count=like * 0, pace=like * 0 + 1)

    def advance(self, state: TailState, restarted: Array | bool = False, usable: Array | bool = True) -> TailState:
        """One round: the state after it, with the pace of the average.

        Args:
            state: the state before.
            restarted: whether the average restarts from the current parameters.
            usable: False to leave the average unchanged in this round.
        """
        xp = namespace(state.count)
        restarted, usable = flag(restarted, state.count), flag(usable, state.count)
        count = xp.where(restarted, 0.0, state.count + 1)
        pace = (self.power + 1) / (count + self.power + 1)
        return TailState(xp.where(usable, count, state.count), xp.where(usable, pace, 0.0))
