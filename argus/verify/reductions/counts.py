"""Replace running counts of loops that run once by formulas over the loop's variable, which every engine can use."""

from __future__ import annotations

from dataclasses import replace

from argus.ir.expr import Const, Expr, LoopVar, op, rewrite
from argus.ir.nodes import For, If, Kernel, Roles, Stmt
from argus.ir.rings import place_in_ring, turn_in_ring
from argus.ir.visit import map_exprs, rewrite_body


def spelled(kernel: Kernel) -> Kernel:
    """Remove the counters of loops that stand in no other loop and no `Programs`.

    In such a loop the count n is (var - start) // step, modulo the number at which it wraps. If S (2 S) divides that
    number, places `(n + d) % S` (parities `((n + d) // S + a) % 2`) need no modulus and are written without it.
    Elsewhere the modulus stays.
    """
    return replace(kernel, body=_block(kernel.body))


def _block(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    return tuple(_statement(s) for s in body)


def _statement(stmt: Stmt) -> Stmt:
    match stmt:
        case Roles(roles=roles):
            return replace(stmt, roles=tuple(replace(r, body=_block(r.body)) for r in roles))
        case If(then=then, orelse=orelse):
            return replace(stmt, then=_block(then), orelse=_block(orelse))
        case For(counter=counter) if counter is not None:
            return _uncounted(stmt, counter.name, counter.wrap)
        case _:
            return stmt


def _uncounted(loop: For, name: str, wrap: int) -> For:
    count = op("floordiv", op("sub", LoopVar(loop.var), loop.start), Const(loop.step))

    def unwrapped(expr: Expr) -> Expr | None:
        known = _whole_rounds(expr, name, wrap)
        return rewrite(expr, lambda e: count if e == LoopVar(name) else None) if known else None

    def wrapped(expr: Expr) -> Expr | None:
        return op("mod", count, Const(wrap)) if expr == LoopVar(name) else None

    def change(stmt: Stmt) -> tuple[Stmt, ...]:
        return (map_exprs(map_exprs(stmt, unwrapped), wrapped),)

    return replace(loop, counter=None, body=rewrite_body(loop.body, change))


def _whole_rounds(expr: Expr, name: str, wrap: int) -> bool:
    """Return True if `expr` has the same value for the count and for the count modulo `wrap`."""
    place, turn = place_in_ring(expr), turn_in_ring(expr)
    if place is not None:
        return place.counter == name and wrap % place.size == 0
    return turn is not None and turn.counter == name and wrap % (2 * turn.size) == 0
