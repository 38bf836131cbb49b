"""Leave out limits of loaded numbers that their declared range meets anyway.

    copy n[] <- table[b, p]                              copy n[] <- table[b, p]
    map page[] = minimum(maximum(n[], 0), PAGES - 1)  ->  copy page[] <- table[b, p]     where 0 <= table < PAGES

A kernel limits numbers that nobody checked, so that it stays in its tensors whatever they are. Proofs assume the
declared range, in which the limited number is the number itself.
"""

from __future__ import annotations

from dataclasses import replace

from argus.ir.access import Mode, relations
from argus.ir.contents import ranges
from argus.ir.expr import Elem, Expr, Op, linear
from argus.ir.nodes import Copy, InRange, Kernel, Map, Stmt, ThreadCopy
from argus.ir.visit import map_exprs, rewrite_blocks, walk


def unlimited(kernel: Kernel) -> Kernel:
    """Return the kernel without minima and maxima that never change a number of a declared range."""
    known = _loaded(kernel)
    if not known:
        return kernel

    def change(e: Expr) -> Expr | None:
        return _plain(e, known) if isinstance(e, Op) and e.op in ("minimum", "maximum") else None

    def block(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        changed = tuple(map_exprs(s, change) for s in body)
        return tuple(_loaded_again(a, b) for a, b in zip((None, *changed), changed, strict=False))

    return replace(kernel, body=rewrite_blocks(kernel.body, block))


def _loaded(kernel: Kernel) -> dict[str, InRange]:
    """Map each register tile that holds elements of one unwritten tensor, and nothing else, to their range."""
    declared = {r.tensor: r for r in ranges(kernel)}
    sources: dict[str, set[str]] = {}
    for stmt in walk(kernel.body) if declared else ():
        plain = isinstance(stmt, ThreadCopy) and stmt.mask is None
        for access in relations(stmt):
            if access.mode is not Mode.READ:
                sources.setdefault(access.obj, set()).add(stmt.src.obj if plain and isinstance(stmt, Copy) else "")
    return {
        name: declared[tensor]
        for name, found in sources.items()
        for tensor in found
        if len(found) == 1 and tensor in declared and tensor not in sources
    }


def _plain(e: Op, known: dict[str, InRange]) -> Expr | None:
    """Return the number that `e` limits if its range says that the limit is never reached."""
    for number, limit in (e.args, e.args[::-1]):
        if isinstance(number, Elem) and number.obj in known:
            fact = known[number.obj]
            room = _difference(fact.lo, limit) if e.op == "maximum" else _difference(limit, fact.hi)
            if room is not None and room >= (0 if e.op == "maximum" else -1):
                return number
    return None


def _difference(a: Expr, b: Expr) -> int | None:
    """Return `a - b` if it is constant, else None."""
    (left, x), (right, y) = linear(a), linear(b)
    return x - y if left == right else None


def _loaded_again(before: Stmt | None, stmt: Stmt) -> Stmt:
    """Return `stmt` as a load of the number that it copies from the register that `before` loads."""
    match before, stmt:
        case ThreadCopy(dst=first, shape=(), mask=None), Map(dst=dst, value=Elem() as value, shape=()) if (
            value == Elem(first.obj, first.index, value.dtype)
        ):
            return replace(before, dst=dst, layout=stmt.layout, span=stmt.span, id=stmt.id)
        case _:
            return stmt
