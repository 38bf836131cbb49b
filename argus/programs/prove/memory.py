"""Check memory: buffers that share bytes of the pool are never in use at the same time. The plan is not trusted."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from argus.diagnostic import Verdict
from argus.ir.expr import Const, op
from argus.ir.types import int64
from argus.programs.ir import POOL_ALIGNMENT, Buffer
from argus.programs.plan import done, users
from argus.programs.prove.facts import Doubt, Facts
from argus.programs.prove.order import Order
from argus.programs.sites import Site


def check(facts: Facts, sites: tuple[Site, ...], ordered: Order) -> Iterator[Doubt]:
    """Find buffers whose places are outside of the pool, misaligned, or in use by other buffers."""
    program = facts.program
    if program.pool is None:
        return
    for buffer in program.buffers:
        yield from _place(facts, buffer)
    for one, two in combinations(program.buffers, 2):
        if done(one, two, sites, ordered) or done(two, one, sites, ordered) or _apart(facts, one, two):
            continue
        found = users(two, sites) or users(one, sites)
        if found:
            what = f"the buffers `{one.name}` and `{two.name}` may share memory while both are in use"
            yield Doubt("program-memory", what, found[0].step, two.name, found[0].step.stream)


def _place(facts: Facts, buffer: Buffer) -> Iterator[Doubt]:
    offset, pool = buffer.offset, facts.program.pool
    assert offset is not None and pool is not None
    zero, unit = Const(0, int64), Const(POOL_ALIGNMENT, int64)
    sizes = [op("eq", op("mod", b.bytes, unit), zero) for b in facts.program.buffers]
    goals = (
        (op("ge", offset, zero), "begins before the pool"),
        (op("le", op("add", offset, buffer.bytes), pool), "ends beyond the pool"),
        (op("eq", op("mod", offset, unit), zero), f"does not begin at a multiple of {POOL_ALIGNMENT} bytes"),
    )
    for goal, what in goals:
        if facts.ask(goal, sizes).verdict is not Verdict.PROVED:
            yield Doubt("program-memory", f"the buffer `{buffer.name}` {what}", buffer, buffer.name)


def _apart(facts: Facts, one: Buffer, two: Buffer) -> bool:
    """Return True if two buffers have bytes of their own at all sizes."""
    assert one.offset is not None and two.offset is not None
    first = op("le", op("add", one.offset, one.bytes), two.offset)
    second = op("le", op("add", two.offset, two.bytes), one.offset)
    return any(facts.ask(goal).verdict is Verdict.PROVED for goal in (first, second))
