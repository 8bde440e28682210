"""The passes over packed rows as GPU kernels, in Triton.

Each reads every stored number once and writes only what changes. Whether a block has ended is decided on the device:
the host never waits to hear of it. The plain versions in `samuel.torch.shelf` are the reference, and what every other
device runs.
"""

from __future__ import annotations

import functools

import numpy as np
import torch
import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]
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


def step(moving: Tensor, kept: Tensor, directions: Tensor, numbers: Tensor, enters: np.ndarray) -> None:
    """The update, into the first row of `directions`, and the basis after the step, blocks that have ended included.

    Args:
        moving: the basis vectors that change in every step.
        kept: those that change only when a block ends.
        directions: minus what the base gave.
        numbers: the moves in one row: difference, along, keep, enter, due, rewrite.
        enters: which directions enter which moving vectors at all.
    """
    size, m, k, d = moving.shape[1], len(moving), len(kept), len(directions)
    bits = sum(1 << place for place, enters_here in enumerate(enters.ravel()) if enters_here)
    with torch.cuda.device(moving.device):
        _step[(size // STEP_BLOCK,)](moving, kept, directions, numbers, size, m, k, d, bits, STEP_BLOCK, num_warps=4)
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
    size,
    M: tl.constexpr,
    K: tl.constexpr,
    D: tl.constexpr,
    ENTERS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    length = size.to(tl.int64)
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    update = tl.zeros((BLOCK,), tl.float32)
    for k in tl.static_range(D):
        update -= tl.load(numbers + M + K + k) * tl.load(directions + k * length + at)
    for row in tl.static_range(M):
        old = tl.load(moving + row * length + at)
        update += tl.load(numbers + row) * old
        new = tl.load(numbers + M + K + D + row) * old
        for k in tl.static_range(D):
            if (ENTERS >> (row * D + k)) & 1:
                new -= tl.load(numbers + M + K + D + M + row * D + k) * tl.load(directions + k * length + at)
        tl.store(moving + row * length + at, new)
    for row in tl.static_range(K):
        update += tl.load(numbers + M + row) * tl.load(kept + row * length + at).to(tl.float32)
    tl.store(directions + at, update)


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
