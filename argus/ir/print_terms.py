"""Print the expressions of the IR, and the terms of tags and specifications, as text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from typing_extensions import assert_never

from argus.ir.expr import OPERATORS, Const, Coord, Elem, Expr, LoopVar, Op, Param, ProgramId, Thread
from argus.ir.nodes import (
    Access,
    DataValue,
    Fragment,
    Once,
    Scalar,
    Shared,
    SpecOp,
    SpecReduce,
    SpecSoftmax,
    SpecTerm,
    TagField,
    TagTerm,
    Tensor,
)
from argus.ir.types import DType, boolean, float32, int32
from argus.source import SourceFile

LEVELS: Mapping[str, int] = {
    "==": 1, "!=": 1, "<": 1, "<=": 1, ">": 1, ">=": 1,
    "|": 2, "^": 3, "&": 4, "<<": 5, ">>": 5, "+": 6, "-": 6, "*": 7, "/": 7, "//": 7, "%": 7,
}  # fmt: skip
"""Binding strength of the infix operators, weakest first, in Python's order."""
UNARY, ATOM = 8, 9
RESERVED = frozenset({"thread", "true", "false", "inf", "nan"})
_PLAIN = re.compile(r"[A-Za-z_]\w*(\.\w+)*")
_COORD = re.compile(r"c\d+")


@dataclass(frozen=True, slots=True)
class Names:
    """The meanings of names at one point of the text: types of parameters and elements, and open loops.

    `source` is the file that is read, if statements are printed with their place in it.
    """

    params: Mapping[str, DType]
    elements: Mapping[str, DType]
    loops: frozenset[str] = frozenset()
    source: SourceFile | None = None

    def enter(self, *loops: str) -> Names:
        """Return the scope inside a loop with these counters."""
        return replace(self, loops=self.loops.union(loops))

    def is_param(self, name: str) -> bool:
        """Return True if the bare `name` is read as a launch parameter."""
        return name not in self.loops and name not in RESERVED and _COORD.fullmatch(name) is None


EMPTY_SCOPE = Names({}, {})


def scope_of(params: tuple[Tensor | Scalar, ...], objects: tuple[Shared | Fragment, ...]) -> Names:
    """Return the scope that follows the declarations."""
    types: dict[str, DType] = {}
    for param in params:
        match param:
            case Scalar(name=name, dtype=dtype):
                types[name] = dtype
            case Tensor(shape=shape, strides=strides):
                types |= {e.name: e.dtype for e in (*shape, *strides) if isinstance(e, Param)}
    tensors = {p.name: p.dtype for p in params if isinstance(p, Tensor)}
    return Names(types, tensors | {o.name: o.dtype for o in objects})


def inferred(op: str, args: tuple[DType, ...]) -> DType | None:
    """Return the type of an operation for which the text gives none. Return None for casts, which print their type."""
    match OPERATORS[op].result:
        case "bool":
            return boolean
        case "same":
            return args[-1]
        case _:
            return None


def print_expr(expr: TagTerm | SpecTerm, scope: Names = EMPTY_SCOPE) -> str:
    """Return an expression, a tag term or a specification term as text."""
    return term_text(expr, scope)[0]


def term_text(expr: TagTerm | SpecTerm, scope: Names) -> tuple[str, int]:
    """Return the text and its binding strength."""
    match expr:
        case TagField(elem=elem, name=field):
            return f"{elem_text(elem, scope)}.{field if isinstance(field, int) else name_text(field)}", ATOM
        case Once(lo=lo, hi=hi):
            return f"once({list_text((lo, hi), scope)})", ATOM
        case DataValue(tensor=tensor, index=index):
            return f"data({name_text(tensor)}[{list_text(index, scope)}])", ATOM
        case SpecReduce(op=op, axis=axis, extent=extent, body=body, dtype=dtype):
            inner = f"{print_expr(Coord(axis))}, {print_expr(extent, scope)}, {print_expr(body, scope)}"
            return f"@reduce_{op}({inner}):{dtype}", ATOM
        case SpecSoftmax(axis=axis, extent=extent, at=at, score=score, dtype=dtype):
            parts = (Coord(axis), extent, at, score)
            return f"@softmax({', '.join(print_expr(p, scope) for p in parts)}):{dtype}", ATOM
        case SpecOp(op=op, args=args, dtype=dtype):
            return f"@{op}({', '.join(print_expr(a, scope) for a in args)}):{dtype}", ATOM
        case Op():
            return _operation(expr, scope)
        case _:
            text, level, dtype = _leaf(expr, scope)
            return _ascribe(text, level, expr.dtype, dtype)


def _leaf(expr: Const | Param | ProgramId | LoopVar | Coord | Thread | Elem, scope: Names) -> tuple[str, int, DType]:
    """Return the text, its binding strength, and the type that the reader assumes if none is written."""
    match expr:
        case Const(value=value):
            if isinstance(value, bool):
                return str(value).lower(), ATOM, boolean
            text = repr(value)
            dtype = int32 if isinstance(value, int) else float32
            return text, UNARY if text.startswith("-") else ATOM, dtype
        case Param(name=name):
            text = name if scope.is_param(name) and _PLAIN.fullmatch(name) else f"`{name}`"
            return text, ATOM, scope.params.get(name, int32)
        case LoopVar(name=name):
            bare = name in scope.loops and not _COORD.fullmatch(name) and _PLAIN.fullmatch(name)
            return (name if bare and name not in RESERVED else f"loop(`{name}`)"), ATOM, int32
        case ProgramId(axis=axis):
            return f"program_id({axis})", ATOM, int32
        case Coord(axis=axis):
            return f"c{axis}", ATOM, int32
        case Thread():
            return "thread", ATOM, int32
        case Elem():
            return elem_text(expr, scope), ATOM, scope.elements.get(expr.obj, int32)
        case _:
            assert_never(expr)


def _ascribe(text: str, level: int, dtype: DType, default: DType | None) -> tuple[str, int]:
    return (text if dtype == default else f"{text}:{dtype}"), level


def _operation(expr: Op, scope: Names) -> tuple[str, int]:
    row = OPERATORS[expr.op]
    default = inferred(expr.op, tuple(a.dtype for a in expr.args))
    if expr.op == "cast":
        return f"{expr.dtype}({list_text(expr.args, scope)})", ATOM
    if row.symbol is None:
        return _ascribe(f"{expr.op}({list_text(expr.args, scope)})", ATOM, expr.dtype, default)
    if row.arity == 1:
        operand = _wrap(expr.args[0], scope, ATOM)
        # "-5" is a constant, and "-(5)" is the negation of one.
        literal = isinstance(expr.args[0], Const) and operand[0] != "("
        text, level = f"{row.symbol}({operand})" if literal else f"{row.symbol}{operand}", UNARY
    else:
        level = LEVELS[row.symbol]
        left_level = level + 1 if level == 1 else level  # Comparisons cannot be chained.
        left, right = _wrap(expr.args[0], scope, left_level), _wrap(expr.args[1], scope, level + 1)
        text = f"{left} {row.symbol} {right}"
    return (text, level) if expr.dtype == default else (f"({text}):{expr.dtype}", ATOM)


def _wrap(expr: Expr, scope: Names, at_least: int) -> str:
    text, level = term_text(expr, scope)
    return text if level >= at_least else f"({text})"


def list_text(exprs: tuple[Expr, ...], scope: Names) -> str:
    return ", ".join(print_expr(e, scope) for e in exprs)


def elem_text(elem: Elem, scope: Names) -> str:
    return f"{name_text(elem.obj)}[{list_text(elem.index, scope)}]"


def name_text(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else f"`{name}`"


def access_text(access: Access, scope: Names) -> str:
    block = "" if access.block is None else f" block {print_expr(access.block, scope)}"
    return f"{name_text(access.obj)}[{list_text(access.index, scope)}]{block}"


def print_shape(shape: tuple[int, ...]) -> str:
    """Return a shape as text: `128x64`, or `()` for a scalar."""
    return "x".join(map(str, shape)) or "()"
