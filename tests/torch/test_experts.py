"""Full and loss feedback: experts that train side by side, and closures that are called for each of them."""

import contextlib
import copy
import functools
import io
import pickle
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.distributed.tensor

from samuel.jax import Experts
from samuel.torch import Anytime, Chosen, Fixed, Geometric, Samuel
from tests.torch.configurations import NAMED, assert_same_snapshot

RATES = (0.003, 0.03, 0.3)
ONE_BLOCK = Fixed(1000)
KINDS = {
    "full-sample": {"feedback": "full", "combine": "sample"},
    "full-average": {"feedback": "full", "combine": "average"},
    "full-best": {"feedback": "full", "combine": "best"},
    "loss-average": {"feedback": "loss", "combine": "average"},
    "loss-best": {"feedback": "loss", "combine": "best"},
}


def every(kinds=KINDS):
    return pytest.mark.parametrize("options", kinds.values(), ids=kinds.keys())


@pytest.fixture(autouse=True, scope="module")
def quick_to_compile():
    """Compiling is what takes JAX its time here."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@functools.cache
def batches(steps=120, rows=6):
    """A regression whose goal flips in mid-run."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(steps, rows, 3)).astype(np.float32)
    targets = np.tanh(inputs @ np.float32([1.0, -2.0, 0.5]))
    targets[steps // 2 :] *= -1
    return inputs, targets + 0.1 * rng.normal(size=targets.shape).astype(np.float32)


def network(seed=0, norm=False, dropout=0.0, dtype=torch.float32):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        # A constant before a batch norm has no gradient but rounding, which Adam would magnify.
        layers = [torch.nn.Linear(3, 4, bias=not norm), torch.nn.Tanh(), torch.nn.Linear(4, 1)]
        if norm:
            layers.insert(1, torch.nn.BatchNorm1d(4))
        if dropout:
            layers.insert(-1, torch.nn.Dropout(dropout))
        return torch.nn.Sequential(*layers).to(dtype)


def closure_of(model, optimizer, batch, seen=None):
    """The closure that everyone writes; notes the losses it has seen."""
    inputs, targets = (torch.from_numpy(part).to(next(model.parameters()).dtype) for part in batch)

    def closure():
        optimizer.zero_grad()
        loss = (model(inputs).squeeze(1) - targets).square().mean()
        loss.backward()
        if seen is not None:
            seen.append(loss.item())
        return loss

    return closure


def train(model, optimizer, steps, seen=None):
    """Steps with the batches of some numbers; what each returned."""
    data = batches()
    return [float(optimizer.step(closure_of(model, optimizer, (data[0][t], data[1][t]), seen)).detach()) for t in steps]


def make(model, base="sgd", **options):
    return Samuel(model.parameters(), base, **{"lrs": RATES, "cover": ONE_BLOCK, "buffers": model, **options})


def values(tensors):
    return [tensor.detach().clone() for tensor in tensors]


def everything(model, optimizer):
    """Copies of all that a step may change."""
    found = {f"model {name}": value.clone() for name, value in model.state_dict().items()}
    for i, p in enumerate(model.parameters()):
        found[f"gradient {i}"] = None if p.grad is None else p.grad.clone()
        for name, value in optimizer.state[p].items():
            found[f"state {i} {name}"] = value.clone() if isinstance(value, torch.Tensor) else value
    rates = [group["effective_lr"] for group in optimizer.param_groups]
    return found | {"random": torch.get_rng_state(), "rates": rates, "grad mode": torch.is_grad_enabled()}


def points(model, optimizer):
    """Of every expert its parameters."""
    stacks = [optimizer.state[p]["experts:points"] for p in model.parameters()]
    return [[stack[e] for stack in stacks] for e in range(len(stacks[0]))]


# --- the algorithm ---------------------------------------------------------------------------------------------------


def jax_network(model):
    def loss_fn(params, model_state, batch, key):
        hidden = jnp.tanh(batch[0] @ params[0].T + params[1])
        return jnp.mean(((hidden @ params[2].T + params[3])[:, 0] - batch[1]) ** 2), model_state

    return loss_fn, [jnp.array(p.detach().numpy(), copy=True) for p in model.parameters()]


SAME_IN_JAX = {
    "full-average-geometric": ("sgd", KINDS["full-average"], Geometric(120, shortest=16, levels=3), {}),
    "full-average-anytime-inherit": (
        "momentum",
        KINDS["full-average"],
        Anytime(8, levels=3),
        {"newborns": "inherit", "prior": (1.0, 2.0, 0.5)},
    ),
    "full-best-fixed": ("adagrad", KINDS["full-best"], Fixed(25), {}),
    "loss-average-anytime": ("momentum", KINDS["loss-average"], Anytime(8, levels=3), {}),
    "loss-average-fixed-inherit": ("adagrad", KINDS["loss-average"], Fixed(30), {"newborns": "inherit"}),
    "loss-best-chosen": ("sgd", KINDS["loss-best"], Chosen((20, 50, 71)), {"bound": 2.0}),
}


@pytest.mark.parametrize(("base", "kind", "cover", "options"), SAME_IN_JAX.values(), ids=SAME_IN_JAX.keys())
def test_it_does_what_the_experts_of_jax_do(base, kind, cover, options):
    model, options = network(), {"Q": 7, **options}
    optimizer = make(model, base, cover=cover, **kind, **options)
    loss_fn, params = jax_network(model)
    engine = Experts(loss_fn, base, RATES, cover=cover, rounds=120, **kind, **options)
    state, shares = engine.init(params), []
    for t, batch in enumerate(zip(*batches(), strict=True)):
        state, info = engine.step(state, batch)
        (loss,) = train(model, optimizer, [t])
        np.testing.assert_allclose(loss, info.loss, rtol=0, atol=1e-5)
        if t % 5 == 4:  # among them rounds in which blocks end
            np.testing.assert_allclose(optimizer.weights(), state.p, rtol=0, atol=1e-5)
            for ours, theirs in zip(model.parameters(), engine.decision(state).params, strict=True):
                np.testing.assert_allclose(ours.detach(), theirs, rtol=0, atol=1e-5)
            shares.append(optimizer.weights())
    assert torch.stack(shares).std(0).max() > 0.03  # or nothing was decided


def test_weights_of_a_sampling_panel_are_those_of_jax():
    # Nothing restarts: who is drawn makes no difference to the experts, nor to their weights.
    model = network()
    optimizer = make(model, **KINDS["full-sample"])
    loss_fn, params = jax_network(model)
    engine = Experts(loss_fn, "sgd", RATES, cover=ONE_BLOCK)
    state = engine.init(params)
    for batch in zip(*batches(40), strict=True):
        state, _ = engine.step(state, batch)
        optimizer.step(closure_of(model, optimizer, batch))
    np.testing.assert_allclose(optimizer.weights(), state.p, rtol=0, atol=1e-5)
    assert optimizer.weights().max() > 0.4  # and not equal, as in the beginning


@pytest.mark.parametrize("base", ["adam", torch.optim.NAdam, functools.partial(torch.optim.SGD, weight_decay=0.3)])
@pytest.mark.parametrize("norm", [False, True], ids=["plain", "batch norm"])
def test_with_full_feedback_every_expert_is_a_network_that_trains_alone(base, norm):
    model = network(norm=norm)
    alone = [copy.deepcopy(model) for _ in RATES]
    optimizer = make(model, base, **KINDS["full-sample"])
    train(model, optimizer, range(30))
    kind = torch.optim.Adam if base == "adam" else base
    for e, (one, rate) in enumerate(zip(alone, RATES, strict=True)):
        train(one, kind(one.parameters(), lr=rate), range(30))
        torch.testing.assert_close(points(model, optimizer)[e], values(one.parameters()), rtol=1e-4, atol=1e-5)
        first = optimizer.state[next(model.parameters())]
        for i, buffer in enumerate(one.buffers()):
            torch.testing.assert_close(first[f"experts:buffer{i}"][e], buffer, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rule", ["sample", "best"])
def test_the_model_is_one_of_the_experts(rule):
    model = network(norm=True)
    optimizer = make(model, feedback="full", combine=rule)
    rates = set()
    for t in range(40):
        train(model, optimizer, [t])
        e = RATES.index(pytest.approx(optimizer.effective_lr))
        rates.add(e)
        torch.testing.assert_close(values(model.parameters()), points(model, optimizer)[e], rtol=0, atol=0)
        first = optimizer.state[next(model.parameters())]
        for i, buffer in enumerate(model.buffers()):
            torch.testing.assert_close(buffer, first[f"experts:buffer{i}"][e], rtol=0, atol=0)
    assert len(rates) > 1


def test_an_average_is_one_of_statistics_too_and_keeps_counters_whole():
    model = network(norm=True)
    optimizer = make(model, **KINDS["full-average"])
    train(model, optimizer, range(20))
    p = optimizer.weights().reshape(-1)
    first = optimizer.state[next(model.parameters())]
    mean, _, count = model.buffers()
    torch.testing.assert_close(mean, torch.einsum("e,e...->...", p, first["experts:buffer0"]))
    assert count.item() == 20
    for parameter in model.parameters():
        stack = optimizer.state[parameter]["experts:points"]
        torch.testing.assert_close(parameter.detach(), torch.einsum("e,e...->...", p, stack))
    assert optimizer.effective_lr == pytest.approx(float(p @ torch.tensor(RATES)), rel=1e-5)


@every()
def test_it_learns_and_the_better_rate_gets_the_weight(options):
    w = torch.nn.Parameter(torch.full((4,), 3.0))
    optimizer = Samuel([w], "sgd", lrs=(1e-4, 0.1), cover=ONE_BLOCK, **options)

    def closure():
        optimizer.zero_grad()
        loss = w.square().sum()
        loss.backward()
        return loss

    for _ in range(120):
        optimizer.step(closure)
    assert closure().item() < 0.05 * 36
    assert optimizer.weights()[0, 1] > 0.9


def test_samples_are_drawn_by_weight():
    model = network()
    optimizer = make(model, **KINDS["full-sample"], lrs=(0.01, 0.02))
    drawn, expected = 0, 0.0
    for t in range(120):
        train(model, optimizer, [t])
        drawn += optimizer.effective_lr > 0.015
        expected += float(optimizer.weights()[0, 1])
    assert abs(drawn - expected) < 3 * (120 * 0.25) ** 0.5


def test_a_seed_decides_who_is_drawn():
    def run(seed):
        model = network()
        optimizer, rates = make(model, **KINDS["full-sample"], seed=seed), []
        for t in range(20):
            train(model, optimizer, [t])
            rates.append(optimizer.effective_lr)
        return rates

    assert run(0) == run(0)
    assert run(0) != run(1)


# --- calls -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "calls"),
    [
        ({}, 1),
        (KINDS["full-sample"], 3),
        (KINDS["full-best"], 3),
        (KINDS["full-average"], 4),
        (KINDS["loss-average"], 4),
        (KINDS["loss-best"], 3),
    ],
    ids=["linear", *KINDS],
)
def test_a_closure_is_called_once_per_expert_and_where_needed_for_the_decision(options, calls):
    model = network()
    optimizer = Samuel(model.parameters(), "sgd", lrs=RATES, **options)
    seen = []
    train(model, optimizer, [0], seen)
    assert len(seen) == calls


def test_only_experts_of_open_blocks_are_asked():
    model = network()
    optimizer = make(model, **KINDS["full-best"], cover=Anytime(2, levels=2))
    seen, counts = [], []
    for t in range(6):
        train(model, optimizer, [t], seen)
        counts.append(len(seen))
        seen.clear()
    assert counts == [3, 3, 3, 3, 6, 6]


@every()
def test_a_step_returns_the_loss_of_the_parameters_and_leaves_their_gradients(options):
    model = network()
    optimizer = make(model, **options, cover=Fixed(4))
    for t in range(9):
        twin, batch = copy.deepcopy(model), [part[t] for part in batches()]
        expected = closure_of(twin, twin, batch)()
        given = optimizer.step(closure_of(model, optimizer, batch))
        torch.testing.assert_close(given, expected, rtol=0, atol=0)
        for p, q in zip(model.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(p.grad, q.grad, rtol=0, atol=0)


@every()
def test_a_closure_that_does_not_clear_gradients_gets_the_same(options):
    def run(clears):
        model = network()
        optimizer = make(model, **options)
        for t in range(5):
            batch = [torch.from_numpy(part[t]) for part in batches()]

            def closure(batch=batch, model=model, optimizer=optimizer):
                if clears:
                    optimizer.zero_grad(set_to_none=False)
                loss = (model(batch[0]).squeeze(1) - batch[1]).square().mean()
                if loss.requires_grad:  # as closures for LBFGS are often written
                    loss.backward()
                return loss

            with torch.no_grad():  # a closure has gradients all the same
                optimizer.step(closure)
            optimizer.zero_grad()
        return values(model.parameters())

    torch.testing.assert_close(run(True), run(False), rtol=0, atol=0)


@every()
def test_a_closure_may_use_the_same_memory_in_every_call(options):
    def run(same_memory):
        w = torch.nn.Parameter(torch.tensor([3.0, -2.0]))
        optimizer = Samuel([w], "sgd", lrs=(0.01, 0.1), cover=Fixed(6), **options)
        gradient, loss = torch.zeros(2), torch.zeros(())

        def closure():
            found, value = 2 * w.detach(), w.detach().square().sum()
            w.grad = gradient.copy_(found) if same_memory else found
            return loss.copy_(value) if same_memory else value

        for _ in range(10):
            optimizer.step(closure)
        return w.detach()

    torch.testing.assert_close(run(True), run(False), rtol=0, atol=0)


@every()
def test_a_step_may_stand_inside_of_autocast(options):
    def run(outside):
        model = network()
        optimizer = make(model, **options)
        for t in range(4):
            usual = closure_of(model, optimizer, [part[t] for part in batches()])

            def closure(usual=usual):
                with torch.autocast("cpu", torch.bfloat16):
                    return usual()

            with torch.autocast("cpu", torch.bfloat16) if outside else contextlib.nullcontext():
                optimizer.step(usual if outside else closure)
        return values(model.parameters())

    torch.testing.assert_close(run(True), run(False), rtol=0, atol=0)


@pytest.mark.parametrize("rule", ["average", "best"])
def test_losses_alone_are_enough_to_judge_experts_by(rule):
    def run(separately):
        model = network(norm=True)
        optimizer, modes = make(model, feedback="loss", combine=rule), []
        for t in range(12):
            batch = [torch.from_numpy(part[t]) for part in batches()]

            def evaluate(batch=batch, model=model, modes=modes):
                modes.append(torch.is_grad_enabled())
                return (model(batch[0]).squeeze(1) - batch[1]).square().mean().item()

            closure = closure_of(model, optimizer, [part[t] for part in batches()])
            optimizer.step(closure, evaluate) if separately else optimizer.step(closure)
        return everything(model, optimizer), modes

    (one, modes), (other, _) = run(True), run(False)
    assert_same_snapshot(one, other)
    assert set(modes) == {False}
    assert len(modes) == 12 * (3 if rule == "average" else 2)


# --- what networks add -----------------------------------------------------------------------------------------------


@every({name: options for name, options in KINDS.items() if options["feedback"] == "loss"})
def test_experts_that_are_judged_by_losses_leave_the_statistics_alone(options):
    model = network(norm=True)
    optimizer = make(model, **options)
    for t in range(6):
        twin, batch = copy.deepcopy(model), [part[t] for part in batches()]
        closure_of(twin, twin, batch)()
        optimizer.step(closure_of(model, optimizer, batch))
        torch.testing.assert_close(list(model.buffers()), list(twin.buffers()), rtol=0, atol=0)
    assert model[1].num_batches_tracked.item() == 6


@every()
def test_all_experts_see_the_same_dropout_and_random_numbers_go_on_as_after_one_call(options):
    model = network(dropout=0.5)
    optimizer = make(model, **options)
    torch.manual_seed(5)
    for t in range(4):
        twin, batch, seen = copy.deepcopy(model), [part[t] for part in batches()], []
        random = torch.get_rng_state()
        alone = closure_of(twin, twin, batch)().item()
        after = torch.get_rng_state()
        torch.set_rng_state(random)
        optimizer.step(closure_of(model, optimizer, batch, seen))
        torch.testing.assert_close(torch.get_rng_state(), after)
        assert seen[-1] == alone  # the decision comes last
        if t == 0:  # all experts stand at the parameters, and only another mask could tell them apart
            assert set(seen) == {alone}
    assert len(set(seen)) > 1


@every()
@pytest.mark.parametrize("fails_at", [1, 2, 3])
def test_a_closure_that_fails_changes_nothing(options, fails_at):
    model = network(norm=True, dropout=0.3)
    optimizer = make(model, "adam", **options)
    train(model, optimizer, range(3))
    before = everything(model, optimizer)
    gradients = [p.grad for p in model.parameters()]
    calls = []

    def failing():
        calls.append(1)
        optimizer.zero_grad()
        loss = model(torch.ones(4, 3)).sum()
        loss.backward()
        torch.set_grad_enabled(False)
        if len(calls) == fails_at:
            raise KeyboardInterrupt
        return loss

    with pytest.raises(KeyboardInterrupt):
        optimizer.step(failing)
    assert len(calls) == fails_at
    assert_same_snapshot(everything(model, optimizer), before)
    assert all(p.grad is gradient for p, gradient in zip(model.parameters(), gradients, strict=True))


@pytest.mark.parametrize("loss", [None, "low", torch.zeros(2), True, torch.tensor(1j)], ids=str)
def test_a_loss_that_is_no_number_is_refused_and_changes_nothing(loss):
    model = network(norm=True)
    optimizer = make(model, **KINDS["full-average"])
    train(model, optimizer, range(2))
    before = everything(model, optimizer)

    def closure():
        model(torch.ones(4, 3)).sum().backward()
        return loss

    with pytest.raises(TypeError, match="the closure must return the loss, one number, got"):
        optimizer.step(closure)
    assert_same_snapshot(everything(model, optimizer), before)


def test_a_sparse_gradient_is_refused_and_changes_nothing():
    table = torch.nn.Embedding(5, 2, sparse=True)
    optimizer = Samuel(table.parameters(), "sgd", feedback="full")

    def closure():
        optimizer.zero_grad()
        loss = table(torch.tensor([1, 2])).sum()
        loss.backward()
        return loss

    before = values(table.parameters())
    with pytest.raises(RuntimeError, match="sparse gradients"):
        optimizer.step(closure)
    torch.testing.assert_close(values(table.parameters()), before, rtol=0, atol=0)
    assert table.weight.grad is None


def quadratic(w, optimizer, target=0.0):
    """A closure for `|w - target|^2`."""

    def closure():
        optimizer.zero_grad()
        loss = (w - target).abs().square().sum()
        loss.backward()
        return loss

    return closure


@every()
def test_a_diverged_expert_loses_its_weight_until_its_block_ends(options):
    w = torch.nn.Parameter(torch.zeros(3))
    optimizer = Samuel([w], "sgd", lrs=(0.1, 1e30), cover=Fixed(5), **options)
    shares = []
    for _ in range(6):
        shares.append(float(optimizer.weights()[0, 1]))
        loss = optimizer.step(quadratic(w, optimizer, 1e9))
        assert torch.isfinite(loss)
        assert torch.isfinite(w).all()
    assert shares[0] == 0.5  # nothing is known yet
    assert shares[2:5] == [0.0] * 3
    assert shares[5] == 0.5  # born again


@pytest.mark.parametrize("newborns", ["fresh", "inherit"])
def test_newborns_never_start_from_a_diverged_expert(newborns):
    # One of the two explodes in the very round that ends the block.
    w = torch.nn.Parameter(torch.zeros(3))
    optimizer = Samuel([w], "sgd", lrs=(0.1, 1e30), cover=Fixed(1), feedback="full", newborns=newborns)
    for _ in range(8):
        assert torch.isfinite(optimizer.step(quadratic(w, optimizer, 1e9)))
    assert torch.isfinite(optimizer.state[w]["experts:points"]).all()


BROKEN = {
    "loss": lambda loss: loss * torch.nan,
    "gradient": lambda loss: loss + (loss - loss.detach()).sqrt(),  # a derivative of 0 / 0
}


@every()
@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
def test_a_batch_that_is_bad_for_everyone_changes_nothing_but_the_clock(options, broken):
    model = network(norm=True)
    optimizer = make(model, "adam", **options)
    train(model, optimizer, range(5))
    before = everything(model, optimizer)

    def closure():
        optimizer.zero_grad()
        loss = broken(model(torch.ones(4, 3)).square().mean())
        loss.backward()
        return loss

    optimizer.step(closure)
    after = everything(model, optimizer)
    first = next(name for name in before if name.endswith("panel:round"))
    assert (int(before[first]), int(after[first])) == (5, 6)
    told = {"panel:round", "gradient"}
    if options["combine"] == "sample":  # someone else may be drawn
        told |= {"model", "panel:rate", "rates"}
    if options["feedback"] == "loss" and broken is BROKEN["gradient"]:  # judged by losses, and those were finite
        told |= {"model", "panel", "rates"}
    kept = [name for name in before if not any(part in name for part in told)]
    assert_same_snapshot({name: after[name] for name in kept}, {name: before[name] for name in kept})
    train(model, optimizer, range(5, 8))
    assert all(torch.isfinite(p).all() for p in model.parameters())


def test_an_expert_whose_statistics_are_broken_loses_its_weight():
    model = network(norm=True)
    optimizer = make(model, **KINDS["full-best"])
    train(model, optimizer, range(3))
    batch, calls = [part[3] for part in batches()], []
    usual = closure_of(model, optimizer, batch)

    def closure():
        loss = usual()
        calls.append(1)
        if len(calls) == 1:
            model[1].running_var.fill_(torch.inf)
        return loss

    optimizer.step(closure)
    assert (optimizer.weights() == 0).sum() == 1
    assert all(torch.isfinite(buffer).all() for buffer in model.buffers())


def test_few_bits_are_enough_for_parameters():
    w = torch.nn.Parameter(torch.ones(8, dtype=torch.bfloat16))
    optimizer = Samuel([w], "sgd", lrs=(1e-5, 1e-4), cover=ONE_BLOCK, **KINDS["full-best"])
    for _ in range(200):
        optimizer.step(quadratic(w, optimizer))
    assert optimizer.state[w]["experts:points"].dtype == torch.float32
    # In 8 bits no single step would have been seen.
    expected = (1 - 2e-4) ** 200
    assert w.dtype == torch.bfloat16
    torch.testing.assert_close(w.detach(), torch.full((8,), expected, dtype=torch.bfloat16), rtol=0.02, atol=0)


@every()
def test_how_parameters_lie_in_memory_makes_no_difference(options):
    def run(layout):
        w = torch.nn.Parameter(torch.linspace(-1, 1, 2 * 3 * 2 * 2).reshape(2, 3, 2, 2).to(memory_format=layout))
        optimizer = Samuel([w], "adam", lrs=(0.01, 0.1), cover=Fixed(6), **options)
        for _ in range(10):
            optimizer.step(quadratic(w, optimizer, 0.5))
        assert w.is_contiguous(memory_format=layout)
        assert optimizer.state[w]["experts:points"][0].is_contiguous(memory_format=layout)
        return w.detach().contiguous()

    torch.testing.assert_close(run(torch.channels_last), run(torch.contiguous_format))


@every()
def test_complex_parameters_are_pairs_of_real_ones(options):
    start = torch.tensor([1 + 2j, -0.5j, 3.0])
    w, pair = torch.nn.Parameter(start.clone()), torch.nn.Parameter(torch.view_as_real(start).clone())
    one, other = (Samuel([p], "momentum", lrs=(0.01, 0.1), cover=Fixed(7), **options) for p in (w, pair))
    for _ in range(20):
        one.step(quadratic(w, one, 1 + 1j))
        other.step(quadratic(pair, other, 1.0))
    torch.testing.assert_close(torch.view_as_real(w.detach()), pair.detach())


@every()
def test_climbing_is_descending_the_negative(options):
    def run(sign):
        model = network()
        optimizer = make(model, "adam", **options, cover=Fixed(7), maximize=sign < 0)
        for t in range(15):
            batch = [torch.from_numpy(part[t]) for part in batches()]

            def closure(batch=batch, model=model, optimizer=optimizer):
                optimizer.zero_grad()
                loss = sign * (model(batch[0]).squeeze(1) - batch[1]).square().mean()
                loss.backward()
                return loss

            optimizer.step(closure)
        return values(model.parameters())

    torch.testing.assert_close(run(-1), run(1), rtol=0, atol=0)


@pytest.mark.parametrize("feedback", ["full", "loss"])
def test_groups_have_a_multiplier_that_schedulers_drive_and_a_weight_decay_that_is_decoupled(feedback):
    a, b = (torch.nn.Parameter(torch.tensor([2.0])) for _ in range(2))
    groups = [{"params": [a], "lr": 0.5, "weight_decay": 0.2}, {"params": [b]}]
    optimizer = Samuel(groups, "sgd", lrs=(0.1,), feedback=feedback)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5**epoch)

    def closure():
        optimizer.zero_grad()
        loss = (a + 3 * b).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    schedule.step()
    torch.testing.assert_close(a.item(), 2 * (1 - 0.05 * 0.2) - 0.05)
    torch.testing.assert_close(b.item(), 2 - 0.1 * 3)
    optimizer.step(closure)
    torch.testing.assert_close(b.item(), 2 - 0.1 * 3 - 0.05 * 3)
    assert [group["effective_lr"] for group in optimizer.param_groups] == pytest.approx([0.025, 0.05])


@every()
def test_parameters_without_a_gradient_stay_as_they_are_to_the_bit(options):
    model = network()
    frozen = torch.nn.Parameter(torch.randn(50, generator=torch.Generator().manual_seed(0)), requires_grad=False)
    start = frozen.clone()
    optimizer = Samuel([*model.parameters(), frozen], "adam", lrs=RATES, cover=Fixed(6), weight_decay=0.1, **options)
    train(model, optimizer, range(20))
    torch.testing.assert_close(frozen, start, rtol=0, atol=0)


@every()
def test_what_is_done_to_parameters_between_steps_is_done_to_all_experts(options):
    model = network()
    optimizer = make(model, **options)
    train(model, optimizer, range(6))
    before = points(model, optimizer)[0][0].clone()
    with torch.no_grad():
        model[0].weight += 0.5
    shifted = model[0].weight.detach().clone()
    seen = []
    optimizer.step(lambda: seen.append(model[0].weight.detach().clone()) or model(torch.ones(1, 3)).sum())
    torch.testing.assert_close(seen[-1], shifted)
    torch.testing.assert_close(points(model, optimizer)[0][0], before + 0.5)


def test_buffers_that_are_changed_between_steps_are_taken_over_by_all_experts():
    model = network(norm=True)
    optimizer = make(model, **KINDS["full-sample"])
    train(model, optimizer, range(4))
    model[1].reset_running_stats()
    train(model, optimizer, [4])
    counts = optimizer.state[next(model.parameters())]["experts:buffer2"]
    assert counts.tolist() == [1, 1, 1]


def test_parameters_may_join_in_the_middle_of_a_block():
    model, late = network(), torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    optimizer = make(model, "adam", **KINDS["full-average"])
    train(model, optimizer, range(7))
    weights = optimizer.weights()
    optimizer.add_param_group({"params": [late]})
    torch.testing.assert_close(optimizer.weights(), weights, rtol=0, atol=0)
    for t in range(7, 30):
        usual = closure_of(model, optimizer, [part[t] for part in batches()])

        def closure(usual=usual):
            loss = usual() + late.square().sum()
            late.grad = 2 * late.detach()
            return loss

        optimizer.step(closure)
    assert late.abs().max() < 1.9
    assert optimizer.state[late]["experts:points"].shape == (3, 2)


def test_memory_is_what_the_documentation_says():
    def vectors(**options):
        w = torch.nn.Parameter(torch.ones(1000))
        optimizer = Samuel([w], "adam", lrs=RATES, cover=Anytime(4, levels=2), **options)
        for _ in range(9):
            optimizer.step(quadratic(w, optimizer))
        return sum(entry.numel() for entry in optimizer.state[w].values()) // 1000

    assert vectors(**KINDS["full-sample"]) == 6 * 3  # of every expert its parameters and Adam's two vectors
    assert vectors(**KINDS["loss-average"]) == 6 + 2 * 2  # of every expert its parameters, of every block Adam's


# --- what the optimizer tells ----------------------------------------------------------------------------------------


@every()
@pytest.mark.parametrize("newborns", ["fresh", "inherit"])
def test_the_decisions_were_never_further_behind_an_expert_than_the_certificate_says(options, newborns):
    model = network()
    optimizer = make(model, "adam", **options, newborns=newborns, cover=Anytime(8, levels=3))
    seen, behind = [], np.zeros((3, 3))
    for t in range(70):
        seen.clear()
        alive = optimizer.weights() > 0
        (loss,) = train(model, optimizer, [t], seen)
        report = optimizer.certificate()
        live = ~report.measured.isnan()
        assert (report.measured[live] <= report.bound[live] + 1e-5).all()
        assert report.bound[live].isfinite().all()
        if options["combine"] == "average":  # then the losses that were seen are those of all experts, in order
            behind[alive.numpy()] += loss - np.asarray(seen[:-1])
            behind[[(t + 1) % (8 * 2**k) == 0 for k in range(3)]] = 0
            np.testing.assert_allclose(report.measured[live], behind[live.numpy()], atol=1e-4)


@every({name: options for name, options in KINDS.items() if options["combine"] != "sample"})
def test_what_the_certificate_allows_does_not_fall_because_an_expert_is_bad(options):
    # With a known scale, and a decision that is what is judged, nothing is measured in it but the sum of squares.
    w = torch.nn.Parameter(torch.full((4,), 3.0))
    optimizer = Samuel([w], "sgd", lrs=(1e-4, 0.1), cover=ONE_BLOCK, bound=40.0, **options)
    for _ in range(60):
        optimizer.step(quadratic(w, optimizer))
    report = optimizer.certificate()
    assert report.measured[0, 0] < -1000
    assert (report.bound > 0).all()


@every()
def test_weights_and_rates_can_be_read_before_the_first_step(options):
    optimizer = make(network(), **options)
    torch.testing.assert_close(optimizer.weights(), torch.full((1, 3), 1 / 3))
    assert min(RATES) <= optimizer.effective_lr * (1 + 1e-6) <= max(RATES) * (1 + 1e-5)
    assert optimizer.param_groups[0]["effective_lr"] == optimizer.effective_lr
    assert optimizer.shifts == 0
    assert (optimizer.certificate().measured == 0).all()


def test_left_to_itself_it_asks_few_experts():
    assert Samuel(network().parameters(), feedback="full").weights().shape == (1, 4)
    assert Samuel(network().parameters(), "sgd", feedback="loss").param_groups[0]["lrs"] == (1e-4, 1e-3, 1e-2, 1e-1)


def test_priors_belong_to_the_rates_they_were_given_with():
    optimizer = make(network(), **KINDS["full-best"], lrs=(0.3, 0.003, 0.03), prior=(3.0, 1.0, 2.0))
    torch.testing.assert_close(optimizer.weights(), torch.tensor([[1 / 6, 2 / 6, 3 / 6]]))
    again = pickle.loads(pickle.dumps(optimizer))
    torch.testing.assert_close(again.weights(), optimizer.weights())


# --- state -----------------------------------------------------------------------------------------------------------


def saved(optimizer):
    """What comes back from a file."""
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    return torch.load(io.BytesIO(file.getvalue()), weights_only=True)


COVER = Anytime(4, levels=2)


@every()
@pytest.mark.parametrize("steps", [0, 1, 7, 8, 13])
def test_a_saved_state_goes_on_to_the_bit_at_any_step_of_a_block(options, steps):
    model = network(norm=True, dropout=0.2)
    optimizer = make(model, "adam", **options, cover=COVER, seed=3)
    torch.manual_seed(1)
    train(model, optimizer, range(steps))
    other = network(seed=9, norm=True, dropout=0.2)
    # The seed is part of the state, once there is one.
    again = make(other, "adam", **options, cover=COVER, seed=0 if steps else 3)
    other.load_state_dict(model.state_dict())
    again.load_state_dict(saved(optimizer))
    random = torch.get_rng_state()
    train(model, optimizer, range(steps, steps + 12))
    expected = everything(model, optimizer)
    torch.set_rng_state(random)
    train(other, again, range(steps, steps + 12))
    assert_same_snapshot(everything(other, again), expected)


COPIES = {"deepcopy": copy.deepcopy, "pickle": lambda both: pickle.loads(pickle.dumps(both))}


@every()
@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES.keys())
def test_copies_go_on_to_the_bit_and_by_themselves(options, copied):
    model = network(norm=True)
    optimizer = make(model, torch.optim.AdamW, **options, cover=COVER)
    train(model, optimizer, range(6))
    before = everything(model, optimizer)
    other, again = copied((model, optimizer))
    train(other, again, range(6, 14))
    assert_same_snapshot(everything(model, optimizer), before)
    train(model, optimizer, range(6, 14))
    assert_same_snapshot(everything(other, again), everything(model, optimizer))


def test_loading_leaves_the_given_state_alone():
    model = network()
    optimizer = make(model, "adam", **KINDS["full-best"])
    train(model, optimizer, range(3))
    given = saved(optimizer)
    kept = copy.deepcopy(given)
    optimizer.load_state_dict(given)
    train(model, optimizer, range(3, 6))
    for place, entries in kept["state"].items():
        assert_same_snapshot(given["state"][place], entries)


def test_a_state_whose_entries_were_replaced_goes_on_from_them():
    def untouched(optimizer):
        pass

    def in_new_dicts(optimizer):
        for p, entries in optimizer.state.items():
            optimizer.state[p] = {name: value.clone() for name, value in entries.items()}

    def in_place(optimizer):
        for entries in optimizer.state.values():
            points = entries["experts:points"]
            entries["experts:points"] = points.clone()
            points.fill_(torch.nan)  # nobody looks at these any more

    runs = []
    for replace in (untouched, in_new_dicts, in_place):
        model = network()
        optimizer = make(model, "adam", **KINDS["full-average"])
        train(model, optimizer, range(5))
        replace(optimizer)
        train(model, optimizer, range(5, 10))
        runs.append(everything(model, optimizer))
    assert_same_snapshot(runs[0], runs[1])
    assert_same_snapshot(runs[0], runs[2])


@every()
def test_a_run_goes_on_in_another_dtype(options):
    model = network(norm=True)
    optimizer = make(model, "adam", **options, cover=COVER)
    train(model, optimizer, range(6))
    double, moved = network(norm=True).double(), copy.deepcopy((model, optimizer))
    again = make(double, "adam", **options, cover=COVER)
    double.load_state_dict(model.state_dict())
    again.load_state_dict(saved(optimizer))
    moved[0].double()  # under the feet of its optimizer
    for other in ((model, optimizer), (double, again), moved):
        train(*other, range(6, 16))
    for one, two in ((double, moved[0]), (double, model)):
        torch.testing.assert_close(one.state_dict(), two.state_dict(), check_dtype=False, rtol=1e-3, atol=1e-4)
    assert again.state[next(double.parameters())]["experts:points"].dtype == torch.float64


REFUSED_STATES = {
    "linear": ({}, "was not made with feedback='full'"),
    "another cover": ({**KINDS["full-best"], "lrs": RATES, "cover": COVER}, r"it has points of shape \(6, "),
    "another Q": ({**KINDS["full-best"], "lrs": RATES, "Q": 3}, r"weights of \(1, 3, 3\)"),
    "another base": ({**KINDS["full-best"], "lrs": RATES, "base": "momentum"}, "another base"),
    "no buffers": ({**KINDS["full-best"], "lrs": RATES}, "with 0 buffers, and there are 3"),
}


@pytest.mark.parametrize(("options", "message"), REFUSED_STATES.values(), ids=REFUSED_STATES.keys())
def test_states_of_other_experts_are_refused_before_anything_changes(options, message):
    model = network(norm=True)
    optimizer = make(model, "adam", **KINDS["full-best"], cover=Fixed(256))
    train(model, optimizer, range(2))
    other = network(norm=True)
    stranger = Samuel(other.parameters(), **{"base": "adam", **options})
    train(other, stranger, range(2))
    before = everything(model, optimizer)
    with pytest.raises(ValueError, match=message):
        optimizer.load_state_dict(saved(stranger))
    assert_same_snapshot(everything(model, optimizer), before)


# --- on a GPU --------------------------------------------------------------------------------------------------------

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def trained_on(device, options, steps=20, base="adam"):
    model = network(norm=True).to(device)
    optimizer = make(model, base, **options, cover=COVER)
    for t in range(steps):
        inputs, targets = (torch.from_numpy(part[t]).to(device) for part in batches())

        def closure(inputs=inputs, targets=targets):
            optimizer.zero_grad()
            loss = (model(inputs).squeeze(1) - targets).square().mean()
            loss.backward()
            return loss

        optimizer.step(closure)
    return model, optimizer


@needs_gpu
@every()
@pytest.mark.parametrize("base", ["adam", "sgd", "adagrad"])
def test_a_gpu_does_what_the_host_does(options, base):
    ours, theirs = trained_on("cuda", options, base=base), trained_on("cpu", options, base=base)
    for one, two in zip(ours[0].state_dict().values(), theirs[0].state_dict().values(), strict=True):
        torch.testing.assert_close(one.cpu(), two, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(ours[1].weights().cpu(), theirs[1].weights(), rtol=1e-3, atol=1e-4)


@needs_gpu
@every()
def test_a_saved_state_goes_on_on_a_gpu(options):
    model, optimizer = trained_on("cpu", options, steps=6)
    other, again = trained_on("cuda", options, steps=0)
    other.load_state_dict(model.state_dict())
    again.load_state_dict(saved(optimizer))
    moved = copy.deepcopy((model, optimizer))
    moved[0].cuda()  # under the feet of its optimizer
    inputs, targets = (torch.from_numpy(part[6:16]) for part in batches())
    for one, its in ((model, optimizer), (other, again), moved):
        device = next(one.parameters()).device
        for x, y in zip(inputs.to(device), targets.to(device), strict=True):

            def closure(one=one, its=its, x=x, y=y):
                its.zero_grad()
                loss = (one(x).squeeze(1) - y).square().mean()
                loss.backward()
                return loss

            its.step(closure)
    for one in (other, moved[0]):
        for ours, theirs in zip(one.state_dict().values(), model.state_dict().values(), strict=True):
            torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-3, atol=1e-4)


@needs_gpu
def test_all_experts_see_the_same_dropout_on_a_gpu():
    w = torch.nn.Parameter(torch.ones(1000, device="cuda"))
    optimizer, seen = Samuel([w], "sgd", lrs=(0.01, 0.1), feedback="full"), []

    def closure():
        optimizer.zero_grad()
        loss = torch.nn.functional.dropout(w).sum()
        loss.backward()
        seen.append(loss.item())
        return loss

    torch.cuda.manual_seed(0)
    alone = closure()
    after = torch.cuda.get_rng_state()
    torch.cuda.manual_seed(0)
    optimizer.step(closure)
    assert set(seen) == {alone.item()}
    torch.testing.assert_close(torch.cuda.get_rng_state(), after)


# --- bad input -------------------------------------------------------------------------------------------------------

FULL = {"feedback": "full"}
REFUSED = {
    "feedback": ({"feedback": "bandit"}, "feedback must be one of 'linear', 'loss', 'full', got 'bandit'"),
    "combine": ({**FULL, "combine": "points"}, "combine must be one of 'sample', 'average', 'best', got 'points'"),
    "linear combine": ({"combine": "best"}, "combine must be one of 'points', 'steps', got 'best'"),
    "blind": ({"feedback": "loss", "combine": "sample"}, "combine='sample' needs feedback='full', got 'loss'"),
    "newborns": ({**FULL, "newborns": "join"}, "newborns must be one of 'fresh', 'inherit', got 'join'"),
    "rule": ({**FULL, "rule": "theorem"}, "rule is for feedback='linear', got rule='theorem' with feedback='full'"),
    "horizon": ({**FULL, "horizon": 10}, "horizon is for feedback='linear', got horizon=10"),
    "scale": ({**FULL, "scale": "max"}, "scale is for feedback='linear'"),
    "lag": ({**FULL, "lag": 0.0}, "lag is for feedback='linear', got lag=0.0"),
    "anchors": ({**FULL, "anchor_dtype": torch.bfloat16}, "anchor_dtype is for feedback='linear'"),
    "foreach": ({**FULL, "foreach": False}, "foreach is for feedback='linear'"),
    "compiled": ({**FULL, "compiled": True}, "compiled is for feedback='linear', got compiled=True"),
    "linear bound": ({"bound": 1.0}, "bound is for feedback='full' or 'loss', got bound=1.0"),
    "alarm": ({**FULL, "alarm": 10.0}, "alarm is for feedback='linear', got alarm=10.0"),
    "settle": ({**FULL, "settle": 100.0}, "settle is for feedback='linear', got settle=100.0"),
    "experience": ({**FULL, "experience": 9.0}, "experience is for feedback='linear', got experience=9.0"),
    "patience": ({**FULL, "patience": 9.0}, "patience is for feedback='linear', got patience=9.0"),
    "average": ({**FULL, "average": 8.0}, "average is for feedback='linear', got average=8.0"),
    "bound": ({**FULL, "bound": -1.0}, "bound must be a positive number, got -1.0"),
    "Q": ({**FULL, "Q": 0}, "Q must be a whole number of at least 1, got 0"),
    "seed": ({**FULL, "seed": -1}, "seed must be a whole number of at least 0, got -1"),
    "one prior": ({**FULL, "prior": -0.5}, "prior must be a list with one weight per rate, got -0.5"),
    "few priors": ({**FULL, "lrs": RATES, "prior": (1.0,)}, r"prior needs one weight per rate \(3\), got 1"),
    "no prior": ({**FULL, "lrs": RATES, "prior": (1.0, 0.0, 1.0)}, "prior must be positive numbers, got 0.0"),
    "cover": ({**FULL, "cover": 100}, "cover must be a samuel.core cover such as Fixed\\(100\\), got 100"),
    "endless cover": (
        {**FULL, "cover": Anytime()},
        "has no last one: say how many, as in Anytime\\(shortest=8, levels=4",
    ),
    "rates": ({**FULL, "lrs": (0.1, -1.0)}, "a learning rate must be positive and finite, got -1.0"),
    "one buffer": ({**FULL, "buffers": torch.zeros(2)}, "buffers must be a module or a list of tensors"),
    "no buffers": ({**FULL, "buffers": ["mean"]}, "buffers must be a module or tensors.*got 'mean'"),
}


@pytest.mark.parametrize(("options", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        Samuel([torch.zeros(2)], "sgd", **options)


def test_a_step_without_a_closure_is_refused():
    with pytest.raises(TypeError, match=re.escape("call step(closure)")):
        Samuel([torch.zeros(2)], feedback="full").step()


@pytest.mark.parametrize("feedback", ["linear", "full"])
def test_losses_alone_are_refused_where_they_are_of_no_use(feedback):
    optimizer = Samuel([torch.zeros(2)], feedback=feedback)
    with pytest.raises(ValueError, match="evaluate= is for feedback='loss'"):
        optimizer.step(lambda: 0.0, lambda: 0.0)


def test_groups_share_the_rates():
    with pytest.raises(ValueError, match=r"all parameters share one list of rates.*got \(0.1, 0.2\)"):
        Samuel([{"params": [torch.zeros(2)], "lrs": (0.1, 0.2)}], feedback="full")


def test_parameters_that_are_spread_over_processes_are_refused():
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        mesh = torch.distributed.init_device_mesh("cpu", (1,))
        whole = torch.nn.Parameter(torch.zeros(2))
        optimizer = Samuel([whole], feedback="full")
        spread = torch.nn.Parameter(torch.distributed.tensor.distribute_tensor(torch.zeros(4), mesh))
        with pytest.raises(TypeError, match=r"needs whole parameters in every process, got one of shape \(4,\)"):
            optimizer.add_param_group({"params": [spread]})
        assert len(optimizer.param_groups) == 1
    finally:
        torch.distributed.destroy_process_group()


def test_groups_go_the_same_way():
    a, b = torch.nn.Parameter(torch.zeros(1)), torch.nn.Parameter(torch.zeros(1))
    optimizer = Samuel([{"params": [a], "maximize": True}, {"params": [b]}], feedback="full")
    with pytest.raises(ValueError, match="all groups must have the same maximize"):
        optimizer.step(lambda: 0.0)


def test_groups_without_parameters_have_nothing_to_learn():
    optimizer = Samuel([{"params": []}], feedback="full")
    assert optimizer.step(lambda: 3.0) == 3.0


@pytest.mark.parametrize("cover", [Fixed(16), Anytime(shortest=8, levels=3)], ids=["one block", "three levels"])
@pytest.mark.parametrize("feedback", ["full", "loss"])
@pytest.mark.parametrize(
    "base",
    [*NAMED, *(getattr(torch.optim, name) for name in ("AdamW", "NAdam", "RMSprop", "Adamax"))],
    ids=lambda base: base if isinstance(base, str) else base.__name__,
)
def test_every_base_goes_downhill_and_does_so_again_from_its_state(base, feedback, cover):
    """On a bowl; half-way the state is saved and loaded by another, who then takes the same steps."""

    def made():
        w = torch.nn.Parameter(torch.tensor([2.0, -1.0, 0.5]))
        options = {"lrs": (1e-3, 1e-2, 1e-1), "feedback": feedback, "cover": cover, "weight_decay": 0.0}
        return w, Samuel([w], base, **options)

    def go(w, optimizer, steps):
        def closure():
            optimizer.zero_grad()
            loss = (w.square() * torch.tensor([1.0, 2.0, 0.5])).sum()
            loss.backward()
            return loss

        return [float(optimizer.step(closure).detach()) for _ in range(steps)]

    w, optimizer = made()
    first = go(w, optimizer, 20)
    twin, other = made()
    twin.data.copy_(w.data)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    last = go(w, optimizer, 20)
    assert go(twin, other, 20) == last
    assert torch.equal(w, twin)
    assert last[-1] < 0.7 * first[0]
