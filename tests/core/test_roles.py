"""The rules that PyTorch and JAX share: what fits a shape, what a role costs, how it is displayed."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samuel.core.roles import (
    KINDS,
    Role,
    Row,
    by_name,
    by_shape,
    checked,
    describe,
    flattened,
    guess_warning,
    matrices,
    matrix,
    orthogonalisation_flops,
    outputs,
    stacked,
    table,
    vector,
)

SHAPES = st.lists(st.integers(0, 9), max_size=5).map(tuple)
NAMES = st.sampled_from(
    ["weight", "a.weight", "attn.qkv.weight", "experts.w1", "norm.weight", "x.bias", "theta", "embed.w"]
)


@given(NAMES, SHAPES, st.booleans())
def test_any_name_and_shape_have_a_role_whose_matrices_hold_every_number_once(name, shape, inputs_first):
    for role in (by_name(name, shape, inputs_first=inputs_first), by_shape(shape, inputs_first=inputs_first)):
        assert role.kind in KINDS
        assert role.why
        if role.kind == "matrix":
            assert sum(count * rows * columns for count, rows, columns in matrices(role, shape)) == math.prod(shape)
            assert all(min(rows, columns) >= 2 for _, rows, columns in matrices(role, shape))
        else:
            assert matrices(role, shape) == ()
            assert orthogonalisation_flops(role, shape) == 0


@given(NAMES, SHAPES)
def test_a_found_role_fits_its_own_shape(name, shape):
    role = by_name(name, shape)
    assert checked(name, shape, role).kind == role.kind


@pytest.mark.parametrize("shape", [(1, 64, 384), (64, 384), (1, 1, 32), (197, 32)])
@pytest.mark.parametrize("name", ["pos_embed", "pos_embedding", "positional_embeddings", "encoder.position_embeddings"])
def test_a_table_of_positions_is_never_a_matrix(name, shape):
    assert by_name(name, shape).kind == "vector"
    assert not by_name(name, shape).guessed


@pytest.mark.parametrize("shape", [(1, 64), (64, 1), (1, 64, 1, 1), (64,), (), (0, 4), (1, 1, 64)])
def test_one_row_or_column_is_never_a_matrix(shape):
    assert by_shape(shape).kind == by_name("layer.weight", shape).kind == "vector"


@pytest.mark.parametrize(
    ("shape", "role", "message"),
    [
        ((8,), "matrix", r"role='matrix' does not fit parameter 'layer.p' of shape \(8,\).*use role='vector'"),
        ((), "matrix", r"'layer.p' of shape \(\).*use role='vector'"),
        ((1, 8), "matrix", r"'layer.p' of shape \(1, 8\).*use role='vector'"),
        ((1, 64, 384), "matrix", r"'layer.p' of shape \(1, 64, 384\).*use role='vector'"),
        ((8,), "table", r"role='table' does not fit parameter 'layer.p' of shape \(8,\).*use role='vector'"),
        (
            (8, 8),
            "embedding",
            r"role of parameter 'layer.p' must be one of 'matrix', 'table', 'vector', got 'embedding'",
        ),
        ((8, 8), 3, r"role of parameter 'layer.p' must be one of .*, got 3"),
        ((8, 8), Role("matrix", (0,), (2,)), r"different axes of its shape \(8, 8\)"),
        ((8, 8), Role("matrix", (0,), (0,)), r"'layer.p' must be different axes"),
        (
            (8, 8),
            Role("matrix", (0,), (1,), (3, 3)),
            r"parts of parameter 'layer.p'.*add up to its 8 rows, got \(3, 3\)",
        ),
        ((8, 8), Role("vector", (0,), (1,)), "only a matrix has rows"),
        ((8, 8), Role("matrix", (0,), (1,), (1,) * 8), "does not fit parameter 'layer.p'"),
    ],
)
def test_a_role_that_does_not_fit_is_refused_by_name(shape, role, message):
    with pytest.raises(ValueError, match=message):
        checked("layer.p", shape, role)


def test_a_given_role_is_no_guess_and_keeps_the_axes_that_were_found():
    found = matrix((3, 8, 4), (1,), (2,), "stack", guessed=True)
    assert checked("w", (3, 8, 4), "matrix", found) == Role("matrix", (1,), (2,), why="given")
    assert matrices(checked("w", (3, 8, 4), "matrix"), (3, 8, 4)) == ((1, 3, 32),)
    assert checked("w", (3, 8, 4), "vector", found) == vector("given")


def test_the_cost_of_a_role_is_that_of_its_matrices_one_by_one():
    one = orthogonalisation_flops(flattened((20, 50), ""), (20, 50))
    assert one == 5 * (2 * (2 * 20 * 20 * 50) + 2 * 20**3)
    assert orthogonalisation_flops(flattened((50, 20), ""), (50, 20)) == one
    assert orthogonalisation_flops(stacked(flattened((20, 50), ""), 1), (7, 20, 50)) == 7 * one
    assert orthogonalisation_flops(Role("matrix", (0,), (1,), (20,) * 3), (60, 50)) == 3 * one
    assert orthogonalisation_flops(flattened((20, 50), ""), (20, 50), iterations=0) == 0


@pytest.mark.parametrize(
    ("layers", "vocabularies", "expected"),
    [
        ({"fc": 64, "head": 101}, [101], {"head": False}),
        ({"fc": 64, "last": 101}, [101], {"last": False}),
        ({"up": 256, "down": 64}, [256], {}),  # bytes, and a hidden layer as wide
        ({"up": 256, "down": 64, "lm_head": 256}, [256], {"lm_head": False}),
        ({"up": 256, "last": 256}, [256], {"last": True}),
        ({"fc": 64, "classifier": 2}, [101], {}),
        ({"fc": 64, "lm_head": 104}, [101], {"lm_head": False}),  # padded
        ({"fc": 64}, [], {}),
        ({}, [101], {}),
    ],
)
def test_an_output_layer_as_wide_as_the_vocabulary_is_found(layers, vocabularies, expected):
    assert outputs(layers, vocabularies) == expected


def test_every_guess_is_displayed_and_named_in_the_warning():
    rows = [
        Row("h.0.w", (8, 4), flattened((8, 4), "linear"), 0.1),
        Row("h.1.w", (8, 4), flattened((8, 4), "linear"), 0.1),
        Row("theta", (5, 8, 8), by_shape((5, 8, 8))),
        Row("emb", (101, 4), table("embedding"), 0.1),
    ]
    text = describe(rows)
    header, *lines, total = text.splitlines()
    assert header.split() == ["parameter", "count", "shape", "role", "decay", "TFLOP", "found", "by"]
    assert [line.split()[0] for line in lines] == ["h.*.w", "theta", "emb"]
    assert "guess: 3 dimensions that nothing explains" in lines[1]
    assert total.endswith("1 guess")
    assert "4 parameters, 788 numbers: 64 in matrices, 404 in tables, 320 in vectors" in total
    assert "1 of 4 parameters are guesses: vector: theta" in guess_warning({row.name: row.role for row in rows}, "")
    assert guess_warning({"emb": table("embedding")}, "Give the model") == ""
