"""Who touched a cell last, and what orders two accesses: barriers within a block, nothing between blocks.

Time is counted in epochs: a barrier, and the start of a block, begins a new one. Two accesses of one block are
ordered if a barrier lies between them (their epochs differ) or if one thread makes both. There is no implicit
order between the lanes of a warp.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from argus.simulate.numeric import Array

NOBODY = -1


class Touch(Enum):
    """How a cell is touched. `ACCUMULATE` is atomic: two of them do not conflict."""

    READ = "read"
    WRITE = "write"
    ACCUMULATE = "accumulate"


_AGAINST: dict[Touch, tuple[Touch, ...]] = {
    Touch.READ: (Touch.WRITE, Touch.ACCUMULATE),
    Touch.WRITE: (Touch.WRITE, Touch.READ, Touch.ACCUMULATE),
    Touch.ACCUMULATE: (Touch.WRITE, Touch.READ),
}


@dataclass(frozen=True, slots=True)
class Moment:
    """When and where accesses happen: the block's number, the epoch, the event (an index into the event list)."""

    block: int
    epoch: int
    event: int


@dataclass(frozen=True, slots=True)
class Conflict:
    """`bad[i]`: access i has no order with an earlier one, made by `thread` of `block` at `event`."""

    bad: Array
    thread: int
    block: int
    event: int
    earlier: Touch


class Track:
    """Per cell, the last epoch in which it was touched in one way, and up to two distinct threads and blocks."""

    __slots__ = ("block", "block2", "epoch", "event", "thread", "thread2")

    def __init__(self, cells: int) -> None:
        self.epoch = np.full(cells, NOBODY, dtype=np.int32)
        self.event = np.full(cells, NOBODY, dtype=np.int32)
        self.thread = np.full(cells, NOBODY, dtype=np.int16)
        self.thread2 = np.full(cells, NOBODY, dtype=np.int16)
        self.block = np.full(cells, NOBODY, dtype=np.int32)
        self.block2 = np.full(cells, NOBODY, dtype=np.int32)

    def grow(self, cells: int) -> None:
        """Room for `cells` cells; new ones are untouched."""
        for name in self.__slots__:
            setattr(self, name, _grown(getattr(self, name), cells))

    def conflicts(self, cell: Array, thread: Array, now: Moment) -> Array:
        """bool: the cell was touched before by another thread of this epoch, or by another block."""
        same_epoch: Array = self.epoch[cell] == now.epoch
        block = self.block[cell]
        elsewhere = (block != NOBODY) & (block != now.block)
        if not same_epoch.any() and not elsewhere.any():
            return same_epoch
        # Two distinct threads are recorded, so if the first is this one, the second is another.
        other = (self.thread[cell] != thread) | (self.thread2[cell] != NOBODY)
        result: Array = (same_epoch & other) | elsewhere | (self.block2[cell] != NOBODY)
        return result

    def touch(self, cell: Array, thread: Array, now: Moment, warp: bool) -> Array:
        """Record accesses; bool: another thread touched the same cell in this very statement.

        `warp`: every lane of the thread's warp takes part.
        """
        fresh = self.epoch[cell] != now.epoch
        first = cell[fresh]
        self.thread[first] = thread[fresh]
        self.thread2[first] = NOBODY
        self.epoch[cell] = now.epoch
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

    def culprit(self, cell: int, thread: int, now: Moment) -> tuple[int, int, int]:
        """(thread, block, event) of an earlier access to `cell` by someone else than `thread` of this block."""
        block = int(self.block[cell])
        if block not in (NOBODY, now.block):
            return int(self.thread[cell]), block, int(self.event[cell])
        if int(self.block2[cell]) not in (NOBODY, now.block):
            return int(self.thread[cell]), int(self.block2[cell]), int(self.event[cell])
        first, second = int(self.thread[cell]), int(self.thread2[cell])
        return (second if first == thread and second != NOBODY else first), now.block, int(self.event[cell])


class Order:
    """The tracks of one memory, and its cells that an asynchronous copy is still to write or to read.

    Tracks exist for the ways in which the kernel touches the memory at all, `pending` for asynchronous copies.
    """

    __slots__ = ("pending_read", "pending_write", "tracks")

    def __init__(self, cells: int, touches: tuple[Touch, ...], asynchronous: bool) -> None:
        self.tracks = {touch: Track(cells) for touch in touches}
        pending = cells if asynchronous else 0
        self.pending_write = np.full(pending, NOBODY, dtype=np.int32)
        self.pending_read = np.full(pending, NOBODY, dtype=np.int32)

    def grow(self, cells: int) -> None:
        """Room for `cells` cells."""
        for track in self.tracks.values():
            track.grow(cells)
        if len(self.pending_read):
            self.pending_write = _grown(self.pending_write, cells)
            self.pending_read = _grown(self.pending_read, cells)

    def access(self, touch: Touch, cell: Array, thread: Array, now: Moment, warp: bool) -> Conflict | None:
        """Check the accesses against all earlier ones, then record them; the first kind of conflict found."""
        found = self.check(touch, cell, thread, now)
        track = self.tracks[touch]
        together = track.touch(cell, thread, now, warp)
        if found is None and touch is Touch.WRITE and together.any():
            at = int(np.argmax(together))
            return Conflict(together, int(track.thread[cell[at]]), now.block, now.event, touch)
        return found

    def check(self, touch: Touch, cell: Array, thread: Array, now: Moment) -> Conflict | None:
        """The conflicts of accesses with earlier ones, without recording them."""
        for earlier in _AGAINST[touch]:
            track = self.tracks.get(earlier)
            if track is None:
                continue
            bad = track.conflicts(cell, thread, now)
            if bad.any():
                at = int(np.argmax(bad))
                who, block, event = track.culprit(int(cell[at]), int(thread[at]), now)
                return Conflict(bad, who, block, event, earlier)
        return None


def _grown(old: Array, cells: int) -> Array:
    new = np.full(cells, NOBODY, dtype=old.dtype)
    new[: len(old)] = old
    return new
