"""The averaged parameters: what one tests and uses, while training goes on with the parameters themselves.

`samuel.torch.engine` keeps the average. Here are the batch statistics that are averaged along, and how all of it is put
into the model and taken out again.
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
"""What the names of buffers' averages in the optimizer's state begin with."""


class BatchStatistics:
    """Averages of a model's buffers, such as batch statistics: averaged parameters need their own.

    Args:
        model: the model; None for none, so that nothing is averaged.
        given: averages to go on from, by name; of buffers that have none they begin now.
    """

    def __init__(self, model: nn.Module | None, given: dict[str, Any]) -> None:
        self.model = model
        self.entries: dict[str, Tensor] = {}
        for name, buffer in self.buffers().items():
            average = given.get(name, buffer)
            self.entries[name] = average.detach().to(buffer.device, _wide(buffer), copy=True).reshape(buffer.shape)

    def buffers(self) -> dict[str, Tensor]:
        """The buffers that can be averaged, under the names of their averages: counters are left unchanged."""
        named = self.model.named_buffers() if self.model is not None else ()
        return {f"{BUFFER}{name}": b for name, b in named if b.is_floating_point() and not is_spread(b)}

    def pairs(self) -> tuple[list[Tensor], list[Tensor]]:
        """The buffers that have averages, and these."""
        now = {name: buffer for name, buffer in self.buffers().items() if name in self.entries}
        return list(now.values()), [self.entries[name] for name in now]

    def average(self, pace: Any) -> None:
        """Let the averages go this part of the way to the buffers; a tensor is not waited for."""
        if not self.entries:
            return
        now = self.buffers()
        if any(name not in now or now[name].device != mean.device for name, mean in self.entries.items()):
            self.__init__(self.model, self.entries)
        for name, mean in self.entries.items():
            part = pace.to(mean.device, mean.dtype, non_blocking=True) if isinstance(pace, Tensor) else pace
            target = now[name].to(mean.dtype)
            # From an infinity, such as those of a mask, there is no way to go.
            mean.copy_(torch.where(mean.isfinite(), mean + part * (target - mean), target))


@contextmanager
def swapped(targets: Sequence[Tensor], values: Sequence[Tensor], model: nn.Module | None) -> Iterator[None]:
    """Put values into parameters and buffers for a while; afterwards these are what they were, to the bit.

    Args:
        targets: the parameters and buffers.
        values: of each, what to put there; of complex ones, pairs of real numbers.
        model: what they belong to, if it may have to be told.
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
        torch.clear_autocast_cache()  # it would not notice that parameters have changed
    sharding = getattr(sys.modules.get("torch.distributed.fsdp"), "FSDPModule", ())
    for module in model.modules() if model is not None else ():
        if isinstance(module, sharding):  # nor would this, which may still have the parameters gathered
            module.reshard()  # pyright: ignore[reportCallIssue]


def _wide(buffer: Tensor) -> torch.dtype:
    return torch.float64 if buffer.dtype == torch.float64 else torch.float32
