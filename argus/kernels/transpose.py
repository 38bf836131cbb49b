"""Transposition of a matrix, tile by tile through shared memory, so that both sides move whole vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import argus
import argus.language as al
from argus.kernels.rows import dtype_of, matrix, same_rank

if TYPE_CHECKING:
    import torch


@argus.kernel
def transpose_tiles(
    x: al.Tensor[DTYPE, "M N"],
    out: al.Tensor[DTYPE, "N M"],
    DTYPE: al.constexpr = al.bfloat16,
    CHUNK: al.constexpr = 3,
):
    """`out[n, m] = x[m, n]`, in square tiles with rows of 8 vectors of 2 ** CHUNK elements.

    Shared memory: the vectors of row m are permuted by an XOR with m >> CHUNK. So the 8 lanes that gather a column,
    2 ** CHUNK rows each, find it in 8 different vectors, which lie in different banks.
    """
    M, N = x.shape
    al.spec(out, lambda n, m: x[m, n])
    TILE = 8 << CHUNK
    pid_m, pid_n = al.grid(al.cdiv(M, TILE), al.cdiv(N, TILE))
    m0, n0 = pid_m * TILE, pid_n * TILE
    tile = al.shared((TILE, TILE), DTYPE, layout=al.swizzle(3, CHUNK, CHUNK + 3))
    al.store(tile, al.load(x[m0 : m0 + TILE, n0 : n0 + TILE], boundary_check=(0, 1)))
    al.barrier()
    al.store(out[n0 : n0 + TILE, m0 : m0 + TILE], al.load(al.trans(tile)), boundary_check=(0, 1))


def transpose(x: torch.Tensor) -> torch.Tensor:
    """The contiguous transpose of a float32, float16 or bfloat16 matrix, whose rows may be any distance apart.

    Tiles are 128 bytes wide, a cache line, on both sides; a thread moves four vectors. No gradient.
    Raises LaunchError.
    """
    dtype = dtype_of("x", x)
    same_rank("x", x, 2)
    rows = matrix(x)
    out = rows.new_empty(rows.shape[::-1])
    chunk, warps = (3, 4) if dtype.bytes == 2 else (2, 2)
    transpose_tiles(rows, out, DTYPE=dtype, CHUNK=chunk, num_warps=warps)
    return out
