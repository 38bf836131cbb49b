"""Launch-time expressions: evaluate them on Python numbers, print them for a person, and store them as JSON.

These expressions contain only `Param`s and constants: grids, bounds of index tensors, and conditions of `requires`.
Integers are exact (they do not wrap around), as the verifier reads a precondition.
"""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Callable, Mapping
from typing import Any

from argus.ir.expr import OPERATORS, Const, Expr, Op, Param, walk
from argus.ir.types import DTYPES, DType, float32

Number = int | float | bool


_FUNCTIONS: dict[str, Callable[..., Number]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "truediv": operator.truediv,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "neg": operator.neg,
    "without_nan": operator.pos,
    "moderate": operator.pos,
    "minimum": min,
    "maximum": max,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "not": operator.invert,
    "shl": operator.lshift,
    "shr": operator.rshift,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "where": lambda condition, x, y: x if condition else y,
    **{row.name: row.function for row in OPERATORS.values() if row.function is not None},
}
"""The Python function of each operator. `cast` and the logical `not` also depend on the dtype."""


def evaluate(expr: Expr, values: Mapping[str, Number]) -> Number:
    """Return the value of `expr`; `values` holds the value of every `Param` by name.

    float32 constants are rounded as in the kernel, so that 0.1 is not greater than its own rounding. Raises
    ArithmeticError or ValueError if there is no value (division by zero, the logarithm of a negative number).
    """
    match expr:
        case Const(value=value, dtype=dtype):
            return ctypes.c_float(value).value if dtype is float32 else value
        case Param(name=name):
            return values[name]
        case Op(op="cast", args=(x,), dtype=dtype):
            return _cast(evaluate(x, values), dtype)
        case Op(op="sortable", args=(x,), dtype=dtype):
            return _sortable(evaluate(x, values), dtype)
        case Op(op="not", args=(x,)) if x.dtype.kind == "bool":
            return not evaluate(x, values)
        case Op(op=op, args=args, dtype=dtype):
            result: Number = _FUNCTIONS[op](*(evaluate(arg, values) for arg in args))
            return int(result) % 2**dtype.bits if dtype.modular else result
        case _:
            raise TypeError(f"{type(expr).__name__} has no value at launch")


def _sortable(value: Number, dtype: DType) -> Number:
    if dtype is float32:
        magnitude = ctypes.c_float.from_buffer(ctypes.c_int32(abs(int(value)))).value
        return -magnitude if value < 0 else magnitude
    magnitude = ctypes.c_int32.from_buffer(ctypes.c_float(abs(value))).value
    return -magnitude if value < 0 else magnitude


def _cast(value: Number, dtype: DType) -> Number:
    if dtype.is_float:
        return float(value)
    if dtype.kind == "bool":
        return bool(value)
    if dtype.modular and isinstance(value, int):
        return int(value % 2**dtype.bits)
    low, high = dtype.integers
    if isinstance(value, float) and not low <= int(value) <= high:
        raise OverflowError(f"{value} is no {dtype}")  # Machines differ in the result of this conversion.
    return int(value)


def names(expr: Expr) -> frozenset[str]:
    """Return the names of the `Param`s in `expr`."""
    return frozenset(e.name for e in walk(expr) if isinstance(e, Param))


def show(expr: Expr) -> str:
    """Return `expr` as an author would write it, fully parenthesised inside."""
    return _show(expr, outer=True)


def _show(expr: Expr, outer: bool = False) -> str:
    match expr:
        case Const(value=value):
            return str(value)
        case Param(name=name):
            return name
        case Op(op=op, args=args):
            symbol = OPERATORS[op].symbol
            if symbol is None:
                return f"{op}({', '.join(_show(arg, outer=True) for arg in args)})"
            parts = [_show(arg) for arg in args]
            text = f"{parts[0]} {symbol} {parts[1]}" if len(parts) == 2 else symbol + parts[0]
            return text if outer else f"({text})"
        case _:
            raise TypeError(f"{type(expr).__name__} has no value at launch")


def to_json(expr: Expr) -> Any:
    """Return `expr` as JSON: `["param", dtype, name]`, `["const", dtype, text]` or `[op, dtype, args...]`."""
    match expr:
        case Const(value=value, dtype=dtype):
            return ["const", dtype.name, float(value).hex() if dtype.is_float else str(int(value))]
        case Param(name=name, dtype=dtype):
            return ["param", dtype.name, name]
        case Op(op=op, args=args, dtype=dtype):
            return [op, dtype.name, *(to_json(arg) for arg in args)]
        case _:
            raise TypeError(f"{type(expr).__name__} has no value at launch")


def from_json(data: Any) -> Expr:
    """Return the expression that the JSON value of `to_json` describes."""
    head, dtype = data[0], DTYPES[data[1]]
    match head:
        case "const" if dtype.is_float:
            return Const(float.fromhex(data[2]), dtype)
        case "const":
            return Const(bool(int(data[2])) if dtype.kind == "bool" else int(data[2]), dtype)
        case "param":
            return Param(data[2], dtype)
        case _:
            return Op(head, tuple(from_json(arg) for arg in data[2:]), dtype)
