"""Parts of tensors and buffers: boxes of which a view keeps some dimensions."""

from __future__ import annotations

from collections.abc import Callable

from argus.frontend.context import Context
from argus.frontend.surface import Expression, Slice, Subscript
from argus.frontend.tiles import as_tile
from argus.frontend.values import Value, View, describe
from argus.ir.expr import Const, Coord, Expr, Op, op, substitute_coords, walk
from argus.ir.nodes import Tensor
from argus.ir.types import int32
from argus.programs.ir import Part
from argus.source import Span

Evaluate = Callable[[Expression], Value]


def part_of(view: View) -> Part:
    """Return the box of a view that `subview` made, or of a whole tensor."""
    start: list[Expr] = []
    extent: list[Expr] = []
    kept: list[bool] = []
    zeros = tuple(Const(0) for _ in view.shape)
    for index in view.index:
        axis = next((e.axis for e in walk(index) if isinstance(e, Coord)), None)
        start.append(index if axis is None else folded(substitute_coords(index, zeros)))
        extent.append(Const(1) if axis is None else _extent(view.shape[axis]))
        kept.append(axis is not None)
    return Part(view.obj.name, tuple(start), tuple(extent), tuple(kept))


def folded(expr: Expr) -> Expr:
    """Return an expression of sums with folded constants."""
    return op(expr.op, *expr.args) if isinstance(expr, Op) and expr.op in ("add", "sub", "mul") else expr


def _extent(extent: int | Expr) -> Expr:
    return Const(extent) if isinstance(extent, int) else extent


def subview(context: Context, view: View, node: Subscript, value: Evaluate) -> View:
    """Evaluate `view[i, lo:hi]`, with one index or slice for each dimension."""
    if not isinstance(view.obj, Tensor):
        context.fail("bad-index", f"{describe(view)} cannot be indexed", node.span, "index a tensor or a buffer")
    if len(node.items) != len(view.shape):
        example = ", ".join([":"] * len(view.shape))
        what = f"{describe(view)} has {len(view.shape)} dimensions, and {len(node.items)} indices are given"
        context.fail("bad-index", what, node.span, f"give one index or slice a dimension: `[{example}]`")
    shape: list[int | Expr] = []
    places: list[Expr] = []
    for item, extent in zip(node.items, view.shape, strict=True):
        if not isinstance(item, Slice):
            places.append(_scalar(context, value(item), item.span))
            continue
        if item.step is not None:
            context.fail("bad-index", "a part has no step", item.span, "pass the rows one by one, or a whole range")
        lower = Const(0) if item.lower is None else _scalar(context, value(item.lower), item.span)
        upper = _extent(extent) if item.upper is None else _scalar(context, value(item.upper), item.span)
        places.append(op("add", lower, Coord(len(shape))))
        length = difference(upper, lower)
        shape.append(int(length.value) if isinstance(length, Const) else length)
    return View(view.obj, tuple(substitute_coords(i, tuple(places)) for i in view.index), tuple(shape))


def difference(upper: Expr, lower: Expr) -> Expr:
    """Return `upper - lower`. The length of `i : i + n` is `n`."""
    if lower == Const(0):
        return upper
    if isinstance(upper, Op) and upper.op == "add":
        if upper.args[0] == lower:
            return upper.args[1]
        if upper.args[1] == lower:
            return upper.args[0]
    return op("sub", upper, lower)


def _scalar(context: Context, value: Value, span: Span) -> Expr:
    found = as_tile(context, value, span, int32)
    if found.shape or found.dtype is not int32:
        what = f"an index of a part is an int32, and this is {describe(found)}"
        context.fail("bad-index", what, span, "index by sizes, numbers and counters of loops")
    return found.expr
