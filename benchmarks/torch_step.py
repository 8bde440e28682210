"""Time of a training step with the PyTorch optimizer relative to AdamW, and of the optimizer relative to its floor.

    python benchmarks/torch_step.py                              # small networks on a CPU, large ones on a GPU
    python benchmarks/torch_step.py --seconds 90 --json results/torch_step_gpu.json
    python benchmarks/torch_step.py --profile                    # and the kernels of a step, by time
    python benchmarks/torch_step.py --compile                    # and the step under torch.compile

Optimizers take turns on one compiled model; a figure is the median over turns. "Whole" is forward, backward and
optimizer, "alone" the optimizer with gradients in place; ratios are to `torch.optim.AdamW(fused=True)`. The floor of
the optimizer is the sum of the iterations of the orthogonalisation, batched by shape and timed in the fastest of
several ways, and of the bytes that must be moved, at the bandwidth of a copy. Memory is what is allocated between steps
beyond parameters and gradients, in copies of the parameters. "Captured" is the plain step in a CUDA graph.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import itertools
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from samuel.core.orthogonal import COEFFICIENTS
from samuel.torch import Samuel, roles
from samuel.torch.roles import as_matrices

Optimizers = list[torch.optim.Optimizer]


# Networks, whose `forward` is the loss of a random batch


class Block(nn.Module):
    """A layer of a transformer."""

    def __init__(self, width: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = width // 64, causal
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(self.ln_1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(*parts, is_causal=self.causal)
        x = x + self.proj(attended.transpose(1, 2).flatten(2))
        return x + self.out(functional.gelu(self.fc(self.ln_2(x))))


class GPT(nn.Module):
    """A language model on random text."""

    def __init__(self, layers: int, width: int, vocabulary: int, texts: int, length: int) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, causal=True) for _ in range(layers))
        self.ln_f, self.lm_head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.register_buffer("text", torch.randint(vocabulary, (texts, length + 1)))

    def forward(self) -> Tensor:
        x = self.wte(self.text[:, :-1]) + self.wpe.weight
        for block in self.blocks:
            x = block(x)
        return self.loss(x)

    def loss(self, x: Tensor) -> Tensor:
        return functional.cross_entropy(self.lm_head(self.ln_f(x)).flatten(0, 1), self.text[:, 1:].flatten())


class ViT(nn.Module):
    """A vision transformer on noise."""

    def __init__(self, layers: int, width: int, images: int) -> None:
        super().__init__()
        self.patch_embed = nn.Conv2d(3, width, 4, 4)
        self.pos_embed = nn.Parameter(0.02 * torch.randn(1, 64, width))
        self.blocks = nn.ModuleList(Block(width, causal=False) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)
        self.register_buffer("pixels", torch.randn(images, 3, 32, 32))
        self.register_buffer("labels", torch.randint(10, (images,)))

    def forward(self) -> Tensor:
        x = self.patch_embed(self.pixels).flatten(2).transpose(1, 2) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        return self.loss(x)

    def loss(self, x: Tensor) -> Tensor:
        return functional.cross_entropy(self.head(self.norm(x).mean(1)), self.labels)


class Residual(nn.Module):
    """Two convolutions and what they are added to."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        same = stride == 1 and inputs == outputs
        downsample = [nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)]
        self.downsample = nn.Sequential(*([] if same else downsample))

    def forward(self, x: Tensor) -> Tensor:
        inner = functional.relu(self.bn1(self.conv1(x)))
        return functional.relu(self.bn2(self.conv2(inner)) + self.downsample(x))


class ResNet18(nn.Module):
    """ResNet-18 for small images, on noise."""

    def __init__(self, width: int, images: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        widths = [width, width, width, 2 * width, 2 * width, 4 * width, 4 * width, 8 * width, 8 * width]
        pairs = itertools.pairwise(widths)
        self.blocks = nn.Sequential(*(Residual(a, b, 2 if a != b else 1) for a, b in pairs))
        self.fc = nn.Linear(8 * width, 10)
        self.register_buffer("pixels", torch.randn(images, 3, 32, 32))
        self.register_buffer("labels", torch.randint(10, (images,)))

    def forward(self) -> Tensor:
        x = self.blocks(functional.relu(self.bn1(self.conv1(self.pixels))))
        return functional.cross_entropy(self.fc(x.mean((2, 3))), self.labels)


NETWORKS: dict[str, dict[str, Callable[[], nn.Module]]] = {
    "cpu": {
        "GPT": partial(GPT, layers=4, width=256, vocabulary=8192, texts=8, length=128),
        "ViT": partial(ViT, layers=4, width=192, images=64),
        "ResNet-18": partial(ResNet18, width=16, images=64),
    },
    "cuda": {
        "GPT": partial(GPT, layers=12, width=768, vocabulary=50304, texts=16, length=1024),
        "ViT": partial(ViT, layers=12, width=384, images=256),
        "ResNet-18": partial(ResNet18, width=64, images=512),
    },
}


def compiled(model: nn.Module) -> Callable[[], Tensor]:
    """The loss of a model on a GPU: the layers of a transformer are alike, so that one is compiled for all."""
    if not isinstance(model, GPT | ViT):
        return torch.compile(model)
    for block in model.blocks:
        block.compile()
    model.loss = torch.compile(model.loss)
    return model


# Optimizers


def torch_muon(model: nn.Module) -> Optimizers:
    """Torch's own Muon for matrices of two dimensions, and AdamW for all else."""
    found = roles(model)
    named = dict(model.named_parameters())
    matrices = [p for name, p in named.items() if found[name].kind == "matrix" and p.ndim == 2]
    others = [p for p in named.values() if not any(p is matrix for matrix in matrices)]
    return [torch.optim.Muon(matrices, lr=1e-3), torch.optim.AdamW(others, lr=1e-3, fused=True)]


ADAMW = "AdamW (fused)"
MAIN = "SAMUEL over Muon, steps given"
CAPTURED, COMPILED = f"{MAIN}, captured", f"{MAIN}, compiled"
OPTIMIZERS: dict[str, Callable[[nn.Module], Optimizers]] = {
    ADAMW: lambda model: [torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)],
    "torch.optim.Muon + AdamW": torch_muon,
    "SAMUEL over Adam, steps given": lambda model: [Samuel(model, "adam", steps=10**6)],
    MAIN: lambda model: [Samuel(model, steps=10**6)],
    "SAMUEL over Muon, steps not given": lambda model: [Samuel(model)],
    f"{MAIN}, state in bfloat16": lambda model: [Samuel(model, steps=10**6, state_dtype=torch.bfloat16)],
    CAPTURED: lambda model: [Samuel(model, steps=10**6)],
    COMPILED: lambda model: [Samuel(model, steps=10**6)],
}


# Times and memory


def waited(device: torch.device) -> float:
    """The time when everything so far has been done."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def seconds(run: Callable[[], Any], device: torch.device, times: int = 1) -> float:
    """Time of one of some runs, one after the other and then waited for."""
    start = waited(device)
    for _ in range(times):
        run()
    return (waited(device) - start) / times


def allocated(device: torch.device, optimizers: Optimizers) -> int:
    """Bytes in use: all of the GPU, or what an optimizer's state has."""
    if device.type == "cuda":
        torch.cuda.synchronize()
        return torch.cuda.memory_allocated()
    states = [x for one in optimizers for entries in one.state.values() for x in entries.values()]
    return sum({x.data_ptr(): x.numel() * x.element_size() for x in states if isinstance(x, Tensor)}.values())


# The floor


def stacks(model: nn.Module) -> list[Tensor]:
    """Random matrices as those of a model, batched by shape and lying."""
    found = roles(model)
    shapes: Counter[tuple[int, int]] = Counter()
    for name, p in model.named_parameters():
        if found[name].kind == "matrix":
            for batch in as_matrices(p.detach(), found[name]):
                count, *sides = batch.shape
                shapes[min(sides), max(sides)] += count
    device = next(model.parameters()).device
    return [torch.randn(count, short, long, device=device) for (short, long), count in shapes.items()]


def usual(x: Tensor) -> Tensor:
    """Newton-Schulz iterations."""
    for a, b, c in COEFFICIENTS:
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x


def on_gram_matrix(x: Tensor) -> Tensor:
    """The same on the Gram matrix where that is cheaper, formed anew after two iterations, since 16 bits are few."""
    if x.shape[2] < 1.5 * x.shape[1]:
        return usual(x)
    for part in (COEFFICIENTS[:2], COEFFICIENTS[2:4], COEFFICIENTS[4:]):
        gram, total = x @ x.mT, None
        for place, (a, b, c) in enumerate(part):
            polynomial = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
            polynomial.diagonal(dim1=1, dim2=2).add_(a)
            total = polynomial if total is None else polynomial @ total
            if place + 1 < len(part):
                gram = polynomial @ gram @ polynomial
        x = total @ x
    return x


def in_dtype(iterate: Callable[[Tensor], Tensor], dtype: torch.dtype, stack: Tensor) -> Tensor:
    norms = torch.linalg.vector_norm(stack, dim=(1, 2), keepdim=True, dtype=torch.float32)
    return iterate((stack / norms).to(dtype))


ITERATIONS = {
    "bfloat16": partial(in_dtype, usual, torch.bfloat16),
    "float16": partial(in_dtype, usual, torch.float16),
    "float16 on the Gram matrix": partial(in_dtype, on_gram_matrix, torch.float16),
    "float32": partial(in_dtype, usual, torch.float32),
}


def captured(run: Callable[[], Any]) -> Callable[[], Any]:
    """A run as a CUDA graph."""
    for _ in range(2):
        run()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def floor(model: nn.Module, device: torch.device, repeats: int) -> dict[str, Any]:
    """The least that a step must take: the best iterations, and the bytes that must be read and written.

    Bytes: all numbers of gradient, sum and lag for the dot products; again gradient, momentum (and mean square), sum,
    lag and parameters for the update, of which all but the gradient are written; and directions of matrices twice in
    16 bits on their way to and from the iterations.
    """
    found = roles(model)
    sizes = Counter({"matrix": 0})
    for name, p in model.named_parameters():
        sizes["matrix" if found[name].kind == "matrix" else "other"] += p.numel()
    source = torch.zeros(sum(sizes.values()), device=device)
    target = torch.empty_like(source)
    batches = stacks(model)
    found_ms = {}
    for name, iterate in ITERATIONS.items():
        if device.type == "cpu" and name.startswith("float16"):
            continue

        def run(iterate: Callable[[Tensor], Tensor] = iterate) -> None:
            for batch in batches:
                iterate(batch)

        run = captured(run) if device.type == "cuda" else run
        run()
        found_ms[name] = 1e3 * min(seconds(run, device) for _ in range(repeats))
    copies = [seconds(lambda: target.copy_(source), device, 5) for _ in range(repeats)]
    speed = 2 * 4 * source.numel() / min(copies)
    moved = 56 * sizes["other"] + (12 + 14 + 26) * sizes["matrix"]
    return {
        "iterations_milliseconds": found_ms,
        "copy_terabytes_per_second": speed / 1e12,
        "bytes": moved,
        "bytes_milliseconds": 1e3 * moved / speed,
        "milliseconds": min(found_ms.values()) + 1e3 * moved / speed,
    }


# The benchmark


def measure(network: str, device: torch.device, rounds: int, times: int, names: list[str]) -> dict[str, Any]:
    """Some optimizers on one network."""
    torch.manual_seed(0)
    model = NETWORKS[device.type][network]().to(device)
    on_gpu = device.type == "cuda"
    if on_gpu and isinstance(model, ResNet18):
        model = model.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        model.pixels = model.pixels.to(memory_format=torch.channels_last)
    loss = compiled(model) if on_gpu else model

    def gradients(buffers: list[Tensor] | None = None) -> None:
        """Forward and backward, into given buffers of the gradients if there are some."""
        model.zero_grad()
        for p, buffer in zip(model.parameters(), buffers or (), strict=False):
            p.grad = buffer.zero_()
        with torch.autocast(device.type, torch.bfloat16, enabled=on_gpu):
            value = loss()
        value.backward()

    start = time.perf_counter()
    for _ in range(3):
        gradients()
    waited(device)
    print(f"{network}: compiled in {time.perf_counter() - start:.1f} s", flush=True)
    numbers = sum(p.numel() for p in model.parameters())
    found: dict[str, Any] = {"network": network, "parameters": numbers, "steps": []}
    makers = {name: OPTIMIZERS[name] for name in names}
    if network == "ResNet-18":
        makers.pop("torch.optim.Muon + AdamW", None)  # it takes no convolutions
    runs: dict[str, tuple[Callable[[], None], Callable[[], None]]] = {}
    for name, make in makers.items():
        gc.collect()
        optimizers: Optimizers = []
        before = allocated(device, optimizers)
        optimizers = make(model)

        def step(optimizers: Optimizers = optimizers) -> None:
            for optimizer in optimizers:
                optimizer.step()

        if name == COMPILED:
            step = torch.compile(optimizers[0].step, fullgraph=True)

        def whole(step: Callable[[], None], buffers: list[Tensor] | None) -> None:
            gradients(buffers)
            step()

        start = waited(device)
        for _ in range(4):
            step()
        first = waited(device) - start
        gc.collect()
        memory = (allocated(device, optimizers) - before) / (4 * numbers)
        buffers = None
        if name == CAPTURED:  # a graph reads the gradients where they were
            buffers = [p.grad for p in model.parameters() if p.grad is not None]
            step = captured(step)
        runs[name] = partial(whole, step, buffers), step
        found["steps"].append({"name": name, "copies": memory, "first_four_steps_seconds": first})
    for whole, _ in runs.values():
        whole()
    taken: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in runs}
    for _ in range(rounds):
        for name, (whole, step) in runs.items():
            taken[name][0].append(seconds(whole, device, times))
            taken[name][1].append(seconds(step, device, times))
    found["gradients_milliseconds"] = 1e3 * statistics.median(seconds(gradients, device, times) for _ in range(rounds))
    found["floor"] = floor(model, device, rounds)
    for row in found["steps"]:
        both, alone = taken[row["name"]]
        row["milliseconds"] = 1e3 * statistics.median(both)
        row["optimizer_milliseconds"] = 1e3 * statistics.median(alone)
        # Of every pair of turns, since what else runs on the machine changes.
        row["over_adamw"] = statistics.median(a / b for a, b in zip(both, taken[ADAMW][0], strict=True))
        if row["name"] in (MAIN, CAPTURED, COMPILED):
            row["over_floor"] = row["optimizer_milliseconds"] / found["floor"]["milliseconds"]
    return found | {"_profiled": runs}


def profile(step: Callable[[], None]) -> Iterator[str]:
    """Kernel by kernel where the time of one step goes, and how many launches it takes."""
    from torch.profiler import ProfilerActivity

    torch.cuda.synchronize()
    start = time.perf_counter()
    step()
    yield f"  the host is done after {1e3 * (time.perf_counter() - start):.2f} ms"
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as result:
        step()
        torch.cuda.synchronize()
    kernels: dict[str, list[float]] = {}
    launches: Counter[str] = Counter()
    for event in result.events() or []:
        if event.device_type == torch.autograd.DeviceType.CUDA:
            kernels.setdefault(event.name, []).append(event.device_time_total)
        elif event.name.startswith(("cudaLaunch", "cudaGraph", "cudaMemcpy", "cuLaunch", "cudaStreamSync")):
            launches[event.name] += 1
    total = sum(map(sum, kernels.values()))
    yield f"  {sum(map(len, kernels.values()))} kernels, {total / 1e3:.3f} ms; calls: {dict(launches)}"
    for name, each in sorted(kernels.items(), key=lambda pair: -sum(pair[1]))[:25]:
        yield f"  {sum(each):9.1f} us {len(each):5d} x  {name[:110]}"


def described(found: dict[str, Any]) -> Iterator[str]:
    """The figures of one network, to read."""
    least = found["floor"]
    ways = ", ".join(f"{name} {ms:.2f}" for name, ms in least["iterations_milliseconds"].items())
    yield f"{found['network']}, {found['parameters'] / 1e6:.1f} M parameters"
    yield f"  gradients alone {found['gradients_milliseconds']:.2f} ms"
    yield (
        f"  floor {least['milliseconds']:.2f} ms: iterations, ms: {ways}; {least['bytes'] / 1e9:.2f} GB at "
        f"{least['copy_terabytes_per_second']:.2f} TB/s: {least['bytes_milliseconds']:.2f} ms"
    )
    yield f"  {'':42s} {'whole':>8s} {'alone':>8s} {'/ AdamW':>8s} {'/ floor':>8s} {'copies':>7s} {'first 4':>8s}"
    for row in found["steps"]:
        over = f"{row['over_floor']:8.2f}" if "over_floor" in row else " " * 8
        yield (
            f"  {row['name']:42s} {row['milliseconds']:8.2f} {row['optimizer_milliseconds']:8.2f} "
            f"{row['over_adamw']:8.3f} {over} {row['copies']:7.2f} {row['first_four_steps_seconds']:8.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="turns of every optimizer")
    parser.add_argument("--times", type=int, default=0, help="steps of a turn; by default 1, and 5 on a GPU")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no further network after this time")
    parser.add_argument("--compile", action="store_true", help="add the step under torch.compile, which takes minutes")
    parser.add_argument("--networks", nargs="*", default=None, help="some of the networks")
    parser.add_argument("--profile", action="store_true", help="print the kernels of a step (on a GPU)")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    arguments = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("high")
    facts: dict[str, Any] = {
        "command": " ".join(["python benchmarks/torch_step.py", *sys.argv[1:]]),
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "CPU, one core",
        "date": datetime.date.today().isoformat(),
        "torch": torch.__version__,
        "networks": [],
    }
    profiled: list[tuple[str, Callable[[], None]]] = []
    on_gpu = device.type == "cuda"
    extra = {CAPTURED: on_gpu, COMPILED: arguments.compile}
    names = [name for name in OPTIMIZERS if extra.get(name, True)]
    began = time.perf_counter()
    for network in arguments.networks or NETWORKS[device.type]:
        if time.perf_counter() - began > arguments.seconds:
            print(f"{network} is left out: {arguments.seconds:g} seconds are over")
            continue
        times = arguments.times or (5 if on_gpu else 1)
        found = measure(network, device, arguments.rounds, times, names)
        runs = found.pop("_profiled")
        print("\n".join(described(found)), flush=True)
        if arguments.profile and device.type == "cuda":
            profiled += [
                (f"{network}, {name}", runs[name][1]) for name in (ADAMW, "SAMUEL over Adam, steps given", MAIN)
            ]
        facts["networks"].append(found)
        if arguments.json:
            arguments.json.write_text(json.dumps(facts, indent=1) + "\n")
        torch._dynamo.reset()
    for name, step in profiled:
        print(name)
        print("\n".join(profile(step)), flush=True)


if __name__ == "__main__":
    main()
