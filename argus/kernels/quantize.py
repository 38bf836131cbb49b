"""Row-wise float8: each row is scaled such that its largest magnitude becomes the largest number of e4m3."""

from __future__ import annotations

from typing import TYPE_CHECKING

import argus
import argus.language as al
from argus.backend.launch.evaluate import Number
from argus.kernels.rows import (
    CHUNK,
    CHUNK_WARPS,
    LEAST_AROUND,
    LONGEST_ROW,
    around,
    columns,
    dtype_of,
    matrix,
    spread,
    step_of,
    vector,
)
from argus.runtime.function import Function, Operator
from argus.runtime.work import Call, Work

if TYPE_CHECKING:
    import torch

LONGEST = 16384  # elements of an odd row that is moved by the memory's own vectors
_HELD = (5, 6)  # vectors of such a row in a thread
LARGEST = 448.0  # of e4m3fn (OCP 8-bit floating point specification)
UNIT = 1 / LARGEST
LEAST = 1e-12  # rows of smaller magnitudes share the scale of this one: a scale must not underflow


@argus.func
def magnitude(x, i):
    """Return the largest magnitude of row i, or LEAST. Specifications use this function."""
    return al.maximum(al.max(lambda k: al.abs(x[i, k])), LEAST)


@argus.kernel
def quantize_rows(
    x: al.Tensor[DTYPE, "M N"],
    values: al.Tensor[al.float8_e4m3fn, "M N"],
    scale: al.Tensor[al.float32, "M"],
    DTYPE: al.constexpr = al.bfloat16,
    ROWS: al.constexpr = 4,
    BLOCK: al.constexpr = 1024,
    FROM: al.constexpr = 0,
    STEP: al.constexpr = 0,
    WIDTH: al.constexpr = 1,
):
    """Compute `scale[i] = max(abs(x[i, :])) / 448`, `values = x / scale`; a block works on ROWS rows of at most BLOCK.

    Of rows that begin STEP elements each behind an aligned address, vectors of WIDTH are those of the memory.
    """
    M, N = x.shape
    al.invariant(scale, M)
    al.invariant(values, M)
    al.requires(FROM <= N <= BLOCK - WIDTH + 1)
    al.spec(scale, lambda i: magnitude(x, i) * UNIT)
    al.spec(values, lambda i, j: x[i, j] * (LARGEST / magnitude(x, i)))
    rows = al.grid(al.cdiv(M, ROWS)) * ROWS + al.arange(ROWS)
    if STEP:
        cols = al.arange(BLOCK) - (rows % WIDTH * STEP % WIDTH)[:, None]
        live = (rows < M)[:, None] & (0 <= cols) & (cols < N)
        way, load, keep = al.blocked((ROWS, BLOCK), (1, 0), WIDTH), "ld.global.cut", "st.global.cut"
    else:
        cols = al.arange(BLOCK)
        live = (rows < M)[:, None] & (cols < N)
        way, load, keep = None, None, None
    numbers = al.load(x[rows[:, None], cols], mask=live, layout=way, instruction=load).to(al.float32)
    largest = al.maximum(al.max(al.where(live, al.abs(numbers), -float("inf")), axis=1), LEAST)
    al.store(scale[rows], largest * UNIT, mask=rows < M)
    factor = (LARGEST / largest)[:, None]
    al.store(values[rows[:, None], cols], (numbers * factor).to(al.float8_e4m3fn), mask=live, instruction=keep)


@argus.kernel
def quantize_long_rows(
    x: al.Tensor[DTYPE, "M N"],
    values: al.Tensor[al.float8_e4m3fn, "M N"],
    scale: al.Tensor[al.float32, "M"],
    DTYPE: al.constexpr = al.bfloat16,
    BLOCK: al.constexpr = 4096,
):
    """Quantize rows of any length, which are read twice, BLOCK elements at a time."""
    M, N = x.shape
    al.invariant(scale, M)
    al.invariant(values, M)
    al.spec(scale, lambda i: magnitude(x, i) * UNIT)
    al.spec(values, lambda i, j: x[i, j] * (LARGEST / magnitude(x, i)))
    row = al.grid(M)
    most = al.full((BLOCK,), -float("inf"), al.float32)
    for start in range(0, N, BLOCK):
        cols = start + al.arange(BLOCK)
        numbers = al.load(x[row, cols], mask=cols < N).to(al.float32)
        most = al.maximum(most, al.where(cols < N, al.abs(numbers), -float("inf")))
    largest = al.maximum(al.max(most), LEAST)
    al.store(scale[row], largest * UNIT)
    factor = LARGEST / largest
    for start in range(0, N, BLOCK):
        cols = start + al.arange(BLOCK)
        numbers = al.load(x[row, cols], mask=cols < N).to(al.float32)
        al.store(values[row, cols], (numbers * factor).to(al.float8_e4m3fn), mask=cols < N)


def quantize(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(values, scale): float8_e4m3fn values of x's shape, and float32 scales `[..., 1]`, with `values * scale` near x.

    `x` is float32, float16 or bfloat16; the scale of a row is its largest magnitude, at least 1e-12, over 448. A row
    with a NaN or an infinity has no finite scale. Rows may be any distance apart. No gradient. Raises LaunchError.
    """
    results: tuple[torch.Tensor, torch.Tensor] = _quantize((x,))
    return results


def _work(tensors: tuple[torch.Tensor, ...], _numbers: tuple[Number, ...]) -> Work:
    (x,) = tensors
    dtype, rows = dtype_of("x", x), matrix(x)
    results = _fake(x)
    values, scale = results[0].view(rows.shape), results[1].view(rows.shape[:1])
    step = step_of(rows, values) if dtype.bytes == 2 and LEAST_AROUND <= rows.shape[1] <= LONGEST else 0
    kernel, shape = quantize_rows, spread(rows.shape[1], dtype.bytes, width=vector(rows)).constants
    if step:
        shape = around(rows.shape[1], dtype.bytes, step, _HELD).constants
    elif rows.shape[1] > LONGEST_ROW:
        kernel, shape = quantize_long_rows, {"BLOCK": CHUNK, "num_warps": CHUNK_WARPS}
    return Work((Call(kernel, (rows, values, scale), {"DTYPE": dtype, **shape}),), results)


def _fake(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return empty tensors for the results."""
    import torch

    columns(x), dtype_of("x", x)
    values = x.new_empty(x.shape, dtype=torch.float8_e4m3fn)
    return values, x.new_empty((*x.shape[:-1], 1), dtype=torch.float32)


_quantize = Function(_work, Operator("quantize(Tensor x) -> (Tensor, Tensor)", _fake, batch=1))
