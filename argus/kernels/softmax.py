"""Softmax of every row in one pass over memory: a row stays in the registers of one or a few warps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import argus
import argus.language as al
from argus.backend.launch.evaluate import Number
from argus.kernels.exponentials import LOG2E
from argus.kernels.rows import LEAST_AROUND, around, columns, dtype_of, fitting, matrix, shaped, step_of
from argus.kernels.steps import arrived, bring, columns_of, found_by_all
from argus.runtime.function import Function, Operator
from argus.runtime.work import Call, Work

if TYPE_CHECKING:
    import torch

LONGEST = 16384  # elements of a row in registers: of longer ones too few blocks fit a multiprocessor
_FEW = 3072  # elements of a row that is short enough for threads of fewer vectors than _HELD
_HELD = (5, 6)  # vectors of an odd row in a thread: few threads meet at barriers


@argus.kernel
def softmax_rows(
    x: al.Tensor[DTYPE, "M N"],
    out: al.Tensor[DTYPE, "M N"],
    DTYPE: al.constexpr = al.bfloat16,
    ROWS: al.constexpr = 4,
    BLOCK: al.constexpr = 1024,
    FROM: al.constexpr = 0,
    STEP: al.constexpr = 0,
    WIDTH: al.constexpr = 1,
):
    """Compute `out[i, :] = softmax(x[i, :])`; a block works on ROWS rows of at most BLOCK elements.

    Of rows that begin STEP elements each behind an aligned address, vectors of WIDTH are those of the memory.
    """
    M, N = x.shape
    al.invariant(out, M)
    al.requires(FROM <= N <= BLOCK - WIDTH + 1)
    al.spec(out, lambda i, j: al.softmax(lambda k: x[i, k])[j])
    rows = al.grid(al.cdiv(M, ROWS)) * ROWS + al.arange(ROWS)
    cols, way, load, keep = columns_of(rows, BLOCK, STEP, WIDTH)
    inside = (rows < M)[:, None]
    live = inside & (0 <= cols) & (cols < N) if STEP else inside & (cols < N)
    x_tile = al.load(x[rows[:, None], cols], mask=live, other=-float("inf"), layout=way, instruction=load)
    scores = x_tile.to(al.float32)
    weights = al.exp2((scores - al.max(scores, axis=1, keep_dims=True)) * LOG2E)
    inverse = 1.0 / al.sum(weights, axis=1, keep_dims=True)
    al.store(out[rows[:, None], cols], (weights * inverse).to(DTYPE), mask=live, instruction=keep)


@argus.kernel
def softmax_held_rows(
    x: al.Tensor[DTYPE, "M N"],
    out: al.Tensor[DTYPE, "M N"],
    DTYPE: al.constexpr = al.bfloat16,
    BLOCK: al.constexpr = 4096,
    BLOCKS: al.constexpr = 4,
    COPY: al.constexpr = "cp.async",
    CLUSTER: al.constexpr = 1,
):
    """Compute the softmax of rows of at most CLUSTER * BLOCKS * BLOCK elements, which wait in the shared memory of one
    block or of all blocks of a cluster: registers hold but BLOCK."""
    M, N = x.shape
    al.invariant(out, M)
    al.requires((N <= CLUSTER * BLOCKS * BLOCK) & (M <= 2**31 // CLUSTER - 1))
    al.spec(out, lambda i, j: al.softmax(lambda k: x[i, k])[j])
    row = al.grid(M * CLUSTER, cluster=CLUSTER) // CLUSTER
    held = al.shared((BLOCKS, BLOCK), DTYPE)
    tops, sums = al.shared((CLUSTER,), al.float32), al.shared((CLUSTER,), al.float32)
    begin, cols = al.cluster_rank() * (BLOCKS * BLOCK), al.arange(BLOCK)
    first = begin + cols
    bring(held, x, row, begin, COPY)
    arrived(CLUSTER)
    highest = al.full((BLOCK,), -float("inf"), al.float32)
    for part in range(BLOCKS):
        scores = al.where(first + part * BLOCK < N, al.load(held[part, cols]).to(al.float32), -float("inf"))
        highest = al.maximum(highest, scores)
    top = al.max(highest)
    if CLUSTER > 1:
        top = al.max(found_by_all(top, tops))
    totals = al.zeros((BLOCK,), al.float32)
    for part in range(BLOCKS):
        scores = al.where(first + part * BLOCK < N, al.load(held[part, cols]).to(al.float32), -float("inf"))
        totals += al.exp2((scores - top) * LOG2E)
    total = al.sum(totals)
    if CLUSTER > 1:
        total = al.sum(found_by_all(total, sums))
    inverse = 1.0 / total
    for part in range(BLOCKS):
        places = first + part * BLOCK
        scores = al.load(held[part, cols]).to(al.float32)
        al.store(out[row, places], (al.exp2((scores - top) * LOG2E) * inverse).to(DTYPE), mask=places < N)


@argus.kernel
def softmax_long_rows(
    x: al.Tensor[DTYPE, "M N"],
    out: al.Tensor[DTYPE, "M N"],
    DTYPE: al.constexpr = al.bfloat16,
    BLOCK: al.constexpr = 4096,
):
    """Compute the softmax of rows of any length, which are read three times, BLOCK elements at a time."""
    M, N = x.shape
    al.invariant(out, M)
    al.spec(out, lambda i, j: al.softmax(lambda k: x[i, k])[j])
    row = al.grid(M)
    tops = al.full((BLOCK,), -float("inf"), al.float32)
    for start in range(0, N, BLOCK):
        cols = start + al.arange(BLOCK)
        tops = al.maximum(tops, al.load(x[row, cols], mask=cols < N, other=-float("inf")).to(al.float32))
    top = al.max(tops)
    totals = al.zeros((BLOCK,), al.float32)
    for start in range(0, N, BLOCK):
        cols = start + al.arange(BLOCK)
        scores = al.load(x[row, cols], mask=cols < N, other=-float("inf")).to(al.float32)
        totals += al.exp2((scores - top) * LOG2E)
    inverse = 1.0 / al.sum(totals)
    for start in range(0, N, BLOCK):
        cols = start + al.arange(BLOCK)
        scores = al.load(x[row, cols], mask=cols < N).to(al.float32)
        al.store(out[row, cols], (al.exp2((scores - top) * LOG2E) * inverse).to(DTYPE), mask=cols < N)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax along the last dimension of a float32, float16 or bfloat16 tensor; float32 arithmetic. Differentiable.

    The result has the shape and dtype of `x`. Rows may be any distance apart. A row with a NaN, with +inf, or of -inf
    only gives NaN, as in PyTorch.
    Raises LaunchError.
    """
    result: torch.Tensor = softmax_function((x,))
    return result


def _work(tensors: tuple[torch.Tensor, ...], _numbers: tuple[Number, ...]) -> Work:
    (x,) = tensors
    dtype, rows = dtype_of("x", x), matrix(x)
    out = rows.new_empty(rows.shape)
    step = step_of(rows, out) if LEAST_AROUND <= rows.shape[1] <= LONGEST else 0
    kernel, shape = fitting(rows, LONGEST, softmax_rows, softmax_held_rows, softmax_long_rows)
    if shape.get("CLUSTER") == 2:  # as much in flight in twice the blocks, of half the threads, which are done sooner
        shape = {**shape, "CLUSTER": 4, "BLOCK": 2048, "num_warps": 4}
    if step:
        held = _HELD if rows.shape[1] > _FEW else (3, *_HELD)
        shape = around(rows.shape[1], dtype.bytes, step, held).constants
    return Work((Call(kernel, (rows, out), {"DTYPE": dtype, **shape}),), (shaped(out, x),))


def _fake(x: torch.Tensor) -> torch.Tensor:
    columns(x), dtype_of("x", x)
    return x.new_empty(x.shape)


softmax_function = Function(_work, Operator("softmax(Tensor x) -> Tensor", _fake, batch=1))
