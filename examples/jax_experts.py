"""The paper's own form: every expert trains a network of its own, and the weights choose among them.

    python examples/jax_experts.py

Algorithm 1 on scikit-learn's digits: classes 5 to 9, then, unannounced, 0 to 4. Four lengths of blocks times four rates
of Adagrad are sixteen experts, each with parameters, optimizer state and random stream of its own. The run is saved on
the way and resumed from there, to the bit.
"""

import tempfile

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits

from samuel.jax import Checkpoints, Experts, Geometric

ROUNDS, SHIFT, BATCH = 400, 250, 32

pixels, labels = load_digits(return_X_y=True)
pixels = pixels.astype(np.float32) / 16
random = np.random.default_rng(0)


def logits(params, x):
    return jax.nn.relu(x @ params["w1"]) @ params["w2"]


def loss_fn(params, model_state, batch, key):
    x, y = batch
    return optax.softmax_cross_entropy_with_integer_labels(logits(params, x), y).mean(), model_state


def classes(t):
    """Where the images of this round's classes are."""
    return np.flatnonzero(labels >= 5 if t < SHIFT else labels < 5)


def batch(t):
    chosen = np.random.default_rng(t).choice([place for place in classes(t) if place < 1297], BATCH)
    return jnp.asarray(pixels[chosen]), jnp.asarray(labels[chosen] % 5)


def test_accuracy(params, t):
    held_out = np.array([place for place in classes(t) if place >= 1297])
    return (np.argmax(logits(params, pixels[held_out]), -1) == labels[held_out] % 5).mean()


engine = Experts(
    loss_fn,
    "adagrad",
    learning_rates=(0.01, 0.03, 0.1, 0.3),
    cover=Geometric(horizon=ROUNDS, shortest=50),
    combine="best",
    placement="map",  # "scan" for large networks, "shard" for many devices
)
params = {
    "w1": jnp.asarray(random.normal(size=(64, 32)) / 8, jnp.float32),
    "w2": jnp.asarray(random.normal(size=(32, 5)) / 6, jnp.float32),
}
state = engine.init(params, key=jax.random.key(0))
with tempfile.TemporaryDirectory() as folder:
    checkpoints = Checkpoints(folder)
    for t in range(ROUNDS):
        state, info = engine.step(state, batch(t))
        if t + 1 == 150:
            checkpoints.save(t + 1, state)
            _, state = checkpoints.restore(like=state)  # as a new process would after a crash
        if (t + 1) % 50 == 0 or t + 1 == SHIFT + 10:
            accuracy = test_accuracy(engine.decision(state).params, t)
            print(f"round {t + 1:4d}   accuracy {accuracy:6.1%}   learning rate {float(info.learning_rate):.2f}")
