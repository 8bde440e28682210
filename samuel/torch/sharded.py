"""Orthogonalisation of distributed matrices: each process gathers its share of them and returns the results.

Orthogonalisation needs whole matrices; with `fully_shard`, tensor parallelism or both no process has one. Each matrix
is assigned to an owner, once, such that the work is balanced. In a step, one all-to-all exchange sends the shards of
each matrix to its owner and a second one returns the shards of the result; each moves the bytes of the matrices once.
With replicated matrices (DDP) only the results are exchanged. Stacks that are sharded between their matrices need no
exchange.

Exchanges are bucketed: the shards of the next bucket are sent while the owners of the previous one compute.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor, Replicate, Shard

from samuel.core.roles import Role, orthogonalisation_flops, stack_of

Box = tuple[tuple[int, int], ...]
"""Start and end of a shard in its tensor, along every dimension."""
Work = Callable[[list[int], list[Tensor]], list[Tensor]]
"""Function of the indices of some tensors and these tensors, whole, that returns one result for each."""

BUCKET = 2**23
"""Minimum size of a bucket in numbers per process, 16 MB in 16 bits, which limits the cost of latency."""


@dataclass(frozen=True)
class Layout:
    """Layout of one tensor over the processes of a group.

    Args:
        shape: shape of the whole tensor.
        boxes: the shard of every process, by rank in the group.
        senders: the processes whose shards cover the tensor once.
        stack: dimensions along which independent matrices are stacked.
    """

    shape: torch.Size
    boxes: tuple[Box, ...]
    senders: tuple[int, ...]
    stack: tuple[int, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether every process has the whole tensor."""
        return all(box == self.boxes[0] for box in self.boxes)

    @property
    def is_local(self) -> bool:
        """Whether every shard consists of whole matrices."""
        matrix = [dim for dim in range(len(self.shape)) if dim not in self.stack]
        return not self.is_whole and all(box[dim] == (0, self.shape[dim]) for box in self.boxes for dim in matrix)


def layout_of(parameter: Tensor, group_size: int = 1, stack: Sequence[int] = ()) -> Layout:
    """Layout of a parameter over its mesh, or replicated over a process group.

    Args:
        parameter: a DTensor, or a tensor that is replicated over a group.
        group_size: number of processes if it is not a DTensor.
        stack: dimensions along which matrices are stacked.

    >>> layout_of(torch.zeros(3, 2), group_size=2).boxes
    (((0, 3), (0, 2)), ((0, 3), (0, 2)))
    """
    if not isinstance(parameter, DTensor):
        whole = tuple((0, size) for size in parameter.shape)
        return Layout(parameter.shape, (whole,) * group_size, (0,), tuple(stack))
    mesh, placements = parameter.device_mesh, parameter.placements
    sizes = tuple(mesh.mesh.shape)
    coordinates = list(itertools.product(*(range(size) for size in sizes)))
    boxes = tuple(box_of(parameter.shape, placements, sizes, c) for c in coordinates)
    replicated = [place for place, placement in enumerate(placements) if isinstance(placement, Replicate)]
    senders = tuple(rank for rank, c in enumerate(coordinates) if all(c[place] == 0 for place in replicated))
    return Layout(parameter.shape, boxes, senders, tuple(stack))


def exchange_of(parameters: Sequence[Tensor], roles: Sequence[Role], group: Any = None) -> Exchange:
    """The exchange by which processes share the orthogonalisation of matrices.

    Args:
        parameters: parameters on one mesh, or replicated over a process group.
        roles: roles of the parameters.
        group: the process group of replicated parameters.
    """
    first = parameters[0]
    if isinstance(first, DTensor):
        mesh = first.device_mesh
        ranks = mesh.mesh.flatten().tolist()
        if ranks != sorted(ranks):
            raise ValueError(f"the ranks of a mesh must ascend, got {mesh.mesh.tolist()}")
        if len(ranks) == dist.get_world_size():
            group = None
        else:
            group = mesh.get_group() if mesh.ndim == 1 else mesh._flatten().get_group()
    size = dist.get_world_size(group)
    layouts = [layout_of(p, size, stack_of(role, p.ndim)) for p, role in zip(parameters, roles, strict=True)]
    costs = [orthogonalisation_flops(role, p.shape) for p, role in zip(parameters, roles, strict=True)]
    return Exchange(layouts, costs, group)


def owners(costs: Sequence[float], processes: int) -> list[int]:
    """Assign tasks to processes such that the work is balanced; returns the owner of each task.

    >>> owners([5.0, 3.0, 2.0, 1.0], processes=2)
    [0, 1, 1, 0]
    """
    load = [0.0] * processes
    chosen = [0] * len(costs)
    for place in sorted(range(len(costs)), key=lambda place: -costs[place]):
        chosen[place] = min(range(processes), key=lambda rank: (load[rank], rank))
        load[chosen[place]] += costs[place]
    return chosen


class Exchange:
    """Apply a function to whole tensors that are distributed, each process to its share of the tensors.

    Args:
        layouts: layouts of the tensors.
        costs: cost of the function for each tensor.
        group: the process group; None for all processes.
        bucket: minimum size of a bucket, in numbers per process.
    """

    def __init__(
        self, layouts: Sequence[Layout], costs: Sequence[float], group: Any = None, bucket: int = BUCKET
    ) -> None:
        self.layouts = list(layouts)
        self.group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        for layout in self.layouts:
            if len(layout.boxes) != self.size:
                raise ValueError(
                    f"a tensor of shape {tuple(layout.shape)} is on {len(layout.boxes)} processes, and the group has "
                    f"{self.size}; use one exchange per mesh"
                )
        self.owners = owners(costs, self.size)
        self.local = [layout.is_local for layout in self.layouts]
        self.buckets: list[list[int]] = []
        least = numbers = bucket * self.size
        for place, layout in enumerate(self.layouts):
            if self.local[place]:
                continue
            if numbers >= least:
                self.buckets.append([])
                numbers = 0
            self.buckets[-1].append(place)
            numbers += layout.shape.numel()

    def bytes_moved(self, width: int) -> int:
        """Bytes that this process sends to others in a step, with `width` bytes per number."""
        sent = 0
        for bucket in self.buckets:
            _, outgoing, _ = self._gathering(bucket)
            _, returning, _ = self._returning(bucket)
            for parts in (outgoing, returning):
                sent += sum(_numel(box) for rank, some in enumerate(parts) if rank != self.rank for _, box in some)
        return sent * width

    def __call__(self, shards: Sequence[Tensor], work: Work) -> list[Tensor]:
        """Shards of the results for all tensors.

        Args:
            shards: shards of this process, one per tensor, all of one dtype.
            work: called with whole tensors, or with stacks of whole matrices.
        """
        results: list[Tensor | None] = [None] * len(shards)
        at_home = [place for place, local in enumerate(self.local) if local]
        waiting = self._send(self.buckets[0], shards) if self.buckets else None
        if at_home:
            for place, result in zip(at_home, work(at_home, [shards[place] for place in at_home]), strict=True):
                results[place] = result
        returning = []
        for number, bucket in enumerate(self.buckets):
            wholes = self._receive(bucket, shards, waiting)
            if number + 1 < len(self.buckets):
                waiting = self._send(self.buckets[number + 1], shards)
            mine = [place for place in bucket if self.owners[place] == self.rank]
            done = dict(zip(mine, work(mine, [wholes[place] for place in mine]), strict=True)) if mine else {}
            returning.append((bucket, self._send_back(bucket, shards, done)))
        for bucket, sent in returning:
            self._receive_back(bucket, shards, sent, results)
        assert all(result is not None for result in results)
        return results  # pyright: ignore[reportReturnType]

    # Messages: for every process a list of (index of the tensor, box)

    def _gathering(
        self, bucket: list[int]
    ) -> tuple[list[int], list[list[tuple[int, Box]]], list[list[tuple[int, Box]]]]:
        split = [place for place in bucket if not self.layouts[place].is_whole]
        outgoing: list[list[tuple[int, Box]]] = [[] for _ in range(self.size)]
        incoming: list[list[tuple[int, Box]]] = [[] for _ in range(self.size)]
        for place in split:
            layout, owner = self.layouts[place], self.owners[place]
            if self.rank in layout.senders:
                outgoing[owner].append((place, layout.boxes[self.rank]))
            if owner == self.rank:
                for sender in layout.senders:
                    incoming[sender].append((place, layout.boxes[sender]))
        return split, outgoing, incoming

    def _returning(
        self, bucket: list[int]
    ) -> tuple[list[int], list[list[tuple[int, Box]]], list[list[tuple[int, Box]]]]:
        outgoing: list[list[tuple[int, Box]]] = [[] for _ in range(self.size)]
        incoming: list[list[tuple[int, Box]]] = [[] for _ in range(self.size)]
        for place in bucket:
            layout, owner = self.layouts[place], self.owners[place]
            incoming[owner].append((place, layout.boxes[self.rank]))
            if owner == self.rank:
                for rank in range(self.size):
                    outgoing[rank].append((place, layout.boxes[rank]))
        return bucket, outgoing, incoming

    def _send(self, bucket: list[int], shards: Sequence[Tensor]) -> Any:
        _, outgoing, incoming = self._gathering(bucket)
        parts = [shards[place].reshape(-1) for some in outgoing for place, _ in some]
        return self._all_to_all(parts, outgoing, incoming, shards[0])

    def _receive(self, bucket: list[int], shards: Sequence[Tensor], sent: Any) -> dict[int, Tensor]:
        split, _, incoming = self._gathering(bucket)
        wholes = {place: shards[place] for place in bucket if place not in split}
        for place in split:
            if self.owners[place] == self.rank:
                wholes[place] = shards[place].new_empty(self.layouts[place].shape)
        for place, box, values in self._unpacked(sent, incoming):
            wholes[place][tuple(slice(*edge) for edge in box)] = values
        return wholes

    def _send_back(self, bucket: list[int], shards: Sequence[Tensor], done: dict[int, Tensor]) -> Any:
        _, outgoing, incoming = self._returning(bucket)
        parts = [
            done[place][tuple(slice(*edge) for edge in box)].to(shards[place].dtype).reshape(-1)
            for some in outgoing
            for place, box in some
        ]
        return self._all_to_all(parts, outgoing, incoming, shards[0])

    def _receive_back(
        self, bucket: list[int], shards: Sequence[Tensor], sent: Any, results: list[Tensor | None]
    ) -> None:
        _, _, incoming = self._returning(bucket)
        for place, _, values in self._unpacked(sent, incoming):
            results[place] = values.view(shards[place].shape)

    def _all_to_all(
        self,
        parts: list[Tensor],
        outgoing: list[list[tuple[int, Box]]],
        incoming: list[list[tuple[int, Box]]],
        like: Tensor,
    ) -> tuple[Tensor, Any]:
        sizes = [[sum(_numel(box) for _, box in some) for some in each] for each in (outgoing, incoming)]
        buffer = torch.cat(parts) if parts else like.new_empty(0)
        received = like.new_empty(sum(sizes[1]))
        # As bytes, since not every backend supports every dtype.
        width = like.element_size()
        handle = dist.all_to_all_single(
            received.view(torch.uint8),
            buffer.view(torch.uint8),
            [size * width for size in sizes[1]],
            [size * width for size in sizes[0]],
            group=self.group,
            async_op=True,
        )
        return received, (handle, buffer)  # the buffer must outlive the exchange

    def _unpacked(self, sent: Any, incoming: list[list[tuple[int, Box]]]) -> list[tuple[int, Box, Tensor]]:
        received, (handle, _) = sent
        handle.wait()
        flat = [(place, box) for some in incoming for place, box in some]
        pieces = received.split([_numel(box) for _, box in flat])
        return [
            (place, box, piece.view([end - start for start, end in box]))
            for (place, box), piece in zip(flat, pieces, strict=True)
        ]


def _numel(box: Box) -> int:
    count = 1
    for start, end in box:
        count *= end - start
    return count


def box_of(shape: torch.Size, placements: Sequence[Any], sizes: tuple[int, ...], coordinate: tuple[int, ...]) -> Box:
    """Start and end of the shard of a process along every dimension.

    Args:
        shape: shape of the whole tensor.
        placements: placements of a DTensor, one per dimension of the mesh.
        sizes: shape of the mesh.
        coordinate: coordinate of the process in the mesh.

    >>> box_of(torch.Size([5, 2]), [Shard(0)], sizes=(2,), coordinate=(1,))
    ((3, 5), (0, 2))
    """
    box = [(0, size) for size in shape]
    # A strided shard splits what later mesh dimensions have left: `fully_shard` over tensor parallelism.
    order = sorted(range(len(placements)), key=lambda place: hasattr(placements[place], "split_factor"))
    for place in order:
        placement = placements[place]
        if isinstance(placement, Replicate):
            continue
        if not (isinstance(placement, Shard) or hasattr(placement, "split_factor")):
            raise ValueError(f"a parameter must be sharded or replicated, got the placements {tuple(placements)}")
        dim = placement.dim % len(shape)
        start, end = box[dim]
        chunk = -(-(end - start) // sizes[place])
        low = min(start + chunk * coordinate[place], end)
        box[dim] = (low, min(low + chunk, end))
    return tuple(box)
