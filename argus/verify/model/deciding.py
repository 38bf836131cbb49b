"""The sizes, program ids and arguments that decide which statements run, and on which elements.

The place of a tile in a tensor also depends on other parameters, such as the head of a program. The sets of a lean
model do not contain facts about those others: they cost as much work as the rest, and prove hardly anything.
"""

from __future__ import annotations

from argus.ir.expr import Expr, Op, Param, ProgramId, walk
from argus.ir.nodes import For, Kernel
from argus.ir.visit import map_exprs
from argus.ir.visit import walk as statements

_DECIDES = frozenset({"lt", "le", "gt", "ge", "eq", "ne", "minimum", "maximum"})


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
