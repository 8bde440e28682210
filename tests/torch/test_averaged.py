"""The averaged parameters: less noisy than those trained, for the length of a `with` block."""

import copy
import io
import warnings

import pytest
import torch

from tests.torch.configurations import (
    CONFIGURATIONS,
    assert_close,
    assert_equal,
    assert_same_snapshot,
    gradients,
    parameters,
    rounds,
    samuel,
    snapshot,
    train,
    values,
)

POWER = 8
"""The average is over about the last ninth of the time since a restart."""


def averaged(optimizer, tensors):
    """The tensors, as they are to be used."""
    with optimizer.averaged():
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


@pytest.mark.parametrize("base", ["adam", "sgd", "muon"])
def test_it_is_the_average_of_the_parameters_since_the_last_restart(base):
    params = parameters()
    optimizer = samuel(params, base)
    expected = ByHand(params)
    for step in range(80):
        before = optimizer.shifts
        for p, gradient in zip(params, gradients(params, step), strict=True):
            p.grad = gradient * (30 if step >= 50 else 1)
        optimizer.step()
        expected.enter(params, restarted=optimizer.shifts > before)
        assert_close(averaged(optimizer, params), expected.like(params), atol=1e-5)
    assert optimizer.shifts == 1
    assert not torch.equal(averaged(optimizer, params)[0], params[0])


def test_it_has_less_of_the_noise_than_the_parameters():
    (w,) = parameters(((200,),))
    optimizer = samuel([w], "sgd", (0.3,), steps=10**9, average=True)
    for step in range(300):
        noise = torch.randn(200, generator=torch.Generator().manual_seed(step))
        w.grad = w.detach() - 1 + noise
        optimizer.step()
    assert (averaged(optimizer, [w])[0] - 1).norm() < 0.5 * (w.detach() - 1).norm()


def test_before_the_first_step_it_is_the_parameters_and_asking_changes_nothing():
    params = parameters()
    optimizer = samuel(params)
    before = snapshot(optimizer)
    assert_equal(averaged(optimizer, params), params)
    assert_same_snapshot(before, snapshot(optimizer))


@pytest.mark.filterwarnings("ignore:averaged.. changes nothing")
@pytest.mark.parametrize("options", [{"steps": 100}, {"average": False}], ids=str)
def test_where_there_is_no_average_it_is_the_parameters(options):
    params = parameters()
    optimizer = samuel(params, **options)
    train(optimizer, params, range(10))
    assert_equal(averaged(optimizer, params), params)
    assert not any("average" in entries for entries in optimizer.state.values())


# Parameters that come and stay


@pytest.mark.parametrize("way", ["no gradient", "lr of 0"])
def test_of_parameters_that_stand_still_the_average_runs_to_them(way):
    moved, still = parameters(((3,), (4,)))
    optimizer = samuel([{"params": [moved]}, {"params": [still]}], "adam")
    train(optimizer, [moved, still], range(20))
    away = (averaged(optimizer, [still])[0] - still).abs().max()
    if way == "lr of 0":
        optimizer.param_groups[1]["lr"] = 0.0
    still.grad = None
    train(optimizer, [moved] if way == "no gradient" else [moved, still], range(20, 120))
    assert (averaged(optimizer, [still])[0] - still).abs().max() < 1e-3 * away


def test_parameters_that_were_never_trained_stay():
    frozen, *params = parameters()
    frozen.requires_grad_(False)
    optimizer = samuel([frozen, *params])
    train(optimizer, params, range(10))
    assert_equal(averaged(optimizer, [frozen]), [frozen])
    assert not torch.equal(averaged(optimizer, params)[0], params[0])


def test_of_parameters_that_come_later_the_average_begins_where_they_stand():
    params, late = parameters(), torch.nn.Parameter(torch.full((4,), 2.0))
    optimizer = samuel(params)
    train(optimizer, params, range(20))
    before = averaged(optimizer, params)
    optimizer.add_param_group({"params": [late]})
    assert_equal(averaged(optimizer, [*params, late]), [*before, late])
    late.grad = torch.ones(4)
    train(optimizer, params, [20])
    pace = (POWER + 1) / (21 + POWER + 1)
    assert_close(averaged(optimizer, [late]), [2 + pace * (late.detach() - 2)])


# Going in and out


KINDS = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64]


@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_afterwards_everything_is_as_it_was_to_the_bit(dtype):
    params = parameters(dtype=dtype)
    optimizer = samuel(params, **CONFIGURATIONS["adam-untold"])
    twins = parameters(dtype=dtype)
    undisturbed = samuel(twins, **CONFIGURATIONS["adam-untold"])
    others = 0
    for step in range(60):
        train(optimizer, params, [step])
        train(undisturbed, twins, [step])
        before, kept = snapshot(optimizer), [p.grad for p in params]
        with optimizer.averaged():
            others += not torch.equal(params[0], twins[0])
            assert {p.dtype for p in params} == {dtype}
        assert_same_snapshot(before, snapshot(optimizer))
        assert all(p.grad is gradient for p, gradient in zip(params, kept, strict=True))
    assert others > 50  # but not where the average begins anew
    assert_equal(values(params), values(twins))
    assert_equal(averaged(optimizer, params), averaged(undisturbed, twins))


@pytest.mark.parametrize(
    ("dtype", "state_dtype"), [(torch.bfloat16, torch.float32), (torch.bfloat16, None), (torch.float32, torch.bfloat16)]
)
def test_the_average_is_exact_whatever_the_dtypes(dtype, state_dtype):
    """An average of 16 bits would stop moving, or be full of rounding noise: its offset is kept instead."""
    params = parameters(dtype=dtype)
    optimizer = samuel(params, "adam", state_dtype=state_dtype)
    expected = ByHand(params)

    def exact():  # parameters with what 16 bits cannot hold of them
        return [p + optimizer.state[p]["rounding"].float() if dtype == torch.bfloat16 else p for p in params]

    largest = 0.0
    for step in range(300):
        train(optimizer, params, [step])
        expected.enter(exact())
        largest = max(largest, *((p - q).abs().max().item() for p, q in zip(exact(), expected.averages, strict=True)))
    kept = [optimizer.state[p].get("offset", optimizer.state[p].get("average")) for p in params]
    assert {x.dtype for x in kept} == {state_dtype or dtype}
    with optimizer.averaged():
        found = values(params)
    for mean, average in zip(expected.averages, found, strict=True):
        rounding = 0 if state_dtype == torch.float32 else 0.01 * largest  # of the offset, not of the average
        stored = torch.finfo(dtype).eps * mean.abs()  # of what is put into the parameters
        assert ((average.float() - mean).abs() <= rounding + stored + 1e-5).all()


def test_numbers_that_do_not_lie_in_a_row_are_put_in_place():
    """Transposed, and with gaps."""
    whole = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    params = [torch.nn.Parameter(whole.clone().t()), torch.nn.Parameter(whole.clone()[:, ::2])]
    even = [torch.nn.Parameter(p.detach().contiguous()) for p in params]
    optimizers = [samuel(some, "adam") for some in (params, even)]
    for optimizer, some in zip(optimizers, (params, even), strict=True):
        train(optimizer, some, range(20))
    assert_close(averaged(optimizers[0], params), averaged(optimizers[1], even))


def test_an_error_inside_puts_everything_back_and_comes_through():
    model = normed()
    optimizer = samuel(model)
    learn(model, optimizer, range(10))
    before = copy.deepcopy(model.state_dict())

    def fail():
        model[0].weight.data.zero_()
        raise ArithmeticError("no test today")

    with pytest.raises(ArithmeticError, match="no test today"), optimizer.averaged():
        fail()
    assert_equal(model.state_dict().values(), before.values())
    learn(model, optimizer, [10])  # and it can be used again
    averaged(optimizer, model.parameters())


def test_to_enter_twice_is_refused():
    params = parameters()
    optimizer = samuel(params)
    train(optimizer, params, range(3))
    trained = values(params)
    with optimizer.averaged():
        inside = values(params)
        with pytest.raises(RuntimeError, match="cannot be nested"), optimizer.averaged():
            pass
        assert_equal(values(params), inside)
    assert_equal(values(params), trained)


def test_a_step_inside_is_refused_before_anything_happens():
    params = parameters()
    optimizer = samuel(params)
    train(optimizer, params, range(3))
    before, calls = snapshot(optimizer), []
    with optimizer.averaged(), pytest.raises(RuntimeError, match=r"step\(\) inside averaged\(\)"):
        optimizer.step(lambda: calls.append(1))
    assert not calls
    assert_same_snapshot(before, snapshot(optimizer))
    train(optimizer, params, [3])


def test_a_state_that_is_saved_inside_is_warned_about():
    params = parameters()
    optimizer = samuel(params)
    train(optimizer, params, range(3))
    with optimizer.averaged(), pytest.warns(UserWarning, match=r"state_dict\(\) inside averaged\(\)"):
        optimizer.state_dict()


def test_gradients_can_be_taken_inside():
    params = parameters()
    optimizer = samuel(params)
    train(optimizer, params, range(3))
    with optimizer.averaged():
        assert torch.is_grad_enabled()
        found = torch.autograd.grad(params[0].square().sum(), params[0])[0]
        assert_close([found], [2 * params[0].detach()])


def test_it_can_be_tested_in_inference_mode_and_trained_on():
    model = normed()
    optimizer = samuel(model)
    learn(model, optimizer, range(5))
    before = values(model.parameters())
    with torch.inference_mode(), optimizer.averaged():
        model.eval()(torch.ones(2, 3))
    assert_equal(values(model.parameters()), before)
    learn(model.train(), optimizer, range(5, 10))


def test_mixed_precision_notices_that_the_parameters_are_others():
    """It keeps weights that it has made short once."""
    layer = torch.nn.Linear(3, 2)
    optimizer = samuel(layer.parameters())
    train(optimizer, list(layer.parameters()), range(20))
    inputs = torch.ones(1, 3)
    with torch.autocast("cpu", torch.bfloat16):
        trained = layer(inputs)
        with optimizer.averaged():
            averaged = layer(inputs)
        again = layer(inputs)
    assert not torch.equal(averaged, trained)
    assert torch.equal(again, trained)


# Buffers


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_batch_statistics_are_averaged_with_the_parameters(dtype):
    model = normed(dtype)
    optimizer = samuel(model)
    statistics = [model[1].running_mean, model[1].running_var]
    learn(model, optimizer, [0])
    expected = ByHand(statistics)  # a forward pass comes before the first step
    expected.enter(statistics)
    for step in range(1, 60):
        before = optimizer.shifts
        learn(model, optimizer, [step])
        expected.enter(statistics, restarted=optimizer.shifts > before)
        trained = values(model.buffers())
        with optimizer.averaged():
            largest = max(tensor.abs().max().item() for tensor in statistics)
            atol = 1e-5 if dtype != torch.bfloat16 else torch.finfo(dtype).eps * largest
            assert_close(statistics, expected.like(statistics), atol=atol)
            assert int(model[1].num_batches_tracked) == step + 1
            assert_equal([model.mask], [torch.tensor([0.0, -torch.inf], dtype=dtype)])
        assert_equal(model.buffers(), trained)
    assert optimizer.shifts == 1
    assert not torch.equal(averaged(optimizer, statistics)[0], statistics[0])


def test_without_the_model_buffers_stay():
    model = normed()
    optimizer = samuel(model.parameters())
    learn(model, optimizer, range(20))
    assert_equal(averaged(optimizer, model.buffers()), model.buffers())


# Saving


def test_the_averages_of_buffers_are_saved_and_the_run_goes_on_to_the_bit():
    def begin():
        model = normed()
        return model, samuel(model)

    model, optimizer = begin()
    for saved_after in (1, 20, 43):
        learn(model, optimizer, range(rounds(optimizer), saved_after))
        file = io.BytesIO()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
        found = torch.load(io.BytesIO(file.getvalue()), weights_only=True)
        twin, again = begin()
        learn(twin, again, range(3))
        twin.load_state_dict(found["model"])
        again.load_state_dict(found["optimizer"])
        with optimizer.averaged(), again.averaged():
            assert_equal(twin.state_dict().values(), model.state_dict().values())
        learn(twin, again, range(saved_after, saved_after + 20))
        control, other = copy.deepcopy((model, optimizer))
        learn(control, other, range(saved_after, saved_after + 20))
        with other.averaged(), again.averaged():
            assert_equal(twin.state_dict().values(), control.state_dict().values())


def test_what_is_saved_inside_is_the_average():
    model = normed()
    optimizer = samuel(model)
    learn(model, optimizer, range(20))
    with optimizer.averaged():
        saved = copy.deepcopy(model.state_dict())
    served = normed()
    served.load_state_dict(saved)
    inputs = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    with torch.no_grad(), optimizer.averaged():
        assert torch.equal(served.eval()(inputs), model.eval()(inputs))


# A warning


def test_without_an_average_a_run_far_from_its_end_is_warned_about_once():
    params = parameters()
    optimizer = samuel(params, "adam", steps=20)
    assert not changes(optimizer, params)  # before the first step there is no noise
    train(optimizer, params, range(10))
    with pytest.warns(UserWarning, match="steps=20 was given and no average is kept: after 10 steps"):
        changes(optimizer, params)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        changes(optimizer, params)


@pytest.mark.filterwarnings("error")
def test_without_an_average_a_run_near_its_end_is_not_warned_about():
    params = parameters()
    optimizer = samuel(params, "adam", steps=20)
    train(optimizer, params, range(18))
    assert not changes(optimizer, params)


def changes(optimizer, params):
    before = values(params)
    return any(not torch.equal(p, q) for p, q in zip(averaged(optimizer, params), before, strict=True))
