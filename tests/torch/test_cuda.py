"""The optimizer on a GPU: kernels, captured graphs, and nothing that waits for the device."""

import copy

import pytest
import torch

from samuel.core import Anytime
from samuel.torch import Samuel

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

SHAPES = [(70, 50), (50,), (3, 20, 20), (), (5000,)]
OPTIONS = {
    "default": {"alarm": 2.0},
    "no average": {"average": 0},
    "Kr": {"rule": "Kr", "horizon": 150},
    "bf16 anchors": {"rule": "Kr", "horizon": 150, "anchor_dtype": torch.bfloat16},
    "horizon": {"horizon": 150},
    "theorem": {"rule": "theorem", "cover": Anytime(shortest=8, levels=4)},
    "levels": {"rule": "levels"},
    "slots": {"base": "adagrad", "rule": "theorem", "cover": Anytime(shortest=8, levels=3), "base_state": "slots"},
    "inherit": {"rule": "theorem", "newborns": "inherit", "cover": Anytime(shortest=8, levels=4)},
    "decay": {"weight_decay": 0.1},
    "momentum": {"base": "momentum"},
    "adagrad": {"base": torch.optim.Adagrad},
    "nadam": {"base": torch.optim.NAdam},
    "rmsprop": {"base": torch.optim.RMSprop},
    "muon": {"base": "muon", "alarm": 2.0},
}


def parameters(device, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    values = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in SHAPES]
    return [torch.nn.Parameter(value.to(device, dtype)) for value in values]


def give_gradients(params, t, reference):
    """Noise around the way to a target that flips; from the values of the reference, so that all get the same."""
    generator = torch.Generator().manual_seed(t)
    for p, r in zip(params, reference, strict=True):
        noise = torch.randn(p.shape, generator=generator)
        target = 1.0 if t < 60 else -1.0
        p.grad = (r.detach().cpu().float() - target + 0.3 * noise).to(p.device, p.dtype)


def made(params, options):
    return Samuel(params, **{"base": "adam", **options})


@pytest.mark.parametrize("name", OPTIONS)
def test_kernels_and_the_plain_loop_on_the_host_agree(name):
    host, device = parameters("cpu", torch.float32), parameters("cuda", torch.float32)
    plain, fast = made(host, {**OPTIONS[name], "foreach": False}), made(device, OPTIONS[name])
    for t in range(120):
        give_gradients(host, t, host)
        for p, q in zip(host, device, strict=True):
            q.grad = p.grad.cuda()
        plain.step()
        fast.step()
    assert plain.shifts == fast.shifts
    for p, q in zip(host, device, strict=True):
        torch.testing.assert_close(q.detach().cpu(), p.detach(), rtol=2e-3, atol=2e-3)
    torch.testing.assert_close(fast.weights().cpu(), plain.weights(), rtol=5e-2, atol=1e-3)
    with plain.decision(), fast.decision():
        for p, q in zip(host, device, strict=True):
            torch.testing.assert_close(q.detach().cpu(), p.detach(), rtol=2e-3, atol=2e-3)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize("name", OPTIONS)
def test_a_step_never_waits_for_the_device(name):
    params = parameters("cuda")
    optimizer = made(params, OPTIONS[name])
    for t in range(5):
        give_gradients(params, t, params)
        optimizer.step()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(40):
            optimizer.step()
    finally:
        torch.cuda.set_sync_debug_mode(0)


def normed(device):
    torch.manual_seed(0)
    # No bias before the norm: its gradient is 0 up to rounding, Adam makes full steps of that, and devices round apart.
    first = torch.nn.Linear(8, 16, bias=False)
    return torch.nn.Sequential(first, torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 1)).to(device)


def learn(model, optimizer, t):
    generator = torch.Generator().manual_seed(t)
    inputs = torch.randn(64, 8, generator=generator)
    target = (inputs[:, :1] + 0.3 * torch.randn(64, 1, generator=generator)).to(model[0].weight.device)
    optimizer.zero_grad()
    (model(inputs.to(target.device)) - target).square().mean().backward()
    optimizer.step()


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
def test_batch_statistics_are_averaged_as_on_the_host_and_without_waiting():
    models = normed("cpu"), normed("cuda")
    optimizers = [Samuel(model.parameters(), buffers=model) for model in models]
    for t in range(40):
        for model, optimizer in zip(models, optimizers, strict=True):
            learn(model, optimizer, t)
    with optimizers[0].decision(), optimizers[1].decision():
        for here, there in zip(models[0].state_dict().values(), models[1].state_dict().values(), strict=True):
            torch.testing.assert_close(there.cpu(), here, rtol=2e-3, atol=2e-3)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(5):
            optimizers[1].step()
    finally:
        torch.cuda.set_sync_debug_mode(0)


@pytest.mark.parametrize("name", ["default", "bf16 anchors"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_decision_puts_everything_back_to_the_bit(name, dtype):
    params = parameters("cuda", dtype)
    optimizer = made(params, OPTIONS[name])
    for t in range(10):
        give_gradients(params, t, params)
        optimizer.step()
    before = [p.detach().clone() for p in params]
    with optimizer.decision():
        assert torch.equal(params[0], before[0]) == (name != "default")
    for p, old in zip(params, before, strict=True):
        assert torch.equal(p, old)


def test_a_weight_decay_that_changes_is_followed_by_what_was_recorded():
    host, device = parameters("cpu"), parameters("cuda")
    optimizers = [Samuel(params, weight_decay=0.1) for params in (host, device)]
    for t in range(40):
        give_gradients(host, t, host)
        for p, q in zip(host, device, strict=True):
            q.grad = p.grad.cuda()
        for optimizer in optimizers:
            optimizer.param_groups[0]["weight_decay"] = 0.1 if t < 20 else 2.0
            optimizer.step()
    torch.testing.assert_close(optimizers[1].weights().cpu(), optimizers[0].weights(), rtol=5e-2, atol=1e-3)
    for p, q in zip(host, device, strict=True):
        torch.testing.assert_close(q.detach().cpu(), p.detach(), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("name", ["default", "theorem", "slots", "decay", "momentum", "muon"])
def test_a_captured_step_does_the_same(name):
    params = parameters("cuda")
    optimizer = made(params, OPTIONS[name])
    give_gradients(params, 0, params)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            optimizer.step()
    torch.cuda.current_stream().wait_stream(stream)
    other_params, other = copy.deepcopy((params, optimizer))
    for p, q in zip(params, other_params, strict=True):
        q.grad = p.grad.clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        optimizer.step()
    for t in range(80):
        give_gradients(other_params, t, other_params)
        for p, q in zip(params, other_params, strict=True):
            p.grad.copy_(q.grad)
        graph.replay()
        other.step()
    for p, q in zip(params, other_params, strict=True):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)
    with optimizer.decision(), other.decision():
        for p, q in zip(params, other_params, strict=True):
            torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)
    assert float(optimizer.effective_lr) == pytest.approx(other.effective_lr, rel=1e-4)


@pytest.mark.filterwarnings("ignore:`torch.jit.script", "ignore:TensorFloat32 tensor cores")  # torch's own
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # and this: it looks at the loss while tracing
def test_a_compiled_training_step_does_the_same():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)).cuda()
    twin = copy.deepcopy(model)
    optimizers = [Samuel(net.parameters()) for net in (model, twin)]
    x, y = torch.randn(64, 8, device="cuda"), torch.randn(64, 1, device="cuda")

    def step(net, optimizer):
        optimizer.zero_grad()
        loss = (net(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    compiled = torch.compile(step)
    for _ in range(20):
        a, b = compiled(model, optimizers[0]), step(twin, optimizers[1])
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:`torch.jit.script", "ignore:TensorFloat32 tensor cores")  # torch's own
@pytest.mark.parametrize("name", ["default", "Kr", "theorem"])
def test_compiled_numbers_are_the_same_numbers(name):
    params, twins = parameters("cuda"), parameters("cuda")
    optimizers = [made(params, OPTIONS[name]), made(twins, OPTIONS[name] | {"compiled": True})]
    for t in range(100):
        give_gradients(params, t, params)
        for p, q in zip(params, twins, strict=True):
            q.grad = p.grad.clone()
        for optimizer in optimizers:
            optimizer.step()
    assert optimizers[0].shifts == optimizers[1].shifts
    for p, q in zip(params, twins, strict=True):
        torch.testing.assert_close(q, p, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("name", ["default", "bf16 anchors", "slots", "muon"])
@pytest.mark.parametrize(("there", "back"), [("cpu", "cuda"), ("cuda", "cpu"), ("cuda", "cuda")])
def test_a_state_goes_on_another_device(name, there, back):
    params = parameters(there)
    optimizer = made(params, OPTIONS[name])
    for t in range(43):
        give_gradients(params, t, params)
        optimizer.step()
    moved = [torch.nn.Parameter(p.detach().to(back).clone()) for p in params]
    other = made(moved, OPTIONS[name])
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for t in range(43, 50):
        give_gradients(params, t, params)
        for p, q in zip(params, moved, strict=True):
            q.grad = p.grad.to(back)
        optimizer.step()
        other.step()
    for p, q in zip(params, moved, strict=True):
        torch.testing.assert_close(q.detach().cpu(), p.detach().cpu(), rtol=1e-4, atol=1e-5)


def test_parameters_on_several_devices_share_one_rate():
    together, apart = parameters("cpu"), parameters("cpu")
    apart = [torch.nn.Parameter(p.detach().to("cuda" if i % 2 else "cpu")) for i, p in enumerate(apart)]
    optimizers = [Samuel(together), Samuel(apart)]
    for t in range(70):
        give_gradients(together, t, together)
        for p, q in zip(together, apart, strict=True):
            q.grad = p.grad.to(q.device)
        for optimizer in optimizers:
            optimizer.step()
    for p, q in zip(together, apart, strict=True):
        torch.testing.assert_close(q.detach().cpu(), p.detach(), rtol=1e-3, atol=1e-3)


def test_a_step_that_the_scaler_skips_leaves_everything():
    params = parameters("cuda")
    optimizer = Samuel(params)
    scaler = torch.amp.GradScaler("cuda", init_scale=8.0)
    give_gradients(params, 0, params)
    loss = sum((p * p.detach()).sum() for p in params)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    before = copy.deepcopy(optimizer.state_dict()), [p.detach().clone() for p in params]
    params[0].grad[0, 0] = torch.inf
    for p in params[1:]:
        p.grad.mul_(8)
    scaler.scale(torch.ones((), device="cuda"))
    scaler.step(optimizer)
    scaler.update()
    after = optimizer.state_dict()
    for key, entries in before[0]["state"].items():
        for name, value in entries.items():
            assert torch.equal(value, after["state"][key][name]), name
    for p, old in zip(params, before[1], strict=True):
        assert torch.equal(p, old)


def test_bfloat16_parameters_follow_their_wide_twins():
    short, wide = parameters("cuda", torch.bfloat16), parameters("cuda", torch.float32)
    for p, q in zip(short, wide, strict=True):
        q.data.copy_(p.data)
    optimizers = [Samuel(short, lrs=(1e-3,)), Samuel(wide, lrs=(1e-3,))]
    for t in range(150):
        give_gradients(wide, t, wide)
        for p, q in zip(short, wide, strict=True):
            q.grad = q.grad.bfloat16().float()
            p.grad = q.grad.bfloat16()
        for optimizer in optimizers:
            optimizer.step()
    for p, q in zip(short, wide, strict=True):
        torch.testing.assert_close(p.float(), q, rtol=1e-2, atol=1e-2)
