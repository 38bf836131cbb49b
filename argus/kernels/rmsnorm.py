"""RMSNorm of every row in one pass over memory: a row stays in the registers of one or a few warps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import argus
import argus.language as al
from argus.backend.launch.evaluate import Number
from argus.ir.types import DType
from argus.kernels.rows import LEAST_AROUND, around, columns, dtype_of, fitting, matrix, same_shape, shaped, step_of
from argus.kernels.steps import arrived, bring, columns_of, found_by_all, mean_square, piece, piece_of
from argus.runtime.function import Function, Operator
from argus.runtime.work import Call, Work

if TYPE_CHECKING:
    import torch


LONGEST = 12288  # elements of a row in registers: of longer ones too few blocks fit a multiprocessor
_HELD = (3, 4, 5)  # vectors of an odd row in a thread, beside its weights


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
    FROM: al.constexpr = 0,
    STEP: al.constexpr = 0,
    WIDTH: al.constexpr = 1,
):
    """Compute `out[i, j] = x[i, j] / sqrt(mean(x[i, :] ** 2) + eps) * weight[j]`; a block works on ROWS rows.

    Of rows that begin STEP elements each behind an aligned address, vectors of WIDTH are those of the memory.
    """
    M, N = x.shape
    al.invariant(out, M)
    al.requires(FROM <= N <= BLOCK - WIDTH + 1)
    al.spec(out, lambda i, j: x[i, j] * al.rsqrt(mean_square(x, i) + eps) * weight[j])
    rows = al.grid(al.cdiv(M, ROWS)) * ROWS + al.arange(ROWS)
    cols, way, load, keep = columns_of(rows, BLOCK, STEP, WIDTH)
    inside = (0 <= cols) & (cols < N) if STEP else cols < N
    live = (rows < M)[:, None] & inside
    x_tile = al.load(x[rows[:, None], cols], mask=live, layout=way, instruction=load)
    values = x_tile.to(al.float32)
    squares = al.sum(values * values, axis=1, keep_dims=True)
    inverse = al.rsqrt(squares / N.to(al.float32) + eps)
    scale = al.load(weight[cols], mask=inside, layout=way)
    places = out[rows[:, None], cols]
    al.store(places, (values * inverse * scale.to(al.float32)).to(DTYPE), mask=live, instruction=keep)


@argus.kernel
def rmsnorm_held_rows(
    x: al.Tensor[DTYPE, "M N"],
    weight: al.Tensor[WEIGHT, "N"],
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
    al.spec(out, lambda i, j: x[i, j] * al.rsqrt(mean_square(x, i) + eps) * weight[j])
    row = al.grid(M * CLUSTER, cluster=CLUSTER) // CLUSTER
    held, told = al.shared((BLOCKS, BLOCK), DTYPE), al.shared((CLUSTER,), al.float32)
    begin, cols = al.cluster_rank() * (BLOCKS * BLOCK), al.arange(BLOCK)
    bring(held, x, row, begin, COPY)
    arrived(CLUSTER)
    squares = al.zeros((BLOCK,), al.float32)
    for part in range(BLOCKS):
        values = al.load(held[part, cols]).to(al.float32)
        squares += values * values
    total = al.sum(squares)
    if CLUSTER > 1:
        total = al.sum(found_by_all(total, told))
    inverse = al.rsqrt(total / N.to(al.float32) + eps)
    for part in range(BLOCKS):
        places = begin + cols + part * BLOCK
        values = al.load(held[part, cols]).to(al.float32)
        scale = piece_of(weight, places)
        al.store(out[row, places], (values * inverse * scale).to(DTYPE), mask=places < N)


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
    """Normalize rows of any length, which are read twice, BLOCK elements at a time."""
    M, N = x.shape
    al.invariant(out, M)
    al.spec(out, lambda i, j: x[i, j] * al.rsqrt(mean_square(x, i) + eps) * weight[j])
    row = al.grid(M)
    squares = al.zeros((BLOCK,), al.float32)
    for start in range(0, N, BLOCK):
        cols = start + al.arange(BLOCK)
        values = piece(x, row, cols)
        squares += values * values
    inverse = al.rsqrt(al.sum(squares) / N.to(al.float32) + eps)
    for start in range(0, N, BLOCK):
        cols = start + al.arange(BLOCK)
        values = piece(x, row, cols)
        scale = piece_of(weight, cols)
        al.store(out[row, cols], (values * inverse * scale).to(DTYPE), mask=cols < N)


def rmsnorm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """RMSNorm along the last dimension, scaled by `weight` `[N]`, in x's dtype; float32 arithmetic. Differentiable.

    `x` and `weight` are float32, float16 or bfloat16, and may differ in dtype; rows may be any distance apart.
    Raises LaunchError.
    """
    result: torch.Tensor = rmsnorm_function((x, weight), (eps,))
    return result


def _work(tensors: tuple[torch.Tensor, ...], numbers: tuple[Number, ...]) -> Work:
    x, weight = tensors
    dtype, scale = _checked(x, weight)
    rows = matrix(x)
    out = rows.new_empty(rows.shape)
    step = step_of(rows, out) if dtype.bytes == 2 and LEAST_AROUND <= rows.shape[1] <= LONGEST else 0
    kernel, shape = fitting(rows, LONGEST, rmsnorm_rows, rmsnorm_held_rows, rmsnorm_long_rows)
    if step:
        shape = around(rows.shape[1], dtype.bytes, step, _HELD).constants
    constants = {"DTYPE": dtype, "WEIGHT": scale, **shape}
    return Work((Call(kernel, (rows, weight.contiguous(), out, *numbers), constants),), (shaped(out, x),))


def _checked(x: torch.Tensor, weight: torch.Tensor) -> tuple[DType, DType]:
    """Return the dtypes. Raises LaunchError."""
    same_shape("weight", weight, (columns(x),))
    return dtype_of("x", x), dtype_of("weight", weight)


def _fake(x: torch.Tensor, weight: torch.Tensor, _eps: float) -> torch.Tensor:
    _checked(x, weight)
    return x.new_empty(x.shape)


rmsnorm_function = Function(
    _work, Operator("rmsnorm(Tensor x, Tensor weight, float eps=1e-6) -> Tensor", _fake, batch=1)
)
