"""Callback for Lightning: validates the averaged parameters and keeps them as the final model.

from samuel.torch import Samuel
from samuel.torch.hooks.lightning import LightningCallback

class Model(lightning.LightningModule):
    def configure_optimizers(self):
        return Samuel(self)

lightning.Trainer(callbacks=[LightningCallback()]).fit(Model(), batches)
"""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from samuel.torch.hooks.swap import Swap, find
from samuel.torch.optimizer import Samuel

TRAINED = "trained_state_dict"
"""Entry of a checkpoint with the trained parameters, from which a run continues."""


class LightningCallback(Callback):
    """Validate, choose and save the averaged parameters of a run of Lightning's Trainer.

    - Every validation is one of the averaged parameters, so `ModelCheckpoint(monitor=...)` chooses by them.
    - A checkpoint's `state_dict` holds them: `load_from_checkpoint` and `ckpt_path="best"` have the model that was
      validated. The trained parameters are in `trained_state_dict`, and `fit(ckpt_path=...)` with this callback
      continues from those exactly.
    - When `fit` ends, the module has the last averaged parameters.

    >>> LightningCallback().swap.is_averaged
    False
    """

    def __init__(self) -> None:
        self.swap = Swap()

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Refuse a module without a Samuel optimizer."""
        if not _optimizers(trainer):
            names = ", ".join(type(optimizer).__name__ for optimizer in trainer.optimizers) or "none"
            raise ValueError(
                f"LightningCallback is for samuel.torch.Samuel, got {names}; return Samuel(self) from "
                "configure_optimizers"
            )

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Exchange the parameters, within `fit`."""
        if trainer.state.fn == "fit":
            self.swap.to_averaged(*_optimizers(trainer))

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Put the trained parameters back."""
        self.swap.to_trained()

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Give the checkpoint both sets of parameters."""
        if trainer.state.fn != "fit":
            return
        checkpoint[TRAINED] = checkpoint["state_dict"]
        self.swap.to_averaged(*_optimizers(trainer))
        try:
            checkpoint["state_dict"] = {
                name: value.detach().clone() for name, value in trainer.strategy.lightning_module_state_dict().items()
            }
        finally:
            self.swap.to_trained()

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Continue from the trained parameters."""
        if trainer.state.fn == "fit" and TRAINED in checkpoint:
            pl_module.load_state_dict(checkpoint[TRAINED])

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leave the last averaged parameters in the module."""
        self.swap.keep_averaged(pl_module, *_optimizers(trainer))

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Put the trained parameters back."""
        self.swap.to_trained()


def _optimizers(trainer: Trainer) -> list[Samuel]:
    found = [find(optimizer) for optimizer in trainer.optimizers]
    return [optimizer for optimizer in found if optimizer is not None]
