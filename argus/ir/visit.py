"""The common traversal: walk and rewrite statements by their declared fields."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import Any, TypeVar, cast

from argus.ir.descriptor import Kind, describe
from argus.ir.expr import Elem, Expr, rewrite
from argus.ir.nodes import Access, DataValue, Kernel, Once, Stmt, TagCondition, TagEqual, TagField, TagTerm, TagTuple

_Node = TypeVar("_Node")


def walk(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """Yield every statement in program order, parents before children."""
    for stmt in body:
        yield stmt
        for block in blocks(stmt):
            yield from walk(block)


def blocks(node: object) -> Iterator[tuple[Stmt, ...]]:
    """Yield the statement lists that are direct children of a statement, in program order."""
    for field in describe(type(node)).blocks:
        value = getattr(node, field.name)
        if field.kind is Kind.BLOCK:
            yield value
        else:
            for part in value:
                yield from blocks(part)


def rewrite_blocks(body: tuple[Stmt, ...], change: Callable[[tuple[Stmt, ...]], tuple[Stmt, ...]]) -> tuple[Stmt, ...]:
    """Rewrite blocks bottom-up: first the blocks of loops, branches and roles, in program order, and then `body`."""
    return change(tuple(_inside(stmt, change) for stmt in body))


def head(stmt: Stmt) -> Stmt:
    """Return the statement with empty blocks: what its first line tells."""
    return _inside(stmt, lambda block: ())


def _inside(node: _Node, change: Callable[[tuple[Stmt, ...]], tuple[Stmt, ...]]) -> _Node:
    new: dict[str, object] = {}
    for field in describe(type(node)).blocks:
        value = getattr(node, field.name)
        direct = field.kind is Kind.BLOCK
        new[field.name] = rewrite_blocks(value, change) if direct else tuple(_inside(part, change) for part in value)
    return _replaced(node, new)


def _replaced(node: _Node, fields: Mapping[str, object]) -> _Node:
    changed: Any = node
    return cast(_Node, replace(changed, **fields)) if fields else node


def numbered(kernel: Kernel) -> Kernel:
    """Return the kernel with an `id` for each statement: its position in the order of `rewrite_blocks`."""
    numbers = count()
    body = rewrite_blocks(kernel.body, lambda block: tuple(replace(s, id=next(numbers)) for s in block))
    return replace(kernel, body=body)


def rewrite_body(body: tuple[Stmt, ...], change: Callable[[Stmt], tuple[Stmt, ...] | None]) -> tuple[Stmt, ...]:
    """Rewrite statements bottom-up: `change` returns the new statements, or None to keep a statement."""

    def block(stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        changed = ((stmt, change(stmt)) for stmt in stmts)
        return tuple(s for stmt, new in changed for s in ((stmt,) if new is None else new))

    return rewrite_blocks(body, block)


def map_exprs(stmt: _Node, change: Callable[[Expr], Expr | None]) -> _Node:
    """Return `stmt` with `change` applied bottom-up to its own expressions. Nested statements are left unchanged.

    In a tag condition, the element whose tag is meant must stay an `Elem`. Extents of tagged tensors and specifications
    are left unchanged.
    """
    fields = describe(type(stmt)).expressions
    return _replaced(stmt, {f.name: _map_value(getattr(stmt, f.name), f.kind, change) for f in fields})


def _map_value(value: Any, kind: Kind, change: Callable[[Expr], Expr | None]) -> object:
    def one(expr: Expr) -> Expr:
        return rewrite(expr, change)

    match kind:
        case _ if value is None:
            return None
        case Kind.ACCESS:
            return Access(value.obj, tuple(map(one, value.index)), None if value.block is None else one(value.block))
        case Kind.FIELDS:
            return tuple((name, _map_term(term, one)) for name, term in value)
        case Kind.CONDITIONS:
            return tuple(_map_condition(c, one) for c in value)
        case Kind.PART:
            return map_exprs(value, change)
        case Kind.PARTS:
            return tuple(map_exprs(part, change) for part in value)
        case _:
            return one(value)


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
    """Return `stmt` with `change` applied to each of its own accesses: to memory, and (as `Elem`) to registers or tags.
    """

    def register(expr: Expr) -> Expr | None:
        if not isinstance(expr, Elem):
            return None
        new = change(Access(expr.obj, expr.index))
        return Elem(new.obj, new.index, expr.dtype)

    return _map_own(map_exprs(stmt, register), change)


def _map_own(node: _Node, change: Callable[[Access], Access]) -> _Node:
    """Return `node` with `change` applied to the accesses in its fields and in the fields of its parts."""
    new: dict[str, object] = {}
    for field in describe(type(node)).accesses:
        value = getattr(node, field.name)
        direct = field.kind is Kind.ACCESS
        new[field.name] = change(value) if direct else tuple(_map_own(part, change) for part in value)
    return _replaced(node, new)
