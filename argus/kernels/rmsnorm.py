"""RMSNorm of every row, in one pass over memory: a row stays in the registers of one warp or of a few."""

from __future__ import annotations

from typing import TYPE_CHECKING

import argus
import argus.language as al
from argus.kernels.rows import dtype_of, matrix, same_shape, spread

if TYPE_CHECKING:
    import torch


@argus.kernel
def rmsnorm_rows(
    x: al.Tensor[DTYPE, "M N"],
    weight: al.Tensor[WEIGHT, "N"],
    out: al.Tensor[DTYPE, "M N"],
    eps: al.float32,
    DTYPE: al.constexpr = al.bfloat16,
    WEIGHT: al.constexpr = al.bfloat16,
    ROWS: al.constexpr = 4,
    BLOCK: al.constexpr = 1024,
):
    """`out[i, j] = x[i, j] / sqrt(mean(x[i, :] ** 2) + eps) * weight[j]`; a block works on ROWS rows."""
    M, N = x.shape
    al.requires(N <= BLOCK)
    al.spec(
        out,
        lambda i, j: x[i, j] * al.rsqrt(al.sum(lambda k: x[i, k] * x[i, k]) / N.to(al.float32) + eps) * weight[j],
    )
    rows = al.grid(al.cdiv(M, ROWS)) * ROWS + al.arange(ROWS)
    cols = al.arange(BLOCK)
    live = (rows < M)[:, None] & (cols < N)
    values = al.load(x[rows[:, None], cols], mask=live).to(al.float32)
    scale = al.load(weight[cols], mask=cols < N)
    squares = al.sum(values * values, axis=1, keep_dims=True)
    inverse = al.rsqrt(squares / N.to(al.float32) + eps)
    al.store(out[rows[:, None], cols], (values * inverse * scale.to(al.float32)).to(DTYPE), mask=live)


def rmsnorm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """RMSNorm along the last dimension, scaled by `weight` `[N]`, in x's dtype; float32 arithmetic. No gradient.

    `x` and `weight` are of float32, float16 or bfloat16, each its own; rows may be any distance apart.
    Raises LaunchError.
    """
    dtype, scale, rows = dtype_of("x", x), dtype_of("weight", weight), matrix(x)
    same_shape("weight", weight, (rows.shape[1],))
    out = rows.new_empty(rows.shape)
    s = spread(rows.shape[1])
    rmsnorm_rows(
        rows, weight.contiguous(), out, eps, DTYPE=dtype, WEIGHT=scale, ROWS=s.rows, BLOCK=s.block, num_warps=s.warps
    )
    return out.view(x.shape)
