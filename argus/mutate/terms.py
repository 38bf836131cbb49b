"""Edits of the value that a statement computes from its elements: a cell written twice, a term counted twice, a factor
moved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from argus.ir.expr import Const, Coord, Elem, Expr, Op, children, conjunction, op, rewrite, walk
from argus.ir.nodes import Access, Accumulate, Map, Stmt, ThreadCopy
from argus.mutate.kind import Kind

Edit = tuple[str, Kind, tuple[Stmt, ...]]
"""A name, the kind, and the replacement of the statement."""


def terms(stmt: Stmt) -> Iterator[Edit]:
    """Yield the edits of one statement that computes or copies."""
    match stmt:
        case ThreadCopy():
            for index in _twice(stmt.dst.index, stmt.shape):
                yield "write a cell twice", Kind.INDEX, (replace(stmt, dst=replace(stmt.dst, index=index)),)
        case Map():
            for index in _twice(stmt.dst.index, stmt.shape):
                yield "write a cell twice", Kind.INDEX, (replace(stmt, dst=Access(stmt.dst.obj, index)),)
            yield from _moved(stmt)
        case Accumulate(layout=layout) if layout is not None:
            yield "count a term twice", Kind.REDUCTION, (stmt, _of_first_terms(stmt))
            yield from _moved(stmt)
        case _:
            pass


def _twice(index: tuple[Expr, ...], shape: tuple[int, ...]) -> Iterator[tuple[Expr, ...]]:
    """Yield the index with its last coordinate rounded down to an even number."""
    used = [e.axis for part in index for e in walk(part) if isinstance(e, Coord) and shape[e.axis] > 1]
    if used:
        last = Coord(max(used))
        even = op("mul", op("floordiv", last, Const(2)), Const(2))
        yield tuple(rewrite(part, lambda e: even if e == last else None) for part in index)


def _of_first_terms(stmt: Accumulate) -> Accumulate:
    """Return the accumulation of only those terms that are first along the last axis."""
    first = op("eq", Coord(len(stmt.shape) - 1), Const(0))
    return replace(stmt, mask=first if stmt.mask is None else conjunction([stmt.mask, first]))


def _moved(stmt: Map | Accumulate) -> Iterator[Edit]:
    for value in one_changed(stmt.value, _factor_moved):
        yield "move a factor", Kind.VALUE, (replace(stmt, value=value),)


def _factor_moved(e: Expr) -> Expr | None:
    """Yield p * f + q as (p + q) * f, (p + q) * f as p * f + q, and exp(p * f) as exp(p) * f."""
    match e:
        case Op(op="add" | "sub" as kind, args=(Op(op="mul", args=(p, f)), q)):
            return Op("mul", (Op(kind, (p, q), e.dtype), f), e.dtype)
        case Op(op="add" | "sub" as kind, args=(q, Op(op="mul", args=(p, f)))):
            return Op("mul", (Op(kind, (q, p), e.dtype), f), e.dtype)
        case Op(op="mul", args=(Op(op="add" | "sub" as kind, args=(p, q)), f)):
            return Op(kind, (Op("mul", (p, f), e.dtype), q), e.dtype)
        case Op(op="exp" | "exp2" | "log" | "log2" | "sqrt" | "rsqrt" as kind, args=(Op(op="mul", args=(p, f)),)):
            return Op("mul", (Op(kind, (p,), e.dtype), f), e.dtype)
        case _:
            return None


def one_changed(expr: Expr, change: Callable[[Expr], Expr | None]) -> Iterator[Expr]:
    """Yield `expr` with `change` applied at one place, for each place where `change` returns an expression."""
    new = change(expr)
    if new is not None:
        yield new
    parts = children(expr)
    for i, part in enumerate(parts):
        for changed in one_changed(part, change):
            inner = (*parts[:i], changed, *parts[i + 1 :])
            match expr:
                case Op():
                    yield replace(expr, args=inner)
                case Elem():
                    yield replace(expr, index=inner)
                case _:
                    pass
