"""The text classifier over flax's own loop, which is slow and as plain as can be."""

import flax.linen as nn
import jax.numpy as jnp

from samuel_lab.models import BiLSTM


class PlainBiLSTM(BiLSTM):
    def ends(self, words, lengths):
        ends = []
        for reverse in (False, True):
            reader = nn.RNN(nn.OptimizedLSTMCell(self.hidden, dtype=self.dtype), reverse=reverse)
            (_, state), _ = reader(words, seq_lengths=lengths, return_carry=True)
            ends.append(state)
        return jnp.stack(ends).astype(self.dtype)


def plain_ends(words, lengths, forwards, backwards, *, dtype):
    ends = []
    for params, reverse in ((forwards, False), (backwards, True)):
        reader = nn.RNN(nn.OptimizedLSTMCell(len(params["hi"]["kernel"]), dtype=dtype), reverse=reverse)
        variables = {"params": {"cell": params}}
        (_, state), _ = reader.apply(variables, words, seq_lengths=lengths, return_carry=True)
        ends.append(state)
    return jnp.stack(ends).astype(dtype)
