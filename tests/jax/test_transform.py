"""The optax drop-in keeps optax's contract, takes the recorded steps, and what its state tells is true."""

import math
import os
import subprocess
import sys
import warnings
from functools import cache, partial
from pathlib import Path

import flax.training.train_state
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from samuel.jax import (
    Checkpoints,
    averaged,
    extend,
    learning_rate,
    pace,
    samuel,
    scale_by_muon,
    shifts,
    skipped,
    weights,
)
from tests.compiling import xla_flags
from tests.trajectories import SETTINGS, join, snapshots, split

ROOT = Path(__file__).parents[2]
STEPS = 40
RATES = (1e-3, 1e-2, 1e-1, 1.0)
BASES = ("muon", "adam", "adagrad", "momentum", "sgd")


@pytest.fixture(autouse=True, scope="module")
def compile_fast():
    """Compiling is what takes the time here, and these programs run for milliseconds."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def make(**options):
    usual = {"base": "adam", "learning_rates": (1e-3, 1e-2, 1e-1), "weight_decay": 0.0}
    return samuel(**usual | options)


# A linear regression, and the plainest loop over it: what everything else is compared with.


def start():
    return {"w": jnp.zeros(3), "v": jnp.ones(3)}


@cache
def batches(steps=STEPS, rows=8):
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(steps, rows, 6)).astype(np.float32)
    noise = 0.1 * rng.normal(size=(steps, rows)).astype(np.float32)
    return inputs, inputs @ np.asarray([1, -1, 2, 0, 0.5, -2], np.float32) - 0.5 + noise


def loss(params, batch):
    inputs, targets = batch
    return jnp.mean((inputs @ jnp.concatenate([params["w"], params["v"]]) - targets) ** 2)


class Loop:
    """The loop that every user writes, over one optimizer, which is compiled once for many runs."""

    def __init__(self, optimizer, donate=False):
        self.optimizer, self.traces = optimizer, 0

        def update(gradients, state, params, **extra):
            self.traces += 1
            return optimizer.update(gradients, state, params, **extra)

        self.init, self.update = jax.jit(optimizer.init), jax.jit(update, donate_argnums=1 if donate else ())

    def run(self, params=None, data=None, loss=loss):
        """Parameters and state after one step for every batch."""
        gradient = jax.jit(jax.grad(loss))
        params = start() if params is None else params
        state = self.init(params)
        for batch in zip(*(batches() if data is None else data), strict=True):
            updates, state = self.update(gradient(params, batch), state, params)
            params = optax.apply_updates(params, updates)
        return params, state


@cache
def plain():
    """The loop that the others are compared with."""
    return Loop(make())


@cache
def plain_run():
    return plain().run()


def told(state):
    """All that the state tells by itself."""
    return learning_rate(state), weights(state), shifts(state), skipped(state), pace(state)


tell = jax.jit(told)


def assert_close(ones, others, rtol=1e-5, atol=1e-6):
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol, atol), ones, others)


def assert_same_run(params, state):
    """The run must have been that of the plain loop, come to the same average, and tell the same."""
    assert_close(
        (params, averaged(state, params), tell(state)),
        (plain_run()[0], averaged(plain_run()[1], plain_run()[0]), tell(plain_run()[1])),
    )


def final_loss(params):
    return float(loss(params, jax.tree.map(np.concatenate, batches())))


# What it did before, and does


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_it_takes_the_recorded_steps(setting):
    # In the recordings every parameter decayed, and every one of Muon's was a matrix.
    role = {"muon": "matrix", "adam": "table"}[setting.base]
    options = {"steps": setting.steps, "average": True, "weight_decay": setting.weight_decay}
    optimizer = samuel(setting.base, **options, roles=lambda name, p: role)

    def as_tree(vector):
        return {name: jnp.atleast_2d(part) for name, part in split(setting.base, vector).items()}

    def round(carry, gradient):
        params, state = carry
        updates, state = optimizer.update(as_tree(gradient), state, params)
        params = optax.apply_updates(params, updates)
        return (params, state), (params, averaged(state, params), jnp.ravel(learning_rate(state))[0], shifts(state))

    params = as_tree(jnp.asarray(setting.start))
    _, path = jax.jit(partial(jax.lax.scan, round))((params, optimizer.init(params)), setting.gradients)
    path = jax.tree.map(lambda leaf: np.asarray(leaf)[np.asarray(snapshots()) - 1], path)
    parameters, averages = (
        [join(setting.base, dict(zip(tree, one, strict=True))) for one in zip(*tree.values(), strict=True)]
        for tree in path[:2]
    )
    found = {"parameters": parameters, "averages": averages, "rates": path[2], "shifts": path[3]}
    for what, values in found.items():
        theirs = setting.read("jax", what)
        assert np.abs(np.asarray(values) - theirs).max() <= 5e-6 * max(np.abs(theirs).max(), 1e-3), what


def test_the_plain_loop_learns():
    params, state = plain_run()
    assert final_loss(params) < 0.5 * final_loss(start())
    assert 1e-3 < learning_rate(state) < 1e-1


def test_it_is_an_optax_transformation_that_swallows_arguments_it_does_not_know():
    optimizer = make()
    assert isinstance(optimizer, optax.GradientTransformationExtraArgs)

    def step(params):
        return optimizer.update(params, optimizer.init(params), params, value=0.0, unheard_of="anything")

    updates, _ = jax.eval_shape(step, start())
    assert shapes(updates) == shapes(start())


def test_a_scan_does_what_a_loop_does():
    optimizer = make()

    def step(carry, batch):
        params, state = carry
        updates, state = optimizer.update(jax.grad(loss)(params, batch), state, params)
        return (optax.apply_updates(params, updates), state), learning_rate(state)

    carry, rates = jax.jit(partial(jax.lax.scan, step))((start(), plain().init(start())), batches())
    assert_same_run(*carry)
    assert_close(rates[-1], learning_rate(carry[1]))


# Inside other transformations


def test_in_a_chain_it_learns_from_what_comes_before_and_what_comes_after_gets_its_steps():
    clip = optax.clip_by_global_norm(0.1)
    chain = Loop(optax.chain(clip, make(), optax.scale(0.5)))
    params, state = chain.run()
    by_hand, own = start(), plain().init(start())
    for batch in zip(*batches(), strict=True):
        gradient, _ = clip.update(jax.grad(loss)(by_hand, batch), clip.init(by_hand))
        updates, own = plain().update(gradient, own, by_hand)
        by_hand = jax.tree.map(lambda p, u: p + 0.5 * u, by_hand, updates)
    assert_close((params, tell(state)), (by_hand, tell(own)))
    assert_close(averaged(state, params), averaged(own, by_hand))
    assert final_loss(params) < 0.7 * final_loss(start())


@pytest.mark.parametrize(
    "schedule", [optax.cosine_decay_schedule(1.0, 300), optax.linear_schedule(0.0, 1.0, 50)], ids=["cosine", "warm-up"]
)
def test_a_schedule_of_your_own_multiplies_the_rate(schedule):
    params, state = Loop(optax.chain(make(), optax.scale_by_schedule(schedule))).run(data=batches(300))
    assert final_loss(params) < 0.1 * final_loss(start())
    assert learning_rate(state) > 0


def test_flattened_it_does_the_same():
    assert_same_run(*Loop(optax.flatten(make())).run())


def test_accumulated_gradients_are_one_large_batch():
    halves = jax.tree.map(lambda leaf: leaf.reshape(2 * STEPS, 4, *leaf.shape[2:]), batches())
    assert_same_run(*Loop(optax.MultiSteps(make(), every_k_schedule=2)).run(data=halves))


def test_a_gradient_of_nan_changes_nothing_under_apply_if_finite():
    broken = jax.tree.map(lambda leaf: np.insert(leaf, 7, np.nan, axis=0), batches())
    assert_same_run(*Loop(optax.apply_if_finite(make(), max_consecutive_errors=3)).run(data=broken))


def test_hyperparameters_can_be_injected_and_changed_in_mid_run():
    options = {"base": "adam", "learning_rates": (1e-3, 1e-2, 1e-1), "roles": {"w": "table", "v": "table"}}
    first = jax.tree.map(jnp.atleast_2d, start())
    injected = optax.inject_hyperparams(samuel)(**options, weight_decay=0.0, clip=1e9)

    def wide_loss(params, batch):
        return loss(jax.tree.map(lambda leaf: leaf[0], params), batch)

    loop = Loop(injected)
    params, state = loop.run(first, loss=wide_loss)
    flat = jax.tree.map(lambda leaf: leaf[0], params)
    assert_close((flat, tell(state)), (plain_run()[0], tell(plain_run()[1])))
    assert set(state.hyperparams) == {"weight_decay", "clip"}
    state.hyperparams["weight_decay"] = jnp.asarray(0.5, jnp.float32)
    decayed, _ = loop.update(first, state, params)
    expected, _ = jax.jit(samuel(**options, weight_decay=0.5).update)(first, state.inner_state, params)
    assert_close(decayed, expected)
    assert loop.traces == 1


def test_the_number_of_steps_can_be_injected():
    def end(make):
        return Loop(make("adam", (1e-3, 1e-2, 1e-1), steps=100)).run()[0]

    assert_close(end(optax.inject_hyperparams(samuel)), end(samuel))


@cache
def alone(name):
    """Parameters and average after a run on the problem of one of them, the other staying where it is."""
    params, state = _one_parameter().run({"it": start()[name]}, loss=_problems()[name])
    return params["it"], averaged(state, params)["it"]


@cache
def _one_parameter():
    return Loop(make())


@cache
def _problems():
    return {name: lambda params, batch, name=name: loss({**start(), name: params["it"]}, batch) for name in start()}


FREEZING = {
    "masked": lambda: optax.chain(
        optax.masked(make(), {"w": True, "v": False}), optax.masked(optax.set_to_zero(), {"w": False, "v": True})
    ),
    "partition": lambda: optax.partition({"on": make(), "off": optax.set_to_zero()}, {"w": "on", "v": "off"}),
}


@pytest.mark.parametrize("name", FREEZING)
def test_frozen_parameters_stay_and_the_others_learn_as_if_alone(name):
    params, state = Loop(FREEZING[name]()).run()
    for frozen in (params, averaged(state, params)):
        np.testing.assert_array_equal(frozen["v"], start()["v"])
    assert_close((params["w"], averaged(state, params)["w"]), alone("w"))
    assert final_loss(params) < 0.9 * final_loss(start())
    assert learning_rate(state) > 0


def test_two_of_them_in_one_partition_do_not_know_of_each_other():
    def apart(params, batch):
        return sum(problem({"it": params[name]}, batch) for name, problem in _problems().items())

    params, state = Loop(optax.partition({"one": make(), "two": make()}, {"w": "one", "v": "two"})).run(loss=apart)
    assert_close(params, {name: alone(name)[0] for name in params})
    for ask in (learning_rate, partial(averaged, params=params)):
        with pytest.raises(ValueError, match="2 states of samuel; pass one of them"):
            ask(state)
    found = params
    for part in ("one", "two"):
        found = averaged(state.inner_states[part], found)
    assert_close(found, {name: alone(name)[1] for name in params})
    assert learning_rate(state.inner_states["one"]) != learning_rate(state.inner_states["two"])


def test_a_group_without_parameters_does_no_harm():
    optimizer = optax.partition({"ours": samuel(), "theirs": optax.sgd(0.1)}, {"w": "theirs", "v": "theirs"})
    state = jax.eval_shape(optimizer.init, start())
    updates, after = jax.eval_shape(optimizer.update, start(), state, start())
    assert shapes(updates) == shapes(start())
    assert shapes(after) == shapes(state)


def test_independent_runs_can_be_mapped():
    starts = [start(), jax.tree.map(lambda leaf: leaf + 1, start())]
    params = jax.tree.map(lambda *leaves: jnp.stack(leaves), *starts)
    init, update = jax.jit(jax.vmap(make().init)), jax.jit(jax.vmap(make().update))
    gradients = jax.jit(jax.vmap(jax.grad(loss), in_axes=(0, None)))
    state = init(params)
    for batch in zip(*batches(), strict=True):
        updates, state = update(gradients(params, batch), state, params)
        params = optax.apply_updates(params, updates)
    for i, one in enumerate(starts):
        own, its = plain().run(one)
        told_and_averaged = jax.vmap(told)(state), jax.vmap(averaged)(state, params)
        mapped = jax.tree.map(lambda leaf, i=i: leaf[i], (params, told_and_averaged))
        assert_close(mapped, (own, (tell(its), averaged(its, own))))
    assert_close(learning_rate(state), jax.vmap(learning_rate)(state))


def test_nnx_optimizers_take_it():
    class Model(nnx.Module):
        def __init__(self):
            self.w, self.v = (nnx.Param(start()[name]) for name in ("w", "v"))

    model = Model()
    optimizer = nnx.Optimizer(model, make(), wrt=nnx.Param)

    @nnx.jit
    def step(model, optimizer, batch):
        gradients = nnx.grad(lambda model: loss({"w": model.w[...], "v": model.v[...]}, batch))(model)
        optimizer.update(model, gradients)
        return learning_rate(optimizer.opt_state)

    for batch in zip(*batches(), strict=True):
        rate = step(model, optimizer, batch)
    tells = told(optimizer.opt_state)
    assert_close(({"w": model.w[...], "v": model.v[...]}, tells), (plain_run()[0], tell(plain_run()[1])))
    assert_close(rate, tells[0])
    assert all(isinstance(leaf, jax.Array) for leaf in tells)

    trained = nnx.state(model, nnx.Param)
    found = nnx.jit(averaged)(optimizer.opt_state, trained)
    assert jax.tree.structure(found) == jax.tree.structure(trained)
    tested = nnx.clone(model)
    nnx.update(tested, found)
    assert_close({"w": tested.w[...], "v": tested.v[...]}, averaged(plain_run()[1], plain_run()[0]))
    assert not np.array_equal(tested.w[...], model.w[...])


def test_a_run_of_an_nnx_optimizer_can_be_extended():
    model = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, samuel("sgd", (0.01,), steps=2), wrt=nnx.Param)

    @nnx.jit
    def step(model, optimizer):
        optimizer.update(model, nnx.grad(lambda model: jnp.sum(model(jnp.ones(3)) ** 2))(model))
        return learning_rate(optimizer.opt_state)

    rates = [step(model, optimizer) for _ in range(2)]
    optimizer.opt_state = nnx.data(extend(optimizer.opt_state, 100))
    rates += [step(model, optimizer) for _ in range(2)]
    np.testing.assert_allclose(rates, [0.01, 0.005, 0.005, 0.0053], rtol=0.02)


def test_train_states_take_it():
    state = flax.training.train_state.TrainState.create(apply_fn=loss, params=start(), tx=make())

    @jax.jit
    def step(state, batch):
        return state.apply_gradients(grads=jax.grad(state.apply_fn)(state.params, batch))

    for batch in zip(*batches(), strict=True):
        state = step(state, batch)
    assert_same_run(state.params, state.opt_state)
    assert_close(tell(state), tell(state.opt_state))
    assert_close(averaged(state, state.params), averaged(state.opt_state, state.params))


def test_asking_a_state_that_is_not_one_says_so():
    for ask in (learning_rate, weights, shifts, skipped, pace, partial(averaged, params=start())):
        with pytest.raises(ValueError, match="got a tuple with no state of samuel"):
            ask(optax.adam(0.1).init(start()))
    with pytest.raises(ValueError, match="got a tuple with none inside"):
        extend(optax.adam(0.1).init(start()), 100)


# The average


def followed(optimizer, params=None, loss=loss, data=None):
    """Parameters and state before the first step, and after every one."""
    loop, params = Loop(optimizer), start() if params is None else params
    state, gradient = loop.init(params), jax.jit(jax.grad(loss))
    yield params, state
    for batch in zip(*(batches() if data is None else data), strict=True):
        updates, state = loop.update(gradient(params, batch), state, params)
        params = optax.apply_updates(params, updates)
        yield params, state


def assert_averaged(run, power=8, rtol=1e-5, atol=1e-6):
    """The average must be that of the parameters since the last shift, each with the weight C(n + power, n)."""
    path, seen = [], 0
    for params, state in run:
        if shifts(state) > seen:
            path, seen = [], int(shifts(state))
        path.append(jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params))
        shares = [math.comb(n + power, n) for n in range(len(path))]
        expected = jax.tree.map(lambda *leaves: np.average(leaves, axis=0, weights=shares), *path)  # noqa: B023
        found = averaged(state, params)
        assert shapes(found) == shapes(params)
        assert_close(jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), found), expected, rtol, atol)
    return path, seen


AVERAGED = {
    "adam": lambda: make(),
    "a base of its own": lambda: make(base=optax.scale_by_adam()),
    "told the steps": lambda: make(steps=STEPS, average=True),
    "flattened": lambda: optax.flatten(make()),
    "in a chain": lambda: optax.chain(optax.clip(0.1), make(), optax.scale(0.5)),
    "in a domain": lambda: optax.chain(make(), optax.keep_params_nonnegative()),
}


@pytest.mark.parametrize("name", AVERAGED)
def test_the_average_is_that_of_the_parameters_whatever_is_done_to_the_steps(name):
    path, _ = assert_averaged(followed(AVERAGED[name]()))
    assert any(np.ptp([point["w"] for point in path], axis=0) > 0.1)


def pull(params, batch):
    """The loss of a spring to where the batch says."""
    return 0.5 * jnp.sum((params - batch[0]) ** 2)


def test_a_shift_begins_the_average_anew():
    leap = (np.where(np.arange(60) < 40, 0.0, 100.0).astype(np.float32),)
    path, seen = assert_averaged(followed(make(base="sgd", learning_rates=(0.01, 0.1)), jnp.ones(3), pull, leap))
    assert (seen, len(path)) == (1, 60 - 41)  # seen with the second of the new gradients


@pytest.mark.parametrize("shape", [(), (3,), (64, 64)], ids=str)
def test_a_single_array_can_be_averaged(shape):
    targets = (np.linspace(-1, 1, 8, dtype=np.float32),)
    assert_averaged(followed(make(base="sgd", learning_rates=(0.1, 0.5)), jnp.ones(shape), pull, targets))


def test_of_parameters_of_16_bits_the_average_has_16_or_as_many_as_wanted():
    first = {"w": jnp.zeros(3, jnp.bfloat16), "v": jnp.ones(3)}
    run = list(followed(make(state_dtype="float32"), first))
    assert_averaged(run, rtol=2**-8, atol=2**-12)  # one rounding to 16 bits at the end
    assert {leaf.dtype for leaf in jax.tree.leaves(run[-1][1].average)} == {jnp.dtype(jnp.float32)}
    run = list(followed(make(), first))
    assert [leaf.dtype for leaf in jax.tree.leaves(run[-1][1].average)] == [jnp.float32, jnp.bfloat16]
    assert_averaged(run, rtol=2**-5, atol=2**-8)


def test_inside_compiled_code_the_average_is_the_same():
    params, state = plain_run()
    assert_close(jax.jit(averaged)(state, params), averaged(state, params))
    assert not np.array_equal(averaged(state, params)["w"], params["w"])


def test_anything_can_be_averaged_along_at_the_pace_of_the_average():
    average = None
    for params, state in followed(make()):
        average = params if average is None else optax.incremental_update(params, average, pace(state))
        assert_close(average, averaged(state, params))


def test_between_accumulated_steps_the_average_stays():
    seen = []
    for params, state in followed(optax.MultiSteps(make(), every_k_schedule=4), data=batches(12)):
        seen.append(averaged(state, params)["w"])
    for t in range(0, 12, 4):
        for between in seen[t + 1 : t + 4]:
            np.testing.assert_array_equal(between, seen[t])
        assert not np.array_equal(seen[t + 4], seen[t])


@pytest.mark.parametrize("options", [{"steps": 400}, {"average": False}], ids=["told the steps", "switched off"])
def test_without_an_average_the_parameters_themselves_are_returned(options):
    for params, state in followed(make(**options), data=batches(3)):
        assert averaged(state, params) is params
        assert state.average is None
        assert pace(state) == 1


def test_parameters_that_are_not_those_of_the_state_have_no_average():
    state = make().init(start())
    with pytest.raises(ValueError, match=r"structure .*'it'.* but the optimizer was initialised for .*'v'.*'w'"):
        averaged(state, {"it": jnp.zeros(3)})
    with pytest.raises(ValueError, match=r"the shape \(5000,\), but the optimizer was initialised for \(3,\)"):
        averaged(state, start() | {"w": jnp.zeros(5000)})


# State and dtypes


def shapes(tree):
    return jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype, leaf.weak_type), tree)


class Stepper:
    """Compiled steps of one optimizer on losses whose slopes are given; knows how often it was traced."""

    def __init__(self, optimizer):
        self.optimizer, self.traces = optimizer, 0
        params = {"m": jnp.linspace(-1, 1, 6).reshape(2, 3), "x": jnp.linspace(-1, 1, 3)}
        self.first = params, jax.jit(optimizer.init)(params)
        self.step = jax.jit(self._step)

    def _step(self, params, state, slope, scale):
        self.traces += 1
        gradient = jax.tree.map(lambda p: scale * (slope + jnp.tanh(p - 0.5)), params)  # of a convex loss
        updates, state = self.optimizer.update(gradient, state, params)
        return optax.apply_updates(params, updates), state, told(state)

    def run(self, slopes, scale=1.0):
        """Parameters, state, and what it tells, after every step."""
        params, state = self.first
        for slope in np.asarray(slopes, np.float32):
            params, state, tells = self.step(params, state, slope, np.float32(scale))
            yield params, state, tells


@cache
def stepper(base):
    return Stepper(samuel(base, RATES, steps=50 if base == "adam" else None))


def slopes(seed=0, steps=60):
    return np.random.default_rng(seed).normal(size=(steps, 3))


@pytest.mark.filterwarnings("ignore:the roles of")
@pytest.mark.parametrize("base", BASES)
def test_the_state_keeps_its_shapes_and_nothing_is_compiled_twice(base):
    one = stepper(base)
    before = shapes(one.first[1])
    *_, (_, state, _) = one.run(slopes(steps=70))  # beyond the end, too
    assert shapes(state) == before
    assert one.traces == 1
    assert shapes(jax.eval_shape(one.optimizer.init, one.first[0])) == before


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("params", [start(), jnp.zeros(4096)], ids=["tree", "one array"])
def test_no_array_of_the_state_is_another_or_one_of_the_parameters(params, compiled):
    init = make().init
    state = (jax.jit(init) if compiled else init)(params)
    places = [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves((params, state))]
    assert len(set(places)) == len(places)


def test_the_state_can_be_donated_and_saved():
    loop = Loop(make(), donate=True)
    state = loop.optimizer.init(start())  # not compiled, where arrays could be shared
    assert all(leaf.size > 0 for leaf in jax.tree.leaves(state))  # checkpoint libraries refuse empty arrays
    first = state.rule.round
    for _ in range(3):
        _, state = loop.update(start(), state, start())
    assert first.is_deleted()
    assert state.rule.round == 3


def mixed():
    return {"a": jnp.ones(4, jnp.bfloat16), "b": jnp.ones((2, 2), jnp.float16), "c": jnp.ones(())}


def test_updates_keep_the_dtypes_of_the_parameters_and_weights_have_32_bits():
    loop = Loop(make())
    params, state = mixed(), loop.init(mixed())
    for _ in range(6):
        updates, state = loop.update(params, state, params)
        assert shapes(updates) == shapes(params)
        params = optax.apply_updates(params, updates)
    assert all(float(jnp.max(leaf)) < 1 for leaf in jax.tree.leaves(params))
    assert {leaf.dtype for leaf in jax.tree.leaves(tell(state)[:2])} == {jnp.dtype(jnp.float32)}
    assert loop.traces == 1


def test_parameters_of_64_bits_keep_them_and_gradients_may_have_other_dtypes():
    with jax.enable_x64(True):
        optimizer = make()
        params = {"wide": jnp.ones(2), "usual": jnp.ones(2, jnp.float32)}
        gradients = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params)
        state = jax.eval_shape(optimizer.init, params)
        updates, after = jax.eval_shape(optimizer.update, gradients, state, params)
        assert shapes(updates) == shapes(params)
        assert shapes(after) == shapes(state)


def test_numbers_and_numpy_arrays_can_be_parameters_and_nothing_needs_to_be_compiled():
    optimizer = make()
    params = {"w": np.ones(3), "v": [1.0, 1.0, 1.0]}
    gradients = {"w": np.ones(3), "v": [2.0, 2.0, 2.0]}
    updates, _ = optimizer.update(gradients, optimizer.init(params), params)
    as_arrays = [{name: jnp.asarray(value) for name, value in tree.items()} for tree in (gradients, params)]
    expected, _ = plain().update(as_arrays[0], plain().init(start()), as_arrays[1])
    assert_close((updates["w"], jnp.stack(updates["v"])), (expected["w"], expected["v"]))


def slow(params, batch):
    """A loss whose steps are far below what 16 bits can tell apart near 1: a pull towards 1.5 to 2.5."""
    del batch
    return 0.5 * jnp.sum((params.astype(jnp.float32) - jnp.linspace(1.5, 2.5, 8)) ** 2)


def test_parameters_of_16_bits_do_not_get_stuck():
    steps = (np.zeros(400),)
    ours = Loop(samuel("sgd", (1e-4, 1e-3)))
    short, wide = jnp.ones(8, jnp.bfloat16), jnp.ones(8)
    stuck, _ = Loop(optax.sgd(1e-3)).run(short, steps, slow)
    moved, _ = ours.run(short, steps, slow)
    full, _ = ours.run(wide, steps, slow)
    np.testing.assert_array_equal(stuck, short)
    assert moved.dtype == jnp.bfloat16
    assert slow(full, None) < 0.7 * slow(wide, None)
    assert slow(moved, None) < 1.05 * slow(full, None)


def test_a_state_of_16_bits_learns_as_well():
    ends = {dtype: Loop(make(state_dtype=dtype)).run(data=batches(400)) for dtype in ("float32", "bfloat16")}
    losses = {dtype: final_loss(averaged(state, params)) for dtype, (params, state) in ends.items()}
    assert losses["bfloat16"] < 1.1 * losses["float32"]
    rates = {dtype: float(learning_rate(state)) for dtype, (_, state) in ends.items()}
    assert rates["bfloat16"] == pytest.approx(rates["float32"], rel=0.2)


@pytest.mark.filterwarnings("ignore:the roles of")
@pytest.mark.parametrize(
    ("copies", "options"),
    [
        (2.0, {"base": "sgd", "steps": 100}),
        (3.0, {"base": "sgd"}),
        (1.5, {"base": "sgd", "state_dtype": jnp.bfloat16}),
        (3.0, {"steps": 100}),
        (4.0, {}),
        (2.0, {"steps": 100, "state_dtype": "bfloat16"}),
        (2.5, {"state_dtype": "bfloat16"}),
        (5.0, {"base": "adam"}),
    ],
    ids=str,
)
def test_the_state_holds_no_more_copies_of_the_parameters_than_said(copies, options):
    params = {"w": jnp.zeros((64, 64)), "u": jnp.zeros((64, 64))}
    state = jax.eval_shape(samuel(**options).init, params)

    def size(tree):
        return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))

    assert size((state.sum, state.lag, state.base, state.rounding, state.average)) / size(params) == pytest.approx(
        copies, rel=1e-3
    )
    assert size((state.rule, state.prior)) < 4_000


# Over several devices


def train_over_devices():
    """Run in a process of its own, which pretends to have eight devices."""
    assert jax.device_count() == 8
    jax.config.update("jax_disable_most_optimizations", True)
    kinds = jax.sharding.AxisType
    _check_placement(kinds.Auto, samuel("muon", (1e-3, 1e-2, 1e-1)), of_base=3)  # of matrices it has one copy
    _check_placement(kinds.Explicit, samuel("adam", (1e-3, 1e-2, 1e-1)))


def _check_placement(kind, optimizer, of_base=4):
    mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(kind, kind))
    rng = np.random.default_rng(0)
    params = {"w": jnp.asarray(rng.normal(size=(8, 4)), jnp.float32), "b": jnp.ones(6, jnp.bfloat16)}
    spec = jax.sharding.PartitionSpec
    places = {"w": jax.sharding.NamedSharding(mesh, spec("x", "y")), "b": jax.sharding.NamedSharding(mesh, spec("y"))}
    spread = jax.device_put(params, places)

    def assert_placed(tree, least):
        found = 0
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
            name = getattr(path[-1], "key", None)
            if name in params:
                assert leaf.shape == params[name].shape
                assert leaf.sharding.is_equivalent_to(places[name], leaf.ndim), (jax.tree_util.keystr(path), leaf)
                found += 1
        assert found >= least, found

    def loss(params):
        return jnp.sum(jnp.sin(params["w"])) + jnp.sum((params["b"].astype(jnp.float32) - 0.5) ** 2)

    @jax.jit
    def step(params, state):
        updates, state = optimizer.update(jax.grad(loss)(params), state, params)
        return optax.apply_updates(params, updates), state, updates

    assert_placed(optimizer.init(spread), least=6 + of_base)
    own = spread, jax.jit(optimizer.init)(spread)
    assert_placed(own, least=8 + of_base)
    for _ in range(5):
        *own, updates = step(*own)
        assert_placed((own, updates), least=10 + of_base)
    alone = params, jax.jit(optimizer.init)(params)
    for _ in range(5):
        *alone, _ = step(*alone)
    assert_close(jax.device_get(own[0]), jax.device_get(alone[0]), rtol=1e-5, atol=1e-5)
    for average in (averaged, jax.jit(averaged)):
        found = average(own[1], own[0])
        assert_placed(found, least=2)
        assert_close(jax.device_get(found), jax.device_get(average(alone[1], alone[0])), rtol=1e-5, atol=1e-5)


def test_parameters_spread_over_devices_stay_where_they_are_and_so_does_the_state():
    flags = xla_flags("--xla_force_host_platform_device_count=8")
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    code = "from tests.jax.test_transform import train_over_devices; train_over_devices()"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# Bases


def test_a_named_base_is_the_transformation_it_stands_for():
    named, own = (Loop(samuel(base, (1e-3, 1e-2), weight_decay=0.0)).run() for base in ("sgd", optax.identity()))
    assert_close((named[0], tell(named[1])), (own[0], tell(own[1])))
    assert_same_run(*Loop(make(base=optax.scale_by_adam())).run())


def layers():
    """A matrix, the kernel of a convolution, a table of word vectors and a bias."""
    rng, shapes = np.random.default_rng(1), {"kernel": (6, 4), "conv": (3, 3, 2, 5), "embedding": (7, 3), "bias": (4,)}
    made = {name: jnp.asarray(rng.normal(size=shape), jnp.float32) for name, shape in shapes.items()}
    return {"dense": {"kernel": made["kernel"], "bias": made["bias"]}, "Conv_0": {"kernel": made["conv"]}} | {
        "embed": {"embedding": made["embedding"]}
    }


@cache
def goals(steps=60):
    """Where the layers are pulled to in every step: about 0."""
    rng = np.random.default_rng(2)
    return ([jax.tree.map(lambda p: np.float32(0.1 * rng.normal(size=p.shape)), layers()) for _ in range(steps)],)


def pull_layers(params, batch):
    parts = jax.tree.map(lambda p, goal: pull(p.astype(jnp.float32), (goal,)), params, batch[0])
    return sum(jax.tree.leaves(parts))


def test_over_muon_matrices_have_a_search_and_everything_else_another():
    params, state = Loop(samuel()).run(layers(), goals(), pull_layers)
    assert weights(state).shape == (2, 13)
    of_matrices, of_others = learning_rate(state)
    assert of_matrices != of_others
    assert pull_layers(params, (goals()[0][-1],)) < 0.9 * pull_layers(layers(), (goals()[0][-1],))


def test_with_one_rate_it_is_muon_with_that_rate():
    ours = Loop(samuel("muon", (0.05,), steps=10**9, weight_decay=0.0)).run(layers(), goals(), pull_layers)[0]
    muon = optax.chain(scale_by_muon(), optax.scale(-0.05))
    assert_close(ours, Loop(muon).run(layers(), goals(), pull_layers)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_with_one_rate_it_is_adamw_with_that_rate(weight_decay):
    data, table = batches(steps=100), jax.tree.map(lambda leaf: "table", start())
    first = jax.tree.map(jnp.atleast_2d, start())  # vectors do not decay
    wide = lambda params, batch: loss(jax.tree.map(lambda leaf: leaf[0], params), batch)  # noqa: E731
    own = samuel("adam", (0.05,), steps=10**9, weight_decay=weight_decay, roles=table)
    ours, _ = Loop(own).run(first, data, wide)
    theirs, _ = Loop(optax.adamw(0.05, weight_decay=weight_decay)).run(first, data, wide)
    assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_over_muon_every_matrix_moves_along_all_its_directions_alike():
    optimizer = samuel("muon", (1.0,), weight_decay=0.0)
    updates, _ = jax.jit(optimizer.update)(layers(), jax.jit(optimizer.init)(layers()), layers())
    for name, inputs, outputs in (("dense", 6, 4), ("Conv_0", 18, 5)):
        sizes = np.linalg.svd(np.reshape(updates[name]["kernel"], (inputs, outputs)), compute_uv=False)
        sizes /= 0.2 * math.sqrt(max(inputs, outputs))
        assert (abs(sizes - 1) < 0.35).all(), name  # five iterations make them roughly 1
    rows = updates["embed"]["embedding"]
    assert_close(rows / abs(rows).max(), -jnp.sign(layers()["embed"]["embedding"]), rtol=1e-3)  # a first step of Adam's


def test_roles_that_are_known_better_decide_who_moves_by_muon_and_what_decays():
    options = {"learning_rates": (1.0,), "weight_decay": 0.5}
    params = {"kernel": jnp.ones((4, 4)), "bias": jnp.ones(4)}
    zeros = jax.tree.map(jnp.zeros_like, params)

    def move(roles):
        optimizer = samuel(**options, roles=roles)
        return optimizer.update(zeros, optimizer.init(params), params)[0]

    assert_close(move(None), {"kernel": jnp.full((4, 4), -0.5), "bias": jnp.zeros(4)})
    for told in ({"kernel": "vector", "bias": None}, lambda name, p: "vector" if name == "kernel" else None):
        assert_close(move(told), zeros)
    shapes = jax.eval_shape(samuel(roles={"kernel": "table", "bias": None}).init, params)
    assert shapes.base.square["kernel"].shape == (4, 4)  # Adam's


def test_a_chain_can_be_the_base():
    chain = optax.chain(optax.clip_by_global_norm(1.0), optax.scale_by_rms(), optax.trace(decay=0.5))
    ours, _ = Loop(samuel(chain, (1e-2,), steps=10**9, weight_decay=0.0)).run()
    theirs, _ = Loop(optax.chain(chain, optax.scale(-1e-2))).run()
    assert_close(ours, theirs)


def test_a_base_is_given_the_extra_arguments_and_the_parameters():
    def update(updates, state, params=None, *, factor, **extra):
        return jax.tree.map(lambda g, p: factor * (g + p), updates, params), state

    base = optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)
    loop = Loop(samuel(base, (0.1,), weight_decay=0.0))
    gradient = jax.tree.map(lambda leaf: leaf + 2, start())
    updates, _ = loop.update(gradient, loop.init(start()), start(), factor=3.0)
    assert_close(updates, jax.tree.map(lambda g, p: -0.1 * 3 * (g + p), gradient, start()))


# Optax's suite of its contributions, in an eighth of its steps


def sum_of_squares(goal):
    return lambda params: sum(jax.tree.leaves(jax.tree.map(lambda p, q: jnp.sum((p - q) ** 2), params, goal)))


def rosenbrock(params):
    return (1 - params[0]) ** 2 + 100 * (params[1] - params[0] ** 2) ** 2


MIXED = (jnp.array([1.0, -1.0, 2.0]), jnp.array([[1.0, 0.0], [-1.0, 1.0]]))
TARGETS = {
    "parabola": (jnp.array([-1.0, 10.0, 1.0]), jnp.array([1.0, -1.0, 1.0]), None),
    "rosenbrock": (jnp.zeros(2), jnp.ones(2), rosenbrock),
    "matrix parabola": (jnp.zeros((2, 2)), jnp.array([[3.0, -2.0], [1.0, 4.0]]), None),
    "mixed": (jax.tree.map(jnp.zeros_like, MIXED), MIXED, None),
}
RUNS = [("muon", None, target) for target in TARGETS] + [("sgd", 4000, target) for target in TARGETS]
RUNS += [(base, None, "rosenbrock") for base in ("adam", "momentum", "adagrad")]


@pytest.mark.filterwarnings("ignore:the roles of")
@pytest.mark.parametrize(("base", "steps", "target"), RUNS)
def test_it_converges_on_the_targets_of_optax(base, steps, target):
    params, goal, objective = TARGETS[target]
    # Depending on rounding, a leap of the gradient in AdaGrad's first steps into the valley counts as a shift; the
    # second start takes more than these steps.
    on_shift = "ignore" if base == "adagrad" else "restart"
    objective = objective or sum_of_squares(goal)
    optimizer = samuel(base, steps=steps, weight_decay=0.0, on_shift=on_shift)

    def step(carry, _):
        params, state = carry
        updates, state = optimizer.update(jax.grad(objective)(params), state, params)
        return (optax.apply_updates(params, updates), state), None

    state = optax.tree.map_params(optimizer, lambda v: v, optimizer.init(params))
    (params, state), _ = jax.jit(partial(jax.lax.scan, step, length=4000))((params, state))
    assert_close(params, goal, rtol=3e-2, atol=3e-2)
    assert_close(averaged(state, params), goal, rtol=3e-2, atol=3e-2)


# Gradients that are not finite, and the end of the run


def test_a_gradient_that_is_not_finite_is_left_out_and_counted():
    bad = jax.tree.map(lambda leaf: np.insert(leaf, 7, np.nan, axis=0), batches())
    params, state = Loop(make()).run(data=bad)
    assert skipped(state) == 1
    assert_close(params, plain_run()[0])
    assert_close(averaged(state, params), averaged(plain_run()[1], plain_run()[0]))


@pytest.mark.filterwarnings("ignore:the roles of")
@pytest.mark.parametrize("base", ["muon", "adam", "sgd"])
def test_a_run_whose_gradients_blow_up_comes_back(base):
    first = {"kernel": jnp.linspace(-1, 1, 12).reshape(3, 4)}
    loop = Loop(samuel(base))
    params, state = first, loop.init(first)
    for t in range(60):
        gradient = jax.tree.map(lambda p, t=t: jnp.full_like(p, jnp.nan) if t in (20, 21, 40) else p, params)
        updates, state = loop.update(gradient, state, params)
        params = optax.apply_updates(params, updates)
        assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves((params, averaged(state, params))))
    assert skipped(state) == 3
    assert jnp.abs(params["kernel"]).max() < 0.99


def test_an_extended_run_goes_on_without_a_leap_and_falls_to_its_new_end():
    loop = Loop(make(learning_rates=(0.01,), steps=30))
    params, state = loop.run(data=batches(20))
    rates = [float(learning_rate(state))]
    state = extend(state, 100)
    for _ in range(80):
        updates, state = loop.update(params, state, params)
        params = optax.apply_updates(params, updates)
        rates.append(float(learning_rate(state)))
    assert max(np.divide(rates[1:], rates[:-1])) < 1.15
    np.testing.assert_allclose(rates[-30:], 0.01 * np.arange(30, 0, -1) / 100, rtol=1e-4)
    assert loop.traces == 1


def test_a_run_that_was_not_told_its_steps_cannot_be_extended():
    with pytest.raises(ValueError, match="cannot extend a run without a number of steps"):
        extend(make().init(start()), 100)
    with pytest.raises(ValueError, match="steps must be a whole number of at least 41, got 40"):
        extend(Loop(make(steps=40)).run()[1], 40)


def test_a_run_resumed_from_a_checkpoint_is_the_same_to_the_bit(tmp_path):
    loop, checkpoints = Loop(samuel()), Checkpoints(tmp_path)
    path = list(followed(loop.optimizer, layers(), pull_layers, goals(20)))
    checkpoints.save(10, path[10])
    _, (params, state) = checkpoints.restore(like=path[0])
    for goal in goals(20)[0][10:]:
        updates, state = loop.update(jax.jit(jax.grad(pull_layers))(params, (goal,)), state, params)
        params = optax.apply_updates(params, updates)
    jax.tree.map(np.testing.assert_array_equal, (params, state), path[20])


# Scales


@pytest.mark.filterwarnings("ignore:the roles of")
@pytest.mark.parametrize("base", ["muon", "adam", "adagrad"])
def test_losses_times_a_constant_give_the_same_steps(base):
    one = stepper(base)

    def run(scale):
        path = [(params, weights(state), shifts(state)) for params, state, _ in one.run(slopes(), scale)]
        return jax.tree.map(lambda *leaves: np.stack(leaves), *path)

    usual = run(1.0)
    for scale in (1e4, 1e-2):
        assert_close(run(scale), usual, rtol=1e-3, atol=1e-3)


# What the state tells

GRADIENTS = arrays(
    np.float32, (10, 3), elements=st.sampled_from([0.0, 1.0, -1.0, 0.3, -2.5, 1e-12, 1e-4, 1e4, -1e12, 1e12, np.nan])
) | arrays(np.float32, (10, 3), elements=st.floats(-10, 10, width=32))


@pytest.mark.filterwarnings("ignore:the roles of")
@pytest.mark.parametrize("base", ["muon", "adam"])
@settings(max_examples=40)
@given(slopes=GRADIENTS, scale=st.sampled_from([1e-6, 1.0, 1e3]))
def test_weights_are_shares_and_parameters_stay_finite_whatever_the_gradients(base, slopes, scale):
    for params, state, (rate, shares, *_) in stepper(base).run(slopes, scale):
        shares = np.asarray(shares)
        assert (shares >= 0).all()
        np.testing.assert_allclose(shares.sum(axis=-1), 1, atol=1e-5)
        assert (rate >= 0).all()
        assert (rate < 1.001).all()
        finite = jax.tree.map(lambda leaf: bool(np.isfinite(leaf).all()), (params, averaged(state, params)))
        assert all(jax.tree.leaves(finite))


# Refusing what cannot work


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learning_rates": (0.1, 0.2, 0.1)}, r"differ from each other, got \(0.1, 0.2, 0.1\)"),
        ({"base": "adamm"}, "base must be one of 'adam', .* got 'adamm'"),
        ({"base": None}, "base must be one of 'adam', .* got None"),
        ({"base": optax.scale_by_adam}, "optax transformation such as optax.scale_by_adam"),
        ({"base": optax.adam(1.0)}, "steps downhill by itself"),
        ({"base": optax.chain(optax.clip(1.0), optax.sgd(0.1))}, "steps downhill by itself"),
        ({"weight_decay": True}, "weight_decay must be .* got True"),
        ({"weight_decay": "a"}, "weight_decay must be .* got 'a'"),
        ({"state_dtype": 16}, "state_dtype must be 'float32' or 'bfloat16', got 16"),
    ],
    ids=lambda part: part if isinstance(part, str) else ", ".join(part),  # names that are the same in every process
)
def test_options_that_cannot_work_are_refused_by_name(options, message):
    with pytest.raises(ValueError, match=message):
        samuel(**options)


@pytest.mark.parametrize(
    ("gradients", "params", "message"),
    [
        ("usual", None, r"needs the parameters: call update\(gradients, state, params\)"),
        ({"w": jnp.zeros(3)}, "usual", "gradients have the structure"),
        ("usual", {"w": jnp.zeros(3), "c": jnp.zeros(3)}, "have the structure"),
        ({"w": jnp.zeros(4), "v": jnp.zeros(3)}, "usual", r"gradients have shape \(4,\) at \['w'\]"),
    ],
    ids=["no params", "gradient missing", "other params", "other shape"],
)
def test_gradients_and_parameters_that_do_not_fit_are_refused(gradients, params, message):
    optimizer = make()
    gradients, params = (start() if tree == "usual" else tree for tree in (gradients, params))
    with pytest.raises(ValueError, match=message):
        optimizer.update(gradients, optimizer.init(start()), params)


def test_parameters_of_another_shape_than_at_the_start_are_refused():
    optimizer, other = make(), start() | {"w": jnp.zeros(4)}
    with pytest.raises(ValueError, match=r"parameters have shape \(4,\) at \['w'\], but the optimizer's state \(3,\)"):
        optimizer.update(other, optimizer.init(start()), other)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (optax.adam(1e-3), "what this optimizer's init"),
        (make(learning_rates=(0.1,)), r"other options: it has weights of shape \(1, 1, 10\)"),
        (make(average=False), "other options: .* no average, and this one needs .* an average"),
    ],
    ids=["another optimizer", "other rates", "no average"],
)
def test_a_state_of_another_optimizer_is_refused(other, message):
    with pytest.raises(ValueError, match=message):
        make().update(start(), other.init(start()), start())


def test_parameters_that_are_not_floats_are_refused_with_their_path():
    with pytest.raises(TypeError, match=r"got int32 at params\['layer'\]\[1\]"):
        make().init({"layer": [jnp.zeros(2), jnp.arange(3)]})
    with pytest.raises(TypeError, match=r"got complex64 at params\['z'\]; .*split_real_and_imaginary"):
        make().init({"z": jnp.zeros(2, jnp.complex64)})


def test_guessed_roles_are_warned_about_once():
    optimizer, params = samuel(), {"theta": jnp.zeros((4, 3)), "bias": jnp.zeros(3)}
    text = r"roles of 1 of 2 parameters are guesses: matrix: theta. Give roles=.* samuel.jax.roles\(params\) shows"
    with pytest.warns(UserWarning, match=text):
        optimizer.init(params)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.init(params)
        samuel(roles={"theta": "matrix", "bias": None}).init(params)
        samuel("adam").init(params)  # takes all parameters alike


@pytest.mark.parametrize("params", [{}, [], {"layer": {}}], ids=str)
def test_a_tree_without_parameters_is_refused(params):
    with pytest.raises(ValueError, match="init got no parameters"):
        samuel().init(params)


def test_roles_that_do_not_fit_are_refused_by_name():
    with pytest.raises(ValueError, match=r"role='matrix' does not fit parameter 'w' of shape \(3,\)"):
        samuel(roles={"w": "matrix", "v": None}).init(start())
    with pytest.raises(ValueError, match="roles must be a tree like that of the parameters"):
        samuel(roles={"it": "vector"}).init(start())
