"""Local shards of distributed tensors, with complex numbers as pairs of real ones."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor


def is_spread(tensor: Any) -> bool:
    """Whether a tensor is a `DTensor`; does not import `torch.distributed`."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def is_split(tensor: Any) -> bool:
    """Whether no process has the whole tensor; the same answer in all processes."""
    if not is_spread(tensor):
        return False
    places = enumerate(tensor.placements)
    return any(not place.is_replicate() and tensor.device_mesh.size(dim) > 1 for dim, place in places)


def local_real(tensor: Any) -> Tensor:
    """The local shard of a tensor, complex numbers as pairs of real ones; a view.

    >>> local_real(torch.zeros(3, dtype=torch.complex64)).shape
    torch.Size([3, 2])
    """
    if is_spread(tensor):
        tensor = tensor.to_local()
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def as_dtensor(local: Tensor, like: Any) -> Tensor:
    """A `DTensor` from its local shard, with mesh, placements and shape of a parameter."""
    if not is_spread(like):
        return local
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(
        local, like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
    )


def sharding(param: Any) -> tuple[Any, tuple[bool, ...]] | None:
    """The mesh of a distributed parameter, and which of the mesh's dimensions shard it; None for a plain tensor."""
    if not is_spread(param):
        return None
    if any(place.is_partial() for place in param.placements):
        raise ValueError(f"a parameter cannot be a partial sum, got placements {param.placements}")
    return param.device_mesh, tuple(not place.is_replicate() for place in param.placements)  # strided shards, too


def wide_dtype(tensor: Any) -> torch.dtype:
    """Dtype for sums of small steps: float64 for float64, else float32."""
    return torch.float64 if local_real(tensor).dtype == torch.float64 else torch.float32
