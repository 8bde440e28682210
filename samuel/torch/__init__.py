"""SAMUEL for PyTorch: a drop-in optimizer.

- `Samuel`: the optimizer. One gradient a step; nothing else in your training loop changes. `with optimizer.decision():`
  has the parameters to test and use, an average of those trained.
- `DiscountedAdagrad`: the paper's base, Adagrad that can forget, as a plain torch optimizer.
- `MatrixMuon`: Muon for whole networks, matrices and all else, as a plain torch optimizer.

Needs `pip install "samuel-optim[torch]"`.
"""

from samuel.core import Anytime, Chosen, Fixed, Geometric, Watched
from samuel.core.rays import Certificate
from samuel.torch.bases import DiscountedAdagrad
from samuel.torch.muon import MatrixMuon
from samuel.torch.optimizer import Samuel

__all__ = [
    "Anytime",
    "Certificate",
    "Chosen",
    "DiscountedAdagrad",
    "Fixed",
    "Geometric",
    "MatrixMuon",
    "Samuel",
    "Watched",
]
