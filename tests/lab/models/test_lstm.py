"""The text classifier reads from both ends and does not see padding, and is flax's LSTM but for the time it takes."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jax.extend.core import jaxprs_in_params

from samuel_lab.models import BiLSTM, Task
from samuel_lab.models.lstm import both_ends
from tests.lab.models.plain_lstm import PlainBiLSTM, plain_ends

NETWORK = BiLSTM(vocabulary=20, embedding=5, hidden=4)
SENTENCES = np.array([[5, 7, 9, 2, 11], [6, 3, 8, 0, 0], [2, 0, 0, 0, 0], [0, 0, 0, 0, 0]], np.int32)


def drawn(task):
    """Parameters from NumPy, large enough for every word to matter."""
    dice = np.random.default_rng(0)
    params, _ = jax.eval_shape(task.init, jax.random.key(0))
    return jax.tree.map(lambda leaf: dice.normal(size=leaf.shape).astype(leaf.dtype), params)


@pytest.fixture(scope="module")
def answers():
    task = Task(NETWORK, SENTENCES[:1], classes=2)
    params, outputs = drawn(task), jax.jit(task.outputs)
    return lambda tokens: np.asarray(outputs(params, None, np.asarray(tokens, np.int32)))


def test_padding_does_not_change_an_answer(answers):
    padded = np.pad(SENTENCES, ((0, 0), (0, 7)))
    np.testing.assert_allclose(answers(padded), answers(SENTENCES), rtol=1e-5, atol=1e-6)


def test_a_sentence_among_longer_ones_is_read_as_if_it_were_alone(answers):
    np.testing.assert_allclose(answers([[6, 3, 8]])[0], answers(SENTENCES)[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("place", range(5))
def test_every_word_counts(answers, place):
    changed = SENTENCES.copy()
    changed[0, place] = 13
    difference = np.abs(answers(changed) - answers(SENTENCES)).max(axis=1)
    assert difference[0] > 1e-3
    assert not difference[1:].any()


def test_the_order_of_words_counts(answers):
    changed = SENTENCES.copy()
    changed[0] = changed[0, ::-1]
    assert np.abs(answers(changed) - answers(SENTENCES))[0].max() > 1e-2


def test_in_its_full_size_it_has_that_of_flaxs_example():
    tokens = jax.ShapeDtypeStruct((1, 64), jnp.int32)
    params = jax.eval_shape(BiLSTM(vocabulary=1000).init, jax.random.key(0), tokens)["params"]
    lstm = 4 * (300 * 256 + 256 * 256 + 256)
    assert Task.parameters(params) == 1000 * 300 + 2 * lstm + (512 * 256 + 256) + (256 * 2 + 2)


def test_dropout_is_drawn_from_the_key_in_training():
    task = Task(NETWORK, SENTENCES[:1], classes=2)
    params = drawn(task)
    loss = jax.jit(lambda key: task.loss(params, None, (SENTENCES, np.array([0, 1, 0, 1])), key)[0])
    # XLA's own random numbers, which are compiled sooner than JAX's.
    first, again, other = (loss(jax.random.key(seed, impl="rbg")) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_words_dropped_become_unknown_and_padding_stays_padding():
    task = Task(BiLSTM(vocabulary=20, embedding=5, hidden=4, dropout=0.0, word_dropout=1.0), SENTENCES[:1], classes=2)
    params, labels = drawn(task), np.array([0, 1, 0, 1])
    loss = jax.jit(lambda tokens: task.loss(params, None, (tokens, labels), jax.random.key(0, impl="rbg"))[0])
    unknown = np.where(SENTENCES == 0, 0, 1).astype(np.int32)
    assert loss(SENTENCES) == loss(unknown)
    assert loss(SENTENCES) != loss(np.ones_like(unknown))


def asked(network, tokens):
    """A network's task, and a compiled function from its parameters to loss, scores and gradient, with dropout."""
    task = Task(network, tokens[:1], classes=2)
    labels, key = np.arange(len(tokens)) % 2, jax.random.key(5, impl="rbg")

    def answer(params):
        loss, gradient = jax.value_and_grad(lambda params: task.loss(params, None, (tokens, labels), key)[0])(params)
        return loss, task.outputs(params, None, tokens), gradient

    return task, jax.jit(answer)


def padded(lengths, width, vocabulary=20):
    tokens = np.random.default_rng(sum(lengths)).integers(1, vocabulary, (len(lengths), width))
    return np.where(np.arange(width) < np.array(lengths)[:, None], tokens, 0).astype(np.int32)


def distance(found, wanted):
    """How far two trees are apart, as a share of the length of the second."""
    pairs = list(zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True))
    return np.sqrt(sum(np.square(a - b).sum() for a, b in pairs) / sum(np.square(b).sum() for _, b in pairs))


@st.composite
def batches(draw):
    width = draw(st.integers(1, 9))
    return padded(draw(st.lists(st.integers(0, width), min_size=1, max_size=5)), width)


@settings(max_examples=4)
@given(batches(), st.integers(1, 6), st.sampled_from([1, 3, 4, 16]))
@example(padded([0, 7, 1, 3], 7), 4, 2)
@example(padded([0], 1), 1, 4)
def test_scores_and_gradients_are_those_of_flaxs_loop(tokens, hidden, unroll):
    sizes = {"vocabulary": 20, "embedding": 5, "hidden": hidden, "dropout": 0.0, "word_dropout": 0.0}
    task, ours = asked(BiLSTM(**sizes, unroll=unroll), tokens)
    _, flaxs = asked(PlainBiLSTM(**sizes), tokens)
    params = drawn(task)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), ours(params), flaxs(params))


@pytest.mark.parametrize("hidden", [4, 32])
def test_in_bfloat16_it_is_as_near_to_float32_as_flaxs_loop(hidden):
    lengths, dice = np.array([1, 24, *range(2, 24, 3)]), np.random.default_rng(0)
    words, weights = (dice.normal(size=(len(lengths), *shape)).astype(np.float32) for shape in ((24, 8), (2 * hidden,)))
    cells = [
        PlainBiLSTM(vocabulary=2, embedding=8, hidden=hidden).init(jax.random.key(0), SENTENCES)["params"][name]
        for name in ("OptimizedLSTMCell_0", "OptimizedLSTMCell_1")
    ]

    def learned(ends, dtype):
        def loss(words, cells):
            found = jnp.concatenate(ends(words.astype(dtype), lengths, *cells, dtype=dtype), axis=-1)
            return (weights * found).sum(), found

        gradient, found = jax.jit(jax.grad(loss, (0, 1), has_aux=True))(words, cells)
        assert {leaf.dtype for leaf in jax.tree.leaves(gradient)} == {np.dtype("float32")}
        return np.asarray(found, np.float32), gradient

    wanted = learned(plain_ends, jnp.float32)
    ours, flaxs = (learned(ends, jnp.bfloat16) for ends in (both_ends, plain_ends))
    for found, plain, exact in zip(ours, flaxs, wanted, strict=True):
        assert 0 < distance(found, exact) < distance(plain, exact) < 2 / 256  # the share that its 8 bits may round


def test_a_key_gives_the_same_parameters_as_with_flaxs_loop():
    made = [network(vocabulary=20, embedding=5, hidden=4) for network in (BiLSTM, PlainBiLSTM)]
    ours, flaxs = (network.init(jax.random.key(7), SENTENCES) for network in made)
    # Flax draws them within its loop, where the same operations may be compiled to round differently.
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6), ours, flaxs)


@pytest.mark.parametrize("order", [jax.vmap, lambda answer: partial(jax.lax.map, answer)], ids=["map", "scan"])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16], ids=["float32", "bfloat16"])
def test_networks_mapped_over_learn_what_each_learns_alone(order, dtype):
    task, answer = asked(BiLSTM(vocabulary=20, embedding=5, hidden=4, dtype=dtype), SENTENCES)
    members = [jax.tree.map(lambda leaf, size=size: size * leaf, drawn(task)) for size in (0.2, 0.5, 1.0)]
    together = jax.jit(order(answer))(jax.tree.map(lambda *leaves: np.stack(leaves), *members))
    for number, member in enumerate(members):
        one = jax.tree.map(lambda leaf, number=number: leaf[number], together)
        assert distance(one, answer(member)) < (1e-5 if dtype == jnp.float32 else 8 / 256)


def test_the_gradient_of_the_weights_is_summed_after_the_loop():
    task, answer = asked(BiLSTM(vocabulary=20, embedding=5, hidden=4), SENTENCES)
    params = drawn(task)
    carried = [
        [inner.aval.shape for inner in equation.outvars[: equation.params["num_carry"]]]
        for equation in equations(jax.make_jaxpr(answer)(params).jaxpr)
        if equation.primitive.name == "scan"
    ]
    # Training forwards and backwards, and the scores: memory and state of both directions, and nothing else.
    assert carried == [[(2, 4, 4)] * 2] * 3


def equations(jaxpr):
    for equation in jaxpr.eqns:
        yield equation
        for inner in jaxprs_in_params(equation.params):
            yield from equations(inner)
