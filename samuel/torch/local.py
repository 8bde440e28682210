"""What a process holds of tensors: their shard, and complex numbers as pairs of real ones."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor


def is_spread(tensor: Any) -> bool:
    """Whether a tensor is spread over processes (a `DTensor`); imports nothing that was not imported before."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def is_split(tensor: Any) -> bool:
    """Whether some process lacks a part of a tensor; the answer is the same in all of them."""
    if not is_spread(tensor):
        return False
    places = enumerate(tensor.placements)
    return any(not place.is_replicate() and tensor.device_mesh.size(dim) > 1 for dim, place in places)


def raw(tensor: Any) -> Tensor:
    """The real numbers of a tensor that are on this device.

    >>> raw(torch.zeros(3, dtype=torch.complex64)).shape
    torch.Size([3, 2])
    """
    if is_spread(tensor):
        tensor = tensor.to_local()
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def placed(local: Tensor, like: Any) -> Tensor:
    """A shard of something that is spread over processes as a parameter is."""
    if not is_spread(like):
        return local
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(
        local, like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
    )


def sharding(param: Any) -> tuple[Any, tuple[bool, ...]] | None:
    """The mesh that a parameter is spread over, and along which of its dimensions it is sharded."""
    if not is_spread(param):
        return None
    if any(place.is_partial() for place in param.placements):
        raise ValueError(f"a parameter cannot be a partial sum, got one placed as {param.placements}")
    return param.device_mesh, tuple(place.is_shard() for place in param.placements)


def wide_dtype(tensor: Any) -> torch.dtype:
    """In which dtype to work with a tensor: 16 bits are too few to add small steps up."""
    return torch.float64 if raw(tensor).dtype == torch.float64 else torch.float32
