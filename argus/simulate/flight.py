"""Asynchronous work in flight: copies by threads, copies by the copy engine, matrix products."""

from __future__ import annotations

from dataclasses import dataclass

from argus.ir.nodes import Accumulate, Copy
from argus.simulate.memory import Memory, Registers
from argus.simulate.numeric import Array
from argus.simulate.phase import Mbarrier
from argus.simulate.step import AccessCells, Step
from argus.simulate.tagset import Tags


@dataclass(slots=True)
class Landing:
    """A thread's asynchronous copy in flight: its data, and the threads that wait for each of its groups."""

    event: int
    memory: Memory
    source: Memory
    thread: Array
    group: Array
    cell: Array
    values: Array
    tags: Tags | None
    source_cell: Array
    """The source's cell of each element, or -1 for a fill value."""


@dataclass(slots=True, eq=False)
class Bulk:
    """A bulk copy of a box in flight. `barrier` counts its `nbytes`, in the phase after the first `phase` ones.
    `after`: what had happened when it was issued (`Clock.ended`)."""

    step: Step
    memory: Memory
    source: Memory
    cell: Array
    values: Array
    tags: Tags | None
    source_cell: Array
    barrier: Mbarrier
    phase: int
    nbytes: int
    after: Array


@dataclass(slots=True, eq=False)
class Store:
    """A bulk store of a box in flight, issued by `stmt`: `source.cell[i]` goes to `target.cell[i]` at the positions
    `at`, which are in the tensor. The engine reads the box at the positions `read`. `group` is None before the commit.

    `values` and `tags` are the contents that it read, or None before it has read them. `waited`: a wait covers the
    read. `written`: the box has arrived.
    """

    step: Step
    stmt: Copy | Accumulate
    source: AccessCells
    target: AccessCells
    at: Array
    read: Array
    values: Array | None = None
    tags: Tags | None = None
    group: int | None = None
    waited: bool = False
    written: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """The cells of a product that are multiplied together: `a` `[m, k]`, `b` `[n, k]`, `d` `[m, n]`."""

    a: Array
    b: Array
    d: Array


@dataclass(slots=True, eq=False)
class Product:
    """A product `d += a b^T` in flight, in parts. `group` is None before the commit.

    `values` are the operands of every part if they were read at the issue, or None if they are read when the product
    completes.
    """

    step: Step
    a: Memory
    b: Memory
    d: Registers
    parts: tuple[Part, ...]
    values: list[tuple[Array, Array]] | None = None
    group: int | None = None

    def operands(self) -> list[tuple[Array, Array]]:
        """Return the current values of a and b of every part."""
        return [(self.a.load(p.a), self.b.load(p.b)) for p in self.parts]
