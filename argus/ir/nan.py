"""Where it is left open what NaN becomes: `without_nan(x)`, a promise that no result depends on it.

    accumulate top[c0] maximum without_nan(s[c0, c1])   ->   accumulate top[c0] maximum s[c0, c1]

Every number x is `without_nan(x)`, so whatever holds for all numbers holds without the promise. Only code for gfx942
becomes shorter by it.
"""

from __future__ import annotations

from dataclasses import replace

from argus.ir.expr import Expr, Op
from argus.ir.nodes import Kernel, Stmt
from argus.ir.visit import map_exprs, rewrite_body

WITHOUT_NAN = "without_nan"


def with_nan(kernel: Kernel) -> Kernel:
    """Return the kernel without such promises: NaN stays NaN."""

    def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
        changed = map_exprs(stmt, promised)
        return None if changed == stmt else (changed,)

    return replace(kernel, body=rewrite_body(kernel.body, change))


def promised(expr: Expr) -> Expr | None:
    """Return x if the expression is `without_nan(x)`, else None."""
    match expr:
        case Op(op=name, args=(x,)) if name == WITHOUT_NAN:
            return x
        case _:
            return None
