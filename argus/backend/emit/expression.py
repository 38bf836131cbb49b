"""Print expressions as C++."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from argus.backend.device_api import cpp_type
from argus.backend.emit.problem import problem
from argus.backend.emit.scope import Domain, Writer
from argus.ir.expr import OPERATORS, Const, Coord, Elem, Expr, LoopVar, Op, Param, ProgramId, Thread, elements, walk
from argus.ir.nodes import Access
from argus.ir.promise import PROMISES
from argus.ir.types import DType, boolean, float32, int32
from argus.source import NO_SPAN

_WRAP = {
    "add": "add_wrap",
    "sub": "sub_wrap",
    "mul": "mul_wrap",
    "neg": "neg_wrap",
    "shl": "shl",
    "shr": "shr",
}
_CALLS = {"abs": "absolute", "floordiv": "floordiv", "mod": "floormod"}


def natural(expr: Expr, names: set[str]) -> bool:
    """Return True if `expr` is certainly not negative; `names` are the non-negative parameters and counters."""
    match expr:
        case Const(value=value):
            return value >= 0
        case Coord() | Thread() | ProgramId():
            return True
        case Param(name=name) | LoopVar(name=name):
            return name in names
        case Op() if expr.dtype.kind == "uint":
            return True
        case Op(op="add" | "mul" | "floordiv" | "minimum", args=args):
            return all(natural(a, names) for a in args)
        case Op(op="maximum", args=args):
            return any(natural(a, names) for a in args)
        case Op(op="mod", args=(_, y)):
            return natural(y, names)
        case Op(op="cast", args=(x,)) if x.dtype.is_int and expr.dtype.bits >= x.dtype.bits:
            return natural(x, names) and (expr.dtype.bits > x.dtype.bits or x.dtype.kind == "int")
        case _:
            return False


def literal(value: float, dtype: DType) -> str:
    """Return the C++ of a constant of element type `dtype`."""
    if dtype is boolean or dtype.kind == "bool":
        return "true" if value else "false"
    if dtype.is_int:
        number = int(value)
        if dtype.name == "int64":
            return f"argus::i64({number})" if number > -(2**63) else "(-argus::i64(9223372036854775807) - 1)"
        if number == -(2**31):
            return "(-2147483647 - 1)"
        return str(number) if dtype.name == "int32" else f"{cpp_type(dtype)}({number})"
    if math.isnan(value):
        return f"argus::not_a_number<{cpp_type(dtype)}>()"
    with np.errstate(over="ignore"):
        rounded = np.float32(value)
    if np.isinf(rounded):
        text = f"argus::infinity<{cpp_type(dtype)}>()"
        return text if value > 0 else f"(-{text})"
    text = str(rounded)
    text = (text if "." in text or "e" in text else text + ".0") + "f"
    return text if dtype.name == "float32" else f"argus::cast<{cpp_type(dtype)}>({text})"


TERNARY, LOGICAL, COMPARISON, SUM, PRODUCT, ATOM = range(6)


def enclosed(text: str, binds: int, needed: int) -> str:
    """Return `text`, whose outermost operator binds as `binds`, in parentheses if that is less than `needed`."""
    return f"({text})" if binds < needed else text


def _sum(text: str, needed: int) -> str:
    """Return `text`, a sum of products, in parentheses if necessary."""
    return enclosed(text, SUM if " + " in text else PRODUCT if " " in text else ATOM, needed)


class Printer:
    """Prints expressions. Launch-time scalars may occur anywhere, coordinates and registers only within a `Domain`."""

    def __init__(self, writer: Writer, domain: Domain | None = None) -> None:
        self.writer = writer
        self.domain = domain

    def text(self, expr: Expr, needed: int = TERNARY) -> str:
        """Return `expr` as C++, in parentheses if its outermost operator binds less than `needed`."""
        match expr:
            case Const(value=value, dtype=dtype):
                text = literal(value, dtype)
                return enclosed(text, SUM if text.startswith("-") else ATOM, needed)
            case Param(name=name) | LoopVar(name=name):
                return self.writer.names[name]
            case ProgramId(axis=axis):
                return self.writer.block_id(axis)
            case Thread():
                return "thread"
            case Coord(axis=axis):
                return _sum(self._domain(axis + 1).coordinate(axis), needed)
            case Elem():
                return self.register(expr)
            case Op():
                return self._op(expr, needed)

    def factor(self, expr: Expr) -> str:
        """Return `expr` as the factor of a product."""
        return self.text(expr, PRODUCT)

    def times(self, expr: Expr, factor: int) -> str:
        """Return `expr * factor` as the term of a sum."""
        return self.text(expr, SUM) if factor == 1 else f"{self.factor(expr)} * {factor}"

    def register(self, cell: Elem | Access) -> str:
        """Return the register that holds a cell of a register tile."""
        fragment = self.writer.fragment(cell.obj)
        if fragment is None:
            raise problem("element-not-register", f"`{cell.obj}` is no register tile, but is used as one",
                          self._domain().span)  # fmt: skip
        return self._domain().register(fragment, cell.index)

    def _domain(self, rank: int = 0) -> Domain:
        """Return the domain, which must have at least `rank` dimensions."""
        if self.domain is None or self.domain.layout.rank < rank:
            raise problem("coordinate-outside", "a coordinate or register is read outside of a tile",
                          NO_SPAN)  # fmt: skip
        return self.domain

    def _op(self, expr: Op, needed: int) -> str:
        name, dtype, args = expr.op, expr.dtype, expr.args
        rounded = self._rounded_down(expr)
        if rounded is not None:
            return _sum(rounded, needed)
        operand = args[-1].dtype
        data = operand.is_int and any(True for _ in elements(expr))
        if name == "cast":
            inner = self.text(args[0], needed if operand == dtype else TERNARY)
            return inner if operand == dtype else f"argus::cast<{cpp_type(dtype)}>({inner})"
        if name in PROMISES:
            return self._promised(args[0], needed)
        if name == "sortable":
            return f"argus::sortable<{cpp_type(dtype)}>({self.text(args[0], TERNARY)})"
        if name == "where":
            c, x, y = (self.text(a, COMPARISON) for a in args)
            return enclosed(f"{c} ? {x} : {y}", TERNARY, needed)
        if data and name in _WRAP:
            return f"argus::{_WRAP[name]}({', '.join(self._same_type(expr))})"
        if name in ("floordiv", "mod") and operand.is_int and self._plain_division(expr):
            symbol = "/" if name == "floordiv" else "%"
            text = f"{self.text(args[0], PRODUCT)} {symbol} {self.text(args[1], ATOM)}"
            return self._narrow(dtype, text, PRODUCT, needed)
        if name == "neg":
            return self._narrow(dtype, f"-{self.text(args[0], ATOM)}", PRODUCT, needed)
        if name == "not":
            text = f"{'!' if operand.kind == 'bool' else '~'}{self.text(args[0], ATOM)}"
            return self._narrow(dtype, text, PRODUCT, needed)
        infix = _logical(name) if operand.kind == "bool" else OPERATORS[name].symbol
        always = None
        if name in ("lt", "le"):
            always = self.below(args[0], args[1]) if name == "lt" else self.above(args[0], args[1])
        if always is not None and infix is not None:
            asked = f"{always} || {self._infix(expr, infix, 0)}"
            return always if always == "true" else enclosed(asked, LOGICAL, needed)
        if name == "lt" and (apart := self._lanes_below(expr)) is not None:
            return enclosed(apart, COMPARISON, needed)
        if infix is None or name in _CALLS:
            return f"argus::{_CALLS.get(name, name)}({', '.join(self._same_type(expr))})"
        return self._infix(expr, infix, needed)

    def _promised(self, expr: Expr, needed: int) -> str:
        """Return the C++ of an expression whose value may be any number where it should be NaN."""
        match expr:
            case Op(op="maximum" | "minimum" as name) if self.writer.waves and expr.dtype == float32:
                return f"argus::{name}_of_two({', '.join(self._same_type(expr))})"
            case _:
                return self.text(expr, needed)

    def _rounded_down(self, expr: Op) -> str | None:
        """Return the C++ of `c - c % width` for a coordinate `c`, if it is a sum of some of the coordinate's digits."""
        match expr:
            case Op(op="sub", args=(Coord(axis=axis), Op(op="mod", args=(Coord(axis=same), Const(value=width))))):
                return self._domain().rounded_down(axis, int(width)) if axis == same else None
            case _:
                return None

    def below(self, place: Expr, bound: Expr, more: int = 0) -> str | None:
        """Return the C++ condition under which `place + more < bound` holds for every thread, or None if unknown.

        `place` is a coordinate, or a coordinate minus a remainder. `bound` is a size, whose least value follows from
        the preconditions.
        """
        axis = _left(place)
        if axis is None or self.domain is None or not isinstance(bound, Param):
            return None
        return self.domain.below(axis[0], self.writer.least.get(bound.name, 0) - more)

    def _lanes_below(self, expr: Op) -> str | None:
        """Return the C++ of `loop + lane < bound` as `lane < bound - loop`: waves compute the right side once for all
        lanes. None unless that is shorter, and no difference overflows: `bound` and what loops count are natural."""
        place, bound = expr.args
        known = {place.dtype, bound.dtype} == {int32} and natural(bound, self.writer.natural)
        if not (self.writer.waves and known):
            return None
        terms, constant = _terms(place)
        lanes = [t for t in terms if any(isinstance(e, (Coord, Thread)) for e in walk(t))]
        same = [t for t in terms if t not in lanes]
        counted = any(isinstance(t, LoopVar) for t in same) and all(natural(t, self.writer.natural) for t in same)
        fits = len(same) == 1 or constant >= 0
        if not (lanes and counted and fits) or any(True for _ in elements(expr)):
            return None
        own = " + ".join([*(self.text(t, SUM) for t in lanes), *([str(constant)] if constant else [])])
        return f"{own} < {' - '.join(self.text(t, PRODUCT) for t in (bound, *same))}"

    def above(self, start: Expr, place: Expr) -> str | None:
        """Return the C++ condition under which `place >= start` holds for every thread, or None if unknown."""
        axis = _left(place)
        if axis is None or self.domain is None or not isinstance(start, Const):
            return None
        return self.domain.above(axis[0], int(start.value) + axis[1])

    def _infix(self, expr: Op, symbol: str, needed: int) -> str:
        binds, left, right = _BINDING.get(symbol, (LOGICAL, ATOM, ATOM))
        if symbol in ("&&", "||") and isinstance(expr.args[0], Op) and expr.args[0].op == expr.op:
            left = LOGICAL
        if symbol == "+" and expr.dtype.is_int:
            right = SUM
        x, y = self._same_type(expr, left, right)
        return self._narrow(expr.dtype, f"{x} {symbol} {y}", binds, needed)

    def _same_type(self, expr: Op, *needed: int) -> list[str]:
        """Return the arguments as C++ of one type; templates and mixed widths need explicit casts.

        `needed` says for each argument how its outermost operator must bind; left out, it may be any.
        """
        widest = max((a.dtype for a in expr.args), key=lambda d: d.bits)
        return [
            self.text(a, binds) if a.dtype == widest else f"argus::cast<{cpp_type(widest)}>({self.text(a)})"
            for a, binds in zip(expr.args, needed or (TERNARY,) * len(expr.args), strict=True)
        ]

    def _plain_division(self, expr: Op) -> bool:
        x, y = expr.args
        positive = isinstance(y, Const) and y.value > 0
        return positive and natural(x, self.writer.natural)

    @staticmethod
    def _narrow(dtype: DType, text: str, binds: int, needed: int) -> str:
        """Return the text, cast to `dtype` if that is narrower than int: C++ computes narrow integers as int."""
        if dtype.is_int and dtype.bits < 32:
            return f"{cpp_type(dtype)}({text})"
        return enclosed(text, binds, needed)


def _terms(expr: Expr) -> tuple[list[Expr], int]:
    """Return the terms of a sum of integers, and its constant."""
    match expr:
        case Const(value=value):
            return [], int(value)
        case Op(op="add", args=(x, y)):
            (left, first), (right, second) = _terms(x), _terms(y)
            return left + right, first + second
        case Op(op="sub", args=(x, Const(value=value))):
            terms, constant = _terms(x)
            return terms, constant - int(value)
        case _:
            return [expr], 0


def _left(place: Expr) -> tuple[int, int] | None:
    """Return the axis of the coordinate in `place`, and the most that a subtracted remainder can take off; or None.

    `place` must be a coordinate, or a coordinate minus a remainder.
    """
    match place:
        case Coord(axis=axis):
            return axis, 0
        case Op(op="sub", args=(Coord(axis=axis), Op(op="mod", args=(_, Const(value=width))))) if width > 0:
            return axis, int(width) - 1  # The remainder of a negative divisor would not be positive.
        case _:
            return None


_BINDING: dict[str, tuple[int, int, int]] = {
    "+": (SUM, SUM, PRODUCT),
    "-": (SUM, SUM, PRODUCT),
    "*": (PRODUCT, PRODUCT, ATOM),
    "/": (PRODUCT, PRODUCT, ATOM),
    "&&": (LOGICAL, COMPARISON, COMPARISON),
    "||": (LOGICAL, COMPARISON, COMPARISON),
    **dict.fromkeys(("<", "<=", ">", ">=", "==", "!="), (COMPARISON, SUM, SUM)),
}
"""For each infix operator: its binding strength, and the strength that its operands need. Other operators parenthesise
their operands."""


def _logical(name: str) -> str | None:
    symbols: dict[str, str] = {"and": "&&", "or": "||", "xor": "!="}
    return symbols.get(name, OPERATORS[name].symbol)


def reduction(op: str, dtype: DType, numbers: bool = False) -> Callable[[str, str], str]:
    """Return a function that writes the C++ expression which combines two values of `dtype` by `op` of REDUCTIONS.

    `numbers`: a NaN may become any number, which allows a shorter instruction.
    """
    if op not in ("add", "mul") and numbers:
        return lambda x, y: f"argus::{op}_of_two({x}, {y})"
    if op not in ("add", "mul"):
        return lambda x, y: f"argus::{op}({x}, {y})"
    if dtype.is_int:
        return lambda x, y: f"argus::{op}_wrap({x}, {y})"
    return lambda x, y: f"{x} {OPERATORS[op].symbol} {y}"
