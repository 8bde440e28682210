"""SAMUEL for JAX: a drop-in optax optimizer, and an engine that trains every expert for itself.

- `samuel`: the optimizer. One gradient a step; nothing else in your training loop changes.
- `decision`: the parameters to test and use, an average of those trained; `pace` averages other things along.
- `learning_rate`, `weights`, `certificate`, `shifts`: what its state tells, also inside `jit`.
- `Experts`: the paper's form, in which every expert trains a network of its own; `Sweep`: many schedules at once, which
  share what they have in common. On one device, many devices or many processes.
- `Checkpoints`: save any of their states, and resume to the bit.

Needs `pip install "samuel-optim[jax]"`.
"""

from samuel.core import Anytime, Chosen, Fixed, Geometric, Watched
from samuel.core.rays import Certificate
from samuel.jax.bases import scale_by_discounted_rss, scale_by_muon
from samuel.jax.checkpoint import Checkpoints, DamagedCheckpoint
from samuel.jax.experts import Decision, Experts, ExpertsInfo, ExpertsState
from samuel.jax.sweep import Sweep, SweepInfo, SweepState
from samuel.jax.transform import SamuelState, certificate, decision, learning_rate, pace, samuel, shifts, weights

__all__ = [
    "Anytime",
    "Certificate",
    "Checkpoints",
    "Chosen",
    "DamagedCheckpoint",
    "Decision",
    "Experts",
    "ExpertsInfo",
    "ExpertsState",
    "Fixed",
    "Geometric",
    "SamuelState",
    "Sweep",
    "SweepInfo",
    "SweepState",
    "Watched",
    "certificate",
    "decision",
    "learning_rate",
    "pace",
    "samuel",
    "scale_by_discounted_rss",
    "scale_by_muon",
    "shifts",
    "weights",
]
