"""Make the role whose threads load the tiles that the copy engine cannot load: tiles with any pitch, alignment or mask.

    stage at <- a[m0 + c0, k + c1]  ->  at_in0[c0, c1] <- a[m0 + c0, k + c1]        rows 0 to 31, in registers
                                        wait empty[i % S]
                                        at_in1[c0, c1] <- a[m0 + 32 + c0, k + c1]   rows 32 to 63
                                        at[i % S, c0, c1] <- at_in0[c0, c1]
                                        ...
                                        proxy fence; arrive full[i % S]

Each slice is loaded while the previous slice is stored, and the first slice while the buffer is still being read. The
number of loads in flight is limited by the registers that the computing role leaves. The tensor cores read data that
ordinary stores wrote, so every thread fences its stores before its warp arrives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from argus.ir.instruction import WGMMA
from argus.ir.instruction.limits import BUDGET_UNIT, registers_at_first
from argus.ir.nodes import Access, Kernel, MbarrierArrive, Mma, ProxyFence, Stage, Stmt, Tensor, ThreadCopy
from argus.ir.prefix import prefix
from argus.ir.visit import walk
from argus.layout import FragmentLayout
from argus.passes.fresh import Fresh, whole
from argus.passes.layouts import default
from argus.passes.moves import contiguous_axis, fast_axis
from argus.passes.report import Unfit
from argus.passes.specialise.rings import Ring, moved, ready
from argus.passes.stages import padded
from argus.source import Span

_REGISTER = 4  # bytes of a register
_WIDEST = 16  # bytes of one load
_ALIGNED = 8  # bytes: rows with a smaller alignment are loaded in the widest vectors and shifted into place
_SHIFTED = "ld.global.unaligned"
_ADDRESSES = 40  # registers of a loading thread besides those for loads in flight
_COMPUTING = 48  # registers of a computing thread besides its accumulators
_PRODUCT = 26  # registers of one product besides its accumulator
_MOST = 168  # registers of a loading thread: more loads in flight would not help


def budget(parts: Sequence[Kernel], loaders: int, idle: int, others: int, span: Span) -> int:
    """Return the registers of a loading thread: those that computing threads and idle warps leave.

    The `parts` are alike, so the first one determines the need of a computing thread. The `idle` warps take `others`
    registers. Raises `Unfit` if too few registers are left. ptxas places the operands of one product in the registers
    with which all threads of the block begin.
    """
    part, several = parts[0], sum(part.num_warps for part in parts)
    products = [s for s in walk(part.body) if isinstance(s, Mma)]
    sums = {s.d.obj: prod(s.shape[:2]) for s in products}
    computing = sum(sums.values()) // (part.num_warps * part.warp_size) + _COMPUTING
    warps = several + loaders + idle
    at_first = registers_at_first(warps * part.warp_size)
    free = warps * at_first - others - several * computing
    found = min(_MOST, free // loaders // BUDGET_UNIT * BUDGET_UNIT)
    widest = max(WGMMA[s.instr or ""].shape[1] for s in products)
    if found <= _ADDRESSES or at_first < widest // 2 + _PRODUCT:
        why = "the accumulators leave no registers to threads that would load what the copy engine cannot"
        raise Unfit(why, span, "use a smaller tile or fewer warps, or align the tensors to 16 bytes")
    return found


def load(fresh: Fresh, ring: Ring, loaders: int, registers: int) -> tuple[Stmt, ...]:
    """Return the statements of the loading threads for one turn of the ring: load each slice while the previous one is
    stored."""
    if not ring.by_threads:
        return ()
    kernel, threads = fresh.kernel, loaders * fresh.kernel.warp_size
    # Each slice gets half of the registers, because two slices are in flight.
    room = (registers - _ADDRESSES) // 2 * threads
    slices = [s for stage in ring.by_threads for s in _slices(fresh, padded(stage, kernel), ring, threads, room)]
    result: list[Stmt] = []
    for number, (fetch, _) in enumerate(slices):
        result.append(fetch)
        result += [slices[number - 1][1]] if number else ready(ring)
    return (*result, slices[-1][1], ProxyFence(span=ring.span), MbarrierArrive(ring.full, ring.place, span=ring.span))


def _slices(fresh: Fresh, stage: Stage, ring: Ring, threads: int, room: int) -> list[tuple[ThreadCopy, ThreadCopy]]:
    """Return, for each slice of a tile, its load and the copy that stores it. All loads together use at most `room`
    registers."""
    tensor = fresh.kernel.object(stage.src.obj)
    assert isinstance(tensor, Tensor)
    cut = _cut(tensor, stage, threads, room, shifted=tensor.alignment < _ALIGNED)
    shape, layout, rows = cut.layout.shape, cut.layout, stage.shape[0]
    result: list[tuple[ThreadCopy, ThreadCopy]] = []
    for start in range(0, rows, shape[0]):
        held_in = whole(fresh.fragment(f"{stage.dst}_in", tensor.dtype, shape, layout), len(shape))
        source = Access(stage.src.obj, tuple(moved(e, 0, start) for e in stage.src.index))
        mask = None if stage.mask is None else moved(stage.mask, 0, start)
        place = whole(stage.dst, len(shape))
        place = ring.within(Access(stage.dst, tuple(moved(e, 0, start) for e in place.index)))
        result.append(
            (
                ThreadCopy(held_in, source, shape, mask, stage.other, layout, cut.instr, span=stage.span),
                ThreadCopy(place, held_in, shape, layout=layout, span=stage.span),
            )
        )
    return result


@dataclass(frozen=True, slots=True)
class _Cut:
    """The layout of a tile's slices over threads, and the instruction that loads them, or None to leave it open."""

    layout: FragmentLayout
    instr: str | None


def _cut(tensor: Tensor, stage: Stage, threads: int, room: int, *, shifted: bool) -> _Cut:
    """Cut a tile into slices of at most `room` registers.

    Vectors are `shifted` into place if threads can share rows of whole vectors, and if only the end of the tensor's
    rows cuts a vector.
    """
    unit, axis = tensor.dtype.bytes, contiguous_axis(tensor, stage.src.index)
    vector = (_WIDEST if shifted else min(_WIDEST, max(tensor.alignment, unit))) // unit
    # Registers for one element: a shifted vector is made from two vectors.
    held = (2 if shifted else 1) * max(vector * unit, _REGISTER) / _REGISTER / vector
    rows, count = stage.shape[0], 1
    while rows % (2 * count) == 0 and prod(stage.shape) * held > room * count:
        count *= 2
    layout = _layout(axis, (rows // count, *stage.shape[1:]), threads, vector)
    if not shifted:
        return _Cut(layout, None)
    zeros = stage.mask is None or (stage.other is not None and stage.other.value == 0)
    fits = axis is not None and prefix(stage.mask, axis) is not None and fast_axis(layout, vector) == axis
    return _Cut(layout, _SHIFTED) if zeros and fits else _cut(tensor, stage, threads, room, shifted=False)


def _layout(axis: int | None, shape: tuple[int, ...], threads: int, vector: int) -> FragmentLayout:
    """Return a layout in which adjacent threads load adjacent vectors."""
    order = tuple(reversed(range(len(shape))))
    if axis is None:
        return default(shape, threads, order)
    return default(shape, threads, (axis, *(d for d in order if d != axis)), vector)
