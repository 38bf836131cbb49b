"""Expressions at one element, in Python's exact integers: no arrays, no wrapping, nothing of the simulator's."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from argus.ir.expr import Const, Coord, Elem, Expr, LoopVar, Op, Param, ProgramId, Thread

Number = int | float | bool


class Undecided(Exception):
    """The documents' rules cannot be evaluated here, so they confirm nothing."""


@dataclass(frozen=True, slots=True)
class Point:
    """One element of one execution. `element` returns the number that a register tile holds at a place."""

    params: Mapping[str, Number]
    block: tuple[int, ...]
    loops: Mapping[str, int]
    thread: int
    coords: tuple[int, ...]
    element: Callable[[str, tuple[int, ...]], Number]


_BINARY: dict[str, Callable[[Number, Number], Number]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "truediv": operator.truediv,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "minimum": min,
    "maximum": max,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
_BITS: dict[str, Callable[[int, int], int]] = {
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "shl": operator.lshift,
    "shr": operator.rshift,
    "umulhi": lambda a, b: a * b >> 32,
}


def number(expr: Expr, at: Point) -> Number:
    """Return the value of `expr` at a point. Raises `Undecided` for what has no value there."""
    match expr:
        case Const(value=value):
            return value
        case Param(name=name):
            return at.params[name]
        case ProgramId(axis=axis):
            return at.block[axis] if axis < len(at.block) else 0
        case LoopVar(name=name):
            return at.loops[name]
        case Coord(axis=axis):
            return at.coords[axis]
        case Thread():
            return at.thread
        case Elem(obj=obj, index=index):
            return at.element(obj, tuple(int(number(e, at)) for e in index))
        case Op(op=name, args=args):
            return _fitted(expr, _applied(name, expr, tuple(number(a, at) for a in args)))


def _applied(name: str, expr: Op, args: tuple[Number, ...]) -> Number:
    try:
        match name, args:
            case "where", (condition, yes, no):
                return yes if condition else no
            case "cast", (value,):
                return float(value) if expr.dtype.is_float else bool(value) if expr.dtype.kind == "bool" else int(value)
            case "neg", (value,):
                return -value
            case "abs", (value,):
                return abs(value)
            case "not", (value,):
                return not value if expr.dtype.kind == "bool" else ~int(value)
            case _, (left, right) if name in _BINARY:
                return _BINARY[name](left, right)
            case _, (left, right) if name in _BITS:
                return _BITS[name](int(left), int(right))
            case _:
                raise Undecided(name)
    except (ArithmeticError, ValueError) as error:
        raise Undecided(str(error)) from error


def _fitted(expr: Op, value: Number) -> Number:
    """Return the value, modulo 2^32 for uint32. An integer that its type cannot hold has no value here."""
    if expr.dtype.kind == "bool":
        return bool(value)
    if not expr.dtype.is_int:
        return value
    low, high = expr.dtype.integers
    if expr.dtype.modular:
        return int(value) % 2**32
    if not low <= value <= high:
        raise Undecided("an integer leaves its type")
    return int(value)
