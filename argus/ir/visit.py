"""The one traversal: walk and rewrite statements, derived from their declared fields."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from argus.ir.expr import Expr, rewrite
from argus.ir.nodes import Access, Accumulate, Copy, For, If, Map, Mma, Stage, Stmt


def walk(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """Every statement, parents before children, in program order."""
    for stmt in body:
        yield stmt
        match stmt:
            case For(body=inner):
                yield from walk(inner)
            case If(then=then, orelse=orelse):
                yield from walk(then)
                yield from walk(orelse)
            case _:
                pass


def rewrite_body(
    body: tuple[Stmt, ...], change: Callable[[Stmt], tuple[Stmt, ...] | None]
) -> tuple[Stmt, ...]:
    """Bottom-up replacement of statements: `change` gives the new statements, or None to keep one."""
    result: list[Stmt] = []
    for stmt in body:
        match stmt:
            case For(body=inner):
                stmt = replace(stmt, body=rewrite_body(inner, change))
            case If(then=then, orelse=orelse):
                stmt = replace(
                    stmt, then=rewrite_body(then, change), orelse=rewrite_body(orelse, change)
                )
            case _:
                pass
        changed = change(stmt)
        result.extend((stmt,) if changed is None else changed)
    return tuple(result)


def map_exprs(stmt: Stmt, change: Callable[[Expr], Expr | None]) -> Stmt:
    """`stmt` with `change` applied bottom-up to all of its own expressions (not those of nested statements)."""

    def one(expr: Expr) -> Expr:
        return rewrite(expr, change)

    def maybe(expr: Expr | None) -> Expr | None:
        return None if expr is None else one(expr)

    def access(a: Access) -> Access:
        return Access(a.obj, tuple(one(e) for e in a.index))

    match stmt:
        case Copy(dst=dst, src=src, mask=mask):
            return replace(stmt, dst=access(dst), src=access(src), mask=maybe(mask))
        case Map(dst=dst, value=value):
            return replace(stmt, dst=access(dst), value=one(value))
        case Accumulate(dst=dst, value=value, mask=mask):
            return replace(stmt, dst=access(dst), value=one(value), mask=maybe(mask))
        case Mma(d=d, a=a, b=b):
            return replace(stmt, d=access(d), a=access(a), b=access(b))
        case Stage(src=src, mask=mask):
            return replace(stmt, src=access(src), mask=maybe(mask))
        case For(start=start, stop=stop):
            return replace(stmt, start=one(start), stop=one(stop))
        case If(cond=cond):
            return replace(stmt, cond=one(cond))
        case _:
            return stmt
