"""Exchanges of matrices under every way in which they can lie on processes, for `test_sharded`."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from samuel.torch.sharded import Exchange, layout_of

SHAPES = [(7, 5), (3, 11), (4, 4), (5, 3, 2), (1, 6), (13, 8)]  # uneven, and some smaller than the mesh


def work(places, wholes):
    """Something that needs whole matrices."""
    return [one / (one.norm(dim=(-2, -1), keepdim=True) + 1e-9) + p for p, one in zip(places, wholes, strict=True)]


def whole(parameter):
    return parameter.full_tensor() if isinstance(parameter, DTensor) else parameter


def local(parameter):
    return parameter.to_local() if isinstance(parameter, DTensor) else parameter


def compare(parameters, **options):
    """The largest difference from the work done on whole tensors, and the bytes sent."""
    layouts = [layout_of(p, dist.get_world_size(), stack=range(p.ndim - 2)) for p in parameters]
    exchange = Exchange(layouts, [layout.shape.numel() for layout in layouts], **options)
    results = exchange([local(parameter).detach() for parameter in parameters], work)
    worst = 0.0
    wholes = [whole(parameter).detach() for parameter in parameters]
    expected = work(range(len(wholes)), wholes)
    for place, (result, parameter) in enumerate(zip(results, parameters, strict=True)):
        ours = result
        if isinstance(parameter, DTensor):
            ours = DTensor.from_local(
                result, parameter.device_mesh, parameter.placements, shape=parameter.shape, stride=parameter.stride()
            ).full_tensor()
        worst = max(worst, float((ours - expected[place]).abs().max()))
    return {"worst": worst, "bytes": exchange.bytes_moved(4), "local": sum(exchange.local)}


def tensors(mesh, placements):
    generator = torch.Generator().manual_seed(0)
    made = [torch.randn(shape, generator=generator) for shape in SHAPES]
    return [distribute_tensor(tensor, mesh, placements) for tensor in made]


def both_kinds(ranks):
    """A network under tensor parallelism and `fully_shard`."""
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (ranks // 2, 2), mesh_dim_names=("data", "tensor"))
    model = nn.Sequential(nn.Linear(6, 10, bias=False), nn.ReLU(), nn.Linear(10, 7, bias=False))
    parallelize_module(model, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(model, mesh=mesh["data"])
    return list(model.parameters())


def compare_all(rank, ranks):
    """Everything that one process finds."""
    flat = init_device_mesh("cpu", (ranks,))
    torch.manual_seed(0)
    found = {
        "rows": compare(tensors(flat, [Shard(0)])),
        "columns": compare(tensors(flat, [Shard(1)]), bucket=1),
        "replicated": compare([torch.randn(shape) for shape in SHAPES]),
        "mixed": compare(tensors(flat, [Shard(0)])[:3] + tensors(flat, [Replicate()])[3:], bucket=20),
    }
    if ranks == 4:
        square = init_device_mesh("cpu", (2, 2))
        found["hybrid"] = compare(tensors(square, [Replicate(), Shard(0)]))
        found["blocks"] = compare(tensors(square, [Shard(0), Shard(1)]))
        found["tensor parallel"] = compare(both_kinds(ranks))
    return found
