"""A network that finds its learning rate by itself: SAMUEL in a plain JAX training loop.

    python examples/jax_digits.py

Half-way all labels are permuted, and nobody tells the optimizer. Needs scikit-learn for its digits.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits

import samuel

STEPS, BATCH = 1200, 32

pixels, labels = load_digits(return_X_y=True)
random = np.random.default_rng(0)
order = random.permutation(len(pixels))
pixels, labels = pixels[order].astype(np.float32) / 16, labels[order]
train, test = slice(0, 1297), slice(1297, None)


def logits(params, x):
    hidden = jax.nn.relu(x @ params["w1"] + params["b1"])
    return hidden @ params["w2"] + params["b2"]


def loss(params, x, y):
    return optax.softmax_cross_entropy_with_integer_labels(logits(params, x), y).mean()


params = {
    "w1": jnp.asarray(random.normal(size=(64, 64)) * (2 / 64) ** 0.5, jnp.float32),
    "b1": jnp.zeros(64),
    "w2": jnp.asarray(random.normal(size=(64, 10)) * (2 / 64) ** 0.5, jnp.float32),
    "b2": jnp.zeros(10),
}
optimizer = samuel.jax.samuel()  # the one line that differs; no learning rate
state = optimizer.init(params)


@jax.jit
def step(params, state, x, y):
    gradient = jax.grad(loss)(params, x, y)
    updates, state = optimizer.update(gradient, state, params)
    return optax.apply_updates(params, updates), state


names = np.arange(10)
for t in range(STEPS):
    if t == STEPS // 2:
        names = random.permutation(10)
        print("all labels permuted")
    chosen = random.integers(0, 1297, BATCH)
    params, state = step(params, state, pixels[chosen], names[labels[chosen]])
    if (t + 1) % 100 == 0 or t == STEPS // 2 + 24:
        averaged = samuel.jax.averaged(state, params)  # an average of the parameters, with less noise
        accuracy = (np.argmax(logits(averaged, pixels[test]), -1) == names[labels[test]]).mean()
        matrices, others = samuel.jax.learning_rate(state)
        rates = f"learning rates {matrices:.4f}, {others:.4f}"
        print(f"step {t + 1:5d}   accuracy {accuracy:6.1%}   {rates}   shifts noticed {samuel.jax.shifts(state)}")
