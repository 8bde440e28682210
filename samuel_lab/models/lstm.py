"""A bidirectional LSTM that reads a sentence from both ends."""

from __future__ import annotations

from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

GATES = "ifgo"  # in the order of flax

Both = tuple[jax.Array, jax.Array]  # for each direction


class BiLSTM(nn.Module):
    """Word vectors, an LSTM from each end of the sentence, and two layers on what both remember at their end.

    In the sizes of flax's example for SST-2. Sentences are padded with 0 at their end, and padding does not change the
    answer.

    Attributes:
        vocabulary: how many different tokens there are, the padding included.
        classes: how many classes there are.
        embedding: the length of word vectors.
        hidden: the size of each LSTM, and of the layer after them.
        dropout: the share of numbers left out in training, of word vectors and before each layer.
        word_dropout: the share of tokens that training replaces by `unknown`.
        unknown: the token for words not known.
        dtype: what it computes in; parameters and the LSTMs' memory are float32.
        unroll: how many words are read in one round of the loop. It changes the time and not the answer.

    >>> network = BiLSTM(vocabulary=100, embedding=8, hidden=4)
    >>> sentences = jnp.array([[5, 7, 9, 0], [6, 0, 0, 0]])
    >>> jax.eval_shape(network.init_with_output, jax.random.key(0), sentences)[0].shape
    (2, 2)
    """

    vocabulary: int
    classes: int = 2
    embedding: int = 300
    hidden: int = 256
    dropout: float = 0.5
    word_dropout: float = 0.1
    unknown: int = 1
    dtype: Any = jnp.float32
    unroll: int = 4

    @nn.compact
    def __call__(self, tokens: jax.Array, train: bool = False) -> jax.Array:
        """A score for every class, from token numbers of shape `(N, length)`."""
        # A sentence of nothing but padding counts as one token, so that it has an end.
        lengths = jnp.maximum((tokens != 0).sum(axis=1), 1)
        drop = nn.Dropout(self.dropout, deterministic=not train)
        if train and self.word_dropout > 0:
            lost = jax.random.bernoulli(self.make_rng("dropout"), self.word_dropout, tokens.shape)
            tokens = jnp.where(lost & (tokens != 0), self.unknown, tokens)
        words = drop(nn.Embed(self.vocabulary, self.embedding, dtype=self.dtype, name="words")(tokens))
        x = drop(jnp.concatenate(self.ends(words, lengths), axis=-1))
        x = drop(nn.relu(nn.Dense(self.hidden, dtype=self.dtype, name="layer")(x)))
        return nn.Dense(self.classes, dtype=self.dtype, name="head")(x)

    def ends(self, words: jax.Array, lengths: jax.Array) -> jax.Array:
        """What both LSTMs say at their end, as `both_ends` has it."""
        cells = []
        for _ in range(2):
            # Flax's cells are here for their parameters alone.
            cell = nn.OptimizedLSTMCell(self.hidden, dtype=self.dtype)
            if self.is_initializing():
                first = words[:, 0]
                cell(cell.initialize_carry(jax.random.key(0), first.shape), first)
            cells.append(cell.variables["params"])
        return both_ends(words, lengths, *cells, dtype=self.dtype, unroll=self.unroll)


def both_ends(
    words: jax.Array, lengths: jax.Array, forwards: Any, backwards: Any, *, dtype: Any = jnp.float32, unroll: int = 1
) -> jax.Array:
    """What two LSTMs say at their end, one that reads from the first word to the last and one that reads back.

    The same as `flax.linen.RNN` over an `OptimizedLSTMCell`, once as it is and once with `reverse`, in fewer pieces of
    work: word by word these are so small that a GPU waits for the next one most of the time. So both LSTMs read at
    once, words meet their weights before the loop, and the weights' gradients are summed after it.

    Args:
        words: the word vectors, of shape `(N, length, embedding)`.
        lengths: how many words each sentence has; what comes after them is not read.
        forwards: the parameters of the first cell, as flax has them.
        backwards: those of the second.
        dtype: what products of matrices are computed in. Sums, gates and memory are float32 at least.
        unroll: how many words are read in one round of the loop.

    Returns:
        An array of shape `(2, N, hidden)` and of `dtype`.

    >>> words, lengths = jax.random.normal(jax.random.key(0), (2, 5, 3)), jnp.array([5, 2])
    >>> cell = nn.OptimizedLSTMCell(4)
    >>> params = cell.init(jax.random.key(1), cell.initialize_carry(jax.random.key(2), (2, 3)), words[:, 0])["params"]
    >>> ends = both_ends(words, lengths, params, params)
    >>> (_, state), _ = nn.RNN(cell).apply({"params": {"cell": params}}, words, seq_lengths=lengths, return_carry=True)
    >>> ends.shape, bool(jnp.allclose(ends[0], state, atol=1e-6))
    ((2, 2, 4), True)
    """
    steps = words.astype(dtype).swapaxes(0, 1)
    real = (jnp.arange(len(steps))[:, None] < lengths)[..., None]
    # Read backwards a sentence begins with its padding, in which nothing is remembered; so there is no need to move
    # every sentence by its own length, which has a slow gradient.
    given = (_given(steps, forwards), _given(steps[::-1], backwards))
    kernel = jnp.stack([_joined(cell, "h", "kernel") for cell in (forwards, backwards)])
    return _remember(given, kernel, jnp.stack([real, real[::-1]], axis=1), unroll)


def _joined(cell: Any, side: str, leaf: str) -> jax.Array:
    """The parameters of all gates as one array, for inputs (`i`) or states (`h`)."""
    return jnp.concatenate([cell[side + gate][leaf] for gate in GATES], axis=-1)


def _given(words: jax.Array, cell: Any) -> jax.Array:
    """What words give to the gates. The bias is added in its own dtype, so that its gradient is summed in it."""
    return (words @ _joined(cell, "i", "kernel").astype(words.dtype) + _joined(cell, "h", "bias")).astype(words.dtype)


# The loop over words. The letters are those of the LSTM's formulas: gates i, f, g and o, memory c, state h. Axes are
# t, the step; d, the direction; n, the sentence; and last the numbers of the state, four times as many for gates.


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def _remember(given: Both, kernel: jax.Array, real: jax.Array, unroll: int) -> jax.Array:
    """The last states, from what words give to the gates, the states' weights, and which steps have a word."""
    return _loop(given, kernel, real, unroll)[0]


def _loop(given: Both, kernel: jax.Array, real: jax.Array, unroll: int) -> tuple[jax.Array, jax.Array]:
    """The last states, and of every step its gates and the memory before it, side by side."""
    dtype, kernel = given[0].dtype, kernel.astype(given[0].dtype)

    def step(carry: Any, now: Any) -> tuple[Any, jax.Array]:
        (c, h), (given, real) = carry, now
        said = jnp.einsum("dnh,dhg->dng", h, kernel)
        i, f, g, o = jnp.split(_wide(jnp.stack(given)) + _wide(said), 4, axis=-1)
        i, f, g, o = jax.nn.sigmoid(i), jax.nn.sigmoid(f), jnp.tanh(g), jax.nn.sigmoid(o)
        kept = jnp.concatenate([i, f, g, o, c], axis=-1).astype(dtype)
        new = f * c + i * g
        return (jnp.where(real, new, c), jnp.where(real, (o * jnp.tanh(new)).astype(dtype), h)), kept

    h = jnp.zeros((2, *given[0].shape[1:-1], kernel.shape[1]), dtype)
    (_, end), steps = jax.lax.scan(step, (_wide(h), h), (given, real), unroll=unroll)
    return end, steps


def _forward(given: Both, kernel: jax.Array, real: jax.Array, unroll: int) -> tuple[jax.Array, Any]:
    end, steps = _loop(given, kernel, real, unroll)
    return end, (kernel, real, steps)


def _backward(unroll: int, kept: Any, to_end: jax.Array) -> tuple[Both, jax.Array, None]:
    """Gradients with respect to `given` and `kernel`: `dh` and `dc` are those of state and memory after a step."""
    kernel, real, steps = kept
    dtype, narrow = steps.dtype, kernel.astype(steps.dtype)
    # The gradient of the end enters at a sentence's last step. In steps after it all gradients are 0 by themselves.
    last = real & ~jnp.concatenate([real[1:], jnp.zeros_like(real[:1])])

    def step(carry: Any, now: Any) -> tuple[Any, jax.Array]:
        (dc, dh), (kept, real, last) = carry, now
        i, f, g, o, c = jnp.split(_wide(kept), 5, axis=-1)
        out = jnp.tanh(f * c + i * g)
        dh = _wide(dh) + jnp.where(last, _wide(to_end), 0)
        dc = dc + dh * o * (1 - out * out)
        dgates = [dc * g * i * (1 - i), dc * c * f * (1 - f), dc * i * (1 - g * g), dh * out * o * (1 - o)]
        dgiven = jnp.where(real, jnp.concatenate(dgates, axis=-1), 0).astype(dtype)
        return (dc * f, jnp.einsum("dng,dhg->dnh", dgiven, narrow)), dgiven

    zero = jnp.zeros_like(to_end)
    _, dgiven = jax.lax.scan(step, (_wide(zero), zero), (steps, real, last), reverse=True, unroll=unroll)
    # The states again, rather than kept. Each is needed where it was said, in the step after its own.
    i, f, g, o, c = jnp.split(_wide(steps[:-1]), 5, axis=-1)
    h = jnp.where(real[:-1], o * jnp.tanh(f * c + i * g), 0).astype(dtype)
    dkernel = jnp.einsum("tdnh,tdng->dhg", h, dgiven[1:])
    return (dgiven[:, 0], dgiven[:, 1]), dkernel.astype(kernel.dtype), None


def _wide(x: jax.Array) -> jax.Array:
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


_remember.defvjp(_forward, _backward)
