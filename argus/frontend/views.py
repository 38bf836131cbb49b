"""Elaborate views: subscripts of tensors, shared tiles and register tiles; transposition; masks of elements out of
range."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Union

from argus.frontend.context import Context
from argus.frontend.tiles import broadcast_shapes, check_shape, constant_expr, stretch
from argus.frontend.values import Constant, Tile, Value, View, describe, extents_of
from argus.ir import expr as ir
from argus.ir.expr import (
    Const,
    Coord,
    Elem,
    Expr,
    LoopVar,
    Op,
    Param,
    ProgramId,
    Thread,
    coords,
    substitute_coords,
    walk,
)
from argus.ir.nodes import Shared, Tensor
from argus.ir.types import DType, boolean, int32
from argus.source import Span


@dataclass(frozen=True, slots=True)
class SliceValue:
    """An evaluated slice. A missing part is None."""

    lower: Value | None
    upper: Value | None
    step: Value | None


Item = Union[Value, SliceValue]


def whole_view(obj: Tensor | Shared) -> View:
    """Return a view of a whole tensor or shared tile."""
    return View(obj, coords(len(obj.shape)), extents_of(obj))


# ---------------------------------------------------------------------------- subscripts


def subscript(context: Context, value: Value, items: Sequence[Item], spans: Sequence[Span], span: Span) -> Value:
    """Evaluate `value[items]` for views and tiles."""
    if isinstance(value, View):
        return _subscript_view(context, value, items, spans, span)
    if isinstance(value, Tile):
        return _subscript_tile(context, value, items, spans, span)
    context.fail("bad-index", f"{describe(value)} cannot be indexed", span, "index a tensor, a shared tile or a tile")


def _subscript_tile(context: Context, tile: Tile, items: Sequence[Item], spans: Sequence[Span], span: Span) -> Tile:
    if context.frame.quantified:
        return _element(context, tile, items, spans, span)
    shape: list[int] = []
    index: list[Expr] = []
    for item, where in zip(items, spans, strict=True):
        if isinstance(item, Constant) and item.value is None:
            shape.append(1)
        elif item == SliceValue(None, None, None) and len(index) < len(tile.shape):
            index.append(Coord(len(shape)))
            shape.append(tile.shape[len(index) - 1])
        elif item == SliceValue(None, None, None):
            _fail_count(context, describe(tile), len(tile.shape), span)
        else:
            context.fail(
                "bad-index",
                "a tile in registers is indexed by `None` and `:` only",
                where,
                "reduce it, select with `al.where`, or keep it in a shared tile to take parts of it",
            )
    if len(index) != len(tile.shape):
        _fail_count(context, describe(tile), len(tile.shape), span)
    return Tile(tuple(shape), tile.dtype, substitute_coords(tile.expr, tuple(index)))


def _element(context: Context, tile: Tile, items: Sequence[Item], spans: Sequence[Span], span: Span) -> Tile:
    """Evaluate `x[i, j]` in a tag function, assertion or specification, where it is one element."""
    index = [_scalar_index(context, item, where) for item, where in zip(items, spans, strict=True)]
    if len(index) != len(tile.shape):
        _fail_count(context, describe(tile), len(tile.shape), span)
    return Tile((), tile.dtype, substitute_coords(tile.expr, tuple(index)))


def _scalar_index(context: Context, item: Item, where: Span) -> Expr:
    if isinstance(item, Constant) and isinstance(item.value, int):
        return constant_expr(context, item.value, int32, where)
    if isinstance(item, Tile) and not item.shape and item.dtype.is_int:
        return item.expr
    context.fail("bad-index", "here an index is one integer", where, "index by the lambda's parameters")


def _fail_count(context: Context, what: str, rank: int, span: Span) -> None:
    example = ", ".join([":"] * rank) or "()"
    context.fail(
        "bad-index",
        f"{what} has {rank} dimension{'s' * (rank != 1)}",
        span,
        f"give one index a dimension: `[{example}]`",
    )


def _subscript_view(context: Context, view: View, items: Sequence[Item], spans: Sequence[Span], span: Span) -> Value:
    for item, where in zip(items, spans, strict=True):
        if isinstance(item, Constant) and item.value is None:
            text, remedy = "a view takes no new dimension", "load it, then index the tile: `al.load(x)[:, None]`"
            context.fail("bad-index", text, where, remedy)
    if len(items) != len(view.shape):
        _fail_count(context, describe(view), len(view.shape), span)
    tiles = [(i, item) for i, item in enumerate(items) if isinstance(item, Tile) and item.shape]
    slices = [i for i, item in enumerate(items) if isinstance(item, SliceValue)]
    if slices and (len(tiles) > 1 or any(len(t.shape) != 1 for _, t in tiles)):
        context.fail(
            "bad-index",
            "beside slices, only one index tile of one dimension is allowed",
            spans[tiles[-1][0]],
            "index every dimension by tiles, spread with `i[:, None]` and `j[None, :]`",
        )
    shape: list[int] = []
    common: tuple[int, ...] = ()
    if not slices:
        common = broadcast_shapes(context, [t.shape for _, t in tiles], span) if tiles else ()
        shape = list(common)
    index: list[Expr] = []
    for axis, (item, where) in enumerate(zip(items, spans, strict=True)):
        if isinstance(item, SliceValue):
            lower, extent = _slice(context, view, axis, item, where)
            index.append(ir.op("add", lower, _as(Coord(len(shape)), lower.dtype)))
            shape.append(extent)
        elif isinstance(item, Tile) and item.shape:
            _check_index(context, item, where)
            if slices:
                index.append(substitute_coords(item.expr, (Coord(len(shape)),)))
                shape.append(item.shape[0])
            else:
                index.append(stretch(item.expr, item.shape, common))
        else:
            index.append(_integer(context, item, where))
    check_shape(context, tuple(shape), span)
    composed = tuple(substitute_coords(e, tuple(index)) for e in view.index)
    if context.frame.quantified and not shape and view.block is None:
        return Tile((), view.obj.dtype, Elem(view.obj.name, composed, view.obj.dtype))
    return replace(view, index=composed, shape=tuple(shape))


def _integer(context: Context, item: Item, where: Span) -> Expr:
    if isinstance(item, Constant) and isinstance(item.value, int) and not isinstance(item.value, bool):
        if item.value < 0:
            context.fail(
                "bad-index",
                "a negative index does not count from the end",
                where,
                "write `n - 1` with the dimension's extent `n`",
            )
        return constant_expr(context, item.value, int32, where)
    if isinstance(item, Tile):
        _check_index(context, item, where)
        return item.expr
    what = "a slice" if isinstance(item, SliceValue) else describe(item)
    context.fail("bad-index", f"{what} is no index", where, "index by an integer, a slice `lo:lo + n` or an index tile")


def _check_index(context: Context, tile: Tile, where: Span) -> None:
    if not tile.dtype.is_int or tile.dtype.modular:
        remedy = "select with `mask=`" if tile.dtype is boolean else "convert it with `.to(al.int32)`"
        context.fail("bad-index", f"an index is an integer, not {tile.dtype}", where, remedy)


def _bound(context: Context, item: Value, where: Span) -> Expr:
    if isinstance(item, Tile) and item.shape:
        context.fail(
            "bad-index",
            f"a bound of a slice is one integer, and this is {describe(item)}",
            where,
            "index by the tile itself, `x[i]`, or let the slice begin at a number",
        )
    return _integer(context, item, where)


def _slice(context: Context, view: View, axis: int, item: SliceValue, where: Span) -> tuple[Expr, int]:
    """Return the lower bound and the constant extent of a slice."""
    if item.step is not None:
        context.fail("bad-index", "a slice has no step", where, "index by a tile: `x[lo + step * al.arange(n)]`")
    lower = Const(0) if item.lower is None else _bound(context, item.lower, where)
    if item.upper is not None:
        upper = _bound(context, item.upper, where)
    else:
        extent = view.shape[axis]
        if not isinstance(extent, int):
            context.fail(
                "bad-index",
                f"dimension {axis} of {describe(view)} has no constant extent",
                where,
                "take a part of it: `lo:lo + n` with a constant `n`",
            )
        upper = Const(extent)
    length = difference(upper, lower)
    if length is None:
        context.fail(
            "bad-index",
            "the length of this slice is not a constant",
            where,
            "write `lo:lo + n` with a constant `n`, and mask what is too much with `boundary_check`",
        )
    if length < 1:
        context.fail("bad-shape", f"this slice has length {length}", where, "a view has at least one element")
    return lower, length


def difference(upper: Expr, lower: Expr) -> int | None:
    """Return `upper - lower` if the difference of their linear forms is constant, else None."""
    (left, high), (right, low) = ir.linear(upper), ir.linear(lower)
    return high - low if left == right else None


# ---------------------------------------------------------------------------- whole views


def permute(context: Context, value: Value, dims: tuple[int, ...], span: Span) -> Value:
    """Return `value`, a tile or a view, with permuted dimensions: dimension i of the result is dimension `dims[i]` of
    `value`."""
    if not isinstance(value, (Tile, View)):
        context.fail("type-mismatch", f"{describe(value)} has no dimensions to permute", span, "use a tile or a view")
    if sorted(dims) != list(range(len(value.shape))):
        context.fail(
            "bad-shape",
            f"{dims} is no permutation of the dimensions of {describe(value)}",
            span,
            "name each dimension once, counting from 0",
        )
    index = tuple(Coord(dims.index(d)) for d in range(len(dims)))
    if isinstance(value, Tile):
        shape = tuple(value.shape[d] for d in dims)
        return Tile(shape, value.dtype, substitute_coords(value.expr, index))
    moved = tuple(substitute_coords(e, index) for e in value.index)
    return replace(value, index=moved, shape=tuple(value.shape[d] for d in dims))


def known_extents(context: Context, view: View, span: Span) -> tuple[int, ...]:
    """Return the shape of a view that is to be moved. The shape must be constant."""
    for axis, extent in enumerate(view.shape):
        if not isinstance(extent, int):
            context.fail(
                "bad-shape",
                f"{describe(view)} is as long as the tensor along dimension {axis}, which is no constant",
                span,
                "take a part of constant extent: `x[lo:lo + n]`",
            )
    check_shape(context, view.extents, span)
    return view.extents


def boundary_conditions(context: Context, view: View, dims: tuple[int, ...]) -> list[Expr]:
    """Return the conditions `0 <= index < extent` for every dimension of the object whose index moves along one of the
    view's dimensions `dims`.

    The lower bound is omitted if the form of the index shows that it cannot be negative.
    """
    conditions: list[Expr] = []
    for index, extent in zip(view.index, view.obj.shape, strict=True):
        if not any(isinstance(e, Coord) and e.axis in dims for e in walk(index)):
            continue
        limit = Const(extent) if isinstance(extent, int) else extent
        if not non_negative(context, index):
            conditions.append(ir.op("ge", index, Const(0, index.dtype)))
        conditions.append(ir.op("lt", index, _as(limit, index.dtype)))
    return conditions


def _as(expr: Expr, dtype: DType) -> Expr:
    if expr.dtype is dtype:
        return expr
    return Const(expr.value, dtype) if isinstance(expr, Const) else Op("cast", (expr,), dtype)


def non_negative(context: Context, expr: Expr) -> bool:
    """Return True if the form of `expr` alone shows that it is at least 0."""
    match expr:
        case Const(value=value):
            return value >= 0
        case ProgramId() | Coord() | Thread():
            return True
        case Param(name=name):
            return name in context.sizes
        case LoopVar(name=name):
            return name in context.natural
        case Op(op="add" | "mul" | "minimum" | "floordiv" | "mod", args=args):
            return all(non_negative(context, a) for a in args)
        case Op(op="maximum", args=args):
            return any(non_negative(context, a) for a in args)
        case Op(op="cast", args=(a,)) if expr.dtype.is_int:
            return non_negative(context, a)
        case _:
            return False
