"""Tags of what statements move and compute: the rules of docs/tags.md, element by element."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from argus.ir.expr import REDUCTIONS, Const, Elem, Expr, Op, children
from argus.ir.nodes import Accumulate
from argus.simulate.machine import Block, Place, Step
from argus.simulate.memory import GlobalTensor, Memory
from argus.simulate.numeric import Array
from argus.simulate.provenance import hop
from argus.simulate.tagset import BOTTOM, CONSTANT, NEUTRAL, Tags, accumulate, gather, join
from argus.simulate.terms import of_place


def copied(block: Block, source: Place, step: Step, inside: Array | None) -> Tags | None:
    """Tags of a copy: the source's; a constant where `inside` is false."""
    if block.run.schemas is None:
        return None
    tags = of_place(block, source, step)
    if inside is not None:
        tags.status[~inside] = CONSTANT
    return tags


def computed(block: Block, value: Expr, step: Step, on: Array, warp: bool) -> tuple[Tags | None, tuple[Place, ...]]:
    """Tags of an elementwise expression, and where its operands are."""
    if block.run.schemas is None:
        return None, ()
    n = step.domain.size
    leaves = list(_operands(value))
    places = [block.locate(e.obj, e.index, step, on, warp) for e in leaves if isinstance(e, Elem)]
    operands = [of_place(block, place, step) for place in places]
    if any(not isinstance(e, Elem | Const) for e in leaves):
        operands.append(Tags.uniform(n, NEUTRAL, block.run.schemas))
    return join(operands, n, block.run.schemas), tuple(places)


def _operands(expr: Expr) -> Iterator[Expr]:
    """The leaves that an elementwise value is computed from; of a condition only that it is no constant."""
    match expr:
        case Op(op="where", args=(condition, *rest)):
            yield from (e for e in _operands(condition) if not isinstance(e, Elem | Const))
            for e in rest:
                yield from _operands(e)
        case Op():
            for e in children(expr):
                yield from _operands(e)
        case _:
            yield expr


def store(block: Block, target: Place, tags: Tags | None, step: Step, sources: tuple[Place, ...]) -> None:
    """Give the written cells their new tags."""
    if tags is None:
        return
    memory, at = target.memory, np.flatnonzero(target.ok)
    cell = target.cell[at]
    if memory.tags is not None:
        memory.tags.put(cell, tags.take(at))
    origins = tuple((s.memory.name, np.where(s.ok[at], s.cell[at], -1)) for s in sources)
    hop(block, step.event, memory.name, cell, origins)


def accumulated(
    block: Block,
    stmt: Accumulate,
    memory: Memory,
    cells: Array,
    before: Array,
    tags: Tags | None,
    values: Array,
    at: Array,
    group: Array,
    step: Step,
    sources: tuple[Place, ...],
) -> None:
    """Contributions `at` of the domain to `cells[group]`."""
    if tags is None or memory.tags is None:
        return
    identity = REDUCTIONS[stmt.op](memory.dtype)
    old = memory.tags.take(cells)
    if isinstance(memory, GlobalTensor):
        # What a tensor holds before the kernel is the base of its atomic accumulations.
        old.status[old.status == BOTTOM] = CONSTANT
        start = old.status == CONSTANT
    else:
        start = (old.status == CONSTANT) & (before == identity)
    new = gather(tags.take(at), values[at] == identity, group, len(cells))
    memory.tags.put(cells, accumulate(old, start, new))
    origins = tuple((s.memory.name, np.where(s.ok[at], s.cell[at], -1)) for s in sources)
    hop(block, step.event, memory.name, cells[group], origins)
