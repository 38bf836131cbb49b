"""Expressions: pure and typed, over launch-time scalars, program ids, loop counters, tile coordinates and registers.

A tile's element is an expression in `Coord(0) ... Coord(rank-1)`, the coordinates of the statement's domain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Literal, Union

from argus.ir.types import DType, boolean, int32


@dataclass(frozen=True, slots=True)
class Const:
    """A literal. Infinities are allowed for floats."""

    value: int | float | bool
    dtype: DType = int32

    def __eq__(self, other: object) -> bool:
        """Treat NaN as equal to NaN, so that a constant that was printed and read back is the same constant."""
        if not isinstance(other, Const):
            return NotImplemented
        alike = self.value == other.value or (self.value != self.value and other.value != other.value)
        return alike and self.dtype == other.dtype

    def __hash__(self) -> int:
        return hash((self.value if self.value == self.value else None, self.dtype))


@dataclass(frozen=True, slots=True)
class Param:
    """A launch-time scalar, the same for the whole grid: a size ("M"), a stride ("a.stride0"), a scalar argument."""

    name: str
    dtype: DType = int32


@dataclass(frozen=True, slots=True)
class ProgramId:
    """The block's index along a grid axis (CUDA's blockIdx)."""

    axis: int
    dtype: DType = int32


@dataclass(frozen=True, slots=True)
class LoopVar:
    """The counter of the enclosing `For` with that name."""

    name: str
    dtype: DType = int32


@dataclass(frozen=True, slots=True)
class Coord:
    """The element's coordinate along one axis of the statement's domain (or a quantified variable of an assertion)."""

    axis: int
    dtype: DType = int32


@dataclass(frozen=True, slots=True)
class Thread:
    """The thread's index within its block. A warp is `thread // warp_size`."""

    dtype: DType = int32


@dataclass(frozen=True, slots=True)
class Elem:
    """The element of a memory object at a logical coordinate.

    In a statement, the object is a fragment (a register read). In a specification, it is a tensor.
    """

    obj: str
    index: tuple[Expr, ...]
    dtype: DType


@dataclass(frozen=True, slots=True)
class Op:
    """An operator of `OPERATORS` applied to arguments. The operator `cast` converts its one argument to `dtype`."""

    op: str
    args: tuple[Expr, ...]
    dtype: DType


Expr = Union[Const, Param, ProgramId, LoopVar, Coord, Thread, Elem, Op]


@dataclass(frozen=True, slots=True)
class Operator:
    """A row of the operator table. `result` is "same" (the dtype of the arguments), "bool", or "given" (cast).

    `takes` names the kinds of numbers that the operator accepts. `real`: real arguments give a real result. `function`:
    the Python function that computes the language's function of one number. It raises `ValueError` or `ArithmeticError`
    where it is undefined.
    """

    name: str
    arity: int
    result: str
    symbol: str | None = None
    commutative: bool = False
    takes: Literal["any", "floats", "no floats"] = "any"
    real: bool = False
    function: Callable[[float], float] | None = None


def _function(name: str, function: Callable[[float], float], *, real: bool = False) -> Operator:
    """Return the table row of an elementwise function of one float."""
    return Operator(name, 1, "same", takes="floats", real=real, function=function)


OPERATORS: dict[str, Operator] = {
    o.name: o
    for o in (
        Operator("add", 2, "same", "+", True, real=True),
        Operator("sub", 2, "same", "-", real=True),
        Operator("mul", 2, "same", "*", True, real=True),
        Operator("truediv", 2, "same", "/", takes="floats"),
        Operator("floordiv", 2, "same", "//", takes="no floats"),  # rounds toward minus infinity, like Python's
        Operator("mod", 2, "same", "%", takes="no floats"),  # has the sign of the divisor, like Python's
        Operator("umulhi", 2, "same", None, True, "no floats"),  # the upper half of the product of two uint32
        Operator("neg", 1, "same", "-", real=True),
        Operator("abs", 1, "same", real=True, function=abs),
        Operator("minimum", 2, "same", None, True, real=True),  # propagates NaN, like torch.minimum
        Operator("maximum", 2, "same", None, True),
        Operator("and", 2, "same", "&", True, "no floats"),  # bitwise on integers, logical on bool
        Operator("or", 2, "same", "|", True, "no floats"),
        Operator("xor", 2, "same", "^", True, "no floats"),
        Operator("not", 1, "same", "~", takes="no floats"),
        Operator("shl", 2, "same", "<<", takes="no floats"),
        Operator("shr", 2, "same", ">>", takes="no floats"),  # an arithmetic shift
        Operator("eq", 2, "bool", "==", True),
        Operator("ne", 2, "bool", "!=", True),
        Operator("lt", 2, "bool", "<"),
        Operator("le", 2, "bool", "<="),
        Operator("gt", 2, "bool", ">"),
        Operator("ge", 2, "bool", ">="),
        Operator("where", 3, "same"),  # takes (bool, x, y)
        Operator("cast", 1, "given"),
        Operator("without_nan", 1, "same", real=True),  # of NaN any number, or NaN (argus.ir.promise)
        Operator("moderate", 1, "same", real=True),  # of numbers that are not moderate, too
        Operator("sortable", 1, "given"),  # float32 to an int32 of the same order, and back
        _function("exp", math.exp, real=True),
        _function("exp2", lambda x: float(2.0**x), real=True),
        _function("log", math.log),
        _function("log2", math.log2),
        _function("sqrt", math.sqrt),
        _function("rsqrt", lambda x: 1 / math.sqrt(x)),
        _function("sin", math.sin, real=True),
        _function("cos", math.cos, real=True),
        _function("tanh", math.tanh, real=True),
        _function("tanh_approx", math.tanh, real=True),
        _function("erf", math.erf, real=True),
        _function("sigmoid", lambda x: 1 / (1 + math.exp(-x)), real=True),
        _function("log1p", lambda x: math.log1p(x) if x != -1 else -math.inf),
        _function("expm1", math.expm1, real=True),
        _function("floor", math.floor),
        _function("ceil", math.ceil),
    )
}
"""Every operator. An elementwise function needs a row here, a formula in `argus/backend/argus_math.h`, and its name and
docstring in `argus/language.py`."""

APPROXIMATED = {"tanh_approx": "tanh"}
"""Functions that the machine approximates, each with the function that gives its value over the real numbers."""

LEAVING = ("add", "sub", "mul", "neg", "shl", "not", "cast")
"""Integer operators whose results may be outside of an unsigned type that contains the operands."""

REDUCTIONS: dict[str, Callable[[DType], int | float]] = {
    "add": lambda dtype: 0,
    "mul": lambda dtype: 1,
    "maximum": lambda dtype: float("-inf") if dtype.is_float else dtype.integers[0],
    "minimum": lambda dtype: float("inf") if dtype.is_float else dtype.integers[1],
}
"""Associative, commutative operators that `Accumulate` takes, with their identity element."""

TRUE = Const(True, boolean)


def children(expr: Expr) -> tuple[Expr, ...]:
    """Return the direct sub-expressions."""
    match expr:
        case Elem(index=index):
            return index
        case Op(args=args):
            return args
        case _:
            return ()


def walk(expr: Expr) -> Iterator[Expr]:
    """Yield `expr` and all of its sub-expressions, parents first."""
    left = [expr]
    while left:
        yield (first := left.pop())
        left += reversed(children(first))


def rewrite(expr: Expr, change: Callable[[Expr], Expr | None]) -> Expr:
    """Rewrite bottom-up: `change` returns the new node, or None to keep the node."""
    match expr:
        case Elem(index=index):
            new = tuple(rewrite(e, change) for e in index)
            expr = expr if new == index else replace(expr, index=new)
        case Op(args=args):
            new = tuple(rewrite(e, change) for e in args)
            expr = expr if new == args else replace(expr, args=new)
        case _:
            pass
    changed = change(expr)
    return expr if changed is None else changed


def substitute_coords(expr: Expr, values: tuple[Expr, ...]) -> Expr:
    """Return `expr` with every `Coord(i)` replaced by `values[i]`."""

    def change(e: Expr) -> Expr | None:
        return values[e.axis] if isinstance(e, Coord) else None

    return rewrite(expr, change)


def reshaped(shape: tuple[int, ...], source: tuple[int, ...]) -> tuple[Expr, ...]:
    """Return the coordinates, in a tile of shape `source`, of the element at c0, c1, ... of the same elements in
    `shape`.

    In the order of the elements the last dimension is the fastest. Dimensions that both have stay coordinates.
    """
    result: list[Expr] = []
    done, start = 0, 0  # the number of dimensions of `shape` already used, and the first dimension of the group
    for dim in range(len(source)):
        group, size = prod(source[start : dim + 1]), 1
        end = done
        while end < len(shape) and size < group:
            size *= shape[end]
            end += 1
        if size != group:
            continue
        while end < len(shape) and shape[end] == 1:
            end += 1
        result += _regrouped(shape[done:end], done, source[start : dim + 1])
        done, start = end, dim + 1
    return tuple(result) + tuple(Const(0) for _ in source[start:])


def _regrouped(shape: tuple[int, ...], first: int, source: tuple[int, ...]) -> list[Expr]:
    """Convert the coordinates of one group of dimensions, with extents `shape` and numbered from `first`, to
    coordinates in the extents `source`."""
    place: Expr = Const(0)
    for axis, extent in enumerate(shape):
        if extent > 1:
            place = op("add", op("mul", place, Const(extent)), Coord(first + axis))
    result: list[Expr] = []
    behind = 1
    for number, extent in reversed(list(enumerate(source))):
        digit = op("floordiv", place, Const(behind))
        outermost = prod(source[:number]) == 1
        result.insert(0, Const(0) if extent == 1 else digit if outermost else op("mod", digit, Const(extent)))
        behind *= extent
    return result


def coords(rank: int) -> tuple[Expr, ...]:
    """Return `(Coord(0), ..., Coord(rank - 1))`."""
    return tuple(Coord(axis) for axis in range(rank))


def linear(expr: Expr) -> tuple[dict[Expr, int], int]:
    """Return an integer expression as a sum: {term -> nonzero factor} and a constant. Casts and operations modulo 2^32
    count as terms."""
    match expr:
        case Op() if expr.dtype.modular:
            return {expr: 1}, 0
        case Const(value=value):
            return {}, int(value)
        case Op(op="add" | "sub" as name, args=(a, b)):
            (left, x), (right, y) = linear(a), linear(b)
            sign = 1 if name == "add" else -1
            terms = {t: left.get(t, 0) + sign * right.get(t, 0) for t in (*left, *right)}
            return {t: factor for t, factor in terms.items() if factor}, x + sign * y
        case Op(op="mul", args=(a, Const(value=factor))) | Op(op="mul", args=(Const(value=factor), a)):
            terms, x = linear(a)
            return {t: f * int(factor) for t, f in terms.items() if factor}, x * int(factor)
        case _:
            return {expr: 1}, 0


def elements(expr: Expr) -> Iterator[Elem]:
    """Yield every register (or tensor) element that `expr` reads."""
    return (e for e in walk(expr) if isinstance(e, Elem))


_FOLD: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "xor": lambda a, b: a ^ b,
    "minimum": min,
    "maximum": max,
}
_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


def op(name: str, *args: Expr) -> Expr:
    """Return an integer or boolean operation with constants folded. The dtype comes from the table."""
    dtype = boolean if OPERATORS[name].result == "bool" else args[-1].dtype
    if len(args) == 2 and isinstance(args[0], Const) and isinstance(args[1], Const) and dtype.kind != "float":
        a, b = int(args[0].value), int(args[1].value)
        if name in _FOLD and not (name in ("floordiv", "mod") and b == 0):
            number = _FOLD[name](a, b)
            return Const(number % 2**dtype.bits if dtype.modular else number, dtype)
        if name in _COMPARE and args[0].dtype.kind != "float":
            return Const(_COMPARE[name](a, b), boolean)
    zero, one = Const(0, dtype), Const(1, dtype)
    match name, args:
        case "add", (x, y) if y == zero:
            return x
        case "add", (x, y) if x == zero:
            return y
        case "sub", (x, y) if y == zero:
            return x
        case "mul", (x, y) if y == one:
            return x
        case "mul", (x, y) if x == one:
            return y
        case "mul", (x, y) if not dtype.is_float and zero in (x, y):
            return zero
        case "floordiv", (x, y) if y == one:
            return x
        case "and", (x, y) if dtype is boolean and x == TRUE:
            return y
        case "and", (x, y) if dtype is boolean and y == TRUE:
            return x
        case _:
            return Op(name, args, dtype)


def conjunction(conditions: list[Expr]) -> Expr | None:
    """Return the conjunction of `conditions`, or None if there are none."""
    result: Expr | None = None
    for condition in conditions:
        if condition != TRUE:
            result = condition if result is None else op("and", result, condition)
    return result


def conjuncts(condition: Expr | None) -> Iterator[Expr]:
    """Yield the parts of a conjunction of booleans, in order; nothing for None."""
    match condition:
        case None:
            return
        case Op(op="and", args=(left, right), dtype=dtype) if dtype is boolean:
            yield from conjuncts(left)
            yield from conjuncts(right)
        case _:
            yield condition
