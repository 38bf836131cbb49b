"""Softmax of every row, in one pass over memory: a row stays in the registers of one warp or of a few."""

from __future__ import annotations

from typing import TYPE_CHECKING

import argus
import argus.language as al
from argus.backend.launch.evaluate import Number
from argus.kernels.rows import CHUNK, CHUNK_WARPS, LONGEST_ROW, balanced, dtype_of, matrix, shaped
from argus.runtime.recipe import Function, Work

if TYPE_CHECKING:
    import torch

LOG2E = 1.4426950408889634


@argus.kernel
def softmax_rows(
    x: al.Tensor[DTYPE, "M N"],
    out: al.Tensor[DTYPE, "M N"],
    DTYPE: al.constexpr = al.bfloat16,
    ROWS: al.constexpr = 4,
    BLOCK: al.constexpr = 1024,
):
    """`out[i, :] = softmax(x[i, :])`; a block works on ROWS rows of at most BLOCK elements."""
    M, N = x.shape
    al.requires(N <= BLOCK)
    al.spec(out, lambda i, j: al.softmax(lambda k: x[i, k])[j])
    rows = al.grid(al.cdiv(M, ROWS)) * ROWS + al.arange(ROWS)
    cols = al.arange(BLOCK)
    live = (rows < M)[:, None] & (cols < N)
    scores = al.load(x[rows[:, None], cols], mask=live, other=-float("inf")).to(al.float32)
    weights = al.exp2((scores - al.max(scores, axis=1, keep_dims=True)) * LOG2E)
    inverse = 1.0 / al.sum(weights, axis=1, keep_dims=True)
    al.store(out[rows[:, None], cols], (weights * inverse).to(DTYPE), mask=live)


@argus.kernel
def softmax_long_rows(
    x: al.Tensor[DTYPE, "M N"],
    out: al.Tensor[DTYPE, "M N"],
    DTYPE: al.constexpr = al.bfloat16,
    BLOCK: al.constexpr = 4096,
):
    """The same for rows of any length, which are read three times, BLOCK elements at a time."""
    M, N = x.shape
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
    """Softmax along the last dimension of a float32, float16 or bfloat16 tensor; float32 arithmetic. No gradient.

    Rows may be any distance apart. A row with a NaN, with +inf, or of -inf only gives NaN, as in PyTorch.
    Raises LaunchError.
    """
    result: torch.Tensor = _softmax((x,))
    return result


def _work(tensors: tuple[torch.Tensor, ...], _numbers: tuple[Number, ...]) -> Work:
    (x,) = tensors
    dtype, rows = dtype_of("x", x), matrix(x)
    out = rows.new_empty(rows.shape)
    if rows.shape[1] > LONGEST_ROW:
        kernel, shape = softmax_long_rows, {"BLOCK": CHUNK, "num_warps": CHUNK_WARPS}
    else:
        s = balanced(rows.shape[1], dtype.bytes)
        kernel, shape = softmax_rows, {"ROWS": s.rows, "BLOCK": s.block, "num_warps": s.warps}
    return Work(kernel, (rows,), (out,), (shaped(out, x),), (), {"DTYPE": dtype, **shape})


_softmax = Function(_work)
