"""The sides of tag conditions: the place of an element, its tag, and the integers that a term stands for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from argus.ir.expr import Elem
from argus.ir.nodes import DataValue, Once, Tag, TagField, TagTerm
from argus.simulate import checked
from argus.simulate.machine import Block
from argus.simulate.memory import GlobalTensor, Registers, SharedTile
from argus.simulate.numeric import Array
from argus.simulate.step import AccessCells, Step
from argus.simulate.tagset import BOTTOM, NAMES, NEUTRAL, TAGGED, TOP, Field, Tags, hashed

MISSING = 5
"""Kind of a side whose element has a tag without the requested field."""


@dataclass(frozen=True, slots=True)
class Term:
    """The values of one side at n elements.

    `kind` is TAGGED if there is a value; CONSTANT or NEUTRAL if no contribution has arrived (a set without members, or
    any single integer); and TOP, BOTTOM or MISSING if there is nothing to compare. `place` and `tags` say where the
    side comes from, and are None for a side that is no tag. `once`: the side is a set, so multiplicities count.
    """

    field: Field
    kind: Array
    place: AccessCells | None = None
    tags: Tags | None = None
    once: bool = False


def term(block: Block, value: TagTerm, step: Step, replica: int | None = None) -> Term:
    """Evaluate one side of a comparison, or a field of a `Tag`, at the n elements of `step`."""
    n = step.domain.size
    tagged = np.full(n, TAGGED, dtype=np.uint8)
    match value:
        case TagField(elem=elem, name=name):
            place = ghost(block, elem, step, replica)
            tags = of_place(block, place, step)
            tags.status[~place.ok] = NEUTRAL
            return select(tags, name, place)
        case Once(lo=lo, hi=hi):
            low, high = checked.value(block, lo, step, step.on), checked.value(block, hi, step, step.on)
            return Term(_ranges(low, high), tagged, once=True)
        case DataValue(tensor=tensor, index=index):
            place = checked.locate(block, tensor, index, step, step.on)
            memory = place.memory
            values = np.zeros(n, dtype=np.int64)
            values[place.ok] = memory.load(place.cell[place.ok])
            return Term(Field.integers(values), tagged)
        case _:
            return Term(Field.integers(checked.value(block, value, step, step.on)), tagged)


def select(tags: Tags, name: str | int, place: AccessCells) -> Term:
    """Return the field `name` of every element, or the field at a position."""
    field, kind = Field.blank(len(tags)), tags.status.copy()
    for number in np.unique(tags.schema[tags.status == TAGGED]):
        names = tags.schemas.names[int(number)]
        here = np.flatnonzero((tags.schema == number) & (tags.status == TAGGED))
        chosen = name if isinstance(name, str) else names[name] if name < len(names) else ""
        if chosen in names:
            field.put(here, tags.field(chosen).take(here))
        else:
            kind[here] = MISSING
    return Term(field, kind, place, tags)


def _ranges(low: Array, high: Array) -> Field:
    """Return the sets [low, high) for each element."""
    field = Field.blank(len(low))
    pairs, which = np.unique(np.stack([low, high], axis=1), axis=0, return_inverse=True)
    which = which.reshape(-1)
    with np.errstate(over="ignore"):
        prints = np.array(
            [np.sum(hashed(np.arange(lo, hi)), dtype=np.uint64) if hi - lo <= _LARGEST_SET else 0 for lo, hi in pairs],
            dtype=np.uint64,
        )
    field.low[:], field.high[:] = low, high - 1
    field.size[:], field.print[:] = np.maximum(high - low, 0), prints[which]
    return field


_LARGEST_SET = 1 << 22
"""A set with more members differs in size from every set that a simulation can bring together."""


def ghost(block: Block, elem: Elem, step: Step, replica: int | None) -> AccessCells:
    """Return the cells in which an assertion finds an element.

    For registers, the cell is the thread's own register, or the replica of number `replica`.
    """
    memory = block.memories[elem.obj]
    if not isinstance(memory, Registers):
        return checked.locate(block, elem.obj, elem.index, step, step.on)
    coords = tuple(np.ascontiguousarray(checked.value(block, e, step, step.on)) for e in elem.index)
    inside = np.ones(step.domain.size, dtype=np.bool_)
    element = np.zeros(step.domain.size, dtype=np.int64)
    for coord, extent in zip(coords, memory.shape, strict=True):
        inside &= (coord >= 0) & (coord < extent)
        element = element * extent + np.clip(coord, 0, extent - 1)
    everywhere = memory.holders.replicas(element)
    if replica is None:
        own = memory.holders.own(step.domain.thread, element)
        cell = np.where(own >= 0, own, everywhere[:, 0])
    else:
        cell = everywhere[:, min(replica, everywhere.shape[1] - 1)]
    active = step.frame.active[cell // memory.per_thread]
    return AccessCells(memory, cell, coords, inside & step.on & (cell >= 0) & active, step.on)


def of_place(block: Block, place: AccessCells, step: Step) -> Tags:
    """Return the tags at all n elements. Elements without an access are untagged.

    For an element outside of a tensor, the tensor's tag function determines the tag.
    """
    schemas = block.run.schemas
    assert schemas is not None
    at = np.flatnonzero(place.ok)
    if len(at) == step.domain.size and isinstance(place.memory, Registers) and place.memory.tags is not None:
        return place.memory.tags.take(place.cell)
    result = Tags.uniform(step.domain.size, NEUTRAL, schemas)
    memory, cell = place.memory, place.cell[at]
    if isinstance(memory, GlobalTensor):
        declared = block.run.tags.get(memory.name)
        if declared is not None:
            wanted = np.flatnonzero(place.wanted)
            result.put(wanted, _declared(block, declared, tuple(c[wanted] for c in place.coords)))
        if memory.tags is not None:
            own = memory.tags.take(cell)
            ours = own.status != BOTTOM
            result.put(at[ours], own.take(ours))
        return result
    assert memory.tags is not None
    found = memory.tags.take(cell)
    if isinstance(memory, SharedTile) and memory.memory.mixed:
        torn = ~memory.whole(cell) & memory.written(cell)
        found.mix(torn, schemas.reason("bytes that were written as elements of another size"))
    result.put(at, found)
    return result


def _declared(block: Block, stmt: Tag, coords: tuple[Array, ...]) -> Tags:
    """Return a tensor's own tags at coordinates."""
    schemas = block.run.schemas
    assert schemas is not None
    n = len(coords[0]) if coords else 1
    step = block.box(stmt, coords, n)
    result = Tags.uniform(n, TAGGED, schemas)
    result.schema[:] = schemas.number(tuple(name for name, _ in stmt.fields))
    for name, value in stmt.fields:
        result.fields[name] = term(block, value, step).field
    return result


def field_text(field: Field, at: int) -> str:
    """Return one multiset as text."""
    low, high, size = int(field.low[at]), int(field.high[at]), int(field.size[at])
    if size == 0:
        return "no contribution"
    if low == high:
        return str(low) if size == 1 else f"{low} ({size} times)"
    return f"{size} contributions from {low} to {high}"


def tag_text(tags: Tags, at: int) -> str:
    """Return one element's tag as text."""
    status = int(tags.status[at])
    if status == TOP:
        return f"mixed: {tags.schemas.reasons[int(tags.reason[at])]}"
    if status != TAGGED:
        return NAMES[status]
    names = tags.schemas.names[int(tags.schema[at])]
    return "(" + ", ".join(f"{name}={field_text(tags.field(name), at)}" for name in names) + ")"
