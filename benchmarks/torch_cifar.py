"""A real network on real images: Samuel beside AdamW and Muon with the schedules that people would write.

    python benchmarks/torch_cifar.py --data cifar10-jpeg.tar.xz --epochs 15      # on a GPU; minutes

ResNet-18, CIFAR-10 with crops and flips, batch 256, mixed precision (bf16). The archive is an image folder
(`train/airplane/0001.jpg`, `test/...`) in a tar file. Rates that people would try for AdamW and Muon,
none for Samuel.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import io
import json
import math
import shlex
import tarfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

import samuel.torch

BATCH, WEIGHT_DECAY = 256, 0.05


def images(archive: Path) -> dict[str, tuple[Tensor, Tensor]]:
    """Images and labels of the parts "train" and "test", in an order that has nothing to do with the classes."""
    from PIL import Image

    found: dict[str, list[tuple[np.ndarray, str]]] = {"train": [], "test": []}
    with tarfile.open(archive) as tar:
        for member in tar:
            parts = Path(member.name).parts
            if member.isfile() and parts[-1].endswith(".jpg"):
                data = tar.extractfile(member)
                assert data is not None, "a file can be read"
                found[parts[-3]].append((np.asarray(Image.open(io.BytesIO(data.read()))), parts[-2]))
    names = {name: i for i, name in enumerate(sorted({name for _, name in found["train"]}))}
    random = np.random.default_rng(0)
    parts = {}
    for part, pairs in found.items():
        order = random.permutation(len(pairs))
        pixels = torch.from_numpy(np.stack([pairs[i][0] for i in order])).permute(0, 3, 1, 2)
        parts[part] = (pixels, torch.tensor([names[pairs[i][1]] for i in order]))
    return parts


class Block(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.two = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(outside), nn.BatchNorm2d(outside)])
        same = stride == 1 and inside == outside
        self.around = nn.Sequential() if same else nn.Conv2d(inside, outside, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.norms[0](self.one(x)))
        return functional.relu(self.norms[1](self.two(y)) + self.around(x))


def resnet18() -> nn.Module:
    """ResNet-18 for small images: 11 million parameters."""
    widths = (64, 128, 256, 512)
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    for inside, outside in zip((64, *widths[:-1]), widths, strict=True):
        layers += [Block(inside, outside, 1 if inside == outside else 2), Block(outside, outside, 1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def augmented(pixels: Tensor, generator: torch.Generator) -> Tensor:
    """Random crops and flips, all on the device."""
    count, _, height, width = pixels.shape
    padded = functional.pad(pixels, (4, 4, 4, 4))
    corners = torch.randint(0, 9, (2, count), device=pixels.device, generator=generator)
    rows = corners[0][:, None] + torch.arange(height, device=pixels.device)
    columns = corners[1][:, None] + torch.arange(width, device=pixels.device)
    flip = torch.rand(count, device=pixels.device, generator=generator) < 0.5
    columns = torch.where(flip[:, None], columns.flip(1), columns)
    which = torch.arange(count, device=pixels.device)[:, None, None]
    return padded.permute(0, 2, 3, 1)[which, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def scaled(pixels: Tensor) -> Tensor:
    return (pixels.float() / 255 - 0.47) / 0.25


def rivals(steps: int) -> dict[str, Callable[[nn.Module], tuple[torch.optim.Optimizer, Any]]]:
    """Optimizers of a network, with the scheduler that goes with them."""

    def adamw(model: nn.Module, lr: float, shape: Callable[[float], float] | None) -> tuple[torch.optim.Optimizer, Any]:
        optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=WEIGHT_DECAY, fused=True)
        if shape is None:
            return optimizer, None
        return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: shape(step / steps))

    def warm_cosine(part: float) -> float:
        return part / 0.05 if part < 0.05 else 0.5 * (1 + math.cos(math.pi * (part - 0.05) / 0.95))

    def muon(model: nn.Module, lr: float) -> tuple[torch.optim.Optimizer, Any]:
        options = {"steps": 10**9, "average": False, "on_shift": "ignore", "weight_decay": WEIGHT_DECAY}
        optimizer = samuel.torch.Samuel(model, learning_rates=(lr,), **options)  # with one rate it is its base
        return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: warm_cosine(step / steps))

    def ours(model: nn.Module, **options: Any) -> tuple[torch.optim.Optimizer, Any]:
        return samuel.torch.Samuel(model, weight_decay=WEIGHT_DECAY, **options), None

    return {
        "AdamW 0.001, constant": functools.partial(adamw, lr=1e-3, shape=None),
        "AdamW 0.001, warm-up and cosine": functools.partial(adamw, lr=1e-3, shape=warm_cosine),
        "AdamW 0.003, warm-up and cosine": functools.partial(adamw, lr=3e-3, shape=warm_cosine),
        "Muon 0.01, warm-up and cosine": functools.partial(muon, lr=1e-2),
        "Samuel": ours,
        "Samuel, told the number of steps": functools.partial(ours, steps=steps),
        "Samuel over Adam, told the number of steps": functools.partial(ours, base="adam", steps=steps),
    }


def train(data: dict[str, tuple[Tensor, Tensor]], name: str, epochs: int, seed: int) -> dict[str, Any]:
    """One run; accuracy after every epoch, the rates on the way, and the time."""
    device = data["train"][0].device
    torch.manual_seed(seed)
    generator = torch.Generator(device).manual_seed(seed)
    model = resnet18().to(device, memory_format=torch.channels_last)
    pixels, labels = data["train"]
    per_epoch = len(labels) // BATCH
    optimizer, scheduler = rivals(epochs * per_epoch)[name](model)
    accuracies, rates = [], []
    torch.cuda.synchronize()
    start = time.perf_counter()
    for epoch in range(epochs):
        model.train()
        order = torch.randperm(len(labels), device=device, generator=generator)
        for step in range(per_epoch):
            chosen = order[step * BATCH : (step + 1) * BATCH]
            batch = scaled(augmented(pixels[chosen], generator)).to(memory_format=torch.channels_last)
            optimizer.zero_grad()
            with torch.autocast(device.type, torch.bfloat16):
                loss = functional.cross_entropy(model(batch), labels[chosen])
            loss.backward()
            optimizer.step()
            if scheduler is not None:
                scheduler.step()
            if step % 20 == 0:
                rates.append(optimizer.param_groups[0].get("effective_lr", optimizer.param_groups[0]["lr"]))
                rates[-1] = rates[-1].clone() if isinstance(rates[-1], Tensor) else rates[-1]
        with optimizer.averaged() if isinstance(optimizer, samuel.torch.Samuel) else nullcontext():
            accuracies.append(accuracy(model, *data["test"]))
        print(f"{name:51s} seed {seed} epoch {epoch + 1:3d}   accuracy {100 * accuracies[-1]:.2f} %", flush=True)
    torch.cuda.synchronize()
    return {
        "name": name,
        "seed": seed,
        "accuracy": accuracies,
        "rates": [float(rate) for rate in rates],
        "shifts": getattr(optimizer, "shifts", None),
        "seconds": time.perf_counter() - start,
    }


@torch.no_grad()
def accuracy(model: nn.Module, pixels: Tensor, labels: Tensor) -> float:
    """Of the network in evaluation."""
    model.eval()
    right = 0
    for part, answers in zip(pixels.split(1000), labels.split(1000), strict=True):
        with torch.autocast(pixels.device.type, torch.bfloat16):
            right += int((model(scaled(part)).argmax(1) == answers).sum())
    return right / len(labels)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, help="the images, in a tar file")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", help="names of the optimizers to run")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    arguments = parser.parse_args()
    if arguments.data is None or not torch.cuda.is_available():
        print("needs a GPU, and the images: --data cifar10-jpeg.tar.xz")
        return
    data = {part: (x.cuda(), y.cuda()) for part, (x, y) in images(arguments.data).items()}
    rows = []
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
        for name in arguments.only or rivals(1):
            rows.append(train(data, name, arguments.epochs, seed))
            if arguments.json:  # after every run, so that nothing is lost
                options = f"--epochs {arguments.epochs} --seeds {arguments.seeds} --first-seed {arguments.first_seed}"
                if arguments.only:
                    options += " --only " + shlex.join(arguments.only)
                facts = {
                    "command": f"python benchmarks/torch_cifar.py --data cifar10-jpeg.tar.xz {options}",
                    "device": torch.cuda.get_device_name(),
                    "date": datetime.date.today().isoformat(),
                    "torch": torch.__version__,
                    "batch": BATCH,
                    "weight_decay": WEIGHT_DECAY,
                }
                arguments.json.write_text(json.dumps(facts | {"runs": rows}, indent=1) + "\n")
    for row in rows:
        print(f"{row['name']:51s} seed {row['seed']}   {100 * row['accuracy'][-1]:.2f} %   {row['seconds']:.0f} s")


if __name__ == "__main__":
    main()
