"""The two passes over the basis as GPU kernels, for parameters that are packed into one vector.

Each reads every stored vector once and writes only what changes. Left to itself the compiler needs a branch for the
rounds in which blocks end, and a branch makes the host wait for the device in every step; in a kernel it is free. The
plain versions in `samuel.jax.old_vectors` are the reference, and what every other device runs.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as pl_triton

from samuel.core.rays import Moves

DOTS_BLOCK = 4096
"""Elements that one program of the first pass reads of every vector; packed vectors are a multiple of it long."""
STEP_BLOCK = 1024
"""The same for the second pass, which keeps a block of every vector in registers."""


def dots(gradient: jax.Array, vectors: Sequence[jax.Array], interpret: bool = False) -> jax.Array:
    """`<g, b>` of every vector, in one pass.

    >>> import jax.numpy as jnp
    >>> g = jnp.ones(4096)
    >>> dots(g, [g, 2 * g], interpret=True).tolist()
    [4096.0, 8192.0]
    """
    programs = gradient.shape[0] // DOTS_BLOCK

    def kernel(gradient_ref, *refs):
        *vector_refs, out_ref = refs
        g = gradient_ref[...]
        for m, ref in enumerate(vector_refs):
            out_ref[0, m] = jnp.sum(g * ref[...].astype(jnp.float32))

    block = pl.BlockSpec((DOTS_BLOCK,), lambda i: (i,))
    partial = pl.pallas_call(
        kernel,
        grid=(programs,),
        in_specs=[block] * (1 + len(vectors)),
        out_specs=pl.BlockSpec((1, len(vectors)), lambda i: (i, 0)),
        out_shape=jax.ShapeDtypeStruct((programs, len(vectors)), jnp.float32),
        compiler_params=pl_triton.CompilerParams(num_warps=8, num_stages=1),
        interpret=interpret,
    )(gradient, *vectors)
    return jnp.sum(partial, axis=0)


def step(
    moving: Sequence[jax.Array],
    kept: Sequence[jax.Array],
    directions: Sequence[jax.Array],
    moves: Moves,
    enters: np.ndarray,
    interpret: bool = False,
) -> tuple[jax.Array, list[jax.Array], list[jax.Array]]:
    """The update, and the basis after the step, in one pass; blocks that have ended included.

    Args:
        moving: the basis vectors that change in every step.
        kept: those that change only when a block ends. They are written only then, so give their buffers away.
        directions: what the base gave.
        moves: the coefficients.
        enters: which directions enter which moving vectors at all.
    """
    m, k, d = len(moving), len(kept), len(directions)
    basis = m + k
    numbers = jnp.concatenate(
        [
            moves.difference,
            moves.along,
            moves.keep,
            moves.enter.reshape(-1),
            moves.rewrite.reshape(-1),
            moves.due.astype(jnp.float32)[None],
        ]
    )
    at_along = basis
    at_keep = at_along + d
    at_enter = at_keep + m
    at_rewrite = at_enter + m * d
    at_due = at_rewrite + basis * basis

    def kernel(numbers_ref, *refs):
        inputs, outputs = refs[: basis + d], refs[basis + d :]
        vectors = [ref[...].astype(jnp.float32) for ref in inputs[:basis]]
        steps = [ref[...] for ref in inputs[basis:]]
        update = jnp.zeros_like(vectors[0])
        for i, vector in enumerate(vectors):
            update = update + numbers_ref[i] * vector
        for i, direction in enumerate(steps):
            update = update + numbers_ref[at_along + i] * direction
        outputs[0][...] = update
        for i in range(m):
            moved = numbers_ref[at_keep + i] * vectors[i]
            for j, direction in enumerate(steps):
                if enters[i][j]:
                    moved = moved + numbers_ref[at_enter + i * d + j] * direction
            vectors[i] = moved
        due = numbers_ref[at_due] > 0

        @pl.when(due)
        def _():
            for row in range(basis):
                total = jnp.zeros_like(update)
                for column in range(basis):
                    total = total + numbers_ref[at_rewrite + row * basis + column] * vectors[column]
                outputs[1 + row][...] = total.astype(outputs[1 + row].dtype)

        @pl.when(jnp.logical_not(due))
        def _():
            for i in range(m):
                outputs[1 + i][...] = vectors[i]

    block = pl.BlockSpec((STEP_BLOCK,), lambda i: (i,))
    like = [jax.ShapeDtypeStruct(vector.shape, vector.dtype) for vector in (*moving, *kept)]
    update, *new = pl.pallas_call(
        kernel,
        grid=(moving[0].shape[0] // STEP_BLOCK,),
        in_specs=[pl.BlockSpec(numbers.shape, lambda i: (0,)), *([block] * (basis + d))],
        out_specs=[block] * (1 + basis),
        out_shape=[jax.ShapeDtypeStruct(moving[0].shape, jnp.float32), *like],
        input_output_aliases={1 + i: 1 + i for i in range(basis)},
        compiler_params=pl_triton.CompilerParams(num_warps=4, num_stages=1),
        interpret=interpret,
    )(numbers, *moving, *kept, *directions)
    return update, list(new[:m]), list(new[m:])
