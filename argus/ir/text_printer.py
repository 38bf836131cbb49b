"""Print the IR in a form that is readable, stable, and read back exactly (apart from spans).

    copy s0[c0, c1] <- a[m0 + c0, k0 + c1] shape 128x64 if m0 + c0 < M else 0.0:bfloat16 layout [...] via cp.async

Grammar: `argus/ir/text.lark`. `c0` is `Coord(0)`. A bare name is the counter of an enclosing loop of that name, or else
a launch parameter. Names that could have another meaning are printed in backquotes. A type is written (`5:int64`) only
if it differs from the type that the context implies: int32 for integers, float32 for floats, the declared type for
elements and parameters, and the operator's rule for operations.
"""

from __future__ import annotations

import json
from typing import Any

from typing_extensions import assert_never

from argus.ir.descriptor import Flag, Hole, Kind, Option, Piece, Text, describe
from argus.ir.nodes import (
    Arranged,
    Assume,
    Covers,
    For,
    Fragment,
    InRange,
    Kernel,
    Mbarrier,
    Precondition,
    Requires,
    Scalar,
    Shared,
    Stmt,
    TagCondition,
    TagEqual,
    TagTerm,
    TagTuple,
    Tensor,
)
from argus.ir.print_terms import (
    EMPTY_SCOPE,
    LEVELS,
    Names,
    access_text,
    elem_text,
    list_text,
    name_text,
    print_expr,
    print_shape,
    scope_of,
    term_text,
)
from argus.ir.types import DType
from argus.ir.visit import walk

# ---------------------------------------------------------------------------- kernels and statements


def print_kernel(kernel: Kernel) -> str:
    """Return the whole kernel as text, such that `parse_kernel(print_kernel(k)) == k`."""
    scope = scope_of(kernel.params, (*kernel.shared, *kernel.fragments))
    lines = [f"kernel {name_text(kernel.name)}"]
    if kernel.target is not None:
        lines.append(f"target {kernel.target}")
    lines.append(f"warps {kernel.num_warps} of {kernel.warp_size}")
    lines += (f"size {name_text(size)}" for size in kernel.sizes)
    lines += map(_param, kernel.params)
    lines += (f"constexpr {name_text(name)} = {_literal(value)}" for name, value in kernel.constexprs)
    if kernel.grid is not None:
        group = "" if kernel.group == 1 else f" group {kernel.group}"
        cluster = f" cluster {kernel.cluster}" if kernel.cluster != 1 else ""
        persistent = " persistent" if kernel.persistent else ""
        schedule = "" if kernel.schedule == "cooperative" else f" {kernel.schedule}"
        flat = " flat" if kernel.flat else ""
        lines.append(f"grid [{list_text(kernel.grid, scope)}]{group}{cluster}{flat}{persistent}{schedule}")
    lines += (_precondition(p, scope) for p in kernel.preconditions)
    lines += (f"invariant {name_text(i.tensor)} over {', '.join(map(name_text, i.sizes))}" for i in kernel.invariants)
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
            at = f"strides [{list_text(strides, EMPTY_SCOPE)}] align {alignment}"
            return f"tensor {name_text(name)}: {dtype}[{list_text(shape, EMPTY_SCOPE)}] {at}"
        case Scalar(name=name, dtype=dtype):
            return f"scalar {name_text(name)}: {dtype}"
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
    box = f"over [{list_text(covers.shape, scope)}] at [{list_text(covers.at, scope)}]"
    return f"covers {name_text(covers.output)}({', '.join(map(name_text, covers.names))}) {box}{where}"


def _precondition(precondition: Precondition, scope: Names) -> str:
    match precondition:
        case Requires(cond=cond):
            return f"requires {print_expr(cond, scope)}"
        case InRange(tensor=tensor, lo=lo, hi=hi):
            return f"in_range {name_text(tensor)} from {print_expr(lo, scope)} to {print_expr(hi, scope)}"
        case Arranged(tensor=tensor, how=how, total=total, longest=longest) if total is not None:
            limit = "" if longest is None else f" longest {print_expr(longest, scope)}"
            return f"{how} {name_text(tensor)} to {print_expr(total, scope)}{limit}"
        case Arranged(tensor=tensor, how=how):
            return f"{how} {name_text(tensor)}"
        case Assume(cond=cond, reason=reason):
            return f"assume {print_expr(cond, scope)} because {json.dumps(reason)}"
        case _:
            assert_never(precondition)


def _shared(shared: Shared) -> str:
    layout = "" if shared.layout is None else f" layout {shared.layout}"
    at = "" if shared.offset is None else f" at {shared.offset}"
    return f"shared {name_text(shared.name)}: {shared.dtype} {print_shape(shared.shape)}{layout}{at}"


def _mbarrier(barrier: Mbarrier) -> str:
    at = "" if barrier.offset is None else f" at {barrier.offset}"
    return f"mbarrier {name_text(barrier.name)} count {barrier.count} arrivals {barrier.arrivals}{at}"


def _fragment(fragment: Fragment) -> str:
    layout = "" if fragment.layout is None else f" layout {fragment.layout}"
    return f"fragment {name_text(fragment.name)}: {fragment.dtype} {print_shape(fragment.shape)}{layout}"


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
            return access_text(value, scope)
        case Kind.EXPRESSION | Kind.MEANING | Kind.CONSTANT:
            return print_expr(value, scope)
        case Kind.NUMBER | Kind.LAYOUT:
            return str(value)
        case Kind.NAME:
            return name_text(value)
        case Kind.QUOTED:
            return json.dumps(value)
        case Kind.NAMES:
            return ", ".join(map(name_text, value))
        case Kind.SHAPE:
            return print_shape(value)
        case Kind.EXTENTS:
            return f"[{list_text(value, scope)}]"
        case Kind.FIELDS:
            return "{" + ", ".join(f"{name_text(name)} = {print_expr(term, scope)}" for name, term in value) + "}"
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
            return f"{elem_text(elem, scope)} carries [{', '.join(print_expr(t, scope) for t in terms)}]"
        case _:
            assert_never(condition)


def _side(term: TagTerm, scope: Names) -> str:
    text, level = term_text(term, scope)
    return text if level > LEVELS["=="] else f"({text})"
