"""Callbacks for trainers, which evaluate and save the averaged parameters, and loggers of rates and shifts.

| module | for |
|---|---|
| `samuel.torch.hooks.trainer` | `TrainerCallback` for the Trainer of Hugging Face's transformers |
| `samuel.torch.hooks.lightning` | `LightningCallback` for Lightning |
| `samuel.torch.hooks.loggers` | `TensorBoardLogger` and `WandbLogger` for any loop |

Each module imports its library; `samuel.torch` does not import them.
"""
