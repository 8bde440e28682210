"""Online convex optimisation, with certified regret on every interval.

domains      convex sets of decisions
bases        base learners: how an expert uses its gradients
Samuel       many experts on many intervals; `Single`, a base learner on its own
models       linear and logistic models of rows: `learn_one`, `predict_one`; `river` and `sklearn` for their protocols
rivals       other weightings of experts on intervals: `SAOL`, `CBCE`, `FLH` and others
streams      sequences of losses: synthetic, from a CSV file, from river
play         runs a learner on a stream; returns a `Trace`
regret_map   the regret of a run on every interval of a grid
conformal    prediction intervals for any forecaster
theory       the paper's theorem and corollaries as numbers
check        conformance tests for learners of your own
"""

from samuel.core import (
    AllIntervals,
    Anytime,
    Chosen,
    Compact,
    Cover,
    Fixed,
    Geometric,
    Lasting,
    NoHealthyExpert,
    Pruned,
)
from samuel.online import theory
from samuel.online.bases.adadelta import Adadelta
from samuel.online.bases.adagrad import Adagrad, DiscountedAdagrad
from samuel.online.bases.adagrad_full import AdagradFull
from samuel.online.bases.adam import Adam
from samuel.online.bases.base import Base, Stepped
from samuel.online.bases.ogd import OGD
from samuel.online.bases.ons import ONS
from samuel.online.bases.optimistic import OptimisticOGD
from samuel.online.bases.relative_ogd import RelativeOGD
from samuel.online.bases.rmsprop import RMSprop
from samuel.online.bases.scale_free import ScaleFreeOGD
from samuel.online.bases.stay import Stay
from samuel.online.certificates import Certificate
from samuel.online.checks import check
from samuel.online.conformal import Conformal, backtest
from samuel.online.domains import Ball, Box, Domain, Free, HalfLine, Interval, Simplex
from samuel.online.learner import Learner, Rule, Ticket
from samuel.online.losses import AbsoluteLoss, LinearLoss, LogisticLoss, LossFamily, PinballLoss, SquaredLoss
from samuel.online.models import Classifier, Regressor
from samuel.online.play import play
from samuel.online.regret import Grid, Hindsight, RegretMap, growth_exponent, hindsight, regret_map
from samuel.online.rivals.ader import Ader
from samuel.online.rivals.aflh import AFLH
from samuel.online.rivals.cbce import CBCE
from samuel.online.rivals.fixed_share import FixedShare
from samuel.online.rivals.flh import FLH
from samuel.online.rivals.hedge import Hedge
from samuel.online.rivals.parameter_free import ParameterFree
from samuel.online.rivals.rival import Rival
from samuel.online.rivals.sacs import SACS
from samuel.online.rivals.saol import SAOL
from samuel.online.rivals.sword import Sword
from samuel.online.samuel import Samuel
from samuel.online.single import Single
from samuel.online.streams import (
    Adversary,
    CsvStream,
    DriftingClassification,
    DriftingQuantile,
    DriftingRegression,
    ExpertAdvice,
    Recorded,
    RiverStream,
    SideBySide,
    SparseRegression,
    Storms,
    Stream,
    TwoValleys,
)
from samuel.online.trace import Trace

__all__ = [
    "AFLH",
    "CBCE",
    "FLH",
    "OGD",
    "ONS",
    "SACS",
    "SAOL",
    "AbsoluteLoss",
    "Adadelta",
    "Adagrad",
    "AdagradFull",
    "Adam",
    "Ader",
    "Adversary",
    "AllIntervals",
    "Anytime",
    "Ball",
    "Base",
    "Box",
    "Certificate",
    "Chosen",
    "Classifier",
    "Compact",
    "Conformal",
    "Cover",
    "CsvStream",
    "DiscountedAdagrad",
    "Domain",
    "DriftingClassification",
    "DriftingQuantile",
    "DriftingRegression",
    "ExpertAdvice",
    "Fixed",
    "FixedShare",
    "Free",
    "Geometric",
    "Grid",
    "HalfLine",
    "Hedge",
    "Hindsight",
    "Interval",
    "Lasting",
    "Learner",
    "LinearLoss",
    "LogisticLoss",
    "LossFamily",
    "NoHealthyExpert",
    "OptimisticOGD",
    "ParameterFree",
    "PinballLoss",
    "Pruned",
    "RMSprop",
    "Recorded",
    "Regressor",
    "RegretMap",
    "RelativeOGD",
    "Rival",
    "RiverStream",
    "Rule",
    "Samuel",
    "ScaleFreeOGD",
    "SideBySide",
    "Simplex",
    "Single",
    "SparseRegression",
    "SquaredLoss",
    "Stay",
    "Stepped",
    "Storms",
    "Stream",
    "Sword",
    "Ticket",
    "Trace",
    "TwoValleys",
    "backtest",
    "check",
    "growth_exponent",
    "hindsight",
    "play",
    "regret_map",
    "theory",
]
