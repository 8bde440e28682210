"""The small network is a convolutional one, and learns digits at once."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from samuel_lab.models import ConvNet, Task
from samuel_lab.models.convnet import _patches


@pytest.fixture(scope="module", autouse=True)
def compiled_quickly():
    """Not here: 500 steps take longer than compiling one well."""


def test_its_layers_are_convolutions_of_stride_two():
    dice = np.random.default_rng(0)
    images = dice.normal(size=(2, 8, 7, 3)).astype(np.float32)
    kernel = dice.normal(size=(3, 3, 3, 5)).astype(np.float32)
    layout = ("NHWC", "HWIO", "NHWC")
    expected = jax.lax.conv_general_dilated(images, kernel, (2, 2), ((1, 1), (1, 1)), dimension_numbers=layout)
    found = jax.jit(_patches)(images) @ kernel.reshape(27, 5)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_it_has_a_few_thousand_parameters():
    params, _ = jax.eval_shape(Task(ConvNet(classes=10), np.zeros((1, 8, 8, 1)), 10).init, jax.random.key(0))
    # (9 + 1) 16, (9 * 16 + 1) 32, and (2 * 2 * 32 + 1) 10.
    assert Task.parameters(params) == 160 + 4640 + 1290


def test_it_learns_digits_in_500_steps():
    images, labels = load_digits(return_X_y=True)
    images = (images.reshape(-1, 8, 8, 1) / images.std()).astype(np.float32)
    split = train_test_split(images, labels, test_size=0.2, random_state=0, stratify=labels)
    train, test, train_labels, test_labels = map(jnp.asarray, split)
    task = Task(ConvNet(classes=10), images[:1], 10)
    adam = optax.adam(0.004)

    @jax.jit
    def accuracy(key, order):
        def step(carry, drawn):
            params, state = carry
            batch = (train[drawn], train_labels[drawn])
            gradients = jax.grad(lambda params: task.loss(params, None, batch, jax.random.key(0))[0])(params)
            updates, state = adam.update(gradients, state, params)
            return (optax.apply_updates(params, updates), state), None

        params, model_state = task.init(key)
        (params, _), _ = jax.lax.scan(step, (params, adam.init(params)), order)
        return (task.outputs(params, model_state, test).argmax(-1) == test_labels).mean()

    orders = [np.random.default_rng(seed).integers(len(train), size=(500, 64)) for seed in range(3)]
    # XLA's own random numbers, which are compiled sooner than JAX's.
    keys = [jax.random.key(seed, impl="rbg") for seed in range(3)]
    assert np.mean([accuracy(key, order) for key, order in zip(keys, orders, strict=True)]) > 0.97
