"""What one step of the PyTorch optimizer costs beside torch's AdamW, and how much memory it takes.

    python benchmarks/torch_step.py              # on the GPU if there is one, otherwise on the CPU

Ratios within one run: the step of `Samuel` over that of `torch.optim.AdamW(foreach=True)`; and over the time in which
the device copies the bytes that the step must move. Gradients are there already: only `step()` is timed.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import samuel.torch
from samuel.core.rules import follow

SHORT_BLOCKS = {"rule": "K", "horizon": 100_000}
SIZES = {"1M": (1_000_000, 20), "11M": (11_000_000, 62), "100M": (100_000_000, 160)}
"""Numbers and tensors of a network."""


def optimizers() -> dict[str, tuple[Callable[..., torch.optim.Optimizer], dict[str, Any] | None]]:
    """Each with its options, if it is ours."""
    ours: dict[str, dict[str, Any]] = {
        "samuel": {},
        "samuel, no average": {"average": 0},
        "K": SHORT_BLOCKS,
        "K, bf16 anchors": {**SHORT_BLOCKS, "anchor_dtype": torch.bfloat16},
    }
    if torch.cuda.is_available():
        ours["samuel, compiled"] = {"compiled": True}
    plain = {
        "AdamW(foreach)": (functools.partial(torch.optim.AdamW, lr=1e-3, foreach=True), None),
        "AdamW(fused)": (functools.partial(torch.optim.AdamW, lr=1e-3, fused=True), None),
    }
    return plain | {
        name: (functools.partial(samuel.torch.Samuel, base=torch.optim.AdamW, **options), options)
        for name, options in ours.items()
    }


def network(numbers: int, tensors: int, device: torch.device) -> list[torch.nn.Parameter]:
    """Parameters like a network's: matrices and as many short vectors, with gradients."""
    matrices = tensors // 2
    width = 256
    height = numbers // (matrices * width)
    shapes = [(height, width), (width,)] * matrices
    generator = torch.Generator(device).manual_seed(0)
    params = [torch.nn.Parameter(0.1 * torch.randn(s, device=device, generator=generator)) for s in shapes]
    for p in params:
        p.grad = 0.01 * torch.randn(p.shape, device=device, generator=generator)
    return params


def bytes_moved(size: int, options: dict[str, Any]) -> int:
    """What a step must read and write: the products, Adam, the step and the parameters, and their average."""
    chosen = {name: value for name, value in options.items() if name in ("horizon", "average")}
    rays = follow(options.get("rule", "samuel"), base="adam", **chosen)
    moving, kept = len(rays.moving), len(rays.kept)
    short = 2 if "anchor_dtype" in options else 4
    products = 4 + 4 * moving + short * kept
    adam = 4 * (3 + 3)  # gradient and moments; moments and direction
    step = 4 * moving + short * kept + 4 + 4 * moving + 8  # rows, direction; moving rows; parameters both ways
    average = 4 * 3 if rays.averages else 0  # parameters and average; average
    return size * (products + adam + step + average)


def seconds(run: Callable[[], Any], repeats: int) -> list[float]:
    """Times of single runs on the host."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return times


def streamed(run: Callable[[], Any], device: torch.device, repeats: int) -> float:
    """Time of one run among many in a row, as in training; on the host, the shortest."""
    if device.type != "cuda":
        return min(seconds(run, repeats))  # what else runs on the machine can only make it slower
    torch.cuda.synchronize()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(repeats):
        run()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1e3 / repeats


def state_bytes(optimizer: torch.optim.Optimizer) -> int:
    """Memory of an optimizer's state, shared storages once."""
    storages = {}
    for entries in optimizer.state.values():
        for value in entries.values():
            if isinstance(value, torch.Tensor):
                storage = value.untyped_storage()
                storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


def copy_seconds(nbytes: int, device: torch.device, repeats: int) -> float:
    """In which time the device reads and writes so many bytes, half of them each."""
    source = torch.zeros(min(nbytes // 8, 1 << 28), device=device)
    target = torch.empty_like(source)
    return streamed(lambda: target.copy_(source), device, repeats) * nbytes / (source.numel() * 8)


def measure(name: str, size: str, device: torch.device, repeats: int) -> dict[str, Any]:
    """One optimizer on one network."""
    make, options = optimizers()[name]
    numbers, tensors = SIZES[size]
    params = network(numbers, tensors, device)
    actual = sum(p.numel() for p in params)
    optimizer = make(params)
    before = torch.cuda.memory_allocated() if device.type == "cuda" else 0
    for _ in range(5):
        optimizer.step()
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    found = streamed(optimizer.step, device, repeats)
    row = {"name": name, "size": size, "milliseconds": 1e3 * found, "copies": state_bytes(optimizer) / actual / 4}
    if device.type == "cuda":
        row["copies_between_steps"] = (torch.cuda.memory_allocated() - before) / actual / 4
        row["copies_at_peak"] = (torch.cuda.max_memory_allocated() - before) / actual / 4
    if options is not None:
        row["over_copy"] = found / copy_seconds(bytes_moved(actual, options), device, repeats)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--repeats", type=int, default=0, help="steps to time; by default 200 on a GPU, 5 to 50 else")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    arguments = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_num_threads(1)
    print(f"{'':8s} {'':22s} {'ms a step':>10s} {'/ AdamW':>8s} {'/ copy':>7s} {'copies':>7s}   (foreach AdamW = 1)")
    rows = []
    for size in arguments.sizes:
        repeats = arguments.repeats or (200 if device.type == "cuda" else {"1M": 100, "11M": 25, "100M": 6}[size])
        baseline = None
        for name in optimizers():
            row = measure(name, size, device, repeats)
            baseline = baseline or row["milliseconds"]
            row["over_adamw"] = row["milliseconds"] / baseline
            rows.append(row)
            over = f"{row['over_copy']:7.2f}" if "over_copy" in row else " " * 7
            print(
                f"{size:8s} {name:22s} {row['milliseconds']:10.3f} {row['over_adamw']:8.2f} {over} {row['copies']:7.2f}"
                + (f"   peak {row['copies_at_peak']:.2f}" if "copies_at_peak" in row else ""),
                flush=True,
            )
    if arguments.json:
        name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU, one core"
        facts = {
            "command": "python benchmarks/torch_step.py",
            "device": name,
            "date": datetime.date.today().isoformat(),
            "torch": torch.__version__,
        }
        arguments.json.write_text(json.dumps(facts | {"optimizers": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
