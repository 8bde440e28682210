"""The LSTM of `sst2` beside flax's own loop: time of a training step with `flax.linen.RNN`, over ours.

    python benchmarks/lstm.py                                    one network, in the study's sizes
    python benchmarks/lstm.py --networks 125 --dtype bfloat16    as a search trains them, side by side

A step is a loss and its gradient, with dropout and the gradient of the word vectors. Both in one process, in turns; the
ratio is that of the shortest times. On a GPU results are the same twice, as in studies, unless `--no-deterministic`.
"""

import argparse
import json
import time
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from samuel_lab.execution import choose_device, environment
from samuel_lab.models import BiLSTM, Task


class Plain(BiLSTM):
    """The same network over flax's loop."""

    def ends(self, words, lengths):
        cells = [nn.OptimizedLSTMCell(self.hidden, dtype=self.dtype) for _ in range(2)]
        readers = [nn.RNN(cell, reverse=reverse) for cell, reverse in zip(cells, (False, True), strict=True)]
        ends = [reader(words, seq_lengths=lengths, return_carry=True)[0][1] for reader in readers]
        return jnp.stack(ends).astype(self.dtype)


def sentences(options):
    """Tokens of sentences of all lengths, padded, and a class for each."""
    dice = np.random.default_rng(0)
    shape = (options.batch, options.length)
    lengths = dice.integers(1, options.length, (options.batch, 1), endpoint=True)
    tokens = np.where(np.arange(options.length) < lengths, dice.integers(1, options.vocabulary, shape), 0)
    return jnp.asarray(tokens, jnp.int32), jnp.asarray(dice.integers(0, 2, options.batch))


def prepared(network, batch, networks):
    """A compiled training step that needs nothing more."""
    task = Task(network, batch[0][:1], classes=2)
    gradient = jax.value_and_grad(lambda params, batch, key: task.loss(params, None, batch, key)[0])
    params = task.init(jax.random.key(0))[0]
    if networks > 1:
        params = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (networks, *leaf.shape)), params)
        gradient = jax.vmap(gradient, (0, None, None))
    arguments = jax.device_put((params, batch, jax.random.key(1)))
    compiled = jax.jit(gradient).lower(*arguments).compile()
    return lambda: compiled(*arguments)


def measured(step, steps):
    """Seconds a step."""
    began = time.perf_counter()
    for _ in range(steps):
        result = step()
    jax.block_until_ready(result)
    return (time.perf_counter() - began) / steps


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--embedding", type=int, default=300)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--vocabulary", type=int, default=15_000)
    parser.add_argument("--networks", type=int, default=1, help="how many are trained side by side")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--unroll", type=int, default=BiLSTM.unroll, help="words in one round of our loop")
    parser.add_argument("--deterministic", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5, help="how often both are measured, in turns")
    parser.add_argument("--json", default=None, help="a file to write the numbers to")
    options = parser.parse_args()
    choose_device("auto", options.deterministic)
    sizes = {"embedding": options.embedding, "hidden": options.hidden, "dtype": jnp.dtype(options.dtype)}
    batch = sentences(options)
    networks = {
        "flax": Plain(options.vocabulary, **sizes),
        "ours": BiLSTM(options.vocabulary, unroll=options.unroll, **sizes),
    }
    steps = {name: prepared(network, batch, options.networks) for name, network in networks.items()}
    for step in steps.values():
        jax.block_until_ready(step())
    times = {name: [] for name in steps}
    for _ in range(options.rounds):
        for name, step in steps.items():
            times[name].append(measured(step, options.steps))
    best = {name: 1e3 * min(seconds) for name, seconds in times.items()}
    ratio = best["flax"] / best["ours"]
    print(f"{options.networks} x batch {options.batch}, length {options.length}, hidden {options.hidden}, ", end="")
    print(f"{options.dtype}, unroll {options.unroll}, {environment()['device']}")
    print(f"flax's loop          {best['flax']:9.3f} ms a step")
    print(f"ours                 {best['ours']:9.3f} ms a step")
    print(f"ratio                {ratio:9.3f}   (how many times as fast)")
    if options.json:
        found = {
            "benchmark": "lstm",
            "settings": {name: value for name, value in vars(options).items() if name != "json"},
            "environment": environment(),
            "flax_ms": best["flax"],
            "ours_ms": best["ours"],
            "ratio": ratio,
        }
        Path(options.json).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
