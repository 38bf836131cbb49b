"""Place shared tiles in the block's shared memory.

    shared sa[128x64 bf16], sb[...]         ->  sa at byte 0, sb at byte 16384

Tiles follow one another, aligned to 128 bytes (1024 if swizzled). Tiles that the author placed keep their place. If the
tiles do not fit, or if few warps would share a multiprocessor, a tile may take the bytes of tiles that are no longer
used, after a barrier. Roles share a multiprocessor with no other block, so their tiles have to fit only. A tile that
bulk copies fill gives up its bytes only if it is filled once, because the role that reads it has then waited for the
copy. mbarriers follow all tiles.
"""

from __future__ import annotations

from dataclasses import replace

from argus.diagnostic import Note
from argus.ir.access import relations
from argus.ir.cluster import peers_of
from argus.ir.instruction import BULK_LOADS, Order
from argus.ir.nodes import Barrier, BulkCopy, Kernel, Mbarrier, Roles, Shared, Stmt
from argus.ir.visit import walk
from argus.layout.swizzle import SwizzledLayout
from argus.passes.fresh import touches
from argus.passes.moves import target_of
from argus.passes.report import LoweringError, problem

_ALIGNMENT = 128
_SWIZZLED = 1024
_WARPS = {"amd": 8, "nvidia": 16}
"""Warps that hide one another's waits on a multiprocessor, and for which the compiler has the registers: two for each
SIMD of gfx942, four for each scheduler."""
_RESERVED = {"amd": 0, "nvidia": 1024}
"""Bytes of shared memory that each block takes beside its own (CUDA C++ guide, compute capability 8.0 and later)."""

Life = tuple[int, int]
"""First and last statement of the kernel's body in which a tile occurs. A loop counts as one statement."""


def allocate_shared(kernel: Kernel) -> Kernel:
    """Give every shared tile its byte offset. Raises `LoweringError` if they do not fit."""
    done, end = _allocated(kernel)
    if done is not None:
        return done
    target, placed = target_of(kernel), _place(kernel, dict.fromkeys((s.name for s in kernel.shared), (0, 0)))
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


def fits(kernel: Kernel) -> bool:
    """Return True if all shared tiles fit in shared memory. All of them must have layouts."""
    return _allocated(kernel)[0] is not None


def _allocated(kernel: Kernel) -> tuple[Kernel | None, int]:
    """Return the kernel with an offset for every tile, or None if the tiles do not fit; and the bytes that the tiles
    need without sharing."""
    most = target_of(kernel).shared_bytes
    body, lives = _reuse(kernel)
    everywhere = dict.fromkeys(lives, (0, len(body)))
    placed = _place(kernel, everywhere)
    barriers, end = _mbarriers(kernel, _end(placed))
    if end <= most and not _crowded(kernel, end):
        return replace(kernel, shared=placed, barriers=barriers), end
    shared = _place(kernel, lives)
    if end <= most and _blocks(kernel, _end(shared)) <= _blocks(kernel, end):
        return replace(kernel, shared=placed, barriers=barriers), end
    barriers, least = _mbarriers(kernel, _end(shared))
    if least > most:
        return None, end
    kernel = replace(kernel, shared=shared, barriers=barriers)
    return _with_body(kernel, body, _separated(body, shared, lives)), end


def _crowded(kernel: Kernel, end: int) -> bool:
    """Return True if shared memory limits the number of blocks on a multiprocessor that could run more warps."""
    vendor = target_of(kernel).vendor
    if vendor not in _WARPS or (vendor == "nvidia" and any(isinstance(s, Roles) for s in kernel.body)):
        return False
    return _blocks(kernel, end) < _WARPS[vendor] // kernel.num_warps


def _blocks(kernel: Kernel, end: int) -> int:
    """Count the blocks with `end` bytes each that share a multiprocessor."""
    target = target_of(kernel)
    room = target.machine.shared_bytes // max(end + _RESERVED.get(target.vendor, 0), 1)
    return min(_WARPS.get(target.vendor, room) // kernel.num_warps, room)


def _mbarriers(kernel: Kernel, end: int) -> tuple[tuple[Mbarrier, ...], int]:
    """Place the mbarriers behind the tiles, which end at byte `end`. Return them and the byte where they end."""
    placed: list[Mbarrier] = []
    for barrier in kernel.barriers:
        offset = -(-end // 8) * 8 if barrier.offset is None else barrier.offset
        placed.append(replace(barrier, offset=offset))
        end = max(end, offset + 8 * barrier.count)
    return tuple(placed), end


def tile_bytes(tile: Shared) -> int:
    """Return the number of bytes from the tile's first to its last element."""
    assert tile.layout is not None
    return tile.layout.cosize() * tile.dtype.bytes


def tile_lives(kernel: Kernel) -> dict[str, Life]:
    """Return the life of every shared tile. A tile that no statement uses lives at the first statement."""
    lives: dict[str, Life] = {}
    tiles = {s.name for s in kernel.shared}
    for position, stmt in enumerate(kernel.body):
        for name in set().union(*(touches(s) for s in walk((stmt,)))) & tiles:
            lives[name] = (lives.get(name, (position, position))[0], position)
    # The block's own barriers do not order accesses of other blocks to a tile.
    reached = {access.obj: (0, len(kernel.body)) for stmt in walk(kernel.body) for access in peers_of(stmt)}
    return {name: lives.get(name, (0, 0)) for name in tiles} | reached


def _reuse(kernel: Kernel) -> tuple[tuple[Stmt, ...], dict[str, Life]]:
    """Return the list of statements between which bytes may be reused, and the lives of all tiles as positions in it.

    In a kernel of roles these are the statements of the one role that issues no bulk copies. Tiles that another role
    fills live from the start, and to the end as well if they are filled in a loop. Tiles that bulk stores read live to
    the end.
    """
    roles = next((s.roles for s in kernel.body if isinstance(s, Roles)), None)
    if roles is None:
        return kernel.body, tile_lives(kernel)
    computing = [r for r in roles if not any(_bulk(s) for s in walk(r.body))]
    if len(computing) != 1:
        return (), {s.name: (0, 0) for s in kernel.shared}
    body = computing[0].body
    lives = tile_lives(replace(kernel, body=body))
    for role in roles:
        for top in () if role is computing[0] else role.body:
            for stmt in walk((top,)):
                for name in touches(stmt) & lives.keys():
                    lives[name] = (0, lives[name][1] if stmt is top else len(body))
    for stmt in walk(body):
        for access in relations(stmt):
            if access.order is Order.BULK_READ:
                lives[access.obj] = (lives[access.obj][0], len(body))
    return body, lives


def _bulk(stmt: Stmt) -> bool:
    return isinstance(stmt, BulkCopy) and stmt.instr in BULK_LOADS


def _with_body(kernel: Kernel, old: tuple[Stmt, ...], new: tuple[Stmt, ...]) -> Kernel:
    """Return the kernel with `new` in place of the statements `old`, which are its body or the body of a role."""
    if old is kernel.body:
        return replace(kernel, body=new)

    def change(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, Roles):
            return stmt
        return replace(stmt, roles=tuple(replace(r, body=new) if r.body is old else r for r in stmt.roles))

    return replace(kernel, body=tuple(change(s) for s in kernel.body))


def _place(kernel: Kernel, lives: dict[str, Life]) -> tuple[Shared, ...]:
    """Place every tile at the lowest offset that no tile with an overlapping life takes."""
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
    """Return `body` with a barrier wherever a tile takes over bytes, so that all threads have finished with the earlier
    tile."""
    takes_over = {
        lives[later.name][0]
        for later in placed
        for earlier in placed
        if lives[earlier.name][1] < lives[later.name][0] and _overlap(earlier, later)
    }
    result: list[Stmt] = []
    for position, stmt in enumerate(body):
        if position in takes_over:
            result.append(Barrier(span=stmt.span))
        result.append(stmt)
    return tuple(result)


def _meet(a: Life, b: Life) -> bool:
    return a[0] <= b[1] and b[0] <= a[1]


def _overlap(a: Shared, b: Shared) -> bool:
    start_a, start_b = a.offset or 0, b.offset or 0
    return start_a < start_b + tile_bytes(b) and start_b < start_a + tile_bytes(a)


def _end(placed: tuple[Shared, ...]) -> int:
    return max(((s.offset or 0) + tile_bytes(s) for s in placed), default=0)
