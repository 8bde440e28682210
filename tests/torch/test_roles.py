"""Roles of parameters are those that a person who knows the layers would give."""

import functools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from samuel.core.roles import Role, matrices
from samuel.torch.roles import as_matrices, from_matrices, roles, roles_of_groups, roles_of_named
from tests.roles import assert_as_written
from tests.torch.role_models import MODELS
from tests.torch.role_tables import TABLES


@pytest.mark.parametrize("model", MODELS)
def test_every_parameter_has_the_role_that_was_written_down(model):
    network = MODELS[model]()
    shapes = {name: tuple(p.shape) for name, p in network.named_parameters()}
    assert_as_written(roles(network), shapes, TABLES[model])


@pytest.mark.parametrize(
    "model", ["GPT-2", "GPT-2 untied", "BERT classifier", "BERT masked", "ViT", "T5", "Mixtral", "LoRA"]
)
def test_names_alone_find_the_same_kinds(model):
    network = MODELS[model]()
    found = roles_of_named(network.named_parameters())
    assert {name: role.kind for name, role in found.items()} == {
        name: role.kind for name, role in roles(network).items()
    }


@pytest.mark.parametrize("model", ["GPT-2", "BERT classifier", "T5"])
def test_shapes_alone_find_the_embedding_and_the_layers_and_say_that_they_guess(model):
    network = MODELS[model]()
    known = roles(network)
    found = dict(zip(known, roles_of_groups([{"params": network.parameters()}])[0].values(), strict=True))
    for name, role in known.items():
        if role.why != "table of positions":
            assert found[name].kind == role.kind, name
            assert found[name].guessed == (role.kind != "vector"), name


@given(st.sampled_from([*MODELS]), st.data())
@settings(max_examples=20)
def test_matrices_hold_what_the_parameter_holds_and_make_it_again(model, data):
    network = built(model)
    found = {name: role for name, role in roles(network).items() if role.kind == "matrix"}
    name = data.draw(st.sampled_from([*found]))
    p, role = dict(network.named_parameters())[name].detach(), found[name]
    batches = as_matrices(p, role)
    assert [tuple(batch.shape) for batch in batches] == [*matrices(role, p.shape)]
    assert torch.equal(from_matrices(batches, role, p.shape), p)


@functools.cache
def built(model):
    return MODELS[model]()


def test_matrices_are_those_that_the_layer_multiplies_by():
    block = MODELS["GPT-2"]().transformer.h[0]
    attention = block.attn.c_attn
    x = torch.randn(5, 32)
    (parts,) = as_matrices(block.attn.c_attn.weight.detach(), roles(block)["attn.c_attn.weight"])
    queries, keys, values = (attention(x) - attention.bias).split(32, dim=-1)
    for part, output in zip(parts, (queries, keys, values), strict=True):
        torch.testing.assert_close(x @ part.T, output)


def test_a_model_without_parameters_is_refused():
    with pytest.raises(ValueError, match="ReLU has no parameters"):
        roles(nn.ReLU())


def test_a_lazy_layer_is_refused_until_it_has_seen_a_batch():
    model = nn.Sequential(nn.LazyLinear(8), nn.LazyLinear(3))
    for find in (roles, lambda model: roles_of_named(model.named_parameters())):
        with pytest.raises(ValueError, match=r"parameter '0.weight' has no shape yet: run one batch"):
            find(model)
    model(torch.zeros(2, 5))
    assert [role.kind for role in roles(model).values()] == ["matrix", "vector"] * 2


def test_a_parameter_that_is_given_twice_is_refused_by_name():
    layer = nn.Linear(4, 3)
    with pytest.raises(ValueError, match=r"parameter '2' of shape \(3, 4\) is given twice, first as '0'"):
        roles_of_groups([{"params": [layer.weight, layer.bias]}, {"params": [layer.weight]}])
    with pytest.raises(ValueError, match=r"two parameters are named 'w'"):
        roles_of_groups([{"params": [("w", layer.weight), ("w", layer.bias)]}])


def test_a_groups_role_holds_for_all_its_parameters_or_is_refused():
    layer = nn.Linear(4, 3)
    (found,) = roles_of_groups([{"params": [("a", layer.weight)], "role": "table"}])
    assert found["a"] == Role("table", why="given")
    with pytest.raises(ValueError, match=r"role='matrix' does not fit parameter 'layer.bias' of shape \(3,\)"):
        roles_of_groups([{"params": [("layer.bias", layer.bias)], "role": "matrix"}])


def test_a_wrapped_model_has_the_roles_of_the_model():
    model = nn.Sequential(nn.Embedding(50, 8), nn.Linear(8, 4))
    wrapped = torch.nn.DataParallel(model)
    assert [*roles(wrapped).values()] == [*roles(model).values()]
    assert [*roles(torch.compile(model, backend="eager")).values()] == [*roles(model).values()]


def test_old_weight_norm_is_seen_as_the_new_one():
    with pytest.warns(FutureWarning, match="weight_norm"):
        layer = torch.nn.utils.weight_norm(nn.Linear(8, 4))
    assert {name: role.kind for name, role in roles(layer).items()} == {
        "bias": "vector",
        "weight_g": "vector",
        "weight_v": "matrix",
    }
