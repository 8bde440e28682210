"""The optax drop-in keeps optax's contract, and what its state tells is true."""

import math
import os
import subprocess
import sys
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

from samuel.core import Anytime, Chosen, Fixed, Geometric, Watched
from samuel.jax.old_transform import certificate, decision, learning_rate, pace, samuel, scale_by_muon, shifts, weights
from tests.compiling import xla_flags

ROOT = Path(__file__).parents[2]
RULES = ("samuel", "patient", "levels", "theorem", "R", "K", "Kr")
STEPS = 40
RATES = (1e-3, 1e-2, 1e-1, 1.0)


def short_blocks(rule, horizon=400):
    """Options that make blocks of a rule end every few steps, or at any leap of the gradient."""
    if rule in ("levels", "theorem"):
        return {"rule": rule, "cover": Anytime(shortest=4, levels=3)}
    if rule in ("samuel", "patient"):
        return {"rule": rule, "alarm": 1.5}
    if rule == "R":
        return {"rule": rule, "horizon": horizon}
    return {"rule": rule, "cover": Watched(shortest=4, short=2), "horizon": horizon}


@pytest.fixture(autouse=True, scope="module")
def compile_fast():
    """Compiling is what takes the time here, and these programs run for milliseconds."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def make(**options):
    """An optimizer whose short blocks end every six steps."""
    usual = {"base": "adam", "learning_rates": (1e-3, 1e-2, 1e-1), "cover": Watched(shortest=6, short=1)}
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
    return learning_rate(state), weights(state), certificate(state), shifts(state), pace(state)


tell = jax.jit(told)


def assert_close(ones, others, rtol=1e-5, atol=1e-6):
    def close(one, other):  # sums of differences, as in certificates, are rounded in proportion to the largest of them
        finite = np.abs(np.asarray(other, np.float64))[np.isfinite(other)]
        np.testing.assert_allclose(one, other, rtol, atol * max(1.0, finite.max(initial=0.0)))

    jax.tree.map(close, ones, others)


def assert_same_run(params, state):
    """The run must have been that of the plain loop, come to the same decision, and tell the same."""
    assert_close(
        (params, decision(state, params), tell(state)),
        (plain_run()[0], decision(plain_run()[1], plain_run()[0]), tell(plain_run()[1])),
    )


def final_loss(params):
    return float(loss(params, jax.tree.map(np.concatenate, batches())))


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
    assert_close(decision(state, params), decision(own, by_hand))
    assert final_loss(params) < 0.7 * final_loss(start())


def test_flattened_it_does_the_same():
    assert_same_run(*Loop(optax.flatten(make())).run())


def test_accumulated_gradients_are_one_large_batch():
    halves = jax.tree.map(lambda leaf: leaf.reshape(2 * STEPS, 4, *leaf.shape[2:]), batches())
    assert_same_run(*Loop(optax.MultiSteps(make(), every_k_schedule=2)).run(data=halves))


def test_a_gradient_of_nan_changes_nothing_under_apply_if_finite():
    broken = jax.tree.map(lambda leaf: np.insert(leaf, 7, np.nan, axis=0), batches())
    assert_same_run(*Loop(optax.apply_if_finite(make(), max_consecutive_errors=3)).run(data=broken))


def test_hyperparameters_can_be_injected_and_changed_in_mid_run():
    cover = Watched(shortest=6, short=1)
    injected = optax.inject_hyperparams(samuel)("adam", (1e-3, 1e-2, 1e-1), cover=cover, weight_decay=0.0, lag=0.5)
    loop = Loop(injected)
    params, state = loop.run()
    assert_same_run(params, state)
    assert set(state.hyperparams) == {"weight_decay", "lag"}
    without, _ = loop.update(start(), state, params)
    state.hyperparams["weight_decay"] = jnp.asarray(0.5, jnp.float32)
    decayed, after = loop.update(start(), state, params)
    assert_close(decayed, jax.tree.map(lambda u, p: u - learning_rate(after) * 0.5 * p, without, params))
    assert loop.traces == 1


def test_the_average_and_the_alarm_can_be_injected():
    injected = optax.inject_hyperparams(samuel)(
        "adam", (1e-3, 1e-2, 1e-1), cover=Watched(shortest=6, short=1), average=8.0, alarm=10.0, settle=100.0
    )
    assert_same_run(*Loop(injected).run())


@pytest.mark.parametrize("value", [0.0, 5.0])  # 0 means off
@pytest.mark.parametrize("option", ["alarm", "settle", "experience", "patience", "average"])
def test_an_option_may_be_a_number_an_array_or_injected(option, value):
    def end(make, value):
        params, state = Loop(make("adam", (1e-3, 1e-2, 1e-1), **{option: value})).run()
        assert shifts(state) == 0
        return params, decision(state, params)

    given = end(samuel, value)
    assert_close(end(samuel, jnp.asarray(value)), given)
    assert_close(end(optax.inject_hyperparams(samuel), optax.constant_schedule(value)), given)


def test_after_a_shift_experience_is_the_same_as_a_number_an_array_or_injected():
    leap = (np.where(np.arange(60) < 40, 0.0, 100.0).astype(np.float32),)

    def end(make, value):
        params, state = Loop(make("sgd", (0.01, 0.1), experience=value)).run(jnp.ones(3), leap, pull)
        assert shifts(state) == 1
        return params, weights(state)

    ends = {}
    for value in (0.0, 30.0):
        ends[value] = end(samuel, value)
        assert_close(end(samuel, jnp.asarray(value)), ends[value])
        assert_close(end(optax.inject_hyperparams(samuel), optax.constant_schedule(value)), ends[value])
    assert abs(ends[30.0][1] - ends[0.0][1]).max() > 1e-3


def test_an_average_of_zero_means_none_also_where_nothing_is_compiled():
    injected = optax.inject_hyperparams(samuel)("adam", (1e-3, 1e-2, 1e-1), average=optax.constant_schedule(0.0))
    for optimizer in (injected, samuel("adam", (1e-3, 1e-2, 1e-1), average=np.float32(0))):
        params, state = start(), optimizer.init(start())
        for batch in zip(*(part[:3] for part in batches()), strict=True):
            updates, state = optimizer.update(jax.grad(loss)(params, batch), state, params)
            params = optax.apply_updates(params, updates)
        assert_close(decision(state, params), params)


@pytest.mark.parametrize("rule", ["samuel", "levels", "theorem"])
def test_a_lag_of_zero_can_be_injected_for_every_rule(rule):
    injected = optax.inject_hyperparams(samuel)("adam", **short_blocks(rule), lag=0.0)
    state = injected.init(start())  # not compiled: the lag is a number here and unknown below
    updates, after = jax.eval_shape(injected.update, start(), state, start())
    assert shapes(updates) == shapes(start())
    assert shapes(after.inner_state) == shapes(state.inner_state)


@cache
def alone(name):
    """Parameters and decision after a run on the problem of one of them, the other staying where it is."""
    params, state = _one_parameter().run({"it": start()[name]}, loss=_problems()[name])
    return params["it"], decision(state, params)["it"]


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
    "trees": lambda: optax.partition({"on": make(packed=False), "off": optax.set_to_zero()}, {"w": "on", "v": "off"}),
}


@pytest.mark.parametrize("name", FREEZING)
def test_frozen_parameters_stay_and_the_others_learn_as_if_alone(name):
    params, state = Loop(FREEZING[name]()).run()
    for frozen in (params, decision(state, params)):
        np.testing.assert_array_equal(frozen["v"], start()["v"])
    assert_close((params["w"], decision(state, params)["w"]), alone("w"))
    assert final_loss(params) < 0.9 * final_loss(start())
    assert learning_rate(state) > 0


def test_two_of_them_in_one_partition_do_not_know_of_each_other():
    def apart(params, batch):
        return sum(problem({"it": params[name]}, batch) for name, problem in _problems().items())

    params, state = Loop(optax.partition({"one": make(), "two": make()}, {"w": "one", "v": "two"})).run(loss=apart)
    assert_close(params, {name: alone(name)[0] for name in params})
    for ask in (learning_rate, partial(decision, params=params)):
        with pytest.raises(ValueError, match="2 states of samuel; pass one of them"):
            ask(state)
    decided = params
    for part in ("one", "two"):
        decided = decision(state.inner_states[part], decided)
    assert_close(decided, {name: alone(name)[1] for name in params})
    assert learning_rate(state.inner_states["one"]) != learning_rate(state.inner_states["two"])


def test_a_group_without_parameters_does_no_harm():
    optimizer = optax.partition({"ours": make(), "theirs": optax.sgd(0.1)}, {"w": "theirs", "v": "theirs"})
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
        told_and_decided = jax.vmap(told)(state), jax.vmap(decision)(state, params)
        mapped = jax.tree.map(lambda leaf, i=i: leaf[i], (params, told_and_decided))
        assert_close(mapped, (own, (tell(its), decision(its, own))))


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
    assert all(isinstance(leaf, jax.Array) for leaf in tells[2])

    trained = nnx.state(model, nnx.Param)
    decided = nnx.jit(decision)(optimizer.opt_state, trained)
    assert jax.tree.structure(decided) == jax.tree.structure(trained)
    tested = nnx.clone(model)
    nnx.update(tested, decided)
    assert_close({"w": tested.w[...], "v": tested.v[...]}, decision(plain_run()[1], plain_run()[0]))
    assert not np.array_equal(tested.w[...], model.w[...])


def test_train_states_take_it():
    state = flax.training.train_state.TrainState.create(apply_fn=loss, params=start(), tx=make())

    @jax.jit
    def step(state, batch):
        return state.apply_gradients(grads=jax.grad(state.apply_fn)(state.params, batch))

    for batch in zip(*batches(), strict=True):
        state = step(state, batch)
    assert_same_run(state.params, state.opt_state)
    assert_close(tell(state), tell(state.opt_state))
    assert_close(decision(state, state.params), decision(state.opt_state, state.params))


def test_asking_a_state_that_is_not_one_says_so():
    for ask in (learning_rate, weights, certificate, shifts, pace, partial(decision, params=start())):
        with pytest.raises(ValueError, match="got a tuple with no state of samuel"):
            ask(optax.adam(0.1).init(start()))


# The decision


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
    """The decision must be the mean of the parameters since the last shift, each with the weight C(n + power, n)."""
    path, seen = [], 0
    for params, state in run:
        if shifts(state) > seen:
            path, seen = [], int(shifts(state))
        path.append(jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params))
        shares = [math.comb(n + power, n) for n in range(len(path))]
        expected = jax.tree.map(lambda *leaves: np.average(leaves, axis=0, weights=shares), *path)  # noqa: B023
        decided = decision(state, params)
        assert shapes(decided) == shapes(params)
        assert_close(jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), decided), expected, rtol, atol)
    return path, seen


AVERAGED = {
    "packed": lambda: make(packed=True),
    "trees": lambda: make(packed=False),
    "one block": lambda: samuel("adam"),
    "a base of its own": lambda: make(base=optax.scale_by_adam()),
    "decayed": lambda: make(weight_decay=0.1),
    "flattened": lambda: optax.flatten(make()),
    "steps mixed": lambda: samuel(**short_blocks("levels"), average=8.0),
    "in a chain": lambda: optax.chain(optax.clip(0.1), make(), optax.scale(0.5)),
    "in a domain": lambda: optax.chain(make(), optax.keep_params_nonnegative()),
}


@pytest.mark.parametrize("name", AVERAGED)
def test_the_decision_is_the_mean_of_the_parameters_whatever_is_done_to_the_steps(name):
    path, _ = assert_averaged(followed(AVERAGED[name]()))
    assert any(np.ptp([point["w"] for point in path], axis=0) > 0.1)


def pull(params, batch):
    """The loss of a spring to where the batch says."""
    return 0.5 * jnp.sum((params - batch[0]) ** 2)


def test_a_shift_begins_the_average_anew():
    leap = (np.where(np.arange(60) < 40, 0.0, 100.0).astype(np.float32),)
    path, seen = assert_averaged(followed(samuel("sgd", (0.01, 0.1)), jnp.ones(3), pull, leap))
    assert (seen, len(path)) == (1, 60 - 41)  # seen with the second of the new gradients


@pytest.mark.parametrize("shape", [(), (3,), (4096,), (64, 64), (2, 4096), (5000,)], ids=str)
@pytest.mark.parametrize("packed", [True, False])
def test_a_single_array_can_be_decided_about(packed, shape):
    targets = (np.linspace(-1, 1, 8, dtype=np.float32),)
    assert_averaged(followed(samuel("sgd", (0.1, 0.5), packed=packed), jnp.ones(shape), pull, targets))


@pytest.mark.parametrize("packed", [True, False])
def test_of_parameters_of_16_bits_the_decision_has_16_and_its_average_32(packed):
    first = {"w": jnp.zeros(3, jnp.bfloat16), "v": jnp.ones(3)}
    run = list(followed(make(packed=packed), first))
    assert_averaged(run, rtol=2**-8, atol=2**-12)  # one rounding to 16 bits at the end
    assert {leaf.dtype for leaf in jax.tree.leaves(run[-1][1].average)} == {jnp.dtype(jnp.float32)}


def test_inside_compiled_code_the_decision_is_the_same():
    params, state = plain_run()
    assert_close(jax.jit(decision)(state, params), decision(state, params))
    assert not np.array_equal(decision(state, params)["w"], params["w"])


def test_anything_can_be_averaged_along_at_the_pace_of_the_decision():
    average = None
    for params, state in followed(make()):
        average = params if average is None else optax.incremental_update(params, average, pace(state))
        assert_close(average, decision(state, params))


def test_between_accumulated_steps_the_decision_stays():
    seen = []
    for params, state in followed(optax.MultiSteps(make(), every_k_schedule=4), data=batches(12)):
        seen.append(decision(state, params)["w"])
    for t in range(0, 12, 4):
        for between in seen[t + 1 : t + 4]:
            np.testing.assert_array_equal(between, seen[t])
        assert not np.array_equal(seen[t + 4], seen[t])


@pytest.mark.parametrize("options", [{"rule": "R", "horizon": 400}, {"average": 0.0}], ids=["R", "switched off"])
def test_without_an_average_the_decision_is_the_parameters(options):
    for params, state in followed(samuel("adam", **options), data=batches(3)):
        assert decision(state, params) is params
        assert state.average is None
        assert pace(state) == 1


@pytest.mark.parametrize("packed", [True, False])
def test_parameters_that_are_not_those_of_the_state_are_not_decided_about(packed):
    state = make(packed=packed).init(start())
    with pytest.raises(ValueError, match=r"structure .*'it'.* but the optimizer was initialised for .*'v'.*'w'"):
        decision(state, {"it": jnp.zeros(3)})
    with pytest.raises(ValueError, match=r"shapes \(\(3,\), \(5000,\)\), but the state \(\("):
        decision(state, start() | {"w": jnp.zeros(5000)})


# State and dtypes


def shapes(tree):
    return jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype, leaf.weak_type), tree)


class Stepper:
    """Compiled steps of one optimizer on losses whose slopes are given; knows how often it was traced."""

    def __init__(self, optimizer):
        self.optimizer, self.traces = optimizer, 0
        params = jnp.linspace(-1, 1, 3)
        self.first = params, jax.jit(optimizer.init)(params)
        self.step = jax.jit(self._step)

    def _step(self, params, state, slope, scale):
        self.traces += 1
        gradient = scale * (slope + jnp.tanh(params - 0.5))  # of a convex loss
        updates, state = self.optimizer.update(gradient, state, params)
        return optax.apply_updates(params, updates), state, told(state)

    def run(self, slopes, scale=1.0):
        """Parameters, state, and what it tells, after every step."""
        params, state = self.first
        for slope in np.asarray(slopes, np.float32):
            params, state, tells = self.step(params, state, slope, np.float32(scale))
            yield params, state, tells


@cache
def stepper(rule):
    return Stepper(samuel("adagrad", RATES, **short_blocks(rule)))


def slopes(seed=0, steps=60):
    return np.random.default_rng(seed).normal(size=(steps, 3))


@pytest.mark.parametrize("rule", RULES)
def test_the_state_keeps_its_shapes_and_nothing_is_compiled_twice(rule):
    one = stepper(rule)
    before = shapes(one.first[1])
    *_, (_, state, _) = one.run(slopes(steps=450))  # beyond the horizon, too
    assert shapes(state) == before
    assert one.traces == 1
    assert shapes(jax.eval_shape(one.optimizer.init, one.first[0])) == before


@cache
def trees():
    return Loop(make(packed=False), donate=True)


@cache
def theorem():
    return Loop(samuel("adam", **short_blocks("theorem"), base_state="slots"), donate=True)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("params", [start(), jnp.zeros(4096)], ids=["tree", "one array"])
@pytest.mark.parametrize("packed", [True, False])
def test_no_array_of_the_state_is_another_or_one_of_the_parameters(packed, params, compiled):
    init = make(packed=packed).init
    state = (jax.jit(init) if compiled else init)(params)
    places = [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves((params, state))]
    assert len(set(places)) == len(places)


@pytest.mark.parametrize("loop", [trees, theorem])
def test_the_state_can_be_donated_and_saved(loop):
    state = loop().optimizer.init(start())  # not compiled, where arrays could be shared
    assert all(leaf.size > 0 for leaf in jax.tree.leaves(state))  # checkpoint libraries refuse empty arrays
    first = state.rays.round
    for _ in range(3):
        _, state = loop().update(start(), state, start())
    assert first.is_deleted()
    assert state.rays.round == 3


def test_packed_vectors_and_trees_do_the_same():
    assert_same_run(*trees().run())


def test_packed_vectors_and_trees_do_the_same_where_every_slot_has_its_own_base_state():
    params, state = Loop(samuel("adam", **short_blocks("theorem"), base_state="slots", packed=False)).run()
    packed, own = theorem().run()
    assert_close((params, tell(state)), (packed, tell(own)))


def test_anchors_of_16_bits_learn_as_well():
    options = short_blocks("theorem") | {"base_state": "slots", "anchor_dtype": jnp.bfloat16}
    params, state = Loop(samuel("adam", **options)).run()
    assert {leaf.dtype for leaf in jax.tree.leaves(state.kept)} == {jnp.dtype(jnp.bfloat16)}
    assert final_loss(params) < 1.1 * final_loss(theorem().run()[0])


def mixed():
    return {"a": jnp.ones(4, jnp.bfloat16), "b": jnp.ones((2, 2), jnp.float16), "c": jnp.ones(())}


@pytest.mark.parametrize("packed", [True, False])
def test_updates_keep_the_dtypes_of_the_parameters_and_weights_have_32_bits(packed):
    loop = Loop(make(packed=packed))
    params, state = mixed(), loop.init(mixed())
    for _ in range(6):
        updates, state = loop.update(params, state, params)
        assert shapes(updates) == shapes(params)
        params = optax.apply_updates(params, updates)
    assert all(float(jnp.max(leaf)) < 1 for leaf in jax.tree.leaves(params))
    assert {leaf.dtype for leaf in jax.tree.leaves(tell(state)[:3])} == {jnp.dtype(jnp.float32)}
    assert loop.traces == 1


@pytest.mark.parametrize("packed", [True, False])
def test_parameters_of_64_bits_keep_them_and_gradients_may_have_other_dtypes(packed):
    with jax.enable_x64(True):
        optimizer = make(packed=packed)
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
    ours = Loop(samuel("sgd", (1e-4, 1e-3), cover=Watched(shortest=32, short=1)))
    short, wide = jnp.ones(8, jnp.bfloat16), jnp.ones(8)
    stuck, _ = Loop(optax.sgd(1e-3)).run(short, steps, slow)
    moved, _ = ours.run(short, steps, slow)
    full, _ = ours.run(wide, steps, slow)
    np.testing.assert_array_equal(stuck, short)
    assert moved.dtype == jnp.bfloat16
    assert slow(full, None) < 0.7 * slow(wide, None)
    assert slow(moved, None) < 1.05 * slow(full, None)


@pytest.mark.parametrize(
    ("copies", "options"),
    [
        (2.0, {"rule": "R", "horizon": 1000}),
        (3.0, {"rule": "samuel"}),
        (2.0, {"rule": "samuel", "average": 0.0}),
        (8.0, {"rule": "Kr", "horizon": 1000}),
        (5.0, {"rule": "Kr", "horizon": 1000, "anchor_dtype": jnp.bfloat16}),
        (9.0, {"rule": "samuel", "cover": Watched()}),
        (16.0, {"rule": "levels"}),
        (9.0, {"rule": "levels", "anchor_dtype": jnp.bfloat16}),
        (16.0, {"rule": "levels", "base_state": "slots"}),
        (12.5, {"rule": "levels", "base_state": "slots", "anchor_dtype": jnp.bfloat16}),
        (15.0, {"rule": "theorem"}),
        (8.0, {"rule": "theorem", "anchor_dtype": jnp.bfloat16}),
        (15.0, {"rule": "theorem", "base_state": "slots"}),
        (11.5, {"rule": "theorem", "base_state": "slots", "anchor_dtype": jnp.bfloat16}),
    ],
)
@pytest.mark.parametrize("packed", [True, False])
def test_the_state_holds_no_more_copies_of_the_parameters_than_said(copies, options, packed):
    params = {"w": jnp.zeros((64, 64)), "b": jnp.zeros(4096)}
    state = jax.eval_shape(samuel("adam", **options, packed=packed).init, params)

    def size(tree):
        return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))

    assert size((state.moving, state.kept, state.rounding, state.average)) / size(params) == copies
    slots = len(state.base)
    assert slots == (8 if options.get("base_state") == "slots" else 1)
    assert size(state.base) / size(params) == pytest.approx(2 * slots, rel=1e-3)  # Adam's own two
    assert size(state.rays) < 20_000


# Over several devices


def train_over_devices():
    """Run in a process of its own, which pretends to have eight devices."""
    assert jax.device_count() == 8
    jax.config.update("jax_disable_most_optimizations", True)
    kinds = jax.sharding.AxisType
    _check_placement(kinds.Auto, samuel("adam", (1e-3, 1e-2, 1e-1), cover=Watched(4, short=2), weight_decay=0.1))
    _check_placement(kinds.Explicit, samuel("adam", (1e-3, 1e-2, 1e-1)))
    _check_placement(kinds.Explicit, samuel(optax.scale_by_adam(), **short_blocks("theorem")))
    _check_placement(kinds.Auto, samuel("muon", (1e-3, 1e-2, 1e-1)), of_base=3)  # of matrices it has one copy


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
    for _ in range(9):  # blocks end after four and eight
        *own, updates = step(*own)
        assert_placed((own, updates), least=10 + of_base)
    alone = params, jax.jit(optimizer.init)(params)
    for _ in range(9):
        *alone, _ = step(*alone)
    assert_close(jax.device_get(own[0]), jax.device_get(alone[0]), rtol=1e-5, atol=1e-5)
    for decide in (decision, jax.jit(decision)):
        decided = decide(own[1], own[0])
        assert_placed(decided, least=2)
        assert_close(jax.device_get(decided), jax.device_get(decide(alone[1], alone[0])), rtol=1e-5, atol=1e-5)


def test_parameters_spread_over_devices_stay_where_they_are_and_so_does_the_state():
    flags = xla_flags("--xla_force_host_platform_device_count=8")
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    code = "from tests.jax.test_transform import train_over_devices; train_over_devices()"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# Bases


def test_a_named_base_is_the_transformation_it_stands_for():
    options = {"learning_rates": (1e-3, 1e-2), "cover": Watched(short=0), "lag": 0.9}
    named, own = (Loop(samuel(base, **options)).run() for base in ("sgd", optax.identity()))
    assert_close((named[0], tell(named[1])), (own[0], tell(own[1])))
    assert_same_run(*Loop(make(base=optax.scale_by_adam())).run())


def layers():
    """A matrix, the kernel of a convolution, a table of word vectors and a bias."""
    rng, shapes = np.random.default_rng(1), {"kernel": (6, 4), "conv": (3, 3, 2, 5), "embedding": (7, 3), "bias": (4,)}
    return {name: jnp.asarray(rng.normal(size=shape), jnp.float32) for name, shape in shapes.items()}


@cache
def moving_goals(steps=60):
    """Where the layers are pulled to in every step: about 0, and far away from the 40th on."""
    rng, far = np.random.default_rng(2), np.where(np.arange(steps) < 40, 0.0, 30.0)
    return ([jax.tree.map(lambda p: np.float32(at + 0.1 * rng.normal(size=p.shape)), layers()) for at in far],)  # noqa: B023


def pull_layers(params, batch):
    return sum(pull(params[name].astype(jnp.float32), (goal,)) for name, goal in batch[0].items())


@pytest.mark.parametrize("packed", [True, False])
def test_muon_by_name_is_the_transformation_with_the_lag_and_the_experience_that_suit_it(packed):
    named = samuel("muon", packed=packed)
    own = samuel(scale_by_muon(), lag=0.67, experience=1000.0, packed=packed)
    runs = (followed(optimizer, layers(), pull_layers, moving_goals()) for optimizer in (named, own))
    for (params, state), (others, their_state) in zip(*runs, strict=True):
        assert_close((params, tell(state)), (others, tell(their_state)))
    assert shifts(state) == 1
    with pytest.raises(AssertionError):  # what the name brings makes a difference
        assert_close(params, Loop(samuel(scale_by_muon(), packed=packed)).run(layers(), moving_goals(), pull_layers)[0])


def test_over_muon_packed_vectors_and_trees_do_the_same():
    ends = [Loop(samuel("muon", packed=packed)).run(layers(), moving_goals(), pull_layers) for packed in (True, False)]
    assert_close(ends[0][0], ends[1][0], rtol=1e-5, atol=1e-5)  # the iteration magnifies the last bits of small numbers
    assert_close(decision(ends[0][1], ends[0][0]), decision(ends[1][1], ends[1][0]), rtol=1e-5, atol=1e-5)


def test_with_one_rate_it_is_muon_with_that_rate():
    ours = Loop(samuel("muon", (0.05,), decay="none", alarm=0)).run(layers(), moving_goals(), pull_layers)[0]
    muon = optax.chain(scale_by_muon(), optax.scale(-0.05))
    assert_close(ours, Loop(muon).run(layers(), moving_goals(), pull_layers)[0], rtol=1e-5, atol=1e-5)


def test_over_muon_parameters_of_16_bits_keep_them_and_learn():
    first = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), layers())
    nearby = ([goal for goal in moving_goals()[0] for _ in range(2)][:80],)  # before the shift
    params, state = Loop(samuel("muon")).run(first, nearby, pull_layers)
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype(jnp.bfloat16)}
    floats = [leaf for leaf in jax.tree.leaves(state.base) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    assert {leaf.dtype for leaf in floats} == {jnp.dtype(jnp.float32)}
    last = (nearby[0][-1],)
    assert pull_layers(params, last) < 0.5 * pull_layers(first, last)


def test_over_muon_kernels_of_convolutions_move_along_matrices_of_inputs_times_outputs():
    optimizer = samuel("muon", (1.0,), decay="none", packed=True)
    updates, _ = jax.jit(optimizer.update)(layers(), jax.jit(optimizer.init)(layers()), layers())
    for name, inputs, outputs in (("kernel", 6, 4), ("conv", 18, 5)):
        sizes = np.linalg.svd(np.reshape(updates[name], (inputs, outputs)), compute_uv=False)
        sizes /= 0.2 * math.sqrt(max(inputs, outputs))
        assert (abs(sizes - 1) < 0.35).all(), name  # five iterations make them roughly 1
    signs = jax.tree.map(jnp.sign, layers())
    for name in ("embedding", "bias"):  # a first step of Adam's, along the sign of every number
        assert_close(updates[name] / abs(updates[name]).max(), -signs[name], rtol=1e-3)


def test_a_chain_can_be_the_base():
    chain = optax.chain(optax.clip_by_global_norm(1.0), optax.scale_by_rms(), optax.trace(decay=0.5))
    ours, _ = Loop(samuel(chain, (1e-2,), decay="none", cover=Watched(short=0))).run()
    theirs, _ = Loop(optax.chain(chain, optax.scale(-1e-2))).run()
    assert_close(ours, theirs)


def test_a_base_is_given_the_extra_arguments_and_the_parameters():
    def update(updates, state, params=None, *, factor, **extra):
        return jax.tree.map(lambda g, p: factor * (g + p), updates, params), state

    base = optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)
    loop = Loop(samuel(base, (0.1,), decay="none", cover=Watched(short=0)))
    gradient = jax.tree.map(lambda leaf: leaf + 2, start())
    updates, _ = loop.update(gradient, loop.init(start()), start(), factor=3.0)
    assert_close(updates, jax.tree.map(lambda g, p: -0.1 * 3 * (g + p), gradient, start()))


# What it is, where something simpler is the same


@pytest.mark.parametrize(("rule", "weight_decay"), [("long", 0.0), ("samuel", 0.1), ("levels", 0.1), ("theorem", 0.1)])
def test_with_one_rate_it_is_the_base_with_that_rate(rule, weight_decay):
    # Experts of one rate stand where the decision is, whenever they were born, as long as they share directions.
    options = {"cover": Watched(short=0)} if rule == "long" else short_blocks(rule)
    data = batches(steps=200)
    ours, _ = Loop(samuel("adam", (0.05,), decay="none", weight_decay=weight_decay, **options)).run(data=data)
    theirs, _ = Loop(optax.adamw(0.05, weight_decay=weight_decay)).run(data=data)
    assert_close(ours, theirs)


def test_weight_decay_shrinks_what_is_marked_and_spares_the_rest():
    def mask(params):
        return {name: leaf.ndim > 1 for name, leaf in params.items()}

    params = {"matrix": jnp.ones((2, 2)), "bias": jnp.ones(2)}
    options = {"decay": "none", "cover": Watched(short=0), "weight_decay": 0.5}
    loop = Loop(samuel("sgd", (0.1,), **options, weight_decay_mask=mask))
    updates, _ = loop.update(jax.tree.map(jnp.zeros_like, params), loop.init(params), params)
    assert_close(updates, {"matrix": jnp.full((2, 2), -0.05), "bias": jnp.zeros(2)})

    same = samuel("sgd", (0.1,), **options, weight_decay_mask=mask(params))
    programs = [jax.make_jaxpr(o.update)(params, loop.init(params), params) for o in (loop.optimizer, same)]
    assert str(programs[0]) == str(programs[1])


# Scales


@pytest.mark.parametrize("rule", RULES)
def test_losses_times_a_constant_give_the_same_decisions(rule):
    one = stepper(rule)

    def run(scale):
        path = [(params, weights(state), shifts(state)) for params, state, _ in one.run(slopes(), scale)]
        return jax.tree.map(lambda *leaves: np.stack(leaves), *path)

    usual = run(1.0)
    for scale in (2.0**20, 2.0**-20):  # rounds nothing
        assert_close(run(scale), usual, rtol=0, atol=0)
    for scale in (1e6, 1e-6):
        assert_close(run(scale), usual, rtol=1e-4, atol=1e-4)


# What the state tells

GRADIENTS = arrays(
    np.float32, (10, 3), elements=st.sampled_from([0.0, 1.0, -1.0, 0.3, -2.5, 1e-12, 1e-4, 1e4, -1e12, 1e12])
) | arrays(np.float32, (10, 3), elements=st.floats(-10, 10, width=32))


@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=60)
@given(slopes=GRADIENTS, scale=st.sampled_from([1e-6, 1.0, 1e3]))
def test_weights_are_shares_and_the_certificate_holds_whatever_the_gradients(rule, slopes, scale):
    for _, state, (rate, shares, (measured, bound), *_) in stepper(rule).run(slopes, scale):
        shares = np.asarray(shares)
        assert (shares >= 0).all()
        assert np.sum(shares) == pytest.approx(1, abs=1e-5)
        assert 0 < rate < 1.001
        measured, bound = np.asarray(measured), np.asarray(bound)
        opened = shares > 0
        assert not np.isnan(measured[opened]).any()
        assert not np.isnan(bound[opened]).any()
        slack = 1e-4 * np.asarray(state.rays.unit) + 1e-5 * np.abs(measured)
        assert (measured <= bound + slack)[opened].all()


def test_what_the_certificate_says_was_measured_is_the_sum_computed_by_hand():
    one, rates = stepper("R"), np.asarray(RATES)
    params, state = one.first
    begun, total = np.asarray(params, np.float64), np.zeros(len(rates))
    for i, slope in enumerate(slopes().astype(np.float32)):
        gradient = np.asarray(slope + np.tanh(params - np.float32(0.5)), np.float64)
        experts = begun - rates[:, None] * np.asarray(state.moving["s"][:3], np.float64)
        np.testing.assert_allclose(np.asarray(weights(state))[0] @ experts, params, rtol=1e-4, atol=1e-5)
        total += (np.asarray(params) - experts) @ gradient
        params, state, (_, _, (measured, bound), *_) = one.step(params, state, slope, np.float32(1))
        np.testing.assert_allclose(measured[0], total, rtol=1e-3, atol=1e-3, err_msg=f"step {i}")
        assert (measured <= bound).all()
    assert np.abs(total).max() > 1


def test_the_certificate_is_tight_where_one_expert_wins_all_along():
    for _, _, (_, _, (measured, bound), *_) in stepper("R").run(np.full((390, 3), 3.0)):
        assert (measured <= bound).all()
    assert bound[0, -1] < 1.05 * measured[0, -1]


def test_slots_that_are_closed_have_no_certificate():
    optimizer = samuel("sgd", (0.01, 0.1), rule="theorem", cover=Anytime(4, levels=2))
    report = certificate(jax.jit(optimizer.init)(jnp.zeros(2)))
    assert np.isnan(report.measured[1]).all()
    np.testing.assert_array_equal(report.measured[0], [0, 0])


# Refusing what cannot work


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learning_rates": ()}, "learning_rates is empty"),
        ({"learning_rates": (0.1, -0.5)}, "positive and finite, got -0.5"),
        ({"learning_rates": (0.1, 0.0)}, "positive and finite, got 0.0"),
        ({"learning_rates": (0.1, float("nan"))}, "positive and finite, got nan"),
        ({"learning_rates": (0.1, float("inf"))}, "positive and finite, got inf"),
        ({"learning_rates": (0.1, 0.2, 0.1)}, r"differ from each other, got \(0.1, 0.2, 0.1\)"),
        ({"learning_rates": 0.1}, "must be a list of numbers, got 0.1"),
        ({"base": "adamm"}, "base must be one of 'adam', .* got 'adamm'"),
        ({"base": None}, "base must be one of 'adam', .* got None"),
        ({"base": optax.scale_by_adam}, "optax transformation such as optax.scale_by_adam"),
        ({"base": optax.adam(1.0)}, "steps downhill by itself"),
        ({"base": optax.chain(optax.clip(1.0), optax.sgd(0.1))}, "steps downhill by itself"),
        ({"rule": "samuell"}, "rule must be one of 'samuel', .* got 'samuell'"),
        ({"lag": 1}, "lag must be .* below 1, got 1"),
        ({"lag": -0.1}, "lag must be .* got -0.1"),
        ({"takeover": 2}, "takeover must be .* got 2"),
        ({"collapse": -0.5}, "collapse must be .* got -0.5"),
        ({"alarm": 1.0}, "alarm must be a number above 1 .* got 1.0"),
        ({"alarm": -2}, "alarm must be .* got -2"),
        ({"settle": -5.0}, "settle must be .* got -5.0"),
        ({"experience": -5.0}, "experience must be .* got -5.0"),
        ({"experience": 9.0, "scale": "max"}, "experience lets gains count less .* got scale='max'; leave experience"),
        ({"experience": 9.0, "rule": "R", "horizon": 9}, "only with settle .* got settle=None; give settle="),
        ({"patience": -5.0}, "patience must be .* got -5.0"),
        ({"settle": 100.0, "scale": "max"}, "settle lets gains count less .* got scale='max'; leave settle out"),
        ({"average": -1.0}, "average must be .* at least 0 .* got -1.0"),
        ({"Q": 0}, "Q must be a whole number of at least 1, got 0"),
        ({"Q": 2.5}, "Q must be .* got 2.5"),
        ({"horizon": 0}, "horizon must be .* at least 1, got 0"),
        ({"horizon": 10.0}, "horizon must be .* got 10.0"),
        ({"scale": -1}, "scale must be .* got -1"),
        ({"scale": "mean"}, "scale must be 'rms', 'max' .* got 'mean'"),
        ({"prior": float("nan")}, "prior must be .* got nan"),
        ({"cover": 32}, "cover must be one of Watched, .* got 32"),
        ({"cover": Watched}, "cover must be one of Watched"),
        ({"combine": "mean"}, "combine must be one of .* got 'mean'"),
        ({"newborns": "old"}, "newborns must be one of .* got 'old'"),
        ({"decay": "cosine"}, "decay must be one of .* got 'cosine'"),
        ({"reference": "short"}, "reference must be one of .* got 'short'"),
        ({"short_rates": "below"}, "short_rates must be one of .* got 'below'"),
        ({"base_state": "own"}, "base_state must be one of .* got 'own'"),
        ({"decay": "linear"}, "needs to know its length: give horizon="),
        ({"rule": "R"}, "needs to know its length: give horizon="),
        ({"weight_decay": -0.1}, "weight_decay must be a number of at least 0, got -0.1"),
        ({"weight_decay": float("nan")}, "weight_decay must be .* got nan"),
        ({"weight_decay": True}, "weight_decay must be .* got True"),
        ({"horizon": np.float32(10.5)}, "horizon must be a whole number .* got .*10.5"),
        ({"horizon": jnp.int32(0)}, "horizon must be a whole number .* got .*0"),
        ({"learning_rates": ["a"]}, "must be a list of numbers, got"),
        ({"learning_rates": (1e-50, 1e-3)}, "from 1e-30 to 1e30.*got 1e-50"),
        ({"weight_decay": "a"}, "weight_decay must be .* got 'a'"),
        ({"packed": "yes"}, "packed must be True, False or None, got 'yes'"),
        ({"anchor_dtype": "foo"}, "anchor_dtype must be a floating-point dtype .* got 'foo'"),
        ({"anchor_dtype": int}, "anchor_dtype must be a floating-point dtype .* got <class 'int'>"),
    ],
    ids=lambda part: part if isinstance(part, str) else ", ".join(part),  # names that are the same in every process
)
def test_options_that_cannot_work_are_refused_by_name(options, message):
    with pytest.raises(ValueError, match=message):
        samuel(**options)


@pytest.mark.parametrize("packed", [True, False])
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
def test_gradients_and_parameters_that_do_not_fit_are_refused(gradients, params, message, packed):
    optimizer = make(packed=packed)
    state = optimizer.init(start())
    gradients, params = (start() if tree == "usual" else tree for tree in (gradients, params))
    with pytest.raises(ValueError, match=message):
        optimizer.update(gradients, state, params)


@pytest.mark.parametrize("packed", [True, False])
def test_parameters_of_another_shape_than_at_the_start_are_refused(packed):
    optimizer = make(packed=packed)
    state = optimizer.init(start())
    for size in (len(start()["w"]) + 1, 5000):  # a few more numbers fit into packed vectors
        other = start() | {"w": jnp.zeros(size)}
        with pytest.raises(ValueError, match="parameters have"):
            optimizer.update(other, state, other)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (optax.adam(1e-3), "what this optimizer's init"),
        (samuel("adam", (1e-3, 1e-2, 1e-1), rule="levels"), "other options"),
        (make(learning_rates=(0.1,)), "other options"),
        (make(average=0.0), r"other options: it has the vectors .*'s'.* and this one needs .*'average'"),
    ],
    ids=["another optimizer", "another rule", "other rates", "no average"],
)
def test_a_state_of_another_optimizer_is_refused(other, message):
    with pytest.raises(ValueError, match=message):
        make().update(start(), other.init(start()), start())


def test_a_state_with_an_average_is_refused_where_none_is_wanted():
    with pytest.raises(ValueError, match=r"it has the vectors .*'average'.* and this one needs"):
        make(average=0.0).update(start(), make().init(start()), start())


def test_parameters_that_are_not_floats_are_refused_with_their_path():
    with pytest.raises(TypeError, match=r"got int32 at params\['layer'\]\[1\]"):
        make().init({"layer": [jnp.zeros(2), jnp.arange(3)]})
    with pytest.raises(TypeError, match=r"got complex64 at params\['z'\]; .*split_real_and_imaginary"):
        make().init({"z": jnp.zeros(2, jnp.complex64)})


def test_a_mask_that_does_not_fit_the_parameters_is_refused():
    optimizer = make(weight_decay=0.1, weight_decay_mask={"w": True})
    with pytest.raises(ValueError, match="weight_decay_mask has the structure"):
        optimizer.update(start(), optimizer.init(start()), start())


@pytest.mark.parametrize("rule", ["samuel", "theorem"])
@pytest.mark.parametrize(
    "cover", [Watched(4, short=1), Geometric(16, shortest=4), Anytime(4, levels=2), Fixed(8), Chosen((6, 20))], ids=str
)
def test_every_cover_can_be_used(cover, rule):
    params, state = Loop(samuel("sgd", (0.01, 0.1), rule=rule, cover=cover)).run()
    assert state.rays.count.shape == (cover.slots(16),)
    assert float(weights(state).sum()) == pytest.approx(1, abs=1e-5)
    assert final_loss(params) < 0.5 * final_loss(start())
