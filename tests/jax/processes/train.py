"""A run that saves its state every other step, goes on from the last checkpoint, and can be told where to die.

    python train.py FOLDER RUN [DEATH]

Prints a sum of every leaf of the last state. `DEATH` is the beginning of a file-system event as `event path`, with
the path relative to the folder, for instance "os.rename samuel_4.orbax-checkpoint-tmp": just before Python does
that, the process sends itself SIGKILL. Or it is "between steps", where the process waits to be killed.
"""

import hashlib
import json
import os
import signal
import sys
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

from samuel.core import Geometric
from samuel.jax.checkpoint import Checkpoints
from samuel.jax.experts import Experts
from samuel.jax.transform import samuel

STEPS = 11
EVERY = 2


def loss_of(params, statistics, batch, key):
    """Of a network with dropout and with a running mean of its inputs, as batch normalisation keeps it."""
    mean = batch.mean(axis=0)
    kept = jax.random.bernoulli(key, 0.8, batch.shape)
    predicted = ((batch - mean) * kept) @ params["w"] + params["b"]
    return jnp.mean((predicted - jnp.sin(batch[:, :3])) ** 2), {"mean": 0.9 * statistics["mean"] + 0.1 * mean}


def start():
    return {"w": jnp.ones((4, 3)), "b": jnp.zeros(3, jnp.bfloat16)}, {"mean": jnp.zeros(4)}


class Engine:
    """The expert engine: nine experts, one drawn each step."""

    def __init__(self):
        # Blocks so short that experts restart between any two checkpoints.
        cover = Geometric(horizon=16, shortest=2, levels=3)
        self.experts = Experts(loss_of, optax.scale_by_adam(), (0.01, 0.1, 1.0), cover=cover)

    def init(self):
        return self.experts.init(*start(), key=jax.random.key(5))

    def step(self, state, batch):
        return self.experts.step(state, batch)[0]


class Loop:
    """A training loop as users write it around the optimizer, with a donated state and a number of its own."""

    optimizer = samuel("adam", (0.01, 0.1, 1.0), steps=STEPS)

    def init(self):
        params, statistics = start()
        optimizer = jax.jit(self.optimizer.init)(params)
        state = {"params": params, "statistics": statistics, "optimizer": optimizer}
        return {**state, "key": jax.random.key(5), "shrink": 1.0}

    @partial(jax.jit, static_argnums=0, donate_argnums=1)
    def step(self, state, batch):
        key, dropout = jax.random.split(state["key"])
        gradient, statistics = jax.grad(loss_of, has_aux=True)(state["params"], state["statistics"], batch, dropout)
        updates, optimizer = self.optimizer.update(gradient, state["optimizer"], state["params"])
        updates = jax.tree.map(lambda update: (update * state["shrink"]).astype(update.dtype), updates)
        params = optax.apply_updates(state["params"], updates)
        state = {"params": params, "statistics": statistics, "optimizer": optimizer}
        return {**state, "key": key, "shrink": 0.99}


RUNS = {"engine": Engine, "loop": Loop}


def batch_of(step):
    return np.random.default_rng(step).normal(size=(16, 4)).astype(np.float32)


def die_at(death, folder):
    def watch(event, arguments):
        if arguments and isinstance(arguments[0], str | os.PathLike):
            name = os.fspath(arguments[0]).removeprefix(f"{folder}/")
            if f"{event} {name}".startswith(death):
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


def main(folder, run, death=""):
    if death and death != "between steps":
        die_at(death, folder)
    run = RUNS[run]()
    state, done = run.init(), 0
    checkpoints = Checkpoints(folder)
    if checkpoints.latest is not None:
        done, state = checkpoints.restore(like=state)
    for step in range(done, STEPS):
        state = run.step(state, batch_of(step))
        if (step + 1) % EVERY == 0:
            checkpoints.save(step + 1, state)
        elif death == "between steps":
            print("waiting", flush=True)
            sys.stdin.read()
    print(json.dumps({"from": done, **sums(state)}))


def sums(state):
    leaves = jax.tree_util.tree_flatten_with_path(state)[0]
    return {jax.tree_util.keystr(path): hashlib.sha256(content(leaf)).hexdigest() for path, leaf in leaves}


def content(leaf):
    if jnp.issubdtype(jnp.asarray(leaf).dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return f"{leaf.dtype} {leaf.shape} {leaf.weak_type} ".encode() + np.asarray(leaf).tobytes()


if __name__ == "__main__":
    main(str(Path(sys.argv[1]).absolute()), *sys.argv[2:])
