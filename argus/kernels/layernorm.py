"""LayerNorm of every row, of x or of x + residual, in one pass over memory: a row stays in registers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import argus
import argus.language as al
from argus.kernels.rows import CHUNK, CHUNK_WARPS, Spread, dtype_of, longest, matrix, same_shape, spread

if TYPE_CHECKING:
    import torch

LONGEST = 16384  # elements of a row in registers: differences from the mean, weight and bias leave no room for more
_LONG = 8192
"""Elements above which a row gets twice the threads: of blocks so large, few fit, and only with few registers."""


@argus.func
def normalised(values, live, N, eps):
    """(values - mean) / sqrt(variance + eps) of each row of N elements; the variance is of the differences."""
    count = N.to(al.float32)
    mean = al.sum(values, axis=1, keep_dims=True) / count
    centred = al.where(live, values - mean, 0.0)
    variance = al.sum(centred * centred, axis=1, keep_dims=True) / count
    return centred * al.rsqrt(variance + eps)


@argus.kernel
def layernorm_rows(
    x: al.Tensor[DTYPE, "M N"],
    weight: al.Tensor[WEIGHT, "N"],
    bias: al.Tensor[WEIGHT, "N"],
    out: al.Tensor[DTYPE, "M N"],
    eps: al.float32,
    DTYPE: al.constexpr = al.bfloat16,
    WEIGHT: al.constexpr = al.bfloat16,
    ROWS: al.constexpr = 4,
    BLOCK: al.constexpr = 1024,
):
    """`out[i, :] = (x[i, :] - mean) / sqrt(variance + eps) * weight + bias`; a block works on ROWS rows."""
    M, N = x.shape
    al.requires(N <= BLOCK)
    al.spec(
        out,
        lambda i, j: (
            (x[i, j] - al.sum(lambda k: x[i, k]) / N.to(al.float32))
            * al.rsqrt(
                al.sum(
                    lambda n: (
                        (x[i, n] - al.sum(lambda k: x[i, k]) / N.to(al.float32))
                        * (x[i, n] - al.sum(lambda k: x[i, k]) / N.to(al.float32))
                    )
                )
                / N.to(al.float32)
                + eps
            )
            * weight[j]
            + bias[j]
        ),
    )
    rows = al.grid(al.cdiv(M, ROWS)) * ROWS + al.arange(ROWS)
    cols = al.arange(BLOCK)
    live = (rows < M)[:, None] & (cols < N)
    values = al.load(x[rows[:, None], cols], mask=live).to(al.float32)
    normal = normalised(values, live, N, eps)
    scale = al.load(weight[cols], mask=cols < N)
    shift = al.load(bias[cols], mask=cols < N)
    result = normal * scale.to(al.float32) + shift.to(al.float32)
    al.store(out[rows[:, None], cols], result.to(DTYPE), mask=live)


@argus.kernel
def layernorm_long_rows(
    x: al.Tensor[DTYPE, "M N"],
    weight: al.Tensor[WEIGHT, "N"],
    bias: al.Tensor[WEIGHT, "N"],
    out: al.Tensor[DTYPE, "M N"],
    eps: al.float32,
    DTYPE: al.constexpr = al.bfloat16,
    WEIGHT: al.constexpr = al.bfloat16,
    BLOCK: al.constexpr = 4096,
):
    """The same for rows of any length, which are read three times, BLOCK elements at a time."""
    M, N = x.shape
    al.spec(
        out,
        lambda i, j: (
            (x[i, j] - al.sum(lambda k: x[i, k]) / N.to(al.float32))
            * al.rsqrt(
                al.sum(
                    lambda n: (
                        (x[i, n] - al.sum(lambda k: x[i, k]) / N.to(al.float32))
                        * (x[i, n] - al.sum(lambda k: x[i, k]) / N.to(al.float32))
                    )
                )
                / N.to(al.float32)
                + eps
            )
            * weight[j]
            + bias[j]
        ),
    )
    row = al.grid(M)
    total = al.zeros((BLOCK,), al.float32)
    for start in range(0, N, BLOCK):
        cols = start + al.arange(BLOCK)
        total += al.load(x[row, cols], mask=cols < N).to(al.float32)
    mean = al.sum(total) / N.to(al.float32)
    squares = al.zeros((BLOCK,), al.float32)
    for start in range(0, N, BLOCK):
        cols = start + al.arange(BLOCK)
        centred = al.where(cols < N, al.load(x[row, cols], mask=cols < N).to(al.float32) - mean, 0.0)
        squares += centred * centred
    inverse = al.rsqrt(al.sum(squares) / N.to(al.float32) + eps)
    for start in range(0, N, BLOCK):
        cols = start + al.arange(BLOCK)
        values = al.load(x[row, cols], mask=cols < N).to(al.float32)
        scale = al.load(weight[cols], mask=cols < N).to(al.float32)
        shift = al.load(bias[cols], mask=cols < N).to(al.float32)
        al.store(out[row, cols], ((values - mean) * inverse * scale + shift).to(DTYPE), mask=cols < N)


@argus.kernel
def add_layernorm_rows(
    x: al.Tensor[DTYPE, "M N"],
    residual: al.Tensor[DTYPE, "M N"],
    weight: al.Tensor[WEIGHT, "N"],
    bias: al.Tensor[WEIGHT, "N"],
    out: al.Tensor[DTYPE, "M N"],
    total: al.Tensor[DTYPE, "M N"],
    eps: al.float32,
    DTYPE: al.constexpr = al.bfloat16,
    WEIGHT: al.constexpr = al.bfloat16,
    ROWS: al.constexpr = 4,
    BLOCK: al.constexpr = 1024,
):
    """`total = x + residual`, `out = layernorm(total)`; what is normalised is the sum before it is rounded."""
    M, N = x.shape
    al.requires(N <= BLOCK)
    al.spec(total, lambda i, j: x[i, j] + residual[i, j])
    al.spec(
        out,
        lambda i, j: (
            (x[i, j] + residual[i, j] - al.sum(lambda k: x[i, k] + residual[i, k]) / N.to(al.float32))
            * al.rsqrt(
                al.sum(
                    lambda n: (
                        (x[i, n] + residual[i, n] - al.sum(lambda k: x[i, k] + residual[i, k]) / N.to(al.float32))
                        * (x[i, n] + residual[i, n] - al.sum(lambda k: x[i, k] + residual[i, k]) / N.to(al.float32))
                    )
                )
                / N.to(al.float32)
                + eps
            )
            * weight[j]
            + bias[j]
        ),
    )
    rows = al.grid(al.cdiv(M, ROWS)) * ROWS + al.arange(ROWS)
    cols = al.arange(BLOCK)
    live = (rows < M)[:, None] & (cols < N)
    first = al.load(x[rows[:, None], cols], mask=live)
    second = al.load(residual[rows[:, None], cols], mask=live)
    values = first.to(al.float32) + second.to(al.float32)
    al.store(total[rows[:, None], cols], values.to(DTYPE), mask=live)
    normal = normalised(values, live, N, eps)
    scale = al.load(weight[cols], mask=cols < N)
    shift = al.load(bias[cols], mask=cols < N)
    result = normal * scale.to(al.float32) + shift.to(al.float32)
    al.store(out[rows[:, None], cols], result.to(DTYPE), mask=live)


def layernorm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
    """LayerNorm along the last dimension, with `weight` and `bias` `[N]` of one dtype; in x's dtype. No gradient.

    All are of float32, float16 or bfloat16; the arithmetic is float32's; rows may be any distance apart.
    Raises LaunchError.
    """
    dtype, scale, rows = dtype_of("x", x), dtype_of("weight", weight), matrix(x)
    weight, bias = _parameters(weight, bias, rows.shape[1])
    out, types = rows.new_empty(rows.shape), {"DTYPE": dtype, "WEIGHT": scale}
    if rows.shape[1] > LONGEST:
        layernorm_long_rows(rows, weight, bias, out, eps, **types, BLOCK=CHUNK, num_warps=CHUNK_WARPS)
    else:
        s = _spread(rows.shape[1])
        layernorm_rows(rows, weight, bias, out, eps, **types, ROWS=s.rows, BLOCK=s.block, num_warps=s.warps)
    return out.view(x.shape)


def add_layernorm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5
) -> tuple[torch.Tensor, torch.Tensor]:
    """(layernorm(x + residual), x + residual), both in the dtype of `x` and `residual`. No gradient.

    See `layernorm`; rows have at most 16384 elements. The sum is normalised before it is rounded to its dtype.
    Raises LaunchError.
    """
    dtype, scale, rows = dtype_of("x", x), dtype_of("weight", weight), matrix(x)
    same_shape("residual", residual, tuple(x.shape))
    dtype_of("residual", residual, (dtype.name,))
    longest("x", rows, LONGEST)
    weight, bias = _parameters(weight, bias, rows.shape[1])
    out, total, s = rows.new_empty(rows.shape), rows.new_empty(rows.shape), _spread(rows.shape[1])
    constants = {"DTYPE": dtype, "WEIGHT": scale, "ROWS": s.rows, "BLOCK": s.block}
    add_layernorm_rows(rows, matrix(residual), weight, bias, out, total, eps, **constants, num_warps=s.warps)
    return out.view(x.shape), total.view(x.shape)


def _spread(columns: int) -> Spread:
    return spread(columns, 16) if columns > _LONG else spread(columns)


def _parameters(weight: torch.Tensor, bias: torch.Tensor, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    same_shape("weight", weight, (columns,))
    same_shape("bias", bias, (columns,))
    dtype_of("bias", bias, (str(weight.dtype).removeprefix("torch."),))
    return weight.contiguous(), bias.contiguous()
