"""Vector clocks over teams and mbarriers: they state what teams of threads know of each other.

A team is the whole block, or one role. Its accesses are counted in segments, numbers that grow through a whole run; a
new segment begins after everything that releases accesses to others: a barrier, an arrival, a proxy fence. Component
i of a clock is the last segment of team i, or the number of completed phases of an mbarrier, that lies before.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from argus.simulate.numeric import Array


@dataclass(slots=True)
class Clock:
    """`known`: what all threads of the team are ordered after. `fenced`: ordinary accesses that a proxy fence has
    ordered before asynchronous ones. `over`: phases that are over, as bulk copies tell as well: they were issued after
    them, but pass on nobody's accesses."""

    known: Array
    fenced: Array
    over: Array

    @staticmethod
    def start(components: int) -> Clock:
        """Nothing has happened."""
        return Clock(*(np.zeros(components, dtype=np.int64) for _ in range(3)))

    def copy(self) -> Clock:
        return Clock(self.known.copy(), self.fenced.copy(), self.over.copy())

    def join(self, other: Clock) -> None:
        """Learn all that `other` knows."""
        np.maximum(self.known, other.known, out=self.known)
        np.maximum(self.fenced, other.fenced, out=self.fenced)
        np.maximum(self.over, other.over, out=self.over)

    def ended(self) -> Array:
        """Return all that is known to have happened, including phases whose end orders no accesses."""
        return np.maximum(self.known, self.over)


@dataclass(slots=True, eq=False)
class Team:
    """Threads `first` to `first + threads - 1` of the block; component `number` of every clock."""

    name: str
    number: int
    first: int
    threads: int
    clock: Clock
    segment: int
    committed: int = 0
    """Groups of asynchronous products closed so far."""
    first_fenced: Array = field(init=False)
    some_fenced: Array = field(init=False)
    """What a proxy fence of the first thread, or of some threads, has ordered before asynchronous accesses."""
    stored: int = 0
    """Groups of bulk stores closed so far by the first thread."""
    drained: int = 0
    """The last segment whose accesses every thread has waited for by lgkmcnt."""
    counts: dict[str, Array] = field(default_factory=dict)
    """Of every running count: how many iterations each thread began, modulo its wrap."""

    def __post_init__(self) -> None:
        self.first_fenced, self.some_fenced = np.zeros_like(self.clock.fenced), np.zeros_like(self.clock.fenced)

    def joined(self, drained: bool = False) -> None:
        """All threads of the team have met; `drained`: only what they had waited for (WaveBarrier) is in order."""
        before = self.clock.known[self.number]
        self.clock.known[self.number] = max(before, self.drained) if drained else self.segment
        np.maximum(self.clock.fenced, self.some_fenced, out=self.clock.fenced)

    def fence(self) -> None:
        """Every thread orders what it did and knows before asynchronous accesses."""
        np.maximum(self.clock.fenced, self.clock.known, out=self.clock.fenced)
        self.clock.fenced[self.number] = self.segment

    def partly_fence(self, first: bool) -> None:
        """Some threads order what the team knows before what is asynchronous and ordered after them; `first`: the first
        thread is one of them."""
        for fenced in (self.some_fenced, self.first_fenced) if first else (self.some_fenced,):
            np.maximum(fenced, self.clock.known, out=fenced)

    def released(self, whole: bool) -> Clock:
        """Return the clock that an arrival passes on. `whole`: the accesses of every thread are before the arrival."""
        clock = self.clock.copy()
        if whole:
            clock.known[self.number] = self.segment
            np.maximum(clock.fenced, self.some_fenced, out=clock.fenced)
        return clock
