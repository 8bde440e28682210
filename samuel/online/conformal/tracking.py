"""What the learner of one horizon works on: scores, their scale, and the pinball loss of a bound.

A forecast `f` of `y` has one score, `|y - f|`, if the interval is symmetric, and two, `f - y` and `y - f`, if it has
two bounds of their own. A bound is a learner's decision `x` in units of its own:

    bound = start + unit x

`start` and `unit` come from the first scores, so that decisions do not depend on the scale of the scores; after that
they never change. Arrays of scores and bounds have the shape `(sides * streams,)`, sides first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from samuel.core.options import real_array
from samuel.online.bases.adagrad import Adagrad
from samuel.online.domains import Domain, Free, HalfLine, Interval
from samuel.online.ensemble import default_learning_rates
from samuel.online.learner import Learner, Ticket, whole_number
from samuel.online.losses import Data, PinballLoss
from samuel.online.samuel import Samuel

RATES = (0.01, 0.1, 1.0, 10.0)
"""SAMUEL's learning rates for bounds, in units of their scale."""
SIDES = ("symmetric", "separate")

Maker = Callable[..., Learner]
"""Makes a learner when called as `maker(1, domain, streams=...)`, as the classes of most learners do."""


@dataclass(frozen=True)
class Setup:
    """The options that `Conformal` and `backtest` share, checked; `Conformal` explains them."""

    coverage: float = 0.9
    horizons: int | tuple[int, ...] = 1
    streams: int | None = None
    sides: Literal["symmetric", "separate"] = "symmetric"
    bound: float | None = None
    warmup: int | None = None

    def __post_init__(self) -> None:
        if not _real(self.coverage) or not 0 < self.coverage < 1:
            raise ValueError(f"coverage must lie between 0 and 1, such as 0.9, got {self.coverage!r}")
        object.__setattr__(self, "horizons", _horizons(self.horizons))
        if self.streams is not None:
            whole_number("streams", self.streams, least=1)
        if self.sides not in SIDES:
            raise ValueError(f"sides must be one of {', '.join(SIDES)}, got {self.sides!r}")
        if self.bound is not None and (not _real(self.bound) or not 0 < self.bound < math.inf):
            raise ValueError(f"bound must be positive and finite: no error is larger; got {self.bound!r}")
        if self.warmup is not None:
            whole_number("warmup", self.warmup, least=1)

    @property
    def ahead(self) -> tuple[int, ...]:
        """The horizons as a tuple."""
        return self.horizons if isinstance(self.horizons, tuple) else (self.horizons,)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a forecast: `([horizons], [streams])`."""
        horizons = (len(self.horizons),) if isinstance(self.horizons, tuple) else ()
        return horizons + self.label_shape

    @property
    def label_shape(self) -> tuple[int, ...]:
        """The shape of a label: `([streams])`."""
        return () if self.streams is None else (self.streams,)

    @property
    def loss(self) -> PinballLoss:
        """The loss of one bound: missing on either side counts half, if there are two."""
        missed = 1 - float(self.coverage)
        return PinballLoss(1 - (missed if self.sides == "symmetric" else missed / 2))

    @property
    def needed(self) -> int:
        """Scores that set the scale: by default as few as give the quantile a finite estimate."""
        level = self.loss.level
        return max(1, math.ceil(1 / (1 - level) - 1 - 1e-9)) if self.warmup is None else self.warmup

    def domain(self, ahead: int) -> Domain:
        """Where decisions lie. A symmetric interval is not narrower than 0, `sqrt(ahead)` units below its start."""
        if self.sides == "symmetric":
            return HalfLine(-math.sqrt(ahead)) if self.bound is None else Interval(0.0, float(self.bound))
        return Free() if self.bound is None else Interval(-float(self.bound), float(self.bound))

    def make(self, maker: Maker | None, ahead: int) -> Learner:
        """A new learner for one horizon; ValueError if it is not what was asked for."""
        domain = self.domain(ahead)
        count = (self.streams or 1) * (1 if self.sides == "symmetric" else 2)
        streams = None if count == 1 else count
        if maker is None:
            return self._samuel(domain, ahead, streams)
        if not callable(maker):
            raise ValueError(f"learner must be a class such as Samuel, or a function like it, got {maker!r}")
        learner = maker(1, domain, streams=streams)
        if not isinstance(learner, Learner):
            raise ValueError(f"learner must make a samuel.online learner, it made {learner!r}")
        if (learner.dim, learner.domain, learner.streams, learner.round) != (1, domain, streams, 0):
            raise ValueError(
                f"learner(1, {domain}, streams={streams}) must make a new learner of that dimension, domain and "
                f"number of streams, it made {learner!r}"
            )
        return learner

    def _samuel(self, domain: Domain, ahead: int, streams: int | None) -> Learner:
        # Gradients of pinball losses are at most 1 in size. With sums that start from there, newborns do not take a
        # full step after a small gradient, as scale-free ones would: bounds fall slowly and rise fast. With late
        # labels as many gradients are under way as steps ahead, and count from the start (McMahan and Streeter, NeurIPS
        # 2014). Newborns do not inherit weight: a block that went too far would hand it on before late labels tell.
        base = Adagrad(delta=float(ahead))
        options: dict[str, Any] = {"base": base, "newborns": "warm", "streams": streams}
        if self.bound is None:
            return Samuel(1, domain, learning_rates=RATES, **options)
        rates = [rate / math.sqrt(ahead) for rate in default_learning_rates(base, domain, 1)]
        steepest = max(self.loss.level, 1 - self.loss.level)
        return Samuel(1, domain, learning_rates=rates, gradient_bound=steepest, **options)

    def scores(self, actual: np.ndarray, forecast: np.ndarray) -> np.ndarray:
        """How far each bound would have had to reach; streams along the last axis."""
        error = actual - forecast
        return np.abs(error) if self.sides == "symmetric" else np.concatenate([-error, error], axis=-1)

    def interval(self, forecast: np.ndarray, bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Low and high end; where two bounds would cross, both are in the middle."""
        below, above = self.reach(bounds)
        low, high = forecast - below, forecast + above
        crossed = low > high
        middle = (np.where(crossed, low, 0.0) + np.where(crossed, high, 0.0)) / 2  # not of infinite ends
        return np.where(crossed, middle, low), np.where(crossed, middle, high)

    def reach(self, bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How far an interval reaches below and above its forecast."""
        if self.sides == "symmetric":
            return bounds, bounds
        below, above = np.split(bounds, 2, axis=-1)
        return below, above

    def missed_by(self, bounds: np.ndarray, scores: np.ndarray) -> np.ndarray:
        """Pinball loss of the bounds, summed over the sides; nan where a score is."""
        short = scores - bounds
        losses = np.maximum(self.loss.level * short, (self.loss.level - 1) * short)
        return losses if self.sides == "symmetric" else np.add(*np.split(losses, 2, axis=-1))


class Scale:
    """Where the bounds of one horizon start and what their unit is, from its first scores.

    Attributes:
        start: the first bound: infinite until there are enough scores, then the quantile that split conformal
            prediction would take of them.
        unit: the same quantile (of the distances from the median, where bounds are separate) over the square root of
            the horizon; 0 until there are enough scores and not all of them are alike. Only then there is something
            to learn.
    """

    def __init__(self, setup: Setup, learner: Learner, ahead: int) -> None:
        count = learner.streams or 1
        self._level, self._symmetric = setup.loss.level, setup.sides == "symmetric"
        # Feedback that comes h rounds late wants steps that are sqrt(h) times smaller (Quanrud and Khashabi 2015): a
        # learner goes on in one direction for h rounds before the first gradient against it.
        self._slowness = math.sqrt(ahead)
        self._scores = np.full((count, setup.needed), np.nan)
        self._seen = np.zeros(count, dtype=int)
        known = setup.bound is not None
        self.start: np.ndarray = np.full(count, 0.0 if known else np.inf)
        self.unit: np.ndarray = np.full(count, 1.0 if known else 0.0)

    @property
    def learning(self) -> np.ndarray:
        """Whether there is a unit to learn in."""
        return self.unit > 0

    def see(self, scores: np.ndarray) -> None:
        """Take in a score of each stream; nan where there is none."""
        needed = self._scores.shape[1]
        rows = np.flatnonzero(~self.learning & np.isfinite(scores))
        if not rows.size:
            return
        self._scores[rows, self._seen[rows] % needed] = scores[rows]
        self._seen[rows] += 1
        rows = rows[self._seen[rows] >= needed]
        recent = self._scores[rows]
        sizes = recent if self._symmetric else np.abs(recent - np.median(recent, axis=1, keepdims=True))
        size = _quantile(sizes, self._level)
        size = np.where(size > 0, size, sizes.max(axis=1, initial=0.0))
        self.unit[rows] = size / self._slowness
        self.start[rows] = size if self._symmetric else _quantile(recent, self._level)


def data_of(scores: np.ndarray, start: np.ndarray, unit: np.ndarray, learning: np.ndarray) -> Data:
    """The data of the pinball loss in a learner's units: of a loss that is always 0 where there is nothing to learn."""
    known = learning & ~np.isnan(scores)
    far = np.finfo(float).max / 4  # stands for infinity in finite arithmetic
    with np.errstate(over="ignore"):
        target = (np.where(known, scores, 0.0) - np.where(known, start, 0.0)) / np.where(known, unit, 1.0)
    return known[..., None].astype(float), np.clip(np.where(known, target, 0.0), -far, far)


def give(learner: Learner, loss: PinballLoss, data: Data, decision: np.ndarray, ticket: Ticket | None) -> None:
    """Give a learner the loss of an earlier decision, in the way in which it takes feedback."""
    feedback = learner.rule.feedback
    if feedback == "full":
        learner.update(loss=lambda x: (loss.value(x, data), loss.gradient(x, data)), ticket=ticket)
    elif feedback == "loss":
        learner.update(loss.gradient(decision, data), loss=lambda x: loss.value(x, data), ticket=ticket)
    else:
        learner.update(loss.gradient(decision, data), ticket=ticket)


def numbers(name: str, value: Any, shape: tuple[int, ...], axes: str) -> np.ndarray:
    """Numbers in the wanted shape, nan where there are none; ValueError otherwise."""
    array = real_array(name, value, float)
    if array.shape != shape:
        raise ValueError(f"{name} must have the shape {shape} {axes}, got {array.shape}")
    if np.isinf(array).any():
        place = tuple(int(i) for i in np.argwhere(np.isinf(array))[0])
        where = f" at {place[0] if len(place) == 1 else place}" if place else ""
        raise ValueError(f"{name} must be finite, or nan where it is missing; got {array[place]}{where}")
    return array


def _quantile(scores: np.ndarray, level: float) -> np.ndarray:
    """The quantile of each row that a new score exceeds with probability at most `1 - level`, if all are alike."""
    count = scores.shape[1]
    rank = min(count, math.ceil((count + 1) * level - 1e-9))
    return np.sort(scores, axis=1)[:, rank - 1]


def _horizons(value: Any) -> int | tuple[int, ...]:
    if isinstance(value, int | np.integer):
        return whole_number("horizons", value, least=1)
    try:
        horizons = tuple(value)
    except TypeError:
        raise ValueError(f"horizons must be a whole number or a list of them, got {value!r}") from None
    horizons = tuple(whole_number("every horizon", horizon, least=1) for horizon in horizons)
    if not horizons or len(set(horizons)) < len(horizons):
        raise ValueError(f"horizons must be different whole numbers, at least one, got {value!r}")
    return horizons


def _real(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
