"""The access relation of each operation, derived from its fields: what it reads and writes, where, and in which order.

The verifier reasons on these relations, the simulator executes the same fields, and the emitter prints them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from typing_extensions import assert_never

from argus.ir.expr import Elem, Expr, elements
from argus.ir.instruction import INSTRUCTIONS, REDUCES, WGMMA, Order
from argus.ir.nodes import (
    Access,
    Accumulate,
    AssertTags,
    Barrier,
    BarrierArrive,
    BarrierSync,
    BeginTurns,
    BulkCommit,
    BulkWait,
    CommitGroup,
    Copy,
    EndTurns,
    For,
    Hint,
    If,
    Map,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierFence,
    MbarrierInit,
    MbarrierWait,
    Mma,
    MmaCommit,
    MmaFence,
    MmaWait,
    Programs,
    ProxyFence,
    Roles,
    Scan,
    Share,
    Spec,
    Stage,
    Stmt,
    Tag,
    WaitCounts,
    WaitGroup,
    Watch,
    WaveBarrier,
)
from argus.layout import FragmentLayout


class Mode(Enum):
    """The kind of an access to a cell. Accumulations into one cell commute with each other."""

    READ = "read"
    WRITE = "write"
    ACCUMULATE = "accumulate"


class Holders(Enum):
    """The holders of an element that access the cell: every replica, the primary holder, or the whole warp together."""

    ALL = "all"
    PRIMARY = "primary"
    WARP = "warp"


@dataclass(frozen=True, slots=True)
class Relation:
    """The relation {(iteration, element of `shape`) -> `obj[index]` | `guard`}, executed by the threads to which
    `layout` gives the element.

    `layout` is over the domain `shape`. It is None for `Mma`, whose operands are spread by their own fragments. `order`
    is the ordering class under which the access completes.
    """

    obj: str
    mode: Mode
    shape: tuple[int, ...]
    index: tuple[Expr, ...]
    guard: Expr | None
    layout: FragmentLayout | None
    holders: Holders
    order: Order


def relations(stmt: Stmt) -> tuple[Relation, ...]:
    """Return all accesses of one statement, reads first, then the write or accumulation. Nested statements are not
    included."""
    match stmt:
        case Copy():
            return _copy(stmt)
        case Map(dst=dst, value=value, shape=shape, layout=layout, scope=scope):
            holders = Holders.WARP if scope == "warp" else Holders.ALL
            reads = _elements(value, None, shape, layout, holders)
            return (*reads, _access(dst, Mode.WRITE, shape, None, layout, Holders.ALL))
        case Accumulate(dst=dst, value=Elem() as value, shape=shape, mask=mask, instr=instr) if instr in REDUCES:
            source = Access(value.obj, value.index)
            return (
                _access(source, Mode.READ, shape, mask, None, Holders.PRIMARY, Order.BULK_READ),
                _access(dst, Mode.ACCUMULATE, shape, mask, None, Holders.PRIMARY, REDUCES[instr].order),
            )
        case Accumulate(dst=dst, value=value, shape=shape, mask=mask, layout=layout, scope=scope, instr=instr):
            holders = Holders.WARP if scope == "warp" else Holders.ALL
            to_memory = instr is not None
            reads = _elements(value, mask, shape, layout, holders)
            if mask is not None:
                reads = (*reads, *_elements(mask, None, shape, layout, holders))
            target = Holders.PRIMARY if to_memory else holders
            indices = tuple(r for e in dst.index for r in _elements(e, mask, shape, layout, holders))
            return (*reads, *indices, _access(dst, Mode.ACCUMULATE, shape, mask, layout, target))
        case Mma(d=d, a=a, b=b, shape=shape, instr=instr):
            order = WGMMA[instr].order if instr in WGMMA else Order.SYNC
            return (
                _access(a, Mode.READ, shape, None, None, Holders.WARP, order),
                _access(b, Mode.READ, shape, None, None, Holders.WARP, order),
                _access(d, Mode.ACCUMULATE, shape, None, None, Holders.WARP, order),
            )
        case For(start=start, stop=stop):
            return tuple(r for e in (start, stop) for r in _elements(e, None, (), None, Holders.ALL))
        case If(cond=cond):
            return _elements(cond, None, (), None, Holders.ALL)
        case Watch(src=src, shape=shape, layout=layout):
            return (_access(src, Mode.READ, shape, None, layout, Holders.PRIMARY),)
        case Roles() | Programs() | Stage() | Share() | Scan() | Tag() | AssertTags() | Spec():
            return ()
        case Barrier() | CommitGroup() | WaitGroup():
            return ()
        case MmaFence() | MmaCommit() | MmaWait() | BulkCommit() | BulkWait() | ProxyFence():
            return ()
        case MbarrierInit() | MbarrierFence() | MbarrierExpect() | MbarrierArrive() | MbarrierWait():
            return ()
        case BarrierSync() | BarrierArrive():
            return ()
        case WaitCounts() | WaveBarrier() | BeginTurns() | EndTurns() | Hint():
            return ()
        case _:
            assert_never(stmt)


def _copy(stmt: Copy) -> tuple[Relation, ...]:
    row = INSTRUCTIONS[stmt.instr] if stmt.instr is not None else None
    order = row.order if row is not None else Order.SYNC
    collective = row is not None and row.collective
    shape, layout, mask = stmt.shape, stmt.layout, stmt.mask
    to_memory = row is not None and row.writes_memory
    reader = Holders.WARP if collective else Holders.PRIMARY if to_memory else Holders.ALL
    writer = Holders.WARP if collective else Holders.PRIMARY if to_memory else Holders.ALL
    guard_reads = _elements(mask, None, shape, layout, Holders.ALL) if mask is not None else ()
    index_reads = tuple(
        r for e in (*stmt.src.index, *stmt.dst.index) for r in _elements(e, mask, shape, layout, Holders.ALL)
    )
    read_order = Order.BULK_READ if order is Order.BULK_WRITE else order
    keeps = mask is not None and stmt.other is None
    return (
        *guard_reads,
        *index_reads,
        _access(stmt.src, Mode.READ, shape, mask, layout, reader, read_order),
        _access(stmt.dst, Mode.WRITE, shape, mask if keeps else None, layout, writer, order),
    )


def _access(
    access: Access,
    mode: Mode,
    shape: tuple[int, ...],
    guard: Expr | None,
    layout: FragmentLayout | None,
    holders: Holders,
    order: Order = Order.SYNC,
) -> Relation:
    return Relation(access.obj, mode, shape, access.index, guard, layout, holders, order)


def _elements(
    expr: Expr, guard: Expr | None, shape: tuple[int, ...], layout: FragmentLayout | None, holders: Holders
) -> tuple[Relation, ...]:
    return tuple(Relation(e.obj, Mode.READ, shape, e.index, guard, layout, holders, Order.SYNC) for e in elements(expr))
