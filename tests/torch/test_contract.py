"""It is a torch optimizer: everything that people, schedulers and trainers rely on in one holds in this one."""

import functools
import warnings

import pytest
import torch
from torch.optim import lr_scheduler
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from tests.torch.configurations import (
    CONFIGURATIONS,
    assert_close,
    assert_equal,
    assert_same_snapshot,
    feed,
    gradients,
    one_rate,
    parameters,
    rates,
    rounds,
    samuel,
    snapshot,
    train,
    values,
)

PLAIN = "adam-untold"
"""The configuration of tests that one is enough for."""


def make(params, **options):
    return samuel(params, **{**CONFIGURATIONS[PLAIN], **options})


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
    loss, shapes, usual = PROBLEMS[problem]
    params = parameters(shapes)
    unscaled = name.startswith("sgd")
    optimizer = samuel(params, **CONFIGURATIONS[name], learning_rates=usual if unscaled else None)
    before = loss(params).item()
    descend(optimizer, lambda: loss(params), 40)
    assert loss(params) < 0.9 * before


@pytest.mark.parametrize("base", ["adam", "sgd", "muon", torch.optim.Adagrad])
def test_without_any_option_it_gets_there(base):
    loss, shapes, _ = PROBLEMS["least squares"]
    params = parameters(shapes)
    before = loss(params).item()
    descend(samuel(params, base), lambda: loss(params), 300)
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
    assert_close(values(model.parameters()), values(usual.parameters()))  # sums are in another order
    torch.optim.SGD(FORMS[form](network()), lr=0.1)  # so does torch


def test_names_of_parameters_are_kept():
    model = network()
    optimizer = make(model.named_parameters())
    train(optimizer, list(model.parameters()), range(2))
    names = [["0.weight"], ["0.bias", "2.weight", "2.bias"]]
    assert [group["param_names"] for group in optimizer.param_groups] == names
    assert [group["param_names"] for group in optimizer.state_dict()["param_groups"]] == names
    assert list(optimizer.roles) == [name for group in optimizer.param_groups for name in group["param_names"]]


def test_groups_have_their_own_options():
    ours, theirs = parameters(((3,),) * 4), parameters(((3,),) * 4)
    groups = [
        {},
        {"betas": (0.5, 0.9), "eps": 1e-4},
        {"weight_decay": 0.5, "lr": 0.5},
        {"maximize": True},
    ]
    mine = one_rate([{"params": [p], **own} for p, own in zip(ours, groups, strict=True)], torch.optim.AdamW, rate=0.1)
    train(mine, ours, range(30))
    other = torch.optim.AdamW(
        [{"params": [p], **own, "lr": 0.1 * own.get("lr", 1.0)} for p, own in zip(theirs, groups, strict=True)],
        weight_decay=0.0,
    )
    train(other, theirs, range(30))
    assert_close(ours, theirs)
    assert [group["effective_lr"] for group in mine.param_groups] == pytest.approx([0.1, 0.1, 0.05, 0.1])


REFUSED_PARAMETERS = {
    "a tensor": (lambda: torch.nn.Parameter(torch.zeros(2)), TypeError, "params argument"),
    "nothing": (list, ValueError, "empty parameter list"),
    "None": (lambda: None, TypeError, "NoneType"),
    "a set in a group": (lambda: [{"params": set(parameters())}], TypeError, "sets"),
    "strings": (lambda: ["weight"], TypeError, "str"),
    "not leaves": (lambda: [parameters()[0] * 2], ValueError, "non-leaf"),
    "twice": (lambda: [{"params": p} for p in parameters()[:1] * 2], ValueError, "twice|more than one parameter group"),
    "a group without parameters": (lambda: [{"lr": 1.0}], KeyError, "params"),
}


@pytest.mark.parametrize("name", REFUSED_PARAMETERS)
def test_what_cannot_be_trained_is_refused(name):
    build, error, message = REFUSED_PARAMETERS[name]
    with pytest.raises(error, match=message):
        samuel(build())


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
    groups = len(optimizer.param_groups)
    with pytest.raises(error, match=message):
        optimizer.add_param_group(group)
    assert len(optimizer.param_groups) == groups
    assert_same_snapshot(before, snapshot(optimizer))


# Gradients


def test_sparse_gradients_are_refused_before_anything_changes():
    embedding = torch.nn.Embedding(4, 2, sparse=True)
    dense = parameters(((3,),))
    optimizer = make([*dense, embedding.weight])
    embedding(torch.tensor([1])).sum().backward()
    dense[0].grad = torch.ones(3)
    before = snapshot(optimizer)
    with pytest.raises(RuntimeError, match=r"sparse gradients, got one for parameter '0' of shape \(4, 2\)"):
        optimizer.step()
    assert_same_snapshot(before, snapshot(optimizer))


@pytest.mark.parametrize("base", ["adam", "sgd", "muon"])
def test_a_parameter_without_gradients_stays_and_the_others_learn_as_if_alone(base):
    options = {"base": base, "weight_decay": 0.1}
    params, alone = parameters(((7, 5), (6, 4), (3, 2, 2), ())), parameters(((7, 5), (6, 4), (3, 2, 2), ()))
    still = params[1]
    before = still.detach().clone()
    groups = [[{"params": some[:-2], "role": "matrix"}, {"params": some[-2:]}] for some in (params, alone)]
    optimizer = samuel(groups[0], **options)
    others, rest = [p for p in params if p is not still], [alone[0], *alone[2:]]
    train(optimizer, others, range(50))
    groups[1][0]["params"].pop(1)
    single = samuel(groups[1], **options)
    train(single, rest, range(50))
    assert still.grad is None
    assert_equal([still], [before])
    assert_close(others, rest)
    assert rates(optimizer)[0] == pytest.approx(rates(single)[0], rel=1e-3)


@pytest.mark.parametrize("name", ["adam-untold", "sgd-averaged", "muon-told"])
def test_without_any_gradient_nothing_happens_and_no_time_passes(name):
    params = parameters()
    optimizer = samuel(params, **CONFIGURATIONS[name])
    optimizer.step()
    assert_equal(values(params), values(parameters()))
    train(optimizer, params, range(5))
    optimizer.zero_grad()
    before = snapshot(optimizer)
    for _ in range(20):
        optimizer.step()
    assert_same_snapshot(before, snapshot(optimizer))


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
    optimizer = samuel(params, **CONFIGURATIONS[name])
    for group in optimizer.param_groups:
        group["weight_decay"] = 0.0
    for p in params:
        p.grad = torch.zeros_like(p)
    for _ in range(20):
        optimizer.step()
    assert_equal(values(params), values(parameters()))
    train(optimizer, params, range(5))
    assert not torch.equal(params[0], parameters()[0])


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("base", ["adam", "sgd", "muon", torch.optim.Rprop, torch.optim.ASGD])
def test_gradients_are_read_and_never_written(base, maximize):
    params = parameters()
    optimizer = samuel(params, base, maximize=maximize, weight_decay=0.1)
    for step in range(5):
        found = gradients(params, step)
        copies = [gradient.clone() for gradient in found]
        for p, gradient in zip(params, found, strict=True):
            p.grad = gradient
        optimizer.step()
        assert_equal(found, copies)
        assert all(p.grad is gradient and gradient._version == 0 for p, gradient in zip(params, found, strict=True))


@pytest.mark.parametrize("name", ["adam-untold", "sgd-averaged", "muon-told"])
def test_to_maximize_is_to_minimize_the_negative(name):
    down, up = parameters(), parameters()
    descending = samuel(down, **CONFIGURATIONS[name])
    ascending = samuel(up, **CONFIGURATIONS[name], maximize=True)
    for step in range(40):
        found = gradients(down, step)
        for p, q, gradient in zip(down, up, found, strict=True):
            p.grad, q.grad = gradient, -gradient
        descending.step()
        ascending.step()
    assert_equal(values(up), values(down))
    assert rates(ascending)[0] == rates(descending)[0]


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
@pytest.mark.filterwarnings("ignore:rates fall twice")
@pytest.mark.parametrize("base", [torch.optim.Adam, torch.optim.NAdam])
@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedulers_drive_the_multiplier(name, base):
    ours, theirs = parameters(), parameters()
    mine = one_rate(ours, base, rate=0.05)
    our_rates = scheduled(mine, ours, SCHEDULERS[name], scale=1.0)
    their_rates = scheduled(base(theirs, lr=0.05), theirs, SCHEDULERS[name], scale=0.05)
    assert [0.05 * rate for rate in our_rates] == pytest.approx(their_rates)
    assert len(set(our_rates)) > 2
    assert_close(ours, theirs)
    assert rates(mine)[0] == pytest.approx(their_rates[-1])


def test_a_multiplier_of_zero_stops_the_base():
    params = parameters()
    optimizer = make(params, lr=0.0, weight_decay=0.1)
    train(optimizer, params, range(40))
    assert_equal(values(params), values(parameters()))
    assert rates(optimizer)[0] == 0
    optimizer.param_groups[0]["lr"] = 1.0
    train(optimizer, params, range(40, 45))
    assert not torch.equal(params[0], parameters()[0])
    assert rates(optimizer)[0] > 0


@pytest.mark.parametrize("shape", [(), (1,)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_multiplier_may_be_a_tensor(dtype, shape):
    params, usual = parameters(), parameters()
    train(make(usual, lr=0.5, weight_decay=0.1), usual, range(30))
    optimizer = make(params, lr=torch.full(shape, 0.5, dtype=dtype), weight_decay=0.1)
    train(optimizer, params, range(30))
    assert_close(params, usual)
    assert isinstance(rates(optimizer)[0], float)
    assert isinstance(optimizer.param_groups[0]["lr"], torch.Tensor)
    optimizer.param_groups[0]["lr"].fill_(0.0)
    train(optimizer, params, [30])
    assert rates(optimizer)[0] == 0


@pytest.mark.filterwarnings("ignore:rates fall twice")
def test_schedulers_drive_a_multiplier_that_is_a_tensor():
    seen = []
    for lr in (1.0, torch.tensor(1.0)):
        params = parameters()
        seen.append(scheduled(one_rate(params, "adam", lr=lr), params, SCHEDULERS["cosine"], 1.0))
    assert seen[1] == pytest.approx(seen[0], rel=1e-5)


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


# Groups that come later


@pytest.mark.parametrize("base", ["adam", "muon", torch.optim.NAdam])
def test_parameters_that_come_later_join_where_they_stand(base):
    usual, params = parameters(((3,), (2, 2))), parameters(((3,), (2, 2)))
    late = torch.nn.Parameter(torch.full((4,), 2.0))
    alone, optimizer = samuel(usual, base), samuel(params, base)
    train(alone, usual, range(21))
    train(optimizer, params, range(21))
    optimizer.add_param_group({"params": [late]})
    assert rates(optimizer)[-1] == pytest.approx(rates(optimizer)[-2])
    for step in range(21, 30):  # as long as the newcomer has no slope, nobody notices it
        late.grad = torch.zeros(4)
        train(alone, usual, [step])
        train(optimizer, params, [step])
    assert_close(params, usual)
    assert_equal([late], [torch.full((4,), 2.0)])
    for _ in range(200):
        descend(optimizer, lambda: (late - 1).square().sum() + sum((p - 1).square().sum() for p in params), 1)
    assert (late - 1).abs().max() < 0.3
    assert rounds(optimizer) == 230


@pytest.mark.parametrize("change", [lambda groups: groups.reverse(), lambda groups: groups.pop(0)], ids=["turn", "go"])
def test_groups_may_leave_and_change_places(change):
    params = parameters()
    optimizer = make([{"params": params[:1]}, {"params": params[1:]}])
    train(optimizer, params, range(20))
    before = optimizer.weights()
    change(optimizer.param_groups)
    assert_equal([optimizer.weights()], [before])
    left = [p for group in optimizer.param_groups for p in group["params"]]
    train(optimizer, left, [20])
    assert rounds(optimizer) == 21
    assert not torch.equal(optimizer.weights(), before)


@pytest.mark.parametrize("base", ["adam", "sgd", "muon", torch.optim.Rprop, torch.optim.NAdam])
def test_a_parameter_can_be_frozen_in_mid_run_and_thawed(base):
    params = parameters()
    optimizer = samuel(params, base, weight_decay=0.1)
    train(optimizer, params, range(20))
    frozen = params[0]
    frozen.grad = None
    before = values(params)
    train(optimizer, params[1:], range(20, 55))  # the search begins anew in between
    assert_equal([frozen], before[:1])
    assert all(not torch.equal(p, q) for p, q in zip(params[1:], before[1:], strict=True))
    train(optimizer, params, range(55, 60))
    assert not torch.equal(frozen, before[0])
    assert all(p.isfinite().all() for p in params)


# Diagnostics


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_weights_are_relative_to_their_prior(name):
    params = parameters()
    optimizer = samuel(params, **CONFIGURATIONS[name], learning_rates=(0.1, 0.001, 0.01))
    searches = 2 if name.startswith("muon") else 1
    assert_close([optimizer.weights()], [torch.full((searches, 3), 1 / 3)])
    train(optimizer, params, range(20))
    assert_close([optimizer.weights().sum(1)], [torch.ones(searches)])
    assert (optimizer.weights() - 1 / 3).abs().max() > 0.01


def test_the_effective_rate_is_what_a_step_was_taken_with():
    (p,) = parameters(((5,),))
    optimizer = samuel([p], "sgd", lr=0.5)
    before = p.detach().clone()
    train(optimizer, [p], [0])  # all candidates begin at the parameters: there is nothing but the step
    assert_close([before - rates(optimizer)[0] * p.grad], [p], atol=1e-6)


def test_a_change_of_the_data_is_counted_as_a_shift():
    params = parameters(((20,),))
    optimizer = make(params)
    for step in range(100):
        scale = 1.0 if step < 60 else 10.0
        params[0].grad = scale * torch.randn(20, generator=torch.Generator().manual_seed(step))
        optimizer.step()
    assert optimizer.shifts == 1
    ignoring = make(params, on_shift="ignore")
    for step in range(100):
        params[0].grad = (1.0 if step < 60 else 10.0) * torch.ones(20)
        ignoring.step()
    assert ignoring.shifts == 0


# Bad gradients


@pytest.mark.parametrize("name", ["adam-untold", "sgd-averaged", "muon-told"])
def test_a_gradient_that_is_not_finite_is_skipped_and_counted(name):
    params = parameters()
    optimizer = samuel(params, **CONFIGURATIONS[name])
    train(optimizer, params, range(5))
    before = values(params)
    params[0].grad = torch.full_like(params[0], float("nan"))
    optimizer.step()
    assert_equal(values(params), before)
    assert optimizer.skipped == 1
    train(optimizer, params, range(5, 60))
    assert optimizer.skipped == 1
    assert all(p.isfinite().all() for p in params)


@pytest.mark.parametrize("base", ["sgd", torch.optim.SGD, functools.partial(torch.optim.SGD, momentum=0.9)])
@pytest.mark.parametrize("steps", [None, 1000])
def test_plain_gradient_descent_goes_down_rosenbrocks_valley(base, steps):
    p = torch.nn.Parameter(torch.tensor([-1.2, 1.0]))
    optimizer = samuel([p], base, steps=steps, weight_decay=0.0)
    before = rosenbrock([p]).item()
    descend(optimizer, lambda: rosenbrock([p]), 1000)
    assert rosenbrock([p]) < 0.05 * before


def test_clipping_in_the_optimizer_scales_the_gradient_and_hides_no_shift():
    (usual,), (params,) = parameters(((5,),)), parameters(((5,),))
    clipped = one_rate([params], torch.optim.SGD, clip=0.5)
    for step in range(100):
        gradient = torch.randn(5, generator=torch.Generator().manual_seed(step)) * (1 if step < 60 else 10)
        params.grad = gradient
        clipped.step()
        with torch.no_grad():
            usual -= 0.05 * gradient * min(1, 0.5 / gradient.norm().item())
    assert_close([params], [usual])


# Schedules and numbers of steps


def train_scheduled(optimizer, params, schedule, steps):
    for step in range(steps):
        train(optimizer, params, [step])
        schedule.step()


def test_what_looks_like_a_learning_rate_is_warned_about():
    with pytest.warns(UserWarning, match="lr=0.001 multiplies the learning rate that Samuel finds"):
        make(parameters(), lr=1e-3)


def test_a_one_cycle_that_never_comes_near_1_is_warned_about_once():
    params = parameters()
    optimizer = make(params)
    schedule = lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=100)
    with pytest.warns(UserWarning, match="multiplies the learning rate") as seen:
        train_scheduled(optimizer, params, schedule, 90)
    assert len(seen) == 1


def test_a_constant_multiplier_of_a_scheduler_that_looks_like_a_rate_is_warned_about_once():
    params = parameters()
    optimizer = make(params)
    schedule = lr_scheduler.LambdaLR(optimizer, lambda step: 1e-3)
    with pytest.warns(UserWarning, match=r"lr=0.001 multiplies the learning rate") as seen:
        train_scheduled(optimizer, params, schedule, 60)
    assert len(seen) == 1


def test_a_warm_up_over_a_thousand_steps_is_not_warned_about():
    params = parameters()
    optimizer = make(params)
    schedule = lr_scheduler.LinearLR(optimizer, start_factor=1e-3, total_iters=1000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train_scheduled(optimizer, params, schedule, 120)


@pytest.mark.parametrize("name", ["warm-up", "cosine", "one cycle", "sequential", "cyclic"])
def test_schedules_around_1_are_not_warned_about(name):
    params = parameters()
    optimizer = make(params)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "lr=|rates fall")
        scheduled(optimizer, params, SCHEDULERS[name], 1.0, steps=40)


def test_a_schedule_that_falls_on_top_of_told_steps_is_warned_about_once():
    params = parameters()
    optimizer = make(params, steps=60)
    schedule = lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=60)
    with pytest.warns(UserWarning, match=r"rates fall twice: with Samuel\(steps=60\)") as seen:
        train_scheduled(optimizer, params, schedule, 50)
    assert len(seen) == 1


def test_past_its_end_a_run_keeps_the_last_rate_and_warns_once():
    params = parameters()
    optimizer = make(params, steps=30, on_shift="ignore")
    train(optimizer, params, range(30))
    last, before = rates(optimizer)[0], values(params)
    with pytest.warns(UserWarning, match="continues beyond steps=30: the last learning rate is kept") as seen:
        train(optimizer, params, range(30, 40))
    assert len(seen) == 1
    assert rates(optimizer)[0] == pytest.approx(last, rel=0.2)
    assert max((p - q).abs().max() for p, q in zip(params, before, strict=True)) < 0.3


def test_an_extended_run_goes_on_without_a_leap_and_falls_to_its_new_end():
    params = parameters()
    optimizer = make(params, steps=50, on_shift="ignore", learning_rates=(0.05,))
    train(optimizer, params, range(50))
    last = rates(optimizer)[0]
    optimizer.extend(100)
    assert optimizer.steps == 100
    train(optimizer, params, [50])
    assert rates(optimizer)[0] < 2 * last
    train(optimizer, params, range(51, 76))
    assert rates(optimizer)[0] == pytest.approx(0.05 * 0.25, rel=1e-5)
    train(optimizer, params, range(76, 100))
    assert rates(optimizer)[0] == pytest.approx(0.05 * 0.01, rel=1e-5)
    with pytest.raises(ValueError, match="cannot extend a run without a number of steps"):
        make(parameters()).extend(100)


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
    assert rates(optimizers[1]) == pytest.approx(rates(optimizers[0]), rel=1e-3)


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
    assert rounds(ours) == 38
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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", ["adam-untold", "sgd-averaged", "muon-told"])
def test_parameters_of_16_bits_go_where_those_of_32_bits_go(name, dtype):
    long = parameters()
    for p in long:
        p.data.copy_(p.detach().to(dtype))
    short = [torch.nn.Parameter(p.detach().to(dtype)) for p in long]
    optimizers = [samuel(params, **CONFIGURATIONS[name], state_dtype=torch.float32) for params in (short, long)]
    feed(optimizers, range(60))
    assert {p.dtype for p in short} == {dtype}
    assert_close([p.float() for p in short], long, atol=4 * torch.finfo(dtype).eps)
    assert rates(optimizers[0]) == pytest.approx(rates(optimizers[1]), rel=1e-3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("name", ["adam-untold", "sgd-averaged", "muon-told"])
def test_a_state_of_16_bits_goes_where_one_of_32_bits_goes(name, dtype):
    long = parameters()
    for p in long:
        p.data.copy_(p.detach().to(dtype))
    short = [torch.nn.Parameter(p.detach().to(dtype)) for p in long]
    optimizers = [
        samuel(short, **CONFIGURATIONS[name], state_dtype=torch.bfloat16),
        samuel(long, **CONFIGURATIONS[name]),
    ]
    feed(optimizers, range(60))
    assert_close([p.float() for p in short], long, atol=4 * torch.finfo(torch.bfloat16).eps)
    assert rates(optimizers[0]) == pytest.approx(rates(optimizers[1]), rel=0.02)


def test_a_sum_of_16_bits_is_exact_on_average():
    """Nearest rounding would stop at 256 steps of 1; random rounding does not."""
    params = parameters(((4000,),))
    optimizer = samuel(params, "sgd", learning_rates=(1e-6,), state_dtype=torch.bfloat16, weight_decay=0.0, steps=10**6)
    gradient = 1 + 0.1 * torch.randn(4000, generator=torch.Generator().manual_seed(0))
    for _ in range(2000):
        params[0].grad = gradient.clone()
        optimizer.step()
    found = optimizer.state[params[0]]["sum"].float()
    assert found.mean() == pytest.approx(2000 * gradient.mean().item(), rel=0.005)
    assert (found - 2000 * gradient).std() < 0.1 * 2000


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
    "no rates": ({"learning_rates": ()}, ValueError, "learning_rates is empty"),
    "negative rate": ({"learning_rates": (0.1, -0.5)}, ValueError, "positive and finite, got -0.5"),
    "same rates": ({"learning_rates": (0.1, 0.1)}, ValueError, r"differ from each other, got \(0.1, 0.1\)"),
    "one number for rates": ({"learning_rates": 0.1}, ValueError, "must be a list of numbers, got 0.1"),
    "unknown base": ({"base": "adamm"}, ValueError, "base must be one of 'muon', .* got 'adamm'"),
    "no base": ({"base": None}, TypeError, "base must be one of 'muon', .* got None"),
    "a function as base": ({"base": len}, TypeError, "optimizer class such as torch.optim.Adam, got <built-in"),
    "an instance as base": (
        {"base": torch.optim.SGD(parameters(), lr=0.1)},
        TypeError,
        "got an instance of SGD; give SGD itself",
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
        "leave lr=0.1 out of it, and give learning_rates",
    ),
    "a base with parameters": (
        {"base": functools.partial(torch.optim.SGD, parameters())},
        ValueError,
        "keyword arguments only",
    ),
    "unknown option": ({"speed": 0.9}, TypeError, "unknown option 'speed'; choose from base, learning_rates"),
    "an option of the base": (
        {"betas": (0.9, 0.95)},
        TypeError,
        r"betas is an option of the base: give it in a parameter group, .*'betas': \(0.9, 0.95\)}, or in the base",
    ),
    "an option that was": ({"horizon": 9}, TypeError, "there is no option 'horizon' any more: give steps"),
    "a rule that was": ({"rule": "R"}, TypeError, "there is no option 'rule' any more: there is one rule now"),
    "no steps": ({"steps": 0}, ValueError, "steps must be a whole number of at least 1, got 0"),
    "half a step": ({"steps": 2.5}, ValueError, "steps must be a whole number of at least 1, got 2.5"),
    "a power as average": ({"average": 8.0}, ValueError, "average must be True or False, got 8.0"),
    "unknown on_shift": ({"on_shift": "panic"}, ValueError, "on_shift must be one of 'restart', 'ignore', got 'panic'"),
    "negative clip": ({"clip": -1.0}, ValueError, "clip must be a finite number above 0, got -1.0"),
    "not a search": ({"search": "fast"}, ValueError, "search must be a samuel.core.RateSearch, got 'fast'"),
    "state of whole numbers": ({"state_dtype": torch.int8}, ValueError, "state_dtype must be .* got torch.int8"),
    "state of words": ({"state_dtype": "bf16"}, ValueError, "state_dtype must be .* got 'bf16'"),
    "negative weight decay": ({"weight_decay": -0.1}, ValueError, "weight_decay must be .* at least 0, got -0.1"),
    "weight decay of words": ({"weight_decay": "some"}, ValueError, "weight_decay must be a number .* got 'some'"),
    "half a maximum": ({"maximize": 1}, ValueError, "maximize must be True or False, got 1"),
    "half a foreach": ({"foreach": "fast"}, ValueError, "foreach must be .* got 'fast'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_arguments_are_refused_by_name_and_value(name):
    options, error, message = REFUSED[name]
    with pytest.raises(error, match=message):
        samuel(parameters(), **options)


@pytest.mark.parametrize(
    ("option", "value"), [("lr", -1.0), ("lr", "fast"), ("weight_decay", -0.1), ("maximize", "yes")]
)
def test_bad_options_of_a_group_are_refused_and_change_nothing(option, value):
    with pytest.raises(ValueError, match=f"{option} .* got {value!r}"):
        make([{"params": parameters(), option: value}])
    optimizer = make(parameters())
    groups = len(optimizer.param_groups)
    with pytest.raises(ValueError, match=f"{option} .* got {value!r}"):
        optimizer.add_param_group({"params": parameters(), option: value})
    assert len(optimizer.param_groups) == groups


@pytest.mark.parametrize(
    ("entry", "error", "message"),
    [
        ({"weight_deacy": 0.1}, TypeError, "'weight_deacy' of a parameter group; did you mean 'weight_decay'?"),
        ({"steps": 9}, TypeError, r"steps is an option of the whole optimizer, not of a group: Samuel\(..., steps="),
        ({"clip": 1.0}, TypeError, "clip is an option of the whole optimizer"),
        ({"betas": 0.9}, ValueError, r"betas must be two numbers, such as \(0.9, 0.999\), got 0.9"),
        ({"betas": (0.9, 1.5)}, ValueError, r"betas must be at least 0 and below 1, got \(0.9, 1.5\)"),
    ],
    ids=str,
)
def test_an_option_in_the_wrong_place_misspelt_or_wrong_in_a_group_is_refused_by_name(entry, error, message):
    with pytest.raises(error, match=message):
        make([{"params": parameters(), **entry}])
    optimizer = make(parameters())
    groups = len(optimizer.param_groups)
    with pytest.raises(error, match=message):
        optimizer.add_param_group({"params": parameters(), **entry})
    assert len(optimizer.param_groups) == groups


def test_entries_of_other_libraries_may_lie_in_a_group():
    (group, *_) = make([{"params": parameters(), "lr_scale": 0.5, "group_name": "layer 1"}]).param_groups
    assert (group["lr_scale"], group["group_name"]) == (0.5, "layer 1")


def test_groups_that_schedulers_have_written_into_can_be_given_again():
    params = parameters()
    optimizer = make(params)
    lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=10, cycle_momentum=False)
    groups = [dict(group) for group in optimizer.param_groups]
    assert [group["max_lr"] for group in make(groups).param_groups] == [1.0] * len(groups)


# What is frozen, and what changes in the middle of a run


def test_frozen_parameters_cost_nothing_whatever_they_are_made_of():
    """A backbone that is not trained, or not even of real numbers, in `model.parameters()`."""
    backbone = torch.nn.Parameter(torch.ones(1000), requires_grad=False)
    quantised = torch.nn.Parameter(torch.ones(1000, dtype=torch.uint8), requires_grad=False)
    params, alone = parameters(), parameters()
    optimizer = make([backbone, quantised, *params])
    train(optimizer, params, range(20))
    train(make(alone), alone, range(20))
    assert_close(params, alone)
    assert backbone not in optimizer.state
    assert quantised not in optimizer.state
    assert torch.equal(backbone, torch.ones(1000))


def test_parameters_that_thaw_join_where_they_stand():
    params = parameters()
    params[1].requires_grad_(False)
    optimizer = samuel(params)
    train(optimizer, [params[0], *params[2:]], range(10))
    params[1].requires_grad_(True)
    before = params[1].detach().clone()
    train(optimizer, params, range(10, 14))
    assert not torch.equal(params[1], before)
    assert rounds(optimizer) == 14


@pytest.mark.parametrize("kind", ["number", "tensor"])
def test_an_lr_of_0_stops_the_parameters(kind):
    """Also what they would do because weights move from one rate to another."""
    params = parameters()
    optimizer = samuel(params, "adam")
    train(optimizer, params, range(60))
    for group in optimizer.param_groups:
        group["lr"] = 0.0 if kind == "number" else torch.tensor(0.0)
    before = [p.detach().clone() for p in params]
    train(optimizer, params, range(60, 120))
    for p, old in zip(params, before, strict=True):
        assert torch.equal(p, old)


def test_a_parameter_that_changes_its_group_obeys_the_new_one():
    a, b, c = parameters(((3,), (3,), (3,)))
    optimizer = samuel([{"params": [a, b]}, {"params": [c], "lr": 0.0}])
    train(optimizer, [a, b, c], range(3))
    optimizer.param_groups[1]["params"].insert(0, optimizer.param_groups[0]["params"].pop())
    before = b.detach().clone()
    train(optimizer, [a, b, c], range(3, 6))
    assert torch.equal(b, before)
    group = optimizer.param_groups.pop()
    optimizer.param_groups[0]["params"] += group["params"]
    train(optimizer, [a, b, c], range(6, 9))
    assert not torch.equal(b, before)


def test_empty_groups_are_welcome_at_any_time():
    params = parameters()
    optimizer = samuel([{"params": []}, {"params": params}])
    train(optimizer, params, range(3))
    optimizer.add_param_group({"params": []})
    train(optimizer, params, range(3, 5))
    assert rounds(optimizer) == 5


@pytest.mark.parametrize("name", ["lr", "betas"])
def test_a_step_that_fails_does_not_move_the_clock(name):
    params = parameters()
    optimizer = samuel(params, torch.optim.Adam)
    train(optimizer, params, range(5))
    before = [p.detach().clone() for p in params]
    optimizer.param_groups[0][name] = {"lr": "fast", "betas": ("x", 0.9)}[name]
    with pytest.raises((TypeError, ValueError, RuntimeError)):
        train(optimizer, params, [5])
    assert rounds(optimizer) == 5
    for p, old in zip(params, before, strict=True):
        assert torch.equal(p, old)


def test_a_group_that_an_lr_of_0_stops_has_no_say_in_the_rate_of_the_others():
    """Its gradient does not change any more, and would go on praising rates that it does not follow."""
    rates = {}
    for way in ("frozen", "lr of 0"):
        a, b = parameters(((5,), (5,)))
        optimizer = samuel([{"params": [a]}, {"params": [b]}])
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
    optimizer = samuel(params)
    train(optimizer, params, range(5))
    before = [p.detach().clone() for p in params]
    for lr in (-2e-17, 2e-17):
        for group in optimizer.param_groups:
            group["lr"] = lr
        train(optimizer, params, range(5, 8))
    for p, old in zip(params, before, strict=True):
        assert torch.equal(p, old)
