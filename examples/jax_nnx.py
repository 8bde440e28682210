"""SAMUEL with flax: pass it to `nnx.Optimizer` as any optax optimizer.

    python examples/jax_nnx.py

A small convolutional network with batch normalisation on scikit-learn's digits.
"""

import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from sklearn.datasets import load_digits

import samuel

STEPS, BATCH = 400, 32

pixels, labels = load_digits(return_X_y=True)
random = np.random.default_rng(0)
order = random.permutation(len(pixels))
pixels, labels = pixels[order].astype(np.float32).reshape(-1, 8, 8, 1) / 16, labels[order]


class Network(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.conv = nnx.Conv(1, 16, (3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(16, rngs=rngs)
        self.head = nnx.Linear(16 * 8 * 8, 10, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.norm(self.conv(x)))
        return self.head(x.reshape(x.shape[0], -1))


model = Network(nnx.Rngs(0))
optimizer = nnx.Optimizer(model, samuel.jax.samuel(steps=STEPS, average=True), wrt=nnx.Param)


@nnx.jit
def step(model, optimizer, x, y):
    def loss(model):
        return optax.softmax_cross_entropy_with_integer_labels(model(x), y).mean()

    optimizer.update(model, nnx.grad(loss)(model))


# What is tested and used: the average of the parameters, and with it that of the batch statistics.
averaged = nnx.clone(model)
averaged.eval()


@nnx.jit
def follow(averaged, model, optimizer):
    pace = samuel.jax.pace(optimizer.opt_state)
    new, average = (nnx.state(network, nnx.BatchStat) for network in (model, averaged))
    nnx.update(averaged, optax.incremental_update(new, average, pace))
    nnx.update(averaged, samuel.jax.averaged(optimizer.opt_state, nnx.state(model, nnx.Param)))


for t in range(STEPS):
    chosen = random.integers(0, 1297, BATCH)
    step(model, optimizer, jnp.asarray(pixels[chosen]), jnp.asarray(labels[chosen]))
    follow(averaged, model, optimizer)
    if (t + 1) % 50 == 0:
        accuracy = (np.argmax(averaged(jnp.asarray(pixels[1297:])), -1) == labels[1297:]).mean()
        matrices, others = samuel.jax.learning_rate(optimizer.opt_state)
        print(f"step {t + 1:5d}   accuracy {accuracy:6.1%}   learning rates {matrices:.5f}, {others:.5f}")
