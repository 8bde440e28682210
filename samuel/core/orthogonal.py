"""Newton-Schulz orthogonalisation: `U S V'` becomes about `U V'` by matrix products alone.

Each iteration applies an odd polynomial to the singular values of a matrix, which must be at most 1,

    X <- a X + b (X X') X + c (X X')^2 X,

which increases small ones fast and brings all near 1 in a few iterations. Since `X X'` commutes with polynomials of
itself, the iteration can run on the small Gram matrix of a matrix far from square: `gram_orthogonal`.

Jordan 2024, "Muon: An optimizer for hidden layers in neural networks".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from samuel.core.arrays import Array, identity, matmul, namespace, repeat

Coefficients = Sequence[tuple[float, float, float]]

COEFFICIENTS: Coefficients = ((3.4445, -4.7750, 2.0315),) * 5
"""`a`, `b` and `c` of each iteration: singular values above 0.003 of the norm end between 0.68 and 1.21."""
SIZE = 0.2
"""Root mean square of the entries of a step at a rate of 1: about that of Adam, so that both can share a rate.
Liu et al. 2025, "Muon is scalable for LLM training"."""
EPSILON = 1e-8
"""Added to the norm in the denominator."""
FAR_FROM_SQUARE = 1.5
"""Ratio of the sides from which on iterations on the Gram matrix need fewer operations, for products in float32."""
MOMENTUM = 0.95
"""Of Muon, for matrices."""
ADAM = {"betas": (0.9, 0.999), "eps": 1e-8}
"""Options of Adam, also beside Muon."""


def orthogonal(matrices: Array, product: Callable[[Array, Array], Array] = matmul) -> Array:
    """Matrices with all singular values brought near 1.

    Args:
        matrices: `(..., m, n)`; cheaper with `m <= n`.
        product: product of two (stacks of) matrices, such as one in lower precision.

    >>> import numpy as np
    >>> x = orthogonal(np.array([[3.0, 0.0, 0.0], [0.0, 0.1, 0.0]]))
    >>> bool(abs(np.linalg.svd(x, compute_uv=False) - 1).max() < 0.35)
    True
    """

    def step(x: Array, row: Sequence[Any]) -> Array:
        a, b, c = row
        gram = product(x, _transposed(x))
        return a * x + product(b * gram + c * product(gram, gram), x)

    return repeat(step, normalised(matrices), COEFFICIENTS)


def gram_orthogonal(matrices: Array, product: Callable[[Array, Array], Array] = matmul) -> Array:
    """The same by iterations on the Gram matrix `X X'`: fewer operations where `n` is at least 1.5 times `m`.

    Needs float32: rounding errors of the Gram matrix grow with the square of the polynomials' slope.

    Args:
        matrices: `(..., m, n)` with `m <= n`.
        product: the product of two (stacks of) matrices.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(2, 5))
    >>> bool(np.allclose(gram_orthogonal(x), orthogonal(x)))
    True
    """
    x = normalised(matrices)
    eye = identity(x.shape[-2], x)

    def polynomial(gram: Array, row: Sequence[Any]) -> Array:
        a, b, c = row
        return a * eye + b * gram + c * product(gram, gram)

    def step(carry: tuple[Array, Array], row: Sequence[Any]) -> tuple[Array, Array]:
        gram, total = carry
        factor = polynomial(gram, row)
        return product(product(factor, gram), factor), product(factor, total)

    gram, total = repeat(step, (product(x, _transposed(x)), eye + 0 * x[..., :1, :1]), COEFFICIENTS[:-1])
    return product(product(polynomial(gram, COEFFICIENTS[-1]), total), x)


def normalised(matrices: Array) -> Array:
    """Matrices divided by their Frobenius norms, so that no singular value is above 1."""
    xp = namespace(matrices)
    return matrices / (xp.sqrt(xp.sum(matrices * matrices, axis=(-2, -1), keepdims=True)) + EPSILON)


def _transposed(x: Array) -> Array:
    return x.swapaxes(-2, -1)
