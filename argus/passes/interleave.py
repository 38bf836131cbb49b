"""Add hints on gfx942 that say which instructions a wave issues between the products of an iteration.

    barrier                                 ->  ...
    next = a[...]                               sched_group_barrier    most reads of LDS
    copy at = sa[..]; mma acc += ...            sched_group_barrier    a product, a load of the next tile; and again
    ...                                         sched_group_barrier    some products, a read of LDS; and again
    sa[...] = next                              sched_group_barrier    a product, a store to LDS; and again

Without hints, the compiler reads the operands of each step directly before its products, and waits for them. The hints
are placed at the end of an iteration without branches. They change no value and no order.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from argus.ir.instruction import MMA
from argus.ir.nodes import AssertTags, Barrier, For, Kernel, Map, Mma, Shared, Stmt, Tag, Tensor, ThreadCopy
from argus.ir.ordering import SchedGroup
from argus.ir.visit import rewrite_body
from argus.passes.moves import target_of

_PRODUCT, _LOAD, _READ, _WRITE = 0x8, 0x20, 0x100, 0x200
_LATE = 4
"""One of `_LATE` reads is issued later, between products, because the results of all reads would take too many
registers."""
_STRAIGHT = ThreadCopy | Map | Mma | Barrier | Tag | AssertTags


def interleave(kernel: Kernel) -> Kernel:
    """Append hints to every loop that has no branches and enough products."""
    if target_of(kernel).vendor != "amd":
        return kernel

    def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
        if not isinstance(stmt, For) or not all(isinstance(s, _STRAIGHT) for s in stmt.body):
            return None
        return (replace(stmt, body=(*stmt.body, *_hints(kernel, stmt))),)

    return replace(kernel, body=rewrite_body(kernel.body, change))


def _hints(kernel: Kernel, loop: For) -> tuple[SchedGroup, ...]:
    """Return the hints of an iteration, or () if it has too few products for the accesses between them."""
    copies = [s for s in loop.body if isinstance(s, ThreadCopy)]
    loads = sum(_accesses(s) for s in copies if isinstance(kernel.object(s.src.obj), Tensor))
    writes = sum(_accesses(s) for s in copies if isinstance(kernel.object(s.dst.obj), Shared))
    # Two reads of 8 bytes with the same base become one instruction.
    reads = sum(-(-_accesses(s) // 2) for s in copies if isinstance(kernel.object(s.src.obj), Shared))
    products = sum(_products(kernel, s) for s in loop.body if isinstance(s, Mma))
    late = reads // _LATE
    each = (products - loads - writes) // (late + 2)
    if not (loads and writes and late and each > 0):
        return ()
    rest = products - loads - writes - each * (late + 1)
    groups = [
        (_READ, reads - late), *((_PRODUCT, 1), (_LOAD, 1)) * loads, *((_PRODUCT, each), (_READ, 1)) * late,
        (_PRODUCT, each), *((_PRODUCT, 1), (_WRITE, 1)) * writes, (_PRODUCT, rest),
    ]  # fmt: skip
    return tuple(SchedGroup(mask, size, span=loop.span) for mask, size in groups)


def _accesses(copy: ThreadCopy) -> int:
    return 0 if copy.layout is None else copy.layout.num_values // copy.vector


def _products(kernel: Kernel, stmt: Mma) -> int:
    """Count the instructions that one wave issues for a product."""
    row = MMA[stmt.instr or ""]
    return prod(stmt.shape) // (prod(row.shape) * kernel.num_warps)
