"""The sizes, program ids and arguments that decide which statements run, and on which elements.

The place of a tile in a tensor also depends on other parameters, such as the head of a program. The sets of a lean
model do not contain facts about those others: they cost as much work as the rest, and prove hardly anything.
"""

from __future__ import annotations

from math import lcm

from argus.ir.expr import Const, Expr, Op, Param, ProgramId, walk
from argus.ir.nodes import For, Kernel
from argus.ir.visit import map_exprs
from argus.ir.visit import walk as statements

_COMPARES = frozenset({"lt", "le", "gt", "ge", "eq", "ne"})
_DECIDES = _COMPARES | {"minimum", "maximum"}


def deciding(kernel: Kernel) -> frozenset[Param | ProgramId]:
    """Return the parameters and program ids on which a loop's bounds, a comparison, a minimum or a maximum depends."""
    found: set[Param | ProgramId] = set()

    def note(expr: Expr) -> None:
        found.update(e for e in walk(expr) if isinstance(e, Param | ProgramId))

    def look(expr: Expr) -> Expr | None:
        if isinstance(expr, Op) and expr.op in _DECIDES:
            note(expr)
        return None

    for stmt in statements(kernel.body):
        if isinstance(stmt, For):
            note(stmt.start)
            note(stmt.stop)
        map_exprs(stmt, look)
    return frozenset(found)


def rounded(kernel: Kernel) -> dict[Param, int]:
    """Return the parameters that are compared with places rounded to multiples, and a multiple of all these numbers.

    Such a comparison decides the same as one of the place itself only because the parameter is a multiple, too.
    """
    found: dict[Param, int] = {}

    def look(expr: Expr) -> Expr | None:
        if isinstance(expr, Op) and expr.op in _COMPARES:
            parts = tuple(walk(expr))
            for step in map(_rounding, parts):
                found.update((e, lcm(step, found.get(e, 1))) for e in parts if step > 1 and isinstance(e, Param))
        return None

    for stmt in statements(kernel.body):
        map_exprs(stmt, look)
    return found


def _rounding(expr: Expr) -> int:
    """Return the number to whose multiples a difference rounds down, or 1."""
    match expr:
        case Op(op="sub", args=(whole, Op(op="mod", args=(same, Const(value=step))))) if whole == same:
            return int(step)
        case _:
            return 1
