"""Vector clocks over teams and mbarriers. They describe what teams of threads know of each other.

A team is the whole block, or one role. Its accesses are counted in segments, whose numbers grow through a whole run. A
new segment begins after every statement that releases accesses to others: a barrier, an arrival, a proxy fence.
Component i of a clock is the last segment of team i that is known to be over, or the number of phases of an mbarrier
that are known to be complete.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from argus.simulate.numeric import Array


@dataclass(slots=True)
class Clock:
    """A clock of a team. `known`: the segments and phases that all threads of the team are ordered after. `fenced`:
    the ordinary accesses that a proxy fence has ordered before asynchronous ones. `over`: the phases known to be
    over, including those known from bulk copies, which are issued after them but make no accesses of other threads
    visible."""

    known: Array
    fenced: Array
    over: Array

    @staticmethod
    def start(components: int) -> Clock:
        """Return the clock of a team that knows nothing."""
        return Clock(*(np.zeros(components, dtype=np.int64) for _ in range(3)))

    def copy(self) -> Clock:
        return Clock(self.known.copy(), self.fenced.copy(), self.over.copy())

    def join(self, other: Clock) -> None:
        """Add all knowledge of `other`."""
        np.maximum(self.known, other.known, out=self.known)
        np.maximum(self.fenced, other.fenced, out=self.fenced)
        np.maximum(self.over, other.over, out=self.over)

    def ended(self) -> Array:
        """Return everything that is known to have happened, including phases whose end orders no accesses."""
        return np.maximum(self.known, self.over)


@dataclass(slots=True, eq=False)
class Team:
    """The threads `first` to `first + threads - 1` of the block. `number` is the team's component in every clock."""

    name: str
    number: int
    first: int
    threads: int
    clock: Clock
    segment: int
    committed: int = 0
    """Number of groups of asynchronous products closed so far."""
    first_fenced: Array = field(init=False)
    some_fenced: Array = field(init=False)
    """The accesses that a proxy fence of the first thread, or of some threads, has ordered before asynchronous
    accesses."""
    stored: int = 0
    """Number of groups of bulk stores that the first thread has closed so far."""
    drained: int = 0
    """The last segment whose accesses every thread has waited for by lgkmcnt."""
    members: Array | None = None
    """A mask of the block's threads that form the team, if its frames are those of the whole block."""
    counts: dict[str, Array] = field(default_factory=dict)
    """For each running count: the number of iterations that each thread began, modulo the count's wrap."""

    def __post_init__(self) -> None:
        self.first_fenced, self.some_fenced = np.zeros_like(self.clock.fenced), np.zeros_like(self.clock.fenced)

    def joined(self, drained: bool = False) -> None:
        """Record that all threads of the team have synchronised. With `drained`, only accesses that they had waited for
        are ordered (WaveBarrier)."""
        before = self.clock.known[self.number]
        self.clock.known[self.number] = max(before, self.drained) if drained else self.segment
        np.maximum(self.clock.fenced, self.some_fenced, out=self.clock.fenced)

    def fence(self) -> None:
        """Order the accesses of every thread, and those it knows of, before later asynchronous accesses."""
        np.maximum(self.clock.fenced, self.clock.known, out=self.clock.fenced)
        self.clock.fenced[self.number] = self.segment

    def partly_fence(self, first: bool) -> None:
        """Order the team's known accesses before asynchronous accesses that are ordered after the fence of some
        threads. `first`: the first thread is one of them."""
        for fenced in (self.some_fenced, self.first_fenced) if first else (self.some_fenced,):
            np.maximum(fenced, self.clock.known, out=fenced)

    def released(self, whole: bool) -> Clock:
        """Return the clock that an arrival passes on. `whole`: the arrival comes after the accesses of every thread."""
        clock = self.clock.copy()
        if whole:
            clock.known[self.number] = self.segment
            np.maximum(clock.fenced, self.some_fenced, out=clock.fenced)
        return clock
