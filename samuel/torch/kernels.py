"""The passes over packed rows as GPU kernels, in Triton.

Each reads every stored number once and writes only what changes. Whether a block has ended is decided on the device:
the host never waits to hear of it. The plain versions in `samuel.torch.shelf` are the reference, and what every other
device runs.
"""

# Inside a kernel the language is Triton's: an int there has a dtype.
# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false, reportMissingImports=false
from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

DOTS_BLOCK = 4096
"""Numbers of every row that one program of the first pass reads; rows are a multiple of it long."""
STEP_BLOCK = 1024
"""The same for the others."""


def dots(gradient: Tensor, moving: Tensor, kept: Tensor) -> Tensor:
    """`<g, b>` of every row, in one pass."""
    size = gradient.numel()
    programs, rows = size // DOTS_BLOCK, len(moving) + len(kept)
    partial = torch.empty(programs, rows, dtype=torch.float32, device=gradient.device)
    with torch.cuda.device(gradient.device):
        _dots[(programs,)](gradient, moving, kept, partial, size, len(moving), len(kept), DOTS_BLOCK, num_warps=8)
    return partial.sum(0)


class Table:
    """Where the parameters of a shelf are, for a kernel that goes through all of them.

    Args:
        addresses: of the first number of each.
        offsets: where each begins in a row.
        sizes: how many numbers each has.
        groups: how many parameter groups there are.
    """

    def __init__(self, addresses: list[int], offsets: list[int], sizes: list[int], groups: int, device: torch.device):
        def column(values: list[int]) -> Tensor:
            return torch.tensor(values, dtype=torch.int64, device=device)

        self.addresses, self._addresses = addresses, column(addresses)
        self._offsets, self._sizes = column(offsets), column(sizes)
        owners = [i for i, size in enumerate(sizes) for _ in range(0, size, STEP_BLOCK)]
        starts = [start for size in sizes for start in range(0, size, STEP_BLOCK)]
        self._owners, self._starts = column(owners), column(starts)
        self._groups = column([-1] * len(sizes))
        self._factors = torch.zeros(groups, 2, device=device)
        self._given: list[Any] = [None] * groups

    def assign(self, groups: list[int]) -> None:
        """Say which parameter group each belongs to; -1 for one that is not to be moved now."""
        self._groups = torch.tensor(groups, dtype=torch.int64, device=self._groups.device)

    def set_factors(self, group: int, lr: Any, decay: Any) -> None:
        """Set the `lr` and the weight decay of a group."""
        lr_now, shrink_now = self._factors[group]
        if isinstance(lr, Tensor) and lr.device.type != "cpu":
            lr_now.copy_(lr.reshape(()))
            shrink_now.copy_((lr * decay).reshape(()))
        elif (given := (float(lr), float(lr) * float(decay))) != self._given[group]:
            lr_now.fill_(given[0])
            shrink_now.fill_(given[1])
            self._given[group] = given

    def step(
        self, moving: Tensor, kept: Tensor, directions: Tensor, numbers: Tensor, rate: Tensor, enters: np.ndarray
    ) -> None:
        """Move the parameters, and the basis with them, blocks that have ended included.

        Args:
            moving: the basis vectors that change in every step.
            kept: those that change only when a block ends.
            directions: minus what the base gave.
            numbers: the moves in one row: difference, along, keep, enter, due, rewrite.
            rate: the learning rate, for weight decay.
            enters: which directions enter which moving vectors at all.
        """
        size, m, k, d = moving.shape[1], len(moving), len(kept), len(directions)
        tables = (self._owners, self._starts, self._addresses, self._offsets, self._sizes, self._groups, self._factors)
        with torch.cuda.device(moving.device):
            if len(self._owners):
                rows = (moving, kept, directions, numbers, rate, *tables, size)
                _step[(len(self._owners),)](*rows, m, k, d, _bits(enters), STEP_BLOCK, True, num_warps=4)
            _rewrite_if_due(moving, kept, numbers, d)


def step(moving: Tensor, kept: Tensor, directions: Tensor, numbers: Tensor, enters: np.ndarray) -> None:
    """The update, into the first row of `directions`, and the basis after the step; see `Table.step`."""
    size, m, k, d = moving.shape[1], len(moving), len(kept), len(directions)
    nothing = [numbers] * 8
    with torch.cuda.device(moving.device):
        rows = (moving, kept, directions, numbers, *nothing, size)
        _step[(size // STEP_BLOCK,)](*rows, m, k, d, _bits(enters), STEP_BLOCK, False, num_warps=4)
        _rewrite_if_due(moving, kept, numbers, d)


def _bits(enters: np.ndarray) -> int:
    return sum(1 << place for place, enters_here in enumerate(enters.ravel()) if enters_here)


def _rewrite_if_due(moving: Tensor, kept: Tensor, numbers: Tensor, d: int) -> None:
    size, m, k = moving.shape[1], len(moving), len(kept)
    padded = triton.next_power_of_2(m), triton.next_power_of_2(max(1, k))
    programs = min(size // STEP_BLOCK, 4 * _processors(moving.device))
    at_due = m + k + d + m + m * d
    _rewrite[(programs,)](moving, kept, numbers, size, m, k, *padded, at_due, STEP_BLOCK, num_warps=4)


def fill_where(flag: Tensor, row: Tensor, value: float) -> None:
    """Fill a row with a value if the flag is true."""
    size = row.numel()
    with torch.cuda.device(row.device):
        programs = min(size // STEP_BLOCK, 4 * _processors(row.device))
        _fill[(programs,)](flag.view(torch.uint8), row, float(value), size, STEP_BLOCK, num_warps=4)


@functools.lru_cache(maxsize=16)
def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


@triton.jit
def _dots(gradient, moving, kept, out, size, M: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr):
    program = tl.program_id(0).to(tl.int64)
    length = size.to(tl.int64)
    at = program * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(gradient + at)
    for row in tl.static_range(M):
        tl.store(out + program * (M + K) + row, tl.sum(g * tl.load(moving + row * length + at)))
    for row in tl.static_range(K):
        vector = tl.load(kept + row * length + at).to(tl.float32)
        tl.store(out + program * (M + K) + M + row, tl.sum(g * vector))


@triton.jit
def _step(
    moving,
    kept,
    directions,
    numbers,
    rate,
    owners,
    starts,
    addresses,
    offsets,
    sizes,
    groups,
    factors,
    size,
    M: tl.constexpr,
    K: tl.constexpr,
    D: tl.constexpr,
    ENTERS: tl.constexpr,
    BLOCK: tl.constexpr,
    IN_PLACE: tl.constexpr,
):
    length = size.to(tl.int64)
    program = tl.program_id(0).to(tl.int64)
    if IN_PLACE:  # a block of one parameter, which is moved
        owner = tl.load(owners + program)
        within = tl.load(starts + program) + tl.arange(0, BLOCK)
        inside = within < tl.load(sizes + owner)
        at = tl.load(offsets + owner) + within
        group = tl.load(groups + owner)
        lr = tl.load(factors + 2 * group, mask=group >= 0, other=0.0)
    else:  # a block of a row; the update takes the place of the first direction
        at = program * BLOCK + tl.arange(0, BLOCK)
        inside = at < length
        lr = 1.0
    update = tl.zeros((BLOCK,), tl.float32)
    for k in tl.static_range(D):
        update -= tl.load(numbers + M + K + k) * lr * tl.load(directions + k * length + at, mask=inside, other=0.0)
    for row in tl.static_range(M):
        old = tl.load(moving + row * length + at, mask=inside, other=0.0)
        update += tl.load(numbers + row) * old
        new = tl.load(numbers + M + K + D + row) * old
        for k in tl.static_range(D):
            if (ENTERS >> (row * D + k)) & 1:
                direction = tl.load(directions + k * length + at, mask=inside, other=0.0)
                new -= tl.load(numbers + M + K + D + M + row * D + k) * lr * direction
        tl.store(moving + row * length + at, new, mask=inside)
    for row in tl.static_range(K):
        update += tl.load(numbers + M + row) * tl.load(kept + row * length + at, mask=inside, other=0.0).to(tl.float32)
    if IN_PLACE:
        if group >= 0:
            here = tl.load(addresses + owner).to(tl.pointer_type(tl.float32)) + within
            shrink = tl.load(rate) * tl.load(factors + 2 * group + 1)
            old = tl.load(here, mask=inside, other=0.0)
            # An lr of 0 stops everything, also what weights that move from rate to rate would do.
            tl.store(here, old * (1.0 - shrink) + update, mask=inside & (lr != 0.0))
    else:
        tl.store(directions + at, update, mask=inside)


@triton.jit
def _rewrite(
    moving,
    kept,
    numbers,
    size,
    M: tl.constexpr,
    K: tl.constexpr,
    PADDED_M: tl.constexpr,
    PADDED_K: tl.constexpr,
    AT_DUE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    if tl.load(numbers + AT_DUE) > 0:
        length = size.to(tl.int64)
        of_moving, of_kept = tl.arange(0, PADDED_M), tl.arange(0, PADDED_K)
        for block in range(tl.program_id(0), size // BLOCK, tl.num_programs(0)):
            at = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
            at_moving = of_moving[:, None] * length + at[None, :]
            at_kept = of_kept[:, None] * length + at[None, :]
            old_moving = tl.load(moving + at_moving, mask=of_moving[:, None] < M, other=0.0)
            old_kept = tl.load(kept + at_kept, mask=of_kept[:, None] < K, other=0.0).to(tl.float32)
            for row in tl.static_range(M + K):
                line = numbers + AT_DUE + 1 + row * (M + K)
                new = tl.sum(tl.load(line + of_moving, mask=of_moving < M, other=0.0)[:, None] * old_moving, axis=0)
                new += tl.sum(tl.load(line + M + of_kept, mask=of_kept < K, other=0.0)[:, None] * old_kept, axis=0)
                if row < M:
                    tl.store(moving + row * length + at, new)
                else:
                    tl.store(kept + (row - M) * length + at, new.to(kept.dtype.element_ty))


@triton.jit
def _fill(flag, row, value, size, BLOCK: tl.constexpr):
    if tl.load(flag) != 0:
        for block in range(tl.program_id(0), size // BLOCK, tl.num_programs(0)):
            tl.store(row + block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK), value)
