"""Apply LayerNorm to every row of x, or of x + residual, in one pass over memory: a row stays in registers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import argus
import argus.language as al
from argus.backend.launch.evaluate import Number
from argus.ir.types import DType
from argus.kernels.rows import (
    SMALL,
    columns,
    dtype_of,
    fitting,
    held,
    longest,
    longest_held,
    matrix,
    same_shape,
    shaped,
    spread,
    vector,
)
from argus.kernels.steps import arrived, bring, found_by_all, mean, piece, piece_of, variance
from argus.runtime.function import Function, Operator
from argus.runtime.work import Call, Work

if TYPE_CHECKING:
    import torch

LONGEST = 6144
"""Elements of a row that stays in the registers of 4 warps, beside its weights. Of larger blocks few fit a
multiprocessor, which load together and then compute together: longer rows wait in shared memory."""
_LONGEST_SUM = {2: 12288, 4: 16384}
"""Elements, by their bytes, of a row of x and one of residual: they take twice the shared memory."""


@argus.func
def normal(x, weight, bias, eps, i, j):
    """Return the result at row i, column j."""
    return (x[i, j] - mean(x, i)) * al.rsqrt(variance(x, i) + eps) * weight[j] + bias[j]


@argus.func
def mean_of_sum(x, y, i):
    """Return the mean of row i of x + y."""
    return al.sum(lambda k: x[i, k] + y[i, k]) / x.shape[1].to(al.float32)


@argus.func
def variance_of_sum(x, y, i):
    """Return the variance of row i of x + y."""
    return al.sum(
        lambda n: (x[i, n] + y[i, n] - mean_of_sum(x, y, i)) * (x[i, n] + y[i, n] - mean_of_sum(x, y, i))
    ) / x.shape[1].to(al.float32)


@argus.func
def normal_of_sum(x, y, weight, bias, eps, i, j):
    """Return the result for x + y at row i, column j."""
    centred = x[i, j] + y[i, j] - mean_of_sum(x, y, i)
    return centred * al.rsqrt(variance_of_sum(x, y, i) + eps) * weight[j] + bias[j]


@argus.func
def normalised(values, live, N, eps):
    """Return (values - mean) / sqrt(variance + eps) for each row of N elements. The variance is computed from the
    differences."""
    count = N.to(al.float32)
    mean = al.sum(values, axis=1, keep_dims=True) / count
    centred = al.where(live, values - mean, 0.0)
    variance = al.sum(centred * centred, axis=1, keep_dims=True) / count
    return centred * al.rsqrt(variance + eps)


@argus.func
def store_scaled(out, normal, weight, bias, rows, cols, live):
    """Store normal * weight + bias in the columns `cols` of the output's rows."""
    scale = al.load(weight[cols], mask=cols < out.shape[1])
    shift = al.load(bias[cols], mask=cols < out.shape[1])
    result = normal * scale.to(al.float32) + shift.to(al.float32)
    al.store(out[rows[:, None], cols], result.to(out.dtype), mask=live)


@argus.func
def waiting(held, added, part):
    """Return a part of such a row, or of the sum of two such rows."""
    cols = al.arange(held.shape[1])
    if added is None:
        values = al.load(held[part, cols]).to(al.float32)
    else:
        values = al.load(held[part, cols]).to(al.float32) + al.load(added[part, cols]).to(al.float32)
    return values


@argus.func
def of_all_blocks(found, told):
    """Return the sum of the results of all blocks of the cluster, and send the own result to all of them."""
    return found if told.shape[0] == 1 else al.sum(found_by_all(found, told))


@argus.func
def write_held(held, added, weight, bias, out, total, row, begin, eps, CLUSTER):
    """LayerNorm of such a row, which all blocks have; the sum of two rows goes to `total`."""
    N, BLOCKS, BLOCK = out.shape[1], held.shape[0], held.shape[1]
    arrived(CLUSTER)
    sums, squares = al.shared((CLUSTER,), al.float32), al.shared((CLUSTER,), al.float32)
    first = begin + al.arange(BLOCK)
    collected = al.zeros((BLOCK,), al.float32)
    for part in range(BLOCKS):
        values = waiting(held, added, part)
        if total is not None:
            places = first + part * BLOCK
            al.store(total[row, places], values.to(total.dtype), mask=places < N)
        collected += values
    mean = of_all_blocks(al.sum(collected), sums) / N.to(al.float32)
    deviations = al.zeros((BLOCK,), al.float32)
    for part in range(BLOCKS):
        centred = al.where(first + part * BLOCK < N, waiting(held, added, part) - mean, 0.0)
        deviations += centred * centred
    inverse = al.rsqrt(of_all_blocks(al.sum(deviations), squares) / N.to(al.float32) + eps)
    for part in range(BLOCKS):
        places = first + part * BLOCK
        values = waiting(held, added, part)
        scale = piece_of(weight, places)
        shift = piece_of(bias, places)
        al.store(out[row, places], ((values - mean) * inverse * scale + shift).to(out.dtype), mask=places < N)


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
    FROM: al.constexpr = 0,
):
    """Compute `out[i, :] = (x[i, :] - mean) / sqrt(variance + eps) * weight + bias`; a block works on ROWS rows."""
    M, N = x.shape
    al.invariant(out, M)
    al.requires(FROM <= N <= BLOCK)
    al.spec(out, lambda i, j: normal(x, weight, bias, eps, i, j))
    rows = al.grid(al.cdiv(M, ROWS)) * ROWS + al.arange(ROWS)
    cols = al.arange(BLOCK)
    live = (rows < M)[:, None] & (cols < N)
    values = al.load(x[rows[:, None], cols], mask=live).to(al.float32)
    store_scaled(out, normalised(values, live, N, eps), weight, bias, rows, cols, live)


@argus.kernel
def layernorm_held_rows(
    x: al.Tensor[DTYPE, "M N"],
    weight: al.Tensor[WEIGHT, "N"],
    bias: al.Tensor[WEIGHT, "N"],
    out: al.Tensor[DTYPE, "M N"],
    eps: al.float32,
    DTYPE: al.constexpr = al.bfloat16,
    WEIGHT: al.constexpr = al.bfloat16,
    BLOCK: al.constexpr = 4096,
    BLOCKS: al.constexpr = 4,
    COPY: al.constexpr = "cp.async",
    CLUSTER: al.constexpr = 1,
):
    """Normalize rows of at most CLUSTER * BLOCKS * BLOCK elements, which wait in the shared memory of one block or
    of all blocks of a cluster: registers hold but BLOCK."""
    M, N = x.shape
    al.invariant(out, M)
    al.requires((N <= CLUSTER * BLOCKS * BLOCK) & (M <= 2**31 // CLUSTER - 1))
    al.spec(out, lambda i, j: normal(x, weight, bias, eps, i, j))
    row = al.grid(M * CLUSTER, cluster=CLUSTER) // CLUSTER
    begin = al.cluster_rank() * (BLOCKS * BLOCK)
    held = al.shared((BLOCKS, BLOCK), DTYPE)
    bring(held, x, row, begin, COPY)
    write_held(held, None, weight, bias, out, None, row, begin, eps, CLUSTER)


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
    """Normalize rows of any length, which are read three times, BLOCK elements at a time."""
    M, N = x.shape
    al.invariant(out, M)
    al.spec(out, lambda i, j: normal(x, weight, bias, eps, i, j))
    row = al.grid(M)
    total = al.zeros((BLOCK,), al.float32)
    for start in range(0, N, BLOCK):
        cols = start + al.arange(BLOCK)
        total += piece(x, row, cols)
    mean = al.sum(total) / N.to(al.float32)
    squares = al.zeros((BLOCK,), al.float32)
    for start in range(0, N, BLOCK):
        cols = start + al.arange(BLOCK)
        centred = al.where(cols < N, piece(x, row, cols) - mean, 0.0)
        squares += centred * centred
    inverse = al.rsqrt(al.sum(squares) / N.to(al.float32) + eps)
    for start in range(0, N, BLOCK):
        cols = start + al.arange(BLOCK)
        values = piece(x, row, cols)
        scale = piece_of(weight, cols)
        shift = piece_of(bias, cols)
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
    FROM: al.constexpr = 0,
):
    """Compute `total = x + residual`, `out = layernorm(total)`; what is normalised is the sum before it is rounded."""
    M, N = x.shape
    al.invariant(total, M)
    al.invariant(out, M)
    al.requires(FROM <= N <= BLOCK)
    al.spec(total, lambda i, j: x[i, j] + residual[i, j])
    al.spec(out, lambda i, j: normal_of_sum(x, residual, weight, bias, eps, i, j))
    rows = al.grid(al.cdiv(M, ROWS)) * ROWS + al.arange(ROWS)
    cols = al.arange(BLOCK)
    live = (rows < M)[:, None] & (cols < N)
    first = al.load(x[rows[:, None], cols], mask=live)
    second = al.load(residual[rows[:, None], cols], mask=live)
    values = first.to(al.float32) + second.to(al.float32)
    al.store(total[rows[:, None], cols], values.to(DTYPE), mask=live)
    store_scaled(out, normalised(values, live, N, eps), weight, bias, rows, cols, live)


@argus.kernel
def add_layernorm_held_rows(
    x: al.Tensor[DTYPE, "M N"],
    residual: al.Tensor[DTYPE, "M N"],
    weight: al.Tensor[WEIGHT, "N"],
    bias: al.Tensor[WEIGHT, "N"],
    out: al.Tensor[DTYPE, "M N"],
    total: al.Tensor[DTYPE, "M N"],
    eps: al.float32,
    DTYPE: al.constexpr = al.bfloat16,
    WEIGHT: al.constexpr = al.bfloat16,
    BLOCK: al.constexpr = 4096,
    BLOCKS: al.constexpr = 4,
    COPY: al.constexpr = "cp.async",
    CLUSTER: al.constexpr = 1,
):
    """Add and normalize rows of at most CLUSTER * BLOCKS * BLOCK elements, as in `layernorm_held_rows`."""
    M, N = x.shape
    al.invariant(total, M)
    al.invariant(out, M)
    al.requires((N <= CLUSTER * BLOCKS * BLOCK) & (M <= 2**31 // CLUSTER - 1))
    al.spec(total, lambda i, j: x[i, j] + residual[i, j])
    al.spec(out, lambda i, j: normal_of_sum(x, residual, weight, bias, eps, i, j))
    row = al.grid(M * CLUSTER, cluster=CLUSTER) // CLUSTER
    begin = al.cluster_rank() * (BLOCKS * BLOCK)
    held, added = al.shared((BLOCKS, BLOCK), DTYPE), al.shared((BLOCKS, BLOCK), DTYPE)
    bring(held, x, row, begin, COPY)
    bring(added, residual, row, begin, COPY)
    write_held(held, added, weight, bias, out, total, row, begin, eps, CLUSTER)


def layernorm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
    """LayerNorm along the last dimension, with `weight` and `bias` `[N]` of one dtype; in x's dtype. Differentiable.

    All are of float32, float16 or bfloat16; the arithmetic is float32's; rows may be any distance apart.
    Raises LaunchError.
    """
    result: torch.Tensor = layernorm_function((x, weight, bias), (eps,))
    return result


def add_layernorm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return `(layernorm(x + residual), x + residual)`, both in the shape and dtype of `x` and `residual`.

    `weight`, `bias` and the dtypes are those of `layernorm`. A row has at most 96 KiB, on sm_90a 192 KiB. The sum is
    normalised before it is rounded to its dtype. No gradient. Raises LaunchError.
    """
    results: tuple[torch.Tensor, torch.Tensor] = _add_layernorm((x, residual, weight, bias), (eps,))
    return results


def _work(tensors: tuple[torch.Tensor, ...], numbers: tuple[Number, ...]) -> Work:
    x, weight, bias = tensors
    dtype, scale = _checked(x, weight, bias)
    rows, weight, bias = matrix(x), weight.contiguous(), bias.contiguous()
    out = rows.new_empty(rows.shape)
    kernel, shape = fitting(rows, LONGEST, layernorm_rows, layernorm_held_rows, layernorm_long_rows)
    constants = {"DTYPE": dtype, "WEIGHT": scale, **shape}
    return Work((Call(kernel, (rows, weight, bias, out, *numbers), constants),), (shaped(out, x),))


def _work_of_sum(tensors: tuple[torch.Tensor, ...], numbers: tuple[Number, ...]) -> Work:
    x, residual, weight, bias = tensors
    dtype, scale = _checked(x, weight, bias, residual)
    rows = matrix(x)
    read = rows, matrix(residual), weight.contiguous(), bias.contiguous()
    longest("x", rows, max(_LONGEST_SUM[dtype.bytes], longest_held(*read[:2])))
    made = rows.new_empty(rows.shape), rows.new_empty(rows.shape)
    shape: Mapping[str, int | str | None]
    if rows.shape[1] <= _LONGEST_SUM[dtype.bytes]:
        kernel, shape = add_layernorm_rows, spread(rows.shape[1], dtype.bytes, SMALL, 16, vector(rows)).constants
    else:
        kernel, shape = add_layernorm_held_rows, held(*read[:2])
    results = tuple(shaped(t, x) for t in made)
    return Work((Call(kernel, (*read, *made, *numbers), {"DTYPE": dtype, "WEIGHT": scale, **shape}),), results)


def _checked(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, residual: torch.Tensor | None = None
) -> tuple[DType, DType]:
    """Return the dtypes of x and the parameters. Raises LaunchError."""
    dtype, scale = dtype_of("x", x), dtype_of("weight", weight)
    same_shape("weight", weight, (columns(x),))
    same_shape("bias", bias, (columns(x),))
    dtype_of("bias", bias, (scale.name,))
    if residual is not None:
        same_shape("residual", residual, tuple(x.shape))
        dtype_of("residual", residual, (dtype.name,))
    return dtype, scale


def _fake(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, _eps: float) -> torch.Tensor:
    _checked(x, weight, bias)
    return x.new_empty(x.shape)


def _fake_sum(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, _eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    _checked(x, weight, bias, residual)
    return x.new_empty(x.shape), x.new_empty(x.shape)


layernorm_function = Function(
    _work, Operator("layernorm(Tensor x, Tensor weight, Tensor bias, float eps=1e-5) -> Tensor", _fake, batch=1)
)
_add_layernorm = Function(
    _work_of_sum,
    Operator(
        "add_layernorm(Tensor x, Tensor residual, Tensor weight, Tensor bias, float eps=1e-5) -> (Tensor, Tensor)",
        _fake_sum,
        batch=2,
    ),
)
