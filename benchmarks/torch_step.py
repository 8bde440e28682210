"""What a training step with the PyTorch optimizer costs beside AdamW's, and how far the optimizer is from its floor.

    python benchmarks/torch_step.py                             # small networks, on the CPU or the GPU
    python benchmarks/torch_step.py --json results/torch_step_cpu.json

Ratios within one run, optimizers taking turns: the whole step (forward, backward, optimizer) over that with
`torch.optim.AdamW(fused=True)`, and the optimizer alone over its floor: the iterations that make matrices orthogonal,
batched by shape and timed alone, and the bytes that must move at the speed of a copy.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from samuel.torch import Samuel, roles
from samuel.torch.muon import orthogonalise_

Loss = Callable[[], Tensor]


class Block(nn.Module):
    """A layer of a transformer."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(self.ln_1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(*parts, is_causal=self.causal)
        x = x + self.proj(attended.transpose(1, 2).flatten(2))
        return x + self.out(functional.gelu(self.fc(self.ln_2(x))))


def gpt(device: torch.device, layers: int, width: int, tokens: int, vocabulary: int = 8192) -> tuple[nn.Module, Loss]:
    """A language model on random text."""
    model = nn.ModuleDict(
        {
            "wte": nn.Embedding(vocabulary, width),
            "wpe": nn.Embedding(256, width),
            "blocks": nn.Sequential(*(Block(width, width // 64, causal=True) for _ in range(layers))),
            "ln_f": nn.LayerNorm(width),
        }
    ).to(device)
    text = torch.randint(vocabulary, (tokens // 256, 257), device=device)
    places = torch.arange(256, device=device)

    def loss() -> Tensor:
        x = model["wte"](text[:, :-1]) + model["wpe"](places)
        logits = model["ln_f"](model["blocks"](x)) @ model["wte"].weight.T
        return functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())

    return model, loss


def vit(device: torch.device, layers: int, width: int, images: int) -> tuple[nn.Module, Loss]:
    """A vision transformer on noise."""
    model = nn.ModuleDict(
        {
            "patch": nn.Conv2d(3, width, 4, 4),
            "blocks": nn.Sequential(*(Block(width, width // 64, causal=False) for _ in range(layers))),
            "head": nn.Linear(width, 10),
        }
    ).to(device)
    pixels = torch.randn(images, 3, 32, 32, device=device)
    labels = torch.randint(10, (images,), device=device)

    def loss() -> Tensor:
        x = model["patch"](pixels).flatten(2).transpose(1, 2)
        return functional.cross_entropy(model["head"](model["blocks"](x).mean(1)), labels)

    return model, loss


def resnet(device: torch.device, width: int, images: int) -> tuple[nn.Module, Loss]:
    """A convolutional network with batch norm on noise."""

    def convolution(inputs: int, outputs: int, stride: int) -> list[nn.Module]:
        return [nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]

    widths = [3, width, width, 2 * width, 2 * width, 4 * width, 4 * width]
    parts = [convolution(a, b, 1 + (a != b and a > 3)) for a, b in itertools.pairwise(widths)]
    tail = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, 10)]
    model = nn.Sequential(*(layer for part in parts for layer in part), *tail).to(device)
    pixels = torch.randn(images, 3, 32, 32, device=device)
    labels = torch.randint(10, (images,), device=device)
    return model, lambda: functional.cross_entropy(model(pixels), labels)


NETWORKS: dict[str, dict[str, Callable[[torch.device], tuple[nn.Module, Loss]]]] = {
    "cpu": {
        "GPT": lambda device: gpt(device, layers=4, width=256, tokens=2048),
        "ViT": lambda device: vit(device, layers=4, width=192, images=64),
        "ResNet": lambda device: resnet(device, width=32, images=64),
    },
    "cuda": {
        "GPT": lambda device: gpt(device, layers=12, width=768, tokens=16384, vocabulary=50304),
        "ViT": lambda device: vit(device, layers=12, width=384, images=256),
        "ResNet": lambda device: resnet(device, width=128, images=512),
    },
}


def torch_muon(model: nn.Module) -> list[torch.optim.Optimizer]:
    """Torch's own Muon for what it takes, and AdamW for all else."""
    found = roles(model)
    named = dict(model.named_parameters())
    matrices = [p for name, p in named.items() if found[name].kind == "matrix" and p.ndim == 2]
    others = [p for p in named.values() if not any(p is matrix for matrix in matrices)]
    return [torch.optim.Muon(matrices, lr=1e-3), torch.optim.AdamW(others, lr=1e-3, fused=True)]


OPTIMIZERS: dict[str, Callable[[nn.Module], list[torch.optim.Optimizer]]] = {
    "AdamW (fused)": lambda model: [torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)],
    "torch.optim.Muon + AdamW": torch_muon,
    "Samuel over Adam, told": lambda model: [Samuel(model, "adam", steps=10**6)],
    "Samuel over Muon, told": lambda model: [Samuel(model, steps=10**6)],
    "Samuel over Muon, not told": lambda model: [Samuel(model)],
}


def seconds(run: Callable[[], Any], device: torch.device) -> float:
    """Time of one run, which is waited for."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    run()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def floor(model: nn.Module, copies: float, device: torch.device, repeats: int) -> float:
    """The least that a step must take: iterations, and so many copies of the parameters read and written."""
    found = roles(model)
    matrices = [(p, found[name]) for name, p in model.named_parameters() if found[name].kind == "matrix"]
    numbers = sum(p.numel() for p in model.parameters())
    source = torch.zeros(numbers, device=device)
    target = torch.empty_like(source)

    def iterate() -> None:
        orthogonalise_([p.detach().clone() for p, _ in matrices], [role for _, role in matrices])

    # A copy reads and writes; a pass over a copy that only reads counts half.
    moving = statistics.median(seconds(lambda: target.copy_(source), device) for _ in range(repeats)) * copies
    return moving + statistics.median(seconds(iterate, device) for _ in range(repeats))


def measure(network: str, device: torch.device, repeats: int) -> list[dict[str, Any]]:
    """All optimizers on one network."""
    runs: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {}
    for name, make in OPTIMIZERS.items():
        torch.manual_seed(0)
        model, loss = NETWORKS[device.type][network](device)
        optimizers = make(model)

        def gradients(model: nn.Module = model, loss: Loss = loss) -> None:
            model.zero_grad()
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                value = loss()
            value.backward()

        def step(optimizers: list[torch.optim.Optimizer] = optimizers) -> None:
            for optimizer in optimizers:
                optimizer.step()

        for _ in range(3):
            gradients()
            step()
        runs[name] = gradients, step
    whole: dict[str, list[float]] = {name: [] for name in runs}
    alone: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, (gradients, step) in runs.items():
            before = seconds(gradients, device)
            alone[name].append(seconds(step, device))
            whole[name].append(before + alone[name][-1])
    model, _ = NETWORKS[device.type][network](device)
    adamw = statistics.median(whole["AdamW (fused)"])
    rows = []
    for name in runs:
        row = {"network": network, "name": name, "parameters": sum(p.numel() for p in model.parameters())}
        row |= {"milliseconds": 1e3 * statistics.median(whole[name])}
        row |= {"optimizer_milliseconds": 1e3 * statistics.median(alone[name])}
        # Of every pair of turns, since what else runs on the machine changes.
        pairs = zip(whole[name], whole["AdamW (fused)"], strict=True)
        row["over_adamw"] = statistics.median(one / other for one, other in pairs) if adamw else 0.0
        if name == "Samuel over Muon, told":
            # Reads gradient twice, s and lag twice, momentum, parameters; writes s, lag, momentum, parameters.
            row["over_floor"] = row["optimizer_milliseconds"] / 1e3 / floor(model, 6.0, device, repeats)
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15, help="steps to time")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    arguments = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_num_threads(1)
    print(f"{'':8s} {'':28s} {'ms a step':>10s} {'optimizer':>10s} {'/ AdamW':>8s} {'/ floor':>8s}")
    rows = []
    for network in NETWORKS[device.type]:
        for row in measure(network, device, arguments.repeats):
            rows.append(row)
            over = f"{row['over_floor']:8.2f}" if "over_floor" in row else ""
            print(
                f"{network:8s} {row['name']:28s} {row['milliseconds']:10.2f} {row['optimizer_milliseconds']:10.2f} "
                f"{row['over_adamw']:8.3f} {over}",
                flush=True,
            )
    if arguments.json:
        facts = {
            "command": "python benchmarks/torch_step.py",
            "device": torch.cuda.get_device_name() if device.type == "cuda" else "CPU, one core",
            "date": datetime.date.today().isoformat(),
            "torch": torch.__version__,
        }
        arguments.json.write_text(json.dumps(facts | {"steps": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
