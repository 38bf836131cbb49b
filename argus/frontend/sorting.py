"""`al.sort` and `al.topk` of register tiles.

`al.sort` is a bitonic sorting network over one dimension, written out step by step:

    for block = 2, 4, ..., n, and distance = block / 2, ..., 2, 1:
        y[i] = x[i ^ distance]
        x[i] = the smaller of x[i] and y[i] if place i takes the smaller one, else the larger

The layout decides where elements meet: in one thread's registers, in the lanes of a warp, or through shared memory.

`al.topk` makes an int64 of each element and its place, the *key*: greater elements have greater keys, and of equal
elements the first one has the greatest. Keys differ, so each round takes the greatest key below the one before.
"""

from __future__ import annotations

from argus.frontend import arguments, tiles
from argus.frontend.arithmetic import accumulated
from argus.frontend.context import CallSite, Handler
from argus.frontend.values import Tile, TupleValue, Value, shape_text
from argus.ir import expr as ir
from argus.ir.expr import Const, Coord, Elem, Expr, coords
from argus.ir.nodes import Access, Map, SpecOp, SpecReduce, SpecSoftmax, SpecTerm
from argus.ir.spec_terms import applied
from argus.ir.types import DType, boolean, float32, int32, int64


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


_PLACES = 2**31
LEAST = Const(-(2**63), int64)
LARGEST = Const(2**62, int64)
"""More than all keys."""


def key(x: Expr, place: Expr, largest: bool) -> Expr:
    """Return the key of an element: x in its order, or in the opposite one, and its place in the lower 31 bits."""
    ordered = ir.Op("sortable", (x if x.dtype == float32 else ir.Op("cast", (x,), float32),), int32)
    wide = ir.Op("cast", (ordered if x.dtype.is_float else x,), int64)
    wide = wide if largest else ir.Op("sub", (Const(-1, int64), wide), int64)
    upper = ir.Op("mul", (wide, Const(_PLACES, int64)), int64)
    return ir.Op("add", (upper, ir.Op("cast", (ir.op("sub", Const(_PLACES - 1), place),), int64)), int64)


def place_of(found: SpecTerm) -> SpecTerm:
    """Return the int32 place in a key."""
    lower = applied("cast", (applied("and", (found, Const(_PLACES - 1, int64)), int64),), int32)
    return applied("sub", (Const(_PLACES - 1), lower), int32)


def value_of(found: SpecTerm, dtype: DType, largest: bool) -> SpecTerm:
    """Return the element from which a key was made."""
    upper = applied("shr", (found, Const(31, int64)), int64)
    upper = upper if largest else applied("sub", (Const(-1, int64), upper), int64)
    narrow = applied("cast", (upper,), int32)
    if not dtype.is_float:
        return narrow if dtype == int32 else applied("cast", (narrow,), dtype)
    number = applied("sortable", (narrow,), float32)
    return number if dtype == float32 else applied("cast", (number,), dtype)


def topk(call: CallSite) -> Value:
    """Find the k greatest (or least) elements of a tile along a dimension, and their places, one in each round."""
    context, x = call.context, arguments.tile(call, "x")
    (axis,) = arguments.axes(call, "axis", len(x.shape))
    k, largest = arguments.integer(call, "k", 1), arguments.flag(call, "largest")
    if k > x.shape[axis]:
        context.fail(
            "bad-shape",
            f"dimension {axis} of {shape_text(x.shape)} has fewer than {k} elements",
            call.spans["k"],
            f"use {x.shape[axis]} or less, or load a wider tile",
        )
    if x.dtype is boolean or x.dtype.modular or x.dtype.bits > 32 or (not x.dtype.is_float and x.dtype.bits < 16):
        remedy = "convert first: `x.to(al.int32)` or `x.to(al.float32)`"
        context.fail("type-mismatch", f"`al.topk` does not order {x.dtype}", call.spans["x"], remedy)
    expr = key(x.expr, Coord(axis), largest)
    if arguments.given(call, "mask"):
        mask = tiles.broadcast(arguments.tile(call, "mask", boolean), x.shape)
        expr = ir.Op("where", (mask.expr, expr, LEAST), int64)
    keys = tiles.materialise(context, Tile(x.shape, int64, expr), "topk_keys", call.span)
    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
    tiles.check_shape(context, shape, call.span)
    last: Tile | None = None
    found: Tile | None = None
    for rank in range(k):
        below = LARGEST if last is None else tiles.broadcast(last, x.shape).expr
        rest = ir.Op("where", (ir.op("lt", keys.expr, below), keys.expr, LEAST), int64)
        start = (LEAST, "topk_key")
        last = accumulated(call, Tile(x.shape, int64, rest), "maximum", (axis,), True, start)
        here = tiles.broadcast(last, shape).expr
        if found is not None:
            here = ir.Op("where", (ir.op("eq", Coord(axis), Const(rank)), here, found.expr), int64)
        found = tiles.materialise(context, Tile(shape, int64, here), "topk_found", call.span)
    assert found is not None
    values, places = value_of(found.expr, x.dtype, largest), place_of(found.expr)
    assert not isinstance(values, (SpecOp, SpecReduce, SpecSoftmax))
    assert not isinstance(places, (SpecOp, SpecReduce, SpecSoftmax))
    return TupleValue((Tile(shape, x.dtype, values), Tile(shape, int32, places)))


HANDLERS: dict[str, Handler] = {"sort": sort, "topk": topk}
