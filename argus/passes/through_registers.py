"""Split copies that no single instruction can make: between two places in memory, and between two register tiles.

s[...] = a[...] if mask else other -> t = a[...] if mask else other; s[...] = t x[...] = y[...] -> map x[...] = y[...]
"""

from __future__ import annotations

from dataclasses import replace

from argus.ir.expr import Elem, Expr, Op
from argus.ir.nodes import Copy, Fragment, Kernel, Map, Stmt
from argus.ir.visit import rewrite_body
from argus.passes.fresh import Fresh, whole


def copy_through_registers(kernel: Kernel) -> Kernel:
    """Split memory-to-memory copies without a named instruction; turn register copies into maps."""
    fresh = Fresh(kernel)

    def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
        if not isinstance(stmt, Copy) or stmt.instr is not None:
            return None
        source, target = kernel.object(stmt.src.obj), kernel.object(stmt.dst.obj)
        if isinstance(source, Fragment) and isinstance(target, Fragment):
            return (Map(stmt.dst, _value(stmt, source), stmt.shape, stmt.layout, span=stmt.span),)
        if isinstance(source, Fragment) or isinstance(target, Fragment):
            return None
        held = whole(fresh.fragment(f"{stmt.dst.obj}_in", target.dtype, stmt.shape, stmt.layout), len(stmt.shape))
        mask = stmt.mask if stmt.other is None else None
        return (replace(stmt, dst=held), replace(stmt, src=held, mask=mask, other=None))

    return fresh.finish(rewrite_body(kernel.body, change))


def _value(stmt: Copy, source: Fragment) -> Expr:
    value = Elem(stmt.src.obj, stmt.src.index, source.dtype)
    if stmt.mask is None:
        return value
    old: Expr = Elem(stmt.dst.obj, stmt.dst.index, source.dtype) if stmt.other is None else stmt.other
    return Op("where", (stmt.mask, value, old), source.dtype)
