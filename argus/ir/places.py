"""What a statement computes to know where, whether and how often: all that is not data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from argus.ir.access import relations
from argus.ir.expr import Expr, elements
from argus.ir.nodes import (
    Accumulate,
    AssertTags,
    Copy,
    For,
    If,
    Map,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierWait,
    Signal,
    Stmt,
    Tag,
)
from argus.ir.tags import DataValue, Once, TagEqual, TagField, TagTerm, TagTuple


def places(stmt: Stmt) -> Iterator[Expr]:
    """Indices, masks, bounds, conditions, and the numbers and parities of barriers; not what nested statements have."""
    for relation in relations(stmt):
        yield from relation.index
        if relation.guard is not None:
            yield relation.guard
    match stmt:
        case For(start=start, stop=stop):
            yield from (start, stop)
        case If(cond=cond):
            yield cond
        case Copy(mask=mask, signal=signal):
            yield from (e for e in (mask, signal.index if isinstance(signal, Signal) else None) if e is not None)
        case MbarrierWait(index=index, parity=parity):
            yield from (index, parity)
        case MbarrierExpect(index=index) | MbarrierArrive(index=index):
            yield index
        case _:
            pass


def index_registers(statements: Iterable[Stmt]) -> frozenset[str]:
    """Register tiles whose elements are used in places or tags, or to compute such: other registers hold data."""
    listed = tuple(statements)
    found = {e.obj for stmt in listed for expr in (*places(stmt), *_in_tags(stmt)) for e in elements(expr)}
    computed = [(stmt.dst.obj, stmt.value) for stmt in listed if isinstance(stmt, Map | Accumulate)]
    while True:
        more = {e.obj for obj, value in computed if obj in found for e in elements(value)}
        if more <= found:
            return frozenset(found)
        found |= more


def _in_tags(stmt: Stmt) -> Iterator[Expr]:
    """The numbers that tags and assertions speak of."""
    terms: list[TagTerm] = []
    match stmt:
        case Tag(fields=fields):
            terms += [term for _, term in fields]
        case AssertTags(conditions=conditions, where=where):
            terms += [] if where is None else [where]
            for condition in conditions:
                match condition:
                    case TagEqual(left=left, right=right):
                        terms += [left, right]
                    case TagTuple(elem=elem, terms=others):
                        terms += [*elem.index, *others]
        case _:
            pass
    for term in terms:
        match term:
            case TagField(elem=elem):
                yield from elem.index
            case Once(lo=lo, hi=hi):
                yield from (lo, hi)
            case DataValue(index=index):
                yield from index
            case _:
                yield term
