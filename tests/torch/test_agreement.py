"""What must come out the same does: JAX and torch, packed rows and the plain loop, and a base by all its names."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

import samuel.jax.old_transform
from samuel.torch import DiscountedAdagrad, MatrixMuon, Samuel, Watched
from tests.torch.configurations import (
    CLASSES,
    CONFIGURATIONS,
    NAMED,
    RULES,
    VARIANTS,
    WATCHED,
    assert_close,
    assert_equal,
    feed,
    one_rate,
    parameters,
    train,
    values,
)

# The JAX drop-in

JAX_STEPS, JAX_PERIOD = 500, 125
JAX_SHAPES = ((7, 5), (5,), (3, 2, 2), ())
SAME_IN_JAX = {
    "adam": {
        "samuel": {"alarm": 5},  # this goal does not flip far enough for the usual one
        "patient": {"rule": "patient", "alarm": 5},
        "experience": {"alarm": 5, "experience": 30},
        "horizon": {"alarm": 5, "horizon": 400},  # the run goes on beyond it
        "theorem": {"rule": "theorem"},
        "levels": {"rule": "levels"},
        "weight decay": {"weight_decay": 0.1},
    },
    "adagrad": {
        "samuel": {},
        "horizon": {"horizon": 400},
        "theorem": {"rule": "theorem"},  # with a state of the base for each slot
        "shared theorem": {"rule": "theorem", "base_state": "shared"},
        "slots": {"cover": Watched(shortest=32, short=3), "base_state": "slots"},
    },
    "momentum": {
        "samuel": {},
        "Kr": {"rule": "Kr", "horizon": 500},
        "averaged Kr": {"rule": "Kr", "horizon": 500, "average": 3, "settle": 300},
        "inherit": {"rule": "theorem", "newborns": "inherit"},
        "levels": {"rule": "levels"},
    },
    "sgd": {
        "samuel": {},
        "horizon": {"horizon": 400},
        "R": {"rule": "R", "horizon": 400},
        "K": {"rule": "K", "horizon": 400},
        "inherit": {"newborns": "inherit"},
        "weight decay": {"alarm": 5, "weight_decay": 0.1},
        "few rates": {"lrs": (0.3, 0.003, 0.03)},
    },
    "muon": {
        "samuel": {"alarm": 5},
        "horizon": {"alarm": 5, "horizon": 400},
        "theorem": {"rule": "theorem"},
        "slots": {"alarm": 5, "cover": Watched(shortest=32, short=3), "base_state": "slots"},
        "weight decay": {"alarm": 5, "weight_decay": 0.1},
    },
}


def as_in_torch(array):
    """What JAX has with the outputs last, as layers in torch have it, with the outputs first."""
    return torch.tensor(np.moveaxis(array, -1, 0) if array.ndim > 1 else array)


@pytest.fixture(autouse=True, scope="module")
def compile_fast():
    """Compiling is what takes the time here, and these programs run for milliseconds."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def run_in_jax(base, dtype, lrs=None, **options):
    """A run whose goal flips three times: where it starts; its gradients, parameters, decisions and rates; and what it
    tells in the end, shifts and weights.

    Parameters are of the size that weights of networks have. What one library sums up in another order than the other
    moves weights by some 1e-6, and parameters by as much as the experts are apart.
    """
    rng = np.random.default_rng(1)
    start = [np.asarray(0.1 * rng.normal(size=shape), dtype) for shape in JAX_SHAPES]
    signs = (-1.0) ** (np.arange(JAX_STEPS) // JAX_PERIOD)
    goals = [np.multiply.outer(signs, 0.1 * rng.normal(size=shape)) for shape in JAX_SHAPES]
    goals = [np.asarray(goal + 0.03 * rng.normal(size=goal.shape), dtype) for goal in goals]
    with jax.enable_x64(dtype == np.float64):
        optimizer = samuel.jax.old_transform.samuel(base, lrs, **options)

        def step(carry, goal):
            params, state = carry
            gradient = jax.tree.map(jnp.subtract, params, goal)
            updates, state = optimizer.update(gradient, state, params)
            params = optax.apply_updates(params, updates)
            decision = samuel.jax.old_transform.decision(state, params)
            return (params, state), (gradient, params, decision, samuel.jax.old_transform.learning_rate(state))

        @jax.jit
        def run(params, goals):
            (_, state), path = jax.lax.scan(step, (params, optimizer.init(params)), goals)
            return *path, samuel.jax.old_transform.shifts(state), samuel.jax.old_transform.weights(state)

        return jax.tree.map(np.asarray, (start, *run(start, goals)))


@pytest.mark.parametrize(("base", "name"), [(base, name) for base, cases in SAME_IN_JAX.items() for name in cases])
def test_it_takes_the_steps_of_the_jax_drop_in(base, name):
    options = SAME_IN_JAX[base][name]
    # Optax works out Adam's bias corrections in the precision of the parameters, torch in double precision.
    dtype = np.float64 if base in ("adam", "muon") else np.float32
    start, slopes, path, decisions, rates, shifts, weights = run_in_jax(base, dtype, **options)
    params = [torch.nn.Parameter(as_in_torch(array)) for array in start]
    optimizer = Samuel(params, base, **options)
    ours, our_decisions, our_rates = [], [], []
    for step in range(JAX_STEPS):
        for p, slope in zip(params, slopes, strict=True):
            p.grad = as_in_torch(slope[step])
        optimizer.step()
        ours.append(values(params))
        with optimizer.decision():
            our_decisions.append(values(params))
        our_rates.append(optimizer.effective_lr)
    for found, expected in ((ours, path), (our_decisions, decisions)):
        for mine, theirs in zip(zip(*found, strict=True), expected, strict=True):
            expected_here = torch.stack([as_in_torch(array) for array in theirs])
            np.testing.assert_allclose(torch.stack(mine).numpy(), expected_here.numpy(), rtol=0, atol=1e-5)
    np.testing.assert_allclose(our_rates, rates, rtol=1e-3)
    assert optimizer.shifts == shifts
    rule = options.get("rule", "samuel")
    assert (shifts > 0) == (rule in ("samuel", "patient", "K", "Kr"))
    averages = rule in ("samuel", "patient") or "average" in options
    assert any(not np.array_equal(*pair) for pair in zip(path, decisions, strict=True)) == averages
    np.testing.assert_allclose(optimizer.weights().numpy(), weights, atol=1e-4)


# Packed rows and the plain loop


def assert_loops_agree(make_params, steps, atol, **options):
    """Both forms, fed the same gradients."""
    packed, plain = (Samuel(make_params(), foreach=foreach, **options) for foreach in (True, False))
    for step in steps:
        feed([packed, plain], [step])
        assert_close(trained(packed), trained(plain), atol)
        with packed.decision(), plain.decision():
            assert_close(trained(packed), trained(plain), atol)
    assert packed.shifts == plain.shifts
    assert packed.effective_lr == pytest.approx(plain.effective_lr, rel=1e-4)
    return packed


def trained(optimizer):
    return [p for group in optimizer.param_groups for p in group["params"]]


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_the_plain_loop_takes_the_same_steps(name):
    assert_loops_agree(parameters, range(60), atol=1e-5, **CONFIGURATIONS[name], weight_decay=0.1)


@pytest.mark.parametrize("name", ["adam-samuel", "momentum-slots", "adagrad-theorem", "sgd-levels", "muon-samuel"])
def test_the_plain_loop_takes_the_same_steps_in_double_precision(name):
    make = functools.partial(parameters, dtype=torch.float64)
    assert_loops_agree(make, range(60), atol=1e-6, **CONFIGURATIONS[name])


@pytest.mark.parametrize("name", ["adam-Kr", "adagrad-theorem", "momentum-inherit", "sgd-levels"])
def test_the_plain_loop_takes_the_same_steps_with_anchors_of_16_bits(name):
    assert_loops_agree(parameters, range(60), atol=1e-5, **CONFIGURATIONS[name], anchor_dtype=torch.bfloat16)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", ["adam-samuel", "adagrad-theorem", "momentum-slots", "muon-samuel"])
def test_the_plain_loop_takes_the_same_steps_on_parameters_of_16_bits(name, dtype):
    make = functools.partial(parameters, dtype=dtype)
    one_rounding = 4 * torch.finfo(dtype).eps  # of parameters up to 4
    optimizer = assert_loops_agree(make, range(60), atol=one_rounding, **CONFIGURATIONS[name])
    assert max(p.abs().max() for p in trained(optimizer)) < 4


@pytest.mark.parametrize("name", ["adam-samuel", "adagrad-slots", "momentum-Kr", "sgd-Kr", "muon-Kr"])
def test_everything_restarts_in_these_runs(name):
    """Or the tests above would say little."""
    params = parameters()
    optimizer = Samuel(params, **CONFIGURATIONS[name])
    train(optimizer, params, range(60))
    assert optimizer.shifts > 0


# The same numbers in another form


def uneven_memory():
    """Parameters whose numbers do not lie in memory in the usual order."""
    conv, matrix, cut = parameters(((4, 3, 2, 2), (5, 3), (6, 4)))
    return [
        torch.nn.Parameter(conv.detach().to(memory_format=torch.channels_last)),
        torch.nn.Parameter(matrix.detach().t()),
        torch.nn.Parameter(cut.detach()[:, ::2]),  # with gaps
    ]


@pytest.mark.parametrize("foreach", [True, False], ids=["packed", "plain"])
@pytest.mark.parametrize("name", ["adam-samuel", "adagrad-theorem", "momentum-slots", "muon-samuel"])
def test_the_order_of_numbers_in_memory_does_not_matter(name, foreach):
    odd = uneven_memory()
    even = [torch.nn.Parameter(p.detach().contiguous()) for p in odd]
    assert [p.is_contiguous() for p in odd] == [False, False, False]
    strides = [p.stride() for p in odd]
    feed([Samuel(params, **CONFIGURATIONS[name], foreach=foreach) for params in (even, odd)], range(60))
    assert_close(odd, even)
    assert [p.stride() for p in odd] == strides


def test_state_lies_in_memory_as_the_parameter_does():
    params = uneven_memory()[:2]
    optimizer = Samuel(params, "adam")
    train(optimizer, params, range(2))
    for p in params:
        vectors = [value for name, value in optimizer.state[p].items() if not name.startswith("rays:") and value.ndim]
        assert len(vectors) == 5  # two that move, the average, and Adam's two
        assert {(vector.shape, vector.stride()) for vector in vectors} == {(p.shape, p.stride())}


@pytest.mark.parametrize("name", ["adam-samuel", "adagrad-theorem", "momentum-levels", "sgd-R"])
@pytest.mark.parametrize("foreach", [True, False], ids=["packed", "plain"])
def test_empty_parameters_and_single_numbers_are_parameters_like_others(name, foreach):
    whole = parameters(((3, 2),))
    parts = [torch.nn.Parameter(torch.empty(0, 4)), *(torch.nn.Parameter(x) for x in values(whole)[0].flatten())]
    together, apart = (Samuel(params, **CONFIGURATIONS[name], foreach=foreach) for params in (whole, parts))
    for step in range(60):
        train(together, whole, [step])
        for p, x in zip(parts, [torch.empty(0, 4), *whole[0].grad.flatten()], strict=True):
            p.grad = x.clone()
        apart.step()
    assert parts[0].shape == (0, 4)
    assert_close([torch.stack([p.detach() for p in parts[1:]]).view(3, 2)], values(whole))


def test_nothing_but_empty_parameters_is_a_run_too():
    empty = torch.nn.Parameter(torch.empty(0))
    optimizer = Samuel([empty])
    train(optimizer, [empty], range(40))
    assert optimizer.effective_lr > 0


@pytest.mark.parametrize("foreach", [True, False], ids=["packed", "plain"])
@pytest.mark.parametrize("name", ["sgd-samuel", "momentum-theorem", "adam-samuel", "adagrad-slots"])
def test_complex_parameters_are_pairs_of_real_ones(name, foreach):
    pairs = parameters(((3, 2), (4, 2, 2)))
    numbers = [torch.nn.Parameter(torch.view_as_complex(p.detach().clone())) for p in pairs]
    as_pairs, as_numbers = (Samuel(params, **CONFIGURATIONS[name], foreach=foreach) for params in (pairs, numbers))
    for step in range(60):
        train(as_pairs, pairs, [step])
        for p, pair in zip(numbers, pairs, strict=True):
            p.grad = torch.view_as_complex(pair.grad.clone())
        as_numbers.step()
    assert_close([torch.view_as_real(p.detach()) for p in numbers], values(pairs))
    assert as_numbers.effective_lr == pytest.approx(as_pairs.effective_lr, rel=1e-4)
    assert all(p.is_complex() for p in numbers)


def test_parameters_of_several_dtypes_share_a_rate():
    params = [*parameters(((3,),), torch.float64), *parameters(((3,),)), *parameters(((3,),), torch.bfloat16)]
    alike = parameters(((3,),) * 3, torch.float64)
    for p, q in zip(params, alike, strict=True):
        p.data.copy_(alike[0])
        q.data.copy_(alike[0])
    optimizers = [Samuel(params, **CONFIGURATIONS["adam-samuel"]) for params in (alike, params)]
    feed(optimizers, range(40), lambda params, step: [p.detach() - 1 for p in params])
    assert optimizers[1].effective_lr == pytest.approx(optimizers[0].effective_lr, rel=0.01)
    assert_close([p.double() for p in params], alike, atol=0.02)  # what 16 bits tell apart


# The base by its names

SAME_BASE = {
    "adam": torch.optim.Adam,
    "adagrad": DiscountedAdagrad,
    "momentum": functools.partial(torch.optim.SGD, momentum=0.9),
    "sgd": torch.optim.SGD,
    "muon": MatrixMuon,
}


@pytest.mark.parametrize("name", NAMED)
def test_a_name_stands_for_a_class(name):
    runs = []
    for base in (name, SAME_BASE[name]):
        params = parameters()
        optimizer = Samuel(params, base, **RULES["samuel"])
        train(optimizer, params, range(40))
        runs.append(values(params))
    assert_equal(*runs)


def test_options_can_be_bound_to_the_base_or_given_with_it():
    runs = []
    for base, options in (
        (torch.optim.Adam, {"betas": (0.8, 0.95), "eps": 1e-6}),
        (functools.partial(torch.optim.Adam, betas=(0.8, 0.95), eps=1e-6), {}),
        (functools.partial(torch.optim.Adam, betas=(0.8, 0.95)), {"eps": 1e-6}),
        (functools.partial(functools.partial(torch.optim.Adam, betas=(0.1, 0.1), eps=1e-6), betas=(0.8, 0.95)), {}),
    ):
        params = parameters()
        train(Samuel(params, base, **RULES["samuel"], **options), params, range(20))
        runs.append(values(params))
    for run in runs[1:]:
        assert_equal(runs[0], run)
    usual = parameters()
    train(Samuel(usual, torch.optim.Adam, **RULES["samuel"]), usual, range(20))
    assert not torch.equal(usual[0], runs[0][0])


# Every base


class Pulled(torch.optim.Optimizer):
    """A home-made optimizer: averages of gradients, counted in plain Python, with a pull towards zero.

    It makes its memory anew in every step, as many optimizers do that were not written for speed.
    """

    def __init__(self, params, lr=1e-3, beta=0.5, pull=0.1):
        super().__init__(params, {"lr": lr, "beta": beta, "pull": pull})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                state["count"] = state.get("count", 0) + 1
                slope = p.grad + group["pull"] * p
                state["mean"] = slope + group["beta"] * (state.get("mean", slope) - slope)
                p.sub_(group["lr"] / state["count"] ** 0.5 * state["mean"])


class Prepared(torch.optim.Optimizer):
    """A home-made optimizer that makes its memory when it is made itself, and never again."""

    def __init__(self, params, lr=1e-3):
        super().__init__(params, {"lr": lr})
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["largest"] = torch.full_like(p, 0.1)

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    largest = self.state[p]["largest"]
                    torch.maximum(largest, p.grad.abs(), out=largest)
                    p.sub_(group["lr"] * p.grad / largest)


EVERY_BASE = {**CLASSES, **VARIANTS, "adagrad": "adagrad", "muon": "muon", "Pulled": Pulled, "Prepared": Prepared}


@pytest.mark.parametrize("foreach", [True, False], ids=["packed", "plain"])
@pytest.mark.parametrize("name", EVERY_BASE)
def test_every_base_goes_downhill(name, foreach):
    params = parameters(((7, 5), (3, 4)))  # matrices: some optimizers take nothing else
    optimizer = Samuel(params, EVERY_BASE[name], foreach=foreach)

    def loss():
        return sum((p - 1).square().mean() for p in params)

    before = loss().item()
    for _ in range(100):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
    # Adadelta warms up for thousands of steps before it moves at the rate that is asked for.
    assert loss() < (0.95 if name == "Adadelta" else 0.2) * before
    assert optimizer.effective_lr > 0


ALONG_ITS_RATE = {name: base for name, base in EVERY_BASE.items() if name not in ("Rprop", "ASGD", "Adafactor")}
"""Bases whose step is their rate times something that does not depend on it."""


def rebuilt_every(period, make, params, steps):
    """A run in which the optimizer starts anew every so often."""
    for step in steps:
        if step % period == 0:
            optimizer = make(params)
        train(optimizer, params, [step])


@pytest.mark.parametrize("name", ALONG_ITS_RATE)
def test_with_one_rate_it_is_the_base_with_that_rate_which_starts_anew_when_the_run_does(name):
    base = SAME_BASE.get(name, EVERY_BASE[name])
    ours, theirs = parameters(((7, 5), (3, 4))), parameters(((7, 5), (3, 4)))
    optimizer = one_rate(ours, base, rate=0.05, horizon=16)  # it begins another run after 16 steps
    train(optimizer, ours, range(40))
    rebuilt_every(16, functools.partial(base, lr=0.05), theirs, range(40))
    assert_close(ours, theirs)
    assert optimizer.effective_lr == pytest.approx(0.05)


@pytest.mark.parametrize(
    "blocks", [{"cover": WATCHED}, RULES["levels"], RULES["theorem"]], ids=["watched", "levels", "theorem"]
)
@pytest.mark.parametrize("name", ["AdamW", "Nesterov", "coupled", "Pulled"])
def test_with_one_rate_blocks_may_end_as_often_as_they_like(name, blocks):
    # Experts of one rate stand where the decision is, whenever they were born, as long as they share directions.
    ours, theirs = parameters(), parameters()
    base = EVERY_BASE[name]
    train(one_rate(ours, base, rate=0.05, **blocks), ours, range(60))
    train(base(theirs, lr=0.05), theirs, range(60))
    assert_close(ours, theirs)


def test_the_decay_of_adamw_is_ours_to_do_and_can_be_changed():
    for decay in (None, 0.0, 0.3):
        ours, theirs = parameters(), parameters()
        optimizer = one_rate(ours, torch.optim.AdamW, weight_decay=decay)
        assert optimizer.param_groups[0]["weight_decay"] == (0.01 if decay is None else decay)
        train(optimizer, ours, range(30))
        own = {} if decay is None else {"weight_decay": decay}
        train(torch.optim.AdamW(theirs, lr=0.05, **own), theirs, range(30))
        assert_close(ours, theirs)


def test_a_base_without_decoupled_decay_gets_none_unless_asked():
    assert Samuel(parameters(), torch.optim.Adam).param_groups[0]["weight_decay"] == 0
    ours, theirs = parameters(), parameters()
    train(one_rate(ours, torch.optim.Adam, weight_decay=0.3), ours, range(30))
    train(torch.optim.AdamW(theirs, lr=0.05, weight_decay=0.3), theirs, range(30))
    assert_close(ours, theirs)


def test_the_state_of_a_base_that_nobody_knows_is_shown_and_thrown_away_at_a_restart():
    params = parameters()
    optimizer = one_rate(params, Pulled, horizon=10)
    train(optimizer, params, range(9))
    shown = optimizer.state[params[1]]
    assert shown["base0:count"] == 9
    assert shown["base0:mean"].shape == params[1].shape
    train(optimizer, params, [9])
    assert not [name for name in optimizer.state[params[1]] if name.startswith("base0:")]
    train(optimizer, params, [10])
    assert optimizer.state[params[1]]["base0:count"] == 1


def test_slots_can_have_a_base_each_and_each_starts_anew_with_its_block():
    params = parameters()
    optimizer = Samuel(params, Pulled, base_state="slots", cover=Watched(shortest=4, short=2))
    train(optimizer, params, range(15))
    counts = [optimizer.state[params[0]][f"base{k}:count"] for k in range(3)]
    assert counts == [3, 7, 15]


def test_gradients_too_small_to_be_squared_make_no_step():
    """Near the bottom of a bowl; and not the huge one of a number divided by almost nothing."""
    w = torch.nn.Parameter(torch.ones(3))
    optimizer = DiscountedAdagrad([w], lr=1.0)
    w.grad = torch.tensor([1e-30, 0.0, -1e-30])
    optimizer.step()
    assert torch.equal(w, torch.ones(3))
