"""Averaged parameters in the model between two events of a training loop."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import torch
from torch.nn import Module

from samuel.torch.optimizer import Samuel


def find(optimizer: Any) -> Samuel | None:
    """The `Samuel` in an optimizer that Accelerate or Lightning may have wrapped; None if there is none.

    >>> import torch
    >>> optimizer = Samuel(torch.nn.Linear(2, 1))
    >>> find(optimizer) is optimizer, find(None)
    (True, None)
    """
    while optimizer is not None and not isinstance(optimizer, Samuel):
        optimizer = getattr(optimizer, "optimizer", None)
    return optimizer


class Swap:
    """Exchange trained and averaged parameters at events, rather than in a `with` block.

    >>> import torch
    >>> swap = Swap()
    >>> swap.to_averaged(Samuel(torch.nn.Linear(2, 1)))
    >>> swap.is_averaged
    True
    >>> swap.to_trained()
    >>> swap.is_averaged
    False
    """

    def __init__(self) -> None:
        self._open: ExitStack | None = None

    @property
    def is_averaged(self) -> bool:
        """Whether the model has the averaged parameters."""
        return self._open is not None

    def to_averaged(self, *optimizers: Samuel) -> None:
        """Put the averaged parameters into the model, if they are not there."""
        if self._open is not None:
            return
        with ExitStack() as stack:
            for optimizer in optimizers:
                # Without the warning of `averaged()`: to evaluate in the middle of a run is what callbacks are for.
                stack.enter_context(optimizer._exchanged())
            self._open = stack.pop_all()

    def to_trained(self) -> None:
        """Restore the trained parameters, if they are not there."""
        if self._open is not None:
            stack, self._open = self._open, None
            stack.close()

    def keep_averaged(self, model: Module, *optimizers: Samuel) -> None:
        """Leave the averaged parameters in a model permanently, at the end of a run."""
        self.to_averaged(*optimizers)
        averaged = {name: value.detach().clone() for name, value in model.state_dict(keep_vars=True).items()}
        self.to_trained()
        with torch.no_grad():
            for name, value in model.state_dict(keep_vars=True).items():
                value.copy_(averaged[name])
