"""Create tiles and compute with them: constructors, elementwise functions, reductions, matrix products, shuffles."""

from __future__ import annotations

from math import prod

from argus.diagnostic import Note
from argus.frontend import arguments, tiles, views
from argus.frontend.context import CallSite, Context, Handler
from argus.frontend.tiles import elementwise
from argus.frontend.values import Constant, Tile, Value, View, describe, shape_text
from argus.ir import expr as ir
from argus.ir.expr import OPERATORS, REDUCTIONS, Const, Coord, Elem, Expr, Op, coords, substitute_coords
from argus.ir.instruction import MMA, WGMMA, MmaRow, WgmmaRow
from argus.ir.nodes import Access, Accumulate, Map, Mma, Shared, SpecTerm
from argus.ir.spec_terms import unrounded
from argus.ir.types import DType, boolean, float32, int8, int32
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
    return _accumulated(call, x, op, dropped, keep, (Const(_identity(op, x.dtype), x.dtype), name))


def first_extremum(call: CallSite) -> Value:
    """Evaluate `argmax` and `argmin`: find the extremum, then the smallest index that holds it, or that holds a NaN if
    there is one."""
    context, (x, op, dropped, keep) = call.context, _reduction(call)
    # The tile is compared with itself, so it is computed once and kept in registers.
    x = tiles.in_registers(context, x, f"{call.name}_of", call.span)
    start = Const(_identity(op, x.dtype), x.dtype)
    best = _accumulated(call, x, op, dropped, True, (start, f"{call.name}_value"))
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
    return _accumulated(call, places, "minimum", dropped, keep, (last, name))


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


def _accumulated(
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


# ---------------------------------------------------------------------------- matrix product


def mma(call: CallSite) -> Value:
    """Emit a matrix product: into the accumulator if the result replaces it, otherwise into a copy of it."""
    context = call.context
    a, b = _operand(call, "a"), _operand(call, "b")
    (m, k), (n, k_b) = _matrix(call, a, "a"), _matrix(call, b, "b")
    if k != k_b:
        context.fail(
            "shape-mismatch",
            f"a is {shape_text((m, k))} and b {shape_text((n, k_b))}: their last dimensions, k, differ",
            call.span,
            "`al.mma` contracts the last dimension of both: b is (N, K); `al.trans` a (K, N) one",
        )
    operand = _dtype(a)
    if operand is not _dtype(b):
        context.fail(
            "type-mismatch", f"a is {operand} and b {_dtype(b)}", call.span, "convert one of them, or load both alike"
        )
    acc = _accumulator(call, operand, (m, n))
    instruction, warps = _mma_instruction(call, operand, acc.dtype)
    fragment = acc.fragment
    if fragment is None or call.wanted is None or call.wanted.fragment != fragment:
        name = call.wanted.name if call.wanted is not None else "acc"
        layout = context.fragments[fragment].layout if fragment is not None else None
        acc = tiles.materialise(context, acc, name, call.span, layout)
        fragment = acc.fragment
    assert fragment is not None
    at_m, at_n, at_k = coords(3)
    context.emit(
        Mma(
            Access(fragment, (at_m, at_n)),
            _access(a, (at_m, at_k)),
            _access(b, (at_n, at_k)),
            (m, n, k),
            instruction,
            warps,
        ),
        call.span,
    )
    return acc


def _operand(call: CallSite, name: str) -> View | Tile:
    value = call.args[name]
    if isinstance(value, View) and value.block is not None:
        call.context.fail(
            "bad-peer",
            f"{describe(value)} is another block's, and a product reads the own block's",
            call.spans[name],
            "bring it in with `al.load(...)`",
        )
    if isinstance(value, View) and isinstance(value.obj, Shared):
        return value
    if isinstance(value, View):
        call.context.fail(
            "type-mismatch",
            f"{describe(value)} is in global memory",
            call.spans[name],
            "bring it in with `al.stage(...)`, or with `al.load(...)`",
        )
    tile = arguments.tile(call, name)
    if isinstance(tile.expr, Elem):
        return tile
    return tiles.materialise(call.context, tile, name, call.spans[name])


def _dtype(value: View | Tile) -> DType:
    return value.obj.dtype if isinstance(value, View) else value.dtype


def _matrix(call: CallSite, value: View | Tile, name: str) -> tuple[int, int]:
    shape = views.known_extents(call.context, value, call.spans[name]) if isinstance(value, View) else value.shape
    if len(shape) != 2:
        call.context.fail(
            "shape-mismatch",
            f"`{name}` of `al.mma` has two dimensions, and this is {describe(value)}",
            call.spans[name],
            "give a matrix",
        )
    return shape[0], shape[1]


def _access(value: View | Tile, at: tuple[Expr, Expr]) -> Access:
    if isinstance(value, View):
        return Access(value.obj.name, tuple(substitute_coords(e, at) for e in value.index))
    assert isinstance(value.expr, Elem)
    return Access(value.expr.obj, tuple(substitute_coords(e, at) for e in value.expr.index))


def _accumulator(call: CallSite, operand: DType, shape: tuple[int, int]) -> Tile:
    wanted = int32 if operand is int8 else float32
    if not operand.is_float and operand is not int8:
        call.context.fail(
            "type-mismatch", f"there is no matrix product of {operand}", call.span, "use a float dtype or int8"
        )
    acc = arguments.tile(call, "acc", wanted)
    if acc.dtype is not wanted:
        call.context.fail(
            "type-mismatch",
            f"products of {operand} accumulate in {wanted}, and `acc` is {acc.dtype}",
            call.spans["acc"],
            f"start from `al.zeros(shape, al.{wanted})`",
        )
    if acc.shape != shape:
        call.context.fail(
            "shape-mismatch",
            f"a and b give a product of shape {shape_text(shape)}, and `acc` has {shape_text(acc.shape)}",
            call.spans["acc"],
            "acc is (M, N) for a of (M, K) and b of (N, K)",
            notes=(Note("the operands are given here", call.spans["a"]),),
        )
    return acc


def _mma_instruction(call: CallSite, operand: DType, accumulator: DType) -> tuple[str | None, tuple[int, int] | None]:
    """Return the named matrix instruction and the arrangement of warps, or None for each that is not given."""
    context = call.context
    warps: tuple[int, int] | None = None
    if arguments.given(call, "warps"):
        warps = warp_grid(call)
    if not arguments.given(call, "instruction"):
        return None, warps
    name = arguments.text(call, "instruction")
    asynchronous = WGMMA.get(name)
    if asynchronous is not None and context.target.has(asynchronous):
        row: MmaRow | WgmmaRow = asynchronous
        warps = warps or (context.num_warps, 1)
    else:
        row = mma_row(call, name)
    if operand not in row.operands or accumulator is not row.accumulator:
        context.fail(
            "unknown-instruction",
            f'"{name}" multiplies {" or ".join(map(str, row.operands))} into {row.accumulator}, not {operand} into '
            f"{accumulator}",
            call.spans["instruction"],
            "choose another instruction, or convert the operands",
        )
    return name, warps


def mma_row(call: CallSite, name: str) -> MmaRow:
    """Return the row of the matrix instruction, which the target must have."""
    context = call.context
    usable = sorted(r.name for r in MMA.values() if context.target.has(r))
    if name not in usable:
        reason = f"is not an instruction of {context.target.name}" if name in MMA else "is not a matrix instruction"
        context.fail(
            "unknown-instruction", f'"{name}" {reason}', call.spans["instruction"], f"there are: {', '.join(usable)}"
        )
    return MMA[name]


def warp_grid(call: CallSite) -> tuple[int, int]:
    """Evaluate `warps=(along M, along N)`, which must use all warps of the block."""
    warps = arguments.integers(call, "warps")
    if len(warps) != 2 or min(warps) < 1:
        call.context.fail("bad-layout", "`warps` is (along M, along N)", call.spans["warps"], "write `warps=(2, 2)`")
    if warps[0] * warps[1] != call.context.num_warps:
        call.context.fail(
            "bad-layout",
            f"{warps[0]} x {warps[1]} warps do not make the block's {call.context.num_warps}",
            call.spans["warps"],
            f"choose two numbers with the product {call.context.num_warps}, or change `num_warps`",
        )
    return warps[0], warps[1]


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
    "mma": mma,
    "shuffle_xor": shuffle,
    "shuffle_up": shuffle,
    "shuffle_down": shuffle,
}
