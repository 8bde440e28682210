"""SAMUEL for JAX: a drop-in optax optimizer, and an engine that trains every expert for itself.

- `samuel`: the optimizer. One gradient a step; nothing else in your training loop changes.
- `averaged`: the averaged parameters, to evaluate and deploy; `pace` averages other variables the same way.
- `learning_rate`, `weights`, `shifts`, `skipped`: read its state, also inside `jit`. `extend` gives a run more steps.
- `roles`: which parameters of a tree are matrices, tables and vectors.
- `paper.algorithm1`: the paper's algorithm with one gradient a step, and its guarantee.
- `Experts`: the paper's form, in which every expert trains a network of its own; `Sweep`: many schedules at once, which
  share what they have in common. On one device, many devices or many processes.
- `Checkpoints`: save any of their states, and resume to the bit.

Needs `pip install "samuel-optim[jax]"`.
"""

from samuel.core import Anytime, Chosen, Fixed, Geometric
from samuel.core.rate_search import RateSearch
from samuel.jax.bases import scale_by_discounted_rss
from samuel.jax.checkpoint import Checkpoints, DamagedCheckpoint
from samuel.jax.experts import Decision, Experts, ExpertsInfo, ExpertsState
from samuel.jax.muon import scale_by_muon
from samuel.jax.roles import roles
from samuel.jax.sweep import Sweep, SweepInfo, SweepState
from samuel.jax.transform import (
    SamuelState,
    averaged,
    extend,
    learning_rate,
    pace,
    samuel,
    shifts,
    skipped,
    weights,
)

__all__ = [
    "Anytime",
    "Checkpoints",
    "Chosen",
    "DamagedCheckpoint",
    "Decision",
    "Experts",
    "ExpertsInfo",
    "ExpertsState",
    "Fixed",
    "Geometric",
    "RateSearch",
    "SamuelState",
    "Sweep",
    "SweepInfo",
    "SweepState",
    "averaged",
    "extend",
    "learning_rate",
    "pace",
    "roles",
    "samuel",
    "scale_by_discounted_rss",
    "scale_by_muon",
    "shifts",
    "skipped",
    "weights",
]
