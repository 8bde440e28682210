"""The small network is a convolutional one, and learns digits at once."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from samuel.studies.models import ConvNet, Task
from samuel.studies.models.convnet import _patches


def test_its_layers_are_convolutions_of_stride_two():
    dice = np.random.default_rng(0)
    for side in (8, 7):
        images = dice.normal(size=(2, side, side, 3)).astype(np.float32)
        kernel = dice.normal(size=(3, 3, 3, 5)).astype(np.float32)
        expected = jax.lax.conv_general_dilated(
            images, kernel, (2, 2), ((1, 1), (1, 1)), dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        found = _patches(jnp.asarray(images)) @ kernel.reshape(27, 5)
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
    def accuracy(seed):
        def step(carry, key):
            params, state = carry
            drawn = jax.random.randint(key, (64,), 0, len(train))
            batch = (train[drawn], train_labels[drawn])
            gradients = jax.grad(lambda params: task.loss(params, None, batch, key)[0])(params)
            updates, state = adam.update(gradients, state, params)
            return (optax.apply_updates(params, updates), state), None

        params, model_state = task.init(jax.random.key(seed))
        keys = jax.random.split(jax.random.key(seed + 100), 500)
        (params, _), _ = jax.lax.scan(step, (params, adam.init(params)), keys)
        return (task.outputs(params, model_state, test).argmax(-1) == test_labels).mean()

    assert np.mean([accuracy(seed) for seed in range(3)]) > 0.97
