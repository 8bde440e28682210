"""The models in scikit-learn's protocol: `partial_fit` for rows that keep coming. Needs scikit-learn.

pip install "samuel-optim[sklearn]"
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets, unique_labels
from sklearn.utils.validation import check_is_fitted, validate_data

from samuel.online import models
from samuel.online.losses import LossFamily

__all__ = ["Classifier", "Regressor"]


class _Estimator(BaseEstimator):
    """What the two estimators share: a model of `samuel.online` as `model_`, taught row by row."""

    model_: models.Regressor | models.Classifier

    def _taught(self, X: np.ndarray, y: np.ndarray) -> Self:
        for row, target in zip(X, y, strict=True):
            self.model_.learn_one(row, target)
        return self

    def _rows(self, X: Any) -> Any:
        check_is_fitted(self, "model_")
        return validate_data(self, X, reset=False, dtype=float)


class Regressor(RegressorMixin, _Estimator):
    """Linear regression by any loss for scikit-learn, with `partial_fit` and without a learning rate to choose.

    Rows are learnt one after the other, in the order given; `fit` starts anew and reads them once. A scaler before it
    is not needed.

    Args:
        loss: as for `samuel.online.Regressor`, like the next.
        learner: makes the learner of the weights.

    >>> import numpy as np
    >>> from samuel.online.sklearn import Regressor
    >>> X = np.random.default_rng(0).normal(size=(1000, 3))
    >>> model = Regressor()
    >>> for rows in np.split(X, 10):
    ...     model = model.partial_fit(rows, rows @ [1.0, 2.0, 3.0] + 10)
    >>> bool(model.score(X, X @ [1.0, 2.0, 3.0] + 10) > 0.99)
    True
    """

    model_: models.Regressor

    def __init__(self, loss: LossFamily | None = None, learner: models.Maker | None = None) -> None:
        self.loss = loss
        self.learner = learner

    def fit(self, X: Any, y: Any) -> Self:
        """Forget everything and learn from rows and their targets."""
        return self._fitted(X, y, anew=True)

    def partial_fit(self, X: Any, y: Any) -> Self:
        """Learn from more rows and their targets."""
        return self._fitted(X, y, anew=not hasattr(self, "model_"))

    def predict(self, X: Any) -> np.ndarray:
        """The predictions for some rows."""
        return np.array([self.model_.predict_one(row) for row in self._rows(X)])

    def _fitted(self, X: Any, y: Any, anew: bool) -> Self:
        X, y = validate_data(self, X, y, reset=anew, dtype=float, y_numeric=True)
        if anew:
            self.model_ = models.Regressor(self.loss, self.learner)
        return self._taught(X, y.tolist())


class Classifier(ClassifierMixin, _Estimator):
    """Logistic regression of two or more classes for scikit-learn, with `partial_fit` and without a learning rate.

    Rows are learnt one after the other, in the order given; `fit` starts anew and reads them once. A scaler before it
    is not needed.

    Args:
        learner: as for `samuel.online.Classifier`.

    >>> import numpy as np
    >>> from samuel.online.sklearn import Classifier
    >>> X = np.random.default_rng(0).normal(size=(1000, 3))
    >>> y = np.where(X @ [1.0, 2.0, 3.0] > 0, "up", "down")
    >>> model = Classifier().partial_fit(X[:500], y[:500], classes=["down", "up"])
    >>> bool(model.partial_fit(X[500:], y[500:]).score(X, y) > 0.95)
    True
    """

    model_: models.Classifier

    def __init__(self, learner: models.Maker | None = None) -> None:
        self.learner = learner

    def fit(self, X: Any, y: Any) -> Self:
        """Forget everything and learn from rows and their classes."""
        return self._fitted(X, y, None, anew=True)

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        """Learn from more rows and their classes; the first call is to name all `classes` that may come."""
        return self._fitted(X, y, classes, anew=not hasattr(self, "model_"))

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of every class of `classes_`, for some rows; 0 for those not seen yet."""
        shares = [self.model_.predict_proba_one(row) for row in self._rows(X)]
        return np.array([[share.get(one, 0.0) for one in self.classes_.tolist()] for share in shares])

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of some rows."""
        shares = self.predict_proba(X)
        return self.classes_[np.argmax(shares, axis=1)]

    def _fitted(self, X: Any, y: Any, classes: Any, anew: bool) -> Self:
        X, y = validate_data(self, X, y, reset=anew, dtype=float)
        check_classification_targets(y)
        named = unique_labels(y) if classes is None and anew else classes
        known = self.classes_ if named is None else unique_labels(named)
        if not anew and not np.array_equal(known, self.classes_):
            raise ValueError(f"classes must be those of the first call, {self.classes_}, got {known}")
        unknown = np.setdiff1d(y, known)
        if unknown.size:
            raise ValueError(f"y has the class {unknown.tolist()[0]!r}, which is not among the classes {known}")
        if anew:
            self.classes_ = known
            self.model_ = models.Classifier(self.learner)
        return self._taught(X, y.tolist())
