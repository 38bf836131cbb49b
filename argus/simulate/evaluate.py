"""Evaluate expressions on NumPy arrays that broadcast to the domain's `[threads, values]`.

Integers are evaluated in 64 bits. `Overflow` says what happens if the result of an operation does not fit its type.
Floats are evaluated in float32 and rounded to the operation's type.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

import numpy as np
from typing_extensions import assert_never

from argus.ir.expr import OPERATORS, Const, Coord, Elem, Expr, LoopVar, Op, Param, ProgramId, Thread
from argus.ir.places import without_data
from argus.ir.types import DType
from argus.simulate.numeric import Array, carrier, disturbed, is_wide, round_to, saturates, strains

Number = int | float | bool
Fault = Callable[[str, Expr, Array], None]


class Overflow(Enum):
    """The treatment of integer overflow. `REPORT`: it is a fault of the program (indices, masks, bounds), and the value
    wraps. `WRAP`: data wrap as two's complement, and overflow in values that do not depend on data is reported.
    `IGNORE`: integers are mathematical (tags)."""

    REPORT = "report"
    WRAP = "wrap"
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True)
class Bindings:
    """The values that an expression can read.

    `coords[i]` is the int64 array of `Coord(i)`, `thread` that of `Thread()`; both broadcast to the domain. `element`
    reads a register. `fault(code, expr, bad)` is called where an operation overflows ("int32-overflow",
    "int64-overflow"), divides by zero ("division-by-zero") or shifts too far ("shift-out-of-range"): for overflow
    according to `overflow`, for the others unless it is `IGNORE`. `counting` are the registers that are computed
    without data.
    """

    params: Mapping[str, Number]
    block: tuple[int, ...]
    loops: Mapping[str, int]
    coords: tuple[Array, ...]
    thread: Array
    element: Callable[[Elem], Array]
    fault: Fault
    overflow: Overflow = Overflow.WRAP
    counting: Set[str] = frozenset()

    def reports(self, expr: Expr) -> bool:
        """Return True if an integer that its type cannot hold is a fault of the program here."""
        if self.overflow is Overflow.WRAP:
            return without_data(expr, self.counting)
        return self.overflow is Overflow.REPORT


def evaluate(expr: Expr, scope: Bindings) -> Array:
    """Return the values of `expr`: int64 for integers, bool, or float32."""
    match expr:
        case Const(value=value, dtype=dtype):
            return _constant(value, dtype)
        case Param(name=name, dtype=dtype):
            return _constant(scope.params[name], dtype)
        case ProgramId(axis=axis):
            return np.asarray(scope.block[axis] if axis < len(scope.block) else 0, dtype=np.int64)
        case LoopVar(name=name):
            return np.asarray(scope.loops[name], dtype=np.int64)
        case Coord(axis=axis):
            return scope.coords[axis]
        case Thread():
            return scope.thread
        case Elem():
            return widen(scope.element(expr))
        case Op(op=name, args=args, dtype=dtype):
            return _apply(expr, name, [evaluate(a, scope) for a in args], dtype, scope)
        case _:
            assert_never(expr)


_GROWING = ("add", "sub", "mul", "neg", "abs", "shl", "floordiv")
"""Operations on integers whose result may be outside the range of their operands."""


def _small(name: str, args: list[Array]) -> bool:
    """Return True if the result fits 64 bits: the operands fit 32 bits, and the operation is no left shift."""
    return name != "shl" and all(np.all((-(2**31) <= a) & (a < 2**31)) for a in args)


def widen(values: Array) -> Array:
    """Convert carried values to the types in which `evaluate` computes: integers to int64."""
    return values.astype(np.int64) if values.dtype.kind in "iu" else values


def _constant(value: Number, dtype: DType) -> Array:
    if dtype.is_float:
        return round_to(np.asarray(value, dtype=np.float64), dtype)
    return np.asarray(bool(value) if dtype.kind == "bool" else int(value))


def _apply(expr: Op, name: str, args: list[Array], dtype: DType, scope: Bindings) -> Array:
    if name in ("floordiv", "mod", "truediv") and args[1].dtype.kind != "f":
        zero = args[1] == 0
        if np.any(zero):
            if scope.overflow is not Overflow.IGNORE:
                scope.fault("division-by-zero", expr, zero)
            args = [args[0], np.where(zero, 1, args[1])]
    if name in ("shl", "shr"):
        most = dtype.bits - 1
        far = (args[1] < 0) | (args[1] > most)
        if np.any(far):
            if scope.overflow is not Overflow.IGNORE:
                scope.fault("shift-out-of-range", expr, far)
            args = [args[0], np.clip(args[1], 0, most)]
    growing = name in _GROWING and dtype.is_int and dtype.bits == 64
    if growing and not _small(name, args) and scope.reports(expr):
        exact = FUNCTIONS[name](*(np.asarray(a).astype(object) for a in args))
        lost = np.asarray((exact < -(2**63)) | (exact >= 2**63), dtype=np.bool_)
        if lost.any():
            scope.fault("int64-overflow", expr, lost)
    with np.errstate(all="ignore"):
        if name in ("cast", "sortable"):
            result = (_cast if name == "cast" else sortable)(args[0], dtype)
        else:
            result = FUNCTIONS[name](*args)
        if result.dtype.kind == "b":
            return result
        if dtype.is_float:
            return _float(expr, name, args, round_to(result, dtype), dtype, scope)
    return _fit(expr, np.asarray(result), dtype, scope)


def _float(expr: Op, name: str, args: list[Array], result: Array, dtype: DType, scope: Bindings) -> Array:
    """Return a result of floats. If floats are carried in 64 bits, `fault` is called when 64 bits may be too few
    (`STRAIN`)."""
    if not is_wide(dtype):
        return result
    if saturates(name, args[0], result) or strains(result):
        scope.fault(STRAIN, expr, np.ones(1, dtype=np.bool_))
    return result if name in SELECTING else disturbed(result, dtype)


SELECTING = ("cast", "where", "minimum", "maximum", "neg", "abs", "floor", "ceil")
"""Float operators whose result is exact."""
STRAIN = "range-of-64-bits"


def _fit(expr: Op, result: Array, dtype: DType, scope: Bindings) -> Array:
    """Return the integer result in the range of `dtype`. A result outside the range is reported and then wrapped."""
    if dtype.modular:
        return modulo(result, dtype)
    if dtype.bits >= 64 or result.size == 0 or scope.overflow is Overflow.IGNORE:
        return result
    limit = np.iinfo(carrier(dtype))
    if result.min() >= limit.min and result.max() <= limit.max:
        return result
    if scope.reports(expr):
        scope.fault("int32-overflow", expr, (result < limit.min) | (result > limit.max))
    return result.astype(carrier(dtype)).astype(np.int64)


def modulo(result: Array, dtype: DType) -> Array:
    """Reduce integers of 64 bits to numbers of `dtype` by their lower bits."""
    return result.astype(carrier(dtype)).astype(np.int64)


def _cast(values: Array, dtype: DType) -> Array:
    if dtype.is_float:
        return values.astype(carrier(dtype))
    return (
        widen(round_to(values, dtype)) if values.dtype.kind == "f" or dtype.kind == "bool" else values.astype(np.int64)
    )


def sortable(values: Array, dtype: DType) -> Array:
    """Return an int32 in the order of a float32, carried as int64, or the float32 from which it was made."""
    if dtype.is_float:
        magnitude = np.abs(values.astype(np.int64)).astype(np.uint32)
        signed: Array = np.where(values < 0, magnitude | np.uint32(1 << 31), magnitude)
        return signed.view(np.float32)
    bits = values.astype(np.float32).view(np.int32)
    magnitudes = (bits & np.int32(2**31 - 1)).astype(np.int64)
    ordered: Array = np.where((bits < 0) & (magnitudes <= 0x7F800000), -magnitudes, magnitudes)
    return ordered


def _logical(boolean: Callable[..., Any], bitwise: Callable[..., Any], *args: Array) -> Array:
    result: Array = boolean(*args) if args[0].dtype.kind == "b" else bitwise(*args)
    return result


def _elementwise(function: Callable[[float], float]) -> Callable[[Array], Array]:
    """Return a function of Python numbers, lifted to float64 arrays: NaN where it is undefined, infinity where the
    result is too large."""

    def one(x: float) -> float:
        try:
            return function(x)
        except OverflowError:
            return math.inf
        except (ValueError, ArithmeticError):
            return math.nan

    return np.vectorize(one, otypes=[np.float64])


def _through_double(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Return a function of float32. NumPy's own float32 function reduces large angles with too few digits of pi."""
    return lambda x: function(x.astype(np.float64)).astype(x.dtype)


FUNCTIONS: dict[str, Callable[..., Array]] = {
    **{row.name: _through_double(_elementwise(row.function)) for row in OPERATORS.values() if row.function is not None},
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "truediv": np.true_divide,
    "floordiv": np.floor_divide,
    "mod": np.mod,
    "umulhi": lambda x, y: ((x.astype(np.uint64) * y.astype(np.uint64)) >> np.uint64(32)).astype(np.int64),
    "without_nan": np.positive,
    "moderate": np.positive,
    "neg": np.negative,
    "abs": np.abs,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "and": partial(_logical, np.logical_and, np.bitwise_and),
    "or": partial(_logical, np.logical_or, np.bitwise_or),
    "xor": partial(_logical, np.logical_xor, np.bitwise_xor),
    "not": partial(_logical, np.logical_not, np.bitwise_not),
    "shl": np.left_shift,
    "shr": np.right_shift,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "where": np.where,
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log2": np.log2,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: np.float32(1) / np.sqrt(x),
    "sin": _through_double(np.sin),
    "cos": _through_double(np.cos),
    "tanh": np.tanh,
    "tanh_approx": np.tanh,
    "sigmoid": lambda x: np.float32(1) / (np.float32(1) + np.exp(-x)),
    "floor": np.floor,
    "ceil": np.ceil,
}
