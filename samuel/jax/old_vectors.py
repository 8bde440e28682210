"""Storage: the vectors of the basis, as trees like the parameters or packed into one array each.

What is done with them is said by `samuel.core.rays`; nothing here knows why.

Packed vectors need a handful of operations on the device instead of a handful for every array of the parameters, and on
a GPU two kernels do all of it. Trees keep the placement of parameters that are spread over several devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from samuel.core.rays import Moves

MULTIPLE = 4096
"""Packed vectors are filled up with zeros to a multiple of this, so that the kernels need no masks."""


def pack(tree: Any) -> jax.Array:
    """All numbers of a tree in one vector, in the widest of their dtypes, filled up with zeros.

    >>> import jax.numpy as jnp
    >>> pack({"a": jnp.ones((2, 2)), "b": jnp.ones(3)}).shape
    (4096,)
    """
    leaves = jax.tree.leaves(tree)
    size = sum(leaf.size for leaf in leaves)
    dtype = jnp.result_type(jnp.float32, *leaves)
    padding = jnp.zeros(-size % MULTIPLE, dtype)
    return jnp.concatenate([*(leaf.astype(dtype).ravel() for leaf in leaves), padding])


def unpack(vector: jax.Array, like: Any) -> Any:
    """The tree that `pack` made the vector of; only shapes are taken from `like`."""
    leaves, structure = jax.tree.flatten(like)
    ends = np.cumsum([leaf.size for leaf in leaves])
    parts = [vector[end - leaf.size : end].reshape(leaf.shape) for end, leaf in zip(ends, leaves, strict=True)]
    return jax.tree.unflatten(structure, parts)


def products(gradient: Any, basis: Sequence[Any]) -> jax.Array:
    """`<g, b>` for every vector of the basis."""
    if _kernels_fit(gradient):
        from samuel.jax import kernels

        return kernels.dots(gradient, basis)
    return jnp.stack([_dot(gradient, vector) for vector in basis])


def take_step(
    moving: Sequence[Any], kept: Sequence[Any], directions: Sequence[Any], moves: Moves, enters: np.ndarray
) -> tuple[Any, list[Any], list[Any]]:
    """The update and the basis after the step.

    Args:
        moving: the basis vectors that change in every step.
        kept: those that change only when a block ends.
        directions: what the base gave.
        moves: what is to be done.
        enters: which directions enter which moving vectors at all, `(moving, directions)`.
    """
    if _kernels_fit(moving[0]):
        from samuel.jax import kernels

        return kernels.step(moving, kept, directions, moves, enters)
    update = combination([*moving, *kept, *directions], [*unstacked(moves.difference), *unstacked(moves.along)])
    moved = []
    for i, vector in enumerate(moving):
        entering = [k for k in range(len(directions)) if enters[i][k]]
        terms = [vector, *(directions[k] for k in entering)]
        moved.append(combination(terms, [moves.keep[i], *(moves.enter[i, k] for k in entering)]))

    def rewritten(vectors: list[Any]) -> list[Any]:
        rows = [combination(vectors, unstacked(row)) for row in unstacked(moves.rewrite)]
        return [jax.tree.map(lambda new, old: new.astype(old.dtype), *pair) for pair in zip(rows, vectors, strict=True)]

    new = jax.lax.cond(moves.due, rewritten, lambda vectors: vectors, [*moved, *kept])
    return update, new[: len(moving)], new[len(moving) :]


def combination(vectors: Sequence[Any], factors: Sequence[jax.Array]) -> Any:
    """The sum of vectors, each times its factor, in the dtype of the first (which has full precision)."""

    def combined(*leaves: jax.Array) -> jax.Array:
        dtype = leaves[0].dtype
        terms = [factor.astype(dtype) * leaf.astype(dtype) for factor, leaf in zip(factors, leaves, strict=True)]
        return sum(terms[1:], start=terms[0])

    return jax.tree.map(combined, *vectors)


def unstacked(array: jax.Array) -> list[jax.Array]:
    """The entries along the first axis."""
    return [array[i] for i in range(array.shape[0])]


def _dot(a: Any, b: Any) -> jax.Array:
    parts = jax.tree.map(lambda x, y: jnp.sum(x * y.astype(x.dtype), dtype=jnp.float32), a, b)
    return jax.tree.reduce(jnp.add, parts, jnp.zeros((), jnp.float32))


def _kernels_fit(vector: Any) -> bool:
    """Whether the vectors are packed, in single precision, and on a device that the kernels are written for."""
    packed = isinstance(vector, jax.Array) and vector.ndim == 1 and vector.dtype == jnp.float32
    return packed and vector.size > 0 and vector.size % MULTIPLE == 0 and jax.default_backend() == "gpu"
