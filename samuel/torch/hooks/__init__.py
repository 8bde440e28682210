"""Hooks for training loops of others: evaluate and keep the averaged parameters, log rates and shifts.

| module | for |
|---|---|
| `samuel.torch.hooks.trainer` | `TrainerCallback` for the Trainer of Hugging Face's transformers |
| `samuel.torch.hooks.lightning` | `LightningCallback` for Lightning |
| `samuel.torch.hooks.loggers` | `TensorBoardLogger` and `WandbLogger` for any loop |

Each module imports the library it is for, and nothing else does.
"""
