"""One of two processes that save and restore a state together.

python share_checkpoint.py FOLDER PORT INDEX
"""

import os
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from samuel.jax.checkpoint import Checkpoints


def main(folder, port, index):
    jax.distributed.initialize(f"localhost:{port}", 2, int(index))
    mesh = jax.make_mesh((4,), ("experts",))
    spread, copied = NamedSharding(mesh, PartitionSpec("experts")), NamedSharding(mesh, PartitionSpec())
    state = {
        "params": jax.jit(lambda: jnp.arange(24.0).reshape(8, 3), out_shardings=spread)(),
        "keys": jax.jit(lambda: jax.random.split(jax.random.key(3), 8), out_shardings=spread)(),
        "key": jax.jit(lambda: jax.random.key(4), out_shardings=copied)(),
        "rate": jax.jit(lambda: 1.5, out_shardings=copied)(),
        "private": jnp.arange(5),
        "mean": np.full(2, 0.1),
        "epoch": 7,
    }
    checkpoints = Checkpoints(folder)
    for step in (1, 2, 3):
        checkpoints.save(step, state)
    blank = jax.tree.map(lambda leaf: leaf, state)
    step, restored = checkpoints.restore(like=blank)
    assert step == 3
    assert checkpoints.steps() == [2, 3]
    for name, leaf in state.items():
        assert type(restored[name]) is type(leaf), name
        if isinstance(leaf, jax.Array):
            assert restored[name].sharding == leaf.sharding, name
            assert local(restored[name]) == local(leaf), name
    assert restored["rate"].weak_type
    np.testing.assert_array_equal(restored["mean"], state["mean"])
    assert restored["epoch"] == 7
    print("same")
    jax.distributed.shutdown()


def local(array):
    data = jax.random.key_data(array) if jnp.issubdtype(array.dtype, jax.dtypes.prng_key) else array
    return [np.asarray(shard.data).tobytes() for shard in data.addressable_shards]


if __name__ == "__main__":
    os.environ["JAX_PLATFORMS"] = "cpu"
    main(*sys.argv[1:])
