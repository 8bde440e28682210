"""Intervals around forecasts, one time step at a time."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np

from samuel.online.conformal.coverage import Coverage, Tally, summary
from samuel.online.conformal.tracking import Maker, Scale, Setup, data_of, give, numbers
from samuel.online.learner import Learner, Ticket, UpdateLock, whole_number


class Conformal:
    """Intervals around any forecaster's forecasts that keep their coverage while the errors drift.

    For every horizon a learner of its own follows the quantile of the scores `s = |y - f|` by the pinball loss of its
    bound, `l(b) = max(c (s - b), (c - 1) (s - b))` with coverage `c`. With a strongly adaptive learner the loss is
    close to that of the best fixed bound on every interval of time.

    Time `t` counts the calls of `predict`, from 0. The call at time `t` takes forecasts for the times `t + h`, one
    for each horizon `h`. `update(actual)` then gives the value at the new present, `t + 1`; labels may also come
    late, out of order, or never. Sources: Gibbs and Candès (2021) for the idea, Bhatnagar, Wang, Xiong and Bai (2023)
    for strongly adaptive learners, Angelopoulos, Candès and Tibshirani (2023) for learning the bound itself.

    Args:
        coverage: the share of intervals that should contain the truth.
        horizons: how many steps ahead; a list for several, each with a learner and a clock of its own.
        learner: called as `learner(1, domain, streams=...)` for every horizon: the class of a learner, or a function
            such as `lambda dim, domain, streams: Single(OGD(0.05), dim, domain, streams=streams)`. `Samuel` by
            default.
        streams: how many series are served at once, each on its own; None for a single one.
        sides: "symmetric" for `f - b` to `f + b`; "separate" for `f - b` to `f + b'`, each bound missed half as
            often as the interval may be missed.
        bound: no error is larger, if that is known; decisions then lie between 0 and this, and certificates hold
            against every fixed bound.
        warmup: without `bound`, scores of a stream after which its intervals become finite; they set where bounds
            start and the unit they are learnt in. By default the fewest that split conformal prediction
            needs (9 for a coverage of 0.9). More are safer if the first errors are unlike the later ones.
        window: intervals in a window of `coverage()`.
        patience: times that a label may be late before its interval is forgotten.

    >>> import numpy as np
    >>> random = np.random.default_rng(0)
    >>> noise = random.normal(size=1000) * np.where(np.arange(1000) < 500, 1.0, 5.0)  # no notice of the change
    >>> intervals = Conformal(coverage=0.9, window=200)
    >>> for error in noise:
    ...     low, high = intervals.predict(20.0)
    ...     intervals.update(20.0 + error)
    >>> print(intervals.coverage())
    1 ahead: covered 0.904 of 991 (wanted 0.9), 0.870 to 0.925 in windows of 200, width 9.99
    """

    def __init__(
        self,
        coverage: float = 0.9,
        *,
        horizons: Any = 1,
        learner: Maker | None = None,
        streams: int | None = None,
        sides: Literal["symmetric", "separate"] = "symmetric",
        bound: float | None = None,
        warmup: int | None = None,
        window: int = 500,
        patience: int = 1000,
    ) -> None:
        self.setup: Setup = Setup(coverage, horizons, streams, sides, bound, warmup)
        window = whole_number("window", window, least=1)
        self.patience: int = whole_number("patience", patience, least=0)
        self.time: int = 0
        self._lock = UpdateLock()
        self._clocks = tuple(_Clock(self.setup, self.setup.make(learner, h), h, window) for h in self.setup.ahead)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a forecast: `([horizons], [streams])`."""
        return self.setup.shape

    @property
    def learners(self) -> tuple[Learner, ...]:
        """The learner of each horizon."""
        return tuple(clock.learner for clock in self._clocks)

    def reach(self) -> tuple[np.ndarray, np.ndarray]:
        """How far intervals made now would reach below and above their forecasts. Nothing changes."""
        below, above = zip(*(self.setup.reach(clock.bounds()) for clock in self._clocks), strict=True)
        return self._shaped(below), self._shaped(above)

    def predict(self, forecast: Any) -> tuple[np.ndarray, np.ndarray]:
        """Low and high end of the intervals around the forecasts made now. The time advances by one step.

        Args:
            forecast: of the value at `time + h` for each horizon `h`, of shape `([horizons], [streams])`; nan where
                there is none.

        Returns:
            Two arrays of that shape; infinite while there is no scale yet, nan where there was no forecast.
        """
        forecast = numbers("forecast", forecast, self.shape, "([horizons], [streams])")
        ends = []
        with self._lock:
            for clock, ahead, made in zip(self._clocks, self.setup.ahead, self._by_horizon(forecast), strict=True):
                ends.append(clock.issue(self.time + ahead, made))
                clock.forget(self.time - self.patience)
            self.time += 1
        low, high = zip(*ends, strict=True)
        return self._shaped(low), self._shaped(high)

    def update(self, actual: Any, at: int | None = None) -> None:
        """Give a value; every horizon learns from the interval that it made for that time.

        Values for which no interval waits are ignored: those before the first horizon has passed, and those that
        come later than `patience` allows.

        Args:
            actual: the value, or one for each stream; nan where it is missing.
            at: the time it belongs to; the present, `time`, by default.

        Raises:
            ValueError: for a value of the wrong shape, for a time in the future, and for a time whose value was given
                before. Nothing has changed then.
        """
        actual = numbers("actual", actual, self.setup.label_shape, "([streams])").reshape(-1)
        with self._lock:
            self._learn(actual, at)

    def _learn(self, actual: np.ndarray, at: int | None) -> None:
        at = self.time if at is None else whole_number("at", at, least=0)
        if at > self.time:
            raise ValueError(f"at must be at most {self.time}, the present time (calls of predict), got {at}")
        waiting = [clock for clock in self._clocks if at in clock.waiting]
        if not waiting and at >= min(self.setup.ahead) and at >= self.time - self.patience:
            raise ValueError(
                f"the value at time {at} was given before; predict advances the time, and late values come with at=..."
            )
        for clock in waiting:
            clock.learn(at, actual)

    def coverage(self) -> Coverage:
        """How often intervals contained the truth so far, overall and in sliding windows."""
        window, parts = self._clocks[0].tally.window, [clock.tally.totals() for clock in self._clocks]
        return summary(float(self.setup.coverage), self.setup.ahead, self.shape, window, parts)

    def _by_horizon(self, forecast: np.ndarray) -> np.ndarray:
        return forecast.reshape(len(self._clocks), -1)

    def _shaped(self, parts: Any) -> np.ndarray:
        return np.stack(parts).reshape(self.shape)

    def __repr__(self) -> str:
        streams = "" if self.setup.streams is None else f", streams={self.setup.streams}"
        learner = type(self._clocks[0].learner).__name__
        return (
            f"<Conformal of coverage {self.setup.coverage:g} by {learner}, horizons={self.setup.horizons}, "
            f"time {self.time}{streams}>"
        )


class _Issued(NamedTuple):
    """An interval that waits for its label."""

    forecast: np.ndarray
    bounds: np.ndarray
    low: np.ndarray
    high: np.ndarray
    decision: np.ndarray
    learning: np.ndarray
    ticket: Ticket


class _Clock:
    """One horizon: its learner, the scale of its scores, the intervals that wait for labels, and their tally."""

    def __init__(self, setup: Setup, learner: Learner, ahead: int, window: int) -> None:
        self.setup = setup
        self.learner = learner
        self.scale = Scale(setup, learner, ahead)
        self.waiting: dict[int, _Issued] = {}
        self.tally = Tally(setup.streams or 1, window)

    def bounds(self) -> np.ndarray:
        """The bounds of now."""
        return self.scale.start + self.scale.unit * self.learner.predict().reshape(-1)

    def issue(self, target: int, forecast: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        bounds = self.bounds()
        low, high = self.setup.interval(forecast, bounds)
        decision, learning = self.learner.predict(), self.scale.learning
        ticket = self.learner.ticket()
        self.waiting[target] = _Issued(forecast, bounds, low, high, decision, learning, ticket)
        return low, high

    def forget(self, before: int) -> None:
        """Drop the intervals for times before that one: their labels are not expected any more."""
        while self.waiting and (oldest := next(iter(self.waiting))) < before:
            # A ticket that nobody hands in would stay for ever.
            self.learner.forget(self.waiting.pop(oldest).ticket)

    def learn(self, at: int, actual: np.ndarray) -> None:
        """Score the interval that was made for that time."""
        issued = self.waiting.pop(at)
        scores = self.setup.scores(actual, issued.forecast)
        data = data_of(scores, self.scale.start, self.scale.unit, issued.learning)
        if self.learner.streams is None:
            data = tuple(array[0] for array in data)
        give(self.learner, self.setup.loss, data, issued.decision, issued.ticket)
        known = np.isfinite(issued.low) & ~np.isnan(actual)
        covered = (issued.low <= actual) & (actual <= issued.high)
        loss = self.setup.missed_by(issued.bounds, scores)
        self.tally.add(known, covered, issued.high - issued.low, loss)
        self.scale.see(scores)
