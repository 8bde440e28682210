"""What the trainers of single networks judge: the parameters to use, with the batch statistics that belong to them."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from samuel_lab.models import ConvNet, Task
from samuel_lab.models.resnet import ResNet
from samuel_lab.studies.shift import Digits
from samuel_lab.trial.experiment import Experiment
from samuel_lab.trial.methods import method

TASK = Task(ResNet((1,), classes=3, width=4), np.zeros((1, 8, 8, 1), np.float32), 3)
ROUNDS = 12


def experiment(task=TASK):
    return Experiment(Digits(), task, ROUNDS, phases=((0.1, 1.0),))


def batch(seed, size=24):
    random = np.random.default_rng(seed)
    labels = random.integers(3, size=size)
    images = random.normal(size=(size, 8, 8, 1)) + labels[:, None, None, None]
    return jnp.asarray(images, jnp.float32), jnp.asarray(labels)


def path(name):
    """The trainer after some rounds, its state, and parameters and statistics after every one of them."""
    trainer = method(name, experiment())
    state, seen = trainer.init(jax.random.key(0)), []
    for round in range(ROUNDS):
        state, _ = trainer.step(state, batch(round), round)
        seen.append(jax.device_get((state.params, state.model_state)))
    return trainer, state, seen


def judged(params, model_state, images, labels):
    right = np.argmax(TASK.outputs(params, model_state, images), -1) == np.asarray(labels)
    return float(right.mean())


def weighed(values, weights):
    return jax.tree.map(lambda *leaves: np.tensordot(weights, np.stack(leaves), 1).astype(np.float32), *values)


@pytest.mark.parametrize("name", ["samuel-untold", "adam/constant+average"])
def test_an_average_is_judged_with_statistics_averaged_alike(name):
    trainer, state, seen = path(name)
    # The n-th of the parameters after the start, which is the 0-th, has pace 9 / (n + 9) in the average.
    start = jax.device_get(trainer.init(jax.random.key(0)))
    values, weights = [(start.params, start.model_state), *seen], [1.0]
    for n in range(1, ROUNDS + 1):
        weights = [weight * (1 - 9 / (n + 9)) for weight in weights] + [9 / (n + 9)]
    params, statistics = weighed(values, weights)
    images, labels = batch(100, size=200)
    score = trainer.score(state, [(images, labels, jnp.ones(200))])
    assert float(score.accuracy) == pytest.approx(judged(params, statistics, images, labels), abs=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), state.steady, statistics)
    assert float(jnp.max(jnp.abs(state.steady["batch_stats"]["stem_norm"]["mean"]))) > 0


def test_schedule_free_is_judged_with_statistics_of_its_average_on_the_latest_batches():
    trainer, state, seen = path("schedule-free")
    params = optax.contrib.schedule_free_eval_params(state.opt_state, state.params)
    assert trainer.recent == 32
    latest = [batch(round) for round in range(ROUNDS)]
    statistics = seen[-1][1]
    for images, _ in latest:
        _, statistics = TASK.network.apply(
            {"params": params, **statistics}, images, train=True, mutable=list(statistics)
        )
    images, labels = batch(100, size=200)
    score = trainer.score(state, [(images, labels, jnp.ones(200))], latest)
    assert float(score.accuracy) == pytest.approx(judged(params, statistics, images, labels), abs=1e-6)
    losses = optax.softmax_cross_entropy_with_integer_labels(TASK.outputs(params, statistics, images), labels)
    assert float(score.loss) == pytest.approx(float(losses.mean()), rel=1e-5)
    assert abs(float(score.loss) - float(trainer.score(state, [(images, labels, jnp.ones(200))]).loss)) > 1e-3


def test_without_batch_statistics_there_are_none_to_renew():
    task = Task(ConvNet(classes=3, width=4), np.zeros((1, 8, 8, 1), np.float32), 3)
    assert method("schedule-free", experiment(task)).recent == 0


def test_others_are_judged_as_they_are_and_keep_no_second_set():
    trainer, state, seen = path("adam/constant")
    assert state.steady is None
    images, labels = batch(100, size=200)
    score = trainer.score(state, [(images, labels, jnp.ones(200))])
    assert float(score.accuracy) == pytest.approx(judged(*seen[-1], images, labels), abs=1e-6)
