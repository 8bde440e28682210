"""Linear and logistic models that learn row by row: `learn_one(x, y)` and `predict_one(x)`, with no gradient by hand.

`Regressor` and `Classifier` need NumPy only. `samuel.online.river` and `samuel.online.sklearn` have the same models in
the protocols of river and scikit-learn.

Features may have any scale, and come and go. A learner works on standardised ones, brought to a norm of at most 1: so
one list of learning rates suits all data, and descent on them is stable up to a rate of two over the curvature.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np

from samuel.core.options import number, real_array
from samuel.online.bases.ogd import OGD
from samuel.online.domains import Free
from samuel.online.learner import Learner
from samuel.online.losses import LinearLoss, LogisticLoss, LossFamily, SquaredLoss
from samuel.online.makers import Maker, make_learner
from samuel.online.samuel import Samuel

LARGEST = 1e100
"""Larger numbers are refused: they could not be squared."""
FARTHEST = 5.0
"""A feature in standard units is at most so far from 0: rare ones are measured by their range."""
RATES = 9
"""How many learning rates SAMUEL is given, each half of the one before."""


class Moments(NamedTuple):
    """Running mean and spread of numbers (Welford 1962), in arrays of one shape."""

    count: np.ndarray
    mean: np.ndarray
    squares: np.ndarray
    """Sum of the squared distances from the mean."""
    farthest: np.ndarray
    """The largest distance from the mean that a number had when it came."""

    @classmethod
    def none(cls, shape: tuple[int, ...] = ()) -> Self:
        """Of no numbers yet."""
        return cls(*np.zeros((4, *shape)))

    def with_numbers(self, numbers: np.ndarray) -> Self:
        """The same after one more number each."""
        count = self.count + 1
        away = numbers - self.mean
        mean = self.mean + away / count
        left = numbers - mean
        return type(self)(count, mean, self.squares + away * left, np.maximum(self.farthest, np.abs(left)))

    def with_more(self, more: int) -> Self:
        """The same with room for more, of which nothing is known."""
        return type(self)(*(np.concatenate([array, np.zeros(more)]) for array in self))

    @property
    def spread(self) -> np.ndarray:
        """Standard deviation, or a fifth of the range if that is larger; 0 while all numbers are alike."""
        deviation = np.sqrt(self.squares / np.maximum(self.count, 1))
        return np.maximum(deviation, self.farthest / FARTHEST)

    def standardised(self, numbers: np.ndarray) -> np.ndarray:
        """Distances from the mean in units of the spread; 0 while all numbers are alike."""
        spread = self.spread
        return np.where(spread > 0, (numbers - self.mean) / np.where(spread > 0, spread, 1.0), 0.0)


class Features(NamedTuple):
    """The names of features seen so far, and their moments since they were first seen."""

    names: dict[Hashable, int]
    moments: Moments
    longest: float
    """The largest norm of a vector so far."""

    @classmethod
    def none(cls) -> Self:
        """No features yet."""
        return cls({}, Moments.none((0,)), 1.0)

    def seen(self, row: dict[Hashable, float]) -> tuple[Self, np.ndarray]:
        """The same after one more row, and the row as a vector: 1, then a number for each feature.

        A feature that is absent adds nothing to a prediction, and counts as 0 in the moments.
        """
        names, moments = self.names, self.moments
        new = sorted((name for name in row if name not in names), key=str)
        if new:
            names = names | {name: len(names) + place for place, name in enumerate(new)}
            moments = moments.with_more(len(new))
        places = [names[name] for name in row]
        values, present = np.zeros(len(names)), np.zeros(len(names), dtype=bool)
        values[places], present[places] = list(row.values()), True
        moments = moments.with_numbers(values)
        vector = np.concatenate([[1.0], np.where(present, moments.standardised(values), 0.0)])
        longest = max(self.longest, math.sqrt(vector @ vector))
        return type(self)(names, moments, longest), vector / longest


class Model(ABC):
    """A linear model that learns row by row; subclasses say what is predicted.

    Attributes:
        learner: the online learner of the weights, once there is something to learn; None before.
    """

    def __init__(self, loss: LossFamily, learner: Maker | None) -> None:
        self.learner: Learner | None = None
        self._loss = loss
        self._maker = samuel_for(loss) if learner is None else learner
        self._features = Features.none()

    @abstractmethod
    def learn_one(self, x: Any, y: Any) -> None:
        """Learn from one row and its target."""

    @abstractmethod
    def predict_one(self, x: Any) -> Any:
        """Predict the target of one row. Nothing is learnt."""

    def _margins(self, x: Any) -> np.ndarray:
        """The linear part of a prediction: a number, or one for each stream of the learner."""
        if self.learner is None:
            return np.zeros(())
        _, vector = self._features.seen(row_of(x))
        weights = self.learner.predict()
        known = min(len(vector), weights.shape[-1])  # features not seen before have no weight yet
        return weights[..., :known] @ vector[:known]

    def _taught(self, vector: np.ndarray, target: np.ndarray, streams: int | None) -> Learner:
        """A learner that was given the loss of one row; the present one goes on if nothing is raised."""
        learner = self.learner
        if learner is None:
            learner = make_learner(self._maker, len(vector), Free(), streams)
            if learner.rule.feedback != "linear":
                raise ValueError(f"learner must take linear feedback, {learner!r} takes {learner.rule.feedback!r}")
        elif len(vector) > learner.dim or streams != learner.streams:
            dim = learner.dim if len(vector) <= learner.dim else max(len(vector), 2 * learner.dim)
            learner = grown(learner, dim, streams)
        padded = np.zeros(learner.dim)
        padded[: len(vector)] = vector
        weights = learner.predict()
        learner.update(self._loss.gradient(weights, (np.broadcast_to(padded, weights.shape), target)))
        return learner


class Regressor(Model):
    """A linear model of a number, by any loss, that learns row by row without a learning rate to choose.

    Args:
        loss: `SquaredLoss()` by default; `AbsoluteLoss()` for medians, `PinballLoss(0.9)` for quantiles, or a
            `LossFamily` of your own. It is measured in units of the target's standard deviation.
        learner: called as `learner(dim, domain, streams=...)`: the class of a learner, or a function such as
            `lambda dim, domain, streams: Single(OGD(0.1), dim, domain, streams=streams)`. By default `Samuel` over
            gradient descent, with nine rates.

    >>> from samuel.online import Regressor
    >>> model = Regressor()
    >>> for hour in range(1000):
    ...     x = {"hour": hour % 24, "day": "work" if hour // 24 % 7 < 5 else "free"}
    ...     y = 1e6 + 2e4 * x["hour"] - (3e5 if x["day"] == "free" else 0.0)
    ...     guess = model.predict_one(x)
    ...     model.learn_one(x, y)
    >>> bool(abs(guess - y) < 1e3)
    True
    """

    def __init__(self, loss: LossFamily | None = None, learner: Maker | None = None) -> None:
        if loss is not None and (not isinstance(loss, LossFamily) or isinstance(loss, LinearLoss | LogisticLoss)):
            raise ValueError(f"loss must be one of predictions of a number, such as SquaredLoss(), got {loss!r}")
        super().__init__(loss or SquaredLoss(), learner)
        self._target = Moments.none()

    def learn_one(self, x: Any, y: Any) -> None:
        """Learn from one row: a dictionary of features, or a sequence of numbers, and its target."""
        features, vector = self._features.seen(row_of(x))
        target = self._target.with_numbers(np.asarray(real("y", y)))
        self.learner = self._taught(vector, target.standardised(target_of(y)), None)
        self._features, self._target = features, target

    def predict_one(self, x: Any) -> float:
        """The prediction for one row; 0 before the first target. Nothing is learnt."""
        return float(self._target.mean + self._target.spread * self._margins(x))


class Classifier(Model):
    """A logistic model of two or more classes that learns row by row without a learning rate to choose.

    Classes need not be known beforehand. With three or more each has a model of its own, of itself against the rest.

    Args:
        learner: as for `Regressor`.

    >>> from samuel.online import Classifier
    >>> model = Classifier()
    >>> for words in ["cheap pills", "see you soon", "cheap watches", "soon home"] * 25:
    ...     x = {word: 1 for word in words.split()}
    ...     model.learn_one(x, "spam" if "cheap" in x else "mail")
    >>> model.predict_one({"cheap": 1, "soap": 1})
    'spam'
    >>> round(model.predict_proba_one({"soon": 1})["mail"], 1)
    1.0
    """

    def __init__(self, learner: Maker | None = None) -> None:
        super().__init__(LogisticLoss(), learner)
        self._classes: list[Hashable] = []

    def learn_one(self, x: Any, y: Hashable) -> None:
        """Learn from one row: a dictionary of features, or a sequence of numbers, and its class."""
        if y is None or y != y:
            raise ValueError(f"y must be a class, got {y!r}")
        features, vector = self._features.seen(row_of(x))
        classes = self._classes if y in self._classes else [*self._classes, y]
        if len(classes) > 1:
            sign = np.where([one == y for one in classes], 1.0, -1.0)
            target, streams = (sign[1], None) if len(classes) == 2 else (sign, len(classes))
            self.learner = self._taught(vector, target, streams)
        self._features, self._classes = features, classes

    def predict_proba_one(self, x: Any) -> dict[Hashable, float]:
        """The probability of every class seen so far; empty before the first."""
        count = len(self._classes)
        if self.learner is None:
            return dict.fromkeys(self._classes, 1 / max(count, 1))
        ahead = 0.5 * (1 + np.tanh(self._margins(x) / 2))
        if count == 2:
            return dict(zip(self._classes, (float(1 - ahead), float(ahead)), strict=True))
        ahead = np.maximum(ahead, np.finfo(float).tiny)
        return dict(zip(self._classes, map(float, ahead / ahead.sum()), strict=True))

    def predict_one(self, x: Any) -> Any:
        """The most probable class; None before the first. Nothing is learnt."""
        shares = self.predict_proba_one(x)
        return max(shares, key=shares.__getitem__) if shares else None


def samuel_for(loss: LossFamily) -> Maker:
    """SAMUEL over gradient descent, with rates up to the largest that is stable on features of norm 1.

    >>> from samuel.online import Free, LogisticLoss
    >>> samuel_for(LogisticLoss())(2, Free(), streams=None).learning_rates
    (8.0, 4.0, 2.0, 1.0, 0.5, 0.25, 0.125, 0.0625, 0.03125)
    """
    curvature = loss.curvature((np.ones((1, 1)), np.ones(1)))
    top = 2 / curvature if 0 < curvature < math.inf else 1.0
    rates = tuple(top * 0.5**power for power in range(RATES))
    return _SamuelOverDescent(rates)


class _SamuelOverDescent(NamedTuple):
    """A maker that can be pickled."""

    rates: tuple[float, ...]

    def __call__(self, dim: int, domain: Any, streams: int | None) -> Samuel:
        return Samuel(dim, domain, base=OGD(), learning_rates=self.rates, streams=streams)


def grown(learner: Learner, dim: int, streams: int | None) -> Learner:
    """A learner of a larger dimension or with more streams that goes on where this one is.

    What is new starts from nothing; the blocks go on. From a single stream to several, that one becomes the second.
    """
    larger = Learner(replace(learner.rule, dim=dim), streams=streams, dtype=str(learner.dtype))
    fresh = larger.rule.grow(larger.rule.start(larger.zero, 1), learner.round)
    larger._state = _embedded(learner._state, fresh, learner.streams is None and streams is not None)
    return larger


def _embedded(old: Any, new: Any, as_second: bool) -> Any:
    """A state with the numbers of a smaller one in its first places."""
    if isinstance(new, tuple):
        parts = [_embedded(a, b, as_second) for a, b in zip(old, new, strict=True)]
        return type(new)(*parts) if hasattr(new, "_fields") else tuple(parts)
    if not isinstance(new, np.ndarray):
        return old
    old = np.asarray(old)
    whole = new.copy()
    place = whole[1] if as_second and whole.ndim > old.ndim else whole
    place[tuple(slice(0, size) for size in old.shape)] = old
    return whole


def row_of(x: Any) -> dict[Hashable, float]:
    """A row as numbers by name: text becomes a feature of its own, `(name, text)`, that is 1.

    >>> row_of({"sky": "grey", "wind": 3, "rain": True}), row_of([0.5, 2])
    ({('sky', 'grey'): 1.0, 'wind': 3.0, 'rain': 1.0}, {0: 0.5, 1: 2.0})
    """
    if not isinstance(x, Mapping):
        values = real_array("x", x, float)
        if values.ndim != 1:
            raise ValueError(f"x must be a dictionary of features or a row of numbers, got the shape {values.shape}")
        x = dict(enumerate(values.tolist()))
    row = {}
    for name, value in x.items():
        if isinstance(value, str):
            row[name, value] = 1.0
        else:
            row[name] = real(f"feature {name!r}", float(value) if isinstance(value, bool | np.bool_) else value)
    return row


def real(name: str, value: Any) -> float:
    """A number that can be learnt from; ValueError otherwise."""
    found = number(value)
    if found is None or not abs(found) < LARGEST:
        raise ValueError(f"{name} must be a number of less than {LARGEST:g} in size, got {value!r}")
    return float(found)


def target_of(y: Any) -> np.ndarray:
    """A target as an array."""
    return np.asarray(float(y))
