"""Muon as a base: matrices move along their orthogonalised momentum, everything else by Adam."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

from samuel.core.orthogonal import COEFFICIENTS
from samuel.core.roles import Role, flattened
from samuel.torch import muon
from samuel.torch.muon import orthogonalise_
from tests.torch.configurations import (
    assert_close,
    assert_equal,
    assert_same_snapshot,
    one_rate,
    parameters,
    samuel,
    snapshot,
    values,
)

KINDS = {"wide": (4, 9), "tall": (9, 4), "square": (6, 6), "convolution": (8, 3, 2, 2)}
NETWORK = ((7, 5), (7,), (5, 7), (8, 3, 2, 2), (7, 5), (), (8,))


def slopes(shapes, step, dtype=torch.float64):
    generator = torch.Generator().manual_seed(step)
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes]


def follow(optimizer, params, steps):
    """Steps along gradients that do not depend on where the parameters are."""
    for step in steps:
        for p, slope in zip(params, slopes([p.shape for p in params], step, params[0].dtype), strict=True):
            p.grad = slope
        optimizer.step()


def matrices(params, rate=0.05, **options):
    """Muon with one rate that does not fall, over parameters that are said to be matrices where they can be."""
    groups = [{"params": [p], **({"role": "matrix"} if p.ndim >= 2 else {})} for p in params]
    return one_rate(groups, "muon", rate, **options)


def singular_values(x):
    return torch.linalg.svdvals(x.flatten(1))


def with_singular_values(wanted, shape, seed=0, dtype=torch.float64):
    left, right = (torch.linalg.qr(x)[0] for x in slopes([(side, len(wanted)) for side in shape], seed))
    return (left @ torch.diag(torch.as_tensor(wanted, dtype=torch.float64)) @ right.T).to(dtype)


# Matrices


@pytest.mark.parametrize("kind", KINDS)
def test_all_directions_of_a_matrix_move_alike(kind):
    (p,) = parameters((KINDS[kind],))
    size = 0.05 * 0.2 * max(p.shape[0], p[0].numel()) ** 0.5
    optimizer = matrices([p])
    for step in range(5):
        before = p.detach().clone()
        follow(optimizer, [p], [step])
        found = singular_values(p.detach() - before) / size
        assert found.min() > 0.65
        assert found.max() < 1.25


def test_singular_values_go_where_the_polynomials_take_them():
    wanted = torch.tensor([0.9, 0.4, 0.17], dtype=torch.float64)
    wanted /= wanted.norm()
    x = with_singular_values(wanted, (3, 5))
    orthogonalise_([x], [flattened(x.shape, "")])
    for a, b, c in COEFFICIENTS:
        wanted = a * wanted + b * wanted**3 + c * wanted**5
    assert_close([singular_values(x)], [0.2 * 5**0.5 * wanted.sort(descending=True).values], atol=1e-7)


@pytest.mark.parametrize("shape", [(64, 64), (64, 96), (200, 64), (64, 1000)], ids=str)
def test_iterations_on_the_gram_matrix_and_in_other_precisions_agree(shape, monkeypatch):
    x = slopes([shape], 0)[0]
    exact, single, half = x.clone(), x.float(), x.float()
    role = [flattened(shape, "")]
    monkeypatch.setattr(muon, "has_fast_bfloat16", lambda device: False)
    orthogonalise_([exact], role)
    orthogonalise_([single], role)
    size = 0.2 * max(shape) ** 0.5
    assert_close([single.double() / size], [exact / size], atol=1e-5)
    monkeypatch.setattr(muon, "has_fast_bfloat16", lambda device: True)
    orthogonalise_([half], role)
    assert (half - single).norm() < 4 * torch.finfo(torch.bfloat16).eps * single.norm()


@pytest.mark.parametrize("shape", [(64, 64), (128, 512), (512, 128)], ids=str)
def test_in_16_bits_singular_values_end_in_the_band(shape, monkeypatch):
    monkeypatch.setattr(muon, "has_fast_bfloat16", lambda device: True)
    wanted = np.geomspace(1.0, 0.02, min(shape))  # the smallest is above 0.003 of the norm
    assert wanted[-1] > 0.003 * math.sqrt((wanted**2).sum())
    x = with_singular_values(wanted, shape, dtype=torch.float32)
    orthogonalise_([x], [flattened(shape, "")])
    found = singular_values(x) / (0.2 * max(shape) ** 0.5)
    assert found.min() > 0.65
    assert found.max() < 1.25


def test_parts_that_are_joined_are_made_orthogonal_one_by_one():
    x = slopes([(12, 9)], 0)[0]
    parts = [part.clone() for part in x.split([4, 6, 2])]
    orthogonalise_([x], [Role("matrix", (0,), (1,), parts=(4, 6, 2))])
    orthogonalise_(parts, [flattened(part.shape, "") for part in parts])
    assert_close([x], [torch.cat(parts)], atol=1e-12)


def test_the_size_of_the_gradient_does_not_matter():
    one, other = parameters(((5, 4),)), parameters(((5, 4),))
    small, large = matrices(one), matrices(other)
    for step in range(5):
        one[0].grad = slopes(((5, 4),), step, torch.float32)[0]
        other[0].grad = 1000 * one[0].grad
        small.step()
        large.step()
    assert_close(one, other)


def test_gradients_of_zero_and_empty_matrices_move_nothing():
    params = [*parameters(NETWORK), torch.nn.Parameter(torch.empty(0, 4)), torch.nn.Parameter(torch.empty(4, 0))]
    before = values(params)
    optimizer = one_rate(params, "muon")
    for _ in range(3):
        for p in params:
            p.grad = torch.zeros_like(p)
        optimizer.step()
    assert_equal(values(params), before)


# Everything else


def test_what_is_no_matrix_goes_to_adam_with_the_momentum_of_nesterov():
    params = parameters(((7, 5), (8, 3, 2, 2), (7,), ()), torch.float64)
    ours = one_rate([{"params": params, "role": "vector"}], "muon")
    nesterov = optax.scale_by_adam(nesterov=True)
    with jax.enable_x64(True):
        theirs = [jnp.asarray(p.detach().numpy()) for p in params]
        state = nesterov.init(theirs)
        for step in range(60):
            found = [jnp.asarray(slope.numpy()) for slope in slopes([p.shape for p in params], step)]
            directions, state = nesterov.update(found, state)
            theirs = [p - 0.05 * direction for p, direction in zip(theirs, directions, strict=True)]
        follow(ours, params, range(60))
        for p, expected in zip(params, theirs, strict=True):
            np.testing.assert_allclose(p.detach().numpy(), np.asarray(expected), rtol=0, atol=1e-6)


def test_complex_matrices_go_to_adam_as_pairs():
    pairs = parameters(((6, 4, 2),), torch.float64)
    numbers = [torch.nn.Parameter(torch.view_as_complex(pairs[0].detach().clone()))]
    optimizers = one_rate([{"params": pairs, "role": "vector"}], "muon"), one_rate(numbers, "muon")
    for step in range(10):
        pairs[0].grad = slopes(((6, 4, 2),), step)[0]
        numbers[0].grad = torch.view_as_complex(pairs[0].grad.clone())
        for optimizer in optimizers:
            optimizer.step()
    assert_close([torch.view_as_real(numbers[0].detach())], pairs, atol=1e-12)


# Together


def test_parameters_that_look_alike_are_as_if_alone():
    params = parameters(NETWORK)
    follow(matrices(params), params, range(5))
    for i, p in enumerate(params):
        (alone,) = parameters(NETWORK)[i : i + 1]
        optimizer = matrices([alone])
        for step in range(5):
            alone.grad = slopes(NETWORK, step, torch.float32)[i]
            optimizer.step()
        assert_close([alone], [p])


def test_a_parameter_without_a_gradient_counts_its_own_steps():
    params, late = parameters(((5, 4), (5, 4), (5,), (5,))), parameters(((5, 4), (5, 4), (5,), (5,)))
    optimizer, other = matrices(params), matrices(late[1::2])
    for step in range(6):
        found = slopes([p.shape for p in params], step, torch.float32)
        for i, (p, slope) in enumerate(zip(params, found, strict=True)):
            p.grad = slope if i % 2 == 0 or step >= 3 else None
        optimizer.step()
        if step < 3:
            assert_equal(values(params[1::2]), values(late[1::2]))
            assert not any(p in optimizer.state for p in params[1::2])
        else:
            for p, slope in zip(late[1::2], found[1::2], strict=True):
                p.grad = slope
            other.step()
    assert_close(params[1::2], late[1::2])
    assert [int(optimizer.state[p]["step"]) for p in params] == [6, 3, 6, 3]


def test_a_shift_resets_all_means_and_counts():
    params = parameters()
    optimizer = samuel(params, weight_decay=0.0)
    for step in range(62):
        leap = 10 if step >= 60 else 1  # two outliers in a row
        for p, slope in zip(params, slopes([p.shape for p in params], step, torch.float32), strict=True):
            p.grad = leap * slope
        optimizer.step()
        assert {int(optimizer.state[p]["step"]) for p in params} == {step + 1 if step < 61 else 0}
    assert optimizer.shifts == 1
    before = [params[0].detach().clone(), params[1].detach().clone()]
    follow(optimizer, params, [62])
    again = [torch.nn.Parameter(p.clone()) for p in before]
    fresh = samuel(again, weight_decay=0.0)
    follow(fresh, again, [62])  # its first direction, at another rate
    for p, start, q in zip(params, before, again, strict=False):
        ours, theirs = p.detach() - start, q.detach() - start
        assert_close([ours / ours.norm()], [theirs / theirs.norm()], atol=1e-4)


# Gradients that are skipped


@pytest.mark.parametrize("way", ["numbers", "tensors"])
@pytest.mark.parametrize("base", ["muon", "adam", "sgd", torch.optim.Adam, torch.optim.NAdam], ids=str)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_skipped_gradient_changes_nothing_but_the_count_of_those_skipped(base, bad, way, monkeypatch):
    monkeypatch.setattr("samuel.torch.engine.Engine.on_host", lambda self, products: way == "numbers")
    params = parameters()
    optimizer = samuel(params, base)
    follow(optimizer, params, range(5))
    before = snapshot(optimizer)
    for p, slope in zip(params, slopes([p.shape for p in params], 5, torch.float32), strict=True):
        p.grad = slope
    params[1].grad[0] = bad
    optimizer.step()
    after = snapshot(optimizer)
    assert int(after.pop("number skipped")) == int(before.pop("number skipped")) + 1
    assert after.pop("number bad")
    assert not before.pop("number bad")
    # The pace of the average in a skipped step is 0, and the next step has another.
    assert float(after.pop("number tail.pace")) == 0
    before.pop("number tail.pace")
    assert_same_snapshot(before, after)
