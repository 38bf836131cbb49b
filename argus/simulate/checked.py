"""Checked access to a block's memories, for all statements: cells, values of expressions, reads and writes."""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache

import numpy as np

from argus.ir.expr import Elem, Expr, LoopVar, ProgramId, Thread, walk
from argus.simulate import races
from argus.simulate.evaluate import STRAIN, Bindings, Overflow, evaluate
from argus.simulate.machine import Block, Found
from argus.simulate.memory import GlobalTensor, Memory, Registers, SharedTile
from argus.simulate.numeric import Array
from argus.simulate.order import NOBODY, Touch
from argus.simulate.step import AccessCells, Step

# ---------------------------------------------------------------------------- expressions


def value(
    block: Block, expr: Expr, step: Step, on: Array, overflow: Overflow = Overflow.REPORT, warp: bool = False
) -> Array:
    """Return `expr` at all n elements. Registers are read and checked only where `on` is true."""
    found: dict[Elem, Array] = {}

    def element(elem: Elem) -> Array:
        if elem not in found:
            place = locate(block, elem.obj, elem.index, step, on, warp)
            found[elem] = read(block, place, step, warp=warp).reshape(step.domain.shape)
        return found[elem]

    def fault(code: str, expr: Expr, bad: Array) -> None:
        block.run.faults += 1
        _fault(block, code, step, step.domain.flat(bad) & step.on)

    domain, frame = step.domain, step.frame
    scope = Bindings(
        block.run.params,
        frame.program.index,
        frame.loops,
        domain.coords,
        domain.thread[:: max(1, domain.shape[1]), None],
        element,
        fault,
        overflow if step.event != NOBODY else Overflow.IGNORE,
        block.run.counting,
    )
    return domain.flat(evaluate(expr, scope))


def _fault(block: Block, code: str, step: Step, bad: Array) -> None:
    """Report an integer operation without a result."""
    if code == STRAIN:
        block.run.strained = True
    elif bad.any():
        at = int(np.argmax(bad))
        text = {
            "int32-overflow": "a 32-bit integer expression leaves the range of int32",
            "int64-overflow": "a 64-bit integer expression leaves the range of int64",
            "division-by-zero": "an integer expression divides by zero",
            "shift-out-of-range": "an integer is shifted by less than 0, or by as many bits as it has or more",
        }[code]
        coords = tuple(int(c.reshape(-1)[at]) for c in step.domain.coords)
        block.report(step, "bounds", code, text, int(step.thread[at]), logical=coords, count=int(bad.sum()))


# ---------------------------------------------------------------------------- cells


def locate(block: Block, name: str, index: tuple[Expr, ...], step: Step, on: Array, warp: bool = False) -> AccessCells:
    """Return the cells of `name[index]` at the elements `on`. Indices outside the shape, and elements that the thread
    does not hold, are reported.

    With `warp`, the register may belong to any thread of the thread's warp.
    """
    memory = block.memories[name]
    key = None if isinstance(memory, GlobalTensor) else _key(name, index, step, warp)
    known = None if key is None else block.run.places.get(key)
    if known is None:
        faults = block.run.faults
        coords = tuple(np.ascontiguousarray(value(block, e, step, on)) for e in index)
        known = Found(index, step.domain, _cells(memory, coords, step, on, warp), coords)
        if key is not None and faults == block.run.faults:
            block.run.places.keep(key, known)
    cell, coords = known.cell, known.coords
    ok = on & (cell >= 0)
    if step.event != NOBODY and not ok.all() and (on & ~ok).any():
        _misplaced(block, memory, coords, step, on & ~ok)
    return AccessCells(memory, cell, coords, ok, on)


def _key(name: str, index: tuple[Expr, ...], step: Step, warp: bool) -> Hashable:
    """Return what decides the cells of an access to registers or shared memory; None if data or threads do."""
    counters = _counters(index)
    if counters is None or step.event == NOBODY:
        return None
    frame = step.frame
    now = tuple(frame.loops[c.name] if isinstance(c, LoopVar) else frame.program.index[c.axis] for c in counters)
    return (name, id(index), id(step.domain), warp, now)


@lru_cache(maxsize=4096)
def _counters(index: tuple[Expr, ...]) -> tuple[LoopVar | ProgramId, ...] | None:
    """Return the counters and program ids in an index; None if it depends on data or on the thread."""
    parts = [e for expr in index for e in walk(expr)]
    if any(isinstance(e, Elem | Thread) for e in parts):
        return None
    return tuple(dict.fromkeys(e for e in parts if isinstance(e, LoopVar | ProgramId)))


def _cells(memory: Memory, coords: tuple[Array, ...], step: Step, on: Array, warp: bool) -> Array:
    """Return the cells at all elements, and -1 where there is none. Cells of tensors are computed only at the elements
    `on`."""
    n = step.domain.size
    inside = np.ones(n, dtype=np.bool_)
    for coord, extent in zip(coords, memory.shape, strict=True):
        inside &= (coord >= 0) & (coord < extent)
    cell = np.full(n, -1, dtype=np.int64)
    if isinstance(memory, GlobalTensor):
        at = np.flatnonzero(inside & on)
        if len(at):
            cell[at] = memory.cells(tuple(c[at] for c in coords))
        return cell
    element = np.zeros(n, dtype=np.int64)
    for coord, extent in zip(coords, memory.shape, strict=True):
        element = element * extent + coord
    at = np.flatnonzero(inside)
    if isinstance(memory, SharedTile):
        cell[at] = memory.cells[element[at]]
    elif isinstance(memory, Registers):
        if step.event == NOBODY:
            cell[at] = memory.holders.replicas(element[at])[:, 0]
        else:
            find = memory.holders.warp if warp else memory.holders.own
            cell[at] = find(step.domain.thread[at], element[at])
    return cell


def _misplaced(block: Block, memory: Memory, coords: tuple[Array, ...], step: Step, bad: Array) -> None:
    at = int(np.argmax(bad))
    logical = tuple(int(c[at]) for c in coords)
    thread, count = int(step.thread[at]), int(bad.sum())
    inside = all(0 <= c < extent for c, extent in zip(logical, memory.shape, strict=True))
    if inside:
        what = f"no register that the statement may touch holds this element of {memory.name}"
        block.report(step, "machine", "register-not-held", what, thread, memory, logical=logical, count=count)
        return
    what = f"index {list(logical)} is outside of {memory.name}, of shape {list(memory.shape)}"
    block.report(
        step,
        "bounds",
        "out-of-bounds",
        what,
        thread,
        memory,
        logical=logical,
        count=count,
        arrived=str(list(logical)),
        expected=f"below {list(memory.shape)}",
    )


# ---------------------------------------------------------------------------- reads and writes


def read(block: Block, place: AccessCells, step: Step, *, warp: bool = False, asynchronous: bool = False) -> Array:
    """Return the values at all n elements: the contents of the cells where `place.ok`, and zero elsewhere."""
    memory, at = place.memory, np.flatnonzero(place.ok)
    cell = place.cell[at]
    values = memory.load(cell)
    if block.run.checks:
        thread = step.thread[at]
        written = memory.written(cell)
        if not written.all():
            uninitialised(block, memory, cell, thread, ~written, step)
        races.ordered(block, memory, Touch.READ, cell, thread, step, warp)
        if asynchronous and memory.order is not None:
            memory.order.pending_read[memory.grains(cell)] = step.event
    if len(at) == step.domain.size:
        return values
    result = np.zeros(step.domain.size, dtype=values.dtype)
    result[at] = values
    return result


def write(
    block: Block, place: AccessCells, values: Array, step: Step, touch: Touch = Touch.WRITE, *, warp: bool = False
) -> None:
    """Store `values[i]` in the cell of element i, for each i where `place.ok[i]` is true."""
    at = np.flatnonzero(place.ok)
    cell = place.cell[at]
    if block.run.checks:
        races.ordered(block, place.memory, touch, cell, step.thread[at], step, warp)
    if isinstance(place.memory, GlobalTensor) and touch is Touch.WRITE:
        place.memory.wrote(cell, step.frame.program.number)
    place.memory.store(cell, values[at])


def simultaneous(block: Block, place: AccessCells, values: Array, step: Step) -> None:
    """Report two elements of one statement that write different values to one cell: their order is undefined."""
    if not block.run.checks:
        return
    at = np.flatnonzero(place.ok)
    at = at[np.argsort(place.cell[at], kind="stable")]
    cell, bits = place.cell[at], np.ascontiguousarray(values[at]).view(f"V{values.dtype.itemsize}")
    bad = np.flatnonzero((cell[1:] == cell[:-1]) & (bits[1:] != bits[:-1]))
    if not len(bad):
        return
    first, second = at[bad[0]], at[bad[0] + 1]
    elements = [[int(c[i]) for c in map(step.domain.flat, step.domain.coords)] for i in (first, second)]
    block.report(
        step,
        "races",
        "cell-written-twice",
        f"elements {elements[0]} and {elements[1]} of one statement write one cell of {place.memory.name}",
        int(step.thread[first]),
        place.memory,
        int(cell[bad[0]]),
        arrived=f"{values[first]} or {values[second]}",
        expected="one value",
        count=len(bad),
    )


def atomic(block: Block, place: AccessCells, step: Step) -> None:
    """Check and record atomic accumulations into the cells of a tensor."""
    if block.run.checks:
        at = np.flatnonzero(place.ok)
        races.ordered(block, place.memory, Touch.ACCUMULATE, place.cell[at], step.thread[at], step, False)


def initialised(block: Block, memory: Memory, cell: Array, step: Step, touch: Touch) -> None:
    """Report registers that are used before they are written, or while a product uses them."""
    if block.run.checks and isinstance(memory, Registers):
        missing = ~memory.written(cell)
        if missing.any():
            uninitialised(block, memory, cell, memory.first + cell // memory.per_thread, missing, step)
        races.registers(block, memory, touch, cell, step)


def uninitialised(block: Block, memory: Memory, cell: Array, thread: Array, bad: Array, step: Step) -> None:
    """Report the first of the cells `bad`, which were never written."""
    at = int(np.argmax(bad))
    text = f"an element of {memory.name} is read that nothing has written"
    block.report(
        step,
        "initialisation",
        "uninitialised-read",
        text,
        int(thread[at]),
        memory,
        int(cell[at]),
        arrived="an uninitialised value",
        expected="a written value",
        count=int(bad.sum()),
        story=lambda: races.coming(block, memory, int(cell[at]), int(thread[at]), step),
    )
