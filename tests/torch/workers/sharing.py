"""Training in which several processes share the work on matrices, for `test_sharing`."""

from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from samuel.torch import Samuel

STEPS = 50
WAYS = ("ddp", "fully_shard", "hybrid", "tensor", "both")


class Network(nn.Module):
    """Uneven shards, a matrix with fewer rows than processes, a convolution, an embedding, and a frozen layer."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(11, 9)
        self.mix = nn.Conv1d(9, 10, 3, padding=1)
        self.frozen = nn.Linear(10, 10).requires_grad_(False)
        self.first = nn.Linear(10, 12, bias=False)
        self.second = nn.Linear(12, 10, bias=False)
        self.head = nn.Linear(10, 3)

    def forward(self, tokens):
        x = self.mix(self.tokens(tokens).transpose(1, 2)).transpose(1, 2)
        x = x + self.second(torch.tanh(self.first(x + self.frozen(x))))
        return self.head(x.mean(1))


def network():
    """In 64 bits, where only mistakes grow: in 32, Adam amplifies the rounding of gradients that are almost 0."""
    torch.manual_seed(0)
    return Network().double()


def batch(step):
    generator = torch.Generator().manual_seed(step)
    tokens = torch.randint(11, (16, 5), generator=generator)
    return tokens, (tokens == 3).sum(1).clamp(max=2)


def spread(way, ranks):
    """The network as a number of processes have it."""
    model = network()
    if way == "ddp":
        return DistributedDataParallel(model)
    if way == "fully_shard":
        return fully_shard(model)
    if way == "hybrid":
        return fully_shard(model, mesh=init_device_mesh("cpu", (ranks // 2, 2), mesh_dim_names=("copy", "shard")))
    if way == "tensor":
        mesh = init_device_mesh("cpu", (ranks,))
        return parallelize_module(model, mesh, {"first": ColwiseParallel(), "second": RowwiseParallel()})
    mesh = init_device_mesh("cpu", (ranks // 2, 2), mesh_dim_names=("data", "tensor"))
    parallelize_module(model, mesh["tensor"], {"first": ColwiseParallel(), "second": RowwiseParallel()})
    return fully_shard(model, mesh=mesh["data"])


def train(model, optimizer, first, last):
    """Some steps; every process has the same batch."""
    for step in range(first, last):
        tokens, targets = batch(step)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(tokens), targets).backward()
        optimizer.step()


def parameters_of(model):
    """All parameters, whole."""
    with torch.no_grad():
        named = {name.removeprefix("module."): p for name, p in model.named_parameters()}
        return {name: (p.full_tensor() if isinstance(p, DTensor) else p).clone() for name, p in named.items()}


def train_all(rank, ranks):
    """The parameters after training in every way, and how many matrices this process worked on."""
    found = {}
    for way in WAYS if ranks == 4 else WAYS[:2]:
        model = spread(way, ranks)
        optimizer = Samuel(model, steps=STEPS)
        train(model, optimizer, 0, STEPS)
        owned = [exchange.owners.count(exchange.rank) for exchange, _ in optimizer._engine.exchanges]
        found[way] = parameters_of(model), sum(owned)
    return found


def save(rank, ranks, folder):
    """Half of a run, and its checkpoint."""
    model = spread("fully_shard", ranks)
    optimizer = Samuel(model)
    train(model, optimizer, 0, STEPS // 2)
    weights, state = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": state}, checkpoint_id=Path(folder))


def load(rank, ranks, folder):
    """The second half: the parameters that were loaded, those at the end, and the averaged ones."""
    model = spread("fully_shard", ranks)
    optimizer = Samuel(model)
    weights, state = get_state_dict(model, optimizer)
    dcp.load({"model": weights, "optimizer": state}, checkpoint_id=Path(folder))
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=state)
    loaded = parameters_of(model)
    train(model, optimizer, STEPS // 2, STEPS)
    with optimizer.averaged():
        averaged = parameters_of(model)
    return loaded, parameters_of(model), averaged
