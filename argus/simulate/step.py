"""One execution of a statement: the executing threads, the elements, and the cells that it accesses."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from argus.ir.nodes import Stmt
from argus.layout import FragmentLayout
from argus.simulate.clock import Team
from argus.simulate.memory import Memory
from argus.simulate.numeric import Array


@dataclass(frozen=True, slots=True)
class Program:
    """One program of the grid: its ids, and its number in this run."""

    index: tuple[int, ...]
    number: int


@dataclass(frozen=True, slots=True)
class Frame:
    """The threads of a team that execute (bool `[T]`), the loop counters, and the program that they run."""

    active: Array
    loops: dict[str, int]
    team: Team
    program: Program

    @property
    def whole(self) -> bool:
        """True if all threads of the team execute."""
        return bool(self.active.all() if self.team.members is None else self.active[self.team.members].all())

    @property
    def threads(self) -> Array:
        """The numbers of the executing threads in the block."""
        return np.flatnonzero(self.active) + self.team.first


@dataclass(frozen=True, slots=True)
class Domain:
    """A statement's elements in the order of registers: all n = T * V elements, thread by thread.

    `thread` counts the team's own threads.
    """

    shape: tuple[int, int]
    coords: tuple[Array, ...]
    thread: Array
    primary: Array
    layout: FragmentLayout | None

    @property
    def size(self) -> int:
        return self.shape[0] * self.shape[1]

    def flat(self, values: Array) -> Array:
        """Broadcast to all n elements."""
        return np.broadcast_to(values, self.shape).reshape(-1)


@lru_cache(maxsize=256)
def domain_of(layout: FragmentLayout | None, threads: int) -> Domain:
    """Return the domain that `layout` spreads over a team. None stands for one element for each thread, without
    coordinates."""
    if layout is None:
        thread = np.arange(threads)
        return Domain((threads, 1), (), thread, np.ones(threads, dtype=np.bool_), None)
    table = layout.coordinates().astype(np.int64)
    shape = (table.shape[0], table.shape[1])
    thread = np.repeat(np.arange(shape[0]), shape[1])
    coords = tuple(np.ascontiguousarray(table[:, :, axis]) for axis in range(layout.rank))
    return Domain(shape, coords, thread, layout.primary().reshape(-1), layout)


@lru_cache(maxsize=64)
def box_domain(shape: tuple[int, ...]) -> Domain:
    """Return all elements of a box in row-major order, computed by one thread."""
    coords = tuple(c.reshape(1, -1).astype(np.int64) for c in np.indices(shape))
    n = int(np.prod(shape, dtype=np.int64))
    return Domain((1, n), coords, np.zeros(n, dtype=np.int64), np.ones(n, dtype=np.bool_), None)


@dataclass(frozen=True, slots=True)
class Step:
    """One execution of a statement: its threads, domain and event number."""

    stmt: Stmt
    frame: Frame
    domain: Domain
    event: int
    on: Array
    """A mask `[n]` of the elements of executing threads."""

    @property
    def thread(self) -> Array:
        """The thread of each element, counted in the block."""
        first = self.frame.team.first
        return self.domain.thread + first if first else self.domain.thread


@dataclass(frozen=True, slots=True)
class AccessCells:
    """The cells of an access: `cell[i]` for the elements `ok[i]`. `coords` are logical coordinates, one array for each
    dimension.

    `wanted` are the elements at which the program makes the access: those in `ok`, and those that have no cell.
    """

    memory: Memory
    cell: Array
    coords: tuple[Array, ...]
    ok: Array
    wanted: Array
