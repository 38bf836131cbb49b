"""Promises that no result depends on what becomes of some numbers: of NaN in `without_nan(x)`, of unusual ones in
`moderate(x)`.

    accumulate top[c0] maximum without_nan(s[c0, c1])   ->   accumulate top[c0] maximum s[c0, c1]

Every number x is `without_nan(x)`, so whatever holds for all numbers holds without the promise; `moderate(x)` is x for
zero and for magnitudes from 2^-126 to 2^100. Only code for gfx942 becomes shorter by them.
"""

from __future__ import annotations

from dataclasses import replace

from argus.ir.expr import Expr, Op
from argus.ir.nodes import Kernel, Stmt
from argus.ir.visit import map_exprs, rewrite_body

WITHOUT_NAN, MODERATE = "without_nan", "moderate"
PROMISES = (WITHOUT_NAN, MODERATE)


def without_promises(kernel: Kernel) -> Kernel:
    """Return the kernel without such promises: NaN stays NaN."""

    def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
        changed = map_exprs(stmt, promised)
        return None if changed == stmt else (changed,)

    return replace(kernel, body=rewrite_body(kernel.body, change))


def promised(expr: Expr) -> Expr | None:
    """Return x if the expression is x under a promise, else None."""
    match expr:
        case Op(op=name, args=(x,)) if name in PROMISES:
            return x
        case _:
            return None
