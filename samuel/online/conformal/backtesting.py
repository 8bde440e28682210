"""Intervals for a whole recorded series at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from samuel.online.conformal.coverage import Coverage, sliding_coverage, summary, totals
from samuel.online.conformal.delayed import Delayed
from samuel.online.conformal.tracking import Maker, Scale, Setup, data_of, give, numbers
from samuel.online.learner import Learner, whole_number
from samuel.online.losses import Data
from samuel.online.play import play
from samuel.online.streams import Recorded


@dataclass(frozen=True)
class Backtest:
    """The intervals that a recorded series would have got, and how good they were.

    Arrays have the shape `(times, [horizons], [streams])`; the entry at time `t` belongs to the forecast made then,
    for the time `t + h`.

    Attributes:
        setup: the options.
        low: low ends.
        high: high ends.
        covered: 1 where the interval contained the truth, 0 where it did not; nan where the label is missing or
            lies past the end, and where the interval is not finite.
        losses: pinball loss of the bounds, with nan in the same places.

    >>> import numpy as np
    >>> noise = np.random.default_rng(0).normal(size=501)
    >>> result = backtest(noise, np.zeros(501), coverage=0.8)
    >>> print(result.coverage(window=100))
    1 ahead: covered 0.817 of 496 (wanted 0.8), 0.790 to 0.850 in windows of 100, width 2.8
    """

    setup: Setup
    low: np.ndarray
    high: np.ndarray
    covered: np.ndarray
    losses: np.ndarray

    def coverage(self, window: int = 500) -> Coverage:
        """How often intervals contained the truth, overall and in sliding windows of so many."""
        window = whole_number("window", window, least=1)
        ahead = len(self.setup.ahead)
        parts = (self.covered, self.high - self.low, self.losses)
        covered, width, losses = (part.reshape(len(part), ahead, -1) for part in parts)
        rows = [totals(covered[:, h], width[:, h], losses[:, h], window) for h in range(ahead)]
        return summary(float(self.setup.coverage), self.setup.ahead, self.setup.shape, window, rows)

    def sliding(self, window: int = 500) -> np.ndarray:
        """The coverage of the last so many intervals, at every time: to draw."""
        return sliding_coverage(self.covered, window)


def backtest(
    actual: Any,
    forecasts: Any,
    *,
    coverage: float = 0.9,
    horizons: Any = 1,
    learner: Maker | None = None,
    sides: Literal["symmetric", "separate"] = "symmetric",
    bound: float | None = None,
    warmup: int | None = None,
    backend: Literal["auto", "numpy", "jax"] = "auto",
) -> Backtest:
    """The intervals that a recorded series would have got from `Conformal`, compiled where that pays.

    At time `t` the value `actual[t]` is given, then intervals around `forecasts[t]` are made:

        for t in range(len(actual)):
            intervals.update(actual[t])
            low[t], high[t] = intervals.predict(forecasts[t])

    Args:
        actual: the series, `(times, [streams])`; nan where a value is missing.
        forecasts: what was forecast at each time for the times `t + h`, `(times, [horizons], [streams])`; nan where
            there was no forecast.
        coverage: as for `Conformal`, like all that follow.
        horizons: how many steps ahead.
        learner: makes the learner of each horizon.
        sides: "symmetric" or "separate".
        bound: no error is larger, if that is known.
        warmup: scores that set the scale.
        backend: as for `play`.

    >>> import numpy as np
    >>> price = np.sin(np.arange(800.0)) + np.random.default_rng(0).normal(size=800)
    >>> forecasts = np.stack([np.sin(np.arange(800.0) + h) for h in (1, 24)], axis=1)
    >>> result = backtest(price, forecasts, horizons=(1, 24))
    >>> result.coverage().overall.round(2)
    array([0.91, 0.9 ])
    """
    shape = np.shape(actual)
    if len(shape) not in (1, 2) or shape[0] < 1:
        raise ValueError(f"actual must have the shape (times, [streams]), got {shape}")
    setup = Setup(coverage, horizons, shape[1] if len(shape) == 2 else None, sides, bound, warmup)
    actual = numbers("actual", actual, shape, "(times, [streams])").reshape(shape[0], -1)
    forecasts = numbers("forecasts", forecasts, (shape[0], *setup.shape), "(times, [horizons], [streams])")
    by_horizon = np.moveaxis(forecasts.reshape(shape[0], len(setup.ahead), -1), 1, 0)
    parts = [
        _one_horizon(setup, setup.make(learner, ahead), ahead, actual, made, backend)
        for ahead, made in zip(setup.ahead, by_horizon, strict=True)
    ]
    stacked = [np.stack(arrays, axis=1).reshape(forecasts.shape) for arrays in zip(*parts, strict=True)]
    return Backtest(setup, *stacked)


def _one_horizon(
    setup: Setup, learner: Learner, ahead: int, actual: np.ndarray, forecast: np.ndarray, backend: str
) -> tuple[np.ndarray, ...]:
    """Low and high ends, whether they covered, and losses, `(times, streams)`."""
    times = len(actual)
    past_the_end = np.full((min(ahead, times), actual.shape[1]), np.nan)
    value = np.concatenate([actual[ahead:], past_the_end])
    scores = setup.scores(value, forecast)
    labels = times - len(past_the_end)
    start, unit = _scales(Scale(setup, learner, ahead), scores[:labels])
    known = np.maximum(0, np.arange(times) - ahead + 1)  # how many scores were known when a forecast was made
    learning = _row(unit, known) > 0
    data = data_of(scores[:labels], start[-1], unit[-1], learning[:labels])
    decisions = _decisions(setup, learner, ahead, data, known, backend)
    bounds = _row(start, known) + _row(unit, known) * decisions
    low, high = setup.interval(forecast, bounds)
    counted = np.isfinite(low) & ~np.isnan(value)
    covered = np.where(counted, (low <= value) & (value <= high), np.nan)
    return low, high, covered, np.where(counted, setup.missed_by(bounds, scores), np.nan)


def _scales(scale: Scale, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Start and unit after 0, 1, 2... scores, until they do not change any more."""
    history = [(scale.start.copy(), scale.unit.copy())]
    for row in scores:
        if scale.learning.all():
            break
        scale.see(row)
        history.append((scale.start.copy(), scale.unit.copy()))
    start, unit = zip(*history, strict=True)
    return np.stack(start), np.stack(unit)


def _row(history: np.ndarray, count: np.ndarray) -> np.ndarray:
    """The entries after so many scores; the last one holds for ever."""
    return history[np.minimum(count, len(history) - 1)]


def _decisions(setup: Setup, learner: Learner, ahead: int, data: Data, known: np.ndarray, backend: Any) -> np.ndarray:
    """The decision that each forecast's bounds are made of, `(times, sides * streams)`."""
    features, target = (array[:, 0] for array in data) if learner.streams is None else data
    feedback, labels = learner.rule.feedback, len(target)
    late = ahead > 1 and feedback != "full"  # which is taken at the present in any case
    if late and feedback == "loss":  # part of it is taken at the present: no rule of ours does that
        made = _by_hand(setup, learner, ahead, features, target, len(known))
        return np.stack(made).reshape(len(known), -1)
    if late:
        learner = Learner(
            Delayed(1, learner.domain, learner.late_rule, ahead), streams=learner.streams, dtype=str(learner.dtype)
        )
    made = []
    if labels:
        trace = play(learner, Recorded(setup.loss, (features, target)), record="decisions", backend=backend)
        made = list(trace.needed("decision"))
    if isinstance(learner.rule, Delayed):
        made += [learner.rule.decision_after(learner._state, rounds) for rounds in range(len(known) - labels)]
        return np.stack(made).reshape(len(known), -1)
    return np.stack([*made, learner.predict()]).reshape(labels + 1, -1)[known]


def _by_hand(
    setup: Setup, learner: Learner, ahead: int, features: np.ndarray, target: np.ndarray, times: int
) -> list[np.ndarray]:
    made, tickets = [], []
    for t in range(times):
        if t >= ahead:
            data = features[t - ahead], target[t - ahead]
            give(learner, setup.loss, data, made[t - ahead], tickets[t - ahead])
        made.append(learner.predict())
        tickets.append(learner.ticket())
    return made
