"""The one traversal: walk and rewrite statements, derived from their declared fields."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from argus.ir.expr import Elem, Expr, rewrite
from argus.ir.nodes import (
    Access,
    Accumulate,
    AssertTags,
    Copy,
    DataValue,
    For,
    If,
    Map,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierWait,
    Mma,
    Once,
    Programs,
    Roles,
    Stage,
    Stmt,
    Tag,
    TagCondition,
    TagEqual,
    TagField,
    TagTerm,
    TagTuple,
)


def walk(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """Every statement, parents before children, in program order."""
    for stmt in body:
        yield stmt
        match stmt:
            case For(body=inner) | Programs(body=inner):
                yield from walk(inner)
            case If(then=then, orelse=orelse):
                yield from walk(then)
                yield from walk(orelse)
            case Roles(roles=roles):
                for role in roles:
                    yield from walk(role.body)
            case _:
                pass


def rewrite_blocks(body: tuple[Stmt, ...], change: Callable[[tuple[Stmt, ...]], tuple[Stmt, ...]]) -> tuple[Stmt, ...]:
    """Bottom-up replacement of blocks: those of loops, branches and roles, in program order, and then `body`."""
    return change(tuple(_inside(stmt, change) for stmt in body))


def _inside(stmt: Stmt, change: Callable[[tuple[Stmt, ...]], tuple[Stmt, ...]]) -> Stmt:
    match stmt:
        case For(body=inner) | Programs(body=inner):
            return replace(stmt, body=rewrite_blocks(inner, change))
        case If(then=then, orelse=orelse):
            return replace(stmt, then=rewrite_blocks(then, change), orelse=rewrite_blocks(orelse, change))
        case Roles(roles=roles):
            return replace(stmt, roles=tuple(replace(r, body=rewrite_blocks(r.body, change)) for r in roles))
        case _:
            return stmt


def rewrite_body(body: tuple[Stmt, ...], change: Callable[[Stmt], tuple[Stmt, ...] | None]) -> tuple[Stmt, ...]:
    """Bottom-up replacement of statements: `change` gives the new statements, or None to keep one."""

    def block(stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        changed = ((stmt, change(stmt)) for stmt in stmts)
        return tuple(s for stmt, new in changed for s in ((stmt,) if new is None else new))

    return rewrite_blocks(body, block)


def map_exprs(stmt: Stmt, change: Callable[[Expr], Expr | None]) -> Stmt:
    """`stmt` with `change` applied bottom-up to all of its own expressions (not those of nested statements).

    In a tag condition the element whose tag is meant must stay an `Elem`.
    """

    def one(expr: Expr) -> Expr:
        return rewrite(expr, change)

    def maybe(expr: Expr | None) -> Expr | None:
        return None if expr is None else one(expr)

    def access(a: Access) -> Access:
        return Access(a.obj, tuple(one(e) for e in a.index), maybe(a.block))

    match stmt:
        case Copy(dst=dst, src=src, mask=mask, signal=signal):
            moved = None if signal is None else replace(signal, index=one(signal.index))
            return replace(stmt, dst=access(dst), src=access(src), mask=maybe(mask), signal=moved)
        case Map(dst=dst, value=value):
            return replace(stmt, dst=access(dst), value=one(value))
        case Accumulate(dst=dst, value=value, mask=mask):
            return replace(stmt, dst=access(dst), value=one(value), mask=maybe(mask))
        case Mma(d=d, a=a, b=b):
            return replace(stmt, d=access(d), a=access(a), b=access(b))
        case Stage(src=src, mask=mask):
            return replace(stmt, src=access(src), mask=maybe(mask))
        case MbarrierExpect(index=index) | MbarrierArrive(index=index):
            return replace(stmt, index=one(index))
        case MbarrierWait(index=index, parity=parity):
            return replace(stmt, index=one(index), parity=one(parity))
        case For(start=start, stop=stop):
            return replace(stmt, start=one(start), stop=one(stop))
        case If(cond=cond):
            return replace(stmt, cond=one(cond))
        case Tag(fields=fields):
            return replace(stmt, fields=tuple((name, _map_term(term, one)) for name, term in fields))
        case AssertTags(conditions=conditions, where=where):
            return replace(stmt, conditions=tuple(_map_condition(c, one) for c in conditions), where=maybe(where))
        case _:
            return stmt


def _map_condition(condition: TagCondition, one: Callable[[Expr], Expr]) -> TagCondition:
    match condition:
        case TagEqual(left=left, right=right):
            return TagEqual(_map_term(left, one), _map_term(right, one))
        case TagTuple(elem=elem, terms=terms):
            return TagTuple(_map_elem(elem, one), tuple(_map_term(t, one) for t in terms))


def _map_term(term: TagTerm, one: Callable[[Expr], Expr]) -> TagTerm:
    match term:
        case TagField(elem=elem, name=name):
            return TagField(_map_elem(elem, one), name)
        case Once(lo=lo, hi=hi):
            return Once(one(lo), one(hi))
        case DataValue(tensor=tensor, index=index):
            return DataValue(tensor, tuple(one(e) for e in index))
        case _:
            return one(term)


def _map_elem(elem: Elem, one: Callable[[Expr], Expr]) -> Elem:
    result = one(elem)
    if not isinstance(result, Elem):
        raise TypeError(f"the element of a tag condition became {result}")
    return result


def map_accesses(stmt: Stmt, change: Callable[[Access], Access]) -> Stmt:
    """`stmt` with `change` applied to every access of its own: to memory, and (as `Elem`) to registers or tags."""

    def register(expr: Expr) -> Expr | None:
        if not isinstance(expr, Elem):
            return None
        new = change(Access(expr.obj, expr.index))
        return Elem(new.obj, new.index, expr.dtype)

    stmt = map_exprs(stmt, register)
    match stmt:
        case Copy(dst=dst, src=src):
            return replace(stmt, dst=change(dst), src=change(src))
        case Map(dst=dst) | Accumulate(dst=dst):
            return replace(stmt, dst=change(dst))
        case Mma(d=d, a=a, b=b):
            return replace(stmt, d=change(d), a=change(a), b=change(b))
        case Stage(src=src):
            return replace(stmt, src=change(src))
        case _:
            return stmt
