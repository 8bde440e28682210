"""The text classifier reads from both ends and does not see padding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from samuel.studies.models import BiLSTM, Task

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
