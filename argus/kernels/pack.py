"""Pack operands of products into the form that the copy engine needs: rows along the depth, 16 bytes or a whole cache
line apart.

A copy moves the operand once in each direction through memory. A product whose threads load the operand costs several
times the time of the tensor cores. Large products of odd rows therefore begin with a copy. Products of few rows, which
memory limits, do without one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import argus
import argus.language as al
from argus.ir.types import DType
from argus.kernels.rows import vector
from argus.runtime.jit_kernel import JitKernel

if TYPE_CHECKING:
    import torch

_VECTOR = 16  # bytes
_SHIFTED = 8  # bytes: rows with a smaller alignment are loaded in whole vectors and shifted into place
_WORD = 4  # bytes of a bank


@argus.kernel(num_warps=8)
def pack_rows(
    x: al.Tensor[DTYPE, "M K"],
    out: al.Tensor[DTYPE, "M P"],
    DTYPE: al.constexpr = al.bfloat16,
    VECTOR: al.constexpr = 8,
    LOAD: al.constexpr = None,
    ROWS: al.constexpr = 32,
):
    """Compute `out[m, k] = x[m, k]`, and zeros behind. A warp moves 32 vectors of VECTOR elements of a row, and has
    four rows under way."""
    M, K = x.shape
    P = out.shape[1]
    al.tag(x, lambda m, k: (m, k))
    al.spec(out, lambda m, k: al.where(k < K, x[m, k], 0.0))
    COLUMNS = 32 * VECTOR
    pid_m, pid_k = al.grid(al.cdiv(M, ROWS), al.cdiv(P, COLUMNS))
    m, k = pid_m * ROWS + al.arange(ROWS), pid_k * COLUMNS + al.arange(COLUMNS)
    spread = al.blocked((ROWS, COLUMNS), (1, 0), VECTOR)
    inside = (m < M)[:, None] & (k < K)[None, :]
    loaded = al.load(x[m[:, None], k[None, :]], mask=inside, other=0.0, layout=spread, instruction=LOAD)
    al.assert_tags(
        lambda i, j: loaded[i, j] == (pid_m * ROWS + i, pid_k * COLUMNS + j),
        where=lambda i, j: (pid_m * ROWS + i < M) & (pid_k * COLUMNS + j < K),
    )
    al.store(out[m[:, None], k[None, :]], loaded, mask=(m < M)[:, None] & (k < P)[None, :])


@argus.kernel(num_warps=8)
def pack_columns(
    x: al.Tensor[DTYPE, "K M"],
    out: al.Tensor[DTYPE, "M P"],
    DTYPE: al.constexpr = al.bfloat16,
    PAD: al.constexpr = 2,
    TILE: al.constexpr = 64,
):
    """Compute `out[m, k] = x[k, m]`, and zeros behind: tile by tile through shared memory, element by element there.
    PAD elements behind each row keep the lanes that gather a column in different banks."""
    K, M = x.shape
    P = out.shape[1]
    al.tag(x, lambda k, m: (m, k))
    al.spec(out, lambda m, k: al.where(k < K, x[k, m], 0.0))
    pid_m, pid_k = al.grid(al.cdiv(M, TILE), al.cdiv(P, TILE))
    m0, k0 = pid_m * TILE, pid_k * TILE
    tile = al.shared((TILE, TILE + PAD), DTYPE)[:, 0:TILE]
    al.store(tile, al.load(x[k0 : k0 + TILE, m0 : m0 + TILE], boundary_check=(0, 1)))
    al.barrier()
    turned = al.load(al.trans(tile))
    al.assert_tags(lambda i, j: turned[i, j] == (m0 + i, k0 + j), where=lambda i, j: (m0 + i < M) & (k0 + j < K))
    al.store(out[m0 : m0 + TILE, k0 : k0 + TILE], turned, boundary_check=(0, 1))


def kernel_for(x: torch.Tensor, dtype: DType, *, rows: bool) -> tuple[JitKernel, dict[str, object]]:
    """Return the kernel that packs `x`, and its constants. The rows of `x` are those of the packed matrix or, without
    `rows`, its columns."""
    if not rows:
        return pack_columns, {"DTYPE": dtype, "PAD": _WORD // dtype.bytes}
    aligned = vector(x) * dtype.bytes >= _SHIFTED
    load = None if aligned else "ld.global.unaligned"
    return pack_rows, {"DTYPE": dtype, "VECTOR": _VECTOR // dtype.bytes, "LOAD": load}
