"""What a step costs on many GPUs, on paper: counted bytes and operations, over measured or assumed speeds.

    python benchmarks/scaling.py [--json FILE] [--tokens 16384] [--between 50]

Weak scaling: every GPU has the same number of tokens, however many GPUs there are, and `fully_shard` splits every
parameter along its first dimension. Bytes are those that `samuel.torch.sharded.Exchange` would send, counted by its
own code for the processes with most and least to do; nothing is sent. Speeds are arguments; docs/scaling.md says where
their defaults come from.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
from datetime import date
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from samuel.core.roles import Role, orthogonalisation_flops
from samuel.torch.sharded import Exchange, Layout, box_of

GPUS = (8, 64, 512)


@dataclasses.dataclass(frozen=True)
class Network:
    """Sizes of a transformer with gated layers, like Llama's."""

    name: str
    width: int
    hidden: int
    layers: int
    vocabulary: int = 32_000

    @property
    def matrices(self) -> list[tuple[int, int]]:
        """What is orthogonalised."""
        layer = [(self.width, self.width)] * 4 + [(self.hidden, self.width)] * 2 + [(self.width, self.hidden)]
        return layer * self.layers

    @property
    def size(self) -> int:
        """Number of parameters."""
        return sum(m * n for m, n in self.matrices) + 2 * self.vocabulary * self.width


NETWORKS = (Network("1B", 2048, 5632, 20), Network("7B", 4096, 11_008, 32))


@dataclasses.dataclass(frozen=True)
class Speeds:
    """What the hardware does; rates in units a second."""

    tokens: int = 16_384
    training: float = 0.40e15
    iterations: float = 0.585e15
    memory: float = 4.3e12
    within: float = 450e9
    between: float = 50e9
    message: float = 5e-6
    node: int = 8


ADAMW, SAMUEL = 7, 17
"""Numbers read or written for each parameter in a step: parameter, gradient, two moments; and momentum, direction,
direction sum, lag and average, in the optimizer's passes."""


def cost(shape: tuple[int, int]) -> float:
    """Operations that a matrix takes."""
    return orthogonalisation_flops(Role("matrix", (0,), (1,)), shape)


def exchange_of(network: Network, gpus: int) -> Exchange:
    """The exchange of all matrices, as one of so many processes would make it."""
    layouts, costs = [], []
    for shape in network.matrices:
        boxes = tuple(box_of(torch.Size(shape), [Shard(0)], (gpus,), (rank,)) for rank in range(gpus))
        layouts.append(Layout(torch.Size(shape), boxes, tuple(range(gpus))))
        costs.append(cost(shape))
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=gpus)
    try:
        return Exchange(layouts, costs)
    finally:
        dist.destroy_process_group()


def step(network: Network, gpus: int, speeds: Speeds) -> dict[str, Any]:
    """Milliseconds of the parts of a step, and bytes that a GPU sends."""
    exchange = exchange_of(network, gpus)
    load = [0.0] * gpus
    for owner, shape in zip(exchange.owners, network.matrices, strict=True):
        load[owner] += cost(shape)
    sent = 0
    for exchange.rank in {0, load.index(max(load)), load.index(min(load)), gpus - 1}:
        sent = max(sent, exchange.bytes_moved(width=2))
    link = speeds.within if gpus <= speeds.node else speeds.between
    latency = 2 * len(exchange.buckets) * speeds.message * (gpus - 1)
    compute = 6 * network.size * speeds.tokens / speeds.training
    # Parameters are gathered twice, for both directions, and gradients are scattered once, in 16 bits.
    gathering = 3 * 2 * network.size * (gpus - 1) / gpus / link
    forward_backward = max(compute, gathering)
    share = network.size / gpus
    adamw = 4 * ADAMW * share / speeds.memory
    scalars = 2 * speeds.message * math.log2(gpus)
    passes = 4 * SAMUEL * share / speeds.memory
    iterations = max(load) / speeds.iterations
    moving = sent / link + latency
    alone = passes + iterations + moving + scalars  # nothing overlapped: an upper bound
    parts = {
        "forward_backward": forward_backward,
        "adamw": adamw,
        "passes": passes,
        "iterations": iterations,
        "exchange": moving,
        "scalars": scalars,
    }
    return {
        "gpus": gpus,
        "megabytes_sent": sent / 1e6,
        "megabytes_sent_by_fully_shard": 3 * 2 * network.size * (gpus - 1) / gpus / 1e6,
        **{f"{name}_ms": 1e3 * seconds for name, seconds in parts.items()},
        "ratio": (forward_backward + alone) / (forward_backward + adamw),
    }


def main() -> None:
    """Print the table, and write it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", type=Path, help="where to write what was found")
    for field in dataclasses.fields(Speeds):
        kind = type(field.default)
        parser.add_argument(f"--{field.name}", type=kind, default=field.default)
    arguments = vars(parser.parse_args())
    file = arguments.pop("json")
    speeds = Speeds(**arguments)
    found = [
        {
            "network": network.name,
            "parameters": network.size,
            "iterations_tflop": sum(cost(shape) for shape in network.matrices) / 1e12,
            "steps": [step(network, gpus, speeds) for gpus in GPUS],
        }
        for network in NETWORKS
    ]
    for row in found:
        print(f"{row['network']}: {row['parameters'] / 1e9:.2f} billion, {row['iterations_tflop']:.1f} TFLOP a step")
        for one in row["steps"]:
            print("  " + "  ".join(f"{name} {value:.4g}" for name, value in one.items()))
    if file:
        record = {"date": str(date.today()), "speeds": dataclasses.asdict(speeds), "networks": found}
        file.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
