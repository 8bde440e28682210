"""A bidirectional LSTM for sentences."""

from __future__ import annotations

from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

GATES = "ifgo"  # in the order of flax

Both = tuple[jax.Array, jax.Array]  # for each direction


class BiLSTM(nn.Module):
    """Word embeddings, an LSTM in each direction, and two layers on both final states.

    With the sizes of flax's example for SST-2. Sentences are padded with 0 at the end, which does not change the
    result.

    Attributes:
        vocabulary: number of tokens, including padding.
        classes: number of classes.
        embedding: dimension of word embeddings.
        hidden: size of each LSTM and of the layer after them.
        dropout: dropout rate of embeddings and before each layer.
        word_dropout: fraction of tokens that training replaces by `unknown`.
        unknown: token for unknown words.
        dtype: of the computation; parameters and the cells' states are float32.
        unroll: words per iteration of the loop: changes time, not results.

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
        # A sentence of padding only counts as one token, so that it has an end.
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
        """The final outputs of both LSTMs; see `both_ends`."""
        cells = []
        for _ in range(2):
            # Flax's cells only hold the parameters.
            cell = nn.OptimizedLSTMCell(self.hidden, dtype=self.dtype)
            if self.is_initializing():
                first = words[:, 0]
                cell(cell.initialize_carry(jax.random.key(0), first.shape), first)
            cells.append(cell.variables["params"])
        return both_ends(words, lengths, *cells, dtype=self.dtype, unroll=self.unroll)


def both_ends(
    words: jax.Array, lengths: jax.Array, forwards: Any, backwards: Any, *, dtype: Any = jnp.float32, unroll: int = 1
) -> jax.Array:
    """Final outputs of a forward and a backward LSTM.

    The same as `flax.linen.RNN` over an `OptimizedLSTMCell`, forward and with `reverse`, in fewer GPU kernels, which
    are so small word by word that launches dominate: both LSTMs run in one loop, the input projections are computed
    before it, and the gradients of the weights after it.

    Args:
        words: word embeddings, of shape `(N, length, embedding)`.
        lengths: words of each sentence, without padding.
        forwards: parameters of the forward cell, in flax's layout.
        backwards: those of the backward cell.
        dtype: of matrix products. Sums, gates and states are float32 at least.
        unroll: words per iteration of the loop.

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
    # Backwards, a sentence begins with padding, where the state stays 0; so sentences need not be shifted by their
    # lengths, which has a slow gradient.
    given = (_given(steps, forwards), _given(steps[::-1], backwards))
    kernel = jnp.stack([_joined(cell, "h", "kernel") for cell in (forwards, backwards)])
    return _remember(given, kernel, jnp.stack([real, real[::-1]], axis=1), unroll)


def _joined(cell: Any, side: str, leaf: str) -> jax.Array:
    """The parameters of all gates as one array, for inputs (`i`) or states (`h`)."""
    return jnp.concatenate([cell[side + gate][leaf] for gate in GATES], axis=-1)


def _given(words: jax.Array, cell: Any) -> jax.Array:
    """Input projections of the gates. The bias is added in its own dtype, so that its gradient is summed in it."""
    return (words @ _joined(cell, "i", "kernel").astype(words.dtype) + _joined(cell, "h", "bias")).astype(words.dtype)


# The loop over words, with the letters of the LSTM's formulas: gates i, f, g and o, cell c, state h. Axes are t, the
# step; d, the direction; n, the sentence; and last the state, four times as large for gates.


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def _remember(given: Both, kernel: jax.Array, real: jax.Array, unroll: int) -> jax.Array:
    """The final states, from the input projections, the recurrent weights, and the mask of words."""
    return _loop(given, kernel, real, unroll)[0]


def _loop(given: Both, kernel: jax.Array, real: jax.Array, unroll: int) -> tuple[jax.Array, jax.Array]:
    """The final states, and for every step its gates and the cell before it."""
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
    """Gradients with respect to `given` and `kernel`: `dh` and `dc` are those of state and cell after a step."""
    kernel, real, steps = kept
    dtype, narrow = steps.dtype, kernel.astype(steps.dtype)
    # The gradient of the output enters at a sentence's last step; later steps have zero gradients.
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
    # The states are recomputed rather than stored; each is needed in the step after its own.
    i, f, g, o, c = jnp.split(_wide(steps[:-1]), 5, axis=-1)
    h = jnp.where(real[:-1], o * jnp.tanh(f * c + i * g), 0).astype(dtype)
    dkernel = jnp.einsum("tdnh,tdng->dhg", h, dgiven[1:])
    return (dgiven[:, 0], dgiven[:, 1]), dkernel.astype(kernel.dtype), None


def _wide(x: jax.Array) -> jax.Array:
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


_remember.defvjp(_forward, _backward)
