"""The algorithm, once: pure functions over arrays of any array-API library.

A round of SAMUEL is: combine the experts into a decision, take feedback, turn it into gains, judge the experts,
let each take its step, restart the slots whose block has ended.

    cover        which stretches of time get experts of their own
    feedback     what a round tells, and the gains that follow
    weights      multiplicative weights with many step sizes
    combine      one decision from many experts
    certificate  how far the decision can be behind any expert
    rate_search  the learning rate of a network: all candidates of a block for two products with the gradient
    shift        a detector of shifts of the data
    tail_average the running average over the last part of a run
    rule         the three put together, for the drop-ins
    rays         all learning rates of a block for two products with the gradient: for networks
    rules        ready sets of options for them
"""

from samuel.core import certificate, combine, cover, feedback, rays, rules, weights
from samuel.core.cover import AllIntervals, Anytime, Chosen, Compact, Cover, Fixed, Geometric, Pruned, Tile, Watched
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
    "Linear",
    "Loss",
    "NoHealthyExpert",
    "Pruned",
    "RateSearch",
    "Rule",
    "ShiftDetector",
    "TailAverage",
    "Tile",
    "Watched",
    "Weights",
    "certificate",
    "combine",
    "cover",
    "feedback",
    "rays",
    "rules",
    "weights",
]
