"""Log learning rates, shifts and roles of a run to TensorBoard or to Weights & Biases.

    logger = TensorBoardLogger(SummaryWriter("runs/first"))        # or WandbLogger(wandb.init(project="first"))
    for step, batch in enumerate(batches):
        ...
        optimizer.step()
        if step % 50 == 0:
            logger.log(optimizer, step)

Reading values synchronises with the device, so do not log every step.
"""

from __future__ import annotations

from typing import Any

from samuel.torch.optimizer import Samuel


def facts(optimizer: Samuel, prefix: str = "samuel/") -> dict[str, float]:
    """Diagnostics of an optimizer by name: the learning rate of each role, shifts and skipped steps.

    >>> import torch
    >>> sorted(facts(Samuel(torch.nn.Linear(3, 2))))
    ['samuel/learning_rate/matrix', 'samuel/learning_rate/vector', 'samuel/shifts', 'samuel/skipped']
    """
    found: dict[str, float] = {}
    for place, group in enumerate(optimizer.param_groups):
        name = f"{prefix}learning_rate/{group.get('role') or place}"
        name = f"{name}/{place}" if name in found else name
        found[name] = float(group["effective_lr"])
    return {**found, f"{prefix}shifts": int(optimizer.shifts), f"{prefix}skipped": int(optimizer.skipped)}


class TensorBoardLogger:
    """Log an optimizer to a TensorBoard `SummaryWriter`, torch's or tensorboardX's.

    Args:
        writer: where to log.
        prefix: prefix of the names.

    >>> import tempfile, torch
    >>> from tensorboardX import SummaryWriter
    >>> with tempfile.TemporaryDirectory() as folder, SummaryWriter(folder) as writer:
    ...     TensorBoardLogger(writer).log(Samuel(torch.nn.Linear(2, 1)), step=0)
    """

    def __init__(self, writer: Any, prefix: str = "samuel/") -> None:
        self.writer = writer
        self.prefix = prefix
        self._described = False

    def log(self, optimizer: Samuel, step: int) -> None:
        """Log rates, shifts and skipped steps; the first time, the table of roles as text as well."""
        if not self._described:
            self._described = True
            self.writer.add_text(f"{self.prefix}roles", f"```\n{optimizer}\n```", step)
        for name, value in facts(optimizer, self.prefix).items():
            self.writer.add_scalar(name, value, step)


class WandbLogger:
    """Log an optimizer to a run of Weights & Biases.

    Args:
        run: what `wandb.init` returned.
        prefix: prefix of the names.

    >>> class Run:
    ...     config, log = {}, staticmethod(lambda values, step: print(values["samuel/shifts"], step))
    >>> import torch
    >>> WandbLogger(Run).log(Samuel(torch.nn.Linear(2, 1)), step=0)
    0 0
    """

    def __init__(self, run: Any, prefix: str = "samuel/") -> None:
        self.run = run
        self.prefix = prefix
        self._described = False

    def log(self, optimizer: Samuel, step: int) -> None:
        """Log rates, shifts and skipped steps; the first time, the table of roles goes into the run's config."""
        if not self._described:
            self._described = True
            self.run.config.update({f"{self.prefix}roles": str(optimizer)})
        self.run.log(facts(optimizer, self.prefix), step=step)
