"""The memory planner: it gives each buffer a place in one pool. The plan is proved, not trusted.

Buffers are placed in the order of their first use. A buffer takes over a slot if all buffers of the slot are finished
before it begins, in the order of the text and of the streams. Otherwise it gets a new slot.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from argus.ir.expr import Const, Expr, op
from argus.ir.types import int64
from argus.programs.ir import Buffer, Program
from argus.programs.prove.order import Order, order
from argus.programs.sites import Site, sites


@dataclass
class _Slot:
    buffers: list[Buffer] = field(default_factory=list)

    @property
    def bytes(self) -> Expr:
        size: Expr = self.buffers[0].bytes
        for buffer in self.buffers[1:]:
            size = op("maximum", size, buffer.bytes)
        return size


def planned(program: Program) -> Program:
    """Return the program with an offset for every buffer, and with the size of the pool."""
    found = sites(program)
    ordered = order(program, found)
    slots: list[_Slot] = []
    for buffer in sorted(program.buffers, key=lambda b: _first(b, found)):
        slot = next((s for s in slots if all(done(a, buffer, found, ordered) for a in s.buffers)), None)
        if slot is None:
            slots.append(slot := _Slot())
        slot.buffers.append(buffer)
    places: dict[str, Expr] = {}
    end: Expr = Const(0, int64)
    for slot in slots:
        places |= {b.name: end for b in slot.buffers}
        end = op("add", end, slot.bytes)
    buffers = tuple(replace(b, offset=places[b.name]) for b in program.buffers)
    return replace(program, buffers=buffers, pool=end)


def users(buffer: Buffer, found: tuple[Site, ...]) -> list[Site]:
    """Return the sites that access a buffer."""
    return [s for s in found if any(a.part.obj == buffer.name for a in s.accesses)]


def _first(buffer: Buffer, found: tuple[Site, ...]) -> int:
    return min((s.number for s in users(buffer, found)), default=0)


def done(one: Buffer, two: Buffer, found: tuple[Site, ...], ordered: Order) -> bool:
    """Return True if all work on buffer `one` is complete before any on `two` starts."""
    return all(_complete(a, b, ordered) for a in users(one, found) for b in users(two, found))


def _complete(before: Site, after: Site, ordered: Order) -> bool:
    """Return True if all instances of a site are complete before any of another one starts."""
    shared = any(a is b for a, b in zip(before.loops, after.loops, strict=False))
    if before.number >= after.number or shared:
        return False
    return before.step.stream == after.step.stream or not ordered.lag(after, before.number)
