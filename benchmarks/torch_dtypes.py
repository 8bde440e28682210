"""Accuracy and memory with parameters and state of the PyTorch optimizer in float32 and bfloat16, on digits.

    python benchmarks/torch_dtypes.py --json results/torch_dtypes.json      takes ten minutes on a CPU

A network of 26 thousand parameters is trained for 800 steps of 64 digits; test loss and accuracy are those of the
averaged parameters. Memory is that of the optimizer's state, in copies of the parameters in float32.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
from pathlib import Path
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional

from samuel.torch import Samuel

STEPS, BATCH, SMOOTHING = 800, 64, 0.1
DTYPES = ((torch.float32, torch.float32), (torch.float32, torch.bfloat16), (torch.bfloat16, torch.bfloat16))
"""Of the parameters and of the state."""


def train(dtype: torch.dtype, state_dtype: torch.dtype, steps: int | None, seed: int) -> dict[str, Any]:
    """One run."""
    digits = load_digits()
    images, labels = torch.tensor(digits.data / 16, dtype=dtype), torch.tensor(digits.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    used, held_out = order[:1437], order[1437:]
    torch.manual_seed(seed)
    layers = [nn.Linear(64, 128), nn.LayerNorm(128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)]
    model = nn.Sequential(*layers).to(dtype)
    optimizer = Samuel(model, steps=steps, state_dtype=state_dtype)

    def loss(chosen: Tensor) -> Tensor:
        return functional.cross_entropy(model(images[chosen]).float(), labels[chosen], label_smoothing=SMOOTHING)

    for step in range(STEPS):
        generator = torch.Generator().manual_seed(100_000 * seed + step)
        optimizer.zero_grad()
        loss(used[torch.randint(len(used), (BATCH,), generator=generator)]).backward()
        optimizer.step()
    tensors = [x for entries in optimizer.state.values() for x in entries.values() if x.ndim]
    with optimizer.averaged(), torch.no_grad():
        accuracy = (model(images[held_out]).argmax(1) == labels[held_out]).float().mean().item()
        found = {"loss": loss(held_out).item(), "accuracy": accuracy}
    found["copies"] = sum(x.nbytes for x in tensors) / (4 * sum(p.numel() for p in model.parameters()))
    names = {"parameters": str(dtype).removeprefix("torch."), "state": str(state_dtype).removeprefix("torch.")}
    return {**names, "steps": steps, "seed": seed, **found}


def main() -> None:
    """Train every combination and print a line for each run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--json", type=Path, help="write the results to this file")
    given = parser.parse_args()
    torch.set_num_threads(1)
    runs = []
    for (dtype, state_dtype), steps, seed in itertools.product(DTYPES, (None, STEPS), range(given.seeds)):
        runs.append(train(dtype, state_dtype, steps, seed))
        print(json.dumps(runs[-1]), flush=True)
    if given.json:
        about = {"benchmark": "torch_dtypes", "device": "CPU, one core", "torch": torch.__version__}
        about["date"] = datetime.date.today().isoformat()
        given.json.write_text(json.dumps({**about, "runs": runs}, indent=1) + "\n")


if __name__ == "__main__":
    main()
