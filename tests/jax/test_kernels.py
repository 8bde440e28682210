"""The GPU kernels compute what the plain code does (here interpreted, so that no GPU is needed)."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from samuel.core import Geometric
from samuel.core.rays import Moves
from samuel.jax import kernels
from samuel.jax import old_vectors as vectors
from samuel.jax.old_transform import decision, samuel

RANDOM = np.random.default_rng(0)
LENGTH = vectors.MULTIPLE


def numbers(*shape, dtype=jnp.float32):
    return jnp.asarray(RANDOM.normal(size=shape), dtype)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16], ids=str)
def test_products_are_those_of_the_plain_code(dtype):
    gradient = numbers(LENGTH)
    basis = [numbers(LENGTH), *(numbers(LENGTH, dtype=dtype) for _ in range(3))]
    np.testing.assert_allclose(
        kernels.dots(gradient, basis, interpret=True), vectors.products(gradient, basis), rtol=1e-4, atol=1e-3
    )


@pytest.mark.parametrize("due", [False, True], ids=["ordinary", "block-ends"])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16], ids=str)
@pytest.mark.parametrize(("moving", "kept", "directions"), [(1, 0, 1), (2, 3, 1), (4, 1, 2)])
def test_a_step_is_that_of_the_plain_code(moving, kept, directions, dtype, due):
    basis = moving + kept
    moves = Moves(
        difference=numbers(basis),
        along=numbers(directions),
        keep=numbers(moving),
        enter=numbers(moving, directions),
        due=jnp.asarray(due),
        rewrite=numbers(basis, basis),
        restarted=None,
        reset=None,
        pace=None,
    )
    enters = RANDOM.random((moving, directions)) < 0.7
    parts = (
        [numbers(LENGTH) for _ in range(moving)],
        [numbers(LENGTH, dtype=dtype) for _ in range(kept)],
        [numbers(LENGTH) for _ in range(directions)],
    )
    plain = vectors.take_step(*parts, moves, enters)
    fast = kernels.step(*parts, moves, enters, interpret=True)
    for ours, theirs in zip(jax.tree.leaves(fast), jax.tree.leaves(plain), strict=True):
        assert ours.dtype == theirs.dtype
        rounding = 0.02 if ours.dtype == jnp.bfloat16 else 1e-5  # one unit in the last place
        np.testing.assert_allclose(ours.astype(float), theirs.astype(float), rtol=rounding, atol=rounding)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"rule": "Kr", "horizon": 100},
        {"rule": "theorem", "cover": Geometric(16, shortest=4), "base_state": "slots"},
    ],
    ids=["default", "watched", "theorem"],
)
def test_training_is_the_same_with_the_kernels(options, monkeypatch):
    target = numbers(20)

    def train(packed):
        optimizer = samuel("adagrad", (0.01, 0.1, 1.0), packed=packed, **options)
        params = {"a": jnp.zeros(20), "b": jnp.ones((3, 2))}
        state = optimizer.init(params)

        @jax.jit
        def step(params, state):
            gradient = {"a": params["a"] - target, "b": params["b"]}
            updates, state = optimizer.update(gradient, state, params)
            return jax.tree.map(jnp.add, params, updates), state

        for _ in range(40):
            params, state = step(params, state)
        return params, decision(state, params)

    trees, packed = train(packed=False), train(packed=True)
    monkeypatch.setattr(kernels, "dots", partial(kernels.dots, interpret=True))
    monkeypatch.setattr(kernels, "step", partial(kernels.step, interpret=True))
    monkeypatch.setattr(vectors, "_kernels_fit", lambda vector: True)
    fast = train(packed=True)
    assert float(abs(trees[0]["a"]).max()) > 0.1  # something was learned
    for ours in (packed, fast):
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), ours, trees)


def test_packing_and_unpacking_give_the_tree_back():
    tree = {"a": numbers(3, 5), "b": [numbers(7), numbers()]}
    packed = vectors.pack(tree)
    assert packed.size % vectors.MULTIPLE == 0
    jax.tree.map(np.testing.assert_array_equal, vectors.unpack(packed, tree), tree)
