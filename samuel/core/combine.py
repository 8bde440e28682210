"""Combine experts into one decision: their average, a random one, or the best.

Points have the shape `(..., slots, experts, d)`, the weights `p` of the experts `(..., slots, experts)`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from samuel.core.arrays import Array, beside, matmul, namespace


def average(points: Array, p: Array) -> Array:
    """The mean of the experts' points under `p`: the choice for convex losses.

    >>> import numpy as np
    >>> average(np.array([[[0.0, 2.0], [4.0, 2.0]]]), np.array([[0.25, 0.75]]))
    array([3., 2.])
    """
    *batch, slots, experts, dim = points.shape
    # As a vector-matrix product: one pass, without an array of all weighted points.
    row = p.reshape((*batch, 1, slots * experts))
    return matmul(row, points.reshape((*batch, slots * experts, dim)))[..., 0, :]


def best(points: Array, p: Array) -> Array:
    """The point of the expert with the largest weight; the first among ties up to rounding.

    >>> import numpy as np
    >>> best(np.array([[[0.0, 2.0], [4.0, 2.0]]]), np.array([[0.25, 0.75]]))
    array([4., 2.])
    """
    xp = namespace(points)
    flat = _flat(p)
    close = flat >= xp.max(flat, axis=-1, keepdims=True) * (1 - 1e-6)
    return pick(points, xp.argmax(xp.astype(close, p.dtype), axis=-1))


def sample(points: Array, p: Array, chance: Array) -> Array:
    """The point of an expert drawn by `p`, for losses that are not convex.

    Args:
        points: the experts' points.
        p: their weights.
        chance: uniform random numbers in [0, 1), one per stream, shape `(...)`: see `uniform`.

    >>> import numpy as np
    >>> points, p = np.array([[[0.0, 2.0], [4.0, 2.0]]]), np.array([[0.25, 0.75]])
    >>> sample(points, p, uniform(np.random.default_rng(0), like=p))
    array([4., 2.])
    """
    return pick(points, draw(p, chance))


def draw(p: Array, chance: Array) -> Array:
    """The flat index, over slots and experts, of an expert drawn by `p`; never one of weight 0."""
    xp = namespace(p)
    flat = _flat(p)
    passed = xp.cumulative_sum(flat, axis=-1) <= chance[..., None]
    # The last cumulative sum may round to below the number drawn: then take the last expert with a positive weight.
    places = beside(np.arange(flat.shape[-1]), flat)
    last = xp.max(xp.where(flat > 0, places, xp.zeros_like(places)), axis=-1)
    return xp.minimum(xp.sum(xp.astype(passed, places.dtype), axis=-1), last)


def pick(points: Array, place: Array) -> Array:
    """The point at a flat index over slots and experts, one per stream."""
    xp = namespace(points)
    flat = xp.reshape(points, (*points.shape[:-3], -1, points.shape[-1]))
    chosen = place[..., None] == beside(np.arange(flat.shape[-2]), flat)
    return xp.sum(xp.where(chosen[..., None], flat, xp.zeros_like(flat)), axis=-2)


def usable(points: Array) -> Array:
    """Which coordinates are finite and small enough for a finite loss; an expert beyond has diverged."""
    return abs(points) < farthest(points)


def farthest(points: Array) -> float:
    """Largest absolute coordinate: its square, with some margin, does not overflow."""
    return 1e140 if points.dtype.itemsize == 8 else 1e15


def uniform(random: Any, like: Array) -> Array:
    """Uniform random numbers in [0, 1), one per stream of `like` (an array of the shape of `p`).

    Args:
        random: a NumPy `Generator`, a torch `Generator`, or a JAX key.
        like: determines the library, the dtype and the number of streams.

    >>> import numpy as np
    >>> uniform(np.random.default_rng(0), like=np.ones((3, 2, 2)) / 4).shape
    (3,)
    """
    xp, shape = namespace(like), like.shape[:-2]
    if isinstance(random, np.random.Generator):
        return xp.asarray(random.random(shape), dtype=like.dtype)
    if "torch" in xp.__name__:
        import torch

        return torch.rand(shape, generator=random, dtype=like.dtype, device=like.device)
    import jax

    return jax.random.uniform(random, shape, dtype=like.dtype)


def _flat(p: Array) -> Array:
    return namespace(p).reshape(p, (*p.shape[:-2], -1))
