"""A run of the drop-in with parameters sharded over a mesh, of one process or of several.

    python sharded.py RESULTS PORT PROCESSES PROCESS

The first process writes the parameters, their average and the exchanges of a step to the file RESULTS. Tests import the
run too, to do it on one device.
"""

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from samuel.jax import averaged, samuel
from tests.jax.processes.spread import collectives, flat

STEPS, LAYERS, WIDTH, HIDDEN = 50, 8, 16, 32


def start():
    """Two stacks of eight matrices, sharded along rows and along columns, one matrix alone, and vectors."""
    random = np.random.default_rng(0)
    new = lambda *shape: random.normal(size=shape).astype(np.float32) / 4  # noqa: E731
    layers = {
        f"layer_{i}": {
            "up": {"kernel": new(WIDTH, HIDDEN), "bias": new(HIDDEN)},
            "down": {"kernel": new(HIDDEN, WIDTH)},
        }
        for i in range(LAYERS)
    }
    return layers | {"head": {"kernel": new(WIDTH, 24)}}


def specs(params):
    layer = {
        "up": {"kernel": PartitionSpec(None, "x"), "bias": PartitionSpec("x")},
        "down": {"kernel": PartitionSpec("x", None)},
    }
    return {name: layer if "up" in part else {"kernel": PartitionSpec("x", None)} for name, part in params.items()}


def gradient(params, t):
    """Of a noisy parabola around 0."""
    wave = lambda p: 0.3 * jnp.sin(t + jnp.arange(p.size, dtype=p.dtype)).reshape(p.shape)  # noqa: E731
    return jax.tree.map(lambda p: p + wave(p), params)


def run(mesh=None):
    optimizer, params = samuel(), start()
    if mesh is not None:
        places = jax.tree.map(lambda spec: NamedSharding(mesh, spec), specs(params))
        params = jax.tree.map(
            lambda p, place: jax.make_array_from_callback(p.shape, place, p.__getitem__), params, places
        )

    @jax.jit
    def step(params, state, t):
        updates, state = optimizer.update(gradient(params, t), state, params)
        return optax.apply_updates(params, updates), state

    state = jax.jit(optimizer.init)(params)
    program = step.lower(params, state, jnp.float32(0)).compile()
    for t in range(STEPS):
        params, state = step(params, state, jnp.float32(t))
    if mesh is not None:
        for p, s, place in zip(*map(jax.tree.leaves, (params, state.sum, places)), strict=True):
            assert p.sharding.is_equivalent_to(place, p.ndim), p.sharding
            assert s.sharding.is_equivalent_to(place, s.ndim), s.sharding
    whole = jax.jit(lambda tree: tree, out_shardings=None if mesh is None else NamedSharding(mesh, PartitionSpec()))
    return flat(whole({"params": params, "averaged": averaged(state, params)})), collectives(program)


def main(results, port, processes, process):
    if int(processes) > 1:
        jax.distributed.initialize(f"localhost:{port}", int(processes), int(process))
    mesh = jax.make_mesh((jax.device_count(),), ("x",), axis_types=(AxisType.Auto,))
    with jax.set_mesh(mesh):
        found, exchanges = run(mesh)
    if int(process) == 0:
        np.savez(results, exchanges=json.dumps(exchanges), **found)
    if int(processes) > 1:
        jax.distributed.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
