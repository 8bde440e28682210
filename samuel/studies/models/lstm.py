"""A bidirectional LSTM that reads a sentence from both ends."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp


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
        dtype: what it computes in; parameters are float32.

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
        ends = []
        for name, reverse in (("forwards", False), ("backwards", True)):
            reader = nn.RNN(nn.OptimizedLSTMCell(self.hidden, dtype=self.dtype), reverse=reverse, name=name)
            (_, state), _ = reader(words, seq_lengths=lengths, return_carry=True)
            ends.append(state)
        x = drop(jnp.concatenate(ends, axis=-1).astype(self.dtype))
        x = drop(nn.relu(nn.Dense(self.hidden, dtype=self.dtype, name="layer")(x)))
        return nn.Dense(self.classes, dtype=self.dtype, name="head")(x)
