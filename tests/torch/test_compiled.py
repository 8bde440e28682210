"""No step waits for a device, and `torch.compile` takes a step as one graph.

A "meta" tensor has a device and a shape but no numbers: every attempt to read one on the host is an error, so a step on
such parameters counts the synchronisations that the same step would have on a GPU.
"""

import warnings

import pytest
import torch
from torch import nn

from samuel.torch import Samuel, muon
from tests.torch.configurations import assert_close

BASES = {
    "muon": {"base": "muon"},
    "muon with steps": {"base": "muon", "steps": 1000, "clip": 1.0},
    "adam": {"base": "adam"},
    "sgd": {"base": "sgd", "average": False},
    "a class": {"base": torch.optim.RMSprop},
}


def network(device="cpu"):
    """Layers whose matrices take every way through the orthogonalisation: wide, small, joined and flattened."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(32, 96), nn.BatchNorm1d(96), nn.Tanh(), nn.Linear(96, 96)]
    return nn.Sequential(*layers, nn.MultiheadAttention(16, 2)).to(device)


def with_gradients(model, step=0):
    generator = torch.Generator().manual_seed(step)
    for p in model.parameters():
        p.grad = torch.empty_like(p) if p.is_meta else torch.randn(p.shape, generator=generator)


@pytest.fixture(autouse=True)
def forget_graphs():
    torch._dynamo.reset()


@pytest.mark.parametrize(("name", "dtype"), [*((name, torch.float32) for name in BASES), ("muon", torch.bfloat16)])
def test_a_step_reads_nothing_from_the_device(name, dtype, monkeypatch):
    monkeypatch.setattr("samuel.torch.optimizer.EARLY", 2)  # when the multiplier is checked
    model = network("meta").to(dtype)
    optimizer = Samuel(model, **BASES[name])
    for _ in range(3):
        with_gradients(model)
        optimizer.step()
    assert all(group["effective_lr"].is_meta for group in optimizer.param_groups)


def test_a_multiplier_on_the_device_is_not_read():
    model = network("meta")
    optimizer = Samuel(model)
    for group in optimizer.param_groups:
        group["lr"] = torch.ones((), device="meta")
    with_gradients(model)
    optimizer.step()
    assert all(group["effective_lr"].is_meta for group in optimizer.param_groups)


def compiled(optimizer):
    """The step as one graph, without a backend's code generation, which would take a minute."""
    return torch.compile(optimizer.step, fullgraph=True, backend="eager")


@pytest.fixture
def no_warnings():
    """Of caches that it traces through; that its profiler's marks are left out concerns nobody."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".*torch.jit.script_method.*", DeprecationWarning)
        yield


@pytest.mark.usefixtures("no_warnings")
@pytest.mark.parametrize("name", ["muon", "adam"])
def test_a_compiled_step_is_one_graph_and_takes_the_same_steps(name, monkeypatch):
    monkeypatch.setitem(muon._FAST_BFLOAT16, "cpu", False)  # 16 bits round the same numbers differently
    model, usual = network(), network()
    optimizer, other = Samuel(model, **BASES[name]), Samuel(usual, **BASES[name])
    step = compiled(optimizer)
    for count in range(12):
        with_gradients(model, count)
        with_gradients(usual, count)
        # `effective_lr` is a number at first, and a tensor after a compiled step.
        with torch._dynamo.config.patch(error_on_recompile=count > 1):
            step()
        other.step()
    assert_close(model.parameters(), usual.parameters(), atol=1e-5)
    with optimizer.averaged(), other.averaged():
        assert_close(model.parameters(), usual.parameters(), atol=1e-5)
    for group, theirs in zip(optimizer.param_groups, other.param_groups, strict=True):
        assert float(group["effective_lr"]) == pytest.approx(theirs["effective_lr"], rel=1e-4)


@pytest.mark.usefixtures("no_warnings")
@pytest.mark.parametrize("name", ["muon with steps", "sgd"])
def test_a_compiled_step_reads_nothing_from_the_device(name, monkeypatch):
    monkeypatch.setitem(muon._FAST_BFLOAT16, "meta", True)
    model = network("meta")
    optimizer = Samuel(model, **BASES[name])
    step = compiled(optimizer)
    for _ in range(3):
        with_gradients(model)
        step()
    assert all(group["effective_lr"].is_meta for group in optimizer.param_groups)


def test_a_compiled_model_is_trained_as_the_model():
    inputs, targets = torch.randn(32, 4), torch.randn(32, 2)
    found = []
    for wrap in (lambda model: model, lambda model: torch.compile(model, backend="eager")):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))
        trained = wrap(model)
        optimizer = Samuel(trained, steps=20)
        for _ in range(20):
            optimizer.zero_grad()
            (trained(inputs) - targets).square().mean().backward()
            optimizer.step()
        found.append([p.detach() for p in model.parameters()])
        assert [group["role"] for group in optimizer.param_groups] == ["matrix", "vector"]
    assert_close(*found, atol=1e-6)
