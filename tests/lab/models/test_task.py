"""What holds for every network: the training loop relies on it."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import samuel.jax
from samuel_lab.models import BiLSTM, ConvNet, ResNet, Task

dice = np.random.default_rng(0)
IMAGES = dice.normal(size=(6, 8, 8, 3)).astype(np.float32)
SENTENCES = np.array(
    [[5, 7, 9, 2], [6, 3, 0, 0], [2, 0, 0, 0], [9, 9, 4, 0], [3, 8, 8, 6], [4, 0, 0, 0]], dtype=np.int32
)
LABELS = np.array([0, 1, 2, 0, 1, 2], dtype=np.int32)
NETWORKS = {
    "convnet": (ConvNet(classes=3, width=4), IMAGES),
    "resnet": (ResNet((0, 1), classes=3, width=2), IMAGES),
    "bottlenecks": (ResNet((1,), classes=3, width=2, bottleneck=True, small_images=False), IMAGES),
    "lstm": (BiLSTM(vocabulary=10, classes=3, embedding=4, hidden=3, dropout=0.0, word_dropout=0.0), SENTENCES),
}


class Tried:
    """A kind of network, and the numbers of two of it."""

    def __init__(self, name):
        network, self.inputs = NETWORKS[name]
        self.task = Task(network, self.inputs[:1], classes=3)
        self.made = [self._drawn(seed) for seed in (1, 2)]
        self.step = jax.jit(jax.value_and_grad(self._loss, has_aux=True))

    def _drawn(self, seed):
        """Parameters and statistics from NumPy: compiling what draws a network's takes longer than all the rest."""
        dice = np.random.default_rng(seed)
        shapes = jax.eval_shape(self.task.init, jax.random.key(0))
        return jax.tree.map(lambda leaf: dice.uniform(0.1, 1.0, leaf.shape).astype(leaf.dtype), shapes)

    def _loss(self, params, model_state, key):
        loss, after, seen = self.task.loss(params, model_state, (self.inputs, LABELS), key)
        return loss, (after, seen)


@pytest.fixture(scope="module", params=NETWORKS)
def tried(request):
    return Tried(request.param)


def test_gradients_flow_to_every_parameter(tried):
    params, model_state = tried.made[0]
    _, gradients = tried.step(params, model_state, jax.random.key(3))
    still = [
        jax.tree_util.keystr(path)
        for path, leaf in jax.tree.leaves_with_path(jax.device_get(gradients))
        if not np.any(leaf)
    ]
    assert still == []


def test_a_loss_is_a_pure_function_of_what_it_is_given(tried):
    params, model_state = tried.made[0]
    once = tried.step(params, model_state, jax.random.key(3))
    again = tried.step(params, model_state, jax.random.key(3))
    jax.tree.map(np.testing.assert_array_equal, once, again)


# Bottlenecks are made of the layers of the other residual network.
@pytest.mark.parametrize("tried", ["convnet", "resnet", "lstm"], indirect=True, scope="module")
def test_many_networks_side_by_side_are_what_they_are_alone(tried):
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *tried.made)
    together = jax.device_get(jax.vmap(tried.step, (0, 0, None))(*stacked, jax.random.key(3)))
    for number, (params, model_state) in enumerate(tried.made):
        alone = tried.step(params, model_state, jax.random.key(3))
        one = jax.tree.map(lambda leaf, number=number: leaf[number], together)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5), one, alone)


def test_in_use_an_answer_does_not_depend_on_the_other_examples():
    tried = Tried("resnet")
    outputs = jax.jit(tried.task.outputs)
    others = tried.inputs[[0, 1, 0, 1, 4, 5]]
    expected, found = (np.asarray(outputs(*tried.made[0], inputs)) for inputs in (tried.inputs, others))
    assert expected.shape == (6, 3)
    np.testing.assert_array_equal(found[[0, 1, 4, 5]], expected[[0, 1, 4, 5]])
    assert np.any(found[2:4] != expected[2:4])


@pytest.mark.parametrize("name", NETWORKS)
def test_in_half_precision_parameters_statistics_and_losses_stay_in_single(name):
    network, inputs = NETWORKS[name]
    task = Task(network.clone(dtype=jnp.bfloat16), inputs[:1], classes=3)
    params, model_state = jax.eval_shape(task.init, jax.random.key(0))
    loss, after, seen = jax.eval_shape(task.loss, params, model_state, (inputs, LABELS), jax.random.key(1))
    outputs = jax.eval_shape(task.outputs, params, model_state, inputs)
    kept = jax.tree.leaves((params, model_state, after, loss, seen, outputs))
    assert {leaf.dtype for leaf in kept} == {jnp.dtype("float32")}
    scores = jax.eval_shape(task.network.apply, {"params": params, **(model_state or {})}, inputs)
    assert scores.dtype == jnp.bfloat16


def test_statistics_move_in_training_if_a_network_has_any(tried):
    params, model_state = tried.made[0]
    (_, (after, _)), _ = tried.step(params, model_state, jax.random.key(0))
    assert (model_state is not None) == isinstance(tried.task.network, ResNet)
    assert jax.tree.structure(after) == jax.tree.structure(model_state)
    assert all(np.any(a != b) for a, b in zip(jax.tree.leaves(after), jax.tree.leaves(model_state), strict=True))


class Told(nn.Module):
    """Scores that are its inputs, shifted."""

    largest_shift: float = 0.0

    @nn.compact
    def __call__(self, inputs, train=False):
        return inputs + self.param("shift", nn.initializers.uniform(self.largest_shift), (3,))


def test_the_same_key_makes_the_same_network_and_another_key_another():
    task = Task(Told(largest_shift=1.0), np.zeros((1, 3), np.float32), classes=3)
    (first, nothing), (again, _), (other, _) = (task.init(jax.random.key(seed)) for seed in (1, 1, 2))
    assert first["shift"].tolist() == again["shift"].tolist()
    assert first["shift"].tolist() != other["shift"].tolist()
    assert nothing is None


def test_the_loss_is_the_mean_cross_entropy():
    scores = np.log(np.array([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]], np.float32))
    task = Task(Told(), scores[:1], classes=3)
    params, model_state = task.init(jax.random.key(0))
    loss, _, seen = task.loss(params, model_state, (scores, np.array([0, 1])), jax.random.key(0))
    assert float(loss) == pytest.approx((np.log(2) + np.log(10)) / 2, rel=1e-5)
    assert float(seen["accuracy"]) == 0.5
    assert task.parameters(params) == 3


def test_samuels_experts_and_sweeps_train_a_task():
    task = Task(Told(), np.zeros((1, 3), np.float32), classes=3)
    params, model_state = task.init(jax.random.key(0))
    batch = (np.zeros((2, 3), np.float32), np.array([1, 1]))
    sweep = samuel.jax.Sweep(task.loss, "sgd", phases=((0.1, 1.0),))
    state, _ = sweep.step(sweep.init(params, model_state), batch)
    state, info = sweep.step(state, batch)
    assert float(info.losses[1]) < float(info.losses[0]) < np.log(3)
    assert info.aux["accuracy"].tolist() == [1.0, 1.0]


def test_a_network_with_the_wrong_number_of_scores_is_refused():
    with pytest.raises(ValueError, match=r"5 scores for each of 1 examples, got shape \(1, 3\)"):
        Task(ConvNet(classes=3), IMAGES[:1], classes=5)
    with pytest.raises(TypeError, match="flax.linen module, got 'resnet'"):
        Task("resnet", IMAGES[:1], classes=3)  # pyright: ignore[reportArgumentType]
