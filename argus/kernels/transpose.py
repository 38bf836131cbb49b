"""Transpose a matrix tile by tile through shared memory, so that both sides move whole vectors."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import argus
import argus.language as al
from argus.backend.launch.evaluate import Number
from argus.ir.machine import H200
from argus.ir.target import TARGETS
from argus.ir.types import DType
from argus.kernels.rows import dtype_of, matrix, same_rank, vector
from argus.runtime.device import target_of
from argus.runtime.function import Function, Operator
from argus.runtime.work import Call, Work
from argus.torch.gradient import attach

if TYPE_CHECKING:
    import torch


_MANY, _TILE, _FILLED = 1000, 256, H200.multiprocessors
"""Rows of x: of fewer, too many tiles would be the last, and hold but what the others leave. Bytes of a row of a large
tile, and how many of these it takes: one for each multiprocessor, as small matrices are done sooner in small tiles."""


@argus.kernel
def transpose_tiles(
    x: al.Tensor[DTYPE, "M N"],
    out: al.Tensor[DTYPE, "N M"],
    DTYPE: al.constexpr = al.bfloat16,
    VECTOR: al.constexpr = 3,
    WIDTH: al.constexpr = 4,
    PAD: al.constexpr = 0,
):
    """Compute `out[n, m] = x[m, n]`, in square tiles of 8 * 2 ** WIDTH rows; a vector has 2 ** VECTOR elements.

    Shared memory: the vectors of row m are permuted by an XOR with m >> VECTOR. So the lanes that gather a column, a
    vector of rows each, find it in 8 different vectors, which lie in different banks. For access element by element,
    PAD elements behind each row do the same.
    """
    M, N = x.shape
    al.spec(out, lambda n, m: x[m, n])
    TILE = 8 << WIDTH
    pid_m, pid_n = al.grid(al.cdiv(M, TILE), al.cdiv(N, TILE))
    m0, n0 = pid_m * TILE, pid_n * TILE
    if PAD:
        tile = al.shared((TILE, TILE + PAD), DTYPE)[:, 0:TILE]
    else:
        tile = al.shared((TILE, TILE), DTYPE, layout=al.swizzle(3, VECTOR, WIDTH + 3))
    al.store(tile, al.load(x[m0 : m0 + TILE, n0 : n0 + TILE], boundary_check=(0, 1)))
    al.barrier()
    al.store(out[n0 : n0 + TILE, m0 : m0 + TILE], al.load(al.trans(tile)), boundary_check=(0, 1))


@argus.kernel
def transpose_to_odd_rows(
    x: al.Tensor[DTYPE, "M N"],
    out: al.Tensor[DTYPE, "N M"],
    DTYPE: al.constexpr = al.bfloat16,
    TILE: al.constexpr = 128,
    WIDTH: al.constexpr = 8,
    SECTOR: al.constexpr = 16,
    STEP: al.constexpr = 15,
):
    """Transpose to rows of `out` that each begin STEP elements further behind a sector of the memory, of SECTOR
    elements.

    The tile of `out` begins as many before a whole tile: its rows are whole sectors, in vectors of WIDTH, but for the
    ends. So it takes SECTOR rows of x more.
    """
    M, N = x.shape
    al.requires(M <= 2**31 - 2 * TILE)
    al.spec(out, lambda n, m: x[m, n])
    pid_m, pid_n = al.grid(al.cdiv(M + SECTOR - 1, TILE), al.cdiv(N, TILE))
    m0, n0 = pid_m * TILE, pid_n * TILE
    tile = al.shared((TILE + SECTOR, TILE + 1), DTYPE)
    rows, cols = al.arange(TILE + SECTOR)[:, None], al.arange(TILE)
    places = m0 - SECTOR + rows
    there = (0 <= places) & (places < M) & (n0 + cols < N)
    way = al.blocked((TILE + SECTOR, TILE), (1, 0), WIDTH)
    al.store(tile[rows, cols], al.load(x[places, n0 + cols], mask=there, layout=way))
    al.barrier()
    n = n0 + al.arange(TILE)[:, None]
    back = n % SECTOR * STEP % SECTOR
    m = m0 + al.arange(TILE) - back
    values = al.load(
        tile[SECTOR + cols - back, al.arange(TILE)[:, None]], layout=al.blocked((TILE, TILE), (1, 0), WIDTH)
    )
    al.store(out[n, m], values, mask=(n < N) & (0 <= m) & (m < M), instruction="st.global.cut")


def transpose(x: torch.Tensor) -> torch.Tensor:
    """Return the contiguous transpose `[N, M]` of a float32, float16 or bfloat16 matrix `[M, N]`, in its dtype.

    Rows may be any distance apart. If the transpose of `x` is contiguous already, the result is a view of `x`, as
    PyTorch's `x.t().contiguous()` is. Raises LaunchError.
    """
    if x.ndim == 2 and (x.stride(0) == 1 or x.shape[0] == 1) and x.t().is_contiguous():
        return x.t()
    result: torch.Tensor = _transpose((x,))
    return result


def _work(tensors: tuple[torch.Tensor, ...], _numbers: tuple[Number, ...]) -> Work:
    (x,) = tensors
    dtype = _checked(x)
    rows = matrix(x)
    out = rows.new_empty(rows.shape[::-1])
    reads, writes = (vector(t) * dtype.bytes == 16 for t in (rows, out))
    tile, sector = _TILE // dtype.bytes, 32 // dtype.bytes
    many = len(rows) >= _MANY and prod(-(-n // tile) for n in rows.shape) >= _FILLED
    if reads and not writes and many and target_of(str(x.device)) != "gfx942":
        shape = {
            "TILE": tile,
            "WIDTH": sector // 2,
            "SECTOR": sector,
            "STEP": len(rows) % sector,
            "num_warps": 16,
        }
        return Work((Call(transpose_to_odd_rows, (rows, out), {"DTYPE": dtype, **shape}),), (out,))
    target, chosen = TARGETS[target_of(str(x.device))], _tile(dtype.bytes, reads, writes)
    warps = min(chosen["num_warps"], target.max_threads // target.warp_size)
    constants = {"DTYPE": dtype, **chosen, "num_warps": warps}
    return Work((Call(transpose_tiles, (rows, out), constants),), (out,))


def _checked(x: torch.Tensor) -> DType:
    """Return the dtype. Raises LaunchError."""
    same_rank("x", x, 2)
    return dtype_of("x", x)


def _fake(x: torch.Tensor) -> torch.Tensor:
    _checked(x)
    return x.new_empty((x.shape[1], x.shape[0]))


def _backward(_ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
    return transpose(gradient)


_transpose = Function(_work, Operator("transpose(Tensor x) -> Tensor", _fake))
attach(_transpose, _backward)


def _tile(itemsize: int, reads: bool, writes: bool) -> dict[str, int]:
    """Choose the tile. `reads`: the matrix has rows of whole vectors; `writes`: the result has. If both have, the tile
    is 256 bytes wide.

    If the result is written element by element, tiles are wide, because rows share sectors of the memory at the edges
    of tiles. If only the matrix is read so, tiles are small, because more of them run at a time.
    """
    wide = {"VECTOR": 3, "WIDTH": 4} if itemsize == 2 else {"VECTOR": 2, "WIDTH": 3}
    if not writes:
        return {**wide, "PAD": 4 // itemsize, "num_warps": 32 if reads else 8}
    return {**wide, "num_warps": 16} if reads else {**wide, "WIDTH": 3, "num_warps": 8}
