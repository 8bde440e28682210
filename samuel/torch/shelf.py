"""Storage: the vectors that belong to the parameters of one device, packed into rows of one array.

What is done with them is said by `samuel.core.rays`; nothing here knows why. Every vector has a view for every
parameter, and those views are what the optimizer's state shows. Three ways to do the same: packed rows (the default), a
plain loop over parameters (the reference), and on a GPU the kernels of `samuel.torch.kernels`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from samuel.core.rays import Moves, Rays
from samuel.torch import lists

ALIGNED = 64
"""Every parameter begins at a multiple of this, so that kernels can load many numbers at once."""
MULTIPLE = 4096
"""Rows are filled up with zeros to a multiple of this, so that kernels need no masks."""
NEGLIGIBLE = 1e-12
"""An `lr` below this is 0: schedulers that end at 0 end near it, on either side."""
CHUNK = 1 << 18
"""Numbers of a row that are worked on at a time: they stay in the processor's cache."""


def is_spread(tensor: Tensor) -> bool:
    """Whether a tensor is spread over processes (a `DTensor`); not importing what nobody has asked for."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def is_split(tensor: Any) -> bool:
    """Whether some process lacks a part of a tensor; the answer is the same in all of them."""
    if not is_spread(tensor):
        return False
    places = enumerate(tensor.placements)
    return any(not place.is_replicate() and tensor.device_mesh.size(dim) > 1 for dim, place in places)


def raw(tensor: Any) -> Tensor:
    """The real numbers of a tensor that are on this device: its shard, and complex numbers as pairs."""
    if is_spread(tensor):
        tensor = tensor.to_local()
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def dressed(view: Tensor, like: Tensor) -> Tensor:
    """Real numbers on this device as a tensor of the kind of another, complex if that is."""
    return torch.view_as_complex(view) if like.is_complex() else view


def placed(local: Tensor, like: Any) -> Tensor:
    """A shard of something that is spread over processes as a parameter is."""
    if not is_spread(like):
        return local
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(
        local, like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
    )


def wide_dtype(param: Tensor) -> torch.dtype:
    """In which dtype a parameter's vectors are kept: 16 bits are too few to add small steps up."""
    real = raw(param).dtype
    return torch.float64 if real == torch.float64 else torch.float32


def shelf_key(param: Any) -> tuple[torch.device, torch.dtype, Any]:
    """Parameters with the same key can be on one shelf."""
    spread = None
    if is_spread(param):
        sharded = tuple(place.is_shard() for place in param.placements)
        if any(place.is_partial() for place in param.placements):
            raise ValueError(f"a parameter cannot be a partial sum, got one placed as {param.placements}")
        spread = (param.device_mesh, sharded)
    return raw(param).device, wide_dtype(param), spread


class Shelf:
    """The vectors of some parameters on one device.

    Args:
        params: the parameters.
        rays: which vectors there are.
        anchor_dtype: dtype of those that change only when a block ends; None for that of the others.
    """

    def __init__(self, params: Sequence[Tensor], rays: Rays, anchor_dtype: torch.dtype | None) -> None:
        self.params = list(params)
        self.device, self.dtype, self.spread = shelf_key(params[0])
        self.shapes = [raw(p).shape for p in params]
        # Views lie in memory as the parameter does, and without gaps.
        self.strides = [torch.empty_like(raw(p), device="meta").stride() for p in params]
        sizes = [shape.numel() for shape in self.shapes]
        self.offsets, self.size = _packed(sizes)
        self.enters = rays.enters
        self.moving = self.rows(len(rays.moving))
        self.kept = self.rows(len(rays.kept), anchor_dtype)
        self.average = self.rows(1 if rays.averages else 0)
        """One row: the average of the parameters; none, where there is no average to keep."""
        self.directions = self.rows(rays.directions)
        self.gradient = self.rows(1)[0]
        self.gradient_views = self.views(self.gradient)
        self.direction_views = [self.views(row) for row in self.directions]
        self.names = (*rays.moving, *rays.kept)
        self.some_missing, self.fresh = False, True
        """Whether parameters lack a gradient, and whether others do than before: what the gradient has there is 0."""
        ends = [*self.offsets[1:], self.size]
        gaps = [self.gradient[at + size : end] for at, size, end in zip(self.offsets, sizes, ends, strict=True)]
        self._gaps = [gap for gap in gaps if gap.numel()]
        self._given_back = False
        self._plain = self.spread is None and not any(p.is_complex() for p in params)
        short = [i for i, p in enumerate(params) if raw(p).dtype in (torch.float16, torch.bfloat16)]
        self.remainders = {i: torch.zeros_like(raw(params[i])) for i in short}
        """Of parameters of 16 bits, what they could not hold of the steps so far."""
        self._dense = all(raw(p).stride() == strides for p, strides in zip(params, self.strides, strict=True))
        self._table: Any = None
        self._assigned: Any = None

    # Rows and views

    def rows(self, count: int, dtype: torch.dtype | None = None) -> Tensor:
        """New rows of zeros."""
        return torch.zeros(count, self.size, dtype=dtype or self.dtype, device=self.device)

    def row_of(self, members: Sequence[int]) -> tuple[Tensor, dict[int, Tensor]]:
        """A new row of zeros with room for some of the parameters, and its view for each of these."""
        offsets, size = _packed([self.shapes[i].numel() for i in members])
        row = torch.zeros(size, dtype=self.dtype, device=self.device)
        places = zip(members, offsets, strict=True)
        return row, {i: row.as_strided(self.shapes[i], self.strides[i], offset) for i, offset in places}

    def view(self, row: Tensor, i: int) -> Tensor:
        """The part of a row that belongs to parameter `i`, in its shape."""
        return row.as_strided(self.shapes[i], self.strides[i], row.storage_offset() + self.offsets[i])

    def views(self, row: Tensor) -> list[Tensor]:
        """The parts of a row that belong to each parameter."""
        return [self.view(row, i) for i in range(len(self.params))]

    def basis(self) -> dict[str, Tensor]:
        """The basis vectors, one row each."""
        return dict(zip(self.names, [*self.moving, *self.kept], strict=True))

    # What is done with them

    def raws(self, tensors: Any) -> list[Tensor]:
        """What `raw` makes of tensors like our parameters."""
        return tensors if self._plain else [raw(tensor) for tensor in tensors]

    def take_memory(self) -> None:
        """Make room for the gradient and the directions, which live for one step only."""
        if self._given_back:
            for rows in (self.gradient, self.directions):
                rows.untyped_storage().resize_(rows.numel() * rows.element_size())
            self._given_back = False
            for gap in self._gaps:
                gap.zero_()
        if self.some_missing or self.fresh:
            self.gradient.zero_()
            self.fresh = False

    def leave_memory(self) -> None:
        """Give that room back to a device that lends it quickly; a captured graph keeps its own."""
        if self.device.type == "cuda" and not torch.cuda.is_current_stream_capturing():
            for rows in (self.gradient, self.directions):
                rows.untyped_storage().resize_(0)
            self._given_back = True

    def products(self, foreach: bool) -> Tensor:
        """`<g, b>` of every vector of the basis, and `<g, g>`, in single precision.

        Summed over all processes that hold a part.
        """
        if foreach and kernels_fit(self):
            from samuel.torch import kernels

            square = torch.linalg.vector_norm(self.gradient).square()  # of rows of any length, unlike torch.dot
            found = torch.cat([kernels.dots(self.gradient, self.moving, self.kept), square.reshape(1)])
        elif foreach:
            found = self._packed_products()
        else:
            found = self._plain_products()
        if self.spread is not None:
            mesh, sharded = self.spread
            for dim, is_sharded in enumerate(sharded):
                if is_sharded:
                    torch.distributed.all_reduce(found, group=mesh.get_group(dim))
        return found

    def take_step(self, moves: Moves, numbers: Tensor | None, foreach: bool) -> None:
        """The update, into the first row of `directions`, and the basis after the step.

        The directions are steps already taken downhill: what enters is minus them.

        Args:
            moves: what is to be done.
            numbers: the same in one row, as `in_one_row` makes it, if there is a device to read it.
            foreach: work on packed rows, or in a plain loop over parameters.
        """
        if foreach and kernels_fit(self):
            from samuel.torch import kernels

            assert numbers is not None, "numbers on a device go with parameters on a device"
            kernels.step(self.moving, self.kept, self.directions, numbers, self.enters)
        elif foreach:
            self._packed_step(moves)
        else:
            self._plain_step(moves)

    def _plain_products(self) -> Tensor:
        rows = [*self.basis().values(), self.gradient]
        return torch.stack([self._dot_of_views(row) for row in rows]).to(torch.float32)

    def _dot_of_views(self, row: Tensor) -> Tensor:
        total = torch.zeros((), dtype=self.dtype, device=self.device)
        for gradient, view in zip(self.gradient_views, self.views(row), strict=True):
            total = total + torch.sum(gradient * view.to(self.dtype))
        return total

    def _packed_products(self) -> Tensor:
        parts = []
        for start in range(0, self.size, self._chunk):
            columns = slice(start, start + self._chunk)
            g = self.gradient[columns]
            rows = (self.moving, self.kept, self.gradient[None])
            parts.append(torch.cat([torch.mv(some[:, columns].to(self.dtype), g) for some in rows]))
        return torch.stack(parts).sum(0).to(torch.float32)

    def _plain_step(self, moves: Moves) -> None:
        moves = self._beside(moves)
        basis, moved = list(self.basis().values()), len(self.moving)
        for i in range(len(self.params)):
            views = [self.view(row, i).to(self.dtype) for row in basis]
            steps = [-self.view(row, i) for row in self.directions]
            update = torch.zeros_like(steps[0])
            for factor, vector in zip([*moves.difference, *moves.along], [*views, *steps], strict=True):
                update += factor * vector
            for row in range(moved):
                views[row] = moves.keep[row] * views[row]
                for k, step in enumerate(steps):
                    if self.enters[row][k]:
                        views[row] += moves.enter[row][k] * step
            if moves.due:
                new = [torch.zeros_like(update) for _ in basis]
                for row, line in enumerate(moves.rewrite):
                    for factor, view in zip(line, views, strict=True):
                        new[row] += factor * view
                views = new
            for row, view in zip(basis, views, strict=True):
                self.view(row, i).copy_(view)
            self.view(self.directions[0], i).copy_(update)

    def _packed_step(self, moves: Moves) -> None:
        moves, moved = self._beside(moves), len(self.moving)
        keep = moves.keep[:, None]
        for start in range(0, self.size, self._chunk):
            columns = slice(start, start + self._chunk)
            moving, kept, steps = self.moving[:, columns], self.kept[:, columns], self.directions[:, columns]
            update = torch.mv(moving.T, moves.difference[:moved])
            if len(kept):
                update.addmv_(kept.to(self.dtype).T, moves.difference[moved:])
            update.addmv_(steps.T, moves.along, alpha=-1)
            moving.mul_(keep).addmm_(moves.enter, steps, alpha=-1)
            steps[0].copy_(update)
            # On a device we do not wait to hear whether a block has ended: where none has, this changes nothing.
            if self.device.type != "cpu" or moves.due:
                new = moves.rewrite @ torch.cat([moving, kept.to(self.dtype)])
                moving.copy_(new[:moved])
                kept.copy_(new[moved:])

    def _beside(self, moves: Moves) -> Moves:
        """The moves as tensors of this device."""
        numbers = (torch.as_tensor(part, dtype=self.dtype, device=self.device) for part in moves)
        return Moves(*numbers)

    @property
    def _chunk(self) -> int:
        return CHUNK if self.device.type == "cpu" else self.size

    def moves_in_place(self, foreach: bool) -> bool:
        """Whether one kernel moves the parameters together with the rows."""
        return foreach and kernels_fit(self) and not self.remainders and self._dense

    def move(self, numbers: Tensor, rate: Tensor, groups: Sequence[dict[str, Any]], of_group: list[int]) -> None:
        """The step as `take_step` and `apply` take it, in one pass.

        Args:
            numbers: the moves in one row.
            rate: the learning rate, for weight decay.
            groups: the parameter groups.
            of_group: the group of each parameter; -1 for one that is not to be moved.
        """
        from samuel.torch import kernels

        addresses = [tensor.data_ptr() for tensor in self.raws(self.params)]
        if self._table is None or self._table.addresses != addresses:
            sizes = [shape.numel() for shape in self.shapes]
            self._table = kernels.Table(addresses, self.offsets, sizes, len(groups), self.device)
            self._assigned = None
        if self._assigned is not of_group:
            self._table.assign(of_group)
            self._assigned = of_group
        for place, group in enumerate(groups):
            self._table.set_factors(place, multiplier(group["lr"]), group["weight_decay"])
        self._table.step(self.moving, self.kept, self.directions, numbers, rate, self.enters)

    def average_along(self, pace: Any, foreach: bool) -> None:
        """Let the average, where there is one, go this part of the way to the parameters.

        Uses up the first row of `directions`.

        Args:
            pace: a number, or a tensor on this device, which is not waited for.
            foreach: work on all parameters at once, or in a plain loop over them.
        """
        if not len(self.average):
            return
        now, pace = self.raws(self.params), pace.to(self.dtype) if isinstance(pace, Tensor) else float(pace)
        if not foreach:
            for view, p in zip(self.views(self.average[0]), now, strict=True):
                view += pace * (p.to(self.dtype) - view)
        elif isinstance(pace, Tensor) or self.remainders:  # lists know numbers only, and one dtype
            lists.copy_(self.direction_views[0], now)
            self.average[0].lerp_(self.directions[0], pace)
        else:
            lists.lerp_(self.views(self.average[0]), now, pace)

    def fill_where(self, flag: Any, row: Tensor, value: float) -> None:
        """Fill a row with a value if the flag says so; a tensor is not waited for."""
        if not isinstance(flag, Tensor):
            if flag:
                row.fill_(value)
        elif kernels_fit(self):
            from samuel.torch import kernels

            kernels.fill_where(flag, row, value)
        else:
            row.masked_fill_(flag, value)

    def apply(self, members: Sequence[int], targets: list[Tensor], shrink: Any) -> None:
        """Add the update to some parameters.

        Args:
            members: which ones.
            targets: their numbers.
            shrink: which part of themselves they lose, too; None for nothing.
        """
        updates = [self.direction_views[0][i] for i in members]
        if not self.remainders:
            if shrink is not None:
                scale(targets, 1 - shrink)
            lists.add_(targets, updates)
            return
        for i, target, update in zip(members, targets, updates, strict=True):
            here = target.to(self.dtype)
            wanted = update if shrink is None else update - shrink * here
            if i in self.remainders:
                wanted = wanted + self.remainders[i].to(self.dtype)
            target.copy_(here + wanted)
            if i in self.remainders:
                self.remainders[i].copy_(wanted - (target.to(self.dtype) - here))


def _packed(sizes: Sequence[int]) -> tuple[list[int], int]:
    """Where in a row parameters of these sizes begin, and how long the row is."""
    ends = np.cumsum(-(-np.asarray(sizes) // ALIGNED) * ALIGNED)
    offsets = [int(offset) for offset in np.append(0, ends)[:-1]]
    return offsets, max(1, -(-int(ends[-1]) // MULTIPLE)) * MULTIPLE  # not 0, even where this process holds nothing


def multiplier(lr: Any) -> Any:
    """A group's `lr` as a number, or as a tensor if a device has it; exactly 0 where it is negligible."""
    if isinstance(lr, Tensor) and lr.device.type != "cpu":
        return torch.where(lr.abs() < NEGLIGIBLE, torch.zeros_like(lr), lr)
    lr = float(lr)
    return 0.0 if abs(lr) < NEGLIGIBLE else lr


def scale(tensors: list[Tensor], factor: Any) -> None:
    """Multiply tensors of one device by a number, which a device is not asked for."""
    if not isinstance(factor, Tensor) or factor.device.type == "cpu":
        lists.mul_(tensors, float(factor))
    else:
        lists.mul_(tensors, factor.to(tensors[0].device, tensors[0].dtype).reshape(()))


def in_one_row(moves: Moves) -> Tensor:
    """The moves as kernels read them: difference, along, keep, enter, due, rewrite; and the pace, which they do not."""
    parts = (moves.difference, moves.along, moves.keep, moves.enter, moves.due, moves.rewrite, moves.pace)
    return torch.cat([part.reshape(-1).to(torch.float32) for part in parts])


def from_one_row(row: Tensor, restarted: Tensor, reset: Tensor, m: int, k: int, d: int) -> Moves:
    """The moves that `in_one_row` made a row of, as views of it."""
    ends = np.cumsum([m + k, d, m, m * d, 1, (m + k) ** 2])
    difference, along, keep, enter, due, rewrite, pace = torch.tensor_split(row, ends.tolist())
    due, enter, rewrite, pace = due.reshape(()), enter.reshape(m, d), rewrite.reshape(m + k, m + k), pace.reshape(())
    return Moves(difference, along, keep, enter, due, rewrite, restarted, reset, pace)


def kernels_fit(shelf: Shelf) -> bool:
    """Whether the kernels are written for this: single precision on a GPU that Triton knows."""
    return shelf.device.type == "cuda" and shelf.dtype == torch.float32 and _has_triton()


def _has_triton() -> bool:
    global _triton
    if _triton is None:
        try:
            import triton  # noqa: F401  # pyright: ignore[reportMissingImports]

            _triton = True
        except ImportError:
            _triton = False
    return _triton


_triton: bool | None = None
