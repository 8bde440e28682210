"""Roles of parameters are those that a person who knows the layers would give."""

import math

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from samuel.core.roles import Role, matrices
from samuel.jax.roles import as_matrices, from_matrices, named_roles, roles
from tests.jax.role_models import MODELS
from tests.jax.role_tables import TABLES
from tests.roles import assert_as_written


@pytest.mark.parametrize("model", MODELS)
def test_every_parameter_has_the_role_that_was_written_down(model):
    params = MODELS[model]()
    found = named_roles(params)
    shapes = dict(zip(found, [leaf.shape for leaf in jax.tree.leaves(params)], strict=True))
    assert_as_written(found, shapes, TABLES[model])


@pytest.mark.parametrize("model", ["linen scanned", "nnx others", "equinox", "haiku"])
def test_matrices_hold_what_the_parameter_holds_and_make_it_again(model):
    params = MODELS[model]()
    for (name, role), leaf in zip(named_roles(params).items(), jax.tree.leaves(params), strict=True):
        if role.kind == "matrix":
            x = jnp.arange(math.prod(leaf.shape)).reshape(leaf.shape)
            batches = as_matrices(x, role)
            assert [batch.shape for batch in batches] == [*matrices(role, leaf.shape)], name
            assert (from_matrices(batches, role, leaf.shape) == x).all(), name


def test_the_tree_of_roles_is_like_that_of_the_parameters():
    for model in MODELS:
        params = MODELS[model]()
        assert jax.tree.structure(roles(params)) == jax.tree.structure(params)
        assert all(isinstance(role, Role) for role in jax.tree.leaves(roles(params)))


def test_a_whole_nnx_module_has_the_roles_of_its_state():
    module = nnx.Sequential(nnx.Linear(4, 8, rngs=nnx.Rngs(0)), nnx.Conv(8, 3, (3,), rngs=nnx.Rngs(0)))
    assert named_roles(module) == named_roles(nnx.state(module, nnx.Param))


def test_a_tree_or_a_prefix_or_a_function_says_otherwise():
    params = {"a": {"kernel": jnp.zeros((4, 8)), "bias": jnp.zeros(8)}, "mixing": jnp.zeros((5, 6)), "c": jnp.zeros(3)}
    kinds = lambda override: jax.tree.map(lambda role: role.kind, roles(params, override))  # noqa: E731
    found = {"a": {"kernel": "matrix", "bias": "vector"}, "mixing": "matrix", "c": "vector"}
    assert kinds(None) == kinds({"a": None, "mixing": None, "c": None}) == kinds(lambda name, p: None) == found
    assert kinds({"a": None, "mixing": "table", "c": None}) == {**found, "mixing": "table"}
    assert kinds({"a": {"kernel": "vector", "bias": None}, "mixing": None, "c": None})["a"]["kernel"] == "vector"
    assert kinds("vector") == jax.tree.map(lambda kind: "vector", found)
    assert kinds(lambda name, p: "vector" if name == "a.kernel" else None)["a"]["kernel"] == "vector"
    assert not roles(params, {"a": None, "mixing": "matrix", "c": None})["mixing"].guessed
    assert roles(params)["mixing"].guessed


def test_a_role_that_does_not_fit_is_refused_by_name():
    params = {"a": {"bias": jnp.zeros(8)}}
    with pytest.raises(ValueError, match=r"role='matrix' does not fit parameter 'a.bias' of shape \(8,\)"):
        roles(params, {"a": {"bias": "matrix"}})
    with pytest.raises(ValueError, match="role of parameter 'a.bias' must be one of"):
        roles(params, lambda name, p: "bias")
    with pytest.raises(ValueError, match="roles must be a tree like that of the parameters"):
        roles(params, {"b": "matrix"})
    with pytest.raises(ValueError, match="the tree of parameters is empty"):
        roles({})


def test_roles_are_found_under_a_trace_and_without_values():
    params = {"Dense_0": {"kernel": jnp.zeros((4, 8))}}
    seen = []

    @jax.jit
    def trace(params):
        seen.append(roles(params))
        return params

    trace(params)
    assert seen[0] == roles(params) == roles(jax.eval_shape(lambda: params))


def test_a_stacked_block_next_to_one_that_is_as_high_as_the_stack_is_told_apart():
    block = {"norm": {"scale": jnp.zeros((4, 4))}, "mlp": {"kernel": jnp.zeros((4, 4, 8)), "bias": jnp.zeros((4, 8))}}
    single = {"kernel": jnp.zeros((4, 8)), "bias": jnp.zeros(8)}
    found = named_roles({"layers": block, "dense": single})
    assert matrices(found["layers.mlp.kernel"], (4, 4, 8)) == ((4, 8, 4),)
    assert matrices(found["dense.kernel"], (4, 8)) == ((1, 8, 4),)
