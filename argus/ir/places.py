"""The values that decide where, whether and how often a statement acts, as opposed to the data that it moves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set

from argus.ir.access import Mode, relations
from argus.ir.expr import Expr, Op, elements
from argus.ir.nodes import (
    Accumulate,
    Arranged,
    AssertTags,
    Copy,
    For,
    If,
    InRange,
    Kernel,
    Map,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierWait,
    Signal,
    Stmt,
    Tag,
    Tensor,
)
from argus.ir.tags import DataValue, Once, TagEqual, TagField, TagTerm, TagTuple
from argus.ir.visit import walk


def places(stmt: Stmt) -> Iterator[Expr]:
    """Return indices, masks, bounds, conditions, and the numbers and parities of barriers. Nested statements are not
    included."""
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
    """Return the register tiles whose elements are used in places or tags, or to compute them. Other registers hold
    data."""
    listed = tuple(statements)
    found = {e.obj for stmt in listed for expr in (*places(stmt), *_in_tags(stmt)) for e in elements(expr)}
    computed = [(stmt.dst.obj, stmt.value) for stmt in listed if isinstance(stmt, Map | Accumulate)]
    while True:
        more = {e.obj for obj, value in computed if obj in found for e in elements(value)}
        if more <= found:
            return frozenset(found)
        found |= more


def index_tensors(kernel: Kernel) -> tuple[Tensor, ...]:
    """Return the integer tensors whose contents decide where, whether and how often a statement runs. Loads or
    declarations show which tensors these are."""
    listed = tuple(walk(kernel.body))
    registers = index_registers(listed)
    loaded = {s.src.obj for s in listed if isinstance(s, Copy) and s.dst.obj in registers}
    declared = {p.tensor for p in kernel.preconditions if isinstance(p, InRange | Arranged)}
    return tuple(t for t in kernel.tensors if not t.dtype.is_float and t.name in loaded | declared)


def counting_registers(statements: Iterable[Stmt]) -> frozenset[str]:
    """Return the register tiles that are computed only from sizes, arguments, counters and coordinates, and not from
    data."""
    writers: dict[str, list[Stmt]] = {}
    for stmt in statements:
        for relation in relations(stmt):
            if relation.mode is not Mode.READ:
                writers.setdefault(relation.obj, []).append(stmt)
    found = {obj for obj, each in writers.items() if all(isinstance(stmt, Map | Accumulate) for stmt in each)}
    values = {obj: [s.value for s in writers[obj] if isinstance(s, Map | Accumulate)] for obj in found}
    while True:
        rest = {obj for obj in found if all(without_data(value, found) for value in values[obj])}
        if rest == found:
            return frozenset(found)
        found = rest


def without_data(expr: Expr, counting: Set[str]) -> bool:
    """Return True if the only registers that an expression reads are computed without data."""
    return all(e.obj in counting for e in elements(expr))


def counted_parts(value: Expr, counting: Set[str]) -> Iterator[Expr]:
    """Yield the largest parts of a value that are computed without data. Their integers must be exact."""
    if without_data(value, counting):
        yield value
    elif isinstance(value, Op):
        for argument in value.args:
            yield from counted_parts(argument, counting)


def _in_tags(stmt: Stmt) -> Iterator[Expr]:
    """Yield the numbers that occur in tags and assertions."""
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
