"""Places shared tiles in the block's shared memory.

    shared sa[128x64 bf16], sb[...]         ->  sa at byte 0, sb at byte 16384

Tiles follow one another, aligned to 128 bytes (1024 if swizzled); those that the author placed stay. If they do not
fit that way, a tile may take the bytes of tiles that are not used any more, behind a barrier; not where bulk copies
fill them, which a barrier does not order. mbarriers stand after all tiles.
"""

from __future__ import annotations

from dataclasses import replace

from argus.diagnostic import Note
from argus.ir.nodes import Barrier, Kernel, Mbarrier, Shared, Stmt
from argus.ir.visit import walk
from argus.layout.swizzle import SwizzledLayout
from argus.passes.fresh import touches
from argus.passes.moves import target_of
from argus.passes.report import LoweringError, problem

_ALIGNMENT = 128
_SWIZZLED = 1024

Life = tuple[int, int]
"""First and last statement of the kernel's body (a loop counts as one) in which a tile occurs."""


def allocate_shared(kernel: Kernel) -> Kernel:
    """Give every shared tile its byte offset. Raises `LoweringError` if they do not fit."""
    target = target_of(kernel)
    lives = tile_lives(kernel)
    everywhere = dict.fromkeys(lives, (0, len(kernel.body)))
    placed = _place(kernel, everywhere)
    barriers, end = _mbarriers(kernel, _end(placed))
    if end <= target.shared_bytes:
        return replace(kernel, shared=placed, barriers=barriers)
    if not kernel.barriers:
        placed = _place(kernel, lives)
        end = _end(placed)
        if end <= target.shared_bytes:
            return replace(kernel, shared=placed, body=_separated(kernel.body, placed, lives))
    notes = tuple(
        Note(f"{s.name}: {'x'.join(str(n) for n in s.shape)} of {s.dtype}, {tile_bytes(s)} bytes", s.span)
        for s in placed
    )
    raise LoweringError(
        problem(
            "shared-memory",
            f"the block needs {end} bytes of shared memory, and {target.name} has {target.shared_bytes}",
            kernel.span,
            "use smaller tiles or fewer stages",
            notes,
        )
    )


def _mbarriers(kernel: Kernel, end: int) -> tuple[tuple[Mbarrier, ...], int]:
    """The mbarriers after the tiles, which end at byte `end`; and where they end."""
    placed: list[Mbarrier] = []
    for barrier in kernel.barriers:
        offset = -(-end // 8) * 8 if barrier.offset is None else barrier.offset
        placed.append(replace(barrier, offset=offset))
        end = max(end, offset + 8 * barrier.count)
    return tuple(placed), end


def tile_bytes(tile: Shared) -> int:
    """Bytes from the tile's first to its last element."""
    assert tile.layout is not None
    return tile.layout.cosize() * tile.dtype.bytes


def tile_lives(kernel: Kernel) -> dict[str, Life]:
    """The life of every shared tile; one that does not occur lives at the first statement."""
    lives: dict[str, Life] = {}
    tiles = {s.name for s in kernel.shared}
    for position, stmt in enumerate(kernel.body):
        for name in set().union(*(touches(s) for s in walk((stmt,)))) & tiles:
            lives[name] = (lives.get(name, (position, position))[0], position)
    return {name: lives.get(name, (0, 0)) for name in tiles}


def _place(kernel: Kernel, lives: dict[str, Life]) -> tuple[Shared, ...]:
    """Every tile at the lowest offset that no tile of an overlapping life takes."""
    placed = [s for s in kernel.shared if s.offset is not None]
    for tile in kernel.shared:
        if tile.offset is not None:
            continue
        unit = _SWIZZLED if isinstance(tile.layout, SwizzledLayout) else _ALIGNMENT
        others = [s for s in placed if _meet(lives[s.name], lives[tile.name])]
        starts = [0, *(-(-((s.offset or 0) + tile_bytes(s)) // unit) * unit for s in others)]
        offset = min(o for o in starts if not any(_overlap(replace(tile, offset=o), s) for s in others))
        placed.append(replace(tile, offset=offset))
    by_name = {s.name: s for s in placed}
    return tuple(by_name[s.name] for s in kernel.shared)


def _separated(body: tuple[Stmt, ...], placed: tuple[Shared, ...], lives: dict[str, Life]) -> tuple[Stmt, ...]:
    """`body` with a barrier wherever a tile takes over bytes: all threads are then done with the earlier tile."""
    takes_over = {
        lives[later.name][0]
        for later in placed
        for earlier in placed
        if lives[earlier.name][1] < lives[later.name][0] and _overlap(earlier, later)
    }
    result: list[Stmt] = []
    for position, stmt in enumerate(body):
        if position in takes_over:
            result.append(Barrier(stmt.span))
        result.append(stmt)
    return tuple(result)


def _meet(a: Life, b: Life) -> bool:
    return a[0] <= b[1] and b[0] <= a[1]


def _overlap(a: Shared, b: Shared) -> bool:
    start_a, start_b = a.offset or 0, b.offset or 0
    return start_a < start_b + tile_bytes(b) and start_b < start_a + tile_bytes(a)


def _end(placed: tuple[Shared, ...]) -> int:
    return max(((s.offset or 0) + tile_bytes(s) for s in placed), default=0)
