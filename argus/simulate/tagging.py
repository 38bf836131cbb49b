"""Tags of the values that statements move and compute: the rules of docs/tags.md, element by element."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

import numpy as np

from argus.ir.expr import REDUCTIONS, Const, Elem, Expr, Op
from argus.ir.nodes import Accumulate
from argus.simulate import checked
from argus.simulate.machine import Block
from argus.simulate.memory import GlobalTensor, Memory
from argus.simulate.numeric import Array
from argus.simulate.provenance import hop
from argus.simulate.step import AccessCells, Step
from argus.simulate.tagset import BOTTOM, CONSTANT, NEUTRAL, TAGGED, Tags, accumulate, gather, join
from argus.simulate.terms import of_place


def copied(block: Block, source: AccessCells, step: Step, inside: Array | None) -> Tags | None:
    """Return the tags of a copy: the source's tags, and a constant's where `inside` is false."""
    if block.run.schemas is None:
        return None
    tags = of_place(block, source, step)
    tags.summed[:] = False  # An accumulation onto a copy starts from a value that carries a tag.
    if inside is not None:
        tags.status[~inside] = CONSTANT
    return tags


def computed(
    block: Block, value: Expr, step: Step, on: Array, warp: bool
) -> tuple[Tags | None, tuple[AccessCells, ...]]:
    """Return the tags of an elementwise expression, and the places of its operands."""
    if block.run.schemas is None:
        return None, ()
    places: dict[Elem, AccessCells] = {}
    return _of(block, value, step, on, warp, places), tuple(places.values())


def _of(block: Block, value: Expr, step: Step, on: Array, warp: bool, places: dict[Elem, AccessCells]) -> Tags:
    """Apply rule 2: constants stay constants when moved, cast and scaled, but not in other arithmetic; conditions carry
    no tag."""
    n, schemas = step.domain.size, block.run.schemas
    assert schemas is not None

    def of(e: Expr) -> Tags:
        return _of(block, e, step, on, warp, places)

    match value:
        case Const():
            return Tags.uniform(n, CONSTANT, schemas)
        case Elem(obj=obj, index=index):
            places.setdefault(value, checked.locate(block, obj, index, step, on, warp))
            tags = of_place(block, places[value], step)
            tags.summed[:] = False
            return tags
        case Op(op="cast", args=(inner,)):
            return of(inner)
        case Op(op="mul", args=(inner, Const(value=factor)) | (Const(value=factor), inner)) if isfinite(factor):
            return of(inner)
        case Op(op="where", args=(_, x, y)):
            return join([of(x), of(y)], n, schemas)
        case Op(op="lt" | "le" | "gt" | "ge" | "eq" | "ne"):
            return Tags.uniform(n, NEUTRAL, schemas)
        case Op(args=args):
            return join([*(of(e) for e in args), Tags.uniform(n, NEUTRAL, schemas)], n, schemas)
        case _:
            return Tags.uniform(n, NEUTRAL, schemas)


def store(block: Block, target: AccessCells, tags: Tags | None, step: Step, sources: tuple[AccessCells, ...]) -> None:
    """Give the written cells their new tags."""
    if tags is None:
        return
    memory, at = target.memory, np.flatnonzero(target.ok)
    cell = target.cell[at]
    if memory.tags is not None:
        memory.tags.put(cell, tags.take(at))
    origins = tuple((s.memory.name, np.where(s.ok[at], s.cell[at], -1)) for s in sources)
    hop(block, step.event, memory.name, cell, origins)


@dataclass(frozen=True, slots=True)
class _Terms:
    """The contributions of an `Accumulate`, one for each position."""

    tags: Tags

    def members(self, position: int, name: str) -> list[int] | None:
        """See `Brought`."""
        if self.tags.status[position] != TAGGED or name not in self.tags.fields:
            return []
        field = self.tags.fields[name]
        return [int(field.low[position])] if field.size[position] == 1 else None


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
    sources: tuple[AccessCells, ...],
) -> None:
    """Add the contributions `at` of the domain to `cells[group]`."""
    if tags is None or memory.tags is None:
        return
    identity = REDUCTIONS[stmt.op](memory.dtype)
    old = memory.tags.take(cells)
    if isinstance(memory, GlobalTensor):
        # The contents of a tensor before the kernel are the start value of its atomic accumulations.
        old.status[old.status == BOTTOM] = CONSTANT
        start = old.status == CONSTANT
    else:
        start = (old.status == CONSTANT) & (before == identity)
    new_tags = tags.take(at)
    new = gather(new_tags, values[at] == identity, group, len(cells))
    memory.tags.put(cells, accumulate(old, start, new))
    origins = tuple((s.memory.name, np.where(s.ok[at], s.cell[at], -1)) for s in sources)
    hop(block, step.event, memory.name, cells[group], origins, _Terms(new_tags))
