"""What the optax drop-in learns: a small network on scikit-learn's handwritten digits.

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

from samuel.core.rules import usual_rates
from samuel.jax import learning_rate, samuel, shifts

datasets = pytest.importorskip("sklearn.datasets", reason="the digits come with scikit-learn, which is not installed")

STEPS = 600
SEEDS = 5
USUAL = usual_rates(-6, 0)


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
    """One number for each seed."""

    accuracy: np.ndarray
    loss: np.ndarray
    peak: np.ndarray
    """The largest training loss after the first 100 steps."""
    shifts: np.ndarray
    rate: np.ndarray


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
        found = jax.vmap(logits, in_axes=(0, None))(self.params, test.images)
        losses_of_all = optax.softmax_cross_entropy_with_integer_labels(found, np.broadcast_to(wanted, found.shape[:2]))
        return Result(
            accuracy=np.mean(np.argmax(found, axis=-1) == wanted, axis=-1),
            loss=np.mean(losses_of_all, axis=-1),
            peak=np.max(losses[:, 100:], axis=-1),
            shifts=np.asarray(shifts(self.state)),
            rate=np.asarray(learning_rate(self.state)),
        )


@cache
def with_no_options():
    """Before and after the labels are permuted."""
    training = Training(samuel())
    return training(), training(permuted)


@cache
def over_a_known_horizon():
    return Training(samuel(horizon=STEPS))()


def test_it_learns_with_no_options():
    before, _ = with_no_options()
    assert np.median(before.accuracy) > 0.95


def test_it_recovers_from_a_shift_that_nobody_announced_and_counts_it():
    before, after = with_no_options()
    assert np.median(after.accuracy) >= 0.9
    assert np.median(after.shifts - before.shifts) >= 1


def test_no_run_with_no_options_diverges():
    before, after = with_no_options()
    assert (before.accuracy > 0.95).all()
    assert (after.accuracy > 0.9).all()
    assert (before.peak < 5).all()


def test_every_run_learns_where_the_horizon_is_known():
    result = over_a_known_horizon()
    assert (result.accuracy > 0.95).all()
    assert (result.peak < 5).all()
    assert (result.rate < 1e-3).all()  # the rates have fallen to their end


def test_parameters_of_16_bits_learn_as_well():
    result = Training(samuel(horizon=STEPS), jnp.bfloat16)()
    assert (result.accuracy > 0.95).all()
    assert np.median(result.accuracy) > np.median(over_a_known_horizon().accuracy) - 0.01


def test_a_rate_that_is_far_too_large_does_no_harm():
    usual, _ = with_no_options()
    result = Training(samuel("adam", (*USUAL, 1e3)))()
    assert (result.accuracy > 0.95).all()
    assert np.median(result.loss) < 1.1 * np.median(usual.loss)
