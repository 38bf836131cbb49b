"""Expressions to C++."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from argus.backend.device_api import cpp_type
from argus.backend.emit.problem import problem
from argus.backend.emit.scope import Domain, Writer
from argus.ir.expr import (
    OPERATORS,
    Const,
    Coord,
    Elem,
    Expr,
    LoopVar,
    Op,
    Param,
    ProgramId,
    Thread,
    elements,
)
from argus.ir.nodes import Access
from argus.ir.types import DType, boolean
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
    """Whether `expr` is certainly not negative; `names` are the parameters and counters that are not."""
    match expr:
        case Const(value=value):
            return value >= 0
        case Coord() | Thread() | ProgramId():
            return True
        case Param(name=name) | LoopVar(name=name):
            return name in names
        case Op(op="add" | "mul" | "floordiv" | "minimum", args=args):
            return all(natural(a, names) for a in args)
        case Op(op="maximum", args=args):
            return any(natural(a, names) for a in args)
        case Op(op="mod", args=(_, y)):
            return natural(y, names)
        case Op(op="cast", args=(x,)) if x.dtype.is_int and expr.dtype.bits >= x.dtype.bits:
            return natural(x, names)
        case _:
            return False


def literal(value: float, dtype: DType) -> str:
    """A constant of element type `dtype`."""
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
    if math.isinf(value):
        text = f"argus::infinity<{cpp_type(dtype)}>()"
        return text if value > 0 else f"(-{text})"
    text = str(np.float32(value))
    text = (text if "." in text or "e" in text else text + ".0") + "f"
    return text if dtype.name == "float32" else f"argus::cast<{cpp_type(dtype)}>({text})"


class Printer:
    """Prints expressions: of launch-time scalars anywhere, of coordinates and registers within a `Domain`."""

    def __init__(self, writer: Writer, domain: Domain | None = None) -> None:
        self.writer = writer
        self.domain = domain

    def text(self, expr: Expr) -> str:
        """`expr` as C++, in parentheses where an operator beside it could take it apart."""
        match expr:
            case Const(value=value, dtype=dtype):
                text = literal(value, dtype)
                return f"({text})" if text.startswith("-") else text
            case Param(name=name) | LoopVar(name=name):
                return self.writer.names[name]
            case ProgramId(axis=axis):
                return f"argus::block_id<{axis}>()"
            case Thread():
                return "thread"
            case Coord(axis=axis):
                text = self._domain().coordinate(axis)
                return f"({text})" if " " in text else text
            case Elem():
                return self.register(expr)
            case Op():
                return self._op(expr)

    def register(self, cell: Elem | Access) -> str:
        """The register that holds a cell of a register tile."""
        fragment = self.writer.fragment(cell.obj)
        if fragment is None:
            raise problem("element-not-register", f"`{cell.obj}` is no register tile, but is used as one",
                          self._domain().span)  # fmt: skip
        return self._domain().register(fragment, cell.index)

    def _domain(self) -> Domain:
        if self.domain is None:
            raise problem("coordinate-outside", "a coordinate or register is read outside of a tile",
                          NO_SPAN)  # fmt: skip
        return self.domain

    def _op(self, expr: Op) -> str:
        name, dtype = expr.op, expr.dtype
        operand = expr.args[-1].dtype
        data = operand.is_int and any(True for _ in elements(expr))
        args = [self.text(a) for a in expr.args]
        if name == "cast":
            return args[0] if operand == dtype else f"argus::cast<{cpp_type(dtype)}>({args[0]})"
        if name == "where":
            return f"({args[0]} ? {args[1]} : {args[2]})"
        if data and name in _WRAP:
            return f"argus::{_WRAP[name]}({', '.join(args)})"
        if name in ("floordiv", "mod") and operand.is_int and self._plain_division(expr):
            return f"({args[0]} {'/' if name == 'floordiv' else '%'} {args[1]})"
        if name == "neg":
            return f"(-{args[0]})"
        if name == "not":
            return f"(!{args[0]})" if operand.kind == "bool" else self._narrow(dtype, f"(~{args[0]})")
        symbol = _logical(name) if operand.kind == "bool" else OPERATORS[name].symbol
        if symbol is not None and name not in _CALLS and len(args) == 2:
            left, right = self._same_type(expr, args)
            text = f"({left} {symbol} {right})"
            return text if dtype.kind == "bool" else self._narrow(dtype, text)
        return f"argus::{_CALLS.get(name, name)}({', '.join(self._same_type(expr, args))})"

    def _same_type(self, expr: Op, args: list[str]) -> list[str]:
        """Arguments of one C++ type: templates and mixed widths need it spelled out."""
        widest = max((a.dtype for a in expr.args), key=lambda d: d.bits)
        return [
            text if arg.dtype == widest else f"argus::cast<{cpp_type(widest)}>({text})"
            for arg, text in zip(expr.args, args, strict=True)
        ]

    def _plain_division(self, expr: Op) -> bool:
        x, y = expr.args
        positive = isinstance(y, Const) and y.value > 0
        return positive and natural(x, self.writer.natural)

    @staticmethod
    def _narrow(dtype: DType, text: str) -> str:
        """C++ computes narrow integers as int; bring the result back."""
        return f"{cpp_type(dtype)}({text})" if dtype.is_int and dtype.bits < 32 else text


def bare(text: str) -> str:
    """`text` without parentheses around the whole of it."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if depth == 0 and i < len(text) - 1:
            return text
    return text[1:-1]


def _logical(name: str) -> str | None:
    symbols: dict[str, str] = {"and": "&&", "or": "||", "xor": "!="}
    return symbols.get(name, OPERATORS[name].symbol)


def reduction(op: str, dtype: DType) -> Callable[[str, str], str]:
    """How `op` of REDUCTIONS combines two values of `dtype`."""
    if op != "add":
        return lambda x, y: f"argus::{op}({x}, {y})"
    if dtype.is_int:
        return lambda x, y: f"argus::add_wrap({x}, {y})"
    return lambda x, y: f"{x} + {y}"
