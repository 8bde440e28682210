"""Matrices that are spread over processes: each process makes some of them whole, works on them and sends them back.

Orthogonalisation needs whole matrices, and with `fully_shard`, tensor parallelism or both no process has one. So every
matrix has an owner, chosen once such that all owners have about as much to do. In a step two exchanges bring all
shards of a matrix to its owner, and the shards of the result back; each moves the matrices' bytes once. Where every
process has whole matrices (DDP), the owners' results are exchanged and nothing else. Stacks of matrices that are
split between matrices are worked on where they are.

Exchanges are bucketed: while the owners of a bucket work, the shards of the next are on their way.
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
"""Where a shard begins and ends in its tensor, along every dimension."""
Work = Callable[[list[int], list[Tensor]], list[Tensor]]
"""Gives one result for each of some whole tensors, whose places in the list of all come first."""

BUCKET = 2**23
"""Numbers of a bucket for each process, at least: 16 MB in 16 bits. Messages to many processes become no smaller."""


@dataclass(frozen=True)
class Spread:
    """How one tensor lies on the processes of a group.

    Args:
        shape: of the whole tensor.
        boxes: the shard of every process, by rank in the group.
        senders: the processes whose shards together make up the tensor, each part once.
        stack: dimensions along which matrices are stacked, so that each can be worked on without the others.
    """

    shape: torch.Size
    boxes: tuple[Box, ...]
    senders: tuple[int, ...]
    stack: tuple[int, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether every process has all of it."""
        return all(box == self.boxes[0] for box in self.boxes)

    @property
    def is_local(self) -> bool:
        """Whether every shard has whole matrices."""
        matrix = [dim for dim in range(len(self.shape)) if dim not in self.stack]
        return not self.is_whole and all(box[dim] == (0, self.shape[dim]) for box in self.boxes for dim in matrix)


def spread_of(parameter: Tensor, group_size: int = 1, stack: Sequence[int] = ()) -> Spread:
    """How a parameter lies on the processes of its mesh, or whole on each of a group's.

    Args:
        parameter: a DTensor, or a tensor that every process of a group has.
        group_size: number of processes, if it is not a DTensor.
        stack: dimensions along which matrices are stacked.

    >>> spread_of(torch.zeros(3, 2), group_size=2).boxes
    (((0, 3), (0, 2)), ((0, 3), (0, 2)))
    """
    if not isinstance(parameter, DTensor):
        whole = tuple((0, size) for size in parameter.shape)
        return Spread(parameter.shape, (whole,) * group_size, (0,), tuple(stack))
    mesh, placements = parameter.device_mesh, parameter.placements
    sizes = tuple(mesh.mesh.shape)
    coordinates = list(itertools.product(*(range(size) for size in sizes)))
    boxes = tuple(box_of(parameter.shape, placements, sizes, c) for c in coordinates)
    replicated = [place for place, placement in enumerate(placements) if isinstance(placement, Replicate)]
    senders = tuple(rank for rank, c in enumerate(coordinates) if all(c[place] == 0 for place in replicated))
    return Spread(parameter.shape, boxes, senders, tuple(stack))


def exchange_of(parameters: Sequence[Tensor], roles: Sequence[Role], group: Any = None) -> Exchange:
    """The exchange by which processes share the orthogonalisation of some matrices.

    Args:
        parameters: all on one mesh, or all whole in every process of a group.
        roles: of the parameters.
        group: the processes that have them, if they are on no mesh.
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
    spreads = [spread_of(p, size, stack_of(role, p.ndim)) for p, role in zip(parameters, roles, strict=True)]
    costs = [orthogonalisation_flops(role, p.shape) for p, role in zip(parameters, roles, strict=True)]
    return Exchange(spreads, costs, group)


def owners(costs: Sequence[float], processes: int) -> list[int]:
    """An owner for each of some pieces of work, such that no process has much more to do than another.

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
    """Work on whole tensors whose shards are on several processes, each process on its share of them.

    Args:
        spreads: how each tensor lies on the processes.
        costs: of the work on each.
        group: the processes; None for all of them.
        bucket: numbers for each process that are sent at once, at least.
    """

    def __init__(
        self, spreads: Sequence[Spread], costs: Sequence[float], group: Any = None, bucket: int = BUCKET
    ) -> None:
        self.spreads = list(spreads)
        self.group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        for spread in self.spreads:
            if len(spread.boxes) != self.size:
                raise ValueError(
                    f"a tensor of shape {tuple(spread.shape)} lies on {len(spread.boxes)} processes, and the group "
                    f"has {self.size}; use one exchange for each mesh"
                )
        self.owners = owners(costs, self.size)
        self.local = [spread.is_local for spread in self.spreads]
        self.buckets: list[list[int]] = []
        least = numbers = bucket * self.size
        for place, spread in enumerate(self.spreads):
            if self.local[place]:
                continue
            if numbers >= least:
                self.buckets.append([])
                numbers = 0
            self.buckets[-1].append(place)
            numbers += spread.shape.numel()

    def bytes_moved(self, width: int) -> int:
        """Bytes that this process sends to others in a step.

        Args:
            width: bytes of a number.
        """
        sent = 0
        for bucket in self.buckets:
            _, outgoing, _ = self._gathering(bucket)
            _, returning, _ = self._returning(bucket)
            for parts in (outgoing, returning):
                sent += sum(_numel(box) for rank, some in enumerate(parts) if rank != self.rank for _, box in some)
        return sent * width

    def __call__(self, shards: Sequence[Tensor], work: Work) -> list[Tensor]:
        """The shards of what the work gives for the whole tensors.

        Args:
            shards: this process's, one of each tensor, all of one dtype.
            work: called with tensors that are whole, or stacks of whole matrices.
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

    # What goes where: for every other process a list of (place, box)

    def _gathering(
        self, bucket: list[int]
    ) -> tuple[list[int], list[list[tuple[int, Box]]], list[list[tuple[int, Box]]]]:
        split = [place for place in bucket if not self.spreads[place].is_whole]
        outgoing: list[list[tuple[int, Box]]] = [[] for _ in range(self.size)]
        incoming: list[list[tuple[int, Box]]] = [[] for _ in range(self.size)]
        for place in split:
            spread, owner = self.spreads[place], self.owners[place]
            if self.rank in spread.senders:
                outgoing[owner].append((place, spread.boxes[self.rank]))
            if owner == self.rank:
                for sender in spread.senders:
                    incoming[sender].append((place, spread.boxes[sender]))
        return split, outgoing, incoming

    def _returning(
        self, bucket: list[int]
    ) -> tuple[list[int], list[list[tuple[int, Box]]], list[list[tuple[int, Box]]]]:
        outgoing: list[list[tuple[int, Box]]] = [[] for _ in range(self.size)]
        incoming: list[list[tuple[int, Box]]] = [[] for _ in range(self.size)]
        for place in bucket:
            spread, owner = self.spreads[place], self.owners[place]
            incoming[owner].append((place, spread.boxes[self.rank]))
            if owner == self.rank:
                for rank in range(self.size):
                    outgoing[rank].append((place, spread.boxes[rank]))
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
                wholes[place] = shards[place].new_empty(self.spreads[place].shape)
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
        # Bytes, since not every backend has every dtype.
        width = like.element_size()
        handle = dist.all_to_all_single(
            received.view(torch.uint8),
            buffer.view(torch.uint8),
            [size * width for size in sizes[1]],
            [size * width for size in sizes[0]],
            group=self.group,
            async_op=True,
        )
        return received, (handle, buffer)  # the buffer is kept until the exchange is done

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
    """Where the shard of a process begins and ends.

    Args:
        shape: of the whole tensor.
        placements: one for each dimension of the mesh, as a DTensor has them.
        sizes: of the mesh.
        coordinate: of the process in the mesh.

    >>> box_of(torch.Size([5, 2]), [Shard(0)], sizes=(2,), coordinate=(1,))
    ((3, 5), (0, 2))
    """
    box = [(0, size) for size in shape]
    # A strided shard is one of what the mesh dimensions after it have left: `fully_shard` over tensor parallelism.
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
