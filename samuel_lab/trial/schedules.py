"""Learning-rate schedules by name: a table over optax, in the proportions of the paper's online experiment.

The rates of a run are computed once, in double precision, so that tables, plots and training use the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import optax

from samuel.core.options import one_of

PROTOCOL = 25_600
"""Steps of the paper's online experiment, to which warm-up (1,000) and half-life (3,000) refer."""


def _share(length: int, steps: int) -> int:
    """A length of the paper's run in proportion to this one."""
    return max(1, round(length * steps / PROTOCOL))


def _warmup_cosine(rate: float, steps: int) -> optax.Schedule:
    # No warm-up in a run of one step, and none from above the peak.
    warmup = min(_share(1000, steps), steps - 1)
    return optax.warmup_cosine_decay_schedule(min(1e-5, rate), rate, warmup, steps)


def _cosine_restarts(rate: float, steps: int) -> optax.Schedule:
    first = math.ceil(steps / 15)  # 1 + 2 + 4 + 8 parts; rounded up, so that no period starts just before the end
    periods = [
        {"init_value": rate, "peak_value": rate, "warmup_steps": 0, "decay_steps": first * 2**n} for n in range(5)
    ]
    return optax.sgdr_schedule(periods)


SCHEDULES: dict[str, tuple[Callable[[float, int], optax.Schedule], str]] = {
    "constant": (lambda rate, steps: optax.constant_schedule(rate), "constant {rate:g}"),
    "cosine": (optax.cosine_decay_schedule, "cosine from {rate:g} to 0 over {steps} steps"),
    "warmup-cosine": (_warmup_cosine, "warm-up to {rate:g} over {warmup} steps, then cosine to 0 at step {steps}"),
    "exponential": (
        lambda rate, steps: optax.exponential_decay(rate, _share(3000, steps), 0.5),
        "{rate:g}, halved every {half_life} steps",
    ),
    "linear": (
        lambda rate, steps: optax.linear_schedule(rate, 0.0, steps),
        "linear from {rate:g} to 0 over {steps} steps",
    ),
    "cosine-restarts": (
        _cosine_restarts,
        "four cosines from {rate:g} to 0, each twice as long as the last",
    ),
    "increasing": (
        lambda rate, steps: optax.exponential_decay(rate, steps, 100.0),
        "growing from {rate:g} to 100 times as much over {steps} steps",
    ),
}
"""Schedules by name: a function of the largest rate (of "increasing" the first) and the number of steps, and a
description."""


def rates(name: str, rate: float, steps: int) -> np.ndarray:
    """The learning rate of every step of a run, and of the step after it.

    >>> rates("cosine", 0.2, 100)[[0, 50, 100]].round(6).tolist()
    [0.2, 0.1, 0.0]
    """
    one_of("schedule", name, tuple(SCHEDULES))
    if not 0 < rate < math.inf:
        raise ValueError(f"rate must be a positive number, got {rate!r}")
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps!r}")
    with jax.enable_x64(True):
        found = SCHEDULES[name][0](rate, steps)(jnp.arange(steps + 1))
        return np.maximum(np.broadcast_to(np.asarray(found, np.float64), (steps + 1,)), 0.0)


def describe(name: str, rate: float, steps: int) -> str:
    """Describe a schedule.

    >>> describe("exponential", 0.6, 25_600)
    '0.6, halved every 3000 steps'
    """
    lengths = {"steps": steps, "warmup": min(_share(1000, steps), steps - 1), "half_life": _share(3000, steps)}
    return SCHEDULES[name][1].format(rate=rate, **lengths)


def step_rates(phases: Sequence[float], transitions: Sequence[int], steps: int) -> np.ndarray:
    """One rate for each phase of a run: phase `i + 1` begins with step `transitions[i]`.

    >>> step_rates((1.0, 0.1), (2,), 4).tolist()
    [1.0, 1.0, 0.1, 0.1, 0.1]
    """
    if len(phases) != len(transitions) + 1:
        raise ValueError(f"{len(transitions)} transitions make {len(transitions) + 1} phases, got {len(phases)} rates")
    if any(late <= early for early, late in pairwise((0, *transitions))):
        raise ValueError(f"transitions must be steps above 0 in increasing order, got {tuple(transitions)!r}")
    return np.asarray(phases, np.float64)[np.searchsorted(np.asarray(transitions), np.arange(steps + 1), side="right")]


BASELINES: dict[tuple[str, str], float] = {
    ("sgd", "constant"): 0.15,
    ("sgd", "cosine"): 0.3,
    ("sgd", "warmup-cosine"): 0.5,
    ("sgd", "exponential"): 0.6,
    ("adagrad", "constant"): 0.2,
    ("adagrad", "cosine"): 0.2,
    ("adagrad", "warmup-cosine"): 0.15,
    ("adagrad", "exponential"): 0.35,
    ("adam", "constant"): 0.001,
    ("adam", "cosine"): 0.001,
    ("adam", "warmup-cosine"): 0.005,
    ("adam", "exponential"): 0.005,
}
"""The paper's twelve baselines (its appendix): base and schedule, with the learning rate it tuned."""
