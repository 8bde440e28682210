"""Callback for Hugging Face's Trainer: evaluates and saves the averaged parameters, logs the learning rate in use.

from samuel.torch import Samuel
from samuel.torch.hooks.trainer import TrainerCallback

arguments = TrainingArguments(..., lr_scheduler_type="constant", max_grad_norm=0)
trainer = Trainer(model, arguments, ..., optimizers=(Samuel(model, clip=1.0), None), callbacks=[TrainerCallback()])
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import transformers
from safetensors.torch import load_model, save_model
from torch.nn import Module
from transformers import TrainerControl, TrainerState, TrainingArguments

from samuel.torch.hooks.swap import Swap, find
from samuel.torch.optimizer import Samuel

AVERAGED = "averaged.safetensors"
"""File of the averaged parameters in a checkpoint's folder."""


class TrainerCallback(transformers.TrainerCallback):
    """Evaluate, choose and save the averaged parameters of a run of Hugging Face's Trainer.

    - Every evaluation is one of the averaged parameters, so `metric_for_best_model` is theirs.
    - When training ends, the model has them: those of the best checkpoint with `load_best_model_at_end`, otherwise the
      last. `trainer.save_model()` saves them.
    - Checkpoints hold the trained parameters, from which `resume_from_checkpoint` continues exactly. With
      `load_best_model_at_end` each has a file `averaged.safetensors` beside them.
    - The logged learning rate is that of the optimizer's first parameter group, not its multiplier.

    >>> TrainerCallback().swap.is_averaged
    False
    """

    def __init__(self) -> None:
        self.swap = Swap()

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Refuse other optimizers; warn of clipping before the optimizer."""
        optimizer = _optimizer(kwargs)
        if args.max_grad_norm and optimizer.on_shift == "restart":
            warnings.warn(
                f"max_grad_norm={args.max_grad_norm:g} clips gradients before the shift detector; use "
                f"TrainingArguments(max_grad_norm=0) and Samuel(clip={args.max_grad_norm:g})",
                stacklevel=2,
            )

    def on_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Replace the logged multiplier by the learning rate in use, which is read only for steps that are logged."""
        step = state.global_step + 1
        if step % max(state.logging_steps, 1) == 0 or (step == 1 and args.logging_first_step):
            _log_rate(kwargs)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Exchange the parameters if an evaluation follows."""
        if control.should_evaluate:
            self.swap.to_averaged(_optimizer(kwargs))

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Exchange the parameters if an evaluation follows."""
        if control.should_evaluate:
            self.swap.to_averaged(_optimizer(kwargs))

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Put the trained parameters back."""
        self.swap.to_trained()

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Write the averaged parameters into the checkpoint if the best one is to be loaded at the end."""
        if not (args.load_best_model_at_end and args.should_save and args.output_dir):
            return
        folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        if not folder.is_dir():  # a search over trials has folders of its own
            return
        self.swap.to_averaged(_optimizer(kwargs))
        try:
            save_model(kwargs["model"], str(folder / f"{AVERAGED}.part"))
        finally:
            self.swap.to_trained()
        os.replace(folder / f"{AVERAGED}.part", folder / AVERAGED)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Leave the best or the last averaged parameters in the model."""
        model: Module = kwargs["model"]
        if args.load_best_model_at_end and state.best_model_checkpoint is not None:
            best = Path(state.best_model_checkpoint) / AVERAGED
            if best.is_file():
                load_model(model, str(best))
            return
        self.swap.keep_averaged(model, _optimizer(kwargs))


def _optimizer(kwargs: dict[str, Any]) -> Samuel:
    given = kwargs.get("optimizer")
    optimizer = find(given)
    if optimizer is None:
        given = getattr(given, "optimizer", given)  # as Accelerate wraps it
        raise ValueError(
            f"TrainerCallback is for samuel.torch.Samuel, got {type(given).__name__}; give the Trainer "
            "optimizers=(Samuel(model), None)"
        )
    return optimizer


def _log_rate(kwargs: dict[str, Any]) -> None:
    scheduler: Any = kwargs.get("lr_scheduler")
    scheduler = getattr(scheduler, "scheduler", scheduler)  # as Accelerate wraps it
    if hasattr(scheduler, "_last_lr"):  # what `get_last_lr` returns
        scheduler._last_lr = [float(group["effective_lr"]) for group in _optimizer(kwargs).param_groups]
