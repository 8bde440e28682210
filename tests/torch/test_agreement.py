"""What must come out the same does: JAX and torch, packed rows and the plain loop, and a base by all its names."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

import samuel.jax
from samuel.torch import Samuel

# The JAX drop-in


STEPS = 500
SIZES = ((7, 5), (5,), (3, 2, 2), ())


@pytest.fixture(autouse=True, scope="module")
def compile_fast():
    """Compiling is what takes the time here, and these programs run for milliseconds."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def run_in_jax(base, options, dtype):
    """Gradients that were fed to the optimizer in JAX, the parameters after each step, and what it tells at the end."""
    rng = np.random.default_rng(0)
    start = [rng.normal(size=size).astype(dtype) for size in SIZES]
    goal = [rng.normal(size=size) for size in SIZES]
    flips = np.where(np.arange(STEPS) < STEPS // 2, 1, -1)  # the data shift in mid-run
    goals = [(np.multiply.outer(flips, g) + 0.3 * rng.normal(size=(STEPS, *g.shape))).astype(dtype) for g in goal]
    with jax.enable_x64(dtype == np.float64):
        optimizer = samuel.jax.samuel(base, **options)

        def step(carry, goal):
            params, state = carry
            gradient = jax.tree.map(jnp.subtract, params, goal)
            updates, state = optimizer.update(gradient, state, params)
            params = optax.apply_updates(params, updates)
            return (params, state), (gradient, params, samuel.jax.learning_rate(state))

        @jax.jit
        def run(params, goals):
            (_, state), path = jax.lax.scan(step, (params, optimizer.init(params)), goals)
            return path, samuel.jax.weights(state), samuel.jax.shifts(state)

        return jax.tree.map(np.asarray, (start, *run(start, goals)))


JAX = {
    "samuel": {},
    "horizon": {"horizon": 400},  # the run goes on beyond it
    "theorem": {"rule": "theorem"},
    "inherit": {"rule": "theorem", "newborns": "inherit"},
    "levels": {"rule": "levels"},
    "Kr": {"rule": "Kr", "horizon": 500},
    "R": {"rule": "R", "horizon": 400},
    "slots": {"base_state": "slots"},
    "decayed": {"weight_decay": 0.1},
}
