"""The algorithm, once: pure functions over arrays of any array-API library.

A round of SAMUEL is: combine the experts into a decision, take feedback, turn it into gains, judge the experts,
let each take its step, restart the slots whose block has ended.

    cover        which stretches of time get experts of their own
    feedback     what a round tells, and the gains that follow
    weights      multiplicative weights with many step sizes
    combine      one decision from many experts
    certificate  how far the decision can be behind any expert
    rays         all learning rates of a block for two products with the gradient: for networks
    rules        ready sets of options for them
"""

from samuel.core import certificate, combine, cover, feedback, rays, rules, weights
from samuel.core.cover import AllIntervals, Anytime, Chosen, Compact, Cover, Fixed, Geometric, Pruned, Tile, Watched
from samuel.core.feedback import Feedback, Full, Linear, Loss
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
