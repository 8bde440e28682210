"""Adaptive conformal prediction: intervals around any forecaster's forecasts that keep their coverage under drift.

Conformal           one time step at a time: `predict`, then `update`
ConformalRegressor  around a regressor with `predict(X)`, by any score of MAPIE's shape
backtest            a whole recorded series at once, the same numbers
Coverage            how often intervals contained the truth: overall, and in sliding windows
"""

from samuel.online.conformal.backtesting import Backtest, backtest
from samuel.online.conformal.coverage import Coverage, sliding_coverage
from samuel.online.conformal.intervals import Conformal
from samuel.online.conformal.regression import ConformalRegressor, Score

__all__ = ["Backtest", "Conformal", "ConformalRegressor", "Coverage", "Score", "backtest", "sliding_coverage"]
