"""Add hints on gfx942 that say which instructions a wave issues between the products of an iteration.

    barrier                                 ->  ...
    next = a[...]                               sched_group_barrier    most reads of LDS
    copy at = sa[..]; mma acc += ...            sched_group_barrier    a product, a load of the next tile; and again
    ...                                         sched_group_barrier    some products, a read of LDS; and again
    sa[...] = next                              sched_group_barrier    a product, a store to LDS; and again

Without hints, the compiler reads the operands of each step directly before its products, and waits for them. The hints
are placed at the end of an iteration without branches. They change no value and no order.

Where sums are scaled and added to others, vector work stands between the products already. There the loads of the next
tile move behind the first products, which then need not wait for their addresses, and stay there. If waves of a block
share a SIMD, one that comes to its last sums lets the products of the others go first.

    barrier; next = a[...]                  ->  s_setprio 1;  barrier
    copy at = sa[..]; mma sums += ...           copy at = sa[..]; mma sums += ...
    ...                                         next = a[...];  sched_barrier
    accumulate acc += sums * scale              ...
    ...                                         accumulate acc += sums * scale;  sched_barrier
    accumulate more += others * scale           ...
    ...                                         s_setprio 0;  accumulate more += others * scale
    scale = s[...]                              sa[...] = next
    sa[...] = next                              scale = s[...]
                                                sched_group_barrier    the reads of LDS before the first sums
"""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile
from math import prod
from typing import TypeGuard

from argus.ir.expr import coords, elements
from argus.ir.instruction import MMA
from argus.ir.nodes import Accumulate, AssertTags, Barrier, For, Kernel, Map, Mma, Shared, Stmt, Tag, Tensor, ThreadCopy
from argus.ir.ordering import SchedBarrier, SchedGroup, WavePriority
from argus.ir.visit import rewrite_body
from argus.passes.moves import target_of

_PRODUCT, _LOAD, _READ, _WRITE = 0x8, 0x20, 0x100, 0x200
_LATE = 4
"""One of `_LATE` reads is issued later, between products, because the results of all reads would take too many
registers."""
_FREE = 0x4 | 0x80 | 0x100 | 0x200
"""Scalar instructions and accesses to LDS."""
_MEMORY = 0x10 | 0x20
"""Loads and stores, which go past the place where the loads of the next tile stay."""
_SIMDS = 4
"""Of a compute unit, which share the waves of a block."""
_STRAIGHT = ThreadCopy | Map | Mma | Barrier | Tag | AssertTags


def interleave(kernel: Kernel) -> Kernel:
    """Append hints to every loop that has no branches and enough products."""
    if target_of(kernel).vendor != "amd":
        return kernel

    def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
        if not isinstance(stmt, For):
            return None
        sums = [s for s in stmt.body if _adds_products(stmt, s)]
        if not all(isinstance(s, _STRAIGHT) or s in sums for s in stmt.body):
            return None
        if sums:
            return (replace(stmt, body=_scaled(kernel, stmt)),)
        return (replace(stmt, body=(*stmt.body, *_hints(kernel, stmt))),)

    return replace(kernel, body=rewrite_body(kernel.body, change))


def _adds_products(loop: For, stmt: Stmt) -> TypeGuard[Accumulate]:
    """Return True if a statement adds to a tile what products of the iteration gave, times something."""
    if not isinstance(stmt, Accumulate) or stmt.scope != "thread" or stmt.dst.index != coords(len(stmt.shape)):
        return False
    made = {s.d.obj for s in loop.body if isinstance(s, Mma)}
    return any(e.obj in made for e in elements(stmt.value))


def _scaled(kernel: Kernel, loop: For) -> tuple[Stmt, ...]:
    """Return the body of a loop of scaled sums with its loads behind the first products, and hints."""
    body = loop.body
    loads = tuple(takewhile(lambda s: _loads(kernel, s), body[1:])) if isinstance(body[0], Barrier) else ()
    products = [place for place, s in enumerate(body) if isinstance(s, Mma)]
    sums = [place for place, s in enumerate(body) if isinstance(s, Accumulate)]
    if not loads or products[0] > sums[0]:
        return body
    stay = SchedBarrier(_FREE, span=loop.span)
    shared = kernel.num_warps > _SIMDS
    first, last = ([WavePriority(level, span=loop.span)] if shared else [] for level in (1, 0))
    reads_and_products = body[1 + len(loads) : products[0] + 1]
    result = [*first, body[0], *reads_and_products, *loads, replace(stay, mask=_FREE | _MEMORY) if shared else stay]
    for place in range(products[0] + 1, sums[-1] + 1):
        result += last if place == sums[-1] else []
        result += [body[place], stay] if place in sums[:-1] else [body[place]]
    result += sorted(body[sums[-1] + 1 :], key=lambda s: not _deposits(kernel, s))
    copies = [s for s in body[: sums[0]] if isinstance(s, ThreadCopy)]
    reads = sum(-(-_accesses(s) // 2) for s in copies if isinstance(kernel.object(s.src.obj), Shared))
    return (*result, SchedGroup(_READ, reads, span=loop.span)) if reads else tuple(result)


def _deposits(kernel: Kernel, stmt: Stmt) -> bool:
    return isinstance(stmt, ThreadCopy) and isinstance(kernel.object(stmt.dst.obj), Shared)


def _loads(kernel: Kernel, stmt: Stmt) -> bool:
    return isinstance(stmt, ThreadCopy) and isinstance(kernel.object(stmt.src.obj), Tensor)


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
