"""A round of SAMUEL once the experts' gains are known: judge, decide, mend, widen, restart, narrow.

Who keeps the experts (points of a domain in `samuel.online`, networks in `samuel.jax.Experts`) says how they are
combined and how newborns are made, as a `Population`; what is done with their weights, and when, is here.

    judge     every expert's weight follows its gain
    decide    the experts' combination under the new weights
    mend      where that has diverged: experts that are not finite lose their weight, and it is decided again
    widen     where gains exceed their bound `B`: it is doubled, `DOUBLINGS` times at most in one round
    restart   slots whose block has ended start anew
    narrow    eight times while the number of rounds doubles: `B` falls towards the largest gain of late; and it is
              decided again

**The scale after an outlier.** Were `B` to follow the largest gain of all, one outlier would make all step sizes of
the weights too small for the gains after it, for ever. Here an outlier ends `DOUBLINGS` of the `Q` step sizes and
moves no weight to speak of, since all gains of its round are multiplied by `B / M`, where `M` is the largest gain;
and `B` falls again, by `2^HALVINGS` at most. **What this costs:** gains above `B` are not counted in full. Each such
round doubles `B`; rounds `a..t` have at most `8 log2(t / a) + 1` looks, so there are at most `HALVINGS` times as many
such rounds, and `log2` of the ratio of the scales at `t` and at `a`. The regret bound grows by so many times `M`, and
every certificate counts what was lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from samuel.core import weights as mw
from samuel.core.arrays import Array, beside, is_traced, namespace, where_needed
from samuel.core.cover import Cover

DOUBLINGS = 1
"""How often the bound on the gains doubles in one round, at most."""
HALVINGS = 4
"""How often it is halved at a time, at most: the step sizes that stay keep what they have learned."""
LOOKS = 8
"""While the number of rounds doubles, the scale is looked at so often."""
APART = 64
"""Looks are at least so many rounds apart: gains may be large in few rounds only, as where a quantile is followed."""


class Rules(NamedTuple):
    """What a round follows."""

    cover: Cover
    prior: Array
    """`pi`, one number per expert of a slot."""
    inherit: bool = False
    """Whether newborns keep the weight of their slot and add the prior to it."""
    least: float = 0.0
    """A known bound on the gains; 0 if none is."""


class Population(Protocol):
    """Those who keep the experts. States are NamedTuples with `round`, `weights` and `recent`, the largest gain since
    the scale was last looked at."""

    def decided(self, state: Any) -> Any:
        """The state with the decision that follows from its weights."""
        ...

    def diverged(self, state: Any) -> Array:
        """Whether that decision, or what newborns would be made of, may not be finite: one truth value."""
        ...

    def sifted(self, state: Any) -> tuple[Any, Array]:
        """Which experts are finite, `(..., slots, experts)`; and the state without what is not, if that is needed."""
        ...

    def reborn(self, state: Any, starts: Array) -> Any:
        """The state with newborns in the slots that start a block; its weights are still those of the old experts."""
        ...

    def when(self, needed: Any, change: Callable[[Any], Any], state: Any) -> Any:
        """`change(state)` where it is needed: a plain branch or a compiled one."""
        ...


def begin(rules: Rules, slots: int, Q: int, batch: tuple[int, ...] = ()) -> mw.Weights:
    """The weights before the first round.

    >>> from samuel.core import Anytime
    >>> mw.shares(begin(Rules(Anytime(), np.ones(2)), slots=2, Q=3))
    array([[0.5, 0.5],
           [0. , 0. ]])
    """
    weights = mw.begin(rules.prior, slots, Q, batch, rules.least)
    return mw.restart(weights, rules.cover.starts(0, slots), rules.prior)


def judge(state: Any, gains: Array, rounding: Array | float = 0.0, trusting: bool = False) -> tuple[Any, mw.Judged]:
    """The state after a round with these gains, its round counted, and what `samuel.core.weights.judge` says of it."""
    weights, judged = mw.judge(state.weights, gains, rounding, trusting)
    xp, largest = namespace(gains), judged.largest
    counts = (largest <= state.weights.bound) & (largest > rounding)
    recent = xp.maximum(state.recent, xp.where(counts, largest, 0.0))
    return state._replace(round=state.round + 1, weights=weights, recent=recent), judged


def finish(state: Any, largest: Array, rules: Rules, population: Population) -> Any:
    """Decide, and do what few rounds need before it is decided again: mend, widen, narrow and restart.

    One branch for all of them, because a compiled branch may cost a copy of the state.

    Args:
        state: after `judge`, with experts that have taken their steps.
        largest: `Judged.largest`.
        rules: what to follow.
        population: who keeps the experts.
    """
    state = population.decided(state)
    too_large, diverged = largest > state.weights.bound, population.diverged(state)
    due = is_due(state, rules)
    needed = diverged | too_large.any() | due
    if not is_traced(needed) and not needed:
        return state

    def turn(state: Any) -> Any:
        state = population.when(diverged, lambda state: mended(state, population), state)
        weights = where_needed(
            too_large, lambda weights: mw.widen(weights, largest, rules.prior, DOUBLINGS), state.weights
        )
        state = state._replace(weights=weights)
        state = population.when(due, lambda state: narrow(restart(state, rules, population), rules), state)
        return population.decided(state)

    return population.when(needed, turn, state)


def is_due(state: Any, rules: Rules) -> Any:
    """Whether a slot starts a block now, or the scale is to be looked at."""
    due = state.round % rules.cover.rhythm == 0
    if not is_traced(due) and not due:
        return False
    return due & (rules.cover.starts(state.round, _slots(state)).any() | is_look(state.round, rules.cover.rhythm))


def mended(state: Any, population: Population) -> Any:
    """The state decided again, without experts that are not finite: they have no weight until their slot restarts."""
    state, finite = population.sifted(state)
    return population.decided(state._replace(weights=mw.remove(state.weights, finite)))


def restart(state: Any, rules: Rules, population: Population) -> Any:
    """The state with newborns in the slots whose block has ended; the decision is left as it was."""
    starts = namespace(state.weights.value).asarray(rules.cover.starts(state.round, _slots(state)))
    state = population.reborn(state, starts)
    return state._replace(weights=mw.restart(state.weights, starts, rules.prior, rules.inherit))


def bequests(weights: mw.Weights) -> tuple[Array, Array]:
    """Of what a slot's heirs are made: the weight of each expert within its slot, and which slots have any.

    >>> from samuel.core import Anytime
    >>> weights = begin(Rules(Anytime(), np.array([1.0, 3.0])), slots=2, Q=3)
    >>> bequests(weights)
    (array([[0.25, 0.75],
           [0.  , 0.  ]]), array([ True, False]))
    """
    xp = namespace(weights.value)
    p = mw.shares(weights)
    mass = xp.sum(p, axis=-1)
    return p / xp.where(mass > 0, mass, 1.0)[..., None], mass > 0


def narrow(state: Any, rules: Rules) -> Any:
    """The state with the scale looked at, if this is the round for it: `B` falls to the largest gain of late."""
    look = is_look(state.round, rules.cover.rhythm)
    if look is False:
        return state

    def fall(weights: mw.Weights) -> mw.Weights:
        return mw.narrow(weights, state.recent, rules.prior, rules.least, HALVINGS)

    weights = where_needed(falls(state, rules), fall, state.weights)
    return looked(state._replace(weights=weights), rules)


def falls(state: Any, rules: Rules) -> Array:
    """Whether this is a round in which `B` falls, for every stream."""
    wide = state.weights.bound >= 2 * namespace(state.recent).maximum(state.recent, rules.least)
    return is_look(state.round, rules.cover.rhythm) & wide & (state.recent > 0)


def looked(state: Any, rules: Rules) -> Any:
    """The state with the largest gain of late forgotten, if this is a round to look at the scale."""
    look = is_look(state.round, rules.cover.rhythm)
    return state._replace(recent=namespace(state.recent).where(look, 0.0, state.recent))


def is_look(t: Array | int, rhythm: int) -> Any:
    """Whether the scale is looked at when `t` rounds are complete, in a multiple of the rhythm.

    At every multiple of the largest power of two that is at most `t / 8`, and at least 64; or in the first round after
    it that the rhythm divides.

    >>> [t for t in range(1300) if t % 8 == 0 and is_look(t, 8)]
    [64, 128, 192, 256, 320, 384, 448, 512, 576, 640, 704, 768, 832, 896, 960, 1024, 1152, 1280]
    """
    if isinstance(t, int | np.integer):
        every = max(APART, 1 << max(0, int(t).bit_length() - LOOKS.bit_length()))
    else:
        xp = namespace(t)
        powers = beside(2 ** np.arange(3, 26), t)
        every = xp.max(xp.where(LOOKS * powers <= t, powers, APART))
    return (t // every > (t - rhythm) // every) & (t > 0)


def _slots(state: Any) -> int:
    return state.weights.weight.shape[-2]
