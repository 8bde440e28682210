"""SAMUEL for PyTorch: a drop-in optimizer.

- `Samuel`: the optimizer. One gradient a step; nothing else in your training loop changes. `with optimizer.averaged():`
  has the parameters to test, use and save.
- `roles`: what is a matrix, a table or a vector in a model.

Needs `pip install "samuel-optim[torch]"`.
"""

from samuel.torch.optimizer import Samuel
from samuel.torch.roles import roles

__all__ = ["Samuel", "roles"]
