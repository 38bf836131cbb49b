"""Create tiles and compute with them: constructors, elementwise functions, reductions, shuffles."""

from __future__ import annotations

from math import prod

from argus.frontend import arguments, tiles, views
from argus.frontend.context import CallSite, Context, Handler
from argus.frontend.tiles import elementwise
from argus.frontend.values import Constant, Tile, Value, View, describe
from argus.ir import expr as ir
from argus.ir.expr import OPERATORS, REDUCTIONS, Const, Coord, Elem, Expr, Op, coords, substitute_coords
from argus.ir.nodes import Access, Accumulate, Map, SpecTerm
from argus.ir.promise import PROMISES
from argus.ir.spec_terms import unrounded
from argus.ir.types import DType, boolean, float32, int32
from argus.source import Span

# ---------------------------------------------------------------------------- constructors


def arange(call: CallSite) -> Value:
    start = arguments.integer(call, "start")
    if arguments.given(call, "stop"):
        stop = arguments.integer(call, "stop")
    else:
        start, stop = 0, start
    if stop <= start:
        call.context.fail(
            "bad-shape",
            f"the range from {start} to {stop} is empty",
            call.span,
            "every extent of a tile is at least 1",
        )
    tiles.check_shape(call.context, (stop - start,), call.span)
    return Tile((stop - start,), int32, ir.op("add", Coord(0), Const(start)))


def full(call: CallSite) -> Value:
    """Evaluate `zeros` and `full` to an expression, or to a new fragment if a layout is given."""
    context, shape, dtype = call.context, arguments.shape(call), arguments.dtype(call, "dtype")
    if call.name == "zeros":
        value = Const(False if dtype is boolean else 0.0 if dtype.is_float else 0, dtype)
        filled = Tile(shape, dtype, value)
    else:
        scalar = arguments.tile(call, "value", dtype)
        if scalar.shape or scalar.dtype is not dtype:
            context.fail(
                "type-mismatch",
                f"`value` is a number or a scalar of {dtype}, and this is {describe(scalar)}",
                call.spans["value"],
                f"convert it with `.to(al.{dtype})`" if not scalar.shape else "give one value",
            )
        filled = Tile(shape, dtype, scalar.expr)
    layout = arguments.fragment_layout(call, shape)
    if layout is None:
        return filled
    name = call.wanted.name if call.wanted is not None else call.name
    return tiles.materialise(context, filled, name, call.span, layout)


def trans(call: CallSite) -> Value:
    value = call.args["x"]
    if isinstance(value, (Tile, View)) and len(value.shape) != 2:
        call.context.fail(
            "bad-shape",
            f"`al.trans` swaps two dimensions, and this is {describe(value)}",
            call.span,
            "name the order of all dimensions with `al.permute(x, dims)`",
        )
    return views.permute(call.context, value, (1, 0), call.span)


def permute(call: CallSite) -> Value:
    return views.permute(call.context, call.args["x"], arguments.integers(call, "dims"), call.span)


# ---------------------------------------------------------------------------- elementwise


def unary(call: CallSite) -> Value:
    return elementwise(call.context, call.name, (_float(call, "x"),), (call.spans["x"],), call.span)


def sortable(call: CallSite) -> Value:
    """Evaluate `al.sortable`: an int32 in the order of a float32, or the float32 from which such an int32 was made."""
    x, dtype = arguments.tile(call, "x"), arguments.dtype(call, "dtype")
    check_sortable(call.context, x.expr, dtype, call.span)
    return Tile(x.shape, dtype, Op("sortable", (x.expr,), dtype))


def check_sortable(context: Context, x: SpecTerm, to: DType, span: Span) -> None:
    """Fail unless one type is float32 and the other int32, and no specification orders numbers that a kernel may
    round."""
    if context.frame.quantified and x.dtype.is_float and not unrounded(x):
        context.fail(
            "bad-tag",
            "the order of computed numbers is no part of a specification: rounding would decide between them",
            span,
            "order a tensor's elements, as they are or chosen by `al.where`",
        )
    of = x.dtype
    if (of, to) not in ((float32, int32), (int32, float32)):
        context.fail(
            "type-mismatch",
            f"`al.sortable` does not make {to} of {of}",
            span,
            "it makes int32 of float32, and float32 of int32: convert first, `x.to(al.float32)`",
        )


def _float(call: CallSite, name: str) -> Value:
    """Evaluate an argument of a function of floats. An integer constant is converted to a float."""
    value = call.args[name]
    if isinstance(value, Constant) and isinstance(value.value, int) and call.name != "abs":
        return Constant(float(value.value))
    return value


def extremum(call: CallSite) -> Value:
    """Evaluate `maximum` and `minimum`."""
    x, y = call.args["x"], call.args["y"]
    if isinstance(x, Constant) and isinstance(y, Constant):
        a, b = x.value, y.value
        if isinstance(a, (int, float)) and isinstance(b, (int, float)):
            return Constant(max(a, b) if call.name == "maximum" else min(a, b))
    return elementwise(call.context, call.name, (x, y), (call.spans["x"], call.spans["y"]), call.span)


def umulhi(call: CallSite) -> Value:
    return elementwise(call.context, "umulhi", (call.args["x"], call.args["y"]), (call.spans["x"], call.spans["y"]),
                       call.span)  # fmt: skip


def where(call: CallSite) -> Value:
    names = ("condition", "x", "y")
    values, spans = tuple(call.args[n] for n in names), tuple(call.spans[n] for n in names)
    if isinstance(values[0], Constant) and isinstance(values[0].value, bool):
        chosen = values[1] if values[0].value else values[2]
        other = values[2] if values[0].value else values[1]
        if isinstance(chosen, Constant) and isinstance(other, Constant):
            return chosen
    return elementwise(call.context, "where", values, spans, call.span)


def fma(call: CallSite) -> Value:
    x, y, z = (call.args[n] for n in "xyz")
    sx, sy, sz = (call.spans[n] for n in "xyz")
    product = tiles.binary(call.context, "*", (x, y), (sx, sy), call.span)
    return tiles.binary(call.context, "+", (product, z), (call.span, sz), call.span)


def cdiv(call: CallSite) -> Value:
    x, y = call.args["x"], call.args["y"]
    for name, value in (("x", x), ("y", y)):
        whole = isinstance(value, Constant) and isinstance(value.value, int) and not isinstance(value.value, bool)
        if not whole and not (isinstance(value, Tile) and value.dtype.is_int):
            call.context.fail(
                "type-mismatch",
                f"`al.cdiv` divides integers, and this is {describe(value)}",
                call.spans[name],
                "use integers",
            )
    if isinstance(y, Constant) and isinstance(y.value, int) and y.value < 1:
        call.context.fail("bad-constant", "`al.cdiv` divides by a positive number", call.spans["y"], "use 1 or more")
    sx, sy = call.spans["x"], call.spans["y"]
    less = tiles.binary(call.context, "-", (y, Constant(1)), (sy, sy), call.span)
    total = tiles.binary(call.context, "+", (x, less), (sx, sy), call.span)
    return tiles.binary(call.context, "//", (total, y), (call.span, sy), call.span)


def next_power_of_2(call: CallSite) -> Value:
    value = arguments.integer(call, "x", 1)
    return Constant(1 << (value - 1).bit_length())


# ---------------------------------------------------------------------------- reductions

_REDUCE = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum", "argmax": "maximum", "argmin": "minimum"}


def reduce(call: CallSite) -> Value:
    """Reduce a tile: write the identity element, then accumulate over the whole domain."""
    x, op, dropped, keep = _reduction(call)
    name = call.wanted.name if call.wanted is not None else call.name
    return accumulated(call, x, op, dropped, keep, (Const(_identity(op, x.dtype), x.dtype), name))


def first_extremum(call: CallSite) -> Value:
    """Evaluate `argmax` and `argmin`: find the extremum, then the smallest index that holds it, or that holds a NaN if
    there is one."""
    context, (x, op, dropped, keep) = call.context, _reduction(call)
    # The tile is compared with itself, so it is computed once and kept in registers.
    x = tiles.in_registers(context, x, f"{call.name}_of", call.span)
    start = Const(_identity(op, x.dtype), x.dtype)
    best = accumulated(call, x, op, dropped, True, (start, f"{call.name}_value"))
    place: Expr = Const(0)
    for d in dropped:
        place = ir.op("add", ir.op("mul", place, Const(x.shape[d])), Coord(d))
    at_best = tuple(Const(0) if d in dropped else Coord(d) for d in range(len(x.shape)))
    found = ir.op("eq", x.expr, substitute_coords(best.expr, at_best))
    if x.dtype.is_float:
        found = ir.op("or", found, ir.op("ne", x.expr, x.expr))
    last = Const(prod(x.shape[d] for d in dropped) - 1)
    places = Tile(x.shape, int32, ir.op("where", found, place, last))
    name = call.wanted.name if call.wanted is not None else call.name
    return accumulated(call, places, "minimum", dropped, keep, (last, name))


def _reduction(call: CallSite) -> tuple[Tile, str, tuple[int, ...], bool]:
    """Return the tile, the operator and the dimensions of a reduction, and whether it keeps these dimensions with
    extent 1."""
    context, x, op = call.context, arguments.tile(call, "x"), _REDUCE[call.name]
    keep = arguments.flag(call, "keep_dims")
    if not x.shape:
        context.fail(
            "bad-shape", f"`al.{call.name}` reduces a tile, and this is a scalar", call.spans["x"], "leave it out"
        )
    if x.dtype is boolean or x.dtype.bits < 16:
        context.fail(
            "type-mismatch",
            f"`al.{call.name}` does not reduce {x.dtype}",
            call.spans["x"],
            "convert first: `x.to(al.int32)` or `x.to(al.float32)`",
        )
    rank = len(x.shape)
    if not arguments.given(call, "axis"):
        return x, op, tuple(range(rank)), keep
    return x, op, (arguments.axes(call, "axis", rank)[0],), keep


def accumulated(
    call: CallSite, x: Tile, op: str, dropped: tuple[int, ...], keep: bool, start: tuple[Const, str]
) -> Tile:
    """Return a new fragment with the given start value and name into which all elements of `x` are accumulated."""
    context, rank, (value, name) = call.context, len(x.shape), start
    shape = tuple(1 if d in dropped else n for d, n in enumerate(x.shape) if keep or d not in dropped)
    index: list[Expr] = [Const(0) if d in dropped else Coord(d) for d in range(rank) if keep or d not in dropped]
    result = tiles.materialise(context, Tile(shape, x.dtype, value), name, call.span)
    assert result.fragment is not None
    context.emit(Accumulate(Access(result.fragment, tuple(index)), x.expr, op, x.shape), call.span)
    return result


def _identity(op: str, dtype: DType) -> int | float:
    value = REDUCTIONS[op](dtype)
    return float(value) if dtype.is_float else value


# ---------------------------------------------------------------------------- shuffles


def shuffle(call: CallSite) -> Value:
    """Emit a map that reads the registers of other lanes, and return its result."""
    context, x = call.context, arguments.tile(call, "x")
    if not x.shape:
        context.fail("bad-shape", f"`al.{call.name}` moves along a dimension", call.spans["x"], "give a tile")
    axis = len(x.shape) - 1
    at = Coord(axis)
    extent = x.shape[axis]
    if call.name == "shuffle_xor":
        bits = arguments.integer(call, "mask", 1)
        if extent & (extent - 1) or bits >= extent:
            context.fail(
                "bad-shape",
                f"i ^ {bits} leaves the last dimension of extent {extent}",
                call.span,
                "the extent is a power of two, and the mask below it",
            )
        moved = ir.op("xor", at, Const(bits))
    else:
        delta = arguments.integer(call, "delta", 1)
        up = call.name == "shuffle_up"
        to = ir.op("sub" if up else "add", at, Const(delta))
        inside = ir.op("ge", to, Const(0)) if up else ir.op("lt", to, Const(extent))
        moved = ir.op("where", inside, to, at)
    source = tiles.in_registers(context, x, "x", call.span)
    assert source.fragment is not None
    name = call.wanted.name if call.wanted is not None else call.name
    result = context.new_fragment(name, x.shape, x.dtype, call.span)
    assert result.fragment is not None
    value = Elem(source.fragment, (*coords(axis), moved), x.dtype)
    context.emit(Map(Access(result.fragment, coords(len(x.shape))), value, x.shape, None, "warp"), call.span)
    return result


HANDLERS: dict[str, Handler] = {
    "arange": arange,
    "zeros": full,
    "full": full,
    "trans": trans,
    "permute": permute,
    **{row.name: unary for row in OPERATORS.values() if row.function is not None},
    "sortable": sortable,
    **dict.fromkeys(PROMISES, unary),
    "maximum": extremum,
    "minimum": extremum,
    "where": where,
    "fma": fma,
    "umulhi": umulhi,
    "cdiv": cdiv,
    "next_power_of_2": next_power_of_2,
    "sum": reduce,
    "prod": reduce,
    "max": reduce,
    "min": reduce,
    "argmax": first_extremum,
    "argmin": first_extremum,
    "shuffle_xor": shuffle,
    "shuffle_up": shuffle,
    "shuffle_down": shuffle,
}
