"""Tiles as functions of coordinates: broadcasting, conversion of constants, elementwise operators, registers."""

from __future__ import annotations

from typing import NoReturn

from argus.diagnostic import Note
from argus.frontend import constants
from argus.frontend.constants import ConstantError
from argus.frontend.context import MAX_ELEMENTS, Context
from argus.frontend.values import Constant, Tile, Value, View, describe, shape_text
from argus.ir import expr as ir
from argus.ir.expr import Const, Elem, Expr, Op, children, coords, elements, substitute_coords, walk
from argus.ir.nodes import Access, Map
from argus.ir.types import DType, boolean, float32, int32
from argus.layout import FragmentLayout
from argus.source import Span

MAX_NAMED = 200
"""Largest expression, in nodes, that a name may stand for. A larger one gets registers."""

BINARY = {
    "+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "&": "and", "|": "or",
    "^": "xor", "<<": "shl", ">>": "shr", "==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge",
}  # fmt: skip
SYMBOLS = {operator: symbol for symbol, operator in BINARY.items()}
_INTEGER_ONLY = ("floordiv", "mod", "shl", "shr")
_BITWISE = ("and", "or", "xor")
_STORAGE_ONLY = ("tfloat32", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")


# ---------------------------------------------------------------------------- constants and shapes


def default_dtype(value: object) -> DType | None:
    """Return the dtype of a Python constant where no operand decides it. Return None if the constant is not a number.
    """
    match value:
        case bool():
            return boolean
        case int():
            return int32
        case float():
            return float32
        case _:
            return None


def constant_expr(context: Context, value: object, dtype: DType, span: Span) -> Const:
    """Return a Python constant as a literal of `dtype`."""
    natural = default_dtype(value)
    if natural is None:
        context.fail("type-mismatch", f"{describe(Constant(value))} is not a number", span, "use a number here")
    if dtype.is_float and natural is not boolean:
        assert isinstance(value, (int, float))
        try:
            return Const(float(value), dtype)
        except OverflowError:
            context.fail("bad-constant", "this constant is too large for a float", span, "use a smaller one")
    if natural is float32 or (natural is boolean) != (dtype is boolean):
        context.fail(
            "type-mismatch",
            f"{describe(Constant(value))} cannot become {dtype}",
            span,
            f"write a constant of that kind, or convert the other side with `.to(al.{natural})`",
        )
    assert isinstance(value, int)
    low, high = dtype.integers
    if not low <= value <= high:
        context.fail(
            "bad-constant",
            f"{value} does not fit {dtype}, which holds {low} to {high}",
            span,
            "use a wider dtype or a smaller constant",
        )
    return Const(value, dtype)


def as_tile(context: Context, value: Value, span: Span, dtype: DType | None = None) -> Tile:
    """Return `value` as a tile. A tile is returned unchanged; a constant becomes a scalar of `dtype`, or of its own
    dtype."""
    match value:
        case Tile():
            return value
        case Constant(value=constant):
            chosen = dtype if dtype is not None else default_dtype(constant)
            if chosen is not None:
                return Tile((), chosen, constant_expr(context, constant, chosen, span))
        case View():
            context.fail(
                "type-mismatch",
                f"{describe(value)} is in memory, not in registers",
                span,
                "bring it into registers with `al.load(...)`",
            )
        case _:
            pass
    context.fail("type-mismatch", f"{describe(value)} is not a tile or a number", span, "use a tile or a number here")


def check_shape(context: Context, shape: tuple[int, ...], span: Span) -> None:
    """Check that extents are positive and that the tile has an acceptable number of elements."""
    size = 1
    for extent in shape:
        if extent < 1:
            context.fail(
                "bad-shape",
                f"a tile of shape {shape_text(shape)} has an extent below 1",
                span,
                "every extent of a tile is at least 1; guard empty work with the loop's bounds or an `if`",
            )
        size *= extent
    if size > MAX_ELEMENTS:
        context.fail(
            "bad-shape",
            f"a tile of shape {shape_text(shape)} has more than {MAX_ELEMENTS} elements",
            span,
            "take a smaller tile a block and more blocks",
        )


def broadcast_shapes(
    context: Context, shapes: list[tuple[int, ...]], span: Span, notes: tuple[Note, ...] = ()
) -> tuple[int, ...]:
    """Broadcast shapes by NumPy's rule: shapes align at their last dimension, and an extent of 1 stretches."""
    rank = max((len(s) for s in shapes), default=0)
    result: list[int] = []
    for axis in range(-rank, 0):
        extents = {s[axis] for s in shapes if len(s) >= -axis} - {1}
        if len(extents) > 1:
            texts = [shape_text(s) for s in dict.fromkeys(shapes) if s]
            context.fail(
                "shape-mismatch",
                f"shapes {' and '.join(texts)} do not broadcast: {' is not '.join(map(str, sorted(extents)))}",
                span,
                "shapes align at their last dimension; add a dimension of 1 with `x[:, None]` or `x[None, :]`",
                notes=notes,
            )
        result.append(extents.pop() if extents else 1)
    check_shape(context, tuple(result), span)
    return tuple(result)


def stretch(expr: Expr, shape: tuple[int, ...], to: tuple[int, ...]) -> Expr:
    """Rewrite an element expression over `shape` as one over the wider shape `to`."""
    if shape == to:
        return expr
    shift = len(to) - len(shape)
    index = tuple(Const(0) if n == 1 else ir.Coord(d + shift) for d, n in enumerate(shape))
    return substitute_coords(expr, index)


def broadcast(tile: Tile, to: tuple[int, ...]) -> Tile:
    """Broadcast `tile` to the shape `to`."""
    return tile if tile.shape == to else Tile(to, tile.dtype, stretch(tile.expr, tile.shape, to))


# ---------------------------------------------------------------------------- elementwise


def make(operator: str, args: tuple[Expr, ...]) -> Expr:
    """Return an operator node. Integers and booleans are folded; floating-point operations are kept as written."""
    if any(a.dtype.is_float for a in args):
        dtype = boolean if ir.OPERATORS[operator].result == "bool" else args[-1].dtype
        return Op(operator, args, dtype)
    if operator == "neg" and isinstance(args[0], Const):
        return ir.op("sub", Const(0, args[0].dtype), args[0])
    return ir.op(operator, *args)


def _of_an_element(expr: Expr) -> bool:
    """Return True if an expression without dimensions depends on a parameter of a lambda."""
    return any(isinstance(e, ir.Coord) for e in ir.walk(expr))


def elementwise(
    context: Context, operator: str, operands: tuple[Value, ...], spans: tuple[Span, ...], span: Span
) -> Tile:
    """Apply `operator` element by element after typing and broadcasting the operands.

    Constants take the dtype of the tiles. `where`'s first operand, the condition, is typed on its own.
    """
    symbol = SYMBOLS.get(operator, operator)
    lead = 1 if operator == "where" else 0
    dtype = _common_dtype(context, symbol, operands[lead:], spans[lead:], span)
    tiles = [as_tile(context, v, s, dtype) for v, s in zip(operands[lead:], spans[lead:], strict=True)]
    if lead:
        condition = as_tile(context, operands[0], spans[0])
        require_bool(context, condition, spans[0], "the condition of `al.where`")
        tiles.insert(0, condition)
    _check_operator(context, operator, symbol, dtype, span)
    notes = tuple(
        Note(f"this has shape {shape_text(t.shape)}", s) for t, s in zip(tiles, spans, strict=True) if t.shape
    )
    shape = broadcast_shapes(context, [t.shape for t in tiles], span, notes if len(notes) > 1 else ())
    if shape and any(not t.shape and _of_an_element(t.expr) for t in tiles):
        context.fail(
            "shape-mismatch",
            "a parameter of a lambda stands for one place, and is combined with a tile here",
            span,
            "compute with numbers in the lambda, such as the tile's first index",
            notes=notes,
        )
    expr = make(operator, tuple(stretch(t.expr, t.shape, shape) for t in tiles))
    _check_constant(context, expr, span)
    return Tile(shape, expr.dtype, expr)


def _common_dtype(
    context: Context, symbol: str, operands: tuple[Value, ...], spans: tuple[Span, ...], span: Span
) -> DType:
    typed = [(v.dtype, s) for v, s in zip(operands, spans, strict=True) if isinstance(v, Tile)]
    if not typed:
        constant_dtypes = {default_dtype(v.value) for v in operands if isinstance(v, Constant)} - {None}
        return float32 if float32 in constant_dtypes else int32 if int32 in constant_dtypes else boolean
    dtype, first = typed[0]
    for other, where in typed[1:]:
        if other is dtype:
            continue
        notes = (Note(f"this is {dtype}", first), Note(f"this is {other}", where))
        _fail_mix(context, symbol, dtype, other, span, notes)
    return dtype


def _fail_mix(
    context: Context, symbol: str, left: DType, right: DType, span: Span, notes: tuple[Note, ...]
) -> NoReturn:
    wide = left if (left.is_float, left.bits) >= (right.is_float, right.bits) else right
    context.fail(
        "type-mismatch",
        f"`{symbol}` mixes {left} and {right}",
        span,
        f"convert one side: `.to(al.{'boolean' if wide is boolean else wide})`",
        notes=notes,
    )


def _check_operator(context: Context, operator: str, symbol: str, dtype: DType, span: Span) -> None:
    """Check that `operator` computes in `dtype`."""
    if dtype.name in _STORAGE_ONLY:
        context.fail(
            "type-mismatch",
            f"`{symbol}` does not compute in {dtype}, a storage format",
            span,
            "convert first: `x.to(al.float32)`",
        )
    check_kind(context, operator, symbol, dtype, span)


def check_kind(context: Context, operator: str, symbol: str, dtype: DType, span: Span) -> None:
    """Check that `operator` is defined for the kind of `dtype`: integers, floats or booleans."""
    if operator == "truediv" and not dtype.is_float:
        context.fail(
            "integer-division",
            f"`/` divides floating-point numbers, and both sides are {dtype}",
            span,
            "write `//` for integers, or convert with `.to(al.float32)`",
        )
    if operator == "umulhi" and not dtype.modular:
        remedy = "convert both sides with `.to(al.uint32)`"
        context.fail("type-mismatch", f"`al.umulhi` multiplies uint32, not {dtype}", span, remedy)
    if operator in _INTEGER_ONLY and not dtype.is_int:
        remedy = "write `al.floor(x / y)`" if operator == "floordiv" else "convert to an integer dtype first"
        context.fail("type-mismatch", f"`{symbol}` computes on integers, not {dtype}", span, remedy)
    if operator in (*_BITWISE, "not") and dtype.is_float:
        context.fail(
            "type-mismatch", f"`{symbol}` computes on integers and booleans, not {dtype}", span, "compare first"
        )
    arithmetic = operator in ("add", "sub", "mul", "neg", "abs")
    if arithmetic and dtype is boolean:
        context.fail(
            "type-mismatch",
            f"`{symbol}` does not compute on booleans",
            span,
            "write `& | ~`, or convert with `.to(al.int32)`",
        )
    only_float = ir.OPERATORS[operator].arity == 1 and operator not in ("neg", "abs", "not", "cast")
    if only_float and not dtype.is_float:
        context.fail(
            "type-mismatch",
            f"`al.{operator}` needs floating point, not {dtype}",
            span,
            "convert with `.to(al.float32)`",
        )


def _check_constant(context: Context, expr: Expr, span: Span) -> None:
    if isinstance(expr, Op) and expr.op in ("floordiv", "mod") and expr.args[1] == Const(0, expr.dtype):
        context.fail("bad-constant", "division by zero", span, "divide by something else")
    match expr:
        case Op(op="shl" | "shr", args=(_, Const(value=bits)), dtype=dtype) if not 0 <= bits < dtype.bits:
            text = f"a shift of {dtype} by {bits} has no value"
            context.fail("bad-constant", text, span, f"shift by 0 to {dtype.bits - 1}")
        case _:
            pass
    if isinstance(expr, Const) and expr.dtype.is_int:
        low, high = expr.dtype.integers
        if not low <= int(expr.value) <= high:
            context.fail(
                "bad-constant", f"the result {expr.value} does not fit {expr.dtype}", span, "use a wider dtype"
            )


def require_bool(context: Context, tile: Tile, span: Span, what: str) -> None:
    """Check that a condition or mask is bool, not a number."""
    if tile.dtype is not boolean:
        context.fail("bad-condition", f"{what} is {tile.dtype}, not bool", span, "compare it with something: `x != 0`")


def binary(context: Context, symbol: str, values: tuple[Value, Value], spans: tuple[Span, Span], span: Span) -> Value:
    """Evaluate `left op right` for any values. Constants are folded."""
    left, right = values
    if isinstance(left, Constant) and isinstance(right, Constant):
        try:
            return Constant(constants.binary(symbol, left.value, right.value))
        except ConstantError as error:
            context.fail("bad-constant", str(error), span, "check the constants on both sides")
    for view, offset, where in ((left, right, spans[1]), (right, left, spans[0])):
        if symbol == "+" and isinstance(view, View) and view.whole and _is_integer(offset):
            _refuse_pointer(context, view, where, span)
    if symbol == "**":
        context.fail("type-mismatch", "`**` is for constants", span, "write `x * x`, or `al.exp2(al.log2(x) * y)`")
    return elementwise(context, BINARY[symbol], values, spans, span)


def _is_integer(value: Value) -> bool:
    if isinstance(value, Constant):
        return isinstance(value.value, int)
    return isinstance(value, Tile) and value.dtype.is_int


def _refuse_pointer(context: Context, view: View, other: Span, span: Span) -> NoReturn:
    """Report pointer arithmetic, which other languages have, and show the index expression that replaces it."""
    name = view.obj.name
    source = other.file.line(other.line) if other.file is not None and other.line == other.end_line else ""
    offset = source[other.column - 1 : other.end_column - 1] or "i"
    help = f"write `{name}[{offset}]`"
    if len(view.shape) > 1:
        help = f"index each dimension: `{name}[{', '.join('ijklmn'[: len(view.shape)])}]`; strides are the tensor's"
    context.fail("type-mismatch", f"{describe(view)} is no pointer, to which an offset is added", span, help)


def cast(tile: Tile, dtype: DType) -> Tile:
    """Evaluate `tile.to(dtype)`."""
    if tile.dtype is dtype:
        return tile
    match tile.expr:
        case Const(value=value) if dtype.is_float and tile.dtype is not boolean:
            return Tile(tile.shape, dtype, Const(float(value), dtype))
        case _:
            return Tile(tile.shape, dtype, Op("cast", (tile.expr,), dtype))


# ---------------------------------------------------------------------------- registers


def needs_registers(tile: Tile) -> bool:
    """Return True if a name bound to `tile` gets its own registers.

    It does if the tile's expression reads registers, computes floats over a tile, or is larger than `MAX_NAMED`.
    """
    if any(True for _ in elements(tile.expr)):
        return True
    if tile.shape and any(e.dtype.is_float for e in walk(tile.expr)):
        return True
    return _larger_than(tile.expr, MAX_NAMED)


def _larger_than(expr: Expr, limit: int) -> bool:
    count, todo = 0, [expr]
    while todo:
        count += 1
        if count > limit:
            return True
        todo.extend(children(todo.pop()))
    return False


def materialise(context: Context, tile: Tile, name: str, span: Span, layout: FragmentLayout | None = None) -> Tile:
    """Copy `tile` into a new fragment and return it."""
    result = context.new_fragment(name, tile.shape, tile.dtype, span, layout)
    fragment = result.fragment
    assert fragment is not None
    context.emit(Map(Access(fragment, coords(len(tile.shape))), tile.expr, tile.shape), span)
    return result


def in_registers(context: Context, tile: Tile, name: str, span: Span) -> Tile:
    """Return `tile` if it is a fragment, else a new fragment that holds it."""
    return tile if tile.fragment is not None else materialise(context, tile, name, span)


def reads(expr: Expr, fragment: str) -> bool:
    """Return True if `expr` reads `fragment`."""
    return any(isinstance(e, Elem) and e.obj == fragment for e in walk(expr))
