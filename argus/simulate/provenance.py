"""The path of a value: all movements of tags are recorded, and read backwards from a witness."""

from __future__ import annotations

from collections import Counter

import numpy as np

from argus.diagnostic import Note
from argus.simulate.machine import Block, Brought, Moved
from argus.simulate.numeric import Array

_LONGEST = 12
_REMEMBERED = 1 << 24
"""Largest number of elements of movements that a block records. Older movements are dropped."""


def hop(
    block: Block,
    event: int,
    target: str,
    cells: Array,
    sources: tuple[tuple[str, Array], ...],
    brought: Brought | None = None,
) -> None:
    """Record that `cells[i]` of `target` came from position i of the sources (-1: from none)."""
    block.trace.append(Moved(event, target, cells, sources, brought))
    block.traced += len(cells) * (1 + len(sources))
    while block.traced > _REMEMBERED and len(block.trace) > 1:
        old = block.trace.pop(0)
        block.traced -= len(old.cells) * (1 + len(old.sources))


def way(block: Block, name: str, cell: int) -> tuple[Note, ...]:
    """Trace how the value in `cell` of the object `name` came there, first hop first."""
    notes: list[Note] = []
    for moved in reversed(block.trace):
        if moved.target != name:
            continue
        found = np.flatnonzero(moved.cells == cell)
        if not len(found):
            continue
        at = int(found[-1])
        origin = next(((n, int(c[at])) for n, c in moved.sources if c[at] >= 0), None)
        notes.append(block.run.log.note(moved.event, _hop_text(block, name, cell, origin)))
        if origin is None or len(notes) >= _LONGEST:
            break
        name, cell = origin
    return tuple(reversed(notes))


def members(block: Block, name: str, cell: int, field: str) -> Counter[int] | None:
    """Return every contribution to a field of the value in `cell`, with its multiplicity. Return None if not all were
    recorded."""
    found: Counter[int] = Counter()
    for moved in reversed(block.trace):
        if moved.target != name:
            continue
        positions = np.flatnonzero(moved.cells == cell)
        if not len(positions):
            continue
        if moved.brought is None:
            origin = next(((n, int(c[positions[-1]])) for n, c in moved.sources if c[positions[-1]] >= 0), None)
            if origin is None or found:
                return found
            name, cell = origin
            continue
        for position in positions:
            brought = moved.brought.members(int(position), field)
            if brought is None:
                return None
            found.update(brought)
    return None


def _hop_text(block: Block, name: str, cell: int, origin: tuple[str, int] | None) -> str:
    came = _place(block, *origin) if origin is not None else "a constant or an index computation"
    return f"{_place(block, name, cell)} from {came}"


def _place(block: Block, name: str, cell: int) -> str:
    memory = block.memories[name]
    index = ", ".join(str(i) for i in memory.logical(cell))
    return f"{name}[{index}] ({memory.physical(cell)}{block.holder(memory, cell)})"
