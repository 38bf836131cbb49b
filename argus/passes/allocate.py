"""Places shared tiles in the block's shared memory.

    shared sa[128x64 bf16], sb[...]         ->  sa at byte 0, sb at byte 16384

Tiles follow one another, aligned to 128 bytes (1024 if swizzled). Those that the author placed stay.
"""

from __future__ import annotations

from dataclasses import replace

from argus.diagnostic import Note
from argus.ir.nodes import Kernel, Shared
from argus.layout.swizzle import SwizzledLayout
from argus.passes.moves import target_of
from argus.passes.report import LoweringError, problem

_ALIGNMENT = 128
_SWIZZLED = 1024


def allocate_shared(kernel: Kernel) -> Kernel:
    """Give every shared tile its byte offset. Raises `LoweringError` if they do not fit."""
    target = target_of(kernel)
    end = max((s.offset + tile_bytes(s) for s in kernel.shared if s.offset is not None), default=0)
    placed: list[Shared] = []
    for tile in kernel.shared:
        if tile.offset is None:
            unit = _SWIZZLED if isinstance(tile.layout, SwizzledLayout) else _ALIGNMENT
            tile = replace(tile, offset=-(-end // unit) * unit)
            end = (tile.offset or 0) + tile_bytes(tile)
        placed.append(tile)
    if end > target.shared_bytes:
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
    return replace(kernel, shared=tuple(placed))


def tile_bytes(tile: Shared) -> int:
    """Bytes from the tile's first to its last element."""
    assert tile.layout is not None
    return tile.layout.cosize() * tile.dtype.bytes
