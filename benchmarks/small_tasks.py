"""What a user gains on small tasks: SAMUEL beside a sweep of AdamW's and of Muon's rates, in PyTorch.

    python benchmarks/small_tasks.py --json results/small_tasks.json    CPU: hours
    python benchmarks/small_tasks.py --processes 10 --json results/small_tasks.json    a GPU with MPS: minutes

    digits       images of scikit-learn, a network with three layers, 20 epochs of batches of 64
    shift        the same, and half-way all labels are permuted without notice
    convolution  the same images, a small ResNet with batch norm, 15 epochs
    text         bytes of Python's standard library, a transformer with two layers, 500 steps
    text_shift   the same, and half-way the text becomes the prose of Python's help topics without notice
    lstm         the same text, an LSTM of two layers

The sweeps have warm-up over a twentieth and a cosine to 0, weight decay 0.1 of matrices, and no average. `loss` is that
of the test data at the end, and `recovery` on shift the steps until 90 % are right again. On text_shift `after` is the
mean loss of the training batches in the 20, 100 and 300 steps after the shift.

A file that exists is continued: only runs that it lacks are made.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import multiprocessing
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import samuel.torch as st

ADAMW = (0.0001, 0.0003, 0.001, 0.003, 0.01)
MUON = (0.001, 0.003, 0.01, 0.03)
OURS: dict[str, dict[str, Any]] = {
    "samuel": {"told": True},
    "samuel-untold": {"told": False},
    "samuel, averaged": {"told": True, "average": True},
    "samuel-adam": {"told": True, "base": "adam"},
    "samuel-adam-untold": {"told": False, "base": "adam"},
    "samuel, shifts ignored": {"told": True, "on_shift": "ignore"},
    "samuel, new at the shift": {"told": True, "renewed": True},
    "samuel, decay 0": {"told": True, "weight_decay": 0.0},
    "samuel, decay 0.3": {"told": True, "weight_decay": 0.3},
    "samuel-untold, decay 0.3": {"told": False, "weight_decay": 0.3},
}
METHODS = [*OURS, *(f"adamw@{rate}" for rate in ADAMW), *(f"muon@{rate}" for rate in MUON)]
WEIGHT_DECAY = 0.1
CONTEXT = 64
"""Bytes that the language models see at once."""


class Task(NamedTuple):
    """A network, its batches and its examination."""

    model: Callable[[], nn.Module]
    steps: int
    batch: Callable[[int, int], tuple[Tensor, Tensor]]
    """Inputs and targets by seed and step."""
    test: Callable[[int], Iterator[tuple[Tensor, Tensor]]]
    """Test batches that belong to a step."""
    examine_every: int


def device() -> torch.device:
    """Where everything is computed."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@functools.cache
def digits(shifts: bool = False, convolves: bool = False) -> Task:
    """Images of digits; with a shift, other labels in the second half."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    x = torch.tensor(images, dtype=torch.float32, device=device()) / 16
    y = torch.tensor(labels, device=device())
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0)).to(device())
    train, held_out = order[:1437], order[1437:]
    steps = 2000 if shifts else (15 if convolves else 20) * (1437 // 64)
    permuted = torch.tensor([3, 7, 1, 9, 0, 6, 2, 8, 5, 4], device=device())

    def target(step: int, places: Tensor) -> Tensor:
        return permuted[y[places]] if shifts and step >= steps // 2 else y[places]

    def batch(seed: int, step: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(1_000_003 * seed + step)
        places = train[torch.randint(len(train), (64,), generator=generator).to(device())]
        return x[places], target(step, places)

    def test(step: int) -> Iterator[tuple[Tensor, Tensor]]:
        yield x[held_out], target(step, held_out)

    def model() -> nn.Module:
        if convolves:
            return ResNet()
        layers = [nn.Linear(64, 128), nn.LayerNorm(128), nn.ReLU(), nn.Linear(128, 128), nn.LayerNorm(128), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(128, 10))

    return Task(model, steps, batch, test, 2 if shifts else steps)


class ResNet(nn.Module):
    """Two residual blocks with batch norm on images of 8 x 8."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, padding=1, bias=False)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm2d(width),
                nn.ReLU(),
                nn.Conv2d(width, width, 3, padding=1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(),
                nn.Conv2d(width, width, 3, padding=1, bias=False),
            )
            for _ in range(2)
        )
        self.head = nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Logits of the classes."""
        x = self.stem(images.unflatten(1, (1, 8, 8)))
        for block in self.blocks:
            x = x + block(x)
        return self.head(x.mean((2, 3)))


class Recurrent(nn.Module):
    """An LSTM over bytes."""

    def __init__(self, width: int = 192) -> None:
        super().__init__()
        self.tokens = nn.Embedding(256, 64)
        self.lstm = nn.LSTM(64, width, 2, batch_first=True)
        self.head = nn.Linear(width, 256)

    def forward(self, text: Tensor) -> Tensor:
        """Logits of the next byte."""
        return self.head(self.lstm(self.tokens(text))[0]).transpose(1, 2)


class Transformer(nn.Module):
    """A small language model over bytes."""

    def __init__(self, width: int = 96, depth: int = 2) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(256, width), nn.Embedding(CONTEXT, width)
        layer = functools.partial(nn.TransformerEncoderLayer, width, 4, 4 * width, 0.0, F.gelu, batch_first=True)
        self.blocks = nn.ModuleList(layer(norm_first=True) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 256, bias=False)

    def forward(self, text: Tensor) -> Tensor:
        """Logits of the next byte."""
        length = text.shape[1]
        x = self.tokens(text) + self.positions(torch.arange(length, device=text.device))
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=text.device)
        for block in self.blocks:
            x = block(x, src_mask=mask, is_causal=True)
        return self.head(self.norm(x)).transpose(1, 2)


@functools.cache
def text(recurrent: bool = False, shifts: bool = False) -> Task:
    """Bytes of the standard library's source; with a shift, prose in the second half."""
    library = Path(sysconfig.get_path("stdlib"))
    code = b"".join(file.read_bytes() for file in sorted(library.glob("*.py")))[:4_000_000]
    prose = (library / "pydoc_data" / "topics.py").read_bytes()
    sources = [torch.tensor(list(some), device=device()) for some in (code, prose)]
    steps = 500

    def source_of(step: int) -> tuple[Tensor, int]:
        source = sources[int(shifts and step >= steps // 2)]
        return source, int(0.9 * len(source))

    def cut(source: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
        windows = source[starts.to(source.device)[:, None] + torch.arange(CONTEXT + 1, device=source.device)]
        return windows[:, :-1], windows[:, 1:]

    def batch(seed: int, step: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(1_000_003 * seed + step)
        source, split = source_of(step)
        return cut(source, torch.randint(split - CONTEXT - 1, (32,), generator=generator))

    def test(step: int) -> Iterator[tuple[Tensor, Tensor]]:
        source, split = source_of(step)
        generator = torch.Generator().manual_seed(1)
        for _ in range(8):
            yield cut(source, split + torch.randint(len(source) - split - CONTEXT - 1, (64,), generator=generator))

    return Task(Recurrent if recurrent else Transformer, steps, batch, test, steps)


TASKS: dict[str, Callable[[], Task]] = {
    "digits": digits,
    "shift": functools.partial(digits, shifts=True),
    "convolution": functools.partial(digits, convolves=True),
    "text": text,
    "text_shift": functools.partial(text, shifts=True),
    "lstm": functools.partial(text, recurrent=True),
}


def matrices(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """What decays, and what does not."""
    params = list(model.parameters())
    return [p for p in params if p.ndim > 1], [p for p in params if p.ndim < 2]


def unscheduled(step: int) -> None:
    """SAMUEL needs no schedule."""
    del step


def swept(model: nn.Module, name: str, steps: int) -> tuple[torch.optim.Optimizer, Callable[[int], None]]:
    """An optimizer of a sweep, and its schedule."""
    kind, _, written = name.partition("@")
    rate = float(written)
    decays, others = matrices(model)
    groups = [{"params": decays, "weight_decay": WEIGHT_DECAY}, {"params": others, "weight_decay": 0.0}]
    if kind == "adamw":
        optimizer: torch.optim.Optimizer = torch.optim.AdamW(groups, lr=rate)
    else:
        # SAMUEL over Muon with a single candidate is Muon at that rate; its fall is taken back, and the cosine put in.
        optimizer = st.Samuel(
            model, learning_rates=(rate,), weight_decay=WEIGHT_DECAY, average=False, on_shift="ignore"
        )
    warmup = max(1, steps // 20)

    def schedule(step: int) -> None:
        part = (
            (step + 1) / warmup if step < warmup else 0.5 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup)))
        )
        for group in optimizer.param_groups:
            group["lr"] = rate * part if kind == "adamw" else part * math.sqrt(1 + step / 256)

    return optimizer, schedule


def run(job: tuple[str, str, int]) -> dict[str, Any]:
    """Train one method on one task with one seed."""
    name, method, seed = job
    torch.set_num_threads(1)
    task = TASKS[name]()
    torch.manual_seed(seed)
    model = task.model().to(device())
    renewed = False
    if method in OURS:
        options = {"weight_decay": WEIGHT_DECAY, **OURS[method]}
        renewed = options.pop("renewed", False)
        steps = task.steps if options.pop("told") else None
        optimizer: Any = st.Samuel(model, steps=steps, **options)
        schedule = unscheduled
        judged = optimizer.averaged
    else:
        optimizer, schedule = swept(model, method, task.steps)
        judged = nullcontext
    found: dict[str, Any] = {"task": name, "method": method, "seed": seed, "recovery": None}
    losses = []
    for step in range(task.steps):
        if renewed and step == task.steps // 2:
            optimizer = st.Samuel(model, steps=task.steps - step, **options)
            judged = optimizer.averaged
        x, y = task.batch(seed, step)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        losses.append(loss.detach())
        schedule(step)
        optimizer.step()
        done = step + 1
        if done % task.examine_every == 0 and (done > task.steps // 2 or done == task.steps):
            with judged():
                found |= examine(model, task, step)
            if found["recovery"] is None and name == "shift" and found["accuracy"] >= 0.9:
                found["recovery"] = done - task.steps // 2
    if name == "text_shift":
        after = torch.stack(losses)[task.steps // 2 :]
        found["after"] = [float(after[:count].mean()) for count in (20, 100, 300)]
    if method in OURS:
        found |= {"shifts": int(optimizer.shifts), "rates": [float(g["effective_lr"]) for g in optimizer.param_groups]}
    return found


@torch.no_grad()
def examine(model: nn.Module, task: Task, step: int) -> dict[str, float]:
    """Loss and accuracy on the test data."""
    model.eval()
    losses, right = zip(*((F.cross_entropy(model(x), y), (model(x).argmax(1) == y).float().mean())
                          for x, y in task.test(step)), strict=True)  # fmt: skip
    model.train()
    return {"loss": float(torch.stack(losses).mean()), "accuracy": float(torch.stack(right).mean())}


def main() -> None:
    """Run every method on every task and print a table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--tasks", default=",".join(TASKS))
    options.add_argument("--methods", default=";".join(METHODS), help="separated by semicolons")
    options.add_argument("--seeds", type=int, default=2)
    options.add_argument("--processes", type=int, default=1)
    options.add_argument("--json", type=Path)
    given = options.parse_args()
    tasks, methods = given.tasks.split(","), given.methods.split(";")
    jobs = [(task, method, seed) for task in tasks for seed in range(given.seeds) for method in methods]
    rows = json.loads(given.json.read_text())["runs"] if given.json and given.json.exists() else []
    made = {(row["task"], row["method"], row["seed"]) for row in rows}
    jobs = [job for job in jobs if job not in made]
    with multiprocessing.get_context("spawn").Pool(given.processes) as pool:
        for row in pool.imap_unordered(run, jobs):
            rows.append(row)
            print(json.dumps(row), flush=True)
            if given.json:
                where = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
                about = {"benchmark": "small_tasks", "device": where, "torch": torch.__version__}
                given.json.write_text(json.dumps({**about, "runs": sorted(rows, key=str)}, indent=1) + "\n")
    for task in tasks:
        print(f"\n{task}")
        for method in methods:
            of = [row for row in rows if (row["task"], row["method"]) == (task, method)]
            loss, accuracy = (sum(row[key] for row in of) / len(of) for key in ("loss", "accuracy"))
            recovery = [row["recovery"] for row in of]
            print(f"  {method:20} loss {loss:.4f}  accuracy {100 * accuracy:.2f} %  recovery {recovery}")


if __name__ == "__main__":
    main()
