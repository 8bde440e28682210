"""Muon for whole networks: what it does to matrices, what to everything else, and how the two live together."""

import copy
import io
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

import samuel.jax
from samuel.torch import MatrixMuon, Samuel
from samuel.torch.muon import COEFFICIENTS, ITERATIONS
from tests.torch.configurations import (
    assert_close,
    assert_equal,
    assert_same_snapshot,
    gradients,
    parameters,
    snapshot,
    train,
    values,
)

KINDS = {"wide": (4, 9), "tall": (9, 4), "square": (6, 6), "row": (1, 5), "convolution": (8, 3, 2, 2)}
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


def optax_steps(transformation, params, steps, rate, order=lambda array: array):
    """Where optax takes the same parameters along the same gradients; `order` makes of arrays what it expects."""
    with jax.enable_x64(True):
        ours = [jnp.asarray(order(p.detach().numpy())) for p in params]
        state = transformation.init(ours)
        for step in steps:
            found = [jnp.asarray(order(slope.numpy())) for slope in slopes([p.shape for p in params], step)]
            directions, state = transformation.update(found, state, ours)
            ours = [p - rate * direction for p, direction in zip(ours, directions, strict=True)]
        return [np.asarray(p) for p in ours]


# Matrices


def test_it_takes_the_steps_of_jax_on_layers_as_flax_lays_them_out():
    def as_in_flax(array):  # dense: inputs, outputs; convolutions: height, width, inputs, outputs
        return {2: lambda a: a.T, 4: lambda a: a.transpose(2, 3, 1, 0)}.get(array.ndim, lambda a: a)(array)

    params = parameters(NETWORK, torch.float64)
    expected = optax_steps(samuel.jax.scale_by_muon(), params, range(60), 0.05, as_in_flax)
    follow(MatrixMuon(params, lr=0.05), params, range(60))
    for p, theirs in zip(params, expected, strict=True):
        np.testing.assert_allclose(as_in_flax(p.detach().numpy()), theirs, rtol=0, atol=1e-12)


def singular_values(p, before):
    return torch.linalg.svdvals((p.detach() - before).flatten(1))


@pytest.mark.parametrize("kind", KINDS)
def test_all_directions_of_a_matrix_move_alike(kind):
    (p,) = parameters((KINDS[kind],))
    size = 0.2 * max(p.shape[0], p[0].numel()) ** 0.5
    optimizer = MatrixMuon([p], lr=1.0)
    for step in range(5):
        before = p.detach().clone()
        follow(optimizer, [p], [step])
        found = singular_values(p, before) / size
        assert found.min() > 0.65
        assert found.max() < 1.25


def test_under_samuel_they_move_alike_too():
    (p,) = parameters(((4, 9),))
    before = p.detach().clone()
    optimizer = Samuel([p], "muon")
    follow(optimizer, [p], [0])  # all experts begin at the parameters: there is nothing but the step
    found = singular_values(p, before) / (0.2 * 3 * optimizer.effective_lr)
    assert found.min() > 0.65
    assert found.max() < 1.25


def test_singular_values_go_where_the_iteration_takes_them():
    wanted = torch.tensor([0.9, 0.4, 0.17], dtype=torch.float64)
    wanted /= wanted.norm()
    bases = [torch.linalg.qr(matrix)[0] for matrix in slopes(((3, 3), (5, 3)), 0)]
    p = torch.nn.Parameter(torch.zeros(3, 5, dtype=torch.float64))
    p.grad = bases[0] @ torch.diag(wanted) @ bases[1].T
    MatrixMuon([p], lr=1.0).step()
    a, b, c = COEFFICIENTS
    for _ in range(ITERATIONS):
        wanted = a * wanted + b * wanted**3 + c * wanted**5
    assert_close([-p], [0.2 * 5**0.5 * bases[0] @ torch.diag(wanted) @ bases[1].T], atol=1e-7)


def test_the_size_of_the_gradient_does_not_matter():
    one, other = parameters(((5, 4),)), parameters(((5, 4),))
    small, large = MatrixMuon(one, lr=0.1), MatrixMuon(other, lr=0.1)
    for step in range(5):
        one[0].grad = gradients(parameters(((5, 4),)), step)[0]
        other[0].grad = 1000 * one[0].grad
        small.step()
        large.step()
    assert_close(one, other)


def test_complex_matrices_become_unitary():
    p = torch.nn.Parameter(torch.zeros(3, 5, dtype=torch.complex128))
    p.grad = torch.complex(*slopes(((3, 5), (3, 5)), 0))
    MatrixMuon([p], lr=1.0).step()
    found = singular_values(p, 0) / (0.2 * 5**0.5)
    assert found.min() > 0.65
    assert found.max() < 1.25
    assert torch.vdot(p.detach().flatten(), p.grad.flatten()).real < 0  # downhill


# Everything else

ADAM = {
    "vectors": (((7,), (), (5,), (7,)), True),
    "matrices that are said to be none": (((7, 5), (8, 3, 2, 2), (7,)), False),
}


@pytest.mark.parametrize("name", ADAM)
def test_what_is_no_matrix_goes_to_adam_with_the_momentum_of_nesterov(name):
    shapes, matrices = ADAM[name]
    params = parameters(shapes, torch.float64)
    expected = optax_steps(optax.scale_by_adam(nesterov=True), params, range(60), 0.05)
    follow(MatrixMuon(params, lr=0.05, matrices=matrices), params, range(60))
    for p, theirs in zip(params, expected, strict=True):
        np.testing.assert_allclose(p.detach().numpy(), theirs, rtol=0, atol=1e-12)


def test_a_group_says_for_itself_whether_it_has_matrices():
    params, alone = parameters(((6, 4), (6, 4))), parameters(((6, 4), (6, 4)))
    together = Samuel([{"params": params[:1]}, {"params": params[1:], "matrices": False}], "muon", lrs=(0.1,))
    apart = [Samuel(alone[:1], "muon", lrs=(0.1,)), Samuel(alone[1:], "muon", lrs=(0.1,), matrices=False)]
    for step in range(10):
        found = slopes(((6, 4), (6, 4)), step, torch.float32)
        for some in (params, alone):
            for p, slope in zip(some, found, strict=True):
                p.grad = slope
        for optimizer in (together, *apart):
            optimizer.step()
    assert_close(params, alone)
    assert "base0:exp_avg_sq" in together.state[params[1]]
    assert "base0:exp_avg_sq" not in together.state[params[0]]


def test_complex_numbers_are_pairs_to_adam():
    pairs = parameters(((6, 2),), torch.float64)
    numbers = [torch.nn.Parameter(torch.view_as_complex(pairs[0].detach().clone()))]
    optimizers = MatrixMuon(pairs, matrices=False), MatrixMuon(numbers)  # a vector of complex numbers
    for step in range(10):
        pairs[0].grad = slopes(((6, 2),), step)[0]
        numbers[0].grad = torch.view_as_complex(pairs[0].grad.clone())
        for optimizer in optimizers:
            optimizer.step()
    assert_close([torch.view_as_real(numbers[0].detach())], pairs, atol=1e-12)


# Together


def test_parameters_that_look_alike_are_as_if_alone():
    params = parameters(NETWORK)
    follow(MatrixMuon(params, lr=0.1), params, range(5))
    for i, p in enumerate(params):
        (alone,) = parameters(NETWORK)[i : i + 1]
        optimizer = MatrixMuon([alone], lr=0.1)
        for step in range(5):
            alone.grad = slopes(NETWORK, step, torch.float32)[i]
            optimizer.step()
        assert_close([alone], [p])


def test_a_parameter_without_a_gradient_is_left_alone_and_counts_its_own_steps():
    params, late = parameters(((5, 4), (5, 4), (5,), (5,))), parameters(((5, 4), (5, 4), (5,), (5,)))
    optimizer, other = MatrixMuon(params, lr=0.1), MatrixMuon(late[1::2], lr=0.1)
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


def test_without_gradients_nothing_happens():
    params = parameters(NETWORK)
    optimizer = MatrixMuon(params)
    optimizer.step()
    assert_equal(values(params), values(parameters(NETWORK)))
    assert not optimizer.state


def test_gradients_of_zero_and_empty_matrices_move_nothing():
    params = [*parameters(NETWORK), torch.nn.Parameter(torch.empty(0, 4)), torch.nn.Parameter(torch.empty(4, 0))]
    before = values(params)
    optimizer = MatrixMuon(params, lr=1.0)
    for p in params:
        p.grad = torch.zeros_like(p)
    for _ in range(3):
        optimizer.step()
    assert_equal(values(params), before)


def test_parameters_of_16_bits_take_the_steps_of_32_bits_rounded():
    dtype = torch.bfloat16
    short, long = parameters(NETWORK, dtype), parameters(NETWORK)
    for p, q in zip(short, long, strict=True):
        q.data.copy_(p.data)
    optimizers = MatrixMuon(short, lr=0.1), MatrixMuon(long, lr=0.1)
    for step in range(5):
        for p, q, slope in zip(short, long, slopes(NETWORK, step, dtype), strict=True):
            p.grad, q.grad = slope, slope.float()
        for optimizer in optimizers:
            optimizer.step()
    assert_close([p.float() for p in short], long, atol=16 * torch.finfo(dtype).eps)


def test_a_closure_is_called_once_with_gradients_on():
    w = torch.nn.Parameter(torch.ones(2, 2))
    optimizer = MatrixMuon([w], lr=0.1)

    def closure():
        optimizer.zero_grad()
        loss = w.square().sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 4
    assert w.square().sum() < 4


# Going on


def resumed(params, optimizer):
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    fresh = [torch.nn.Parameter(p.detach().clone()) for p in params]
    again = MatrixMuon(fresh)
    again.load_state_dict(torch.load(file, weights_only=True))
    return fresh, again


COPIES = {
    "deepcopy": lambda params, optimizer: copy.deepcopy((params, optimizer)),
    "pickle": lambda params, optimizer: pickle.loads(pickle.dumps((params, optimizer))),
    "state dict": resumed,
}


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_goes_on_to_the_bit(name):
    params = parameters(NETWORK)
    optimizer = MatrixMuon(params, lr=0.1, momentum=0.9)
    follow(optimizer, params, range(7))
    theirs, twin = COPIES[name](params, optimizer)
    follow(optimizer, params, range(7, 12))
    follow(twin, theirs, range(7, 12))
    assert_equal(values(theirs), values(params))


def test_an_alarm_begins_all_means_and_counts_anew():
    params = parameters()
    optimizer = Samuel(params, "muon")
    for step in range(62):
        leap = 10 if step >= 60 else 1  # two gradients in a row
        for p, slope in zip(params, slopes([p.shape for p in params], step, torch.float32), strict=True):
            p.grad = leap * slope
        optimizer.step()
        counts = {int(optimizer.state[p]["base0:step"]) for p in params}
        assert counts == {step + 1 if step < 61 else 0}
    assert optimizer.shifts == 1
    for p in params:
        means = [value for name, value in optimizer.state[p].items() if name.startswith("base0:exp_avg")]
        assert len(means) == (1 if p.ndim >= 2 else 2)
        assert not any(mean.any() for mean in means)


# What cannot work


@pytest.mark.parametrize("make", [MatrixMuon, lambda params: Samuel(params, "muon")], ids=["alone", "Samuel"])
def test_what_is_a_matrix_cannot_change_in_a_run(make):
    params = parameters()
    optimizer = make(params)
    train(optimizer, params, range(3))
    before = snapshot(optimizer)
    optimizer.param_groups[0]["matrices"] = False
    with pytest.raises(
        ValueError, match=r"shape \(7, 5\) was trained with matrices=True, and its group now says False"
    ):
        train(optimizer, params, [3])
    optimizer.param_groups[0]["matrices"] = True
    assert_same_snapshot(before, snapshot(optimizer))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": -1.0}, "lr must be at least 0, got -1.0"),
        ({"momentum": 1.0}, "momentum must be at least 0 and below 1, got 1.0"),
        ({"betas": (0.9, 1.5)}, r"betas must be at least 0 and below 1, got \(0.9, 1.5\)"),
        ({"eps": -1e-8}, "eps must be at least 0"),
        ({"matrices": "no"}, "matrices must be True or False, got 'no'"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_impossible_options_are_refused_for_all_or_for_a_group(options, message):
    with pytest.raises(ValueError, match=message):
        MatrixMuon(parameters(), **options)
    optimizer = MatrixMuon(parameters())
    with pytest.raises(ValueError, match=message):
        optimizer.add_param_group({"params": parameters(), **options})
    assert len(optimizer.param_groups) == 1


def test_the_optimizer_of_torch_is_another_base():
    if hasattr(torch.optim, "Muon"):
        theirs = Samuel(parameters(((5, 4),)), torch.optim.Muon)
        assert "matrices" not in theirs.param_groups[0]
        assert theirs.param_groups[0]["weight_decay"] == 0.1  # its own
    assert Samuel(parameters(((5, 4),)), "muon").param_groups[0]["weight_decay"] == 0
