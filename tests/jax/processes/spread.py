"""Runs of the engine and of a sweep on a mesh of devices, of one process or of several.

    python spread.py RESULTS PORT PROCESSES PROCESS

The first process writes what came out to the file RESULTS. Tests import the runs too, to do them on one device.
"""

import json
import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from samuel.core import Chosen, Geometric
from samuel.jax.bases import scale_by_discounted_rss
from samuel.jax.experts import Experts
from samuel.jax.sweep import Sweep

ROUNDS = 6
BATCH = 16

# What is run: nine experts (which no number of devices divides) of every kind, and a sweep.
ENGINES = {
    "sampled": {"cover": Geometric(8, shortest=2)},
    "averaged": {"cover": Geometric(8, shortest=2), "combine": "average", "newborns": "inherit"},
    "by losses": {"cover": Chosen((3,)), "combine": "best", "feedback": "loss", "alphas": (0.5, 0.9, 1.0)},
}
RATES = (0.01, 0.1, 1.0)


def loss_of(params, state, batch, key):
    """Batch norm, dropout, a running mean, a counter and a recurrence: what could go wrong when work is spread."""
    inputs, targets = batch
    hidden = inputs @ params["in"]
    mean = hidden.mean(axis=0)
    hidden = jax.nn.relu((hidden - mean) / jnp.sqrt(hidden.var(axis=0) + 1e-3))
    hidden = hidden * jax.random.bernoulli(key, 0.9, hidden.shape)
    offset, _ = jax.lax.scan(lambda carry, w: (jnp.tanh(carry + w), None), jnp.zeros(()), params["recurrent"])
    error = hidden @ params["out"] + offset - targets
    state = {"mean": 0.9 * state["mean"] + 0.1 * mean, "batches": state["batches"] + 1}
    return jnp.mean(error**2), state, {"largest": jnp.abs(error).max()}


def start():
    rng = np.random.default_rng(0)
    params = {
        "in": rng.normal(size=(4, 8)).astype(np.float32),
        "out": rng.normal(size=8).astype(np.float32),
        "recurrent": np.ones(3, np.float32),
    }
    return params, {"mean": np.zeros(8, np.float32), "batches": np.zeros((), np.int32)}, jax.random.key(3)


def batches():
    rng = np.random.default_rng(1)
    for _ in range(ROUNDS):
        yield rng.normal(size=(BATCH, 4)).astype(np.float32), rng.normal(size=BATCH).astype(np.float32)


def own_part(batch, mesh):
    """What this process holds of a batch: all of it, unless the axis `data` runs across processes."""
    if mesh is None or "data" not in mesh.shape:
        return batch
    columns = np.moveaxis(mesh.devices, mesh.axis_names.index("data"), 0).reshape(mesh.shape["data"], -1)
    mine = [any(device.process_index == jax.process_index() for device in column) for column in columns]
    kept = np.repeat(mine, BATCH // len(mine))
    return tuple(array[kept] for array in batch)


def engine_of(name, **placement):
    options = dict(ENGINES[name])
    alphas = options.pop("alphas", None)
    if alphas is None:
        return Experts(loss_of, "adagrad", RATES, **options, **placement)
    hyperparameters = {"alpha": alphas}
    return Experts(loss_of, scale_by_discounted_rss, RATES, hyperparameters=hyperparameters, **options, **placement)


def run_engine(name, **placement):
    return run(engine_of(name, **placement), placement.get("mesh"))


def run(engine, mesh=None):
    state, rounds = engine.init(*start()), []
    for batch in batches():
        state, info = engine.step(state, own_part(batch, mesh))
        rounds.append(jax.tree.map(np.asarray, info))
    return {"rounds": jax.tree.map(lambda *rows: np.stack(rows), *rounds), "decision": engine.decision(state)}


def run_sweep(**placement):
    sweep = Sweep(loss_of, "adagrad", phases=((0.1, 0.5), (0.01, 0.1, 1.0)), transitions=(3,), **placement)
    state = sweep.init(*start())
    for batch in batches():
        state, info = sweep.step(state, own_part(batch, placement.get("mesh")))
    return {"info": info, "asked": sweep.ask(state, lambda params, state, batch: params["out"])}


def compiled(engine):
    """The engine's step, compiled beforehand, so that its program can be read as well as run."""
    state = engine.init(*start())
    common = state._replace(members=type(state.members)(None, None, None))
    engine._step = engine._step.lower(state.members, common, engine.place(next(batches()))).compile()
    return engine._step


def collectives(program):
    """Every exchange between devices in a compiled program: its kind, its bytes, and whether it is a restart's."""
    kinds = "all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter"
    sizes = {"pred": 1, "s32": 4, "u32": 4, "f32": 4}
    found = []
    for line in program.as_text().splitlines():
        match = re.search(rf"= (.*?) ({kinds})(?:-start)?\(", line)
        if match:
            arrays = re.findall(r"(\w+)\[([\d,]*)\]", match[1])
            length = sum(sizes[kind] * int(np.prod([int(n) for n in dims.split(",") if n])) for kind, dims in arrays)
            found.append({"kind": match[2], "bytes": length, "restart": "/restart/" in line})
    return found


def flat(tree):
    """A tree of results as named arrays."""
    leaves = jax.tree.leaves_with_path(jax.tree.map(np.asarray, tree))
    return {jax.tree_util.keystr(path): leaf for path, leaf in leaves}


def main(results, port, processes, process):
    if int(processes) > 1:
        jax.distributed.initialize(f"localhost:{port}", int(processes), int(process))
    devices = np.asarray(jax.devices())
    found = {}
    if int(processes) > 1:
        # Either axis across the processes, the other within each.
        half = devices.reshape(2, -1)
        found["sampled"] = run_engine("sampled", placement="shard", mesh=Mesh(half, ("experts", "data")))
        found["sweep"] = run_sweep(placement="shard", mesh=Mesh(half, ("data", "experts")))
    else:
        grid = Mesh(devices.reshape(-1, 2), ("experts", "data"))
        engine = engine_of("sampled", placement="shard")
        exchanges = collectives(compiled(engine))
        found["sampled"] = run(engine)
        found["averaged"] = run_engine("averaged", placement="shard", within="scan", mesh=grid)
        found["sweep"] = run_sweep(placement="shard", within="scan")
        try:
            engine_of("sampled", placement="shard", mesh=grid).place(
                jax.tree.map(lambda array: array[1:], next(batches()))
            )
        except ValueError as error:
            found["refused"] = np.asarray(str(error))
        found["exchanges"] = np.asarray(json.dumps(exchanges))
    if int(process) == 0:
        with open(results, "wb") as file:
            np.savez(file, **flat(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
