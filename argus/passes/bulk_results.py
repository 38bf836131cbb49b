"""Statements that copy a register tile to a tensor, and the stores or updates by which the copy engine replaces them.

    copy c[m0 + c0, n0 + c1] <- t[c0, c1]             ->  ... via tma.store
    accumulate c[m0 + c0, n0 + c1] add t[c0, c1]      ->  ... via tma.reduce.add

The copy engine leaves out nothing but what is outside of the tensor. Where a mask ends rows earlier, the engine stores
the tiles that have all their rows, and threads store the others:

    copy c[m0 + c0, c1] <- t[c0, c1]  ->  ... c[where(m0 + 128 <= end, m0, M) + c0, c1] via tma.store
      if m0 + c0 < end                    if m0 + 128 > end { copy ... }

So every program takes the same steps: a store behind the last row stores nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeGuard

from argus.ir.access import Mode, relations
from argus.ir.expr import (
    Const,
    Coord,
    Elem,
    Expr,
    Op,
    conjunction,
    conjuncts,
    coords,
    elements,
    op,
    rewrite,
    substitute_coords,
)
from argus.ir.instruction import INSTRUCTIONS, REDUCES
from argus.ir.nodes import Access, Accumulate, BulkCopy, Copy, Fragment, Kernel, Map, Stmt, Tensor
from argus.ir.pixels import is_shifted, one_place, start_of
from argus.ir.statement import Problem
from argus.ir.types import DType
from argus.ir.visit import rewrite_body, walk
from argus.ir.wellformed.engine import bulk_copy, bulk_reduce
from argus.passes.fresh import Fresh, touches
from argus.passes.report import Unfit
from argus.source import Span

STORE = INSTRUCTIONS["tma.store"]


@dataclass(frozen=True, slots=True)
class Result:
    """The statement `stmt` copies the register tile `source` to `dst`, a part of a tensor, where `mask` holds.

    If `rest` holds, `dst` is outside of the tensor, and threads carry out `stmt`.
    """

    stmt: Copy | Accumulate
    source: Access
    dst: Access
    mask: Expr | None
    rest: Expr | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.stmt.shape

    @property
    def span(self) -> Span:
        return self.stmt.span

    @property
    def by_threads(self) -> str:
        """The remark for a result that the copy engine cannot store or update."""
        what = "stored" if isinstance(self.stmt, Copy) else "updated"
        return f"{self.dst.obj} is {what} by the threads, not by the copy engine"

    def sent(self, to: Access, panel: Access, dtype: DType, shape: tuple[int, ...], mask: Expr | None) -> Stmt:
        """Return the bulk store of the part in `panel`, a place in shared memory. Raises `Unfit` for unknown updates.
        """
        if isinstance(self.stmt, Copy):
            return BulkCopy(to, panel, shape, mask, instr=STORE.name, span=self.span)
        row = next((r for r in REDUCES.values() if r.op == self.stmt.op and dtype in r.dtypes), None)
        if row is None:
            raise Unfit(f"the copy engine has no atomic {self.stmt.op} of {dtype}", self.span, "use another type")
        value = Elem(panel.obj, panel.index, dtype)
        return replace(self.stmt, dst=to, value=value, shape=shape, mask=mask, instr=row.name)


def result_of(kernel: Kernel, stmt: Stmt) -> Result | None:
    """Return `stmt` as a result if it copies a register tile of at least two dimensions to a tensor, else None.

    Tiles of one dimension are too small for a panel.
    """
    match stmt:
        case Copy(src=source, dst=dst, instr=None):
            pass
        case Accumulate(value=Elem() as value, dst=dst, instr=None):
            source = Access(value.obj, value.index)
        case _:
            return None
    tile, tensor = kernel.object(source.obj), kernel.object(dst.obj)
    if len(stmt.shape) < 2 or not isinstance(tile, Fragment) or not isinstance(tensor, Tensor):
        return None
    return (_ended(kernel, stmt, source) if isinstance(stmt, Copy) else None) or Result(stmt, source, dst, stmt.mask)


def _ended(kernel: Kernel, stmt: Copy, source: Access) -> Result | None:
    """Return a store whose mask ends one dimension of the tile."""
    tensor = kernel.object(stmt.dst.obj)
    assert isinstance(tensor, Tensor)
    index = tuple(_spelled(kernel, e) for e in stmt.dst.index)
    conditions = [_spelled(kernel, e) for e in conjuncts(stmt.mask)]
    bounds = [op("lt", place, size) for place, size in zip(index, tensor.shape, strict=True)]
    ends = [c for c in conditions if _ends(c, index, stmt.shape) and c not in bounds]
    if len(ends) != 1:
        return None
    place, end = ends[0].args
    number = index.index(place)
    axis, start = next((a, s) for a in range(len(stmt.shape)) if (s := start_of(place, a)) is not None)
    size = tensor.shape[number]
    whole = op("le", op("add", start, Const(stmt.shape[axis], start.dtype)), end)
    there = op("add", op("where", whole, start, size), Coord(axis))
    index = (*index[:number], there, *index[number + 1 :])
    mask = conjunction([op("lt", there, size) if c is ends[0] else c for c in conditions])
    return Result(stmt, source, Access(stmt.dst.obj, index), mask, op("not", whole))


def _ends(condition: Expr, index: tuple[Expr, ...], shape: tuple[int, ...]) -> TypeGuard[Op]:
    """Return True if a condition ends a dimension of a tile that begins at one place."""
    match condition:
        case Op(op="lt", args=(place, end)):
            return place in index and one_place(end) and any(is_shifted(place, a) for a in range(len(shape)))
        case _:
            return False


def _spelled(kernel: Kernel, expr: Expr) -> Expr:
    """Replace the elements of tiles that one statement computes, from numbers that are loaded once, by their values."""

    def change(e: Expr) -> Expr | None:
        if not isinstance(e, Elem) or not e.index:
            return None
        match _writers(kernel, e.obj):
            case [Map(dst=dst, value=value, shape=shape)] if dst.index == coords(len(shape)):
                once = all(not x.index and len(_writers(kernel, x.obj)) == 1 for x in elements(value))
                return substitute_coords(value, e.index) if once else None
            case _:
                return None

    return rewrite(expr, change)


def _writers(kernel: Kernel, name: str) -> list[Stmt]:
    own = (s for s in walk(kernel.body) if name in touches(s))
    return [s for s in own if any(r.obj == name and r.mode is not Mode.READ for r in relations(s))]


def in_tiles(kernel: Kernel) -> Kernel:
    """Return the kernel in which every value that updates a tensor is first computed into a register tile."""
    fresh = Fresh(kernel)

    def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
        if not isinstance(stmt, Accumulate) or isinstance(stmt.value, Elem) or len(stmt.shape) < 2:
            return None
        tensor = kernel.object(stmt.dst.obj)
        if not isinstance(tensor, Tensor):
            return None
        place = coords(len(stmt.shape))
        name = fresh.fragment(f"{tensor.name}_part", tensor.dtype, stmt.shape)
        update = replace(stmt, value=Elem(name, place, tensor.dtype))
        return Map(Access(name, place), stmt.value, stmt.shape, span=stmt.span), update

    return fresh.finish(rewrite_body(kernel.body, change))


def engine_problems(stmt: Stmt, kernel: Kernel) -> Iterator[Problem]:
    """Yield the problems of a store or an update by the copy engine."""
    if isinstance(stmt, BulkCopy):
        yield from bulk_copy(stmt, STORE, kernel)
    elif isinstance(stmt, Accumulate) and stmt.instr in REDUCES:
        yield from bulk_reduce(stmt, REDUCES[stmt.instr or ""], kernel)
