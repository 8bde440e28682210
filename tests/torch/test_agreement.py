"""The optimizer takes the recorded steps, those of the plain rule, and those of its base."""

import functools

import numpy as np
import pytest
import torch

from samuel.torch.engine import Engine
from tests.torch.configurations import (
    CLASSES,
    CONFIGURATIONS,
    VARIANTS,
    assert_close,
    feed,
    gradients,
    one_rate,
    parameters,
    samuel,
    train,
)
from tests.trajectories import SETTINGS, join, snapshots, split


@pytest.fixture(params=["numbers", "tensors"])
def way(request, monkeypatch):
    """Both ways to compute the scalars of a step: with numbers on a CPU, and with tensors, as on other devices."""
    if request.param == "tensors":
        monkeypatch.setattr(Engine, "on_host", lambda self, products: False)
    return request.param


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_it_takes_the_recorded_steps(setting, way):
    params = {name: torch.nn.Parameter(torch.tensor(x)) for name, x in split(setting.base, setting.start).items()}
    # What was recorded had one search, and weight decay for everything.
    group = {"params": list(params.values()), "weight_decay": setting.weight_decay}
    group |= {"role": "matrix"} if setting.base == "muon" else {}
    optimizer = samuel([group], setting.base, steps=setting.steps, average=True)
    found = {"parameters": [], "averages": [], "rates": [], "shifts": []}
    for t, g in enumerate(setting.gradients, start=1):
        for name, gradient in split(setting.base, g).items():
            params[name].grad = torch.tensor(gradient)
        optimizer.step()
        if t not in snapshots():
            continue
        found["parameters"].append(join(setting.base, {name: p.detach() for name, p in params.items()}))
        with optimizer.averaged():
            found["averages"].append(join(setting.base, {name: p.detach() for name, p in params.items()}))
        found["rates"].append(float(optimizer.param_groups[0]["effective_lr"]))
        found["shifts"].append(optimizer.shifts)
    for what, values in found.items():
        theirs = setting.read("torch", what)
        scale = max(np.abs(theirs).max(), 1e-9) if what != "shifts" else 1
        assert np.abs(np.array(values) - theirs).max() <= 1e-5 * scale, what


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_numbers_and_tensors_do_the_same(name, monkeypatch):
    numbers, tensors = parameters(), parameters()
    one, other = (samuel(params, **CONFIGURATIONS[name], clip=2.0) for params in (numbers, tensors))
    for step in range(100):
        found = gradients(numbers, step)
        if step in (50, 70, 71):  # left out; two in a row undo the last steps
            found[0] = torch.full_like(found[0], float("nan"))
        for params, optimizer, on_host in ((numbers, one, True), (tensors, other, False)):
            monkeypatch.setattr(Engine, "on_host", lambda self, products, on_host=on_host: on_host)
            for p, gradient in zip(params, found, strict=True):
                p.grad = gradient.clone()
            optimizer.step()
    assert_close(numbers, tensors, atol=1e-4)
    assert (one.skipped, one.shifts) == (other.skipped, other.shifts) == (3, one.shifts)


SAME = {
    **{name: base for name, base in CLASSES.items() if name not in ("Muon",)},
    **VARIANTS,
    "Adam with other betas": functools.partial(torch.optim.Adam, betas=(0.8, 0.9)),
}


@pytest.mark.parametrize("name", SAME)
def test_with_one_rate_it_is_its_base(name):
    base = SAME[name]
    made = base.func if isinstance(base, functools.partial) else base
    fixed = base.keywords if isinstance(base, functools.partial) else {}
    ours, theirs = parameters(((7, 5), (5,))), parameters(((7, 5), (5,)))
    mine = one_rate(ours, base, rate=0.05)
    # Optimizers that take no plain multiple of a direction are run at unit rate as well, as bases are.
    options = {"weight_decay": 0.0, **fixed} if "weight_decay" in made(parameters()).defaults else fixed
    unit = [p.detach().clone().requires_grad_() for p in theirs]
    other = made(unit, lr=1.0, **options)
    for step in range(40):
        found = gradients(ours, step)
        for p, q, gradient in zip(ours, unit, found, strict=True):
            p.grad, q.grad = gradient, gradient.clone()
        mine.step()
        with torch.no_grad():
            for q, p in zip(unit, theirs, strict=True):
                q.copy_(p)
            other.step()
            for q, p in zip(unit, theirs, strict=True):
                p += 0.05 * (q - p)
    assert_close(ours, theirs, atol=1e-4)


def test_decoupled_weight_decay_is_that_of_adamw():
    ours, theirs = parameters(), parameters()
    mine = one_rate([{"params": ours, "weight_decay": 0.3}], torch.optim.AdamW, rate=0.05)
    other = torch.optim.AdamW(theirs, lr=0.05, weight_decay=0.3)
    for step in range(50):
        for p, q, gradient in zip(ours, theirs, gradients(ours, step), strict=True):
            p.grad, q.grad = gradient, gradient.clone()
        mine.step()
        other.step()
    assert_close(ours, theirs, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["adam-untold", "sgd-averaged", "muon-untold"])
def test_other_dtypes_go_the_same_way(name, dtype):
    usual = parameters()
    others = [torch.nn.Parameter(p.detach().to(dtype)) for p in usual]
    options = CONFIGURATIONS[name] | ({"base": "adam"} if dtype.is_complex else {})
    optimizers = [samuel(params, **options) for params in (others, usual)]
    with torch.no_grad():
        for p, q in zip(usual, others, strict=True):
            p.copy_(q.real if dtype.is_complex else q)
    feed(list(reversed(optimizers)), range(60))
    bound = 0.03 if dtype == torch.bfloat16 else 1e-3
    assert_close([q.detach().real.float() if dtype.is_complex else q.float() for q in others], usual, atol=bound)


def test_a_memory_format_makes_no_difference():
    torch.manual_seed(0)
    usual = torch.nn.Conv2d(3, 8, 3)
    other = torch.nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last)
    other.load_state_dict(usual.state_dict())
    optimizers = [samuel(layer) for layer in (usual, other)]
    feed(optimizers, range(30))
    assert other.weight.is_contiguous(memory_format=torch.channels_last)
    assert_close(other.parameters(), usual.parameters())


def test_large_groups_in_many_chunks_go_the_same_way(monkeypatch):
    usual, chunked = parameters(), parameters()
    first, second = samuel(usual), samuel(chunked)
    train(first, usual, range(30))
    monkeypatch.setattr("samuel.torch.engine.CHUNK", 8)
    train(second, chunked, range(30))
    assert_close(usual, chunked)
