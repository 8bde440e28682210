"""Rays: every learning rate of a slot for the price of one, so that training costs one gradient a step.

Under linear feedback and without projection, all learning rates of a slot share their direction. With `c_k` the point
where the slot's block began and `u_k` the sum of the base's unit-rate steps since then, expert `(k, j)` stands at

    x(k, j) = c_k - lr_j u_k,        and gains        r(k, j) = <g, x - c_k> + lr_j <g, u_k>:

two dot products per slot, whatever the number of rates. The decision is a point of the same kind,

    x = sum_k P_k c_k - sum_k m_k u_k,        P_k = sum_j p(k, j),        m_k = sum_j p(k, j) lr_j.

**Storage.** No point is kept. All `c_k` and `u_k` are sums of a few stored vectors, the *basis*, and everything this
module does with them is linear. So whoever holds the parameters does four things a step,
and no mathematics:

    dots     = <g, b> for every b of the basis, and <g, g>                            one pass
    update   = difference . basis + along . directions                                one pass, with the next line
    basis    = keep * basis + enter . directions          (only its moving part)
    basis    = rewrite . basis                            (only when a block ends)

where `advance` turns `dots` into the rest, and, if there is to be an average of the parameters beside them,
`average += pace * (parameters - average)`. Blocks of longer levels start when shorter ones do, so the basis can hold
*differences* between neighbouring levels: they do not cancel in low precision, and between block ends they are only
read. Where all slots share the base's state and the decay, the basis is

    s = u_0,   u_{k+1} - u_k,   c_k - c_{k+1}        (`s` moves, the others are kept)

and otherwise every `u_k` moves by itself. A lag adds one moving vector (per slot that is judged with it), mixing steps
adds `x - c_0`. One slot needs no more than `s` and the lag: two copies of the parameters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np

from samuel.core import certificate
from samuel.core import weights as mw
from samuel.core.arrays import Array, beside, constant, is_deferred, is_traced, matmul, namespace
from samuel.core.cover import AllIntervals, Anytime, Chosen, Cover, Watched
from samuel.core.options import one_of

CAUTION = 4.0
"""Under `scale="rms"`, gains of this many times their root mean square move a weight as far as it can go."""
SHORT_CAUTION = 2.0
"""The same for the short blocks of a watched run, which have less time."""
USUAL_ROUNDS = 4096
"""Short blocks have the weight that is their part of the run, and never more than in a run of this many rounds."""
WATCHING = 0.06
"""The weight of all short blocks together at birth, at most, that of the long one being 1."""
COOLING = 256
"""With `decay="sqrt"`, rates have fallen to `1 / sqrt(2)` after this many rounds."""
REACH = 30.0
"""With `short_rates="above"`, newborns carry rates up to this many times the long block's."""
SLOW = 0.99
"""Factor of the moving averages that a collapse of the rate and a leap of the gradient are measured against."""
SETTLED = 32
"""Rounds after a restart before a collapse is looked for, or a gradient out of proportion."""
LATE = 0.05
"""In this last part of a block whose end is known, a gradient out of proportion is let pass."""
FADING = 1.5
"""With `settle`, what a block learns about rates in its round `n` counts `(1 + n / settle) ** -FADING`; after a shift
with `n + experience` in place of `n`."""
REBOUND = 0.5
"""After a shift, blocks with `experience` begin with this part of their rates, and have the whole `settle` rounds after
it: if rates are too large at first, the evidence that would take them down is hardly heard."""
PATIENT = 1.5
"""With `patience`, what speaks for smaller rates in the run's round `n` counts `PATIENT * n / (n + patience)` times
what it would, until everything begins anew for the first time."""
GROWN = 2.0
"""With `patience`, a gradient whose square is more than this many times the mean so far is heard at once."""
KEPT = 0.5
"""When everything restarts, the long slot keeps this part of what it knew about the rates; after an alarm, all."""
_ROUNDINGS = 64
"""How many roundings of a position's size a gain is made of, at most."""


class RaysState(NamedTuple):
    """Everything about the experts that is not a vector: weights, clocks and sums. Some hundred numbers."""

    round: Array
    """Rounds completed."""
    since: Array
    """Rounds completed since everything restarted."""
    length: Array
    """Rounds from then to the end of the run, as far as it is known (otherwise infinite)."""
    weights: mw.Weights
    """Of every expert, `slots x rates x Q` pairs."""
    square: Array
    """Sum of the squared gains of each expert's block, `(slots, rates)`, for `scale="rms"`."""
    count: Array
    """Rounds of each slot's block so far, `(slots,)`."""
    slow_log_rate: Array
    """Moving average of the logarithm of the long slot's mean rate."""
    shifts: Array
    """How often everything restarted because the data seemed to have shifted."""
    experience: Array
    """How many rounds older than they are the blocks count, because they know what was learned before a shift."""
    gradient_square: Array
    """Sum of `<g, g>` since everything restarted, what was out of proportion cut down to proportion."""
    recent_square: Array
    """Moving average of the same, over all rounds while there are few."""
    alarmed: Array
    """Whether the gradient of the last round was out of proportion."""
    pace: Array
    """How far the average went towards the parameters in the last round; 1 where there is none."""
    ledger: certificate.Ledger
    """The sums the certificate is made of."""
    log_total: Array
    """`L` after the last round."""
    unit: Array
    """What the gains of each expert were divided by in the last round, `(slots, rates)`."""
    rate: Array
    """The learning rate of the last step; before the first, of the step to come."""


class Moves(NamedTuple):
    """What the holder of the parameters does with the basis and the base's directions; see the module's first lines."""

    difference: Array
    """What each basis vector, as it was before the step, contributes to the update: `(vectors,)`."""
    along: Array
    """What each of the base's directions contributes to it: `(directions,)`."""
    keep: Array
    """Factor of each moving vector: `(moving,)`."""
    enter: Array
    """What each direction adds to each moving vector: `(moving, directions)`."""
    due: Array
    """Whether the basis must be rewritten because a block has ended."""
    rewrite: Array
    """Each new basis vector as a sum of those after the step: `(vectors, vectors)`."""
    restarted: Array
    """Which slots begin anew, `(slots,)`; their base's state, if it is their own, is then to be reset."""
    reset: Array
    """Whether everything begins anew, and with it a base's state that the slots share."""
    pace: Array
    """How far the average of the parameters goes towards them, once they have moved: 1 begins it anew."""


class Certificate(NamedTuple):
    """How far the decisions were behind each expert in its running block, linearised; `(slots, rates)` each.

    For convex losses a bound on the regret to the expert. For networks it is what one gradient a step can tell.
    """

    measured: Array
    """`sum <g, x - x(e)>` over the block so far: negative where the decisions were ahead of the expert."""
    bound: Array
    """At most how large that can be by the weights' own bound; no assumption is made. With `scale="rms"` that bound is
    on the gains the weights were given, and what lies between those and the real ones is added as measured."""


def certify(state: RaysState) -> Certificate:
    """How far the decisions were behind each expert of the running blocks, and at most how far they can be."""
    bound = certificate.running_bound(state.ledger, state.log_total, state.weights.bound, state.unit)
    open_now = mw.alive(state.weights)
    xp = namespace(bound)
    return Certificate(*(xp.where(open_now, part, math.nan) for part in (state.ledger.gain, bound)))


@dataclass(frozen=True)
class Rays:
    """The rule by which a run's learning rate is found: what to try, on which blocks, and how to judge and combine.

    All options of `samuel.jax.samuel` that are not about storage, with the same names; it explains them.
    `samuel.core.rules` has the ready ones.

    >>> import numpy as np
    >>> rays = Rays(learning_rates=(0.01, 0.1, 1.0), cover=Watched(short=0), scale="rms")
    >>> rays.moving, rays.kept
    (('s', 'lag'), ())
    >>> state = rays.start(np.zeros((), np.float32))
    >>> state, moves = rays.advance(state, dots=np.array([1.0, 0.0, 2.0], np.float32))
    >>> moves.along.shape
    (1,)
    """

    learning_rates: Sequence[float]
    cover: Cover
    horizon: int | None = None
    Q: int = 10
    scale: Literal["rms", "max"] | float = "rms"
    combine: Literal["points", "steps"] = "points"
    newborns: Literal["fresh", "inherit", "join"] = "join"
    prior: float = -0.5
    decay: Literal["none", "linear", "sqrt"] = "none"
    lag: float = 0.9
    reference: Literal["mixture", "long"] = "mixture"
    short_rates: Literal["all", "above"] = "all"
    takeover: float | None = None
    collapse: float | None = None
    alarm: float | None = None
    settle: float | None = None
    experience: float | None = None
    patience: float | None = None
    average: float = 0.0
    weight_decay: float = 0.0
    base_state: Literal["shared", "slots"] = "shared"

    def __post_init__(self) -> None:
        object.__setattr__(self, "learning_rates", check_rates(self.learning_rates))
        for name in ("horizon", "Q"):
            value = getattr(self, name)
            if isinstance(value, np.integer | np.ndarray) and value.ndim == 0 and value.dtype.kind in "iu":
                object.__setattr__(self, name, int(value))
        for name in ("alarm", "settle", "experience", "patience"):
            value = getattr(self, name)
            if isinstance(value, np.ndarray | np.generic) and _number(value) is not None:
                object.__setattr__(self, name, float(value))  # or its dtype would become that of the weights
        _check(self)

    # What is stored

    @cached_property
    def slots(self) -> int:
        """How many blocks run at once."""
        return self.cover.slots(2**31)

    @cached_property
    def watched(self) -> bool:
        """Whether one block lasts the whole run and sets the decay of all."""
        return isinstance(self.cover, Watched)

    @cached_property
    def _has_lag(self) -> bool:
        """A lag that is an array may become any number in another step: its vector is then always there."""
        return not isinstance(self.lag, int | float) or self.lag > 0

    @cached_property
    def _resets(self) -> bool:
        """Whether everything may restart at a moment that the run decides."""
        return not all(map(is_off, (self.takeover, self.collapse, self.alarm)))

    @cached_property
    def averages(self) -> bool:
        """Whether there is an average of the parameters to keep beside them."""
        return not isinstance(self.average, int | float) or self.average > 0  # an array may become any number, too

    @cached_property
    def own_sums(self) -> bool:
        """Whether every slot's `u_k` must move by itself."""
        if self.slots == 1:
            return False
        alike = self.watched or (self.decay == "none" and not self._has_lag)
        return self.base_state == "slots" or not alike

    @property
    def directions(self) -> int:
        """How many directions the base gives a step: one, or one for each slot."""
        return self.slots if self.base_state == "slots" else 1

    @cached_property
    def moving(self) -> tuple[str, ...]:
        """Names of the basis vectors that change in every step; they need full precision."""
        each = range(self.slots)
        names = [f"u{k}" for k in each] if self.own_sums else ["s"]
        if self._has_lag:
            names += [f"lag{k}" for k in self._lagging] if self.own_sums else ["lag"]
        if self.combine == "steps":
            names.append("x")
        return tuple(names)

    @cached_property
    def kept(self) -> tuple[str, ...]:
        """Names of the basis vectors that change only when a block ends: differences of neighbouring levels."""
        pairs = range(self.slots - 1)
        sums = [] if self.own_sums else [f"u{k + 1}-u{k}" for k in pairs]
        return (*sums, *(f"c{k}-c{k + 1}" for k in pairs))

    @cached_property
    def enters(self) -> np.ndarray:
        """Which directions enter which moving vectors at all, `(moving, directions)`."""
        if self.directions == 1:
            return np.ones((len(self.moving), 1), bool)
        same_slot = [[name in (f"u{k}", f"lag{k}", "x") for k in range(self.slots)] for name in self.moving]
        return np.asarray(same_slot)

    @cached_property
    def _lagging(self) -> tuple[int, ...]:
        """The slots that are judged with a lag: in a watched run the long one, otherwise all."""
        return (self.slots - 1,) if self.watched else tuple(range(self.slots))

    @cached_property
    def _basis(self) -> dict[str, int]:
        return {name: place for place, name in enumerate((*self.moving, *self.kept))}

    def _rows(self, *terms: Sequence[str]) -> np.ndarray:
        """One row per slot: the sum of the named basis vectors."""
        rows = np.zeros((self.slots, len(self._basis)), np.float32)
        for k, names in enumerate(terms):
            for name in names:
                rows[k, self._basis[name]] += 1
        return rows

    @cached_property
    def _sums(self) -> np.ndarray:
        """`u_k` in the basis."""
        if self.own_sums:
            return self._rows(*([f"u{k}"] for k in range(self.slots)))
        return self._rows(*(["s", *(f"u{i + 1}-u{i}" for i in range(k))] for k in range(self.slots)))

    @cached_property
    def _lags(self) -> np.ndarray:
        """How far behind `u_k` each slot is judged, in the basis."""
        names = {k: (f"lag{k}" if self.own_sums else "lag") for k in self._lagging}
        return self._rows(*([names[k]] if names.get(k) in self._basis else [] for k in range(self.slots)))

    @cached_property
    def _anchors(self) -> np.ndarray:
        """`c_k - c_top` in the basis, where `top` is the last slot."""
        top = self.slots - 1
        return self._rows(*([f"c{i}-c{i + 1}" for i in range(k, top)] for k in range(self.slots)))

    @cached_property
    def _gain_rows(self) -> np.ndarray:
        return np.concatenate([self._anchors, self._sums, self._lags])

    # The algorithm

    def start(self, like: Array) -> RaysState:
        """The state before the first round; library, dtype and device are those of `like`, a number of no dimension."""
        xp = namespace(like)
        prior = self._priors(like, self._everything(like))
        weights = mw.begin(prior[0], self.slots, self.Q, bound=0.0 if self.scale == "max" else self._bound)
        opens = xp.asarray(self.cover.starts(_whole(like, 0), self.slots))
        if self.short_rates == "above":
            p = xp.where(opens[:, None], prior, 0.0)
            longest = _last(opens)
            allowed = longest[:, None] | self._above(self._mean_rate(p, longest))
            prior = self._priors(like, allowed)
        weights = mw.restart(weights, opens, prior)
        zero, whole = like * 0, _whole(like, 0)
        length = zero + (math.inf if self.horizon is None else self.horizon)
        rates = xp.zeros_like(weights.weight)
        return RaysState(
            round=whole,
            since=whole,
            length=length,
            weights=weights,
            square=rates,
            count=rates[:, 0],
            slow_log_rate=xp.log(self._mean_rate(mw.shares(weights), self._long(weights))),
            shifts=whole,
            experience=zero,
            gradient_square=zero,
            recent_square=zero,
            alarmed=whole > 0,
            pace=zero + 1,
            ledger=certificate.open_ledger(weights),
            log_total=mw.log_total(weights),
            unit=xp.ones_like(rates),
            rate=zero + xp.sum(mw.shares(weights) * self._rates(like)),
        )

    def advance(self, state: RaysState, dots: Array) -> tuple[RaysState, Moves]:
        """One round: from the products of the gradient with the basis to the moves that make the step.

        Args:
            state: the state before.
            dots: `<g, b>` for every basis vector, the moving ones first; and last `<g, g>`.
        """
        xp = namespace(dots)
        dots, gradient_square = dots[:-1], dots[-1]
        anchors, sums = constant(self._anchors, dots), constant(self._sums, dots)
        rates = self._rates(dots)
        p = mw.shares(state.weights)
        long = self._long(state.weights)
        y = self._decision(p, anchors, sums)

        gains, actual = self._gains(p, long, y, dots)
        judged_by = state.weights.bound
        weights, used, unit = self._judge(state, gains, gradient_square)
        square, count = state.square + gains**2, state.count + 1
        ledger = certificate.enter(state.ledger, actual, used, judged_by)

        # The step, before anything restarts.
        p = mw.shares(weights)
        factor = self._factor(state, dots)
        mean_rates = matmul(p, rates)
        rate = xp.sum(mean_rates * factor)
        enter = self._enter(factor, mean_rates)
        y_after = self._decision(p, anchors, sums)

        # What ends now.
        shift, slow = self._shifted(state, p, long)
        alarm, alarmed, in_proportion, recent = self._alarm(state, gradient_square)
        kept = xp.where(alarm & ~shift, xp.ones_like(slow), KEPT)
        shift = shift | alarm
        since = state.since + 1
        over = (since >= state.length) if self.watched else xp.zeros_like(shift)
        reset = shift | over
        starts = xp.asarray(self.cover.starts(self._clock(state) + 1, self.slots))
        restarted = starts | reset
        quiet = not is_deferred(restarted) and not bool(xp.any(restarted))
        if quiet:  # most rounds, and where we may look, most of the work is saved
            new_weights, new_anchors, new_sums, y_new = weights, anchors, sums, y_after
        else:
            opens = (starts & ~reset) | (xp.asarray(self.cover.starts(since * 0, self.slots)) & reset)
            new_weights = self._reborn(weights, p, long, restarted, opens, reset, kept)
            born_at = self._birthplaces(p, y_after, anchors, sums, ~restarted, reset)
            new_anchors = xp.where(restarted[:, None], born_at, anchors)
            new_sums = xp.where(restarted[:, None], xp.zeros_like(sums), sums)
            y_new = self._decision(mw.shares(new_weights), new_anchors, new_sums)
        if self.combine == "points":
            difference = (y_new - y) * self._shrink(rate)
            along = matmul(y_new[: len(self.moving)], enter)
        else:
            difference = xp.zeros_like(y)
            along = enter[self._basis["x"]]
        moves = Moves(
            difference=difference,
            along=along,
            keep=self._keep(dots, rate),
            enter=enter,
            due=xp.any(restarted),
            rewrite=self._unchanged(dots) if quiet else self._rewrite(new_anchors, new_sums, y_after, restarted),
            restarted=restarted,
            reset=reset,
            # The end of the horizon does not throw the average away; a run that goes on leaves it soon enough.
            pace=self._pace(xp.where(shift, xp.zeros_like(since), since), dots),
        )
        zero = xp.zeros_like(since)
        round = state.round + 1
        length = state.length
        if self.horizon is not None:
            left = self.horizon - round
            again = xp.where(left > 0, left, xp.zeros_like(left) + self.horizon)
            length = xp.where(reset, xp.astype(again, length.dtype), length)
        if not quiet:
            now = xp.log(self._mean_rate(mw.shares(new_weights), self._long(new_weights)))
            slow = xp.where(reset, now, slow)
            square, count = (xp.where(restarted[:, None], 0.0, square), xp.where(restarted, 0.0, count))
            ledger = certificate.turn_page(ledger, restarted, new_weights)
        state = RaysState(
            round=round,
            since=xp.where(reset, zero, since),
            length=length,
            weights=new_weights,
            square=square,
            count=count,
            slow_log_rate=slow,
            shifts=state.shifts + xp.where(shift, zero + 1, zero),
            experience=xp.where(reset, self._experience(state, shift), state.experience),
            gradient_square=xp.where(reset, 0.0, state.gradient_square + in_proportion),
            recent_square=xp.where(reset, 0.0, recent),
            alarmed=alarmed & ~reset,
            pace=moves.pace,
            ledger=ledger,
            log_total=mw.log_total(new_weights),
            unit=unit,
            rate=rate,
        )
        return state, moves

    # Its parts, in the order of a round

    def _decision(self, p: Array, anchors: Array, sums: Array) -> Array:
        """`x - c_top` in the basis."""
        if self.combine == "steps":
            return self._unchanged(p)[self._basis["x"]] + anchors[0]
        return matmul(namespace(p).sum(p, axis=-1), anchors) - matmul(matmul(p, self._rates(p)), sums)

    def _gains(self, p: Array, long: Array, y: Array, dots: Array) -> tuple[Array, Array]:
        """The gains the experts are judged by, and what the decision really lost to each."""
        xp = namespace(dots)
        rates = self._rates(dots)
        products = matmul(constant(self._gain_rows, dots), dots)
        anchors, sums, lags = (products[k * self.slots : (k + 1) * self.slots] for k in range(3))
        decision = xp.sum(y * dots)
        positions = anchors[:, None] - rates * sums[:, None]
        judged = anchors[:, None] - rates * (sums - lags)[:, None]
        if self.reference == "long":
            terms = xp.where(long[:, None], p * judged, 0.0) / xp.sum(xp.where(long[:, None], p, 0.0))
        elif self.combine == "points":
            terms = p * judged
        else:
            terms = y * dots
        ours = xp.sum(terms)
        gains = ours - judged
        # Newborns stand where the decision is: what is left of their gain is rounding, and must not be magnified. The
        # rounding is that of what was summed up, and the sum may be far smaller.
        size = xp.max(abs(xp.where(p > 0, anchors[:, None], 0.0))) + xp.sum(abs(terms))
        noise = _ROUNDINGS * xp.finfo(dots.dtype).eps * size
        gains = xp.where(abs(gains) > noise, gains, 0.0)  # and where no number is left, there is nothing to judge by
        return gains, decision - positions

    def _judge(self, state: RaysState, gains: Array, gradient_square: Array) -> tuple[mw.Weights, Array, Array]:
        """The weights after the round, the gains they were updated with, and the unit of those."""
        xp = namespace(gains)
        if self.scale == "rms":
            unit = self._unit(state.square + gains**2, state.count + 1)
            relative = xp.where(unit > 0, gains / xp.where(unit > 0, unit, 1.0), 0.0)
            used = xp.clip(relative, -1.0, 1.0)
            if not is_off(self.settle):
                used = used * self._fading(state)[:, None]
            if self.patience is not None and not is_off(self.patience):
                heard = self._heard(state, gains, gradient_square, self.patience)
                used = xp.clip(used * heard[:, None], -1.0, 1.0)
            weights, _ = mw.judge(state.weights, used)
            return weights, used, unit
        weights, judged = mw.judge(state.weights, gains)
        if self.scale == "max":
            weights = mw.widen(weights, judged.largest, self._priors(gains, self._everything(gains)))
        return weights, gains * judged.used, state.unit

    def _fading(self, state: RaysState) -> Array:
        """How much a block's round counts for what it says about rates: less and less as the block grows older."""
        xp = namespace(state.count)
        count = state.count + state.experience
        settle = xp.zeros_like(count) + self.settle  # a traced one may be 0, for no end of learning
        return xp.where(settle > 0, (1 + count / xp.where(settle > 0, settle, 1.0)) ** -FADING, 1.0)

    def _experience(self, state: RaysState, shift: Array) -> Array:
        """What a block that begins now is born with: after a shift what was lived through, up to a limit, else none."""
        xp = namespace(state.experience)
        if self.experience is None or is_off(self.experience):
            return state.experience
        lived = state.experience + xp.astype(state.since + 1, state.experience.dtype)
        lived = xp.where(lived < self.experience, lived, xp.zeros_like(lived) + self.experience)
        return xp.where(shift, lived, xp.zeros_like(lived))

    def _heard(self, state: RaysState, gains: Array, gradient_square: Array, patience: float) -> Array:
        """How much of a round is heard in each slot: all that speaks for larger rates, at first little that does not.

        All of it where the gradient has grown, because then steps are too large indeed; and once everything has begun
        anew, because what is known about rates is then no longer a guess.
        """
        xp = namespace(gains)
        before = xp.astype(state.since, gains.dtype)
        rounds = before + 1
        for_smaller = gains[:, 0] > gains[:, -1]  # the gains of a block are linear in the rate
        grown = ~(gradient_square * before <= GROWN * state.gradient_square)
        slowly = for_smaller & ~grown & (state.since == state.round) & (patience > 0)
        return xp.where(slowly, PATIENT * rounds / (rounds + patience), 1.0)

    def _unit(self, square: Array, count: Array) -> Array:
        """What gains are divided by: some times the root mean square of each expert's own, over its block."""
        xp = namespace(square)
        caution = np.full((self.slots, 1), CAUTION)
        if self.watched:
            caution[:-1] = SHORT_CAUTION
        mean = square / xp.where(count > 0, count, xp.ones_like(count))[:, None]
        return constant(caution, square) * xp.sqrt(mean)

    def _factor(self, state: RaysState, like: Array) -> Array:
        """What the base's direction is multiplied with in each slot, `(slots,)`: what the decay leaves of a height."""
        xp = namespace(like)
        since = xp.astype(state.since, like.dtype)
        height = xp.ones_like(state.count) * self._height(state, since)
        if self.decay == "none":
            return height
        if self.watched:  # all slots fall together with the long one
            return height * (1 - since / state.length if self.decay == "linear" else 1 / xp.sqrt(1 + since / COOLING))
        if self.decay == "sqrt":
            return height / xp.sqrt(1 + state.count / COOLING)
        ahead = self.cover.ahead(self._clock(state), self.slots, self.horizon)
        return height * xp.astype(xp.asarray(ahead), like.dtype)

    def _height(self, state: RaysState, since: Array) -> Array | float:
        """What the decay begins with: 1, and less in the first rounds after a shift whose block has experience."""
        if is_off(self.experience):
            return 1.0
        xp = namespace(since)
        settle = xp.zeros_like(since) + self.settle  # a traced one may be 0
        part = since / xp.where(settle > 0, settle, 1.0)
        rises = (state.experience > 0) & (settle > 0) & (part < 1)
        return xp.where(rises, REBOUND + (1 - REBOUND) * part, xp.ones_like(part))

    def _clock(self, state: RaysState) -> Array:
        """The time that blocks are laid out by: rounds of your choice are counted from the start of the run."""
        return state.round if isinstance(self.cover, Chosen) else state.since

    def _enter(self, factor: Array, mean_rates: Array) -> Array:
        """What each direction adds to each moving vector, `(moving, directions)`."""
        xp = namespace(factor)
        each = constant(np.eye(self.slots), factor) * factor  # slot k moves along direction k
        if self.base_state == "shared":
            each = factor[:, None]
        sums = each if self.own_sums else each[-1:]
        parts = [sums]
        if self._has_lag:
            parts.append(self.lag * (each[self._lagging[0] :] if self.own_sums else sums))
        if self.combine == "steps":
            parts.append(-matmul(mean_rates[None, :], each))
        return xp.concat(parts, axis=0)

    def _keep(self, like: Array, rate: Array) -> Array:
        """The factor of each moving vector: the lag for the lags, 1 for the others; less where everything shrinks."""
        xp = namespace(like)
        is_lag = beside(np.asarray([name.startswith("lag") for name in self.moving]), like)
        return xp.where(is_lag, xp.zeros_like(like[: len(self.moving)]) + self.lag, 1.0) * self._shrink(rate)

    def _shrink(self, rate: Array) -> Array | float:
        """What weight decay leaves of the points of all experts, and so of what they have moved by.

        As much as it leaves of the parameters; otherwise it would seem that only a larger rate can make up for the
        loss. Where some parameters do not decay, what their experts have moved by shrinks all the same, which is not
        what they would do by themselves. Left out where vectors are kept between blocks.
        """
        if self.kept or is_off(self.weight_decay):
            return 1.0
        return 1 - rate * self.weight_decay

    def _shifted(self, state: RaysState, p: Array, long: Array) -> tuple[Array, Array]:
        """Whether the data seem to have shifted, and the slow average of the long slot's rate."""
        xp = namespace(p)
        shares = xp.sum(p, axis=-1)
        shift = xp.zeros_like(long[0])
        if self.takeover is not None and self.slots > 1:
            shift = xp.sum(xp.where(long, shares, 0.0)) < self.takeover
        now = xp.log(self._mean_rate(p, long))
        if self.collapse is not None:
            settled = state.since >= SETTLED
            shift = shift | (settled & (xp.exp(now - state.slow_log_rate) < self.collapse))
        return shift, SLOW * state.slow_log_rate + (1 - SLOW) * now

    def _alarm(self, state: RaysState, square: Array) -> tuple[Array, Array, Array, Array]:
        """Whether a second gradient in a row is out of proportion; whether this one is, and what the means get of it.

        Out of proportion is a square of `alarm` times the mean since everything restarted, and of `alarm` times the
        recent mean: gradients may grow slowly. One such batch may be an odd one; when the data shift, the next is like
        it.
        """
        xp = namespace(square)
        counted = xp.where(square < math.inf, square, xp.zeros_like(square))
        if self.alarm is None or is_off(self.alarm):
            no = xp.zeros_like(state.alarmed)
            return no, no, counted, state.recent_square
        since = xp.astype(state.since, square.dtype)
        mean = state.gradient_square / xp.where(since > 0, since, xp.ones_like(since))
        usual = xp.where(mean > state.recent_square, mean, state.recent_square)
        # Near the end of a run there is no time to learn anew: better to end with what there is.
        watching = (state.since >= SETTLED) & (since <= (1 - LATE) * state.length) & (self.alarm > 0)
        # Where no number is left (neither comparison holds), there is nothing to learn.
        alarmed = watching & (square > self.alarm * usual)
        in_proportion = xp.where(alarmed, self.alarm * usual, counted)
        newest = 1 / (since + 1)
        newest = xp.where(newest > 1 - SLOW, newest, xp.zeros_like(newest) + (1 - SLOW))
        recent = state.recent_square + newest * (in_proportion - state.recent_square)
        return alarmed & state.alarmed, alarmed, in_proportion, recent

    def _pace(self, since: Array, like: Array) -> Array:
        """How far the average goes towards the parameters after so many rounds: it is over the block's last part."""
        since = namespace(like).astype(since, like.dtype)
        if not self.averages:
            return since * 0 + 1
        pace = (self.average + 1) / (since + self.average + 1)
        if isinstance(self.average, int | float):
            return pace
        return namespace(like).where(self.average > 0, pace, 1.0)

    def _reborn(
        self,
        weights: mw.Weights,
        p: Array,
        long: Array,
        restarted: Array,
        opens: Array,
        reset: Array,
        kept: Array,
    ) -> mw.Weights:
        """The weights when the marked slots have started anew; after a reset the long slot keeps a part of its own."""
        xp = namespace(p)
        everything = self._everything(p)
        allowed = everything
        if self.short_rates == "above":  # only rates above the one that the long slot uses from now on
            mean = self._mean_rate(p, long)
            half_forgotten = kept * mean + (1 - kept) * self._mean_rate(self._priors(p, everything), long)
            mean = xp.where(reset, half_forgotten, mean)
            longest = _last(opens | (~restarted & (xp.sum(p, axis=-1) > 0)))
            allowed = longest[:, None] | self._above(mean)
        prior = xp.where(opens[:, None], self._priors(p, allowed), 0.0)
        if self.scale != "rms" and self.newborns != "join" and not self._resets:
            return mw.restart(weights, restarted, prior, inherit=self.newborns == "inherit")
        # The total of such weights is not conserved: a newborn's weight is measured by that of the slots that stay.
        mass = constant(self._masses, p)
        of_slots = xp.sum(weights.weight, axis=-1)
        stays = ~restarted & (of_slots > 0)
        stays = stays | ((of_slots > 0) & ~xp.any(stays))
        unit = xp.sum(xp.where(stays, of_slots, 0.0)) / xp.sum(xp.where(stays, mass, 0.0))
        per_pair = unit / xp.sum(mw.fractions(weights.value))
        new = (prior * per_pair)[..., None] + xp.zeros_like(weights.value)
        profile = xp.sum(xp.where(long[:, None, None], weights.value, 0.0), axis=0)
        profile = profile / xp.sum(xp.where(long, of_slots, 0.0))
        blended = (1 - kept) * new + kept * profile * (mass * unit)[:, None, None]
        after_shift = xp.where(_last(opens)[:, None, None], blended, new)
        if self.newborns == "inherit":
            new = new + weights.value
        ends = reset if self.newborns == "inherit" else True
        return mw.replace(weights, restarted, xp.where(reset, after_shift, new), ends)

    def _birthplaces(self, p: Array, y: Array, anchors: Array, sums: Array, stays: Array, reset: Array) -> Array:
        """Where newborns of each slot would start, relative to `c_top`, in the basis: `(slots, vectors)`."""
        xp = namespace(p)
        here = y + xp.zeros_like(anchors)
        if self.newborns == "fresh" or (self.newborns == "join" and self.combine == "steps"):
            return here
        shares, mean_rates = xp.sum(p, axis=-1), matmul(p, self._rates(p))
        if self.newborns == "inherit":  # the slot's own mean, so that the decision stays
            known = (shares > 0)[:, None] & ~reset
            means = anchors - (mean_rates / xp.where(shares > 0, shares, 1.0))[:, None] * sums
            return xp.where(known, means, here)
        # The decision of those that stay, so that it does not matter how much weight the newborns get.
        shares, mean_rates = xp.where(stays, shares, 0.0), xp.where(stays, mean_rates, 0.0)
        others = xp.sum(shares)
        mean = (matmul(shares, anchors) - matmul(mean_rates, sums)) / xp.where(others > 0, others, 1.0)
        return xp.where(others > 0, mean + xp.zeros_like(here), here)

    def _rewrite(self, anchors: Array, sums: Array, y: Array, restarted: Array) -> Array:
        """The new basis in the old one, `(vectors, vectors)`, from where each slot's anchor and sum are now."""
        xp = namespace(sums)
        rows = {f"u{k}": sums[k] for k in range(self.slots)}
        rows["s"] = sums[0]
        for k in range(self.slots - 1):
            rows[f"u{k + 1}-u{k}"] = sums[k + 1] - sums[k]
            # What differs by rounding alone is the same point: it must not be judged.
            size = abs(anchors[k]) + abs(anchors[k + 1])
            apart = anchors[k] - anchors[k + 1]
            rows[f"c{k}-c{k + 1}"] = xp.where(abs(apart) > 4 * xp.finfo(apart.dtype).eps * size, apart, 0.0)
        rows["x"] = y - anchors[0]
        same = self._unchanged(sums)
        for k in self._lagging:
            name = f"lag{k}" if self.own_sums else "lag"
            if name in self._basis:
                rows[name] = xp.where(restarted[k], xp.zeros_like(y), same[self._basis[name]])
        return xp.stack([rows[name] for name in self._basis])

    def _unchanged(self, like: Array) -> Array:
        """The rewriting that leaves the basis as it is."""
        return constant(self._identity, like)

    @cached_property
    def _identity(self) -> np.ndarray:
        return np.eye(len(self._basis), dtype=np.float32)

    # Numbers

    def _rates(self, like: Array) -> Array:
        return constant(np.asarray(self.learning_rates), like)

    @property
    def _bound(self) -> float:
        return 1.0 if isinstance(self.scale, str) else self.scale

    @cached_property
    def _masses(self) -> np.ndarray:
        """The weight of each slot at birth, all its rates together."""
        if not self.watched:
            return np.ones(self.slots)
        rounds = max(self.horizon, USUAL_ROUNDS) if isinstance(self.horizon, int) else USUAL_ROUNDS
        short = np.asarray([self.cover.length(k) / rounds for k in range(self.slots - 1)])  # pyright: ignore
        if short.sum() > WATCHING:  # or the long block would be born with less than its part
            short *= WATCHING / short.sum()
        return np.append(short, 1.0)

    def _everything(self, like: Array) -> Array:
        return beside(np.ones((self.slots, len(self.learning_rates)), bool), like)

    def _priors(self, like: Array, allowed: Array) -> Array:
        """`pi` of every expert, `(slots, rates)`: the slot's mass, spread by a power of the rate over those allowed."""
        xp = namespace(like)
        powers = xp.where(allowed, self._rates(like) ** self.prior, 0.0)
        total = xp.sum(powers, axis=-1, keepdims=True)
        return constant(self._masses, like)[:, None] * powers / xp.where(total > 0, total, 1.0)

    def _above(self, mean: Array) -> Array:
        """Which rates are above a mean rate, but not so far that a step with one of them would be a leap."""
        rates = self._rates(mean)
        rounding = _ROUNDINGS * namespace(mean).finfo(mean.dtype).eps
        return (rates > mean * (1 + rounding)) & (rates <= REACH * mean)

    def _long(self, weights: mw.Weights) -> Array:
        """Marks the slot with the longest block of those that are open."""
        return _last(namespace(weights.weight).sum(weights.weight, axis=-1) > 0)

    def _mean_rate(self, p: Array, long: Array) -> Array:
        """The mean learning rate of the marked slot."""
        xp = namespace(p)
        p = xp.where(long[:, None], p, 0.0)
        return xp.sum(p * self._rates(p)) / xp.sum(p)


def check_rates(learning_rates: Any) -> tuple[float, ...]:
    """The candidate rates as numbers, smallest first; an error if they are not distinct, positive and finite."""
    try:
        rates = tuple(float(rate) for rate in learning_rates)
    except (TypeError, ValueError):
        raise ValueError(f"learning_rates must be a list of numbers, got {learning_rates!r}") from None
    if not rates:
        raise ValueError("learning_rates is empty; give at least one rate, or leave it out for the usual ones")
    for rate in rates:
        if not 0 < rate < math.inf:
            raise ValueError(f"a learning rate must be positive and finite, got {rate!r} among {rates}")
        if not 1e-30 <= rate <= 1e30:
            raise ValueError(f"a learning rate must be from 1e-30 to 1e30 for single precision, got {rate!r}")
    if len(set(rates)) < len(rates):
        raise ValueError(f"learning_rates must differ from each other, got {rates}")
    return tuple(sorted(rates))


def _check(rays: Rays) -> None:
    """Refuse impossible options before anything is made of them."""
    for name, allowed in (
        ("combine", ("points", "steps")),
        ("newborns", ("fresh", "inherit", "join")),
        ("decay", ("none", "linear", "sqrt")),
        ("reference", ("mixture", "long")),
        ("short_rates", ("all", "above")),
        ("base_state", ("shared", "slots")),
    ):
        one_of(name, getattr(rays, name), allowed)
    if not isinstance(rays.cover, Cover) or isinstance(rays.cover, AllIntervals):
        raise ValueError(
            f"cover must be one of Watched, Anytime, Geometric, Fixed or Chosen from samuel.core, got {rays.cover!r}"
        )
    if isinstance(rays.cover, Anytime) and rays.cover.levels is None:
        raise ValueError(
            f"every level of a cover costs copies of the parameters, and {rays.cover!r} has no last one: "
            f"say how many, as in Anytime(shortest={rays.cover.shortest}, levels=8)"
        )
    if not isinstance(rays.Q, int) or isinstance(rays.Q, bool) or rays.Q < 1:
        raise ValueError(f"Q must be a whole number of at least 1, got {rays.Q!r}")
    if not (rays.horizon is None or is_traced(rays.horizon) or _is_count(rays.horizon)):
        raise ValueError(f"horizon must be a whole number of rounds, at least 1, got {rays.horizon!r}")
    if isinstance(rays.scale, str):
        if rays.scale not in ("rms", "max"):
            raise ValueError(f"scale must be 'rms', 'max' or a bound on the gains, got {rays.scale!r}")
    else:
        _between("scale", rays.scale, 0.0, math.inf)
    _between("lag", rays.lag, 0.0, 1.0, low_included=True)
    _between("prior", rays.prior, -math.inf, math.inf)
    for name in ("takeover", "collapse"):
        if getattr(rays, name) is not None:
            _between(name, getattr(rays, name), 0.0, 1.0, low_included=True)
    if not is_off(rays.alarm):
        _between("alarm", rays.alarm, 1.0, math.inf)
    for name, does in (
        ("settle", "lets gains count less and less"),
        ("experience", "lets gains count less after a shift"),
        ("patience", "weighs gains by what they say"),
    ):
        if not is_off(getattr(rays, name)):
            _between(name, getattr(rays, name), 0.0, math.inf)
            if rays.scale != "rms":
                raise ValueError(
                    f"{name} {does}, which only scale='rms' allows, got scale={rays.scale!r}; leave {name} out"
                )
    if not is_off(rays.experience) and is_off(rays.settle):
        raise ValueError(
            "experience lets gains fade as in an older block, and only with settle do they fade, got "
            f"settle={rays.settle!r}; give settle=, or leave experience out"
        )
    _between("average", rays.average, 0.0, math.inf, low_included=True)
    _between("weight_decay", rays.weight_decay, 0.0, math.inf, low_included=True)
    if not is_off(rays.takeover) and not isinstance(rays.cover, Watched):
        raise ValueError(f"takeover is for the long block of a Watched cover, got {rays.cover!r}; leave it out")
    if rays.decay == "linear" and isinstance(rays.cover, Watched) and rays.horizon is None:
        raise ValueError(
            "decay='linear' over the whole run needs to know its length: give horizon=, or use decay='sqrt'"
        )
    if rays.decay == "linear" and isinstance(rays.cover, Chosen):
        if rays.horizon is None:
            raise ValueError("decay='linear' over blocks of your choice needs the end of the last one: give horizon=")
        if not is_traced(rays.horizon) and rays.horizon <= rays.cover.rounds[-1]:
            raise ValueError(
                f"with decay='linear' the horizon must come after the start of the last block, round "
                f"{rays.cover.rounds[-1]}, got horizon={rays.horizon!r}"
            )


def is_off(value: Any) -> bool:
    """Whether an option is left out or 0; one that is traced may become any number, and is not."""
    if value is None or is_traced(value):
        return value is None
    return _number(value) == 0


def _is_count(value: Any) -> bool:
    """Whether a value is a whole number of at least 1: one of Python's, or an array of no dimension."""
    number = None if isinstance(value, float) else _number(value)
    return number is not None and number >= 1 and float(number).is_integer()


def _between(name: str, value: Any, low: float, high: float, low_included: bool = False) -> None:
    if is_traced(value):
        return
    number = _number(value)
    if number is None or not (low < number or (low_included and number == low)) or not number < high:
        edge = "at least" if low_included else "above"
        raise ValueError(f"{name} must be a number {edge} {low:g} and below {high:g}, got {value!r}")


def _number(value: Any) -> float | None:
    """A value as a number of Python's, also while a step is being compiled; None if it is none, or a truth value."""
    if isinstance(value, int | float):
        return None if isinstance(value, bool) else value
    is_real = any(kind in str(getattr(value, "dtype", "")) for kind in ("int", "float"))
    return float(value) if is_real and value.ndim == 0 else None


def _last(marked: Array) -> Array:
    """Marks the last of the marked slots only."""
    xp = namespace(marked)
    places = beside(np.arange(1, marked.shape[0] + 1), marked)
    return places == xp.max(xp.where(marked, places, xp.zeros_like(places)))


def _whole(like: Array, value: int) -> Array:
    """A whole number beside `like`: same library, same device."""
    xp = namespace(like)
    return xp.astype(xp.zeros_like(like), xp.int32) + value
