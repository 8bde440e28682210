"""Averaged batch statistics, and the exchange of a model's parameters and buffers with their averages.

The averages of parameters are part of the optimizer's state, see `samuel.torch.engine`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from samuel.torch.local import is_spread, local_real

BUFFER = "buffer:"
"""Prefix of the names of averaged buffers in the optimizer's state."""


class BatchStatistics:
    """Averages of a model's buffers: averaged parameters need batch statistics of their own.

    Args:
        model: the model; without one nothing is averaged.
        given: averages by name, from a checkpoint; other averages start at the buffers.
    """

    def __init__(self, model: nn.Module | None, given: dict[str, Any]) -> None:
        self.model = model
        self.entries: dict[str, Tensor] = {}
        for name, buffer in self.buffers().items():
            average = given.get(name, buffer)
            self.entries[name] = average.detach().to(buffer.device, _wide(buffer), copy=True).reshape(buffer.shape)

    def buffers(self) -> dict[str, Tensor]:
        """The floating-point buffers, by the names of their averages."""
        named = self.model.named_buffers() if self.model is not None else ()
        return {f"{BUFFER}{name}": b for name, b in named if b.is_floating_point() and not is_spread(b)}

    def pairs(self) -> tuple[list[Tensor], list[Tensor]]:
        """The averaged buffers, and their averages."""
        now = {name: buffer for name, buffer in self.buffers().items() if name in self.entries}
        return list(now.values()), [self.entries[name] for name in now]

    def average(self, pace: Any) -> None:
        """Move the averages towards the buffers by the fraction `pace`, a number or a tensor, which is not read."""
        if not self.entries:
            return
        now = self.buffers()
        if any(name not in now or now[name].device != mean.device for name, mean in self.entries.items()):
            self.__init__(self.model, self.entries)
        for name, mean in self.entries.items():
            part = pace.to(mean.device, mean.dtype, non_blocking=True) if isinstance(pace, Tensor) else pace
            target = now[name].to(mean.dtype)
            # Infinite entries, such as those of masks, are copied.
            mean.copy_(torch.where(mean.isfinite(), mean + part * (target - mean), target))


@contextmanager
def swapped(targets: Sequence[Tensor], values: Sequence[Tensor], model: nn.Module | None) -> Iterator[None]:
    """Context in which parameters and buffers have other values; restores them exactly.

    Args:
        targets: the parameters and buffers.
        values: the values of each.
        model: the model they belong to, whose gathered copies (FSDP2) are refreshed.
    """
    with torch.no_grad():
        before = [local_real(target).clone() for target in targets]
    try:
        _write(targets, values, model)
        yield
    finally:
        _write(targets, before, model)


@torch.no_grad()
def _write(targets: Sequence[Tensor], values: Sequence[Tensor], model: nn.Module | None) -> None:
    for target, value in zip(targets, values, strict=True):
        local_real(target).copy_(local_real(value))
    if targets:
        torch.clear_autocast_cache()  # has copies of the previous values
    sharding = getattr(sys.modules.get("torch.distributed.fsdp"), "FSDPModule", ())
    for module in model.modules() if model is not None else ():
        if isinstance(module, sharding):  # may hold gathered copies of the previous values
            module.reshard()  # pyright: ignore[reportCallIssue]


def _wide(buffer: Tensor) -> torch.dtype:
    return torch.float64 if buffer.dtype == torch.float64 else torch.float32
