"""Which sizes, program ids and arguments decide what runs, and on which elements.

Where a tile lies in a tensor also depends on others, say the head of a program. What is known of those is in no set of
a lean model: it takes as much work as what matters, and proves hardly anything.
"""

from __future__ import annotations

from argus.ir.expr import Expr, Op, Param, ProgramId, walk
from argus.ir.nodes import For, Kernel
from argus.ir.visit import map_exprs
from argus.ir.visit import walk as statements

_DECIDES = frozenset({"lt", "le", "gt", "ge", "eq", "ne", "minimum", "maximum"})


def deciding(kernel: Kernel) -> frozenset[Param | ProgramId]:
    """Those that a loop's bounds, a comparison, a minimum or a maximum depends on."""
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
