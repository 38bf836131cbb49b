"""Statements that copy a register tile to a tensor, and the stores or updates by which the copy engine replaces them.

copy c[m0 + c0, n0 + c1] <- t[c0, c1] -> ... via tma.store accumulate c[m0 + c0, n0 + c1] add t[c0, c1] -> ... via
tma.reduce.add
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from argus.ir.expr import Elem, Expr, coords
from argus.ir.instruction import INSTRUCTIONS, REDUCES
from argus.ir.nodes import Access, Accumulate, BulkCopy, Copy, Fragment, Kernel, Map, Stmt, Tensor
from argus.ir.statement import Problem
from argus.ir.types import DType
from argus.ir.visit import rewrite_body
from argus.ir.wellformed.engine import bulk_copy, bulk_reduce
from argus.passes.fresh import Fresh
from argus.passes.report import Unfit
from argus.source import Span

STORE = INSTRUCTIONS["tma.store"]


@dataclass(frozen=True, slots=True)
class Result:
    """The statement `stmt` copies the register tile `source` to a tensor."""

    stmt: Copy | Accumulate
    source: Access

    @property
    def dst(self) -> Access:
        return self.stmt.dst

    @property
    def shape(self) -> tuple[int, ...]:
        return self.stmt.shape

    @property
    def mask(self) -> Expr | None:
        return self.stmt.mask

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
    whole = len(stmt.shape) > 1 and isinstance(tile, Fragment) and isinstance(tensor, Tensor)
    return Result(stmt, source) if whole else None


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
