"""The decision: parameters that are less noisy than those trained, for the length of a `with` block."""

import copy
import io

import pytest
import torch

from samuel.torch import Samuel
from tests.torch.configurations import (
    CONFIGURATIONS,
    RULES,
    assert_close,
    assert_equal,
    assert_same_snapshot,
    gradients,
    parameters,
    snapshot,
    train,
    values,
)

POWER = 8
"""That of the rule "samuel": the average is over about the last ninth of the time since a restart."""


def decided(optimizer, tensors):
    """The tensors, as they are to be used."""
    with optimizer.decision():
        return values(tensors)


class ByHand:
    """An average as the rule says it: of so many rounds since the last restart."""

    def __init__(self, tensors):
        self.averages, self.rounds = [tensor.detach().double().clone() for tensor in tensors], 0

    def enter(self, tensors, restarted=False):
        self.rounds = 0 if restarted else self.rounds + 1
        pace = (POWER + 1) / (self.rounds + POWER + 1)
        self.averages = [
            mean + pace * (x.detach().double() - mean) for mean, x in zip(self.averages, tensors, strict=True)
        ]

    def like(self, tensors):
        return [mean.to(x.dtype) for mean, x in zip(self.averages, tensors, strict=True)]


def normed(dtype=torch.float32):
    """A network with batch statistics, and a mask that has infinities."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.BatchNorm1d(8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    model.register_buffer("mask", torch.tensor([0.0, -torch.inf]))
    return model.to(dtype)


def learn(model, optimizer, steps):
    """Noisy regression; what the targets say flips after 40 steps."""
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        inputs = torch.randn(16, 3, generator=generator)
        targets = (1 if step < 40 else -20) * inputs[:, :1] + 0.3 * torch.randn(16, 1, generator=generator)
        dtype = next(model.parameters()).dtype
        optimizer.zero_grad()
        (model(inputs.to(dtype)) - targets.to(dtype)).square().mean().backward()
        optimizer.step()


# What it is


@pytest.mark.parametrize("foreach", [True, False], ids=["packed", "plain"])
@pytest.mark.parametrize("base", ["adam", "sgd"])
def test_it_is_the_average_of_the_parameters_since_the_last_restart(base, foreach):
    params = parameters()
    optimizer = Samuel(params, base, **RULES["samuel"], foreach=foreach)
    expected = ByHand(params)
    for step in range(60):
        before = optimizer.shifts
        train(optimizer, params, [step])
        expected.enter(params, restarted=optimizer.shifts > before)
        assert_close(decided(optimizer, params), expected.like(params), atol=1e-5)
    assert optimizer.shifts == 1
    assert not torch.equal(decided(optimizer, params)[0], params[0])


def test_it_has_less_of_the_noise_than_the_parameters():
    (w,) = parameters(((200,),))
    optimizer = Samuel([w], "sgd", lrs=(0.3,), decay="none")
    for step in range(300):
        noise = torch.randn(200, generator=torch.Generator().manual_seed(step))
        w.grad = w.detach() - 1 + noise
        optimizer.step()
    assert (decided(optimizer, [w])[0] - 1).norm() < 0.5 * (w.detach() - 1).norm()


def test_before_the_first_step_it_is_the_parameters_and_asking_changes_nothing():
    params = parameters()
    optimizer = Samuel(params)
    before = snapshot(optimizer)
    assert_equal(decided(optimizer, params), params)
    assert_same_snapshot(before, snapshot(optimizer))


WITHOUT = {
    "average of 0": {"average": 0},
    **{rule: RULES[rule] for rule in ("R", "K", "Kr", "levels", "theorem")},
    "full": {"feedback": "full", "lrs": (0.01, 0.1)},
    "loss": {"feedback": "loss", "lrs": (0.01, 0.1)},
}


@pytest.mark.parametrize("name", WITHOUT)
def test_where_there_is_no_average_it_is_the_parameters(name):
    params = parameters()
    optimizer = Samuel(params, "adam", **WITHOUT[name])

    def closure():
        optimizer.zero_grad()
        loss = sum((p - 1).square().sum() for p in params)
        loss.backward()
        return loss

    for _ in range(10):
        optimizer.step(closure)
    assert_equal(decided(optimizer, params), params)
    assert not torch.equal(params[0], parameters()[0])


@pytest.mark.parametrize("foreach", [True, False], ids=["packed", "plain"])
def test_to_maximize_has_the_decision_of_minimizing_the_negative(foreach):
    down, up = parameters(), parameters()
    optimizers = [Samuel(params, "adam", foreach=foreach, maximize=params is up) for params in (down, up)]
    for step in range(40):
        for p, q, gradient in zip(down, up, gradients(down, step), strict=True):
            p.grad, q.grad = gradient, -gradient
        for optimizer in optimizers:
            optimizer.step()
    assert_equal(decided(optimizers[1], up), decided(optimizers[0], down))


# Parameters that come and stay


@pytest.mark.parametrize("foreach", [True, False], ids=["packed", "plain"])
@pytest.mark.parametrize("way", ["no gradient", "lr of 0"])
def test_of_parameters_that_stand_still_the_average_runs_to_them(way, foreach):
    moved, still = parameters(((3,), (4,)))
    optimizer = Samuel([{"params": [moved]}, {"params": [still]}], "adam", foreach=foreach)
    train(optimizer, [moved, still], range(20))
    away = (decided(optimizer, [still])[0] - still).abs().max()
    if way == "lr of 0":
        optimizer.param_groups[1]["lr"] = 0.0
    still.grad = None
    train(optimizer, [moved] if way == "no gradient" else [moved, still], range(20, 120))
    assert (decided(optimizer, [still])[0] - still).abs().max() < 1e-3 * away


def test_parameters_that_were_never_trained_stay():
    frozen, *params = parameters()
    frozen.requires_grad_(False)
    optimizer = Samuel([frozen, *params])
    train(optimizer, params, range(10))
    assert_equal(decided(optimizer, [frozen]), [frozen])
    assert not torch.equal(decided(optimizer, params)[0], params[0])


def test_of_parameters_that_come_later_the_average_begins_where_they_stand():
    params, late = parameters(), torch.nn.Parameter(torch.full((4,), 2.0))
    optimizer = Samuel(params)
    train(optimizer, params, range(20))
    before = decided(optimizer, params)
    optimizer.add_param_group({"params": [late]})
    assert_equal(decided(optimizer, [*params, late]), [*before, late])
    late.grad = torch.ones(4)
    train(optimizer, params, [20])
    pace = (POWER + 1) / (21 + POWER + 1)
    assert_close(decided(optimizer, [late]), [2 + pace * (late.detach() - 2)])


def test_groups_with_rates_of_their_own_have_averages_of_their_own():
    """And restart each by itself."""
    early, late = parameters(((5,), (5,)))
    groups = [{"params": [p], "lrs": (0.01, 0.1)} for p in (early, late)]
    optimizer = Samuel(groups, "adam", alarm=2.0)
    expected = [ByHand([early]), ByHand([late])]
    restarts = [[], []]
    for step in range(100):
        for p, flip in ((early, 40), (late, 70)):
            p.grad = p.detach() - (1 if step < flip else -3)
        optimizer.step()
        for p, own, when in zip((early, late), expected, restarts, strict=True):
            restarted = int(optimizer.state[p]["rays:since"]) == 0
            own.enter([p], restarted)
            when += [step] * restarted
        assert_close(decided(optimizer, [early, late]), [own.averages[0].float() for own in expected])
    assert restarts == [[41], [71]]


# Going in and out


KINDS = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64]


@pytest.mark.parametrize("foreach", [True, False], ids=["packed", "plain"])
@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_afterwards_everything_is_as_it_was_to_the_bit(dtype, foreach):
    params = parameters(dtype=dtype)
    optimizer = Samuel(params, **CONFIGURATIONS["adam-samuel"], foreach=foreach)
    twins = parameters(dtype=dtype)
    undisturbed = Samuel(twins, **CONFIGURATIONS["adam-samuel"], foreach=foreach)
    others = 0
    for step in range(60):
        train(optimizer, params, [step])
        train(undisturbed, twins, [step])
        before, kept = snapshot(optimizer), [p.grad for p in params]
        with optimizer.decision():
            others += not torch.equal(params[0], twins[0])
            assert {p.dtype for p in params} == {dtype}
        assert_same_snapshot(before, snapshot(optimizer))
        assert all(p.grad is gradient for p, gradient in zip(params, kept, strict=True))
    assert others > 50  # but not where the average begins anew
    assert_equal(values(params), values(twins))
    assert_equal(decided(optimizer, params), decided(undisturbed, twins))


def test_parameters_of_16_bits_have_an_average_of_32():
    short = parameters(dtype=torch.bfloat16)
    optimizer = Samuel(short, "adam")
    expected = ByHand(short)
    for step in range(50):
        train(optimizer, short, [step])
        expected.enter(short)
    assert {optimizer.state[p]["average"].dtype for p in short} == {torch.float32}
    assert_close([optimizer.state[p]["average"] for p in short], [mean.float() for mean in expected.averages])


def test_numbers_that_do_not_lie_in_a_row_are_put_in_place():
    """Transposed, and with gaps."""
    whole = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    params = [torch.nn.Parameter(whole.clone().t()), torch.nn.Parameter(whole.clone()[:, ::2])]
    even = [torch.nn.Parameter(p.detach().contiguous()) for p in params]
    optimizers = [Samuel(some, "adam") for some in (params, even)]
    for optimizer, some in zip(optimizers, (params, even), strict=True):
        train(optimizer, some, range(20))
    assert_close(decided(optimizers[0], params), decided(optimizers[1], even))


def test_an_error_inside_puts_everything_back_and_comes_through():
    model = normed()
    optimizer = Samuel(model.parameters(), buffers=model)
    learn(model, optimizer, range(10))
    before = copy.deepcopy(model.state_dict())

    def fail():
        model[0].weight.data.zero_()
        raise ArithmeticError("no test today")

    with pytest.raises(ArithmeticError, match="no test today"), optimizer.decision():
        fail()
    assert_equal(model.state_dict().values(), before.values())
    learn(model, optimizer, [10])  # and it can be used again
    decided(optimizer, model.parameters())


def test_to_enter_twice_is_refused():
    params = parameters()
    optimizer = Samuel(params)
    train(optimizer, params, range(3))
    trained = values(params)
    with optimizer.decision():
        inside = values(params)
        with pytest.raises(RuntimeError, match="cannot be entered twice"), optimizer.decision():
            pass
        assert_equal(values(params), inside)
    assert_equal(values(params), trained)


@pytest.mark.parametrize("feedback", ["linear", "full", "loss"])
def test_a_step_inside_is_refused_before_anything_happens(feedback):
    params = parameters()
    optimizer = Samuel(params, feedback=feedback)
    calls = []

    def closure():
        calls.append(1)
        optimizer.zero_grad()
        loss = sum(p.square().sum() for p in params)
        loss.backward()
        return loss

    optimizer.step(closure)
    before, count = snapshot(optimizer), len(calls)
    with optimizer.decision(), pytest.raises(RuntimeError, match=r"step\(\) inside decision\(\)"):
        optimizer.step(closure)
    assert len(calls) == count
    assert_same_snapshot(before, snapshot(optimizer))
    optimizer.step(closure)


def test_gradients_can_be_taken_inside():
    params = parameters()
    optimizer = Samuel(params)
    train(optimizer, params, range(3))
    with optimizer.decision():
        assert torch.is_grad_enabled()
        found = torch.autograd.grad(params[0].square().sum(), params[0])[0]
        assert_close([found], [2 * params[0].detach()])


def test_it_can_be_tested_in_inference_mode_and_trained_on():
    model = normed()
    optimizer = Samuel(model.parameters(), buffers=model)
    learn(model, optimizer, range(5))
    before = values(model.parameters())
    with torch.inference_mode(), optimizer.decision():
        model.eval()(torch.ones(2, 3))
    assert_equal(values(model.parameters()), before)
    learn(model.train(), optimizer, range(5, 10))


def test_mixed_precision_notices_that_the_parameters_are_others():
    """It keeps weights that it has made short once."""
    layer = torch.nn.Linear(3, 2)
    optimizer = Samuel(layer.parameters())
    train(optimizer, list(layer.parameters()), range(20))
    inputs = torch.ones(1, 3)
    with torch.autocast("cpu", torch.bfloat16):
        trained = layer(inputs)
        with optimizer.decision():
            averaged = layer(inputs)
        again = layer(inputs)
    assert not torch.equal(averaged, trained)
    assert torch.equal(again, trained)


# Buffers


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("form", ["model", "buffers"])
def test_batch_statistics_are_averaged_with_the_parameters(form, dtype):
    model = normed(dtype)
    optimizer = Samuel(model.parameters(), alarm=2.0, buffers=model if form == "model" else list(model.buffers()))
    statistics = [model[1].running_mean, model[1].running_var]
    learn(model, optimizer, [0])
    expected = ByHand(statistics)  # a forward pass comes before the first step
    expected.enter(statistics)
    for step in range(1, 60):
        before = optimizer.shifts
        learn(model, optimizer, [step])
        expected.enter(statistics, restarted=optimizer.shifts > before)
        trained = values(model.buffers())
        with optimizer.decision():
            largest = max(tensor.abs().max().item() for tensor in statistics)
            atol = 1e-5 if dtype != torch.bfloat16 else torch.finfo(dtype).eps * largest
            assert_close(statistics, expected.like(statistics), atol=atol)
            assert int(model[1].num_batches_tracked) == step + 1
            assert_equal([model.mask], [torch.tensor([0.0, -torch.inf], dtype=dtype)])
        assert_equal(model.buffers(), trained)
    assert optimizer.shifts == 1
    assert not torch.equal(decided(optimizer, statistics)[0], statistics[0])


def test_without_being_told_of_them_buffers_stay():
    model = normed()
    optimizer = Samuel(model.parameters())
    learn(model, optimizer, range(20))
    assert_equal(decided(optimizer, model.buffers()), model.buffers())


def test_buffers_keep_pace_with_the_first_group_where_several_find_a_rate():
    model = normed()
    groups = [{"params": model[0].parameters(), "lrs": (0.01, 0.1)}, {"params": [*model[1:].parameters()]}]
    optimizer = Samuel(groups, buffers=model, alarm=0)
    learn(model, optimizer, [0])
    expected = ByHand([model[1].running_mean])
    expected.enter([model[1].running_mean])
    for step in range(1, 30):
        learn(model, optimizer, [step])
        expected.enter([model[1].running_mean])
    assert_close(decided(optimizer, [model[1].running_mean]), [expected.averages[0].float()])
    optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(2))]})
    learn(model, optimizer, [30])  # what is known about them moves on
    expected.enter([model[1].running_mean])
    assert_close(decided(optimizer, [model[1].running_mean]), [expected.averages[0].float()])


def test_averages_follow_a_model_that_changes_its_dtype():
    model = normed()
    optimizer = Samuel(model.parameters(), buffers=model)
    learn(model, optimizer, range(20))
    before = decided(optimizer, [*model.parameters(), model[1].running_mean])
    model.double()
    after = decided(optimizer, [*model.parameters(), model[1].running_mean])
    assert_equal([tensor.float() for tensor in after], before)
    learn(model, optimizer, range(20, 25))
    kept = [value for entries in optimizer.state.values() for name, value in entries.items() if name != "rays:length"]
    assert {value.dtype for value in kept if value.is_floating_point() and value.shape == (8,)} == {torch.float64}


# Saving


def test_the_averages_of_buffers_are_saved_and_the_run_goes_on_to_the_bit():
    def begin():
        model = normed()
        return model, Samuel(model.parameters(), **RULES["samuel"], buffers=model)

    model, optimizer = begin()
    for saved_after in (1, 20, 43):
        learn(model, optimizer, range(int(optimizer.state[model[0].weight].get("rays:round", 0)), saved_after))
        file = io.BytesIO()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
        found = torch.load(io.BytesIO(file.getvalue()), weights_only=True)
        twin, again = begin()
        learn(twin, again, range(3))
        twin.load_state_dict(found["model"])
        again.load_state_dict(found["optimizer"])
        with optimizer.decision(), again.decision():
            assert_equal(twin.state_dict().values(), model.state_dict().values())
        learn(twin, again, range(saved_after, saved_after + 20))
        control, other = copy.deepcopy((model, optimizer))
        learn(control, other, range(saved_after, saved_after + 20))
        with other.decision(), again.decision():
            assert_equal(twin.state_dict().values(), control.state_dict().values())


def test_what_is_saved_inside_is_the_decision():
    model = normed()
    optimizer = Samuel(model.parameters(), buffers=model)
    learn(model, optimizer, range(20))
    with optimizer.decision():
        saved = copy.deepcopy(model.state_dict())
    served = normed()
    served.load_state_dict(saved)
    inputs = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    with torch.no_grad(), optimizer.decision():
        assert torch.equal(served.eval()(inputs), model.eval()(inputs))


OTHER_BUFFERS = {
    "none": (lambda model: None, "averages of 3 buffers, and there are 0 to average"),
    "fewer": (lambda model: [model[1].running_mean], "averages of 3 buffers, and there are 1 to average"),
    "other shapes": (lambda model: [torch.zeros(3), torch.zeros(8), torch.zeros(8)], "'buffer:0' of shape"),
}


@pytest.mark.parametrize("name", OTHER_BUFFERS)
def test_a_state_with_other_buffers_is_refused_before_anything_changes(name):
    other, message = OTHER_BUFFERS[name]
    model = normed()
    theirs = Samuel(model.parameters(), buffers=[b for b in model.buffers() if b.is_floating_point()])
    learn(model, theirs, range(3))
    twin = normed()
    optimizer = Samuel(twin.parameters(), buffers=other(twin))
    learn(twin, optimizer, range(5))
    before = snapshot(optimizer)
    with pytest.raises(ValueError, match=message):
        optimizer.load_state_dict(theirs.state_dict())
    assert_same_snapshot(before, snapshot(optimizer))


# Weight decay, of which the rule must know


def test_a_weight_decay_that_changes_in_mid_run_is_followed_and_saved():
    def begin():
        params = parameters()
        return params, Samuel(params, "adam", weight_decay=0.1)

    params, optimizer = begin()
    train(optimizer, params, range(20))
    optimizer.param_groups[0]["weight_decay"] = 1.0
    train(optimizer, params, range(20, 30))
    others, again = begin()
    with torch.no_grad():
        for p, q in zip(others, params, strict=True):
            p.copy_(q)
    again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    train(optimizer, params, range(30, 50))
    train(again, others, range(30, 50))
    assert_equal(values(others), values(params))
    assert_same_snapshot(snapshot(optimizer), snapshot(again))


def test_experts_shrink_as_the_group_that_shrinks_most():
    """Biases are usually left out, and few."""
    together, alone, still = parameters(((5,),))[0], parameters(((5,),))[0], torch.nn.Parameter(torch.ones(3))
    groups = [{"params": [together], "weight_decay": 0.5}, {"params": [still], "weight_decay": 0.0}]
    optimizers = Samuel(groups, "adam"), Samuel([alone], "adam", weight_decay=0.5)
    for step in range(40):
        still.grad = torch.zeros(3)
        for optimizer, p in zip(optimizers, (together, alone), strict=True):
            train(optimizer, [p], [step])
    assert_close([together], [alone])
    assert_close([optimizers[0].weights()], [optimizers[1].weights()])
