"""Orthogonalisation for the Muon base: Newton-Schulz iterations, batched over matrices of equal shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from samuel.core.orthogonal import FAR_FROM_SQUARE, SIZE, gram_orthogonal, orthogonal
from samuel.core.roles import Role
from samuel.torch.roles import as_matrices, from_matrices

SHORTEST = 64
"""Shortest side from which on products in bfloat16 pay off."""


def orthogonalise_(tensors: Sequence[Tensor], roles: Sequence[Role]) -> None:
    """Orthogonalise the matrices of some tensors in place, scaled to the step size of Adam.

    Args:
        tensors: whole matrices, stacks or joined matrices, all on one device.
        roles: their roles, which define rows, columns, stacks and parts.

    >>> from samuel.core.roles import flattened
    >>> x = torch.diag(torch.tensor([3.0, 0.1]))
    >>> orthogonalise_([x], [flattened(x.shape, "linear")])
    >>> bool((x.diagonal() > 0.17).all())  # 0.2 sqrt(2) times 0.68 to 1.21
    True
    """
    batches = [as_matrices(tensor, role) for tensor, role in zip(tensors, roles, strict=True)]
    alike: dict[Any, list[tuple[int, int]]] = {}
    for i, own in enumerate(batches):
        for j, batch in enumerate(own):
            sides = tuple(sorted(batch.shape[1:]))
            alike.setdefault((sides, batch.dtype), []).append((i, j))
    for ((short, long), dtype), places in alike.items():
        wide = [_wide(batches[i][j]) for i, j in places]
        stack = wide[0] if len(wide) == 1 else torch.cat(wide)
        product = _product(stack.device, dtype, short)
        # Iterations on the Gram matrix need float32.
        iterate = gram_orthogonal if product is torch.matmul and long >= FAR_FROM_SQUARE * short else orthogonal
        steps = iterate(stack, product).mul_(SIZE * long**0.5).split([len(batch) for batch in wide])
        for (i, j), step in zip(places, steps, strict=True):
            batches[i][j] = step if step.shape[1:] == batches[i][j].shape[1:] else step.mT
    for tensor, role, own in zip(tensors, roles, batches, strict=True):
        tensor.copy_(from_matrices(own, role, tensor.shape))


def _wide(batch: Tensor) -> Tensor:
    """Matrices with at most as many rows as columns, by transposition."""
    return batch if batch.shape[1] <= batch.shape[2] else batch.mT


def _product(device: torch.device, dtype: torch.dtype, short: int) -> Callable[[Tensor, Tensor], Tensor]:
    """Matrix product for matrices with this short side: in bfloat16, accumulated in float32, where that is faster."""
    if dtype == torch.float32 and short >= SHORTEST and has_fast_bfloat16(device.type):
        return _product_of_16_bits
    return torch.matmul


def _product_of_16_bits(a: Tensor, b: Tensor) -> Tensor:
    return torch.matmul(a.bfloat16(), b.bfloat16()).float()


def has_fast_bfloat16(device: str) -> bool:
    """Whether products of matrices in bfloat16 are fast on a type of device."""
    if device not in _FAST_BFLOAT16:
        has: Any = torch.cpu
        _FAST_BFLOAT16[device] = (
            bool(has._is_avx512_bf16_supported() or has._is_amx_tile_supported())
            if device == "cpu"
            else device == "cuda" and torch.cuda.is_bf16_supported()
        )
    return _FAST_BFLOAT16[device]


_FAST_BFLOAT16: dict[str, bool] = {}
"""By type of device. Not `functools.cache`, of which `torch.compile` warns."""
