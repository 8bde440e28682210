"""On a GPU the optimizer takes the steps that it takes on a CPU, without synchronising, also in a CUDA graph."""

import pytest
import torch
from torch import nn

from samuel.torch import Samuel, muon
from tests.torch.configurations import assert_close, rounds

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype feature"),
]

BASES = {
    "muon": {"base": "muon"},
    "muon with steps": {"base": "muon", "steps": 1000, "clip": 1.0},
    "adam": {"base": "adam"},
    "a class": {"base": torch.optim.RMSprop},
}


def network(device):
    """Layers whose matrices take every way through the orthogonalisation: wide, small, joined and flattened."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 3), nn.Linear(32, 96), nn.BatchNorm1d(96), nn.Linear(96, 96)]
    return nn.Sequential(*layers, nn.MultiheadAttention(16, 2)).to(device)


def set_gradients(model, step):
    """In place, where a captured step reads them."""
    generator = torch.Generator().manual_seed(step)
    for p in model.parameters():
        gradient = torch.randn(p.shape, generator=generator).to(p.device)
        p.grad = gradient if p.grad is None else p.grad.copy_(gradient)


def step_without_synchronising(optimizer, after=2):
    """A step in which synchronising is an error, once the first few have created the state."""
    torch.cuda.set_sync_debug_mode("error" if rounds(optimizer) > after else "default")
    try:
        optimizer.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.fixture(autouse=True)
def full_precision(monkeypatch):
    """So that the devices can be compared."""
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)
    for device in ("cpu", "cuda"):
        monkeypatch.setitem(muon._FAST_BFLOAT16, device, False)


@pytest.mark.parametrize("name", BASES)
def test_it_takes_the_steps_of_a_cpu_without_synchronising(name):
    models = network("cpu"), network("cuda")
    optimizers = [Samuel(model, **BASES[name]) for model in models]
    for step in range(60):
        for model, optimizer in zip(models, optimizers, strict=True):
            set_gradients(model, step)
            step_without_synchronising(optimizer)
    assert_close([p.cpu() for p in models[1].parameters()], models[0].parameters(), atol=1e-4)
    with optimizers[0].averaged(), optimizers[1].averaged():
        assert_close([p.cpu() for p in models[1].parameters()], models[0].parameters(), atol=1e-4)


@pytest.mark.parametrize("name", ["muon", "muon with steps", "adam"])
def test_a_captured_step_is_a_step(name):
    models = network("cuda"), network("cuda")
    usual, captured = (Samuel(model, **BASES[name]) for model in models)
    graph = torch.cuda.CUDAGraph()
    for step in range(20):
        for model in models:
            set_gradients(model, step)
        usual.step()
        if step < 3:
            captured.step()
            continue
        if step == 3:
            torch.cuda.synchronize()
            with torch.cuda.graph(graph):
                captured.step()
        graph.replay()
    assert_close(models[1].parameters(), models[0].parameters(), atol=1e-6)


def test_a_run_beyond_its_end_is_noticed_without_synchronising():
    model = network("cuda")
    optimizer = Samuel(model, steps=5)

    def train():
        for step in range(12):
            set_gradients(model, step)
            torch.cuda.synchronize()
            step_without_synchronising(optimizer)

    with pytest.warns(UserWarning, match="continues beyond steps=5"):
        train()
