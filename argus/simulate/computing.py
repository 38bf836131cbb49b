"""Execute copies, maps and accumulations, all threads of a group at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from argus.ir.instruction import INSTRUCTIONS, Mechanism
from argus.ir.nodes import Accumulate, Copy, Map
from argus.ir.rescaling import rescaled
from argus.ir.waves import loads_to_lds
from argus.simulate import asynchronous, checked, tagging, vectors
from argus.simulate.evaluate import Overflow
from argus.simulate.machine import Block
from argus.simulate.memory import GlobalTensor, Registers
from argus.simulate.numeric import Array, reduced, round_to
from argus.simulate.order import Touch
from argus.simulate.step import AccessCells, Step
from argus.simulate.terms import of_place


def copy(block: Block, stmt: Copy, step: Step) -> None:
    """Carry out `dst = src` under `mask`; where the mask is false, `dst` becomes `other`."""
    row = INSTRUCTIONS[stmt.instr] if stmt.instr is not None else None
    dst = block.memories[stmt.dst.obj]
    collective = row is not None and row.collective
    later = row is not None and row.mechanism is Mechanism.ASYNCHRONOUS
    if row is not None and (collective or row.in_lane_order):
        block.together(step, row.name)
    on = step.on
    mask = checked.value(block, stmt.mask, step, on) if stmt.mask is not None else None
    inside = on if mask is None else on & mask
    source = checked.locate(block, stmt.src.obj, stmt.src.index, step, inside)
    fills = mask is not None and stmt.other is not None and not isinstance(dst, GlobalTensor)
    target = checked.locate(block, stmt.dst.obj, stmt.dst.index, step, on if fills else inside)
    if not isinstance(dst, Registers) and not collective:
        primary = step.domain.primary
        source, target = replace(source, ok=source.ok & primary), replace(target, ok=target.ok & primary)
    if block.run.checks:
        vectors.check(block, row, stmt.vector, source, target, step)
    values = checked.read(block, source, step, warp=collective, asynchronous=later)
    if fills and stmt.other is not None:
        other = round_to(np.asarray(stmt.other.value), dst.dtype)
        values = np.where(inside, values, other)
    checked.simultaneous(block, target, values, step)
    tags = tagging.copied(block, source, step, inside if fills else None)
    if later:
        asynchronous.issue(block, source, target, values, tags, step, loads_to_lds(stmt))
        return
    checked.write(block, target, values, step, warp=collective)
    tagging.store(block, target, tags, step, (source,))


def map_(block: Block, stmt: Map, step: Step) -> None:
    """Carry out `dst = value`, elementwise into registers."""
    warp = stmt.scope == "warp"
    if warp:
        block.together(step, "a shuffle")
    values = checked.value(block, stmt.value, step, step.on, _overflow(block, stmt), warp)
    target = checked.locate(block, stmt.dst.obj, stmt.dst.index, step, step.on)
    kept = rescaled(stmt, block.run.accumulated)
    tags, sources = tagging.computed(block, kept or stmt.value, step, step.on, warp)
    if tags is not None and kept is not None and kept.obj == stmt.dst.obj:
        tags = of_place(block, sources[0], step)  # The statement rescales an accumulator, which keeps its tags.
    checked.simultaneous(block, target, values, step)
    checked.write(block, target, values, step)
    tagging.store(block, target, tags, step, sources)


def _overflow(block: Block, stmt: Map | Accumulate) -> Overflow:
    """Return the rule for overflow: integers from which places are computed must be exact, and other data wrap."""
    places = stmt.dst.obj in block.run.indices and not stmt.value.dtype.is_float
    return Overflow.REPORT if places else Overflow.WRAP


def accumulate(block: Block, stmt: Accumulate, step: Step) -> None:
    """Carry out `dst = dst op value` over the domain."""
    dst = block.memories[stmt.dst.obj]
    warp = stmt.scope == "warp"
    if warp:
        block.together(step, "a reduction over a warp")
    on = step.on
    if stmt.mask is not None:
        on = on & checked.value(block, stmt.mask, step, on)
    values = round_to(checked.value(block, stmt.value, step, on, _overflow(block, stmt)), dst.dtype)
    tags, sources = tagging.computed(block, stmt.value, step, on, warp=False)
    if isinstance(dst, GlobalTensor):
        target = checked.locate(block, stmt.dst.obj, stmt.dst.index, step, on & step.domain.primary)
        at = np.flatnonzero(target.ok)
        cells, group = np.unique(target.cell[at], return_inverse=True)
        checked.atomic(block, target, step)
    elif warp:
        target = checked.locate(block, stmt.dst.obj, stmt.dst.index, step, on, warp=True)
        at, cells, group = _over_warps(block, target, step)
    else:
        target = checked.locate(block, stmt.dst.obj, stmt.dst.index, step, on)
        at = np.flatnonzero(target.ok)
        cells, group = np.unique(target.cell[at], return_inverse=True)
        checked.initialised(block, dst, cells, step, Touch.ACCUMULATE)
    before = dst.load(cells)
    dst.store(cells, reduced(before, values[at], group, stmt.op, dst.dtype))
    tagging.accumulated(block, stmt, dst, cells, before, tags, values, at, group, step, sources)


def _over_warps(block: Block, target: AccessCells, step: Step) -> tuple[Array, Array, Array]:
    """Return the elements that count (one holder per warp), the registers that get a warp's total, and their groups.

    Contributions are repeated for every register that receives them: (element, cell, group of the cell).
    """
    memory = target.memory
    assert isinstance(memory, Registers) and step.domain.layout is not None
    size = block.run.kernel.warp_size
    warp = step.domain.thread // size
    element = step.domain.layout.linear().reshape(-1)
    ok = np.flatnonzero(target.ok)
    _, first = np.unique(warp[ok] * step.domain.layout.size + element[ok], return_index=True)
    at = ok[np.sort(first)]
    # The registers of each warp that hold the cell that an element goes to.
    total = memory.holders.by_warp[0]
    registers = memory.holders.by_warp[1]
    linear = memory.layout.linear().reshape(-1)
    key = warp[at] * memory.holders.size + linear[target.cell[at]]
    low, high = np.searchsorted(total, key, "left"), np.searchsorted(total, key, "right")
    copies = high - low
    start = np.repeat(low - np.cumsum(copies) + copies, copies)
    receiver = registers[start + np.arange(int(copies.sum()))]
    checked.initialised(block, memory, np.unique(receiver), step, Touch.ACCUMULATE)
    cells, group = np.unique(receiver, return_inverse=True)
    return np.repeat(at, copies), cells, group
