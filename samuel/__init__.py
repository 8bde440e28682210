"""The learning rate that tunes itself, with a guarantee on every stretch of the run.

`samuel` implements SAMUEL, from "Adaptive Gradient Methods with Local Guarantees" (Lu, Xia, Arora and Hazan,
2022). It runs several learning rates at once over a set of intervals, follows those that do well *now*, and
accounts for its regret on every interval from what was seen in the run itself.

- `samuel.core`: the algorithm, as pure functions over the arrays of NumPy, JAX or torch.
- `samuel.online`: online convex optimisation: domains, base learners, SAMUEL, and regret on every interval.
- `samuel.jax`: a drop-in optax optimizer, and an engine for many experts; needs `pip install "samuel-optim[jax]"`.
- `samuel.torch`: a drop-in PyTorch optimizer; needs `pip install "samuel-optim[torch]"`.
- the `samuel` command: learners against streams, and a page about it; needs `pip install "samuel-optim[lab]"`.

Importing `samuel` needs NumPy and array-api-compat only; its parts load at first use:

>>> import samuel
>>> samuel.online.__name__
'samuel.online'
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from samuel import core, jax, online, torch

try:
    __version__ = version("samuel-optim")
except PackageNotFoundError:  # run from a source tree that was not installed
    __version__ = "0+unknown"

__all__ = ["__version__", "core", "jax", "online", "torch"]


def __getattr__(name: str) -> object:
    """Load a part of the package at its first use."""
    if name in ("core", "jax", "online", "torch"):
        return import_module(f"samuel.{name}")
    raise AttributeError(f"module 'samuel' has no attribute {name!r}")
