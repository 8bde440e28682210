"""Streams: sequences of losses, generated lazily and reproducibly.

A stream has a loss family, a dimension and a function that makes the data of any range of rounds. Only the range being
played is in memory.
"""

from samuel.online.streams.adversarial import Adversary
from samuel.online.streams.advice import ExpertAdvice
from samuel.online.streams.base import Recorded, SideBySide, Stream, as_stream
from samuel.online.streams.csv import CsvStream
from samuel.online.streams.from_river import RiverStream, river_datasets
from samuel.online.streams.quantiles import DriftingQuantile
from samuel.online.streams.regression import DriftingClassification, DriftingRegression
from samuel.online.streams.sparse import SparseRegression
from samuel.online.streams.storms import Storms
from samuel.online.streams.two_valleys import TwoValleys

__all__ = [
    "Adversary",
    "CsvStream",
    "DriftingClassification",
    "DriftingQuantile",
    "DriftingRegression",
    "ExpertAdvice",
    "Recorded",
    "RiverStream",
    "SideBySide",
    "SparseRegression",
    "Storms",
    "Stream",
    "TwoValleys",
    "as_stream",
    "river_datasets",
]
