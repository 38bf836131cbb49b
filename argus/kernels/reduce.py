"""Sum, mean and maximum along any dimension, in float32.

A tensor is viewed as `[A, S, R]` (reduce the last dimension) or `[A, S, R, B]` (reduce an inner one). S cuts a long
reduction into parts that blocks process side by side, and a rest. A second call reduces the results of the parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

import argus
import argus.language as al
from argus.backend.launch.evaluate import Number
from argus.diagnostic import LaunchError
from argus.ir.types import DType, float32
from argus.kernels.reduce_cuts import across_rows, along_rows
from argus.kernels.rows import LEAST_AROUND, around, dtype_of, step_of, vector
from argus.runtime.function import Function, Operator
from argus.runtime.work import Call, Work
from argus.torch.gradient import attach

if TYPE_CHECKING:
    import torch

OPERATIONS = ("sum", "mean", "max")

_MOST_BLOCKS = 65535  # along an axis of the grid that is not the first
_AROUND, _MOST_AROUND = 576, 16384  # elements of an odd row that is read by the memory's own vectors; at once
_HELD = (3, 4, 6)  # vectors of an odd row in a thread


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
    STEP: al.constexpr = 0,
    WIDTH: al.constexpr = 1,
):
    """Compute `out[a, s] = sum(x[a, s, :]) * factor`, or the maximum; ROWS rows a block, EACH * BLOCK elements at a
    time.

    Of rows that begin STEP elements each behind an aligned address, vectors of WIDTH are those of the memory.
    """
    A, S, R = x.shape
    al.invariant(out, A)
    if OP == "max":
        al.spec(out, lambda a, s: al.max(lambda k: x[a, s, k]))
    else:
        al.spec(out, lambda a, s: al.sum(lambda k: x[a, s, k]) * factor)
    pid, part = al.grid(al.cdiv(A, ROWS), S)
    rows = pid * ROWS + al.arange(ROWS)
    start = -float("inf") if OP == "max" else 0.0
    collected = al.full((ROWS, BLOCK), start, al.float32)
    for r in range(0, R + WIDTH - 1, EACH * BLOCK):
        cols = r + al.arange(EACH)[:, None, None] * BLOCK + al.arange(BLOCK)
        if STEP:
            cols = cols - (rows % WIDTH * STEP % WIDTH)[:, None]
            live = (rows < A)[:, None] & (0 <= cols) & (cols < R)
            way, load = al.blocked((EACH, ROWS, BLOCK), (2, 1, 0), WIDTH), "ld.global.cut"
        else:
            live = (rows < A)[:, None] & (cols < R)
            way, load = None, None
        loaded = al.load(x[rows[:, None], part, cols], mask=live, other=start, layout=way, instruction=load)
        values = loaded.to(al.float32)
        if OP == "max":
            collected = al.maximum(collected, al.max(values, axis=0))
        else:
            collected += al.sum(values, axis=0)
    result = al.max(collected, axis=1) if OP == "max" else al.sum(collected, axis=1) * factor
    al.store(out[rows, part], result.to(OUT), mask=rows < A)


@argus.kernel(num_warps=6)
def reduce_odd_rows(
    x: al.Tensor[DTYPE, "A R"],
    out: al.Tensor[DTYPE, "A"],
    factor: al.float32,
    OP: al.constexpr = "sum",
    DTYPE: al.constexpr = al.bfloat16,
    ROWS: al.constexpr = 1,
    BLOCK: al.constexpr = 4608,
    FROM: al.constexpr = 0,
    STEP: al.constexpr = 7,
    WIDTH: al.constexpr = 8,
):
    """Compute `out[a] = sum(x[a, :]) * factor`, or the maximum; ROWS rows a block, all of them at once.

    Each row begins STEP elements further behind an aligned address: vectors of WIDTH are those of the memory.
    """
    A, R = x.shape
    al.invariant(out, A)
    al.requires(FROM <= R <= BLOCK - WIDTH + 1)
    if OP == "max":
        al.spec(out, lambda a: al.max(lambda k: x[a, k]))
    else:
        al.spec(out, lambda a: al.sum(lambda k: x[a, k]) * factor)
    rows = al.grid(al.cdiv(A, ROWS)) * ROWS + al.arange(ROWS)
    cols = al.arange(BLOCK) - (rows % WIDTH * STEP % WIDTH)[:, None]
    live = (rows < A)[:, None] & (0 <= cols) & (cols < R)
    start, way = -float("inf") if OP == "max" else 0.0, al.blocked((ROWS, BLOCK), (1, 0), WIDTH)
    loaded = al.load(x[rows[:, None], cols], mask=live, other=start, layout=way, instruction="ld.global.cut")
    values = loaded.to(al.float32)
    result = al.max(values, axis=1) if OP == "max" else al.sum(values, axis=1) * factor
    al.store(out[rows], result.to(DTYPE), mask=rows < A)


@argus.kernel
def reduce_inner(
    x: al.Tensor[DTYPE, "A S L B"],
    rest: al.Tensor[DTYPE, "A R B"],
    out: al.Tensor[OUT, "S A B"],
    last: al.Tensor[OUT, "A B"],
    factor: al.float32,
    OP: al.constexpr = "sum",
    DTYPE: al.constexpr = al.bfloat16,
    OUT: al.constexpr = al.bfloat16,
    CUT: al.constexpr = True,
    EACH: al.constexpr = 8,
    ROWS: al.constexpr = 1,
    BLOCK: al.constexpr = 1024,
):
    """Compute `out[s, a, b] = sum(x[a, s, :, b]) * factor`, and `last[a, b] = sum(rest[a, :, b]) * factor`, or the
    maxima.

    A block has BLOCK columns of one part, EACH * ROWS rows at a time. The rest is one part more; what is not CUT is all
    rest.
    """
    A, S, L, B = x.shape
    R = rest.shape[1]
    if OP == "max":
        if CUT:
            al.spec(out, lambda s, a, b: al.max(lambda k: x[a, s, k, b]))
        al.spec(last, lambda a, b: al.max(lambda k: rest[a, k, b]))
    else:
        if CUT:
            al.spec(out, lambda s, a, b: al.sum(lambda k: x[a, s, k, b]) * factor)
        al.spec(last, lambda a, b: al.sum(lambda k: rest[a, k, b]) * factor)
    column, part, a = al.grid(al.cdiv(B, BLOCK), S + 1 if CUT else 1, A)
    cols = column * BLOCK + al.arange(BLOCK)
    places = al.arange(EACH)[:, None, None] * ROWS + al.arange(ROWS)[:, None]
    start = -float("inf") if OP == "max" else 0.0
    collected = al.full((ROWS, BLOCK), start, al.float32)
    if CUT and part < S:
        for k in range(0, L, EACH * ROWS):
            live = (k + places < L) & (cols < B)
            values = al.load(x[a, part, k + places, cols], mask=live, other=start).to(al.float32)
            if OP == "max":
                collected = al.maximum(collected, al.max(values, axis=0))
            else:
                collected += al.sum(values, axis=0)
    else:
        for k in range(0, R, EACH * ROWS):
            live = (k + places < R) & (cols < B)
            values = al.load(rest[a, k + places, cols], mask=live, other=start).to(al.float32)
            if OP == "max":
                collected = al.maximum(collected, al.max(values, axis=0))
            else:
                collected += al.sum(values, axis=0)
    result = al.max(collected, axis=0) if OP == "max" else al.sum(collected, axis=0) * factor
    if CUT and part < S:
        al.store(out[part, a, cols], result.to(OUT), mask=cols < B)
    else:
        al.store(last[a, cols], result.to(OUT), mask=cols < B)


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
    """Compute `out[a, b] = (sum(parts[a, :, b]) + sum(rest[a, :, b])) * factor`, or the maximum of both."""
    A, S, B = parts.shape
    al.invariant(out, A)
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
    """Return the "sum", "mean" or "max" of a float32, float16 or bfloat16 tensor along `dim`, or over all elements, in
    its dtype.

    NaN propagates. Elements are added in float32, in an order that depends on the shape alone. Raises LaunchError:
    "reduction-argument" for another operation, a dimension that x has not, and for the maximum of no elements.
    """
    result: torch.Tensor = _reduce((x,), (), (op, dim, keepdim))
    return result


@dataclass(frozen=True, slots=True)
class Reduction:
    """A reduction of `x` `[A, R]` or `[A, R, B]` to `out` `[A, 1]` or `[A, 1, B]`. The final shape is `shape`."""

    x: torch.Tensor
    out: torch.Tensor
    factor: float
    constants: Mapping[str, object]
    shape: tuple[int, ...]


def _problem_of(x: torch.Tensor, op: str, dim: int | None, keepdim: bool) -> Reduction:
    """Return the checked reduction that a call requests. Raises LaunchError."""
    dtype = _checked(x, op, dim)
    axis = None if dim is None else dim % x.ndim
    before, length, after = (
        (1, x.numel(), 1) if axis is None else (prod(x.shape[:axis]), x.shape[axis], prod(x.shape[axis + 1 :]))
    )
    view = x.reshape(before, length, *((after,) if after != 1 else ()))
    view = view if view.stride(-1) == 1 or view.shape[-1] < 2 else view.contiguous()
    factor = 1.0 if op != "mean" else 1 / length if length else float("nan")
    constants = {"OP": "max" if op == "max" else "sum", "DTYPE": dtype}
    out = x.new_empty(before, 1, *view.shape[2:])
    return Reduction(view, out, factor, constants, _shape_of(x, dim, keepdim))


def _checked(x: torch.Tensor, op: str, dim: int | None) -> DType:
    """Return the dtype. Raises LaunchError."""
    dtype = dtype_of("x", x)
    if op not in OPERATIONS:
        raise _wrong(f"there is no reduction `{op}`", f"write one of {', '.join(OPERATIONS)}")
    if dim is not None and not -x.ndim <= dim < x.ndim:
        raise _wrong(f"a tensor of {x.ndim} dimensions has no dimension {dim}", "count from 0, or from -1 down")
    if op == "max" and not (x.numel() if dim is None else x.shape[dim]):
        raise _wrong("the maximum of no elements is not defined", "leave empty tensors out")
    return dtype


def _shape_of(x: torch.Tensor, dim: int | None, keepdim: bool) -> tuple[int, ...]:
    """Return the shape of the result."""
    kept = (1,) if keepdim else ()
    if dim is None:
        return kept * x.ndim
    axis = dim % x.ndim
    return (*x.shape[:axis], *kept, *x.shape[axis + 1 :])


def _work(
    tensors: tuple[torch.Tensor, ...], _numbers: tuple[Number, ...], op: str, dim: int | None, keepdim: bool
) -> Work:
    (x,) = tensors
    problem = _problem_of(x, op, dim, keepdim)
    step = _MOST_BLOCKS if problem.x.ndim == 3 else max(1, len(problem.x))
    calls: list[Call] = []
    for start in range(0, max(1, len(problem.x)), step):
        some, results = (t[start : start + step] for t in (problem.x, problem.out))
        calls += _calls(replace(problem, x=some, out=results))
    return Work(tuple(calls), (problem.out.view(problem.shape),))


def _fake(x: torch.Tensor, op: str, dim: int | None, keepdim: bool) -> torch.Tensor:
    _checked(x, op, dim)
    return x.new_empty(_shape_of(x, dim, keepdim))


def _save(ctx: Any, inputs: tuple[Any, ...], _output: torch.Tensor) -> None:
    x, op, dim, keepdim = inputs
    ctx.shape, ctx.op, ctx.dim, ctx.keepdim = x.shape, op, dim, keepdim


def _backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    """Return the gradient of a sum or mean. Raises LaunchError "no-gradient" for a maximum."""
    if ctx.op == "max":
        what = "the maximum has no gradient: several elements may be the largest"
        raise LaunchError.of("no-gradient", what, "use torch.amax where a gradient is needed")
    if ctx.dim is not None and not ctx.keepdim:
        gradient = gradient.unsqueeze(ctx.dim)
    if ctx.op == "mean":
        gradient = gradient / (prod(ctx.shape) if ctx.dim is None else ctx.shape[ctx.dim])
    return gradient.expand(ctx.shape), None, None, None


_reduce = Function(_work, Operator("reduce(Tensor x, str op, int? dim=None, bool keepdim=False) -> Tensor", _fake))
attach(_reduce, _backward, _save)


def _calls(problem: Reduction) -> tuple[Call, ...]:
    """Return one call, or one call for each part and one that joins the parts."""
    return _along(problem) if problem.x.ndim == 2 else _across(problem)


def _along(problem: Reduction) -> tuple[Call, ...]:
    """Return the calls that reduce rows."""
    import torch

    x, out, factor, constants = problem.x, problem.out, problem.factor, problem.constants
    step = step_of(x) if x.shape[1] >= _AROUND else 0
    cut = along_rows(*x.shape, vector(x), x.itemsize, step)
    dtype = dtype_of("out", out)
    of_part = {**constants, **cut.constants, "num_warps": cut.warps}
    if step and cut.parts == 1 and LEAST_AROUND <= x.shape[1] <= _MOST_AROUND:
        shape = around(x.shape[1], x.itemsize, step, _HELD).constants
        return (Call(reduce_odd_rows, (x, out[:, 0], factor), {**constants, **shape}),)
    if cut.parts == 1:
        return (Call(reduce_last, (x.unsqueeze(1), out, factor), {**of_part, "OUT": dtype}),)
    whole = cut.parts * cut.length
    even, rest = x[:, :whole].reshape(len(x), cut.parts, cut.length), x[:, whole:]
    parts = x.new_empty(len(x), cut.parts, dtype=torch.float32)
    first = Call(reduce_last, (even, parts, 1.0), {**of_part, "OUT": float32})
    join = {**constants, "OUT": dtype, "ROWS": 1024, "BLOCK": 1, "num_warps": 8}
    return first, Call(join_parts, (parts.unsqueeze(2), rest.unsqueeze(2), out, factor), join)


def _across(problem: Reduction) -> tuple[Call, ...]:
    """Return the calls that reduce columns: first equal parts (the last may be shorter), then the matrix of results."""
    import torch

    x, out, factor, constants = problem.x, problem.out, problem.factor, problem.constants
    count, length, columns = x.shape
    cut = across_rows(count, length, columns, vector(x[0]) if count else 1, x.itemsize)
    number = cut.parts - 1
    even, rest = x[:, : number * cut.length].reshape(count, number, cut.length, columns), x[:, number * cut.length :]
    of_part = {**constants, **cut.constants, "CUT": number > 0, "num_warps": cut.warps}
    if not number:
        parts = out.new_empty(0, count, columns)
        return (Call(reduce_inner, (even, rest, parts, out[:, 0], factor), {**of_part, "OUT": dtype_of("out", out)}),)
    parts = x.new_empty(cut.parts, count, columns, dtype=torch.float32)
    first = Call(reduce_inner, (even, rest, parts[:-1], parts[-1], 1.0), {**of_part, "OUT": float32})
    joined = replace(
        problem,
        x=parts.view(1, cut.parts, -1),
        out=out.view(1, 1, -1),
        constants={**constants, "DTYPE": float32},
    )
    return first, *_across(joined)


def _wrong(message: str, help: str) -> LaunchError:
    return LaunchError.of("reduction-argument", message, help)
