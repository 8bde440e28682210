"""Learning-rate search: all candidate rates of one block, evaluated by two dot products with the gradient.

With `c` the parameters at the block's start and `s` the sum of the base's unit steps since, rate `lr_j` would stand at

    x_j = c - lr_j s,        and the parameters are the mean of these points,    x = sum_j p_j x_j = c - m s.

Each rate is evaluated by the gradient `g` at its lagged point, `s` minus the lag `l` (a moving sum of the last steps):

    gain_j = (lr_j - sum_i p_i lr_i) <g, s - l>,        in units of 4 times its own root mean square.

A gain updates the weights of its rate as in `samuel.core.weights`, with `Q` step sizes `eta`, and its evidence weight
falls with the age of the block. The cost for `n` parameters is two vectors, `s` and `l`:

    update = slide * s + along * d
    s, l   = keep * s + enter * d,  lag * (keep * l + enter * d)        (both 0 at a restart)

The scalars come from `RateSearch.advance`; `d` is the base's direction, uphill as a gradient is. Leading axes of the
arrays are independent searches. The rule descends from the paper's algorithm (Lu, Xia, Arora and Hazan, 2022, "Adaptive
Gradient Methods with Local Guarantees"), and its theorem does not cover it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from samuel.core.arrays import ROUNDINGS, Array, at_least, constant, flag, namespace
from samuel.core.options import between, candidate_rates, whole_number
from samuel.core.weights import fractions, smallest_value

UNIT = 4.0
"""Gains are clipped at this many times their root mean square."""
FADING = 1.5
"""Round `n` of a block has the evidence weight `(1 + n / settle) ** -FADING`; `n + memory` in place of `n` after a
shift."""
REBOUND = 0.5
"""After a shift with `memory`, rates begin at this fraction and reach their full size after `settle` rounds: evidence
against rates that are too large has little weight then."""
RETREAT = 0.25
"""After a blow-up, rates above this fraction of the mean rate are dropped for the rest of the block."""


def usual_rates(lowest: int, highest: int) -> tuple[float, ...]:
    """Learning rates in steps of half a decade between two powers of ten.

    >>> usual_rates(-2, 0)
    (0.01, 0.0316, 0.1, 0.316, 1.0)
    """
    return tuple(float(f"{10 ** (half / 2):.3g}") for half in range(2 * lowest, 2 * highest + 1))


class SearchState(NamedTuple):
    """State of a `RateSearch`: a few hundred numbers per search."""

    value: Array
    """Weight of every rate with every step size `eta`, `(..., rates, Q)`; the weights of the rates sum to 1."""
    square: Array
    """Sum of the squared gains of every rate in this block, `(..., rates)`."""
    count: Array
    """Rounds of this block."""
    memory: Array
    """Rounds added to the age of the block, for what was learned about rates before a shift."""
    regret: Array
    """Total gain of every rate in this block, `sum <g, x - x_j>`, `(..., rates)`."""
    mean: Array
    """Mean candidate rate: `m` in `x = c - m s`."""
    rate: Array
    """Learning rate of the last step; before the first step, of the next."""


class Step(NamedTuple):
    """Scalars of one step; see the formulas of the module."""

    slide: Array
    along: Array
    keep: Array
    enter: Array


@dataclass(frozen=True)
class RateSearch:
    """Find the learning rate while training: candidates on one ray, evaluated by one gradient a step.

    The defaults are those of the Muon base; `search_for` has those of other bases.

    Args:
        learning_rates: the candidates. A long list costs nothing.
        lag: decay of the moving sum `l`: rates are evaluated without about the last `1 / (1 - lag)` steps, whose
            gradients are correlated with the current one. More momentum in the base needs a larger lag.
        settle: rounds after which the evidence weight has fallen to about a third. Late evidence favours small rates.
        memory: maximum rounds added to the age of a block after a shift; 0 to learn the rates again.
        prior: exponent of the initial weights, `rate ** prior`. -0.5 starts at the geometric mean of the smallest and
            the largest rate, which makes wide lists safe.
        Q: number of step sizes of the weights.

    >>> import numpy as np
    >>> search = RateSearch(learning_rates=(0.01, 0.1, 1.0))
    >>> state = search.start(np.zeros(()))
    >>> curvature, x, s, l = 0.5, 3.0, 0.0, 0.0
    >>> for t in range(60):
    ...     g = curvature * x
    ...     state, step = search.advance(state, dots=np.array([g * s, g * l]))
    ...     x += step.slide * s + step.along * g
    ...     s, l = step.keep * s + step.enter * g, search.lag * (step.keep * l + step.enter * g)
    >>> bool(abs(x) < 0.01), bool(state.rate > 0.3)
    (True, True)
    """

    learning_rates: Sequence[float] = usual_rates(-6, 0)
    lag: float = 0.67
    settle: float = 100.0
    memory: float = 1000.0
    prior: float = -0.5
    Q: int = 10

    def __post_init__(self) -> None:
        object.__setattr__(self, "learning_rates", candidate_rates(self.learning_rates))
        between("lag", self.lag, 0.0, 1.0, low_included=True)
        between("settle", self.settle, 0.0, np.inf)
        between("memory", self.memory, 0.0, np.inf, low_included=True)
        between("prior", self.prior, -np.inf, np.inf)
        whole_number("Q", self.Q, least=1)

    def start(self, like: Array) -> SearchState:
        """The state before the first round.

        Args:
            like: an array of any library; shape (of the searches side by side), dtype and device are taken from it.
        """
        xp = namespace(like)
        zero = like * 0
        share = constant(self._prior, like) + zero[..., None]
        step_sizes = constant(np.full(self.Q, 1 / (1 - 0.5**self.Q)), like)  # fractions sum to 1 - 2^-Q
        mean = xp.sum(share * constant(self._rates, like), axis=-1)
        return SearchState(
            value=share[..., None] * step_sizes,
            square=zero[..., None] + share * 0,
            count=zero,
            memory=zero,
            regret=share * 0,
            mean=mean,
            rate=mean + zero,
        )

    def advance(
        self,
        state: SearchState,
        dots: Array,
        fall: Array | float = 1.0,
        decay: Array | float = 0.0,
        shifted: Array | bool = False,
        retreats: Array | bool = False,
    ) -> tuple[SearchState, Step]:
        """One round: the state after it, and the scalars of the step.

        Args:
            state: the state before.
            dots: `<g, s>` and `<g, l>` along the last axis.
            fall: factor of the schedule in this round.
            decay: decoupled weight decay: parameters shrink by `rate * decay`, and `s` and `l` with them. An array with
                one more axis than the searches has several values along it, for parameters with different decay;
                `slide` and `keep` then have that axis too.
            shifted: whether the block ends with this step because the data shifted. The next block keeps the weights.
            retreats: whether the block ends because steps were too long. The next block drops large rates.
        """
        xp = namespace(dots)
        rates = constant(self._rates, dots)
        of_sum, of_lag = dots[..., :1], dots[..., 1:]
        before = self.shares(state)
        ours = xp.sum(before * rates, axis=-1, keepdims=True)
        judged = -rates * (of_sum - of_lag)
        terms = before * judged
        gains = xp.sum(terms, axis=-1, keepdims=True) - judged
        # In a new block all points coincide and the difference is rounding, which the unit would magnify. NaN compares
        # False and becomes 0.
        rounding = ROUNDINGS * xp.finfo(gains.dtype).eps * xp.sum(abs(terms), axis=-1, keepdims=True)
        gains = xp.where(abs(gains) > rounding, gains, 0.0)

        square, count = state.square + gains**2, state.count + 1
        unit = UNIT * xp.sqrt(square / count[..., None])
        relative = xp.where(unit > 0, gains / xp.where(unit > 0, unit, 1.0), 0.0)
        relative = xp.clip(relative, -1.0, 1.0) * self._evidence(state)[..., None]
        value = _normalised(state.value * (1 + relative[..., None] * fractions(state.value)))
        regret = state.regret + (rates - ours) * of_sum

        mean = xp.sum(_shares(value) * rates, axis=-1)
        enter = fall * self._rebound(state)
        rate = mean * enter
        keep = 1 - (rate[..., None] if getattr(decay, "ndim", 0) > rate.ndim else rate) * decay
        slide = (state.mean - mean)[..., None] if keep.ndim > rate.ndim else state.mean - mean
        step = Step(slide=slide * keep, along=-rate, keep=keep, enter=enter + rate * 0)

        shifted, retreats = flag(shifted, value), flag(retreats, value)
        restarts = shifted | retreats
        value = xp.where((retreats & (count > 0))[..., None, None], self._given_up(value, mean), value)
        state = SearchState(
            value=value,
            square=xp.where(_column(restarts, square), 0.0, square),
            count=xp.where(restarts, 0.0, count),
            memory=xp.where(restarts, self._remembered(state.memory + count), state.memory),
            regret=xp.where(_column(restarts, regret), 0.0, regret),
            mean=xp.sum(_shares(value) * rates, axis=-1),
            rate=rate,
        )
        return state, step

    def shares(self, state: SearchState) -> Array:
        """The weight of every rate, `(..., rates)`: not negative, summing to 1."""
        return _shares(state.value)

    def evidence(self, state: SearchState) -> Array:
        """The weights relative to the prior, summing to 1: equal before the first round, `(..., rates)`."""
        return evidence(state, constant(self._prior, state.value))

    @property
    def _rates(self) -> tuple[float, ...]:
        return tuple(self.learning_rates)

    @property
    def _prior(self) -> np.ndarray:
        powers = np.asarray(self.learning_rates) ** self.prior
        return powers / powers.sum()

    def _evidence(self, state: SearchState) -> Array:
        """Evidence weight of this round: falls with the age of the block."""
        return (1 + (state.count + state.memory) / self.settle) ** -FADING

    def _rebound(self, state: SearchState) -> Array:
        """Factor of the rates while a block with `memory` is young."""
        xp = namespace(state.count)
        part = state.count / self.settle
        return xp.where((state.memory > 0) & (part < 1), REBOUND + (1 - REBOUND) * part, 1.0)

    def _remembered(self, lived: Array) -> Array:
        """Rounds that the next block adds to its age: at most those of the run so far."""
        xp = namespace(lived)
        return xp.where(lived < self.memory, lived, xp.zeros_like(lived) + self.memory)

    def _given_up(self, value: Array, mean: Array) -> Array:
        """The values without rates that are too large; the smallest rate always stays."""
        xp = namespace(value)
        rates = constant(self._rates, value)
        smallest = constant((1.0,) + (0.0,) * (len(self._rates) - 1), value) > 0
        keeps = (rates <= RETREAT * mean[..., None]) | smallest
        return _normalised(xp.where(keeps[..., None], value, 0.0), floor=False)


SEARCHES = {
    "muon": RateSearch(),
    "adam": RateSearch(lag=0.5, memory=0.0),
    "adagrad": RateSearch(usual_rates(-5, 1), lag=0.5, memory=0.0),
    "momentum": RateSearch(lag=0.5, memory=0.0),
    "sgd": RateSearch(usual_rates(-5, 1), lag=0.5, memory=0.0),
}
"""Default search for each named base."""


def search_for(
    base: str | None, learning_rates: Sequence[float] | None = None, search: RateSearch | None = None
) -> RateSearch:
    """The search for a base: its default or the given one, with other candidates if they are given.

    Args:
        base: the name of the base; None for any other, which gets the search of Adam.
        learning_rates: the candidates, if not those of the search.
        search: settings of the search, if not the defaults.

    >>> search_for("sgd").learning_rates[-1], search_for("adam").lag, search_for("muon", (0.1, 0.01)).learning_rates
    (10.0, 0.5, (0.01, 0.1))
    """
    search = SEARCHES[base or "adam"] if search is None else search
    if not isinstance(search, RateSearch):
        raise ValueError(f"search must be a samuel.core.RateSearch, got {search!r}")
    return search if learning_rates is None else replace(search, learning_rates=learning_rates)


def evidence(state: SearchState, prior: Array) -> Array:
    """The weights of the rates relative to those before the first round, summing to 1."""
    relative = _shares(state.value) / prior
    return relative / namespace(relative).sum(relative, axis=-1, keepdims=True)


def _shares(value: Array) -> Array:
    return namespace(value).sum(value * fractions(value), axis=-1)


def _normalised(value: Array, floor: bool = True) -> Array:
    """Values whose weights sum to 1; positive ones are kept above the smallest float, so that each can recover."""
    total = namespace(value).sum(value * fractions(value), axis=(-2, -1), keepdims=True)
    scaled = value / total
    return namespace(value).where(value > 0, at_least(scaled, smallest_value(value)), 0.0) if floor else scaled


def _column(mask: Array, array: Array) -> Array:
    """A mask over searches, broadcast along the rates."""
    return mask if mask.ndim in (0, array.ndim) else mask[..., None]
