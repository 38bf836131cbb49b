"""`al.sort`: a bitonic sorting network over one dimension of a register tile, written out step by step.

    for block = 2, 4, ..., n, and distance = block / 2, ..., 2, 1:
        y[i] = x[i ^ distance]
        x[i] = the smaller of x[i] and y[i] if place i takes the smaller one, else the larger

The layout decides where elements meet: in one thread's registers, in the lanes of a warp, or through shared memory.
"""

from __future__ import annotations

from argus.frontend import arguments, tiles
from argus.frontend.context import CallSite, Handler
from argus.frontend.values import Tile, Value, shape_text
from argus.ir import expr as ir
from argus.ir.expr import Const, Coord, Elem, Expr, coords
from argus.ir.nodes import Access, Map
from argus.ir.types import boolean, float32, int32


def sort(call: CallSite) -> Value:
    """Sort the elements of a tile along a dimension."""
    context, x = call.context, arguments.tile(call, "x")
    (axis,) = arguments.axes(call, "axis", len(x.shape))
    extent = x.shape[axis]
    if extent & (extent - 1):
        context.fail(
            "bad-shape",
            f"`al.sort` takes a power of two of elements, and dimension {axis} of {shape_text(x.shape)} has {extent}",
            call.spans["x"],
            "load a wider tile, with `other` beyond all elements: `other=float('inf')`",
        )
    if x.dtype is boolean or (not x.dtype.is_float and x.dtype.bits < 16):
        remedy = "convert first: `x.to(al.int32)`"
        context.fail("type-mismatch", f"`al.sort` does not order {x.dtype}", call.spans["x"], remedy)
    keys = _keys(x)
    found = _network(call, keys, axis, arguments.flag(call, "descending"))
    if not x.dtype.is_float:
        return found
    return tiles.cast(Tile(found.shape, float32, ir.Op("sortable", (found.expr,), float32)), x.dtype)


def _keys(x: Tile) -> Tile:
    """Return integers in the order of the elements. Comparing floats directly would spread NaN."""
    if not x.dtype.is_float:
        return x
    wide = tiles.cast(x, float32)
    return Tile(x.shape, int32, ir.Op("sortable", (wide.expr,), int32))


def _network(call: CallSite, keys: Tile, axis: int, descending: bool) -> Tile:
    """Compare and exchange elements at all distances of all blocks."""
    now = tiles.materialise(call.context, keys, call.name, call.span)
    block = 2
    while block <= keys.shape[axis]:
        distance = block // 2
        while distance:
            now = _step(call, now, axis, (block, distance), descending)
            distance //= 2
        block *= 2
    return now


def _step(call: CallSite, now: Tile, axis: int, sizes: tuple[int, int], descending: bool) -> Tile:
    """Compare each element with its partner; in an ascending block the lower place gets the smaller one."""
    context, (block, distance) = call.context, sizes
    assert now.fragment is not None
    at, whole = Coord(axis), coords(len(now.shape))
    partner = context.new_fragment(f"{call.name}_partner", now.shape, now.dtype, call.span)
    assert partner.fragment is not None
    there = (*whole[:axis], ir.op("xor", at, Const(distance)), *whole[axis + 1 :])
    value = Elem(now.fragment, there, now.dtype)
    context.emit(Map(Access(partner.fragment, whole), value, now.shape), call.span)
    lower = _bit(at, distance)
    ascending = _bit(at, block) if block < now.shape[axis] else None
    first: Expr = lower if ascending is None else ir.op("eq", lower, ascending)
    pair = (now.expr, partner.expr)
    least, most = (ir.Op(name, pair, now.dtype) for name in ("minimum", "maximum"))
    chosen = (most, least) if descending else (least, most)
    return tiles.materialise(context, Tile(now.shape, now.dtype, ir.Op("where", (first, *chosen), now.dtype)),
                             call.name, call.span)  # fmt: skip


def _bit(at: Expr, size: int) -> Expr:
    """Return an expression that is true in the lower half of each block of `2 * size` places."""
    return ir.op("lt", ir.op("mod", at, Const(2 * size)), Const(size))


HANDLERS: dict[str, Handler] = {"sort": sort}
