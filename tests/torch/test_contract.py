"""It is a torch optimizer: everything that people, schedulers and trainers rely on in one holds in this one."""

import functools
import shutil
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.optim import lr_scheduler
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

import samuel.core
from samuel.torch import Chosen, Fixed, Geometric, Samuel, Watched
from tests.torch.configurations import (
    CONFIGURATIONS,
    RULES,
    assert_close,
    assert_equal,
    assert_same_snapshot,
    feed,
    gradients,
    one_rate,
    parameters,
    snapshot,
    train,
    values,
)

PLAIN = "adam-samuel"
"""The configuration of tests that one is enough for."""


def make(params, **options):
    return Samuel(params, **{**CONFIGURATIONS[PLAIN], **options})


# It learns


def rosenbrock(params):
    x, y = params[0]
    return (1 - x) ** 2 + 100 * (y - x * x) ** 2


def quadratic(params):
    (x,) = params
    return (torch.tensor([[2.0, 0.5], [0.5, 1.0]]) @ (x - 3)).square().sum()


def least_squares(params):
    """A small network: its weights and biases, on data that never change."""
    w, b, v, c = params
    inputs = torch.linspace(-1, 1, 24).reshape(8, 3)
    targets = torch.sin(3 * inputs.sum(1, keepdim=True))
    return (torch.tanh(inputs @ w.t() + b) @ v.t() + c - targets).square().mean()


PROBLEMS = {
    "quadratic": (quadratic, ((2,),), (1e-3, 1e-2, 1e-1)),
    "Rosenbrock": (rosenbrock, ((2,),), (1e-6, 1e-5, 1e-4)),
    "least squares": (least_squares, ((5, 3), (5,), (1, 5), (1,)), (1e-3, 1e-2, 1e-1)),
}
"""Losses, the shapes of their parameters, and rates for bases that follow plain gradients, however large they are."""


def descend(optimizer, loss, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_it_goes_downhill(name, problem):
    loss, shapes, rates = PROBLEMS[problem]
    params = parameters(shapes)
    unscaled = name.startswith(("sgd", "momentum"))
    optimizer = Samuel(params, **CONFIGURATIONS[name], lrs=rates if unscaled else None)
    before = loss(params).item()
    descend(optimizer, lambda: loss(params), 40)
    assert loss(params) < 0.9 * before


@pytest.mark.parametrize("base", ["adam", "adagrad", "momentum", "sgd", "muon"])
def test_without_any_option_it_gets_there(base):
    loss, shapes, _ = PROBLEMS["least squares"]
    params = parameters(shapes)
    before = loss(params).item()
    descend(Samuel(params, base), lambda: loss(params), 300)
    assert loss(params) < 0.25 * before


# Parameters in every form


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))


FORMS = {
    "list": lambda model: list(model.parameters()),
    "tuple": lambda model: tuple(model.parameters()),
    "generator": lambda model: model.parameters(),
    "named": lambda model: model.named_parameters(),
    "group": lambda model: [{"params": model.parameters()}],
    "groups": lambda model: [{"params": model[0].parameters()}, {"params": list(model[2].parameters())}],
    "named groups": lambda model: [{"params": model[0].named_parameters("0")}, {"params": model[2].named_parameters()}],
    "an empty group": lambda model: [{"params": []}, {"params": list(model.parameters())}],
}


@pytest.mark.parametrize("form", FORMS)
def test_parameters_come_in_every_form_that_torch_takes(form):
    usual, model = network(), network()
    train(make(list(usual.parameters())), list(usual.parameters()), range(30))
    optimizer = make(FORMS[form](model))
    train(optimizer, list(model.parameters()), range(30))
    assert_equal(values(model.parameters()), values(usual.parameters()))
    torch.optim.SGD(FORMS[form](network()), lr=0.1)  # so does torch


def test_names_of_parameters_are_kept():
    model = network()
    optimizer = make(model.named_parameters())
    train(optimizer, list(model.parameters()), range(2))
    assert optimizer.param_groups[0]["param_names"] == [name for name, _ in model.named_parameters()]
    assert optimizer.state_dict()["param_groups"][0]["param_names"] == optimizer.param_groups[0]["param_names"]


def test_groups_have_their_own_options():
    ours, theirs = parameters(((3,),) * 4), parameters(((3,),) * 4)
    groups = [
        {},
        {"betas": (0.5, 0.9), "eps": 1e-4},
        {"weight_decay": 0.5, "lr": 0.5},
        {"maximize": True, "amsgrad": True},
    ]
    mine = one_rate([{"params": [p], **own} for p, own in zip(ours, groups, strict=True)], torch.optim.AdamW, rate=0.1)
    train(mine, ours, range(30))
    other = torch.optim.AdamW(
        [{"params": [p], **own, "lr": 0.1 * own.get("lr", 1.0)} for p, own in zip(theirs, groups, strict=True)]
    )
    train(other, theirs, range(30))
    assert_close(ours, theirs)
    assert [group["effective_lr"] for group in mine.param_groups] == pytest.approx([0.1, 0.1, 0.05, 0.1])


def test_groups_of_mixed_kind_share_one_rate():
    params = parameters(((3,), (2, 2), ()))
    together = parameters(((3,), (2, 2), ()))
    train(make([{"params": [p], "weight_decay": 0.1} for p in params]), params, range(40))
    train(make(together, weight_decay=0.1), together, range(40))
    assert_close(params, together)


REFUSED_PARAMETERS = {
    "a tensor": (lambda: torch.nn.Parameter(torch.zeros(2)), TypeError, "params argument"),
    "nothing": (list, ValueError, "empty parameter list"),
    "None": (lambda: None, TypeError, "NoneType"),
    "a set in a group": (lambda: [{"params": set(parameters())}], TypeError, "sets"),
    "strings": (lambda: ["weight"], TypeError, "str"),
    "not leaves": (lambda: [parameters()[0] * 2], ValueError, "non-leaf"),
    "twice": (lambda: [{"params": p} for p in parameters()[:1] * 2], ValueError, "more than one parameter group"),
    "a group without parameters": (lambda: [{"lr": 1.0}], KeyError, "params"),
}


@pytest.mark.parametrize("name", REFUSED_PARAMETERS)
def test_what_cannot_be_trained_is_refused(name):
    build, error, message = REFUSED_PARAMETERS[name]
    with pytest.raises(error, match=message):
        Samuel(build())


@pytest.mark.parametrize("name", [name for name in REFUSED_PARAMETERS if name not in ("nothing", "a tensor", "None")])
def test_a_group_that_cannot_be_trained_is_refused_and_changes_nothing(name):
    build, error, message = REFUSED_PARAMETERS[name]
    params = parameters()
    optimizer = make(params)
    train(optimizer, params, range(3))
    before = snapshot(optimizer)
    if name == "twice":
        group = {"params": params[:1]}
    else:
        group = build()[0] if "group" in name else {"params": build()}
    with pytest.raises(error, match=message):
        optimizer.add_param_group(group)
    assert len(optimizer.param_groups) == 1
    assert_same_snapshot(before, snapshot(optimizer))


def test_a_parameter_twice_in_one_group_is_warned_about_as_torch_does():
    (p,) = parameters(((3,),))
    with pytest.warns(UserWarning, match="duplicate parameters"):
        Samuel([p, p])


# Gradients


def test_sparse_gradients_are_refused_before_anything_changes():
    embedding = torch.nn.Embedding(4, 2, sparse=True)
    dense = parameters(((3,),))
    optimizer = make([*dense, embedding.weight])
    embedding(torch.tensor([1])).sum().backward()
    dense[0].grad = torch.ones(3)
    before = snapshot(optimizer)
    with pytest.raises(RuntimeError, match=r"sparse gradients, got one for a parameter of shape \(4, 2\)"):
        optimizer.step()
    assert_same_snapshot(before, snapshot(optimizer))


@pytest.mark.parametrize("foreach", [True, False], ids=["packed", "plain"])
@pytest.mark.parametrize("name", ["adam-samuel", "adagrad-theorem", "momentum-levels", "sgd-inherit", "muon-samuel"])
def test_a_parameter_without_gradients_stays_and_the_others_learn_as_if_alone(name, foreach):
    options = {**CONFIGURATIONS[name], "foreach": foreach, "weight_decay": 0.1}
    params, alone = parameters(), parameters()
    still = params[1]
    before = still.detach().clone()
    optimizer = Samuel(params, **options)
    others, rest = [p for p in params if p is not still], [alone[0], *alone[2:]]
    train(optimizer, others, range(50))
    single = Samuel(rest, **options)
    train(single, rest, range(50))
    assert still.grad is None
    assert_equal([still], [before])
    assert_close(others, rest)
    assert optimizer.effective_lr == pytest.approx(single.effective_lr, rel=1e-3)


@pytest.mark.parametrize("base", ["adam", "momentum", "muon", torch.optim.Rprop, torch.optim.NAdam])
@pytest.mark.parametrize("rule", ["samuel", "theorem", "slots"])
def test_a_parameter_can_be_frozen_in_mid_run_and_thawed(rule, base):
    params = parameters()
    optimizer = Samuel(params, base, **RULES[rule], weight_decay=0.1)
    train(optimizer, params, range(20))
    frozen = params[0]
    frozen.grad = None
    before = values(params)
    train(optimizer, params[1:], range(20, 55))  # blocks end and begin
    assert_equal([frozen], before[:1])
    assert all(not torch.equal(p, q) for p, q in zip(params[1:], before[1:], strict=True))
    train(optimizer, params, range(55, 60))
    assert not torch.equal(frozen, before[0])
    assert all(p.isfinite().all() for p in params)


@pytest.mark.parametrize("name", ["adam-samuel", "adagrad-theorem", "sgd-slots", "muon-samuel"])
def test_without_any_gradient_nothing_happens_and_no_time_passes(name):
    params = parameters()
    optimizer = Samuel(params, **CONFIGURATIONS[name])
    optimizer.step()
    assert_equal(values(params), values(parameters()))
    train(optimizer, params, range(5))
    optimizer.zero_grad()
    before = snapshot(optimizer)
    for _ in range(20):
        optimizer.step()
    assert_same_snapshot(before, snapshot(optimizer))


def test_a_group_with_its_own_rates_waits_for_its_own_gradients():
    params = parameters(((3,), (3,)))
    groups = [{"params": params[:1]}, {"params": params[1:], "lrs": (0.1, 0.01)}]
    optimizer = Samuel(groups, **CONFIGURATIONS[PLAIN])
    train(optimizer, params, range(3))
    params[1].grad = None
    train(optimizer, params[:1], range(3, 8))
    assert [int(optimizer.state[p]["rays:round"]) for p in params] == [8, 3]


@pytest.mark.parametrize("set_to_none", [True, False])
def test_zero_grad(set_to_none):
    params = parameters()
    optimizer = make(params)
    train(optimizer, params, range(2))
    optimizer.zero_grad(set_to_none=set_to_none)
    for p in params:
        assert p.grad is None if set_to_none else not p.grad.any()
    loss = sum(p.square().sum() for p in params)
    loss.backward()
    assert_close([p.grad for p in params], [2 * p.detach() for p in params])


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_gradients_of_zero_move_nothing_before_the_first_real_one(name):
    params = parameters()
    optimizer = Samuel(params, **CONFIGURATIONS[name])
    for p in params:
        p.grad = torch.zeros_like(p)
    for _ in range(20):
        optimizer.step()
    assert_equal(values(params), values(parameters()))
    train(optimizer, params, range(5))
    assert not torch.equal(params[0], parameters()[0])


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("base", ["adam", "adagrad", "sgd", "muon", torch.optim.Rprop, torch.optim.ASGD])
def test_gradients_are_read_and_never_written(base, maximize):
    params = parameters()
    optimizer = Samuel(params, base, **RULES["samuel"], maximize=maximize, weight_decay=0.1)
    for step in range(5):
        found = gradients(params, step)
        copies = [gradient.clone() for gradient in found]
        for p, gradient in zip(params, found, strict=True):
            p.grad = gradient
        optimizer.step()
        assert_equal(found, copies)
        assert all(p.grad is gradient and gradient._version == 0 for p, gradient in zip(params, found, strict=True))


@pytest.mark.parametrize("foreach", [True, False], ids=["packed", "plain"])
@pytest.mark.parametrize("name", ["adam-samuel", "adagrad-theorem", "momentum-slots", "sgd-levels", "muon-samuel"])
def test_to_maximize_is_to_minimize_the_negative(name, foreach):
    down, up = parameters(), parameters()
    descending = Samuel(down, **CONFIGURATIONS[name], foreach=foreach)
    ascending = Samuel(up, **CONFIGURATIONS[name], foreach=foreach, maximize=True)
    for step in range(40):
        found = gradients(down, step)
        for p, q, gradient in zip(down, up, found, strict=True):
            p.grad, q.grad = gradient, -gradient
        descending.step()
        ascending.step()
    assert_equal(values(up), values(down))
    assert ascending.effective_lr == descending.effective_lr


# The multiplier lr, and schedulers


def sequential(optimizer, scale):
    warm_up = lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=5)
    return lr_scheduler.SequentialLR(optimizer, [warm_up, lr_scheduler.StepLR(optimizer, 6, 0.5)], milestones=[5])


def one_cycle(optimizer, scale, **options):
    return lr_scheduler.OneCycleLR(optimizer, max_lr=scale, total_steps=40, **options)


SCHEDULERS = {
    "lambda": lambda optimizer, _: lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step)),
    "cosine": lambda optimizer, _: lr_scheduler.CosineAnnealingLR(optimizer, T_max=40),
    "warm-up": lambda optimizer, _: lr_scheduler.LinearLR(optimizer, start_factor=0.01, total_iters=10),
    "one cycle": one_cycle,
    "one cycle without momentum": functools.partial(one_cycle, cycle_momentum=False),
    "sequential": sequential,
    "plateau": lambda optimizer, _: lr_scheduler.ReduceLROnPlateau(optimizer, patience=2, eps=0),
    "cyclic": lambda optimizer, scale: lr_scheduler.CyclicLR(optimizer, 0.1 * scale, scale, 4, cycle_momentum=False),
    "warm restarts": lambda optimizer, _: lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=7),
}


def scheduled(optimizer, params, schedule, scale, steps=30):
    """The rates of a run that a scheduler drives."""
    scheduler = schedule(optimizer, scale)
    rates = []
    for step in range(steps):
        rates.append(float(optimizer.param_groups[0]["lr"]))
        train(optimizer, params, [step])
        if isinstance(scheduler, lr_scheduler.ReduceLROnPlateau):
            scheduler.step(1.0 + step)
        else:
            scheduler.step()
    return rates


# Older versions of torch warn of a way in which their own sequential scheduler calls others.
@pytest.mark.filterwarnings("ignore:The epoch parameter in `scheduler.step:UserWarning")
@pytest.mark.parametrize("base", [torch.optim.AdamW, torch.optim.SGD])
@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedulers_drive_the_multiplier(name, base):
    ours, theirs = parameters(), parameters()
    options = {} if base is torch.optim.AdamW else {"momentum": 0.9}
    mine = one_rate(ours, base, rate=0.05, **options)
    our_rates = scheduled(mine, ours, SCHEDULERS[name], scale=1.0)
    their_rates = scheduled(base(theirs, lr=0.05, **options), theirs, SCHEDULERS[name], scale=0.05)
    assert [0.05 * rate for rate in our_rates] == pytest.approx(their_rates)
    assert len(set(our_rates)) > 2
    assert_close(ours, theirs)
    assert mine.effective_lr == pytest.approx(their_rates[-1])


def test_a_multiplier_of_zero_stops_the_base():
    params = parameters()
    optimizer = make(params, lr=0.0, weight_decay=0.1)
    train(optimizer, params, range(40))
    assert_equal(values(params), values(parameters()))
    assert optimizer.effective_lr == 0
    optimizer.param_groups[0]["lr"] = 1.0
    train(optimizer, params, range(40, 45))
    assert not torch.equal(params[0], parameters()[0])
    assert optimizer.effective_lr > 0


@pytest.mark.parametrize("shape", [(), (1,)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_multiplier_may_be_a_tensor(dtype, shape):
    params, usual = parameters(), parameters()
    train(make(usual, lr=0.5, weight_decay=0.1), usual, range(30))
    optimizer = make(params, lr=torch.full(shape, 0.5, dtype=dtype), weight_decay=0.1)
    train(optimizer, params, range(30))
    assert_close(params, usual)
    assert isinstance(optimizer.effective_lr, float)
    assert isinstance(optimizer.param_groups[0]["lr"], torch.Tensor)
    optimizer.param_groups[0]["lr"].fill_(0.0)
    train(optimizer, params, [30])
    assert optimizer.effective_lr == 0


def test_schedulers_drive_a_multiplier_that_is_a_tensor():
    rates = []
    for lr in (1.0, torch.tensor(1.0)):
        params = parameters()
        rates.append(scheduled(one_rate(params, "adam", lr=lr), params, SCHEDULERS["cosine"], 1.0))
    assert rates[1] == pytest.approx(rates[0], rel=1e-5)


def test_what_looks_like_a_learning_rate_is_warned_about():
    with pytest.warns(UserWarning, match="lr=0.001 multiplies the learning rate that Samuel finds"):
        Samuel(parameters(), lr=1e-3)


@pytest.mark.parametrize("lr", [0.0, 0.5, 1, 3.0])
def test_what_looks_like_a_multiplier_is_not(lr):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Samuel(parameters(), lr=lr)


# Closures and hooks


def test_a_closure_is_called_once_with_gradients_on_and_its_loss_returned():
    params, usual = parameters(), parameters()
    optimizer = make(params)
    calls = []

    def closure():
        calls.append(torch.is_grad_enabled())
        optimizer.zero_grad()
        loss = sum((p - 1).square().sum() for p in params)
        loss.backward()
        return loss

    for _ in range(10):
        expected = sum((p.detach() - 1).square().sum() for p in params)
        with torch.no_grad():
            assert optimizer.step(closure) == expected
            assert not torch.is_grad_enabled()
    assert calls == [True] * 10
    descend(make(usual), lambda: sum((p - 1).square().sum() for p in usual), 10)
    assert_equal(values(params), values(usual))


def test_without_a_closure_nothing_is_returned():
    params = parameters()
    optimizer = make(params)
    params[0].grad = torch.ones_like(params[0])
    assert optimizer.step() is None
    assert torch.is_grad_enabled()


def test_an_error_in_a_closure_leaves_everything_as_it_was():
    params = parameters()
    optimizer = make(params)
    train(optimizer, params, range(5))
    before = snapshot(optimizer)

    def closure():
        raise ArithmeticError("no loss today")

    with torch.no_grad(), pytest.raises(ArithmeticError, match="no loss today"):
        optimizer.step(closure)
    assert torch.is_grad_enabled()
    assert_same_snapshot(before, snapshot(optimizer))


def test_hooks_run_around_a_step():
    params, clipped = parameters(), parameters()
    optimizer = make(params)
    told = []

    def before(optimizer, args, kwargs):
        told.append(("before", snapshot(optimizer)["parameter 0.0"]))
        torch.nn.utils.clip_grad_norm_(params, 0.5)

    def after(optimizer, args, kwargs):
        told.append(("after", snapshot(optimizer)["parameter 0.0"]))

    handles = [optimizer.register_step_pre_hook(before), optimizer.register_step_post_hook(after)]
    other = make(clipped)
    for step in range(3):
        for p, q, gradient in zip(params, clipped, gradients(params, step), strict=True):
            p.grad, q.grad = gradient, gradient.clone()
        torch.nn.utils.clip_grad_norm_(clipped, 0.5)
        optimizer.step()
        other.step()
    assert [when for when, _ in told] == ["before", "after"] * 3
    assert not torch.equal(told[0][1], told[1][1])
    assert_equal(values(params), values(clipped))
    for handle in handles:
        handle.remove()
    train(optimizer, params, [3])
    assert len(told) == 6


def test_hooks_of_all_optimizers_see_one_step_and_not_that_of_the_base():
    params = parameters()
    optimizer = make(params)
    seen = []
    hooks = [
        register_optimizer_step_pre_hook(lambda optimizer, args, kwargs: seen.append(optimizer)),
        register_optimizer_step_post_hook(lambda optimizer, args, kwargs: seen.append(optimizer)),
    ]
    try:
        train(optimizer, params, [0])
    finally:
        for hook in hooks:
            hook.remove()
    assert len(seen) == 2
    assert all(one is optimizer for one in seen)


def test_hooks_see_and_may_change_the_state_dict():
    params = parameters()
    optimizer = make(params)
    train(optimizer, params, range(2))
    seen = []
    optimizer.register_state_dict_pre_hook(lambda optimizer: seen.append("before"))
    optimizer.register_state_dict_post_hook(lambda optimizer, found: found | {"note": "kept"})
    assert optimizer.state_dict()["note"] == "kept"
    assert seen == ["before"]


# Groups that come later, and groups with a rate of their own


def test_parameters_that_come_later_join_the_running_blocks_where_they_stand():
    usual, params = parameters(((3,), (2, 2))), parameters(((3,), (2, 2)))
    late = torch.nn.Parameter(torch.full((4,), 2.0))
    alone, optimizer = make(usual), make(params)
    train(alone, usual, range(21))
    train(optimizer, params, range(21))
    optimizer.add_param_group({"params": [late], "weight_decay": 0.0})
    assert optimizer.param_groups[1]["effective_lr"] == optimizer.effective_lr
    assert_equal([optimizer.weights(1)], [optimizer.weights(0)])
    assert_equal([late], [torch.full((4,), 2.0)])
    for step in range(21, 30):  # as long as the newcomer has no slope, nobody notices it
        late.grad = torch.zeros(4)
        train(alone, usual, [step])
        train(optimizer, params, [step])
    assert_close(params, usual)
    assert_equal([late], [torch.full((4,), 2.0)])
    for _ in range(100):
        descend(optimizer, lambda: (late - 1).square().sum() + sum((p - 1).square().sum() for p in params), 1)
    assert (late - 1).abs().max() < 0.2
    assert optimizer.param_groups[1]["effective_lr"] == optimizer.effective_lr
    assert int(optimizer.state[params[0]]["rays:round"]) == 130


def test_a_group_that_comes_later_with_its_own_rates_does_not_touch_the_others():
    usual, params = parameters(), parameters()
    late = torch.nn.Parameter(torch.full((4,), 2.0))
    alone, optimizer = make(usual), make(params)
    train(alone, usual, range(10))
    train(optimizer, params, range(10))
    optimizer.add_param_group({"params": [late], "lrs": (0.3, 0.1)})
    for step in range(10, 40):
        late.grad = late.detach() - 1
        train(alone, usual, [step])
        train(optimizer, params, [step])
    assert_equal(values(params), values(usual))
    assert optimizer.weights(0).shape == (1, 13)
    assert optimizer.weights(1).shape == (1, 2)
    assert optimizer.param_groups[1]["lrs"] == (0.1, 0.3)
    assert 0.05 < optimizer.param_groups[1]["effective_lr"] < 0.3
    assert late.max() < 1.1


@pytest.mark.parametrize(
    "change", [lambda groups: groups.reverse(), lambda groups: groups.pop(0)], ids=["turn", "leave"]
)
def test_groups_may_leave_and_change_places(change):
    params = parameters()
    optimizer = make([{"params": params[:1]}, {"params": params[1:]}])
    train(optimizer, params, range(20))
    before = optimizer.weights()
    change(optimizer.param_groups)
    assert_equal([optimizer.weights()], [before])
    left = [p for group in optimizer.param_groups for p in group["params"]]
    train(optimizer, left, [20])
    assert int(optimizer.state[left[0]]["rays:round"]) == 21
    assert not torch.equal(optimizer.weights(), before)


@pytest.mark.parametrize("lrs", [(), (0.1, -1.0), 0.1, "abc", (0.1, 0.1)], ids=str)
def test_bad_rates_of_a_group_are_refused_and_change_nothing(lrs):
    params = parameters()
    optimizer = make(params)
    train(optimizer, params, range(3))
    before = snapshot(optimizer)
    with pytest.raises(ValueError, match="learning_rates|learning rate"):
        optimizer.add_param_group({"params": parameters(), "lrs": lrs})
    assert len(optimizer.param_groups) == 1
    assert_same_snapshot(before, snapshot(optimizer))


def test_groups_with_rates_of_their_own_find_different_rates():
    steep, flat = (torch.nn.Parameter(torch.ones(4)) for _ in range(2))
    rates = tuple(10.0**power for power in range(-5, 3))
    optimizer = Samuel([{"params": [steep], "lrs": rates}, {"params": [flat], "lrs": rates}], "sgd")
    for _ in range(300):
        descend(optimizer, lambda: 50 * (steep**2).sum() + 0.005 * (flat**2).sum(), 1)
    rate_of_steep, rate_of_flat = (group["effective_lr"] for group in optimizer.param_groups)
    assert rate_of_steep < 0.02  # more would be unstable
    assert rate_of_flat > 30 * rate_of_steep
    assert steep.abs().max() < 0.01
    assert flat.abs().max() < 0.5
    shared = [torch.nn.Parameter(torch.ones(4)) for _ in range(2)]
    descend(Samuel(shared, "sgd", lrs=rates), lambda: 50 * (shared[0] ** 2).sum() + 0.005 * (shared[1] ** 2).sum(), 300)
    assert shared[1].abs().max() > flat.abs().max()


# What it tells


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_weights_are_shares_of_levels_and_rates(name):
    params = parameters()
    optimizer = Samuel(params, **CONFIGURATIONS[name], lrs=(0.1, 0.001, 0.01))
    slots = {"K": 4, "Kr": 4, "slots": 4, "levels": 3, "theorem": 3, "inherit": 3}.get(name.partition("-")[2], 1)
    first = optimizer.weights()
    for step in range(20):
        shares = optimizer.weights()
        assert shares.shape == (slots, 3)
        assert shares.sum().item() == pytest.approx(1, abs=1e-5)
        assert (shares >= 0).all()
        train(optimizer, params, [step])
    assert (optimizer.weights() - first).abs().max() > 0.01


def test_the_effective_rate_is_the_mean_of_the_rates_times_the_multiplier():
    params = parameters()
    optimizer = make(params, lrs=(0.001, 0.01, 0.1), decay="none", alarm=0, lr=0.5)
    seen = [optimizer.effective_lr]
    for step in range(30):
        train(optimizer, params, [step])
        mean = float(optimizer.weights().double() @ torch.tensor([0.001, 0.01, 0.1], dtype=torch.float64))
        assert optimizer.effective_lr == pytest.approx(0.5 * mean, rel=1e-5)
        seen.append(optimizer.effective_lr)
    assert all(isinstance(rate, float) for rate in seen)
    assert len(set(seen)) > 20
    assert seen[0] > 0
    assert optimizer.param_groups[0]["effective_lr"] == seen[-1]


def test_the_effective_rate_is_what_a_step_was_taken_with():
    (p,) = parameters(((5,),))
    optimizer = make([p], base="sgd")
    before = p.detach().clone()
    train(optimizer, [p], [0])  # all experts begin at the parameters: there is nothing but the step
    assert_close([before - optimizer.effective_lr * p.grad], [p], atol=1e-6)


def test_asking_for_a_group_that_is_not_there_says_so():
    optimizer = make(parameters())
    for ask in (optimizer.weights, optimizer.certificate):
        with pytest.raises(ValueError, match="no parameter group 1; there are 1"):
            ask(1)
        ask(-1)


def test_shifts_count_restarts():
    params = parameters()
    optimizer = make(params)
    assert optimizer.shifts == 0
    since = []
    for step in range(60):
        train(optimizer, params, [step])
        since.append(int(optimizer.state[params[0]]["rays:since"]))
    assert optimizer.shifts == since.count(0) > 0


@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=8)
@given(
    curvature=st.lists(st.floats(1e-3, 10.0), min_size=1, max_size=4),
    noise=st.sampled_from([0.0, 1.0]),
    scale=st.sampled_from([1e-4, 1.0, 1e3]),
    base=st.sampled_from(["adam", "adagrad", "momentum", "sgd", "muon"]),
    seed=st.integers(0, 1000),
)
def test_the_certificate_holds_on_every_convex_loss(rule, curvature, noise, scale, base, seed):
    generator = torch.Generator().manual_seed(seed)
    curvatures = torch.tensor(curvature)
    p = torch.nn.Parameter(torch.randn(len(curvature), generator=generator))
    unit = scale if base in ("momentum", "sgd") else 1.0  # whose steps are as large as the gradients
    optimizer = Samuel([p], base, lrs=(1e-3 / unit, 1e-2 / unit, 1e-1 / unit), **RULES[rule])
    for _ in range(30):
        p.grad = scale * (curvatures * p.detach() + noise * torch.randn(p.shape, generator=generator))
        optimizer.step()
        measured, bound = optimizer.certificate()
        opened = optimizer.weights() > 0
        assert not measured[opened].isnan().any()
        slack = 1e-4 * optimizer.state[p]["rays:unit"] + 1e-5 * measured.abs()
        assert (measured <= bound + slack)[opened].all()


def test_what_the_certificate_says_was_measured_is_the_sum_computed_by_hand():
    rates = torch.tensor([0.001, 0.01, 0.1], dtype=torch.float64)
    (p,) = parameters(((5,),), torch.float64)
    optimizer = Samuel([p], "sgd", lrs=rates.tolist(), rule="R", horizon=60)
    begun, total = p.detach().clone(), torch.zeros(3, dtype=torch.float64)
    for step in range(50):
        moved = optimizer.state[p]["basis:s"].clone() if step else torch.zeros(5, dtype=torch.float64)
        experts = begun - rates[:, None] * moved
        assert_close([optimizer.weights()[0].double() @ experts], [p.detach()])
        p.grad = gradients([p], step)[0]
        total += (p.detach() - experts) @ p.grad
        optimizer.step()
        torch.testing.assert_close(optimizer.certificate().measured[0].double(), total, rtol=1e-4, atol=1e-4)
    assert total.abs().max() > 1


# Ways to train


def regression(rows=8):
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(40, rows, 3, generator=generator)
    return inputs, inputs @ torch.tensor([[1.0], [-2.0], [0.5]]) + 0.1 * torch.randn(40, rows, 1, generator=generator)


def loss_of(model, inputs, targets):
    return (model(inputs) - targets).square().mean()


def test_accumulated_gradients_are_one_large_batch():
    whole, parts = network(), network()
    optimizers = make(whole.parameters()), make(parts.parameters())
    for inputs, targets in zip(*regression(), strict=True):
        optimizers[0].zero_grad()
        loss_of(whole, inputs, targets).backward()
        optimizers[0].step()
        optimizers[1].zero_grad()
        for part in (slice(0, 4), slice(4, 8)):
            (loss_of(parts, inputs[part], targets[part]) / 2).backward()
        optimizers[1].step()
    assert_close(parts.parameters(), whole.parameters())
    assert optimizers[1].effective_lr == pytest.approx(optimizers[0].effective_lr, rel=1e-3)


def test_clipped_gradients_keep_an_outlier_from_doing_harm():
    losses = []
    for clip in (True, False):
        model = network()
        optimizer = make(model.parameters(), base="sgd")
        for step, (inputs, targets) in enumerate(zip(*regression(), strict=True)):
            optimizer.zero_grad()
            loss_of(model, inputs, targets + (1e4 if step == 20 else 0)).backward()
            if clip:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        losses.append(loss_of(model, *(part.flatten(0, 1) for part in regression())).item())
    assert losses[0] < 1
    assert losses[1] > 10


def test_a_step_skipped_by_a_grad_scaler_does_not_move_the_clock():
    scaled, usual = network(), network()
    ours, theirs = make(scaled.parameters()), make(usual.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for step, (inputs, targets) in enumerate(zip(*regression(), strict=True)):
        broken = step in (3, 17)
        ours.zero_grad()
        loss = loss_of(scaled, inputs, targets) * (float("inf") if broken else 1)
        scaler.scale(loss).backward()
        before = snapshot(ours)
        scaler.step(ours)
        scaler.update()
        if broken:
            assert_same_snapshot(before, snapshot(ours))
            continue
        theirs.zero_grad()
        loss_of(usual, inputs, targets).backward()
        theirs.step()
    assert scaler.get_scale() == 256
    assert int(ours.state[scaled[0].weight]["rays:round"]) == 38
    assert_close(scaled.parameters(), usual.parameters())


def test_a_grad_scaler_can_unscale_before_clipping():
    scaled, usual = network(), network()
    ours, theirs = make(scaled.parameters()), make(usual.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    for inputs, targets in zip(*regression(), strict=True):
        for model, optimizer in ((scaled, ours), (usual, theirs)):
            optimizer.zero_grad()
            loss = loss_of(model, inputs, targets)
            (scaler.scale(loss) if model is scaled else loss).backward()
            if model is scaled:
                scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(ours)
        scaler.update()
        theirs.step()
    assert_close(scaled.parameters(), usual.parameters())


# Parameters of 16 bits


@pytest.mark.parametrize("foreach", [True, False], ids=["packed", "plain"])
@pytest.mark.parametrize("base", ["adam", "sgd", "momentum", "muon"])
def test_steps_too_small_for_16_bits_add_up(base, foreach):
    short = torch.nn.Parameter(torch.ones(8, dtype=torch.bfloat16))
    long = torch.nn.Parameter(torch.ones(8))
    optimizers = [one_rate([p], base, rate=1e-4, foreach=foreach) for p in (long, short)]
    for _ in range(300):
        for p, optimizer in zip((long, short), optimizers, strict=True):
            p.grad = torch.ones_like(p)
            optimizer.step()
    assert long.max() < 0.98
    assert torch.tensor(1 - 1e-4).bfloat16() == 1  # one step alone would be lost
    assert_close([short.float()], [long], atol=0.004)


def test_weight_decay_too_small_for_16_bits_adds_up():
    short = torch.nn.Parameter(torch.ones(8, dtype=torch.bfloat16))
    optimizer = one_rate([short], "sgd", rate=1e-3, weight_decay=0.5)
    for _ in range(400):
        short.grad = torch.zeros_like(short)
        optimizer.step()
    assert short.float().mean().item() == pytest.approx((1 - 5e-4) ** 400, abs=0.004)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", ["adam-samuel", "adagrad-theorem", "momentum-Kr", "sgd-levels", "muon-samuel"])
def test_parameters_of_16_bits_go_where_those_of_32_bits_go(name, dtype):
    long = parameters()
    for p in long:
        p.data.copy_(p.detach().to(dtype))
    short = [torch.nn.Parameter(p.detach().to(dtype)) for p in long]
    optimizers = [Samuel(params, **CONFIGURATIONS[name]) for params in (short, long)]
    feed(optimizers, range(60))
    assert {p.dtype for p in short} == {dtype}
    assert_close([p.float() for p in short], long, atol=4 * torch.finfo(dtype).eps)
    assert optimizers[0].effective_lr == pytest.approx(optimizers[1].effective_lr, rel=1e-3)


def test_a_network_of_16_bits_is_trained():
    model, usual = network().bfloat16(), network()
    for net in (model, usual):
        optimizer = make(net.parameters())
        kind = next(net.parameters()).dtype
        for inputs, targets in zip(*regression(), strict=True):
            optimizer.zero_grad()
            loss_of(net, inputs.to(kind), targets.to(kind)).backward()
            optimizer.step()
    whole = [part.flatten(0, 1) for part in regression()]
    assert loss_of(model.float(), *whole) < 1.2 * loss_of(usual, *whole) < loss_of(network(), *whole)


# Compiled


def compile_and_compare(backend, batches):
    """Train with a compiled step and with a plain one."""
    compiled, usual = ((torch.manual_seed(0), torch.nn.Linear(3, 1))[1] for _ in range(2))
    ours, theirs = make(compiled.parameters()), make(usual.parameters())

    def step(model, optimizer, inputs, targets):
        optimizer.zero_grad()
        loss = loss_of(model, inputs, targets)
        value = loss.detach()
        loss.backward()
        optimizer.step()
        return value

    torch.compiler.reset()
    fast = torch.compile(step, backend=backend)
    for batch in batches:
        torch.testing.assert_close(fast(compiled, ours, *batch), step(usual, theirs, *batch), rtol=1e-4, atol=1e-6)
    assert_close(compiled.parameters(), usual.parameters())
    assert ours.effective_lr == pytest.approx(theirs.effective_lr, rel=1e-3)
    assert int(ours.state[compiled.weight]["rays:round"]) == len(batches)


def test_a_compiled_training_step_does_the_same_and_is_compiled_once():
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    batches = list(zip(*regression(), strict=True))
    compile_and_compare(backend, batches)
    assert len(graphs) == 1


# Torch's own compiler imports what torch itself calls deprecated, and older ones warn of settings of their own.
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:Skipping serialization of skipfiles_inline_module_allowlist:UserWarning")
@pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="needs a C++ compiler")
@pytest.mark.skipif(" " in torch.__file__, reason="torch's compiler does not bear a space in the path of its headers")
def test_a_training_step_compiled_by_the_usual_compiler_does_the_same():
    compile_and_compare("inductor", list(zip(*regression(), strict=True))[:10])


# Refusing what cannot work


REFUSED = {
    "negative lr": ({"lr": -1.0}, ValueError, "lr must be .* at least 0, got -1.0"),
    "nan lr": ({"lr": float("nan")}, ValueError, "lr must be .* got nan"),
    "infinite lr": ({"lr": float("inf")}, ValueError, "lr must be .* got inf"),
    "lr of words": ({"lr": "fast"}, ValueError, "lr must be a number .* got 'fast'"),
    "no lr": ({"lr": None}, ValueError, "lr must be a number .* got None"),
    "true lr": ({"lr": True}, ValueError, "lr must be a number .* got True"),
    "several lr": ({"lr": torch.ones(2)}, ValueError, r"lr must be one number, got a tensor of shape \(2,\)"),
    "negative tensor lr": ({"lr": torch.tensor(-1.0)}, ValueError, "lr must be .* at least 0, got .*-1"),
    "nan tensor lr": ({"lr": torch.tensor(float("nan"))}, ValueError, "lr must be .* at least 0, got .*nan"),
    "no rates": ({"lrs": ()}, ValueError, "learning_rates is empty"),
    "negative rate": ({"lrs": (0.1, -0.5)}, ValueError, "positive and finite, got -0.5"),
    "nan rate": ({"lrs": (0.1, float("nan"))}, ValueError, "positive and finite, got nan"),
    "same rates": ({"lrs": (0.1, 0.1)}, ValueError, r"differ from each other, got \(0.1, 0.1\)"),
    "one number for rates": ({"lrs": 0.1}, ValueError, "must be a list of numbers, got 0.1"),
    "words for rates": ({"lrs": "abc"}, ValueError, "must be a list of numbers, got 'abc'"),
    "unknown base": ({"base": "adamm"}, ValueError, "base must be one of 'adam', .* got 'adamm'"),
    "no base": ({"base": None}, TypeError, "base must be one of 'adam', .* got None"),
    "a function as base": ({"base": len}, TypeError, "optimizer class such as torch.optim.Adam, got <built-in"),
    "an instance as base": (
        {"base": torch.optim.SGD(parameters(), lr=0.1)},
        TypeError,
        "got an instance of SGD; pass SGD itself",
    ),
    "LBFGS as base": ({"base": torch.optim.LBFGS}, ValueError, "LBFGS cannot be a base: it evaluates the loss"),
    "SparseAdam as base": (
        {"base": torch.optim.SparseAdam},
        ValueError,
        "SparseAdam cannot be a base: it is for sparse",
    ),
    "a base with a rate": (
        {"base": functools.partial(torch.optim.SGD, lr=0.1)},
        ValueError,
        "leave lr=0.1 out of it, and list candidates with lrs=",
    ),
    "a base with parameters": (
        {"base": functools.partial(torch.optim.SGD, parameters())},
        ValueError,
        "keyword arguments only",
    ),
    "unknown option": ({"momentum": 0.9}, TypeError, "'momentum' is neither an option of Samuel nor of Adam, whose"),
    "bad option of the base": ({"betas": (2.0, 0.9)}, ValueError, "beta parameter at index 0: 2.0"),
    "differentiable": ({"differentiable": True}, ValueError, "differentiable must be False, got True"),
    "unknown rule": ({"rule": "samuell"}, ValueError, "rule must be one of 'samuel', .* got 'samuell'"),
    "a rule without its horizon": ({"rule": "R"}, ValueError, "decay='linear' .* give horizon="),
    "no horizon": ({"horizon": 0}, ValueError, "horizon must be a whole number .* got 0"),
    "half a horizon": ({"horizon": 2.5}, ValueError, "horizon must be a whole number .* got 2.5"),
    "half a tensor as horizon": ({"horizon": torch.tensor(2.5)}, ValueError, "horizon must be .* got 2.5"),
    "not a cover": ({"cover": "weekly"}, ValueError, "cover must be one of Watched, .* got 'weekly'"),
    "all intervals": ({"cover": samuel.core.AllIntervals(10)}, ValueError, "cover must be one of .* got AllIntervals"),
    "no last level": ({"cover": samuel.core.Anytime()}, ValueError, "say how many, as in Anytime"),
    "no Q": ({"Q": 0}, ValueError, "Q must be a whole number of at least 1, got 0"),
    "unknown scale": ({"scale": "min"}, ValueError, "scale must be 'rms', 'max' or a bound .* got 'min'"),
    "negative scale": ({"scale": -1.0}, ValueError, "scale must be .* got -1.0"),
    "unknown mixture": ({"combine": "votes"}, ValueError, "combine must be one of .* got 'votes'"),
    "unknown newborns": ({"newborns": "old"}, ValueError, "newborns must be one of .* got 'old'"),
    "infinite prior": ({"prior": float("inf")}, ValueError, "prior must be .* got inf"),
    "unknown decay": ({"decay": "cosine"}, ValueError, "decay must be one of .* got 'cosine'"),
    "too much lag": ({"lag": 1.0}, ValueError, "lag must be .* below 1, got 1.0"),
    "unknown reference": ({"reference": "best"}, ValueError, "reference must be one of .* got 'best'"),
    "unknown short rates": ({"short_rates": "below"}, ValueError, "short_rates must be one of .* got 'below'"),
    "too much takeover": ({"takeover": 2}, ValueError, "takeover must be .* got 2"),
    "takeover of nothing": (
        {"takeover": 0.5, "cover": samuel.core.Anytime(4, levels=2)},
        ValueError,
        "takeover is for the long block of a Watched cover, got Anytime",
    ),
    "half an alarm": ({"alarm": 0.5}, ValueError, "alarm must be a number above 1 .* got 0.5"),
    "settled before": ({"settle": -1.0}, ValueError, "settle must be a number above 0 .* got -1.0"),
    "settled by the theorem": (
        {"rule": "theorem", "settle": 9.0},
        ValueError,
        "only scale='rms' allows, got scale='max'",
    ),
    "experience before": ({"experience": -1.0}, ValueError, "experience must be a number above 0 .* got -1.0"),
    "endless experience": ({"experience": float("inf")}, ValueError, "experience must be .* got inf"),
    "experience of two numbers": ({"experience": torch.ones(2)}, ValueError, "experience must be .* got tensor"),
    "experience of nothing": (
        {"rule": "R", "horizon": 9, "experience": 9.0},
        ValueError,
        "only with settle do they fade, got settle=None; give settle=",
    ),
    "endless patience": ({"patience": float("inf")}, ValueError, "patience must be .* got inf"),
    "complex patience": ({"patience": torch.tensor(1j)}, ValueError, "patience must be a number .* got tensor"),
    "patience of two numbers": ({"patience": torch.ones(2)}, ValueError, "patience must be a number .* got tensor"),
    "negative average": ({"average": -1.0}, ValueError, "average must be .* at least 0 .* got -1.0"),
    "one tensor as buffers": ({"buffers": torch.zeros(2)}, TypeError, "a module or a list of tensors, got one tensor"),
    "negative collapse": ({"collapse": -0.5}, ValueError, "collapse must be .* got -0.5"),
    "unknown base state": ({"base_state": "own"}, ValueError, "base_state must be one of .* got 'own'"),
    "negative weight decay": ({"weight_decay": -0.1}, ValueError, "weight_decay must be .* at least 0, got -0.1"),
    "weight decay of words": ({"weight_decay": "some"}, ValueError, "weight_decay must be a number .* got 'some'"),
    "anchors of whole numbers": ({"anchor_dtype": torch.int8}, ValueError, "anchor_dtype must be .* got torch.int8"),
    "anchors of words": ({"anchor_dtype": "bf16"}, ValueError, "anchor_dtype must be .* got 'bf16'"),
    "half a maximum": ({"maximize": 1}, ValueError, "maximize must be True or False, got 1"),
    "half a foreach": ({"foreach": "fast"}, ValueError, "foreach must be one of .* got 'fast'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_arguments_are_refused_by_name_and_value(name):
    options, error, message = REFUSED[name]
    with pytest.raises(error, match=message):
        Samuel(parameters(), **options)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("horizon", 30),
        ("lag", 0.5),
        ("alarm", 5.0),
        ("settle", 30.0),
        ("experience", 30.0),
        ("patience", 30.0),
        ("average", 2.0),
    ],
)
def test_an_option_may_be_a_tensor_of_no_dimension(option, value):
    ends = []
    for same in (value, torch.tensor(float(value))):
        params = parameters()
        train(make(params, **{option: same}), params, range(20))
        ends.append(values(params))
    assert_equal(*ends)


@pytest.mark.parametrize(
    ("option", "value"), [("lr", -1.0), ("lr", "fast"), ("weight_decay", -0.1), ("maximize", "yes")]
)
def test_bad_options_of_a_group_are_refused_and_change_nothing(option, value):
    with pytest.raises(ValueError, match=f"{option} .* got {value!r}"):
        make([{"params": parameters(), option: value}])
    optimizer = make(parameters())
    with pytest.raises(ValueError, match=f"{option} .* got {value!r}"):
        optimizer.add_param_group({"params": parameters(), option: value})
    assert len(optimizer.param_groups) == 1


@pytest.mark.parametrize(
    "cover", [Geometric(64, 16), Fixed(8), Chosen((5, 9)), Watched(4, 1), Watched(short=0)], ids=str
)
def test_every_cover_that_fits_in_memory_runs(cover):
    params = parameters()
    optimizer = Samuel(params, "adam", cover=cover)
    train(optimizer, params, range(30))
    assert optimizer.weights().sum().item() == pytest.approx(1, abs=1e-5)
    assert not torch.equal(params[0], parameters()[0])


# What is frozen, and what changes in the middle of a run


def test_frozen_parameters_cost_nothing_whatever_they_are_made_of():
    """A backbone that is not trained, or not even of real numbers, in `model.parameters()`."""
    backbone = torch.nn.Parameter(torch.ones(1000), requires_grad=False)
    quantised = torch.nn.Parameter(torch.ones(1000, dtype=torch.uint8), requires_grad=False)
    params, alone = parameters(), parameters()
    optimizer = Samuel([backbone, quantised, *params])
    train(optimizer, params, range(20))
    train(Samuel(alone), alone, range(20))
    assert_close(params, alone)
    assert backbone not in optimizer.state
    assert quantised not in optimizer.state
    assert torch.equal(backbone, torch.ones(1000))


def test_parameters_that_thaw_join_where_they_stand():
    params = parameters()
    params[1].requires_grad_(False)
    optimizer = Samuel(params)
    train(optimizer, [params[0], *params[2:]], range(10))
    params[1].requires_grad_(True)
    before = params[1].detach().clone()
    train(optimizer, params, range(10, 14))
    assert not torch.equal(params[1], before)
    assert int(optimizer.state[params[0]]["rays:round"]) == 14


@pytest.mark.parametrize("kind", ["number", "tensor"])
def test_an_lr_of_0_stops_the_parameters(kind):
    """Also what they would do because weights move from one rate to another."""
    params = parameters()
    optimizer = Samuel(params, "adam")
    train(optimizer, params, range(60))
    optimizer.param_groups[0]["lr"] = 0.0 if kind == "number" else torch.tensor(0.0)
    before = [p.detach().clone() for p in params]
    train(optimizer, params, range(60, 120))
    for p, old in zip(params, before, strict=True):
        assert torch.equal(p, old)


def test_a_parameter_that_changes_its_group_obeys_the_new_one():
    a, b, c = parameters(((3,), (3,), (3,)))
    optimizer = Samuel([{"params": [a, b]}, {"params": [c], "lr": 0.0}])
    train(optimizer, [a, b, c], range(3))
    optimizer.param_groups[1]["params"].insert(0, optimizer.param_groups[0]["params"].pop())
    before = b.detach().clone()
    train(optimizer, [a, b, c], range(3, 6))
    assert torch.equal(b, before)
    group = optimizer.param_groups.pop()
    optimizer.param_groups[0]["params"] += group["params"]
    train(optimizer, [a, b, c], range(6, 9))
    assert not torch.equal(b, before)


def test_rates_that_are_edited_in_a_run_are_refused():
    params = parameters()
    optimizer = make(params)
    train(optimizer, params, range(3))
    before = snapshot(optimizer)
    optimizer.param_groups[0]["lrs"] = (1e-3, 1e-2)
    with pytest.raises(ValueError, match=r"cannot change in a run.*lrs=\(0.001, 0.01\)"):
        train(optimizer, params, [3])
    optimizer.param_groups[0]["lrs"] = before["groups"][0]["lrs"] if "groups" in before else optimizer._lrs
    train(optimizer, params, [3])


def test_empty_groups_are_welcome_at_any_time():
    params = parameters()
    optimizer = Samuel([{"params": []}, {"params": params}])
    train(optimizer, params, range(3))
    optimizer.add_param_group({"params": []})
    train(optimizer, params, range(3, 5))
    assert optimizer.weights(0).sum() == pytest.approx(1.0)
    assert int(optimizer.state[params[0]]["rays:round"]) == 5


def test_a_new_group_with_rates_of_its_own_begins_at_the_beginning():
    a, b, c = parameters(((3,), (3,), (3,)))
    optimizer = Samuel([{"params": [a]}, {"params": [b], "lrs": (1e-4, 1e-3)}])
    train(optimizer, [a, b], range(20))
    optimizer.param_groups.pop(1)
    optimizer.add_param_group({"params": [c], "lrs": (1e-3, 1e-2)})
    train(optimizer, [a, c], [20])
    assert int(optimizer.state[c]["rays:round"]) == 1
    assert int(optimizer.state[a]["rays:round"]) == 21


def test_reading_changes_nothing():
    a, b = parameters(((3,), (3,)))
    optimizer = Samuel([{"params": [a]}, {"params": [b]}])
    train(optimizer, [a, b], range(5))
    optimizer.param_groups.pop(0)
    names = list(optimizer.state[b])
    optimizer.weights(), optimizer.certificate(), optimizer.shifts
    assert list(optimizer.state[b]) == names


@pytest.mark.parametrize("name", ["lr", "betas"])
def test_a_step_that_fails_does_not_move_the_clock(name):
    params = parameters()
    optimizer = Samuel(params, torch.optim.Adam)
    train(optimizer, params, range(5))
    before = [p.detach().clone() for p in params]
    optimizer.param_groups[0][name] = {"lr": "fast", "betas": ("x", 0.9)}[name]
    with pytest.raises((TypeError, ValueError, RuntimeError)):
        train(optimizer, params, [5])
    assert int(optimizer.state[params[0]]["rays:round"]) == 5
    for p, old in zip(params, before, strict=True):
        assert torch.equal(p, old)


def test_a_group_that_an_lr_of_0_stops_has_no_say_in_the_rate_of_the_others():
    """Its gradient does not change any more, and would go on praising rates that it does not follow."""
    rates = {}
    for way in ("frozen", "lr of 0"):
        a, b = parameters(((5,), (5,)))
        optimizer = Samuel([{"params": [a]}, {"params": [b]}])
        train(optimizer, [a, b], range(30))
        if way == "frozen":
            b.requires_grad_(False)
            optimizer.zero_grad()
        else:
            optimizer.param_groups[1]["lr"] = 0.0
        train(optimizer, [a] if way == "frozen" else [a, b], range(30, 90))
        rates[way] = optimizer.param_groups[0]["effective_lr"]
    assert rates["lr of 0"] == pytest.approx(rates["frozen"], rel=1e-3)


def test_a_scheduler_that_ends_a_rounding_below_0_stops_the_run_and_does_not_break_it():
    params = parameters()
    optimizer = Samuel(params)
    train(optimizer, params, range(5))
    before = [p.detach().clone() for p in params]
    for lr in (-2e-17, 2e-17):
        optimizer.param_groups[0]["lr"] = lr
        train(optimizer, params, range(5, 8))
    for p, old in zip(params, before, strict=True):
        assert torch.equal(p, old)
