"""Compute the gradients of softmax and of its logarithm, row by row, in one pass over memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import argus
import argus.language as al
from argus.backend.launch.evaluate import Number
from argus.ir.types import DType
from argus.kernels.rows import (
    CHUNK,
    CHUNK_WARPS,
    balanced,
    columns,
    dtype_of,
    held,
    longest_held,
    matrix,
    same_shape,
    shaped,
    vector,
)
from argus.kernels.softmax import softmax_function
from argus.kernels.steps import arrived, bring, found_by_all
from argus.runtime.function import Function, Operator
from argus.runtime.work import Call, Work
from argus.torch.gradient import attach

if TYPE_CHECKING:
    import torch

LONGEST = 16384  # elements of a row in registers, beside its gradient
_MOST_HELD = 128 * 1024  # bytes of both rows in the shared memory of a block


@argus.func
def gradient(dy, y, i, j, LOG):
    """Return the gradient at row i, column j, where y holds the softmax of the rows, or its logarithm."""
    if LOG:
        result = dy[i, j] - al.exp(y[i, j]) * al.sum(lambda k: dy[i, k])
    else:
        result = y[i, j] * (dy[i, j] - al.sum(lambda k: dy[i, k] * y[i, k]))
    return result


@argus.kernel
def softmax_backward_rows(
    dy: al.Tensor[DTYPE, "M N"],
    y: al.Tensor[DTYPE, "M N"],
    dx: al.Tensor[DTYPE, "M N"],
    LOG: al.constexpr = False,
    DTYPE: al.constexpr = al.bfloat16,
    ROWS: al.constexpr = 4,
    BLOCK: al.constexpr = 1024,
    FROM: al.constexpr = 0,
):
    """Compute `dx = y * (dy - sum(dy * y))`, or, of the logarithm, `dx = dy - exp(y) * sum(dy)`; ROWS rows a block."""
    M, N = y.shape
    al.invariant(dx, M)
    al.requires(FROM <= N <= BLOCK)
    al.spec(dx, lambda i, j: gradient(dy, y, i, j, LOG))
    rows = al.grid(al.cdiv(M, ROWS)) * ROWS + al.arange(ROWS)[:, None]
    cols = al.arange(BLOCK)
    live = (rows < M) & (cols < N)
    values = al.load(y[rows, cols], mask=live).to(al.float32)
    given = al.load(dy[rows, cols], mask=live).to(al.float32)
    if LOG:
        result = given - al.exp(values) * al.sum(given, axis=1, keep_dims=True)
    else:
        result = values * (given - al.sum(given * values, axis=1, keep_dims=True))
    al.store(dx[rows, cols], result.to(DTYPE), mask=live)


@argus.kernel
def softmax_backward_held_rows(
    dy: al.Tensor[DTYPE, "M N"],
    y: al.Tensor[DTYPE, "M N"],
    dx: al.Tensor[DTYPE, "M N"],
    LOG: al.constexpr = False,
    DTYPE: al.constexpr = al.bfloat16,
    BLOCK: al.constexpr = 2048,
    BLOCKS: al.constexpr = 4,
    COPY: al.constexpr = "cp.async",
    CLUSTER: al.constexpr = 1,
):
    """Compute the gradient for rows of at most CLUSTER * BLOCKS * BLOCK elements, which wait in the shared memory of
    one block or of all blocks of a cluster."""
    M, N = y.shape
    al.invariant(dx, M)
    al.requires((N <= CLUSTER * BLOCKS * BLOCK) & (M <= 2**31 // CLUSTER - 1))
    al.spec(dx, lambda i, j: gradient(dy, y, i, j, LOG))
    row = al.grid(M * CLUSTER, cluster=CLUSTER) // CLUSTER
    values, given = al.shared((BLOCKS, BLOCK), DTYPE), al.shared((BLOCKS, BLOCK), DTYPE)
    told = al.shared((CLUSTER,), al.float32)
    begin, cols = al.cluster_rank() * (BLOCKS * BLOCK), al.arange(BLOCK)
    bring(given, dy, row, begin, COPY)
    bring(values, y, row, begin, COPY)
    arrived(CLUSTER)
    sums = al.zeros((BLOCK,), al.float32)
    for part in range(BLOCKS):
        d = al.load(given[part, cols]).to(al.float32)
        sums += d if LOG else d * al.load(values[part, cols]).to(al.float32)
    total = al.sum(sums)
    if CLUSTER > 1:
        total = al.sum(found_by_all(total, told))
    for part in range(BLOCKS):
        places = begin + part * BLOCK + cols
        x = al.load(values[part, cols]).to(al.float32)
        d = al.load(given[part, cols]).to(al.float32)
        result = d - al.exp(x) * total if LOG else x * (d - total)
        al.store(dx[row, places], result.to(DTYPE), mask=places < N)


@argus.kernel
def softmax_backward_long_rows(
    dy: al.Tensor[DTYPE, "M N"],
    y: al.Tensor[DTYPE, "M N"],
    dx: al.Tensor[DTYPE, "M N"],
    LOG: al.constexpr = False,
    DTYPE: al.constexpr = al.bfloat16,
    BLOCK: al.constexpr = 4096,
):
    """Compute the gradient for rows of any length, which are read twice, BLOCK elements at a time."""
    M, N = y.shape
    al.invariant(dx, M)
    al.spec(dx, lambda i, j: gradient(dy, y, i, j, LOG))
    row = al.grid(M)
    sums = al.zeros((BLOCK,), al.float32)
    for start in range(0, N, BLOCK):
        cols = start + al.arange(BLOCK)
        given = al.load(dy[row, cols], mask=cols < N).to(al.float32)
        sums += given if LOG else given * al.load(y[row, cols], mask=cols < N).to(al.float32)
    total = al.sum(sums)
    for start in range(0, N, BLOCK):
        cols = start + al.arange(BLOCK)
        values = al.load(y[row, cols], mask=cols < N).to(al.float32)
        given = al.load(dy[row, cols], mask=cols < N).to(al.float32)
        result = given - al.exp(values) * total if LOG else values * (given - total)
        al.store(dx[row, cols], result.to(DTYPE), mask=cols < N)


def softmax_backward(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the gradient of `x` in y's dtype, given `y`, the softmax of `x` along the last dimension, and y's
    gradient.

    `dy` and `y` are of one shape and of one of float32, float16 and bfloat16; the arithmetic is float32's, and rows may
    be any distance apart. Raises LaunchError.
    """
    result: torch.Tensor = _softmax_backward((dy, y), (), (False,))
    return result


def log_softmax_backward(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the gradient of `x` in y's dtype, given `y`, the logarithm of the softmax of `x`, and y's gradient.

    Shapes, dtypes and strides are those of `softmax_backward`. Raises LaunchError.
    """
    result: torch.Tensor = _softmax_backward((dy, y), (), (True,))
    return result


def _work(tensors: tuple[torch.Tensor, ...], _numbers: tuple[Number, ...], log: bool) -> Work:
    dy, y = tensors
    dtype, rows = _checked(dy, y), matrix(y)
    read = (matrix(dy), rows)
    out = rows.new_empty(rows.shape)
    constants: dict[str, object] = {"LOG": log, "DTYPE": dtype}
    if rows.shape[1] <= LONGEST:
        kernel = softmax_backward_rows
        constants |= balanced(rows.shape[1], rows.element_size(), min(map(vector, read))).constants
    elif rows.shape[1] <= longest_held(*read) and _fits(held(*read), dtype):
        kernel = softmax_backward_held_rows
        constants |= held(*read)
    else:
        kernel = softmax_backward_long_rows
        constants |= {"BLOCK": CHUNK, "num_warps": CHUNK_WARPS}
    return Work((Call(kernel, (*read, out), constants),), (shaped(out, y),))


def _fits(shape: Mapping[str, Any], dtype: DType) -> bool:
    """Return True if a block of each target has shared memory for its parts of both rows."""
    return 2 * int(shape["BLOCK"]) * int(shape["BLOCKS"]) * dtype.bytes <= _MOST_HELD


def _checked(dy: torch.Tensor, y: torch.Tensor) -> DType:
    """Return the dtype. Raises LaunchError."""
    columns(y)
    dtype = dtype_of("y", y)
    same_shape("dy", dy, tuple(y.shape))
    dtype_of("dy", dy, (dtype.name,))
    return dtype


def _fake(dy: torch.Tensor, y: torch.Tensor, _log: bool) -> torch.Tensor:
    _checked(dy, y)
    return y.new_empty(y.shape)


_softmax_backward = Function(
    _work, Operator("softmax_backward(Tensor dy, Tensor y, bool log=False) -> Tensor", _fake, batch=2)
)


def _save(ctx: Any, _inputs: tuple[Any, ...], y: torch.Tensor) -> None:
    ctx.save_for_backward(y)


def _gradients(ctx: Any, dy: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = _softmax_backward((dy, *ctx.saved_tensors), (), (False,))
    return result


attach(softmax_function, _gradients, _save)
