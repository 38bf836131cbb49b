"""Elaborate operators that rearrange register tiles: `reshape`, `join`, `split` and `interleave`."""

from __future__ import annotations

from math import prod

from argus.frontend import arguments, tiles
from argus.frontend.context import CallSite, Handler
from argus.frontend.values import Tile, TupleValue, Value, View, describe, shape_text
from argus.ir import expr as ir
from argus.ir.expr import Const, Coord, Elem, Expr, coords, reshaped
from argus.ir.nodes import Access, Map


def reshape(call: CallSite) -> Value:
    """Give a tile another shape; its elements keep their order."""
    x, shape = _tile(call, "x"), arguments.shape(call)
    if prod(x.shape) != prod(shape):
        call.context.fail(
            "shape-mismatch",
            f"{describe(x)} has {prod(x.shape)} elements, and a tile of {shape_text(shape)} has {prod(shape)}",
            call.spans["shape"],
            "keep the number of elements",
        )
    return _reshaped(call, x, shape)


def join(call: CallSite) -> Value:
    return _joined(call)


def interleave(call: CallSite) -> Value:
    both = _joined(call)
    if len(both.shape) == 1:
        call.context.fail("bad-shape", "`al.interleave` runs along a dimension", call.span, "join scalars: `al.join`")
    return _reshaped(call, both, (*both.shape[:-2], 2 * both.shape[-2]))


def split(call: CallSite) -> Value:
    """Return the tiles at indices 0 and 1 of the last dimension."""
    x = _tile(call, "x")
    if not x.shape or x.shape[-1] != 2:
        call.context.fail(
            "bad-shape",
            f"`al.split` takes a tile whose last dimension is 2, and this is {describe(x)}",
            call.spans["x"],
            "write `al.split(al.reshape(x, (..., n // 2, 2)))`",
        )
    at = coords(len(x.shape) - 1)
    return TupleValue(tuple(_moved(call, x, (*at, Const(half)), x.shape[:-1]) for half in range(2)))


def _tile(call: CallSite, name: str) -> Tile:
    if isinstance(call.args[name], View):
        call.context.fail(
            "type-mismatch",
            f"`al.{call.name}` takes tiles in registers, and this is {describe(call.args[name])}",
            call.spans[name],
            "bring it into registers with `al.load(...)`",
        )
    return arguments.tile(call, name)


def _joined(call: CallSite) -> Tile:
    context, x, y = call.context, _tile(call, "x"), _tile(call, "y")
    if x.dtype is not y.dtype:
        context.fail("type-mismatch", f"these are {x.dtype} and {y.dtype}", call.span, "convert one of them")
    shape = tiles.broadcast_shapes(context, [x.shape, y.shape], call.span)
    first = ir.op("eq", Coord(len(shape)), Const(0))
    both = (tiles.broadcast(tile, shape).expr for tile in (x, y))
    tiles.check_shape(context, (*shape, 2), call.span)
    joined = Tile((*shape, 2), x.dtype, ir.Op("where", (first, *both), x.dtype))
    name = call.wanted.name if call.wanted is not None and call.name == "join" else call.name
    return tiles.materialise(context, joined, name, call.span)


def _reshaped(call: CallSite, x: Tile, shape: tuple[int, ...]) -> Tile:
    return _moved(call, x, reshaped(shape, x.shape), shape)


def _moved(call: CallSite, x: Tile, index: tuple[Expr, ...], shape: tuple[int, ...]) -> Tile:
    """Make a new fragment of `shape` with the elements of `x` at `index`."""
    context = call.context
    source = tiles.in_registers(context, x, f"{call.name}_of", call.span)
    assert source.fragment is not None
    result = context.new_fragment(call.wanted.name if call.wanted is not None else call.name, shape, x.dtype, call.span)
    assert result.fragment is not None
    value = Elem(source.fragment, index, x.dtype)
    context.emit(Map(Access(result.fragment, coords(len(shape))), value, shape), call.span)
    return result


HANDLERS: dict[str, Handler] = {"reshape": reshape, "join": join, "split": split, "interleave": interleave}
