"""Intervals for a regressor with `predict(X)`, such as scikit-learn's, by any conformity score."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from samuel.core.options import real_array
from samuel.online.conformal.coverage import Coverage
from samuel.online.conformal.intervals import Conformal
from samuel.online.conformal.tracking import Maker
from samuel.online.learner import UpdateLock


class Score(Protocol):
    """A conformity score in the shape of MAPIE's: `AbsoluteConformityScore`, `GammaConformityScore` and others."""

    sym: bool
    """Whether scores above and below 0 are alike."""

    def get_signed_conformity_scores(self, y: Any, y_pred: Any, *, X: Any = None) -> Any:
        """The score of each target beside its prediction; it grows with the target."""

    def get_estimation_distribution(self, y_pred: Any, conformity_scores: Any, *, X: Any = None) -> Any:
        """The targets, `(rows, 1)`, that have the scores `(1, 1)` beside the predictions `(rows, 1)`."""


class ConformalRegressor:
    """Intervals around the predictions of a regressor that keep their coverage while the errors drift.

    The regressor has `predict(X)` and is fitted already; it may learn on between calls. Rows are in the order of time.

    Args:
        regressor: such as one of scikit-learn.
        coverage: the share of intervals that should contain the target.
        score: how far off a prediction is: the error by default, or an object like MAPIE's scores, with
            `get_signed_conformity_scores`, `get_estimation_distribution` and `sym`.
        learner: as for `Conformal`, like the rest.
        bound: no score is larger, if that is known.
        warmup: scores after which intervals become finite.
        window: intervals in a window of `coverage()`.

    >>> import numpy as np
    >>> from sklearn.linear_model import LinearRegression
    >>> from samuel.online.conformal import ConformalRegressor
    >>> random = np.random.default_rng(0)
    >>> X = random.normal(size=(1500, 3))
    >>> y = X @ [1.0, 2.0, 3.0] + random.normal(size=1500) * np.where(np.arange(1500) < 1000, 1.0, 5.0)  # no notice
    >>> model = ConformalRegressor(LinearRegression().fit(X[:500], y[:500]), coverage=0.9, window=200)
    >>> for t in range(500, 1500):
    ...     points, intervals = model.predict_interval(X[t : t + 1])
    ...     model.update(X[t : t + 1], y[t : t + 1])
    >>> print(model.coverage())
    1 ahead: covered 0.908 of 991 (wanted 0.9), 0.885 to 0.925 in windows of 200, width 10.7
    """

    def __init__(
        self,
        regressor: Any,
        coverage: float = 0.9,
        *,
        score: Score | None = None,
        learner: Maker | None = None,
        bound: float | None = None,
        warmup: int | None = None,
        window: int = 500,
    ) -> None:
        if not callable(getattr(regressor, "predict", None)):
            raise ValueError(f"regressor must have a method predict(X), got {regressor!r}")
        for name in ("get_signed_conformity_scores", "get_estimation_distribution", "sym"):
            if score is not None and not hasattr(score, name):
                raise ValueError(f"score must have {name}, as MAPIE's conformity scores do, got {score!r}")
        self.regressor = regressor
        self.score = score
        sides = "symmetric" if score is None or score.sym else "separate"
        self._lock = UpdateLock()
        self._scores = Conformal(coverage, learner=learner, sides=sides, bound=bound, warmup=warmup, window=window)

    def predict(self, X: Any) -> np.ndarray:
        """The predictions of the regressor."""
        points = real_array("the regressor's predictions", self.regressor.predict(X), float)
        if points.shape != (len(X),):
            raise ValueError(f"the regressor must predict one number a row, ({len(X)},), got {points.shape}")
        return points

    def predict_interval(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Predictions `(rows,)`, and intervals around them `(rows, 2, 1)`, as MAPIE returns them. Nothing is learnt."""
        points = self.predict(X)
        below, above = self._scores.reach()
        ends = [self._targets(points[:, None], np.reshape(end, (1, 1)), X) for end in (-below, above)]
        return points, np.stack(ends, axis=1)

    def update(self, X: Any, y: Any) -> None:
        """Learn from the targets of some rows, one after the other; nan where one is missing.

        Each row is scored beside the interval that it would get now.
        """
        points, targets = self.predict(X), real_array("y", y, float)
        if targets.shape != points.shape:
            raise ValueError(f"y must have one target for each of {len(points)} rows, got the shape {targets.shape}")
        known = np.flatnonzero(~np.isnan(targets))
        rows = X.iloc[known] if hasattr(X, "iloc") else np.asarray(X)[known]
        scores = self._scored(targets[known], points[known], rows)
        if not np.isfinite(scores).all():
            row = known[np.argmin(np.isfinite(scores))]
            raise ValueError(f"scores must be finite, got {scores[~np.isfinite(scores)][0]} for row {row}")
        with self._lock:
            for score in scores:
                self._scores.predict(0.0)
                self._scores.update(score)

    def coverage(self) -> Coverage:
        """How often intervals contained the target so far, overall and in windows; widths are those of scores."""
        return self._scores.coverage()

    def _scored(self, y: np.ndarray, points: np.ndarray, X: Any) -> np.ndarray:
        if self.score is None:
            return y - points
        return real_array("scores", self.score.get_signed_conformity_scores(y, points, X=X), float)

    def _targets(self, points: np.ndarray, scores: np.ndarray, X: Any) -> np.ndarray:
        if self.score is None or np.isinf(scores).any():
            return points + scores
        return real_array("intervals", self.score.get_estimation_distribution(points, scores, X=X), float)

    def __repr__(self) -> str:
        return f"ConformalRegressor({self.regressor!r}, coverage={self._scores.setup.coverage:g}, score={self.score!r})"
