"""The average of the parameters: what one tests and uses, while training goes on with the parameters themselves.

`samuel.torch.shelf` keeps the average. Here are the buffers of the model that are averaged along, and how all of it is
put into the model and taken out again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from samuel.torch import lists
from samuel.torch.shelf import is_spread, raw, wide_dtype

AVERAGE, BUFFER = "average", "buffer"
"""Names in the optimizer's state: of the average of a parameter, and what those of buffers begin with; then a colon."""


def averaged_buffers(buffers: Sequence[Tensor]) -> dict[str, Tensor]:
    """The buffers that can be averaged, under the names of their averages: counters and the like are left alone.

    >>> list(averaged_buffers([torch.zeros(3), torch.tensor(7), torch.ones(2)]))
    ['buffer:0', 'buffer:2']
    """
    chosen = {i: b for i, b in enumerate(buffers) if b.is_floating_point() and not is_spread(b)}
    return {f"{BUFFER}:{i}": buffer for i, buffer in chosen.items()}


class BufferAverages:
    """Averages of the buffers of a model, such as batch statistics: an average of the parameters needs its own.

    Args:
        buffers: what finds the buffers.
        given: averages to go on from, by name; of buffers that have none they begin now.
    """

    def __init__(self, buffers: Callable[[], Sequence[Tensor]] = list, given: dict[str, Tensor] | None = None) -> None:
        self._buffers = buffers
        self._looks = self._look()
        self._rows: list[tuple[Tensor, list[str]]] = []
        self.entries: dict[str, Tensor] = {}
        now, together = averaged_buffers(buffers()), {}
        for name, buffer in now.items():
            together.setdefault((buffer.device, wide_dtype(buffer)), []).append(name)
        for (_, dtype), names in together.items():
            row = _in_a_row([now[name] for name in names], dtype).clone()
            self._rows.append((row, names))
            for name, part in zip(names, row.split([now[name].numel() for name in names]), strict=True):
                self.entries[name] = part.view(now[name].shape)
                if given and name in given and given[name].shape == now[name].shape:
                    self.entries[name].copy_(given[name])

    def fit(self) -> bool:
        """Whether the buffers are still what they were: as many, of the same kind, in the same place."""
        return self._look() == self._looks

    def average_along(self, pace: Any) -> None:
        """Let the averages go this part of the way to the buffers; a tensor is not waited for."""
        now = averaged_buffers(self._buffers()) if self._rows else {}
        for row, names in self._rows:
            target = _in_a_row([now[name] for name in names], row.dtype)
            part = pace.to(row, non_blocking=True) if isinstance(pace, Tensor) else float(pace)
            # From an infinity, such as those of a mask, there is no way to go.
            row.copy_(torch.where(row.isfinite(), torch.lerp(row, target, part), target))

    def _look(self) -> list[Any]:
        return [(name, b.device, b.dtype, b.shape) for name, b in averaged_buffers(self._buffers()).items()]


@contextmanager
def swapped(targets: Sequence[Tensor], values: Sequence[Tensor], model: torch.nn.Module | None) -> Iterator[None]:
    """Put values into parameters and buffers for a while; afterwards these are what they were, to the bit.

    Args:
        targets: the parameters and buffers.
        values: of each, what to put there; of complex ones, pairs of real numbers.
        model: what they belong to, if it may have to be told.
    """
    with torch.no_grad():
        before = [raw(target).clone() for target in targets]
    try:
        _write(targets, values, model)
        yield
    finally:
        _write(targets, before, model)


@torch.no_grad()
def _write(targets: Sequence[Tensor], values: Sequence[Tensor], model: torch.nn.Module | None) -> None:
    if not targets:
        return
    lists.copy_([raw(target) for target in targets], [raw(value) for value in values])
    torch.clear_autocast_cache()  # it would not notice that parameters have changed
    sharding = getattr(sys.modules.get("torch.distributed.fsdp"), "FSDPModule", ())
    for module in model.modules() if model is not None else ():
        if isinstance(module, sharding):  # nor would this, which may still have the parameters gathered
            module.reshard()  # pyright: ignore[reportCallIssue]


def _in_a_row(tensors: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    return torch.cat([tensor.detach().reshape(-1).to(dtype) for tensor in tensors])
