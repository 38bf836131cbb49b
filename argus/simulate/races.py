"""Check every access against all others: order between threads, asynchronous work, proxies, registers in flight."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from argus.ir.instruction import INSTRUCTIONS
from argus.ir.instruction import Order as Asynchrony
from argus.ir.nodes import Copy, Mma, Stmt
from argus.simulate import events
from argus.simulate.events import Side
from argus.simulate.machine import Block
from argus.simulate.memory import GlobalTensor, Memory, Registers, SharedTile
from argus.simulate.numeric import Array
from argus.simulate.order import NOBODY, Conflict, MemoryOrder, Touch
from argus.simulate.outcome import Story
from argus.simulate.peers import Stray
from argus.simulate.step import Step

_AGENTS = {Asynchrony.ASYNC_BULK: "copy", Asynchrony.ASYNC_GROUP: "cp.async", Asynchrony.VMCNT: "load to LDS"}

_NO_WAIT = "of the thread covers the copy's group"


def ordered(
    block: Block, memory: Memory, touch: Touch, cell: Array, thread: Array, step: Step, warp: bool = False
) -> None:
    """Check and record ordinary accesses. `thread` counts in the block. With `warp`, the thread's whole warp takes
    part."""
    if isinstance(memory, Registers):
        registers(block, memory, touch, cell, step)
    found = None if block.lives is None else block.lives.visit(memory, touch, cell, thread, step)
    if found is not None:
        stray(block, found)
    order = memory.order
    if order is None or len(cell) == 0:
        return
    grain = memory.grains(cell)
    if len(grain) != len(thread):
        thread = np.repeat(thread, len(grain) // len(thread))
    pending(block, memory, touch, grain, thread, step)
    conflict = order.access(touch, grain, thread, block.now(step, memory), warp)
    if conflict is not None:
        report(block, memory, touch, grain, thread, conflict, step)


def stray(block: Block, found: Stray) -> None:
    """Report an access to a tile of another block that may not exist at that time."""
    at = found.visit
    block.report(
        at.step, "races", found.code, found.text, at.thread, at.memory, at.cell, arrived="whatever is there",
        expected=found.expected, missing=found.missing,
    )  # fmt: skip


def asynchronous(block: Block, memory: Memory, touch: Touch, cell: Array, step: Step, alone: bool) -> Array:
    """Check accesses through the asynchronous proxy without recording them. Return the grains that they access.

    `alone`: the copy engine makes the accesses for the team's first thread, whose own accesses are ordered before them.
    """
    order = memory.order
    assert order is not None
    grain = memory.grains(cell)
    now = block.now(step, memory, alone)
    thread = np.full(len(grain), step.frame.team.first if alone else NOBODY)
    pending(block, memory, touch, grain, thread, step)
    found = order.check(touch, grain, thread, now)
    if found is not None:
        report(block, memory, touch, grain, thread, found, step, alone)
        return grain
    fences = not isinstance(memory, GlobalTensor)
    found = order.unfenced(touch, grain, now, step.frame.team.first if alone else NOBODY, fences)
    if found is not None:
        at = int(np.argmax(found.bad))
        text = (
            f"no proxy fence orders an ordinary {found.earlier.value} of an element of {memory.name} before"
            f" this asynchronous {'read' if touch.reads else 'write'}"
        )
        other = block.run.log.party(found.event, found.thread, found.earlier.value)
        earlier, role = _earlier(found), block.run.log.events[found.event].role
        why = f"{role} needs one after the first, or the thread that issues the second one before it"
        why = why if fences else "there is none for tensors: threads take what threads wrote, or the copy engine both"
        block.report(
            step, "races", "missing-proxy-fence", text, step.frame.team.first, memory, int(grain[at]),
            expected=f"{'a proxy fence' if fences else 'the copy engine'} after the first, before what orders the two",
            other=other, count=int(found.bad.sum()),
            story=_story(
                block, earlier, _later(touch, step, step.frame.team.first), memory, int(grain[at]), why,
                "no proxy fence orders",
            ),
        )  # fmt: skip
    return grain


def registers(block: Block, memory: Registers, touch: Touch, cell: Array, step: Step) -> None:
    """Report ordinary accesses to registers that a product has not written yet, and writes of registers that it has not
    read yet. Record these accesses until the next fence."""
    hazards = memory.hazards
    if hazards is None or len(cell) == 0 or not block.run.checks:
        return
    writes = touch is not Touch.READ
    flight = np.maximum(hazards.flight[cell], hazards.reading[cell]) if writes else hazards.flight[cell]
    bad = flight != NOBODY
    if writes or not hazards.operand:
        hazards.unfenced[cell] = step.event
    if bad.any():
        at = int(np.argmax(bad))
        used, does = ("used", "writes") if hazards.flight[cell[at]] != NOBODY else ("written", "reads")
        block.report(
            step,
            "races",
            "register-in-flight",
            f"a register of {memory.name} is {used} while an asynchronous product still {does} it",
            memory.first + int(cell[at]) // memory.per_thread,
            memory,
            int(cell[at]),
            arrived="a value that the product may or may not have " + ("changed" if does == "writes" else "taken"),
            expected="a wait that covers the product's group first",
            other=block.run.log.party(int(flight[at]), step.frame.team.first, "asynchronous product"),
            count=int(bad.sum()),
            story=_story(
                block, Side(int(flight[at]), Touch.ACCUMULATE if does == "writes" else Touch.READ, "product"),
                Side(step.event, touch), memory, int(cell[at]), "no wait covers the product's group",
            ),
        )  # fmt: skip


def pending(block: Block, memory: Memory, touch: Touch, grain: Array, thread: Array, step: Step) -> None:
    """Report accesses to cells that an asynchronous copy has not written yet, and writes of cells that it has not read
    yet."""
    order = memory.order
    assert order is not None
    if not len(order.pending_write):
        return
    reading = touch.reads
    flying = order.pending_write[grain]
    if not reading:
        flying = np.maximum(flying, order.pending_read[grain])
    bad = flying != NOBODY
    if not bad.any():
        return
    at = int(np.argmax(bad))
    text = (
        f"an element of {memory.name} is {'read' if reading else 'written'} "
        "while an asynchronous copy that touches it may still be under way"
    )
    event = int(flying[at])
    agent = _agent(block.run.log.events[event].stmt) or "cp.async"
    counted = agent == "load to LDS"
    block.report(
        step,
        "races",
        "stale-read" if reading else "async-overwrite",
        text,
        int(thread[at]),
        memory,
        int(grain[at]),
        arrived="possibly what was there before the copy",
        expected=f"what the copy brings: wait for {'the load' if counted else 'its group'} first",
        other=block.run.log.party(event, int(thread[at]), "asynchronous copy"),
        count=int(bad.sum()),
        story=_story(
            block, Side(event, _copied(order, int(grain[at])), agent), _later(touch, step, int(thread[at])),
            memory, int(grain[at]), f"no wait {'for vmcnt covers the load' if counted else _NO_WAIT}",
        ),
    )  # fmt: skip


def report(
    block: Block,
    memory: Memory,
    touch: Touch,
    grain: Array,
    thread: Array,
    found: Conflict,
    step: Step,
    bulk: bool = False,
) -> None:
    """Report that nothing orders an access after an earlier one. `bulk`: the copy engine makes the access."""
    at = int(np.argmax(found.bad))
    across = found.block != block.now(step, memory).block
    unit = "program" if block.run.kernel.persistent else "block"
    engine = found.bulk or found.earlier.of_store
    who = f"another {unit}" if across else "the copy engine" if engine else "another thread"
    what = f"the copy engine's {touch.verb}" if bulk else touch.value
    text = f"{what} of an element of {memory.name} has no order with {who}'s {found.earlier.verb}"
    block.report(
        step,
        "races",
        "block-race" if across else "data-race",
        text,
        int(thread[at]) if thread[at] != NOBODY else step.frame.team.first,
        memory,
        int(grain[at]),
        expected=f"no two {unit}s touch one element" if across else _expected(block, found, step),
        other=block.run.log.party(found.event, found.thread, found.earlier.value),
        count=int(found.bad.sum()),
        story=_story(
            block, _earlier(found), _later(touch, step, int(thread[at])), memory, int(grain[at]),
            events.reason(block, found, block.run.log.events[step.event], across),
        ),
    )  # fmt: skip


def _expected(block: Block, found: Conflict, step: Step) -> str:
    """Return text that says what would order an access of `step` after the access found."""
    alone = block.run.log.events[found.event].role == step.frame.team.name
    between = "a barrier between the two"
    if found.event == step.event:
        return "each element accessed by one thread of this statement"
    if not alone or found.bulk:
        between = "an arrival on an mbarrier after the first, and a wait for that phase before the second"
    if not found.unfinished:
        return between
    work = "product" if found.earlier is Touch.MULTIPLY else "store"
    return f"a wait for the {work}'s group after the first, and then {between}"


def coming(block: Block, memory: Memory, cell: int, thread: int, step: Step) -> Story:
    """Return an account of a read of a cell that a running bulk copy will fill. The account is empty if there is no
    such copy."""
    if not isinstance(memory, SharedTile):
        return (), ""
    for copy in block.bulk:
        if isinstance(copy.memory, SharedTile) and cell in copy.memory.grains(copy.cell):
            why = events.unawaited(step.frame.team.name, copy.barrier.label, copy.phase + 1)
            touch = Touch.MULTIPLY if isinstance(step.stmt, Mma) else Touch.READ
            earlier = Side(copy.step.event, Touch.WRITE, "copy")
            return _story(block, earlier, _later(touch, step, thread), memory, cell, why)()
    return (), ""


def _copied(order: MemoryOrder, cell: int) -> Touch:
    """Return the access that a copy in flight makes to a cell."""
    return Touch.WRITE if order.pending_write[cell] != NOBODY else Touch.READ


def _earlier(found: Conflict) -> Side:
    """Return the earlier access of a conflict."""
    agent = "copy" if found.bulk else "product" if found.earlier is Touch.MULTIPLY else ""
    return Side(found.event, found.earlier, agent, found.thread)


def _later(touch: Touch, step: Step, thread: int) -> Side:
    """Return the access that is being checked."""
    return Side(step.event, touch, "product" if touch is Touch.MULTIPLY else _agent(step.stmt), thread)


def _agent(stmt: Stmt) -> str:
    """Return the agent that makes the accesses of a copy, or "" if the threads make them."""
    if isinstance(stmt, Copy) and stmt.instr is not None:
        return _AGENTS.get(INSTRUCTIONS[stmt.instr].order, "")
    return ""


def _story(
    block: Block, earlier: Side, later: Side, memory: Memory, cell: int, why: str, lead: str = "nothing orders"
) -> Callable[[], Story]:
    """Return a function that explains how two accesses to a cell came to be unordered."""
    shared = isinstance(memory, SharedTile)
    met = events.cell_of(memory.name, memory.shape, memory.logical(cell), shared)
    return lambda: events.conflict(block, earlier, later, met, why, lead)
