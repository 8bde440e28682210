"""The rule that sets learning rates while a network trains, independent of where parameters are stored.

Each step takes a few dot products from the drop-in and returns scalars:

    dots, squares = <g, s>, <g, l>, <g, g>                                   of every search; no host sync
    moves         = rule.advance(state, dots, squares)
    d             = direction of the base for the gradient times moves.gradient
    parameters   += slide * s + along * d + back * l                         one pass, with the next three lines
    s, l          = keep * s + enter * d, lag * (keep * l + enter * d)       both 0 where moves.restart
                                                                             lag is 1 where the gradient is left out
    parameters   -= weight decay (in `keep`)
    average      += pace * (parameters - average)

It combines one search for each group of parameters (`samuel.core.rate_search`), one shift detector on the whole
gradient (`samuel.core.shift`), which restarts all searches, and the tail average (`samuel.core.tail_average`).

**Schedule.** With the number of steps given, rates fall linearly to 0 at the end; otherwise as `1 / sqrt(1 + t / 256)`.
Past the end the last rate is kept. After a shift the schedule restarts, towards the same end.

**Guard.** A gradient that is not finite, or whose square is 10,000 times the largest so far and points back where the
last steps came from, is skipped: nothing moves. After two skipped gradients in a row, or one that blew up, the last
steps are undone as far as the lag covers them, and rates above a quarter of the mean are dropped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from samuel.core.arrays import Array, constant, is_traced, namespace
from samuel.core.options import between, one_of, whole_number
from samuel.core.rate_search import RateSearch, SearchState
from samuel.core.shift import ShiftDetector, ShiftState
from samuel.core.tail_average import TailAverage, TailState

COOLING = 256
"""Without `steps`, rates have fallen to `1 / sqrt(2)` after this many rounds."""
LATE = 0.05
"""In this last fraction of a run with a known end, no shift is detected."""
BLOW_UP = 1e4
"""A squared norm of this many times the largest so far is a blow-up, if undoing steps would help."""
GROWTH = 2.0
"""The largest so far grows at most by this factor a round, so that a slow blow-up is detected too."""
RAMP = 0.1
"""After `extend`, the schedule is reached in this fraction of the remaining steps."""
ON_SHIFT = ("restart", "ignore")
LONGEST = 2**31 - 1
"""Steps of a run at most: they are counted in 32 bits."""


class Option(NamedTuple):
    """An option of both drop-ins."""

    default: Any
    help: str


OPTIONS = {
    "learning_rates": Option(
        None,
        "candidate learning rates. By default six decades in steps of half a decade, where people sweep for that base: "
        "from 1e-6 to 1, and from 1e-5 to 10 for SGD and Adagrad. A long list costs nothing.",
    ),
    "steps": Option(
        None,
        "number of steps of the whole run, if known: rates then fall linearly to 0 at its end, and no scheduler is "
        "needed. Without it they fall with the root of time, and the averaged parameters are the ones to use.",
    ),
    "weight_decay": Option(
        0.1, "decoupled weight decay of matrices and tables; vectors (biases, factors of norms) have none"
    ),
    "average": Option(None, "keep averaged parameters, at the cost of one copy. By default if `steps` is not given."),
    "on_shift": Option(
        "restart",
        'what to do when the gradient norm leaps because the data have shifted: "restart" the search, with what was '
        'learned about rates, or "ignore" it.',
    ),
    "clip": Option(
        None,
        "largest norm of the whole gradient. Clip here and not before: the shift detector needs the unclipped norm.",
    ),
    "search": Option(None, "settings of the search, a `samuel.core.RateSearch`, in place of the default for the base."),
    "state_dtype": Option(
        None,
        "dtype of the direction sum, its lag and the average: by default bfloat16 for parameters in bfloat16, and "
        "otherwise float32 (float64 for parameters in float64).",
    ),
}
"""The options that both drop-ins share. Their signatures have these defaults and their docstrings these texts, word for
word (as text, so that editors and documentation find them), which `tests/test_drop_ins.py` compares."""


class RuleState(NamedTuple):
    """State of a `Rule`: arrays only, of constant shapes."""

    round: Array
    """Steps so far, a whole number."""
    since: Array
    """Steps since the last restart."""
    steps: Array
    """Length of the whole run in steps; infinite if it was not given."""
    lift: Array
    """Factor of the schedule: below 1 for a while after `extend`."""
    lift_growth: Array
    """Growth of `lift` per step."""
    search: SearchState
    """One entry per group of parameters along the first axis."""
    detector: ShiftState
    tail: TailState
    """Its pace stays 1 without an average."""
    largest: Array
    """Largest squared norm of a gradient so far, which at most doubles per step."""
    bad: Array
    """Whether the last gradient was skipped."""
    skipped: Array
    """Number of skipped gradients."""
    retreats: Array
    """Number of times that the last steps were undone."""


class Moves(NamedTuple):
    """Scalars of one step for the drop-in; the first five have an entry per search."""

    slide: Array
    along: Array
    keep: Array
    enter: Array
    back: Array
    """Factor of the lag in the update: 0 unless the last steps are undone."""
    gradient: Array
    """Factor of the gradient before the base: 0 if it is skipped (replace it, since NaN times 0 is NaN), below 1 if it
    is clipped."""
    restart: Array
    """Whether `s` and `l` become 0 after the step."""
    reset: Array
    """Whether the base's state is reset too, because the data shifted."""
    pace: Array
    """Weight of the new parameters in the average."""


@dataclass(frozen=True)
class Rule:
    """SAMUEL's rule for training networks: schedule, searches, shift detector, guard and average.

    Args:
        search: the settings of every search.
        groups: number of searches, one for each group of parameters with a learning rate of its own.
        steps: length of the whole run, if known.
        average: whether to average the parameters.
        on_shift: "restart" or "ignore".
        clip: largest norm of the gradient; None for no limit.

    >>> import numpy as np
    >>> rule = Rule(RateSearch(), steps=100)
    >>> state = rule.start(np.zeros(()))
    >>> state, moves = rule.advance(state, dots=np.zeros((1, 2)), squares=np.ones(1))
    >>> bool(-moves.along[0] == state.search.rate[0]), float(moves.gradient)
    (True, 1.0)
    """

    search: RateSearch
    groups: int = 1
    steps: Any = None
    average: bool = False
    on_shift: str = "restart"
    clip: Any = None

    def __post_init__(self) -> None:
        if not isinstance(self.search, RateSearch):
            raise ValueError(f"search must be a samuel.core.RateSearch, got {self.search!r}")
        if not (self.steps is None or is_traced(self.steps)):
            _checked_length(self.steps, least=1)
        if self.average not in (True, False):
            raise ValueError(f"average must be True or False, got {self.average!r}")
        one_of("on_shift", self.on_shift, ON_SHIFT)
        if self.clip is not None:
            between("clip", self.clip, 0.0, math.inf)

    @property
    def detector(self) -> ShiftDetector:
        """The shift detector on the whole gradient."""
        return ShiftDetector()

    @property
    def tail(self) -> TailAverage:
        """The average of the parameters."""
        return TailAverage()

    def start(self, like: Array) -> RuleState:
        """The state before the first step; library, dtype and device are those of the scalar `like`."""
        xp = namespace(like)
        zero = like * 0
        whole = xp.astype(xp.zeros_like(like), xp.int32)
        return RuleState(
            round=whole,
            since=whole,
            steps=zero + (math.inf if self.steps is None else self.steps),
            lift=zero + 1,
            lift_growth=zero + 1,
            search=self.search.start(constant(np.zeros(self.groups), like)),
            detector=self.detector.start(like),
            tail=self.tail.start(like),
            largest=zero,
            bad=whole > 0,
            skipped=whole,
            retreats=whole,
        )

    def advance(
        self, state: RuleState, dots: Array, squares: Array, decay: Array | float = 0.0
    ) -> tuple[RuleState, Moves]:
        """One step: the state after it, and the scalars of the step.

        Args:
            state: the state before.
            dots: `<g, s>` and `<g, l>` of every search, `(groups, 2)`.
            squares: `<g, g>` of every search, `(groups,)`.
            decay: weight decay, as `RateSearch.advance` takes it.
        """
        xp = namespace(dots)
        square = xp.sum(squares)
        finite = (square < math.inf) & xp.all(abs(dots) < math.inf)
        blown = finite & (state.since > 0) & (square > BLOW_UP * state.largest) & (xp.sum(dots[:, 0]) < 0)
        blown = blown & (state.largest > 0)
        usable = finite & ~blown
        retreats = blown | (~finite & state.bad)
        square = xp.where(usable, square, xp.zeros_like(square))
        scale = xp.where(usable, xp.ones_like(square), xp.zeros_like(square))
        if self.clip is not None:
            norm = xp.sqrt(square)
            scale = scale * xp.where(norm > self.clip, self.clip / xp.where(norm > 0, norm, 1.0), 1.0)
        dots = xp.where(usable, dots, 0.0) * scale

        since = xp.astype(state.since, square.dtype)
        late = since > (1 - LATE) * self._length(state)
        watching = ~late if self.on_shift == "restart" else xp.zeros_like(late)
        detector, shifted = self.detector.advance(state.detector, square, watching, usable)

        fall = self.fall(state)
        searched, step = self.search.advance(state.search, dots, fall, decay, shifted, retreats)
        counts = usable | retreats
        search = SearchState(*(xp.where(counts, *pair) for pair in zip(searched, state.search, strict=True)))
        search = search._replace(rate=xp.where(usable, search.rate, state.search.rate))
        last_steps = state.search.mean / max(self.search.lag, 1e-3)  # the lag contains the last step times `lag`
        back = xp.where(retreats, last_steps, xp.zeros_like(last_steps))

        tail = self.tail.advance(state.tail, shifted, usable) if self.average else state.tail
        one, zero = xp.ones_like(state.round), xp.zeros_like(state.round)
        goes = xp.where(usable, one, zero)
        lift = state.lift * state.lift_growth
        grown = xp.where(square < GROWTH * state.largest, square, GROWTH * state.largest)
        largest = xp.where(state.largest > 0, xp.where(grown > state.largest, grown, state.largest), square)
        moves = Moves(
            slide=xp.where(usable, step.slide, 0.0),
            along=xp.where(usable, step.along, 0.0),
            keep=xp.where(usable, step.keep, 1.0),
            enter=xp.where(usable, step.enter, 0.0),
            back=back,
            gradient=scale,
            restart=shifted | retreats,
            reset=shifted,
            pace=tail.pace,
        )
        state = RuleState(
            round=state.round + goes,
            since=xp.where(shifted, zero, state.since + goes),
            steps=state.steps,
            lift=xp.where(lift < 1, lift, xp.ones_like(lift)),
            lift_growth=state.lift_growth,
            search=search,
            detector=detector,
            tail=tail,
            largest=xp.where(usable, largest, state.largest),
            bad=~usable & ~retreats,
            skipped=state.skipped + (one - goes),
            retreats=state.retreats + xp.where(retreats, one, zero),
        )
        return state, moves

    def fall(self, state: RuleState) -> Array:
        """Factor of the schedule in the next step."""
        xp = namespace(state.lift)
        since = xp.astype(state.since, state.lift.dtype)
        length = self._length(state)
        before_end = xp.where(since < length, since, length - 1)  # past the end the last rate is kept
        return state.lift * xp.where(length < math.inf, 1 - before_end / length, 1 / xp.sqrt(1 + since / COOLING))

    def extend(self, state: RuleState, steps: Any) -> RuleState:
        """The state of a run extended to more steps, without a jump of the rate.

        Rates grow by a constant factor per step until they reach the schedule of the longer run, within a tenth of the
        remaining steps.

        Args:
            state: the state so far.
            steps: length of the whole run, including the steps so far.
        """
        if not is_traced(state.steps) and not state.steps < math.inf:
            raise ValueError(f"steps={steps!r} cannot extend a run without a number of steps")
        xp = namespace(state.lift)
        if not is_traced(state.round):
            _checked_length(steps, least=int(state.round) + 1)
            if not is_traced(state.steps) and steps < float(state.steps) * (1 - 1e-6):  # rounded to 32 bits
                raise ValueError(f"steps={steps!r} would shorten the run, which has {float(state.steps):.0f} steps")
        now = self.fall(state)
        longer = state._replace(steps=state.lift * 0 + steps, lift=xp.ones_like(state.lift))
        lift = now / self.fall(longer)
        lift = xp.where(lift < 1, lift, xp.ones_like(lift))
        ramp = xp.ceil(RAMP * (steps - xp.astype(state.round, lift.dtype)))
        return longer._replace(lift=lift, lift_growth=lift ** (-1 / ramp))

    def _length(self, state: RuleState) -> Array:
        """Steps from the last restart to the end of the run."""
        xp = namespace(state.steps)
        return state.steps - xp.astype(state.round - state.since, state.steps.dtype)


def _checked_length(steps: Any, least: int) -> int:
    """A possible number of steps of a run; an error for anything else."""
    try:
        return whole_number("steps", steps, least, LONGEST)
    except ValueError as error:
        raise ValueError(f"{error}; leave it out for a run without an end") from None
