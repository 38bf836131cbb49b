"""The last accesses of each cell, and the order between two accesses.

The clocks of teams order accesses within a block. Nothing orders accesses of different blocks.

An access of a segment is ordered before another access of the same block if the team of the second one knows that
segment (argus/simulate/clock.py), or if one thread makes both. There is no implicit order between the lanes of a warp.
A team that knows the phase of an mbarrier knows of the bulk copies whose bytes the phase counts. A team that knows the
segment in which an asynchronous product was waited for knows of the product's reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from argus.simulate.numeric import Array

NOBODY = -1


class Touch(Enum):
    """The kinds of access to a cell.

    `ACCUMULATE` is atomic, so two of them do not conflict. `MULTIPLY` is the read of an asynchronous product. A bulk
    store makes a `BULK_READ` of its source and a `BULK_WRITE` of its target. `BULK_ACCUMULATE` is a bulk reduction's
    update of its target; two of them do not conflict.
    """

    READ = "read"
    WRITE = "write"
    ACCUMULATE = "accumulate"
    MULTIPLY = "read by an asynchronous product"
    BULK_READ = "read by a bulk store"
    BULK_WRITE = "write by a bulk store"
    BULK_ACCUMULATE = "update by a bulk reduction"

    @property
    def reads(self) -> bool:
        """True if the access does not change the cell."""
        return self in (Touch.READ, Touch.MULTIPLY, Touch.BULK_READ)

    @property
    def verb(self) -> str:
        """The copy engine's action in such an access, as one verb."""
        verbs = {Touch.BULK_READ: "read", Touch.BULK_WRITE: "write", Touch.BULK_ACCUMULATE: "accumulate"}
        return verbs.get(self, self.value)

    @property
    def of_store(self) -> bool:
        """True for an access of a bulk store or reduction."""
        return self in (Touch.BULK_READ, Touch.BULK_WRITE, Touch.BULK_ACCUMULATE)


_AGAINST: dict[Touch, tuple[Touch, ...]] = {
    Touch.READ: (Touch.WRITE, Touch.ACCUMULATE, Touch.BULK_WRITE, Touch.BULK_ACCUMULATE),
    Touch.WRITE: (
        Touch.WRITE, Touch.READ, Touch.MULTIPLY, Touch.ACCUMULATE, Touch.BULK_READ, Touch.BULK_WRITE,
        Touch.BULK_ACCUMULATE,
    ),
    Touch.ACCUMULATE: (
        Touch.WRITE, Touch.READ, Touch.MULTIPLY, Touch.BULK_READ, Touch.BULK_WRITE, Touch.BULK_ACCUMULATE,
    ),
    Touch.MULTIPLY: (Touch.WRITE, Touch.ACCUMULATE),
    Touch.BULK_READ: (Touch.WRITE, Touch.ACCUMULATE),
    Touch.BULK_WRITE: (Touch.WRITE, Touch.READ, Touch.ACCUMULATE, Touch.BULK_WRITE, Touch.BULK_ACCUMULATE),
    Touch.BULK_ACCUMULATE: (Touch.WRITE, Touch.READ, Touch.ACCUMULATE, Touch.BULK_WRITE),
}  # fmt: skip
_ORDINARY = (Touch.READ, Touch.WRITE, Touch.ACCUMULATE)
UNFINISHED = np.iinfo(np.int32).max
"""The segment of unfinished work, which is later than every known segment."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The time and place of accesses: the block's number, the team and its segment, the team's knowledge (`known` and
    `fenced` of its clock), and the event (an index into the event list)."""

    block: int
    team: int
    segment: int
    known: Array
    fenced: Array
    event: int


@dataclass(frozen=True, slots=True)
class Conflict:
    """Conflicts: where `bad[i]`, access i has no order with an earlier access by `thread` of `block` at `event`.
    `bulk`: the copy engine made the earlier access for that thread. `unfinished`: the earlier access is still in
    flight."""

    bad: Array
    thread: int
    block: int
    event: int
    earlier: Touch
    bulk: bool = False
    unfinished: bool = False


class Track:
    """A table that holds, for each cell, the last segment in which a team accessed it in one way, and up to two
    distinct threads and blocks."""

    __slots__ = ("block", "block2", "event", "fence", "segment", "thread", "thread2")

    def __init__(self, cells: int) -> None:
        self.fence = np.full(cells, NOBODY, dtype=np.int32)
        self.segment = np.full(cells, NOBODY, dtype=np.int32)
        self.event = np.full(cells, NOBODY, dtype=np.int32)
        self.thread = np.full(cells, NOBODY, dtype=np.int16)
        self.thread2 = np.full(cells, NOBODY, dtype=np.int16)
        self.block = np.full(cells, NOBODY, dtype=np.int32)
        self.block2 = np.full(cells, NOBODY, dtype=np.int32)

    def grow(self, cells: int) -> None:
        """Make room for `cells` cells. New cells have no accesses."""
        for name in self.__slots__:
            setattr(self, name, _grown(getattr(self, name), cells))

    def conflicts(self, cell: Array, thread: Array, now: Moment, known: int) -> Array:
        """Return a bool array: the cell was accessed by another thread after segment `known`, or by another block."""
        unknown: Array = self.segment[cell] > known
        block = self.block[cell]
        elsewhere = (block != NOBODY) & (block != now.block)
        if not unknown.any() and not elsewhere.any():
            return unknown
        # Two distinct threads are recorded, so if the first is this one, the second is another.
        other = (self.thread[cell] != thread) | (self.thread2[cell] != NOBODY)
        result: Array = (unknown & other) | elsewhere | (self.block2[cell] != NOBODY)
        return result

    def touch(self, cell: Array, thread: Array, now: Moment, warp: bool) -> Array:
        """Record accesses. Return a bool array: another thread accessed the same cell in this very statement.

        `warp`: every lane of the thread's warp takes part.
        """
        fresh = self.segment[cell] <= now.known[now.team]
        first = cell[fresh]
        self.thread[first] = thread[fresh]
        self.thread2[first] = NOBODY
        self.segment[cell] = now.segment
        self.event[cell] = now.event
        several = self.thread[cell] != thread
        self.thread2[cell[several]] = thread[several]
        if warp:
            self.thread2[cell] = thread ^ 1
            self.thread[cell] = thread
        block = self.block[cell]
        self.block[cell[block == NOBODY]] = now.block
        self.block2[cell[(block != NOBODY) & (block != now.block)]] = now.block
        together: Array = several & fresh
        return together

    def begin(self, cell: Array, thread: int, now: Moment) -> None:
        """Record accesses of all threads of a team, or of the copy engine, that are in flight from now on."""
        self.segment[cell], self.event[cell], self.block[cell] = UNFINISHED, now.event, now.block
        self.thread[cell], self.thread2[cell] = thread, thread + 1

    def finish(self, cell: Array, event: int, segment: int, alone: bool = False) -> None:
        """Record that accesses begun at `event` end in `segment`, on cells without later accesses.

        `alone`: only one thread knows that they have ended.
        """
        mine = cell[self.event[cell] == event]
        self.segment[mine] = segment
        if alone:
            self.thread2[mine] = NOBODY

    def fenced(self, active: Array, first: int, known: int, segment: int) -> None:
        """Record that some threads of the team (bool `active`, from thread `first` on) fence their accesses after
        `known`."""
        cell = np.flatnonzero((self.segment > known) & (self.thread2 == NOBODY))
        self.fence[cell[active[self.thread[cell] - first]]] = segment

    def culprit(self, cell: int, thread: int, now: Moment) -> tuple[int, int, int]:
        """Return (thread, block, event) of an earlier access to `cell` by an agent other than `thread` of this block.
        """
        block = int(self.block[cell])
        if block not in (NOBODY, now.block):
            return int(self.thread[cell]), block, int(self.event[cell])
        if int(self.block2[cell]) not in (NOBODY, now.block):
            return int(self.thread[cell]), int(self.block2[cell]), int(self.event[cell])
        first, second = int(self.thread[cell]), int(self.thread2[cell])
        if int(self.segment[cell]) == UNFINISHED:
            return first, now.block, int(self.event[cell])
        return (second if first == thread and second != NOBODY else first), now.block, int(self.event[cell])


class BulkTrack:
    """A table that holds, for each cell, the last access of the copy engine, which is complete for teams that know
    `phase` phases of an mbarrier; and up to two distinct blocks of such accesses."""

    __slots__ = ("barrier", "block", "block2", "event", "phase", "thread")

    def __init__(self, cells: int) -> None:
        for name in self.__slots__:
            setattr(self, name, np.full(cells, NOBODY, dtype=np.int32))

    barrier: Array
    block: Array
    block2: Array
    event: Array
    phase: Array
    thread: Array

    def grow(self, cells: int) -> None:
        """Make room for `cells` cells. New cells have no accesses."""
        for name in self.__slots__:
            setattr(self, name, _grown(getattr(self, name), cells))

    def conflicts(self, cell: Array, now: Moment) -> Array:
        """Return a bool array: a copy of this block whose end is not known accesses the cell, or a copy of another
        block does."""
        barrier, block = self.barrier[cell], self.block[cell]
        elsewhere = (block != NOBODY) & (block != now.block) | (self.block2[cell] != NOBODY)
        result: Array = elsewhere | ((barrier != NOBODY) & (now.known[barrier] < self.phase[cell]))
        return result

    def touch(self, cell: Array, thread: int, now: Moment, barrier: int, phase: int) -> None:
        """Record a copy whose bytes component `barrier` counts, and which is complete after `phase` phases."""
        before = self.block[cell]
        moved = cell[(before != NOBODY) & (before != now.block)]
        self.block2[moved] = self.block[moved]
        self.barrier[cell], self.phase[cell] = barrier, phase
        self.event[cell], self.thread[cell], self.block[cell] = now.event, thread, now.block

    def culprit(self, cell: int, now: Moment) -> int:
        """Return the block of a conflicting access to `cell`, preferably one other than the current block."""
        other = int(self.block2[cell])
        return other if other != NOBODY and self.block[cell] == now.block else int(self.block[cell])


class MemoryOrder:
    """The tracks of one memory by team, and the cells that an asynchronous copy has not written or read yet.

    Tracks begin with the first access of their kind. `pending` exists for asynchronous copies of threads.
    """

    __slots__ = ("bulk", "cells", "pending_read", "pending_write", "tracks")

    def __init__(self, cells: int, asynchronous: bool) -> None:
        self.cells = cells
        self.tracks: dict[tuple[Touch, int], Track] = {}
        self.bulk: dict[Touch, BulkTrack] = {}
        pending = cells if asynchronous else 0
        self.pending_write = np.full(pending, NOBODY, dtype=np.int32)
        self.pending_read = np.full(pending, NOBODY, dtype=np.int32)

    def grow(self, cells: int) -> None:
        """Make room for `cells` cells."""
        self.cells = cells
        for track in self.tracks.values():
            track.grow(cells)
        for copies in self.bulk.values():
            copies.grow(cells)
        if len(self.pending_read):
            self.pending_write = _grown(self.pending_write, cells)
            self.pending_read = _grown(self.pending_read, cells)

    def fence(self, team: int, active: Array, first: int, known: int, segment: int) -> None:
        """Some threads of a team fence their ordinary accesses (`Track.fenced`)."""
        for (kind, number), track in self.tracks.items():
            if number == team and kind in _ORDINARY:
                track.fenced(active, first, known, segment)

    def track(self, touch: Touch, team: int) -> Track:
        """Return the accesses of one kind by one team."""
        key = (touch, team)
        if key not in self.tracks:
            self.tracks[key] = Track(self.cells)
        return self.tracks[key]

    def bulk_track(self, touch: Touch) -> BulkTrack:
        """Return the accesses of one kind by the copy engine."""
        if touch not in self.bulk:
            self.bulk[touch] = BulkTrack(self.cells)
        return self.bulk[touch]

    def access(self, touch: Touch, cell: Array, thread: Array, now: Moment, warp: bool) -> Conflict | None:
        """Check the accesses against all earlier ones and record them. Return the first kind of conflict found."""
        found = self.check(touch, cell, thread, now)
        track = self.track(touch, now.team)
        together = track.touch(cell, thread, now, warp)
        if found is None and touch is Touch.WRITE and together.any():
            at = int(np.argmax(together))
            return Conflict(together, int(track.thread[cell[at]]), now.block, now.event, touch)
        return found

    def check(self, touch: Touch, cell: Array, thread: Array, now: Moment) -> Conflict | None:
        """Return the conflicts of accesses with earlier ones. The accesses are not recorded."""
        for earlier, track in self._against(touch):
            bad = track.conflicts(cell, thread, now, int(now.known[earlier[1]]))
            if bad.any():
                at = int(np.argmax(bad))
                who, block, event = track.culprit(int(cell[at]), int(thread[at]), now)
                unfinished = int(track.segment[cell[at]]) == UNFINISHED
                return Conflict(bad, who, block, event, earlier[0], unfinished=unfinished)
        for kind, copies in self.bulk.items():
            if kind not in _AGAINST[touch]:
                continue
            bad = copies.conflicts(cell, now)
            if bad.any():
                first = cell[int(np.argmax(bad))]
                owner = copies.culprit(int(first), now)
                return Conflict(bad, int(copies.thread[first]), owner, int(copies.event[first]), kind, True)
        return None

    def unfenced(self, touch: Touch, cell: Array, now: Moment, issuer: int, fences: bool) -> Conflict | None:
        """Return the earlier ordinary accesses of the block that no proxy fence orders before asynchronous ones, or
        None.

        `issuer`: the thread that issues the asynchronous accesses, if it is a single thread. `fences`: proxy fences
        apply, which holds only for shared memory.
        """
        for (earlier, team), track in self._against(touch):
            if earlier not in _ORDINARY:
                continue
            segment, fence = track.segment[cell], track.fence[cell]
            itself = (fence >= segment) & ((fence <= now.known[team]) | (track.thread[cell] == issuer))
            unordered = (segment > now.fenced[team]) & ~itself if fences else segment != NOBODY
            bad = unordered & (track.block[cell] == now.block)
            if bad.any():
                first = cell[int(np.argmax(bad))]
                return Conflict(bad, int(track.thread[first]), now.block, int(track.event[first]), earlier)
        return None

    def writer(self, cell: int) -> int | None:
        """Return the thread that last wrote the cell or issued a copy to it, or None if there is none."""
        kinds = (Touch.WRITE, Touch.BULK_WRITE)
        writes = [(int(t.event[cell]), int(t.thread[cell])) for (kind, _), t in self.tracks.items() if kind in kinds]
        writes += [(int(c.event[cell]), int(c.thread[cell])) for kind, c in self.bulk.items() if kind is Touch.WRITE]
        event, thread = max(writes, default=(NOBODY, NOBODY))
        return None if event == NOBODY else thread

    def _against(self, touch: Touch) -> list[tuple[tuple[Touch, int], Track]]:
        """Return the tracks with which accesses of a kind may conflict."""
        return [(key, track) for kind in _AGAINST[touch] for key, track in self.tracks.items() if key[0] is kind]


def _grown(old: Array, cells: int) -> Array:
    new = np.full(cells, NOBODY, dtype=old.dtype)
    new[: len(old)] = old
    return new
