"""Recorded trajectories: what the rule did when the results on file were made, so that they stay valid.

`trajectories.npz` holds gradients of 300 rounds (float32) and what was made of them by the code of November 2026 before
the rule stood in `samuel.core.rate_search`: parameters, averages, rates and shifts at some rounds. Nothing in it is to
be recorded again.

    numpy, jax, torch     one block over "adam" and "muon", told the steps or not, with weight decay 0.1 or without, on
                          a steady stream and on one that shifts in round 150; `numpy` has directions of its own
                          (momentum of 0.9 over its root mean square), and float64
    theorem/numpy, /jax   the paper's Algorithm 1 with one gradient, over AdaGrad with a state for each slot (and over
                          Adam with one for all, in JAX), under an anytime cover (shortest block 4, 5 levels), a
                          geometric one (shortest 8) and chosen rounds 100 and 200; rates 0.001, 0.01, 0.1, 1
"""

from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

ROUNDS = 300
WEIGHT_DECAY = 0.1
SHAPES = {"muon": {"a": (6, 4), "b": (3, 5)}, "adam": {"a": (4, 3), "b": (5,)}}


@cache
def recorded():
    with np.load(Path(__file__).with_suffix(".npz")) as file:
        return {name: file[name] for name in file.files}


class Setting(NamedTuple):
    base: str
    told: bool
    decays: bool
    stream: str

    @property
    def weight_decay(self):
        return WEIGHT_DECAY if self.decays else 0.0

    @property
    def steps(self):
        return ROUNDS if self.told else None

    @property
    def gradients(self):
        return recorded()[f"gradients/{self.base}/{self.stream}"]

    @property
    def start(self):
        return recorded()[f"start/{self.base}"]

    def read(self, library, what):
        """Parameters, averages, rates or shifts at the `snapshots`."""
        told, decays = "told" if self.told else "untold", "decay" if self.decays else "plain"
        return recorded()[f"{library}/{self.base}/{told}/{decays}/{self.stream}/{what}"]

    def __str__(self):
        return "-".join(
            (self.base, "told" if self.told else "untold", "decay" if self.decays else "plain", self.stream)
        )


SETTINGS = [
    Setting(base, told, decays, stream)
    for base in SHAPES
    for told in (True, False)
    for decays in (False, True)
    for stream in ("steady", "shift")
]


def snapshots():
    """The rounds, counted from 1, after which something was recorded."""
    return recorded()["snapshots"].tolist()


def split(base, vector):
    """One vector as the parameters of a base's runs, by name."""
    parts, at = {}, 0
    for name, shape in SHAPES[base].items():
        size = int(np.prod(shape))
        parts[name], at = vector[at : at + size].reshape(shape), at + size
    return parts


def join(base, parts):
    """The parameters by name as one vector."""
    return np.concatenate([np.asarray(parts[name]).ravel() for name in SHAPES[base]])
