"""Muon for PyTorch: momentum, and its orthogonalisation in batches of matrices of one shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from samuel.core.orthogonal import SIZE, gram_orthogonal, orthogonal
from samuel.core.roles import Role
from samuel.torch.roles import as_matrices, from_matrices

SHORTEST = 64
"""Matrices with a shorter side than this are not worth fewer bits."""
FAR_FROM_SQUARE = 1.5
"""In 32 bits the iterations run on the Gram matrix of those whose sides have this ratio."""


def orthogonalise_(tensors: Sequence[Tensor], roles: Sequence[Role]) -> None:
    """Make every matrix in some tensors orthogonal, in place, at the size of a step of Adam's.

    This is the one place where matrices must be whole.

    Args:
        tensors: on one device.
        roles: which axes of each are rows and columns, and what is stacked or joined in it.

    >>> from samuel.core.roles import flattened
    >>> x = torch.diag(torch.tensor([3.0, 0.1]))
    >>> orthogonalise_([x], [flattened(x.shape, "linear")])
    >>> bool((x.diagonal() > 0.17).all())  # 0.2 times the root of the larger side, times 0.68 to 1.21
    True
    """
    batches = [as_matrices(tensor, role) for tensor, role in zip(tensors, roles, strict=True)]
    alike: dict[Any, list[tuple[int, int]]] = {}
    for i, own in enumerate(batches):
        for j, batch in enumerate(own):
            sides = tuple(sorted(batch.shape[1:]))
            alike.setdefault((sides, batch.dtype), []).append((i, j))
    for ((short, long), dtype), places in alike.items():
        lying = [_lying(batches[i][j]) for i, j in places]
        stack = lying[0] if len(lying) == 1 else torch.cat(lying)
        product = _product(stack.device, dtype, short)
        # The Gram matrix needs 32 bits.
        iterate = gram_orthogonal if product is torch.matmul and long >= FAR_FROM_SQUARE * short else orthogonal
        steps = iterate(stack, product).mul_(SIZE * long**0.5).split([len(batch) for batch in lying])
        for (i, j), step in zip(places, steps, strict=True):
            batches[i][j] = step if step.shape[1:] == batches[i][j].shape[1:] else step.mT
    for tensor, role, own in zip(tensors, roles, batches, strict=True):
        tensor.copy_(from_matrices(own, role, tensor.shape))


def _lying(batch: Tensor) -> Tensor:
    """Matrices that are not higher than wide."""
    return batch if batch.shape[1] <= batch.shape[2] else batch.mT


def _product(device: torch.device, dtype: torch.dtype, short: int) -> Callable[[Tensor, Tensor], Tensor]:
    """The product for matrices with such a short side: of 16 bits where those are fast, summed up in 32."""
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
