"""Sum, mean and maximum along any dimension, in float32.

A tensor is looked at as `[A, S, R]` (reduce the last dimension) or `[A, S, R, B]` (an inner one), where S cuts a long
reduction into parts that blocks work on side by side; their results are reduced in a second call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING

import argus
import argus.language as al
from argus.diagnostic import Diagnostic, LaunchError
from argus.ir.types import DTYPES, float32
from argus.kernels.rows import dtype_of, spread

if TYPE_CHECKING:
    import torch

OPERATIONS = ("sum", "mean", "max")

_BLOCKS = 2048  # about two rounds of the blocks that a large processor runs at once
_MOST_BLOCKS = 65535  # along an axis of the grid that is not the first
_LEAST = 8192  # elements of a part: one turn of a block
_LONGEST = 8192  # elements of a row at a time
_COLUMNS = 256  # at a time, and twice as many where there are so many that nothing is cut
_JOINED = 16  # columns that a block of the second call joins
_VECTOR = 8  # elements: 16 bytes of a 16-bit type


@argus.kernel
def reduce_last(
    x: al.Tensor[DTYPE, "A S R"],
    out: al.Tensor[OUT, "A S"],
    factor: al.float32,
    OP: al.constexpr = "sum",
    DTYPE: al.constexpr = al.bfloat16,
    OUT: al.constexpr = al.bfloat16,
    EACH: al.constexpr = 4,
    ROWS: al.constexpr = 4,
    BLOCK: al.constexpr = 256,
):
    """`out[a, s] = sum(x[a, s, :]) * factor`, or the maximum; ROWS rows a block, EACH * BLOCK elements at a time."""
    A, S, R = x.shape
    if OP == "max":
        al.spec(out, lambda a, s: al.max(lambda k: x[a, s, k]))
    else:
        al.spec(out, lambda a, s: al.sum(lambda k: x[a, s, k]) * factor)
    pid, part = al.grid(al.cdiv(A, ROWS), S)
    rows = pid * ROWS + al.arange(ROWS)
    start = -float("inf") if OP == "max" else 0.0
    collected = al.full((ROWS, BLOCK), start, al.float32)
    for r in range(0, R, EACH * BLOCK):
        cols = r + al.arange(EACH)[:, None, None] * BLOCK + al.arange(BLOCK)
        live = (rows < A)[:, None] & (cols < R)
        values = al.load(x[rows[:, None], part, cols], mask=live, other=start).to(al.float32)
        if OP == "max":
            collected = al.maximum(collected, al.max(values, axis=0))
        else:
            collected += al.sum(values, axis=0)
    result = al.max(collected, axis=1) if OP == "max" else al.sum(collected, axis=1) * factor
    al.store(out[rows, part], result.to(OUT), mask=rows < A)


@argus.kernel
def reduce_inner(
    x: al.Tensor[DTYPE, "A S R B"],
    out: al.Tensor[OUT, "A S B"],
    factor: al.float32,
    OP: al.constexpr = "sum",
    DTYPE: al.constexpr = al.bfloat16,
    OUT: al.constexpr = al.bfloat16,
    EACH: al.constexpr = 8,
    ROWS: al.constexpr = 1,
    BLOCK: al.constexpr = 1024,
):
    """`out[a, s, b] = sum(x[a, s, :, b]) * factor`, or the maximum; BLOCK columns a block, EACH * ROWS at a time."""
    A, S, R, B = x.shape
    if OP == "max":
        al.spec(out, lambda a, s, b: al.max(lambda k: x[a, s, k, b]))
    else:
        al.spec(out, lambda a, s, b: al.sum(lambda k: x[a, s, k, b]) * factor)
    column, part, a = al.grid(al.cdiv(B, BLOCK), S, A)
    cols = column * BLOCK + al.arange(BLOCK)
    start = -float("inf") if OP == "max" else 0.0
    collected = al.full((ROWS, BLOCK), start, al.float32)
    for r in range(0, R, EACH * ROWS):
        rows = r + al.arange(EACH)[:, None, None] * ROWS + al.arange(ROWS)[:, None]
        values = al.load(x[a, part, rows, cols], mask=(rows < R) & (cols < B), other=start).to(al.float32)
        if OP == "max":
            collected = al.maximum(collected, al.max(values, axis=0))
        else:
            collected += al.sum(values, axis=0)
    result = al.max(collected, axis=0) if OP == "max" else al.sum(collected, axis=0) * factor
    al.store(out[a, part, cols], result.to(OUT), mask=cols < B)


@argus.kernel
def join_parts(
    parts: al.Tensor[al.float32, "A S B"],
    rest: al.Tensor[DTYPE, "A R B"],
    out: al.Tensor[OUT, "A B"],
    factor: al.float32,
    OP: al.constexpr = "sum",
    DTYPE: al.constexpr = al.bfloat16,
    OUT: al.constexpr = al.bfloat16,
    EACH: al.constexpr = 8,
    ROWS: al.constexpr = 8,
    BLOCK: al.constexpr = 64,
):
    """`out[a, b] = (sum(parts[a, :, b]) + sum(rest[a, :, b])) * factor`, or the maximum of both."""
    A, S, B = parts.shape
    R = rest.shape[1]
    if OP == "max":
        al.spec(out, lambda a, b: al.maximum(al.max(lambda k: parts[a, k, b]), al.max(lambda r: rest[a, r, b])))
    else:
        al.spec(out, lambda a, b: (al.sum(lambda k: parts[a, k, b]) + al.sum(lambda r: rest[a, r, b])) * factor)
    column, a = al.grid(al.cdiv(B, BLOCK), A)
    cols = column * BLOCK + al.arange(BLOCK)
    places = al.arange(EACH)[:, None, None] * ROWS + al.arange(ROWS)[:, None]
    start = -float("inf") if OP == "max" else 0.0
    first = al.full((ROWS, BLOCK), start, al.float32)
    for s in range(0, S, EACH * ROWS):
        values = al.load(parts[a, s + places, cols], mask=(s + places < S) & (cols < B), other=start)
        if OP == "max":
            first = al.maximum(first, al.max(values, axis=0))
        else:
            first += al.sum(values, axis=0)
    second = al.full((ROWS, BLOCK), start, al.float32)
    for r in range(0, R, EACH * ROWS):
        values = al.load(rest[a, r + places, cols], mask=(r + places < R) & (cols < B), other=start).to(al.float32)
        if OP == "max":
            second = al.maximum(second, al.max(values, axis=0))
        else:
            second += al.sum(values, axis=0)
    if OP == "max":
        result = al.maximum(al.max(first, axis=0), al.max(second, axis=0))
    else:
        result = (al.sum(first, axis=0) + al.sum(second, axis=0)) * factor
    al.store(out[a, cols], result.to(OUT), mask=cols < B)


def reduce(x: torch.Tensor, op: str, dim: int | None = None, keepdim: bool = False) -> torch.Tensor:
    """The "sum", "mean" or "max" of a float32, float16 or bfloat16 tensor along `dim`, or of all of it, in its dtype.

    NaN propagates. Elements are added in float32, in an order that depends on the shape alone. No gradient.
    Raises LaunchError: "reduction-argument" for another operation, a dimension that x has not, and for the maximum of
    no elements.
    """
    dtype = dtype_of("x", x)
    if op not in OPERATIONS:
        raise _problem(f"there is no reduction `{op}`", f"write one of {', '.join(OPERATIONS)}")
    if dim is not None and not -x.ndim <= dim < x.ndim:
        raise _problem(f"a tensor of {x.ndim} dimensions has no dimension {dim}", "count from 0, or from -1 down")
    axis = None if dim is None else dim % x.ndim
    before, length, after = (
        (1, x.numel(), 1) if axis is None else (prod(x.shape[:axis]), x.shape[axis], prod(x.shape[axis + 1 :]))
    )
    if op == "max" and not length:
        raise _problem("the maximum of no elements is not defined", "leave empty tensors out")
    view = x.reshape(before, length, *((after,) if after != 1 else ()))
    view = view if view.stride(-1) == 1 or view.shape[-1] < 2 else view.contiguous()
    factor = 1.0 if op != "mean" else 1 / length if length else float("nan")
    out = x.new_empty(before, 1, *view.shape[2:])
    constants: dict[str, object] = {"OP": "max" if op == "max" else "sum", "DTYPE": dtype}
    if before <= _MOST_BLOCKS or view.ndim == 2:
        _reduce(view, out, factor, constants)
    else:
        for some, results in zip(*(torch.split(t, _MOST_BLOCKS) for t in (view, out)), strict=True):
            _reduce(some, results, factor, constants)
    kept = (1,) if keepdim else ()
    return out.view(kept * x.ndim if axis is None else (*x.shape[:axis], *kept, *x.shape[axis + 1 :]))


def _reduce(x: torch.Tensor, out: torch.Tensor, factor: float, constants: Mapping[str, object]) -> None:
    """Reduces `x` `[A, R]` or `[A, R, B]` to `out` `[A, 1]` or `[A, 1, B]`."""
    import torch

    kernel, cut = (reduce_last, along_rows(*x.shape)) if x.ndim == 2 else (reduce_inner, across_rows(*x.shape))
    dtype = DTYPES[str(out.dtype).removeprefix("torch.")]
    if cut.parts == 1:
        kernel(x.unsqueeze(1), out, factor, **constants, OUT=dtype, **cut.constants, num_warps=cut.warps)
        return
    whole = cut.parts * cut.length
    even, rest = x[:, :whole].reshape(len(x), cut.parts, cut.length, *x.shape[2:]), x[:, whole:]
    parts = x.new_empty(len(x), cut.parts, *x.shape[2:], dtype=torch.float32)
    kernel(even, parts, 1.0, **constants, OUT=float32, **cut.constants, num_warps=cut.warps)
    if x.ndim == 2:
        parts, rest, out = parts.unsqueeze(2), rest.unsqueeze(2), out.unsqueeze(2)
    block = min(_JOINED, _power(parts.shape[2]))
    join = {"ROWS": 1024 // block, "BLOCK": block, "num_warps": 8}
    join_parts(parts, rest, out[:, 0], factor, **constants, OUT=dtype, **join)


@dataclass(frozen=True)
class Cut:
    """A reduction in `parts` parts of `length`, and a rest; the constants and the warps of the kernel for a part."""

    parts: int
    length: int
    constants: Mapping[str, int]
    warps: int


@lru_cache(maxsize=4096)
def along_rows(rows: int, length: int) -> Cut:
    """For `rows` rows of `length` elements."""
    s = spread(min(length, _LONGEST))  # of a 16-bit type: of others there is more in flight
    block = min(s.block, 256 * max(1, s.warps // s.rows))
    blocks = max(1, -(-rows // s.rows))
    parts = max(1, min(_BLOCKS // blocks, length // _LEAST))
    each = length if parts == 1 else length // parts // _VECTOR * _VECTOR
    return Cut(parts, each, {"EACH": -(-s.block // block), "ROWS": s.rows, "BLOCK": block}, s.warps)


@lru_cache(maxsize=4096)
def across_rows(tensors: int, length: int, columns: int) -> Cut:
    """For matrices of `length` rows, each of `columns` elements."""
    width = _COLUMNS if tensors * columns < 2 * _COLUMNS * _BLOCKS else 2 * _COLUMNS
    block = max(_VECTOR, min(width, _power(columns)))
    blocks = max(1, tensors * -(-columns // block))
    parts = max(1, min(_BLOCKS // blocks, length * block // _LEAST))
    return Cut(parts, length // parts, {"EACH": 8, "ROWS": 1024 // block, "BLOCK": block}, 4)


def _power(number: int) -> int:
    return 1 << max(0, number - 1).bit_length()


def _problem(message: str, help: str) -> LaunchError:
    return LaunchError(Diagnostic("reduction-argument", message, property="launch", help=help))
