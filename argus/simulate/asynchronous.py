"""Asynchronous copies (cp.async): the data arrives as late as the rules allow, at the wait that covers its group.

Loads to LDS (AMD) are counted one by one instead of in groups. A wait that leaves n loads open waits for all loads but
the last n. The loads of one statement arrive together: at the first wait that waits for the last of them.

Only the waiting thread knows that the copy is complete. The arrival therefore counts as a write by that thread at the
time of its wait, and other threads need a barrier after it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from argus.simulate import races
from argus.simulate.flight import Landing
from argus.simulate.machine import Block
from argus.simulate.numeric import Array
from argus.simulate.order import NOBODY, Touch
from argus.simulate.provenance import hop
from argus.simulate.step import AccessCells, Step
from argus.simulate.tagset import Tags


def issue(
    block: Block, source: AccessCells, target: AccessCells, values: Array, tags: Tags | None, step: Step, loads: int = 0
) -> None:
    """Start the copy. It may write at any time from now on, so earlier accesses must be ordered before it.

    `loads` is the number of AMD instructions, each of which counts as a group. Nothing orders their writes with
    accesses of any lane.
    """
    memory, at = target.memory, np.flatnonzero(target.ok)
    cell, thread = target.cell[at], step.thread[at]
    if block.run.checks and memory.order is not None:
        grain = memory.grains(cell)
        holder = np.repeat(thread, len(grain) // max(1, len(thread)))
        races.pending(block, memory, Touch.WRITE, grain, holder, step)
        writer = np.full_like(holder, NOBODY) if loads else holder
        found = memory.order.check(Touch.WRITE, grain, writer, block.now(step, memory))
        if found is not None:
            races.report(block, memory, Touch.WRITE, grain, holder, found, step)
        memory.order.pending_write[grain] = step.event
    group = block.groups[thread]
    if loads:
        block.groups[step.frame.threads] += loads
        group = block.groups[thread] - 1
    block.flying.append(
        Landing(
            step.event,
            memory,
            source.memory,
            thread,
            group,
            cell,
            values[at],
            tags.take(at) if tags is not None else None,
            np.where(source.ok[at], source.cell[at], -1),
        )
    )


def wait(block: Block, pending: int, step: Step) -> None:
    """Complete the copies of the executing threads' groups, except for the last `pending` groups of each thread."""
    due = np.zeros(len(block.groups), dtype=np.int64)
    due[step.frame.threads] = block.groups[step.frame.threads] - pending
    flying: list[Landing] = []
    for landing in block.flying:
        done = landing.group < due[landing.thread]
        if done.any():
            _land(block, landing, np.flatnonzero(done), step)
        if not done.all():
            flying.append(_rest(landing, np.flatnonzero(~done)))
    block.flying[:] = flying


def _land(block: Block, landing: Landing, at: Array, step: Step) -> None:
    memory, cell, thread = landing.memory, landing.cell[at], landing.thread[at]
    source = landing.source_cell[at]
    if memory.order is not None:
        grain = memory.grains(cell)
        memory.order.pending_write[grain] = NOBODY
        # Missing order was reported when the copy was issued, or when a thread touched a pending cell.
        now = replace(block.now(step, memory), event=landing.event)
        memory.order.track(Touch.WRITE, now.team).touch(grain, np.repeat(thread, len(grain) // len(thread)), now, False)
    order = landing.source.order
    if order is not None and len(order.pending_read):
        order.pending_read[source[source >= 0]] = NOBODY
    memory.store(cell, landing.values[at])
    if landing.tags is not None and memory.tags is not None:
        memory.tags.put(cell, landing.tags.take(at))
        hop(block, landing.event, memory.name, cell, ((landing.source.name, source),))


def _rest(landing: Landing, at: Array) -> Landing:
    return replace(
        landing,
        thread=landing.thread[at],
        group=landing.group[at],
        cell=landing.cell[at],
        values=landing.values[at],
        tags=landing.tags.take(at) if landing.tags is not None else None,
        source_cell=landing.source_cell[at],
    )
