"""The models in river's protocol: estimators for its pipelines, metrics and evaluation. Needs river.

pip install "samuel-optim[river]"
"""

from __future__ import annotations

from river import base

from samuel.online import models

__all__ = ["Classifier", "Regressor"]


class Regressor(models.Regressor, base.Regressor):
    """Linear regression by any loss as an estimator of river, without a learning rate to choose.

    It takes the arguments of `samuel.online.Regressor`. A scaler before it is not needed.

    >>> from river import datasets, evaluate, metrics
    >>> from samuel.online.river import Regressor
    >>> evaluate.progressive_val_score(datasets.TrumpApproval(), Regressor(), metrics.MAE()).get() < 1
    True
    """


class Classifier(models.Classifier, base.Classifier):
    """Logistic regression of two or more classes as an estimator of river, without a learning rate to choose.

    It takes the arguments of `samuel.online.Classifier`. A scaler before it is not needed.

    >>> from river import datasets, evaluate, metrics
    >>> from samuel.online.river import Classifier
    >>> evaluate.progressive_val_score(datasets.Phishing(), Classifier(), metrics.Accuracy()).get() > 0.88
    True
    """

    @property
    def _multiclass(self) -> bool:
        return True
