"""Print the IR in a form that is readable, stable, and read back exactly (apart from spans).

    copy s0[c0, c1] <- a[m0 + c0, k0 + c1] shape 128x64 if m0 + c0 < M else 0.0:bfloat16 layout [...] via cp.async

Grammar: `argus/ir/text.lark`. `c0` is `Coord(0)`. A bare name is the counter of an enclosing loop of that name, or else
a launch parameter. Names that could have another meaning are printed in backquotes. A type is written (`5:int64`) only
if it differs from the type that the context implies: int32 for integers, float32 for floats, the declared type for
elements and parameters, and the operator's rule for operations.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from typing_extensions import assert_never

from argus.ir.descriptor import Flag, Hole, Kind, Option, Piece, Text, describe
from argus.ir.expr import OPERATORS, Const, Coord, Elem, Expr, LoopVar, Op, Param, ProgramId, Thread
from argus.ir.nodes import (
    Access,
    Arranged,
    Assume,
    Covers,
    DataValue,
    For,
    Fragment,
    InRange,
    Kernel,
    Mbarrier,
    Once,
    Precondition,
    Requires,
    Scalar,
    Shared,
    SpecOp,
    SpecReduce,
    SpecSoftmax,
    SpecTerm,
    Stmt,
    TagCondition,
    TagEqual,
    TagField,
    TagTerm,
    TagTuple,
    Tensor,
)
from argus.ir.types import DType, boolean, float32, int32
from argus.ir.visit import walk
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


# ---------------------------------------------------------------------------- expressions


def print_expr(expr: TagTerm | SpecTerm, scope: Names = EMPTY_SCOPE) -> str:
    """Return an expression, a tag term or a specification term as text."""
    return _term(expr, scope)[0]


def _term(expr: TagTerm | SpecTerm, scope: Names) -> tuple[str, int]:
    """Return the text and its binding strength."""
    match expr:
        case TagField(elem=elem, name=field):
            return f"{_elem(elem, scope)}.{field if isinstance(field, int) else _name(field)}", ATOM
        case Once(lo=lo, hi=hi):
            return f"once({_list((lo, hi), scope)})", ATOM
        case DataValue(tensor=tensor, index=index):
            return f"data({_name(tensor)}[{_list(index, scope)}])", ATOM
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
            return _elem(expr, scope), ATOM, scope.elements.get(expr.obj, int32)
        case _:
            assert_never(expr)


def _ascribe(text: str, level: int, dtype: DType, default: DType | None) -> tuple[str, int]:
    return (text if dtype == default else f"{text}:{dtype}"), level


def _operation(expr: Op, scope: Names) -> tuple[str, int]:
    row = OPERATORS[expr.op]
    default = inferred(expr.op, tuple(a.dtype for a in expr.args))
    if expr.op == "cast":
        return f"{expr.dtype}({_list(expr.args, scope)})", ATOM
    if row.symbol is None:
        return _ascribe(f"{expr.op}({_list(expr.args, scope)})", ATOM, expr.dtype, default)
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
    text, level = _term(expr, scope)
    return text if level >= at_least else f"({text})"


def _list(exprs: tuple[Expr, ...], scope: Names) -> str:
    return ", ".join(print_expr(e, scope) for e in exprs)


def _elem(elem: Elem, scope: Names) -> str:
    return f"{_name(elem.obj)}[{_list(elem.index, scope)}]"


def _name(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else f"`{name}`"


def _access(access: Access, scope: Names) -> str:
    block = "" if access.block is None else f" block {print_expr(access.block, scope)}"
    return f"{_name(access.obj)}[{_list(access.index, scope)}]{block}"


def print_shape(shape: tuple[int, ...]) -> str:
    """Return a shape as text: `128x64`, or `()` for a scalar."""
    return "x".join(map(str, shape)) or "()"


# ---------------------------------------------------------------------------- kernels and statements


def print_kernel(kernel: Kernel) -> str:
    """Return the whole kernel as text, such that `parse_kernel(print_kernel(k)) == k`."""
    scope = scope_of(kernel.params, (*kernel.shared, *kernel.fragments))
    lines = [f"kernel {_name(kernel.name)}"]
    if kernel.target is not None:
        lines.append(f"target {kernel.target}")
    lines.append(f"warps {kernel.num_warps} of {kernel.warp_size}")
    lines += (f"size {_name(size)}" for size in kernel.sizes)
    lines += map(_param, kernel.params)
    lines += (f"constexpr {_name(name)} = {_literal(value)}" for name, value in kernel.constexprs)
    if kernel.grid is not None:
        group = "" if kernel.group == 1 else f" group {kernel.group}"
        cluster = f" cluster {kernel.cluster}" if kernel.cluster != 1 else ""
        persistent = " persistent" if kernel.persistent else ""
        schedule = "" if kernel.schedule == "cooperative" else f" {kernel.schedule}"
        flat = " flat" if kernel.flat else ""
        lines.append(f"grid [{_list(kernel.grid, scope)}]{group}{cluster}{flat}{persistent}{schedule}")
    lines += (_precondition(p, scope) for p in kernel.preconditions)
    lines += (f"invariant {_name(i.tensor)} over {', '.join(map(_name, i.sizes))}" for i in kernel.invariants)
    lines += (_covers(c, scope) for c in kernel.covers)
    lines += map(_shared, kernel.shared)
    lines += map(_mbarrier, kernel.barriers)
    lines += map(_fragment, kernel.fragments)
    lines += ["body {", *_block(kernel.body, scope), "}"]
    return "\n".join(lines) + "\n"


def print_stmt(stmt: Stmt, kernel: Kernel) -> str:
    """Return the text of one statement of `kernel`, including nested statements."""
    loops = frozenset(name for s in walk(kernel.body) if isinstance(s, For) for name in s.counters)
    scope = scope_of(kernel.params, (*kernel.shared, *kernel.fragments))
    return _node(stmt, Names(scope.params, scope.elements, loops))


def _param(param: Tensor | Scalar) -> str:
    match param:
        case Tensor(name=name, dtype=dtype, shape=shape, strides=strides, alignment=alignment):
            at = f"strides [{_list(strides, EMPTY_SCOPE)}] align {alignment}"
            return f"tensor {_name(name)}: {dtype}[{_list(shape, EMPTY_SCOPE)}] {at}"
        case Scalar(name=name, dtype=dtype):
            return f"scalar {_name(name)}: {dtype}"
        case _:
            assert_never(param)


def _literal(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case None:
            return "none"
        case str():
            return json.dumps(value)
        case tuple():
            return f"({''.join(f'{_literal(item)}, ' for item in value)})"
        case DType(name=name):
            return name
        case int() | float():
            return repr(value)
        case _:
            raise TypeError(f"a constexpr value of type {type(value).__name__} has no text form")


def _covers(covers: Covers, scope: Names) -> str:
    where = "" if covers.where is None else f" if {print_expr(covers.where, scope)}"
    box = f"over [{_list(covers.shape, scope)}] at [{_list(covers.at, scope)}]"
    return f"covers {_name(covers.output)}({', '.join(map(_name, covers.names))}) {box}{where}"


def _precondition(precondition: Precondition, scope: Names) -> str:
    match precondition:
        case Requires(cond=cond):
            return f"requires {print_expr(cond, scope)}"
        case InRange(tensor=tensor, lo=lo, hi=hi):
            return f"in_range {_name(tensor)} from {print_expr(lo, scope)} to {print_expr(hi, scope)}"
        case Arranged(tensor=tensor, how=how, total=total, longest=longest) if total is not None:
            limit = "" if longest is None else f" longest {print_expr(longest, scope)}"
            return f"{how} {_name(tensor)} to {print_expr(total, scope)}{limit}"
        case Arranged(tensor=tensor, how=how):
            return f"{how} {_name(tensor)}"
        case Assume(cond=cond, reason=reason):
            return f"assume {print_expr(cond, scope)} because {json.dumps(reason)}"
        case _:
            assert_never(precondition)


def _shared(shared: Shared) -> str:
    layout = "" if shared.layout is None else f" layout {shared.layout}"
    at = "" if shared.offset is None else f" at {shared.offset}"
    return f"shared {_name(shared.name)}: {shared.dtype} {print_shape(shared.shape)}{layout}{at}"


def _mbarrier(barrier: Mbarrier) -> str:
    at = "" if barrier.offset is None else f" at {barrier.offset}"
    return f"mbarrier {_name(barrier.name)} count {barrier.count} arrivals {barrier.arrivals}{at}"


def _fragment(fragment: Fragment) -> str:
    layout = "" if fragment.layout is None else f" layout {fragment.layout}"
    return f"fragment {_name(fragment.name)}: {fragment.dtype} {print_shape(fragment.shape)}{layout}"


def _node(node: object, scope: Names) -> str:
    """Print a statement, or a part of one, according to its descriptor."""
    inner = scope.enter(*node.counters) if isinstance(node, For) else scope
    return "".join(_piece(piece, node, scope, inner) for piece in describe(type(node)).form)


def _piece(piece: Piece, node: object, scope: Names, inner: Names) -> str:
    match piece:
        case Text(text=text):
            return text
        case Flag(field=field, text=text):
            return text if getattr(node, field.name) else ""
        case Hole(field=field):
            return _value(getattr(node, field.name), field.kind, scope, inner)
        case Option(pieces=pieces):
            held = [(field, getattr(node, field.name)) for field in piece.fields]
            if all(value == field.absent for field, value in held):
                return ""
            return "".join(_piece(p, node, scope, inner) for p in pieces)
        case _:
            assert_never(piece)


def _value(value: Any, kind: Kind, scope: Names, inner: Names) -> str:
    """Return the text of a field. `scope` is the scope of its node, and `inner` that of the blocks in the node."""
    match kind:
        case Kind.ACCESS:
            return _access(value, scope)
        case Kind.EXPRESSION | Kind.MEANING | Kind.CONSTANT:
            return print_expr(value, scope)
        case Kind.NUMBER | Kind.LAYOUT:
            return str(value)
        case Kind.NAME:
            return _name(value)
        case Kind.QUOTED:
            return json.dumps(value)
        case Kind.NAMES:
            return ", ".join(map(_name, value))
        case Kind.SHAPE:
            return print_shape(value)
        case Kind.EXTENTS:
            return f"[{_list(value, scope)}]"
        case Kind.FIELDS:
            return "{" + ", ".join(f"{_name(name)} = {print_expr(term, scope)}" for name, term in value) + "}"
        case Kind.CONDITIONS:
            return "{" + "; ".join(_condition(c, scope) for c in value) + "}"
        case Kind.BLOCK:
            return "\n".join(["{", *_block(value, inner), "}"])
        case Kind.BLOCKS:
            return "\n".join(["{", *_block(value, scope), "}"])
        case Kind.PART:
            return _node(value, scope)
        case Kind.PARTS:
            return " ".join(_node(part, scope) for part in value)
        case Kind.FLAG:
            raise TypeError("a flag is printed as the text that its form gives it")
        case _:
            assert_never(kind)


def _block(nodes: tuple[object, ...], scope: Names) -> list[str]:
    return [f"  {line}" for node in nodes for line in _node(node, scope).split("\n")]


def _condition(condition: TagCondition, scope: Names) -> str:
    match condition:
        case TagEqual(left=left, right=right):
            return f"{_side(left, scope)} == {_side(right, scope)}"
        case TagTuple(elem=elem, terms=terms):
            return f"{_elem(elem, scope)} carries [{', '.join(print_expr(t, scope) for t in terms)}]"
        case _:
            assert_never(condition)


def _side(term: TagTerm, scope: Names) -> str:
    text, level = _term(term, scope)
    return text if level > LEVELS["=="] else f"({text})"
