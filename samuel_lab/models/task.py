"""A network and its cross entropy, as pure functions for the training loop."""

from __future__ import annotations

import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

Tree = Any


class Task:
    """Classification: a network and its training loss.

    `loss` is what `samuel.jax.Experts` and `samuel.jax.Sweep` take as `loss_fn`.

    Args:
        network: a flax module, called as `network(inputs, train)`, that returns a score for every class. It may have
            batch statistics and dropout.
        example: inputs of the right shape and dtype, one example or more.
        classes: number of classes.

    >>> from samuel_lab.models import ConvNet
    >>> images, labels = jnp.zeros((4, 8, 8, 1)), jnp.array([0, 1, 2, 0])
    >>> task = Task(ConvNet(classes=3), images[:1], classes=3)
    >>> params, model_state = task.init(jax.random.key(0))
    >>> loss, model_state, seen = jax.jit(task.loss)(params, model_state, (images, labels), jax.random.key(1))
    >>> round(float(loss), 3), float(seen["accuracy"])
    (1.099, 0.5)
    """

    def __init__(self, network: nn.Module, example: Any, classes: int) -> None:
        if not isinstance(network, nn.Module):
            raise TypeError(f"network must be a flax.linen module, got {network!r}")
        shape = jax.eval_shape(lambda: network.init_with_output(jax.random.key(0), example, train=False)[0]).shape
        if shape != (len(example), classes):
            raise ValueError(
                f"the network must give {classes} scores for each of {len(example)} examples, got shape {shape}"
            )
        self.network = network
        self.classes = classes
        self._example = jax.ShapeDtypeStruct(jnp.shape(example), jnp.asarray(example).dtype)
        # Otherwise every layer would be compiled separately.
        self._init = jax.jit(network.init, static_argnames="train")

    def init(self, key: jax.Array) -> tuple[Tree, Tree]:
        """The initial parameters and model state; the latter is None for a network without one.

        Args:
            key: a `jax.random.key`, which determines the network.
        """
        variables = dict(self._init(key, jnp.zeros(self._example.shape, self._example.dtype), train=False))
        return variables.pop("params"), variables or None

    def loss(
        self, params: Tree, model_state: Tree, batch: tuple[jax.Array, jax.Array], key: jax.Array
    ) -> tuple[jax.Array, Tree, dict[str, jax.Array]]:
        """The mean training loss of a batch, the model state after it, and the accuracy.

        Args:
            params: the parameters.
            model_state: state of the network beside them, such as batch statistics.
            batch: inputs and labels.
            key: for dropout.
        """
        inputs, labels = batch
        variables = {"params": params, **(model_state or {})}
        kept = list(model_state or ())
        scores, after = self.network.apply(variables, inputs, train=True, rngs={"dropout": key}, mutable=kept)
        scores = scores.astype(jnp.float32)
        loss = optax.softmax_cross_entropy_with_integer_labels(scores, labels).mean()
        accuracy = (scores.argmax(-1) == labels).mean(dtype=jnp.float32)
        return loss, dict(after) or None, {"accuracy": accuracy}

    def outputs(self, params: Tree, model_state: Tree, inputs: jax.Array) -> jax.Array:
        """The scores for evaluation: without dropout, with the running batch statistics.

        Args:
            params: the parameters.
            model_state: state of the network beside them, such as batch statistics.
            inputs: the examples.
        """
        scores: Any = self.network.apply({"params": params, **(model_state or {})}, inputs, train=False)
        return scores.astype(jnp.float32)

    @staticmethod
    def parameters(params: Tree) -> int:
        """Number of parameters."""
        return sum(math.prod(jnp.shape(leaf)) for leaf in jax.tree.leaves(params))
