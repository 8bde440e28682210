"""What the optax drop-in learns: a valley with noise, and a small network on scikit-learn's handwritten digits.

Every run is done from a few seeds at once. What is asserted is asserted of their median or of all of them, so that no
test hangs on one lucky seed.
"""

from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from samuel.core.rate_search import usual_rates
from samuel.jax import averaged, learning_rate, samuel, shifts

datasets = pytest.importorskip("sklearn.datasets", reason="the digits come with scikit-learn, which is not installed")

STEPS = 600
SEEDS = 5
USUAL = usual_rates(-6, 0)


# A valley with noise, whose lowest point may jump

CURVATURES = np.geomspace(0.1, 1, 20, dtype=np.float32)


class Descent(NamedTuple):
    """One row for each seed; losses as parts of what they would be at the starting point's distance."""

    last: np.ndarray
    """The loss of the parameters at the end."""
    average: np.ndarray
    """That of the average."""
    shifts: np.ndarray
    """After every step."""


def descend(optimizer, distance=1.0, scale=1.0, steps=1000, jump_at=None, jump=0.0):
    """Start at a distance from the lowest point, with noise in proportion; losses times the scale."""

    def one(key):
        def gradient(t, params):
            noise = jax.random.normal(jax.random.fold_in(key, t), params.shape)
            return scale * (CURVATURES * (params - lowest(t)) + 0.3 * distance * noise / 20**0.5)

        def lowest(t):
            return 0.0 if jump_at is None else jnp.where(t < jump_at, 0.0, jump / 20**0.5)

        def step(carry, t):
            params, state = carry
            updates, state = optimizer.update(gradient(t, params), state, params)
            return (params + updates, state), shifts(state)

        def loss(params):
            return 0.5 * jnp.sum(CURVATURES * (params - lowest(steps)) ** 2) / distance**2

        params = jnp.full(20, distance / 20**0.5)
        (params, state), restarts = jax.lax.scan(step, (params, optimizer.init(params)), jnp.arange(steps))
        return Descent(loss(params), loss(averaged(state, params)), restarts)

    return jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), SEEDS))


@cache
def best_constant_rate(base, scale=1.0, steps=1000):
    """The median loss over the seeds, of the best of many rates; it has no distance in it, as all is in proportion."""

    def one(rate, key):
        optimizer = {"adam": optax.scale_by_adam(), "sgd": optax.identity()}[base]

        def step(carry, t):
            params, state = carry
            noise = jax.random.normal(jax.random.fold_in(key, t), params.shape)
            updates, state = optimizer.update(scale * (CURVATURES * params + 0.3 * noise / 20**0.5), state)
            return (params - rate * updates, state), None

        params = jnp.full(20, 1 / 20**0.5)
        (params, _), _ = jax.lax.scan(step, (params, optimizer.init(params)), jnp.arange(steps))
        return 0.5 * jnp.sum(CURVATURES * params**2)

    keys = jax.random.split(jax.random.key(0), SEEDS)
    losses = jax.jit(jax.vmap(jax.vmap(one, (None, 0)), (0, None)))(jnp.asarray(usual_rates(-6, 1)), keys)
    return float(np.median(np.nan_to_num(losses, nan=np.inf), axis=1).min())  # some rates diverge


@pytest.mark.parametrize("steps", [None, 1000])
@pytest.mark.parametrize("distance", [1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0])
def test_whether_it_is_near_or_far_it_is_as_good_as_the_best_rate_in_hindsight(distance, steps):
    """The best rate of Adam grows with the distance: here from 1e-6 to 0.1.

    Nearer than a hundredth, where the smallest candidates are the best ones, only the average is as good.
    """
    result = descend(samuel("adam", steps=steps, average=True), distance)
    best = best_constant_rate("adam")
    assert np.median(result.average) < (1.2 if steps is None else 1.0) * best
    assert (result.average < 3 * best).all()
    if steps is not None and distance >= 0.01:
        assert np.median(result.last) < best
    assert (result.shifts == 0).all()


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0, 100.0, 1000.0])
def test_whatever_the_scale_of_the_loss_it_is_as_good_as_the_best_rate_in_hindsight(scale):
    """The best rate of gradient descent falls with the scale: here from 0.3 to 3e-5."""
    result = descend(samuel("sgd"), scale=scale)
    best = best_constant_rate("sgd", scale)
    assert np.median(result.average) < 1.2 * best
    assert (result.average < 3 * best).all()


@pytest.mark.parametrize("steps", [None, 1200])
@pytest.mark.parametrize("base", ["adam", "sgd"])
def test_a_jump_is_seen_with_the_second_gradient_after_it_and_only_once(base, steps):
    result = descend(samuel(base, steps=steps), steps=1200, jump_at=600, jump=10.0)
    assert (result.shifts[:, 600] == 0).all()
    assert (result.shifts[:, 601:] == 1).all()
    far_away = 0.5 * float(np.mean(CURVATURES)) * 10.0**2
    assert (result.average < 1e-3 * far_away).all()


@pytest.mark.parametrize("base", ["adam", "sgd"])
def test_where_nothing_changes_nothing_restarts_in_a_long_run(base):
    result = descend(samuel(base), steps=10_000)
    assert (result.shifts == 0).all()
    assert (result.average < 1e-3).all()


@pytest.mark.parametrize("base", ["adam", "sgd"])
def test_the_average_has_less_of_the_noise_than_the_last_parameters(base):
    result = descend(samuel(base), steps=2000)
    assert np.median(result.average) < 0.5 * np.median(result.last)
    assert (result.average < result.last).all()


# A network on digits


class Digits(NamedTuple):
    images: np.ndarray
    labels: np.ndarray


@cache
def digits():
    """Training and test set."""
    images, labels = datasets.load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    images, labels = (images[order] / 16).astype(np.float32), labels[order]
    return Digits(images[:1400], labels[:1400]), Digits(images[1400:], labels[1400:])


def permuted(labels):
    """The same digits under other names."""
    return np.random.default_rng(1).permutation(10)[labels]


def network(key):
    first, second = jax.random.split(key)
    return {
        "hidden": {"w": jax.random.normal(first, (64, 64)) / 8 * 2**0.5, "b": jnp.zeros(64)},
        "out": {"w": jax.random.normal(second, (64, 10)) / 8, "b": jnp.zeros(10)},
    }


def logits(params, images):
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), params)
    hidden = jax.nn.relu(images @ params["hidden"]["w"] + params["hidden"]["b"])
    return hidden @ params["out"]["w"] + params["out"]["b"]


def loss(params, images, labels):
    return optax.softmax_cross_entropy_with_integer_labels(logits(params, images), labels).mean()


class Result(NamedTuple):
    """One number for each seed, of the average where nothing else is said."""

    accuracy: np.ndarray
    loss: np.ndarray
    peak: np.ndarray
    """The largest training loss after the first 100 steps."""
    shifts: np.ndarray
    rate: np.ndarray
    last: np.ndarray
    """The accuracy of the parameters themselves."""


class Training:
    """Trains from all seeds at once, and goes on from there when called again."""

    def __init__(self, optimizer, dtype=jnp.float32):
        keys = jax.random.split(jax.random.key(0), SEEDS)
        self.params = jax.tree.map(lambda leaf: leaf.astype(dtype), jax.vmap(network)(keys))
        self.state = jax.jit(jax.vmap(optimizer.init))(self.params)
        self.phase = 0

        def step(carry, batch):
            params, state = carry
            value, gradient = jax.value_and_grad(loss)(params, *batch)
            updates, state = optimizer.update(gradient, state, params)
            return (optax.apply_updates(params, updates), state), value

        def run(params, state, images, labels):
            return jax.lax.scan(step, (params, state), (images, labels))

        self.run = jax.jit(jax.vmap(run))

    def __call__(self, relabel=lambda labels: labels):
        train, test = digits()
        self.phase += 1
        batches = np.random.default_rng(self.phase).integers(len(train.labels), size=(SEEDS, STEPS, 32))
        labels = relabel(train.labels)[batches]
        (self.params, self.state), losses = self.run(self.params, self.state, train.images[batches], labels)
        wanted = relabel(test.labels)
        average = jax.vmap(averaged)(self.state, self.params)
        found, last = (jax.vmap(logits, in_axes=(0, None))(params, test.images) for params in (average, self.params))
        losses_of_all = optax.softmax_cross_entropy_with_integer_labels(found, np.broadcast_to(wanted, found.shape[:2]))
        return Result(
            accuracy=np.mean(np.argmax(found, axis=-1) == wanted, axis=-1),
            loss=np.mean(losses_of_all, axis=-1),
            peak=np.max(losses[:, 100:], axis=-1),
            shifts=np.asarray(shifts(self.state)),
            rate=np.asarray(learning_rate(self.state)),
            last=np.mean(np.argmax(last, axis=-1) == wanted, axis=-1),
        )


@cache
def with_no_options():
    """Before and after the labels are permuted."""
    training = Training(samuel())
    return training(), training(permuted)


@cache
def over_a_given_number_of_steps():
    return Training(samuel(steps=STEPS))()


def test_it_learns_with_no_options():
    before, _ = with_no_options()
    assert np.median(before.accuracy) > 0.95


def test_it_recovers_from_a_shift_that_nobody_announced_and_counts_it():
    before, after = with_no_options()
    assert np.median(after.accuracy) >= 0.95
    assert (before.shifts == 0).all()
    assert (after.shifts == 1).all()


def test_no_run_with_no_options_diverges():
    before, after = with_no_options()
    assert (before.accuracy > 0.95).all()
    assert (after.accuracy > 0.95).all()
    assert (before.peak < 5).all()
    for result in (before, after):
        assert np.median(result.last) > 0.95  # also without the average
        assert (result.last > 0.9).all()
        assert np.mean(result.accuracy) >= np.mean(result.last)


def test_every_run_learns_where_the_number_of_steps_is_given():
    result = over_a_given_number_of_steps()
    assert (result.accuracy > 0.95).all()
    assert (result.peak < 5).all()
    assert (result.rate < 1e-3).all()  # the rates have fallen to their end


def test_parameters_of_16_bits_learn_as_well():
    result = Training(samuel(steps=STEPS), jnp.bfloat16)()
    assert (result.accuracy > 0.95).all()
    assert np.median(result.accuracy) > np.median(over_a_given_number_of_steps().accuracy) - 0.01


def test_a_rate_that_is_far_too_large_costs_less_than_a_point():
    usual, result = Training(samuel("adam", USUAL))(), Training(samuel("adam", (*USUAL, 1e3)))()
    assert (result.accuracy > 0.95).all()
    assert np.median(result.accuracy) > np.median(usual.accuracy) - 0.01
