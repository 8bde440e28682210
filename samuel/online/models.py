"""Linear and logistic models that learn row by row: `learn_one(x, y)` and `predict_one(x)`, with no gradient by hand.

`Regressor` and `Classifier` need NumPy only. `samuel.online.river` and `samuel.online.sklearn` have the same models in
the protocols of river and scikit-learn.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple, Self

import numpy as np

from samuel.core.options import number, real_array
from samuel.online.bases.ogd import OGD
from samuel.online.learner import Learner, UpdateLock
from samuel.online.losses import LinearLoss, LogisticLoss, LossFamily, SquaredLoss
from samuel.online.samuel import Samuel

Maker = Callable[[int], Learner]
"""Makes the learner of so many weights, anywhere in space, as the classes of most learners do."""

LARGEST = 1e100
"""Larger numbers are refused: they could not be squared."""
RATES = tuple(0.5**power for power in range(10))
"""SAMUEL's learning rates: up to one that is stable for squared losses of vectors of norm 1."""
FARTHEST = 5.0
"""A feature in standard units is at most so far from 0: rare ones are measured by their range."""


class Moments(NamedTuple):
    """Running mean and spread of numbers (Welford, Technometrics 1962), in arrays of one shape."""

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

    def with_row(self, row: dict[Hashable, float]) -> tuple[Self, np.ndarray]:
        """The same after one more row, and the row as a vector: 1, then each feature in standard units.

        The vector is divided by the largest norm so far. So its norm is at most 1, and gradient descent on it is stable
        up to a rate of two over the curvature, whatever the number of features.

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


class Weights:
    """The weights of a linear model, whose number grows: the learner of new ones joins those of the old.

    The regret of all together is at most the sum of theirs, since the gradient of each is its part of the whole.
    """

    def __init__(self, maker: Maker) -> None:
        self.learners: list[Learner] = []
        self._maker = maker

    def predict(self) -> np.ndarray:
        """The weights of the coming round."""
        return np.concatenate([learner.predict() for learner in self.learners]) if self.learners else np.zeros(0)

    def margin(self, vector: np.ndarray) -> float:
        """The linear part of a prediction; what was not seen before has no weight yet."""
        weights = self.predict()
        known = min(len(vector), len(weights))
        return float(weights[:known] @ vector[:known])

    def learn(self, loss: LossFamily, vector: np.ndarray, target: float) -> None:
        """Give the learners the gradient of the loss of one row."""
        weights = self.predict()
        if len(vector) > len(weights):
            # At least as many again: then few learners share the weights of features that come one by one.
            self.learners.append(self._made(max(len(vector) - len(weights), len(weights))))
            weights = self.predict()
        padded = np.zeros(len(weights))
        padded[: len(vector)] = vector
        gradient, first = loss.gradient(weights, (padded, np.asarray(target))), 0
        for learner in self.learners:
            learner.update(gradient[first : first + learner.dim])
            first += learner.dim

    def _made(self, dim: int) -> Learner:
        learner = self._maker(dim)
        if not isinstance(learner, Learner):
            raise ValueError(f"learner must make a samuel.online learner, it made {learner!r}")
        if (learner.dim, learner.streams, learner.round) != (dim, None, 0):
            raise ValueError(f"learner({dim}) must make a new learner of {dim} weights, it made {learner!r}")
        if learner.rule.feedback != "linear":
            raise ValueError(f"learner must take linear feedback, {learner!r} takes {learner.rule.feedback!r}")
        return learner


class Model(ABC):
    """A linear model that learns row by row; subclasses say what is predicted. Threads may share it."""

    def __init__(self, learner: Maker | None) -> None:
        if learner is not None and not callable(learner):
            raise ValueError(f"learner must be a class such as Samuel, or a function like it, got {learner!r}")
        self.learner = learner
        self._features = Features.none()
        self._lock = UpdateLock()

    def learn_one(self, x: Any, y: Any) -> None:
        """Learn from one row, a dictionary of features or a sequence of numbers, and its target."""
        with self._lock:
            self._learn(row_of(x), y)

    @abstractmethod
    def _learn(self, row: dict[Hashable, float], y: Any) -> None:
        """Learn from one row and its target."""

    @abstractmethod
    def predict_one(self, x: Any) -> Any:
        """Predict the target of one row. Nothing is learnt."""

    def _new_weights(self) -> Weights:
        return Weights(self.learner or default_learner)


class Regressor(Model):
    """Linear regression by any loss that learns row by row, without a learning rate to choose.

    Features and target may have any scale, and features may come and go: the learner works on standardised ones.
    A text is a category: a feature of its own, which is 1.

    Args:
        loss: `SquaredLoss()` by default; `AbsoluteLoss()` for medians, `PinballLoss(0.9)` for quantiles, or a
            `LossFamily` of your own. It is measured in units of the target's standard deviation.
        learner: called with the number of weights: the class of a learner, or a function such as
            `lambda dim: Single(OGD(0.1), dim)`; `Samuel` over gradient descent by default.

    >>> from samuel.online import Regressor
    >>> model = Regressor()
    >>> for hour in range(1000):
    ...     x = {"hour": hour % 24, "day": "work" if hour // 24 % 7 < 5 else "free"}
    ...     y = 1e6 + 2e4 * x["hour"] - (3e5 if x["day"] == "free" else 0.0)
    ...     forecast = model.predict_one(x)
    ...     model.learn_one(x, y)
    >>> bool(abs(forecast - y) < 1e4)
    True
    """

    def __init__(self, loss: LossFamily | None = None, learner: Maker | None = None) -> None:
        if loss is not None and (not isinstance(loss, LossFamily) or isinstance(loss, LinearLoss | LogisticLoss)):
            raise ValueError(f"loss must be one of predictions of a number, such as SquaredLoss(), got {loss!r}")
        super().__init__(learner)
        self.loss = loss
        self._target = Moments.none()
        self._weights = self._new_weights()

    def _learn(self, row: dict[Hashable, float], y: Any) -> None:
        value = np.asarray(real("y", y))
        features, vector = self._features.with_row(row)
        target = self._target.with_numbers(value)
        self._weights.learn(self.loss or SquaredLoss(), vector, float(target.standardised(value)))
        self._features, self._target = features, target

    def predict_one(self, x: Any) -> float:
        """The prediction for one row; 0 before the first target. Nothing is learnt."""
        _, vector = self._features.with_row(row_of(x))
        return float(self._target.mean + self._target.spread * self._weights.margin(vector))


class Classifier(Model):
    """Logistic regression of two or more classes that learns row by row, without a learning rate to choose.

    Classes need not be known beforehand. With three or more each has a model of its own, of itself against the rest.
    Features are treated as by `Regressor`.

    Args:
        learner: as for `Regressor`.

    >>> from samuel.online import Classifier
    >>> model = Classifier()
    >>> for words in ["cheap pills", "see you soon", "cheap watches", "soon home"] * 25:
    ...     x = {word: 1 for word in words.split()}
    ...     model.learn_one(x, "spam" if "cheap" in x else "mail")
    >>> model.predict_one({"cheap": 1, "soap": 1})
    'spam'
    >>> model.predict_proba_one({"soon": 1})["mail"] > 0.6
    True
    """

    def __init__(self, learner: Maker | None = None) -> None:
        super().__init__(learner)
        self._models: dict[Hashable, Weights] = {}

    def _learn(self, row: dict[Hashable, float], y: Any) -> None:
        if y is None or y != y:
            raise ValueError(f"y must be a class, got {y!r}")
        features, vector = self._features.with_row(row)
        models = self._models if y in self._models else self._models | {y: self._new_weights()}
        for one in self._modelled(models):
            models[one].learn(LogisticLoss(), vector, 1.0 if one == y else -1.0)
        self._features, self._models = features, models

    def predict_proba_one(self, x: Any) -> dict[Hashable, float]:
        """The probability of every class seen so far; empty before the first."""
        row = row_of(x)
        if len(self._models) < 2:
            return dict.fromkeys(self._models, 1.0)
        _, vector = self._features.with_row(row)
        shares = {one: self._sigmoid(self._models[one].margin(vector)) for one in self._modelled(self._models)}
        if len(self._models) == 2:
            (second,) = shares
            (first,) = self._models.keys() - shares.keys()
            return {first: 1 - shares[second], second: shares[second]}
        total = sum(shares.values())
        return {one: share / total for one, share in shares.items()}

    def predict_one(self, x: Any) -> Any:
        """The most probable class; None before the first. Nothing is learnt."""
        shares = self.predict_proba_one(x)
        return max(shares, key=shares.__getitem__) if shares else None

    @staticmethod
    def _modelled(models: Mapping[Hashable, Weights]) -> list[Hashable]:
        """The classes that have a model: none of a single one, of two the second."""
        classes = list(models)
        return classes if len(classes) > 2 else classes[1:]

    @staticmethod
    def _sigmoid(margin: float) -> float:
        return max(0.5 * (1 + math.tanh(margin / 2)), math.ulp(0.0))


def default_learner(dim: int) -> Samuel:
    """The learner of a model's weights: SAMUEL over gradient descent."""
    return Samuel(dim, base=OGD(), learning_rates=RATES)


def row_of(x: Any) -> dict[Hashable, float]:
    """A row as numbers by name: text becomes a feature of its own, `(name, text)`, that is 1.

    Warns:
        UserWarning: for text that is a number, as `csv.DictReader` gives it.

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
            _warn_of_number(name, value)
            row[name, value] = 1.0
        else:
            row[name] = real(f"feature {name!r}", float(value) if isinstance(value, bool | np.bool_) else value)
    return row


def _warn_of_number(name: Hashable, text: str) -> None:
    with contextlib.suppress(ValueError):
        float(text)
        warnings.warn(
            f"feature {name!r} is text that is a number, and is taken as a category: each value is a feature of its "
            "own; give float(...) for a number",
            stacklevel=4,
        )


def real(name: str, value: Any) -> float:
    """A number that can be learnt from; ValueError otherwise."""
    found = number(value)
    if found is None or not abs(found) < LARGEST:
        raise ValueError(f"{name} must be a number below {LARGEST:g} in size, got {value!r}")
    return float(found)
