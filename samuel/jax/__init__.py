"""SAMUEL for JAX: a drop-in optax optimizer, and an engine that trains every expert for itself.

- `samuel`: the optimizer. One gradient a step; nothing else in your training loop changes.
- `learning_rate`, `weights`, `certificate`, `shifts`: what its state tells, also inside `jit`.

Needs `pip install "samuel[jax]"`.
"""

from samuel.core import Anytime, Chosen, Fixed, Geometric, Watched
from samuel.core.rays import Certificate
from samuel.jax.bases import scale_by_discounted_rss
from samuel.jax.transform import SamuelState, certificate, learning_rate, samuel, shifts, weights

__all__ = [
    "Anytime",
    "Certificate",
    "Chosen",
    "Fixed",
    "Geometric",
    "SamuelState",
    "Watched",
    "certificate",
    "learning_rate",
    "samuel",
    "scale_by_discounted_rss",
    "shifts",
    "weights",
]
