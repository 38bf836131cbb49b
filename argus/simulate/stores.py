"""Bulk stores and reductions (TMA): the copy engine reads a box of shared memory and writes or updates a tensor.

The engine reads its whole box, also the elements that lie outside of the tensor and are not written. It reads at any
time between the issue and a wait that covers the store's group. That wait must come before the end of the block. The
engine writes between the read and the first such wait that is not for reads alone, at the latest at the end of the
block. Updates are made element by element. Only the issuing thread knows of the wait. Other threads learn of it in the
same way as of other actions of this thread.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from argus.ir.expr import Elem
from argus.ir.nodes import Access, Accumulate, BulkWait, Copy
from argus.simulate import checked, races, tagging
from argus.simulate.flight import Store
from argus.simulate.log import Ordered
from argus.simulate.machine import Block
from argus.simulate.memory import GlobalTensor
from argus.simulate.numeric import Array, reduced
from argus.simulate.order import Touch
from argus.simulate.provenance import hop
from argus.simulate.step import Frame


def issue(block: Block, stmt: Copy | Accumulate, frame: Frame) -> None:
    """Start the store of the elements inside the tensor, by thread 0 of the team."""
    if not frame.active[0]:
        return
    origin = stmt.src if isinstance(stmt, Copy) else stmt.value
    assert isinstance(origin, Access | Elem)
    step = block.whole(stmt, frame, stmt.shape)
    inside = step.on if stmt.mask is None else step.on & checked.value(block, stmt.mask, step, step.on)
    source = checked.locate(block, origin.obj, origin.index, step, inside)
    target = checked.locate(block, stmt.dst.obj, stmt.dst.index, step, inside)
    at, read = np.flatnonzero(source.ok & target.ok), np.flatnonzero(source.ok)
    store = Store(step, stmt, source, target, at, read)
    block.run.log.steps.append(Ordered(step.event, "issue"))
    if block.run.checks:
        cell, first = source.cell[read], frame.team.first
        missing = ~source.memory.written(cell)
        if missing.any():
            checked.uninitialised(block, source.memory, cell, np.full(len(cell), first), missing, step)
        for place, touch, positions in ((source, Touch.BULK_READ, read), (target, _arrival(store), at)):
            order = place.memory.order
            assert order is not None
            cells = races.asynchronous(block, place.memory, touch, place.cell[positions], step, True)
            order.track(touch, frame.team.number).begin(cells, first, block.now(step, place.memory))
    block.stores.append(store)
    if block.early:
        _read(block, store)
        _write(block, store)


def commit(frame: Frame, block: Block) -> None:
    """Close the current group of thread 0 of the team."""
    if not frame.active[0]:
        return
    for store in _own(block, frame):
        if store.group is None:
            store.group = frame.team.stored
    frame.team.stored += 1


def wait(block: Block, stmt: BulkWait, frame: Frame) -> None:
    """Wait, by thread 0 of the team, for all of its groups except the last `pending` ones."""
    if not frame.active[0]:
        return
    due = frame.team.stored - stmt.pending
    for store in _own(block, frame):
        if store.group is None or store.group >= due:
            continue
        if not store.waited:
            _read(block, store)
            _over(store, Touch.BULK_READ, frame)
            store.waited = True
        if not stmt.read:
            _write(block, store)
            _over(store, _arrival(store), frame)
            block.stores.remove(store)


def _own(block: Block, frame: Frame) -> list[Store]:
    return [s for s in block.stores if s.step.frame.team is frame.team]


def advance(block: Block, store: Store) -> None:
    """Carry out one of the two steps of a store."""
    (_read if store.values is None else _write)(block, store)


def finish(block: Block) -> None:
    """Complete all stores at the end of the block, and report sources that were not waited for."""
    for store in block.stores:
        if not store.waited and block.run.checks:
            text = "a bulk store may still read shared memory when the block ends"
            team, name = store.step.frame.team, store.source.memory.name
            block.report(
                store.step, "progress", "unfinished-copy", text, team.first, object=name,
                expected="a wait for the store's group", missing=f"{team.name} does not wait for the store's group",
            )  # fmt: skip
        _read(block, store)
        _write(block, store)
    block.stores.clear()


def _over(store: Store, touch: Touch, frame: Frame) -> None:
    """Record that the access of a store is over for the thread that waited."""
    reads = touch is Touch.BULK_READ
    place, positions = (store.source, store.read) if reads else (store.target, store.at)
    if place.memory.order is not None:
        track = place.memory.order.track(touch, frame.team.number)
        cells = place.memory.grains(place.cell[positions])
        track.finish(cells, store.step.event, frame.team.segment, True)


def _arrival(store: Store) -> Touch:
    """Return the kind of access that the store makes to its target."""
    return Touch.BULK_WRITE if isinstance(store.stmt, Copy) else Touch.BULK_ACCUMULATE


def _read(block: Block, store: Store) -> None:
    """Read the box, unless it was already read."""
    if store.values is not None:
        return
    source, target, step = store.source, store.target, store.step
    store.values = source.memory.load(source.cell[store.at])
    tags = tagging.copied(block, source, step, None)
    if tags is not None:
        store.tags = tags.take(store.at)
    if tags is not None and isinstance(store.stmt, Copy):
        origin = (source.memory.name, source.cell[store.at])
        hop(block, step.event, target.memory.name, target.cell[store.at], (origin,))


def _write(block: Block, store: Store) -> None:
    """Write the box, unless it was already written."""
    if store.written:
        return
    memory, cell = store.target.memory, store.target.cell[store.at]
    assert isinstance(memory, GlobalTensor) and store.values is not None
    store.written = True
    if isinstance(store.stmt, Accumulate):
        _update(block, store, store.stmt, memory, store.values)
        return
    memory.wrote(cell, store.step.frame.program.number)
    memory.store(cell, store.values)
    if store.tags is not None and memory.tags is not None:
        memory.tags.put(cell, store.tags)


def _update(block: Block, store: Store, stmt: Accumulate, memory: GlobalTensor, values: Array) -> None:
    """Combine the box with the tensor's contents, element by element."""
    cells, group = np.unique(store.target.cell[store.at], return_inverse=True)
    before = memory.load(cells)
    memory.store(cells, reduced(before, values, group, stmt.op, memory.dtype))
    every = np.arange(len(store.at))
    source = replace(store.source, cell=store.source.cell[store.at], ok=store.source.ok[store.at])
    tagging.accumulated(block, stmt, memory, cells, before, store.tags, values, every, group, store.step, (source,))
