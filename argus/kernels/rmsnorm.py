"""RMSNorm of every row, in one pass over memory: a row stays in the registers of one warp or of a few."""

from __future__ import annotations

from typing import TYPE_CHECKING

import argus
import argus.language as al
from argus.backend.launch.evaluate import Number
from argus.kernels.rows import CHUNK, CHUNK_WARPS, LONGEST_ROW, balanced, dtype_of, matrix, same_shape, shaped
from argus.runtime.recipe import Function, Work

if TYPE_CHECKING:
    import torch


@argus.func
def mean_square(x, i):
    """Of row i: what specifications say."""
    return al.sum(lambda k: x[i, k] * x[i, k]) / x.shape[1].to(al.float32)


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
    al.spec(out, lambda i, j: x[i, j] * al.rsqrt(mean_square(x, i) + eps) * weight[j])
    rows = al.grid(al.cdiv(M, ROWS)) * ROWS + al.arange(ROWS)
    cols = al.arange(BLOCK)
    live = (rows < M)[:, None] & (cols < N)
    values = al.load(x[rows[:, None], cols], mask=live).to(al.float32)
    squares = al.sum(values * values, axis=1, keep_dims=True)
    inverse = al.rsqrt(squares / N.to(al.float32) + eps)
    scale = al.load(weight[cols], mask=cols < N)
    al.store(out[rows[:, None], cols], (values * inverse * scale.to(al.float32)).to(DTYPE), mask=live)


@argus.kernel
def rmsnorm_long_rows(
    x: al.Tensor[DTYPE, "M N"],
    weight: al.Tensor[WEIGHT, "N"],
    out: al.Tensor[DTYPE, "M N"],
    eps: al.float32,
    DTYPE: al.constexpr = al.bfloat16,
    WEIGHT: al.constexpr = al.bfloat16,
    BLOCK: al.constexpr = 4096,
):
    """The same for rows of any length, which are read twice, BLOCK elements at a time."""
    M, N = x.shape
    al.spec(out, lambda i, j: x[i, j] * al.rsqrt(mean_square(x, i) + eps) * weight[j])
    row = al.grid(M)
    squares = al.zeros((BLOCK,), al.float32)
    for start in range(0, N, BLOCK):
        cols = start + al.arange(BLOCK)
        values = al.load(x[row, cols], mask=cols < N).to(al.float32)
        squares += values * values
    inverse = al.rsqrt(al.sum(squares) / N.to(al.float32) + eps)
    for start in range(0, N, BLOCK):
        cols = start + al.arange(BLOCK)
        values = al.load(x[row, cols], mask=cols < N).to(al.float32)
        scale = al.load(weight[cols], mask=cols < N).to(al.float32)
        al.store(out[row, cols], (values * inverse * scale).to(DTYPE), mask=cols < N)


def rmsnorm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """RMSNorm along the last dimension, scaled by `weight` `[N]`, in x's dtype; float32 arithmetic. No gradient.

    `x` and `weight` are of float32, float16 or bfloat16, each its own; rows may be any distance apart.
    Raises LaunchError.
    """
    result: torch.Tensor = _rmsnorm((x, weight), (eps,))
    return result


def _work(tensors: tuple[torch.Tensor, ...], numbers: tuple[Number, ...]) -> Work:
    x, weight = tensors
    dtype, scale, rows = dtype_of("x", x), dtype_of("weight", weight), matrix(x)
    same_shape("weight", weight, (rows.shape[1],))
    out = rows.new_empty(rows.shape)
    if rows.shape[1] > LONGEST_ROW:
        kernel, shape = rmsnorm_long_rows, {"BLOCK": CHUNK, "num_warps": CHUNK_WARPS}
    else:
        s = balanced(rows.shape[1], dtype.bytes)
        kernel, shape = rmsnorm_rows, {"ROWS": s.rows, "BLOCK": s.block, "num_warps": s.warps}
    constants = {"DTYPE": dtype, "WEIGHT": scale, **shape}
    return Work(kernel, (rows, weight.contiguous()), (out,), (shaped(out, x),), numbers, constants)


_rmsnorm = Function(_work)
