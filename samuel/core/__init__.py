"""The formulas of SAMUEL: pure functions over arrays of any array-API library.

A round of SAMUEL: combine the experts into a decision, receive feedback, turn it into gains, update the weights, let
every expert take its step, and restart the blocks that have ended.

    cover        which intervals get experts of their own
    feedback     what a round reveals, and the gains that follow
    weights      multiplicative weights with many step sizes
    combine      one decision from many experts
    certificate  an upper bound on the regret against any expert
    rate_search  the learning rate of a network: all candidates of a block for two dot products
    shift        a detector of shifts in the data
    tail_average the running average over the last part of a run
    rule         search, detector and average combined, for the drop-ins
"""

from samuel.core import certificate, combine, cover, feedback, weights
from samuel.core.cover import AllIntervals, Anytime, Chosen, Compact, Cover, Fixed, Geometric, Lasting, Pruned, Tile
from samuel.core.feedback import Feedback, Full, Linear, Loss
from samuel.core.rate_search import RateSearch
from samuel.core.rule import Rule
from samuel.core.shift import ShiftDetector
from samuel.core.tail_average import TailAverage
from samuel.core.weights import Judged, NoHealthyExpert, Weights

__all__ = [
    "AllIntervals",
    "Anytime",
    "Chosen",
    "Compact",
    "Cover",
    "Feedback",
    "Fixed",
    "Full",
    "Geometric",
    "Judged",
    "Lasting",
    "Linear",
    "Loss",
    "NoHealthyExpert",
    "Pruned",
    "RateSearch",
    "Rule",
    "ShiftDetector",
    "TailAverage",
    "Tile",
    "Weights",
    "certificate",
    "combine",
    "cover",
    "feedback",
    "weights",
]
