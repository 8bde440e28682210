"""The paper's Algorithm 1 with one gradient takes the recorded steps, and its certificate holds."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from samuel.core import AllIntervals, Anytime, Chosen, Geometric
from samuel.core import weights as mw
from samuel.jax.paper import algorithm1, certificate, shares
from tests.trajectories import ROUNDS, recorded, snapshots

RATES = (0.001, 0.01, 0.1, 1.0)
COVERS = {
    "anytime": Anytime(shortest=4, levels=5),
    "geometric": Geometric(ROUNDS, shortest=8),
    "chosen": Chosen((100, 200)),
}


def path(base, cover, dtype):
    """Parameters, weights, rates and certificates at the snapshots."""
    optimizer = algorithm1(base, RATES, cover=COVERS[cover])
    start, gradients = recorded()["start/adam"].astype(dtype), recorded()["gradients/adam/shift"].astype(dtype)

    def step(carry, gradient):
        params, state = carry
        updates, state = optimizer.update(gradient, state, params)
        params = optax.apply_updates(params, updates)
        return (params, state), (params, shares(state), state.rate, jnp.stack(certificate(state)))

    _, found = jax.jit(partial(jax.lax.scan, step))((start, optimizer.init(start)), gradients)
    at = np.asarray(snapshots()) - 1
    return dict(
        zip(("parameters", "weights", "rates", "certificates"), (np.asarray(one)[at] for one in found), strict=True)
    )


def assert_recorded(found, name, tolerance):
    for what, values in found.items():
        theirs = recorded()[f"theorem/{name}/{what}"]
        size = np.abs(theirs[np.isfinite(theirs)]).max()  # a bound is infinite until all step sizes are known
        np.testing.assert_allclose(values, theirs, rtol=tolerance, atol=tolerance * size, err_msg=what)


@pytest.mark.parametrize("cover", COVERS)
def test_in_double_precision_it_takes_the_recorded_steps(cover):
    with jax.enable_x64(True):
        found = path("adagrad", cover, np.float64)
    assert_recorded(found, f"numpy/{cover}/adagrad", 1e-12)


@pytest.mark.parametrize("base", ["adagrad", "adam"])
@pytest.mark.parametrize("cover", COVERS)
def test_in_single_precision_it_takes_the_recorded_steps(cover, base):
    assert_recorded(path(base, cover, np.float32), f"jax/{cover}/{base}", 1e-4)


# The guarantee

ONE = algorithm1("adam", RATES, cover=Anytime(shortest=4, levels=3))
STEP = jax.jit(ONE.update)
GRADIENTS = arrays(
    np.float32, (12, 3), elements=st.sampled_from([0.0, 1.0, -1.0, 0.3, -2.5, 1e-4, 1e4]) | st.floats(-10, 10, width=32)
)


@settings(max_examples=60)
@given(gradients=GRADIENTS)
def test_the_certificate_holds_and_weights_are_shares_whatever_the_gradients(gradients):
    params, state = jnp.ones(3), ONE.init(jnp.ones(3))
    for gradient in gradients:
        updates, state = STEP(gradient, state, params)
        params = params + updates
        measured, bound = (np.asarray(part) for part in certificate(state))
        runs = np.isfinite(measured)
        assert runs.any()
        assert (measured <= bound + 1e-4 * np.abs(measured) + 1e-5)[runs].all()
        assert float(shares(state).sum()) == pytest.approx(1, abs=1e-5)
        assert mw.log_total(state.weights) <= jnp.log(state.weights.started) + 1e-4  # the theorem


def test_what_was_measured_is_the_sum_computed_by_hand():
    optimizer, steps = algorithm1("sgd", (0.01, 0.1), cover=Chosen((1000,))), 30
    step = jax.jit(optimizer.update)
    x, state = np.ones(3), optimizer.init(jnp.ones(3))
    points, total = np.ones((2, 3)), np.zeros(2)
    for gradient in np.random.default_rng(0).normal(size=(steps, 3)).astype(np.float32):
        total += (x - points) @ gradient
        points = points - np.array([[0.01], [0.1]]) * gradient
        updates, state = step(gradient, state, jnp.asarray(x))
        x = x + np.asarray(updates)
        np.testing.assert_allclose(shares(state)[0] @ points, x, atol=1e-5)
    np.testing.assert_allclose(certificate(state).measured[0], total, rtol=1e-3, atol=1e-4)


def test_slots_whose_block_has_not_begun_have_no_certificate():
    report = certificate(ONE.init(jnp.zeros(2)))
    assert np.isnan(report.measured[1:]).all()
    np.testing.assert_array_equal(report.measured[0], np.zeros(4))


# Refusing what cannot work


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learning_rates": (0.1, -0.5)}, "positive and finite, got -0.5"),
        ({"cover": 32}, "cover must be one of Anytime, .* got 32"),
        ({"cover": AllIntervals()}, "cover must be one of Anytime"),
        ({"cover": Anytime(4)}, r"no last one: say how many, as in Anytime\(shortest=4, levels=8\)"),
        ({"Q": 0}, "Q must be a whole number of at least 1, got 0"),
        ({"base": "adamm"}, "base must be one of .* got 'adamm'"),
        ({"shared": "yes"}, "shared must be True, False or None, got 'yes'"),
    ],
    ids=str,
)
def test_options_that_cannot_work_are_refused_by_name(options, message):
    with pytest.raises(ValueError, match=message):
        algorithm1(**options)


def test_parameters_that_cannot_hold_small_steps_are_refused():
    with pytest.raises(TypeError, match=r"float32 or float64, got bfloat16 at params\['w'\]"):
        ONE.init({"w": jnp.zeros(3, jnp.bfloat16)})
    with pytest.raises(ValueError, match="needs the parameters"):
        ONE.update(jnp.zeros(3), ONE.init(jnp.zeros(3)))
