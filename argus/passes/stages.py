"""Turn `Stage` into copies: asynchronous and directly into shared memory if target and alignment allow it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from argus.ir.affine import Facts
from argus.ir.expr import Const, Elem, Expr, coords, elements
from argus.ir.instruction import INSTRUCTIONS, Order
from argus.ir.nodes import (
    Access,
    CommitGroup,
    Kernel,
    Share,
    Shared,
    Stage,
    Stmt,
    Tensor,
    ThreadCopy,
    WaitCounts,
    WaitGroup,
)
from argus.ir.waves import LARGEST_VM, loads_to_lds
from argus.layout import FragmentLayout, Layout, Mode
from argus.layout.core import flat_modes
from argus.layout.fragment import cut
from argus.passes.layouts import default
from argus.passes.moves import contiguous_axis, lane_order, moves, target_of, vector_width
from argus.passes.report import Unfit
from argus.source import Span


def padded(stage: Stage, kernel: Kernel) -> Stage:
    """Return `stage` with zero as the value of masked elements, unless it names another value."""
    if stage.mask is None or stage.other is not None:
        return stage
    dtype = kernel.object(stage.dst).dtype
    return replace(stage, other=Const(0.0 if dtype.is_float else 0, dtype))


def plain_copy(stage: Stage, place: Access) -> ThreadCopy:
    """Return the synchronous copy of `stage` into `place`."""
    return ThreadCopy(place, stage.src, stage.shape, stage.mask, stage.other, span=stage.span)


def shared_copy(share: Share) -> ThreadCopy:
    """Return the copy of a register tile into its shared tile."""
    return ThreadCopy(Access(share.dst, coords(len(share.shape))), share.src, share.shape, span=share.span)


def asynchronous_copy(kernel: Kernel, stage: Stage, place: Access, known: Facts) -> ThreadCopy | None:
    """Return `stage` as asynchronous copies of at least 4 bytes into `place`, or None if such copies cannot be made."""
    try:
        return direct_copy(kernel, stage, place, known)
    except Unfit:
        return None


def direct_copy(kernel: Kernel, stage: Stage, place: Access, known: Facts) -> ThreadCopy:
    """Return the result of `asynchronous_copy`, or raise `Unfit` with the obstacle if it is None.

    Asynchronous copies fill masked elements with zeros only. They need consecutive aligned elements on both sides, and
    a mask that is the same for all elements of one copy. Loads to LDS (AMD) take 4 bytes of each lane, and the lanes of
    a wave fill consecutive bytes.
    """
    names = moves(target_of(kernel))
    source = kernel.object(stage.src.obj)
    if names.asynchronous is None or not isinstance(source, Tensor):
        raise Unfit("there is no asynchronous copy for it", stage.span, "leave it so")
    row, name = INSTRUCTIONS[names.asynchronous], source.name
    if stage.mask is not None and (stage.other is None or stage.other.value != 0):
        raise Unfit(f"{row.name} fills masked elements with zeros only", stage.span, "use other=0")
    axis = contiguous_axis(source, stage.src.index)
    vector = names.asynchronous_bytes // source.dtype.bytes
    if axis is None or vector == 0:
        raise Unfit(f"its elements are not consecutive in {name}", stage.span, f"stage a plain slice of {name}")
    order = (axis, *(d for d in reversed(range(len(stage.shape))) if d != axis))
    layout = default(stage.shape, kernel.num_threads, order, vector)
    if row.in_lane_order:
        layout = _by_address(kernel, stage, vector) or layout
    copy = replace(plain_copy(stage, place), layout=layout)
    width = vector_width(kernel, copy, layout, row, known)
    if width == 0:
        why = f"{row.name} moves {min(row.vector_bytes)} bytes or more, and {name} is not known to be aligned for that"
        remedy = f"state requires(size % n == 0) for the contiguous dimension of {name}"
        raise Unfit(why, stage.span, remedy)
    if row.in_lane_order and not lane_order(kernel, copy, layout, width):
        why = f"the lanes of a wave would not fill consecutive bytes of {stage.dst}"
        remedy = f"let the tile be a multiple of {4 * kernel.num_threads} bytes, 4 for every thread"
        raise Unfit(why, stage.span, remedy)
    return replace(copy, instr=row.name, vector=width)


def _by_address(kernel: Kernel, stage: Stage, vector: int) -> FragmentLayout | None:
    """Return the layout in which `vector` elements, then lanes, then waves, then the remaining registers follow the
    addresses of the tile."""
    tile = kernel.object(stage.dst)
    assert isinstance(tile, Shared)
    if not isinstance(tile.layout, Layout):
        return None
    rank = len(stage.shape)
    digits = []
    for dim in range(rank):
        weight = 1
        for extent, stride in flat_modes(tile.layout[dim - rank]):
            digits.append((stride, Mode(extent, dim, weight)))
            weight *= extent
    modes = tuple(mode for _, mode in sorted(digits, key=lambda d: d[0]))
    size, threads = prod(stage.shape), kernel.num_threads
    if size % (vector * threads):
        return None
    try:
        parts = [cut(modes, *part) for part in ((1, vector), (vector, vector * threads), (vector * threads, size))]
    except ValueError:  # The threads do not divide the tile's dimensions.
        return None
    return FragmentLayout(stage.shape, parts[1], (*parts[0], *parts[2])).simplify()


def committed(kernel: Kernel, span: Span) -> tuple[Stmt, ...]:
    """Return the statement that ends a group of asynchronous copies. Targets that count single loads need no such
    statement."""
    return () if _counts(kernel) else (CommitGroup(span=span),)


def awaited(kernel: Kernel, copies: Sequence[ThreadCopy], groups: int, span: Span) -> Stmt:
    """Return a wait for all asynchronous copies except those of the last `groups` groups, each of which consists of
    `copies`."""
    if _counts(kernel):
        return WaitCounts(min(groups * sum(map(loads_to_lds, copies)), LARGEST_VM), span=span)
    return WaitGroup(groups, span=span)


def _counts(kernel: Kernel) -> bool:
    name = moves(target_of(kernel)).asynchronous
    return name is not None and INSTRUCTIONS[name].order is Order.VMCNT


def reads(stage: Stage) -> tuple[Elem, ...]:
    """Return the registers that the indices and the mask of `stage` read."""
    exprs: tuple[Expr, ...] = (*stage.src.index, *(() if stage.mask is None else (stage.mask,)))
    return tuple(e for expr in exprs for e in elements(expr))
