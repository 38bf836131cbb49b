"""Sum, mean and maximum along any dimension, in float32.

A tensor is looked at as `[A, S, R]` (reduce the last dimension) or `[A, S, R, B]` (an inner one), where S cuts a long
reduction into parts that blocks work on side by side; their results are reduced in a second call.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import argus
import argus.language as al
from argus.diagnostic import Diagnostic, LaunchError
from argus.ir.types import float32
from argus.kernels.rows import dtype_of, spread

if TYPE_CHECKING:
    import torch

OPERATIONS = ("sum", "mean", "max")

_BLOCKS = 1056  # eight for each of the 132 processors of an H100 or H200
_LEAST = 32768  # elements of a part, or the second call would cost more than the cut brings
_COLUMNS = 256


@argus.kernel
def reduce_last(
    x: al.Tensor[DTYPE, "A S R"],
    out: al.Tensor[OUT, "A S"],
    factor: al.float32,
    OP: al.constexpr = "sum",
    DTYPE: al.constexpr = al.bfloat16,
    OUT: al.constexpr = al.bfloat16,
    ROWS: al.constexpr = 4,
    BLOCK: al.constexpr = 1024,
):
    """`out[a, s] = sum(x[a, s, :]) * factor`, or the maximum; a block works on ROWS rows, BLOCK elements at a time."""
    A, S, R = x.shape
    if OP == "max":
        al.spec(out, lambda a, s: al.max(lambda k: x[a, s, k]))
    else:
        al.spec(out, lambda a, s: al.sum(lambda k: x[a, s, k]) * factor)
    pid, part = al.grid(al.cdiv(A, ROWS), S)
    rows = pid * ROWS + al.arange(ROWS)
    start = -float("inf") if OP == "max" else 0.0
    collected = al.full((ROWS, BLOCK), start, al.float32)
    for r in range(0, R, BLOCK):
        cols = r + al.arange(BLOCK)
        live = (rows < A)[:, None] & (cols < R)
        values = al.load(x[rows[:, None], part, cols], mask=live, other=start).to(al.float32)
        if OP == "max":
            collected = al.maximum(collected, values)
        else:
            collected += values
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
    ROWS: al.constexpr = 16,
    BLOCK: al.constexpr = 256,
):
    """`out[a, s, b] = sum(x[a, s, :, b]) * factor`, or the maximum; a block works on BLOCK columns, ROWS at a time."""
    A, S, R, B = x.shape
    if OP == "max":
        al.spec(out, lambda a, s, b: al.max(lambda k: x[a, s, k, b]))
    else:
        al.spec(out, lambda a, s, b: al.sum(lambda k: x[a, s, k, b]) * factor)
    a, part, column = al.grid(A, S, al.cdiv(B, BLOCK))
    cols = column * BLOCK + al.arange(BLOCK)
    start = -float("inf") if OP == "max" else 0.0
    collected = al.full((ROWS, BLOCK), start, al.float32)
    for r in range(0, R, ROWS):
        rows = r + al.arange(ROWS)
        live = (rows < R)[:, None] & (cols < B)
        values = al.load(x[a, part, rows[:, None], cols], mask=live, other=start).to(al.float32)
        if OP == "max":
            collected = al.maximum(collected, values)
        else:
            collected += values
    result = al.max(collected, axis=0) if OP == "max" else al.sum(collected, axis=0) * factor
    al.store(out[a, part, cols], result.to(OUT), mask=cols < B)


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
    parts = _parts(view)
    constants: dict[str, object] = {"OP": "max" if op == "max" else "sum", "DTYPE": dtype}
    if parts > 1:
        view = _in_parts(view, parts, constants)
        constants["DTYPE"] = float32
    _launch(view.unsqueeze(1), out, factor, {**constants, "OUT": dtype})
    kept = (1,) if keepdim else ()
    return out.view(kept * x.ndim if axis is None else (*x.shape[:axis], *kept, *x.shape[axis + 1 :]))


def _parts(view: torch.Tensor) -> int:
    """Into how many parts the reduction of `view` `[A, R]` or `[A, R, B]` is cut, to give all processors work."""
    before, length = view.shape[:2]
    if view.ndim == 2:
        blocks, work = -(-before // spread(length).rows), length
    else:
        blocks, work = before * -(-view.shape[2] // _COLUMNS), length * min(_COLUMNS, view.shape[2])
    return max(1, min(_BLOCKS // max(1, blocks), work // _LEAST, length))


def _in_parts(view: torch.Tensor, parts: int, constants: dict[str, object]) -> torch.Tensor:
    """float32 results of equal parts of `view` along dimension 1, and of what is left over."""
    import torch

    each = view.shape[1] // parts
    even, rest = view[:, : parts * each], view[:, parts * each :]
    shape = (view.shape[0], parts + (rest.shape[1] > 0), *view.shape[2:])
    partial = torch.empty(shape, dtype=torch.float32, device=view.device)
    constants = {**constants, "OUT": float32}
    _launch(even.reshape(len(even), parts, each, *view.shape[2:]), partial[:, :parts], 1.0, constants)
    if rest.shape[1]:
        _launch(rest.unsqueeze(1), partial[:, parts:], 1.0, constants)
    return partial


def _launch(x: torch.Tensor, out: torch.Tensor, factor: float, constants: dict[str, object]) -> None:
    if x.ndim == 3:
        s = spread(min(x.shape[2], 4096))
        reduce_last(x, out, factor, **constants, ROWS=s.rows, BLOCK=s.block, num_warps=s.warps)
        return
    block = 8
    while block < min(x.shape[3], _COLUMNS):
        block *= 2
    reduce_inner(x, out, factor, **constants, ROWS=16 * _COLUMNS // block, BLOCK=block)


def _problem(message: str, help: str) -> LaunchError:
    return LaunchError(Diagnostic("reduction-argument", message, property="launch", help=help))
