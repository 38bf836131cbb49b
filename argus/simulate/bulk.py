"""Bulk copies (TMA): a box of a tensor arrives at any time after the issue, and an mbarrier counts its bytes.

The copy engine is an agent of its own. It may write from the issue on, so all earlier accesses must be ordered before
the issue. Threads know its writes after a wait for the phase that counts the bytes.
"""

from __future__ import annotations

from math import prod

import numpy as np

from argus.ir.nodes import Copy, Signal
from argus.simulate import checked, mbarrier, races, tagging
from argus.simulate.flight import Bulk
from argus.simulate.log import Ordered
from argus.simulate.machine import Block
from argus.simulate.memory import SharedTile
from argus.simulate.order import Touch
from argus.simulate.provenance import hop
from argus.simulate.step import Frame


def issue(block: Block, stmt: Copy, signal: Signal, frame: Frame) -> None:
    """Start the copy by thread 0 of the team. All bytes of the box are counted; elements outside the tensor are
    zero."""
    if not frame.active[0]:
        return
    step = block.whole(stmt, frame, stmt.shape)
    inside = step.on if stmt.mask is None else step.on & checked.value(block, stmt.mask, step, step.on)
    source = checked.locate(block, stmt.src.obj, stmt.src.index, step, inside)
    target = checked.locate(block, stmt.dst.obj, stmt.dst.index, step, step.on)
    barrier = mbarrier.at(block, signal.barrier, signal.index, step)
    phase = int(frame.team.clock.known[barrier.component])
    barrier.filled = (step, phase + 1)
    block.run.log.steps.append(Ordered(step.event, "issue", barrier.label, phase + 1))
    values = checked.read(block, source, step)
    tags = tagging.copied(block, source, step, source.ok)
    at = np.flatnonzero(target.ok)
    thread, memory = frame.team.first, target.memory
    assert isinstance(memory, SharedTile)
    if block.run.checks:
        order = source.memory.order
        if order is not None:
            cells = races.asynchronous(block, source.memory, Touch.READ, source.cell[source.ok], step, True)
            now = block.now(step, source.memory)
            order.bulk_track(Touch.READ).touch(cells, thread, now, barrier.component, phase + 1)
        cells = races.asynchronous(block, memory, Touch.WRITE, target.cell[at], step, True)
        now = block.now(step, memory)
        memory.order.bulk_track(Touch.WRITE).touch(cells, thread, now, barrier.component, phase + 1)
    transfer = Bulk(
        step,
        memory,
        source.memory,
        target.cell[at],
        values[at],
        tags.take(at) if tags is not None else None,
        np.where(source.ok[at], source.cell[at], -1),
        barrier,
        phase,
        prod(stmt.shape) * memory.dtype.bytes,
        frame.team.clock.ended(),
    )
    if block.early:
        land(block, transfer)
    else:
        block.bulk.append(transfer)


def land(block: Block, transfer: Bulk) -> None:
    """Deliver the data, then count its bytes."""
    memory, step, barrier = transfer.memory, transfer.step, transfer.barrier
    block.run.log.steps.append(Ordered(step.event, "complete", barrier.label, transfer.phase + 1, True))
    memory.store(transfer.cell, transfer.values)
    if transfer.tags is not None and memory.tags is not None:
        memory.tags.put(transfer.cell, transfer.tags)
        hop(block, step.event, memory.name, transfer.cell, ((transfer.source.name, transfer.source_cell),))
    wrong = barrier.phase != transfer.phase
    barrier.bytes -= transfer.nbytes
    if wrong or (barrier.missing == 0 and barrier.bytes < 0):
        text = (
            f"the {transfer.nbytes} bytes of this copy are not among those that phase {transfer.phase + 1}"
            f" of {barrier.label} was told to expect"
        )
        mbarrier.problem(block, step, barrier, "phase-overrun", text)
    np.maximum(barrier.clock.over, transfer.after, out=barrier.clock.over)
    barrier.complete()
