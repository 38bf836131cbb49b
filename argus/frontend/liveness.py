"""Find the names that a block reads before it binds them.

These names are carried into a run-time block, or used after it. A name is local to the block if the block binds it
first and nothing reads it afterwards, whatever the name meant outside.
"""

from __future__ import annotations

from argus.frontend.surface import (
    AssertStmt,
    Assign,
    AugAssign,
    Expression,
    ExprStmt,
    ForStmt,
    IfStmt,
    PassStmt,
    ReturnStmt,
    Statement,
    names,
)

Names = frozenset[str]


def flow(body: tuple[Statement, ...]) -> tuple[Names, Names]:
    """Return two sets: the names that `body` may read before it binds them, and the names that `body` surely binds."""
    exposed: set[str] = set()
    bound: set[str] = set()
    for statement in body:
        reads, binds = _step(statement)
        exposed |= reads - bound
        bound |= binds
    return frozenset(exposed), frozenset(bound)


def after(rest: tuple[Statement, ...], outer: Names) -> Names:
    """Return the names that may be read after a statement: by `rest`, which follows it, or by later code (`outer`)."""
    exposed, bound = flow(rest)
    return exposed | (outer - bound)


def _step(statement: Statement) -> tuple[set[str], set[str]]:
    match statement:
        case Assign(targets=targets, value=value):
            return _names(value), {t.id for t in targets}
        case AugAssign(target=target, value=value):
            return {target.id} | _names(value), {target.id}
        case ExprStmt(value=value):
            return _names(value), set()
        case ReturnStmt(value=value):
            return _names(value), set()
        case AssertStmt(cond=cond, message=message):
            return _names(cond) | _names(message), set()
        case ForStmt(target=target, iterable=iterable, body=body):
            exposed, _ = flow(body)
            return _names(iterable) | (exposed - {target.id}), set()
        case IfStmt(cond=cond, then=then, orelse=orelse):
            (first, left), (second, right) = flow(then), flow(orelse)
            return _names(cond) | first | second, set(left & right)
        case PassStmt():
            return set(), set()


def _names(expr: Expression | None) -> set[str]:
    return set() if expr is None else set(names(expr))
