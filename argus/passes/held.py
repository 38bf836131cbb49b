"""Keep operands in registers if every iteration of a loop multiplies them, and load them without LDS (gfx942).

    stage qt[m, k] <- q[...]            ->  copy qt[m, k] <- q[...]        a register tile
    for ...:                                for ...:
        mma s += qt * kt                        mma s += qt * kt

Waves of gfx942 have enough registers for this, while LDS is shared between them. No two waves may hold the same rows,
so the rows of the operand are divided among all waves of the block.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from argus.ir.expr import Coord
from argus.ir.instruction import MMA
from argus.ir.nodes import For, Fragment, Kernel, Mma, Programs, Stage, Stmt, Tensor
from argus.ir.visit import rewrite_body, walk
from argus.passes.fresh import touches, whole
from argus.passes.moves import target_of
from argus.passes.stages import padded, plain_copy

_MOST = 64  # registers of a lane that one operand may take


def hold_operands(kernel: Kernel) -> Kernel:
    """Turn stages of operands that loops multiply into loads of register tiles, where `_stays` allows it."""
    if target_of(kernel).vendor != "amd":
        return kernel
    loops = tuple(s for loop in walk(kernel.body) if isinstance(loop, For) for s in loop.body)
    inside = {s.dst for s in walk(loops) if isinstance(s, Stage)}
    held = {s.dst for s in walk(kernel.body) if isinstance(s, Stage) and s.dst not in inside and _stays(kernel, s)}
    if not held:
        return kernel

    def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
        if not isinstance(stmt, Stage) or stmt.dst not in held:
            return None
        return (plain_copy(padded(stmt, kernel), whole(stmt.dst, len(stmt.shape))),)

    tiles = tuple(Fragment(s.name, s.dtype, s.shape, None, span=s.span) for s in kernel.shared if s.name in held)
    return replace(
        kernel,
        body=rewrite_body(kernel.body, change),
        shared=tuple(s for s in kernel.shared if s.name not in held),
        fragments=(*kernel.fragments, *tiles),
    )


def _stays(kernel: Kernel, stage: Stage) -> bool:
    """Return True if the tile fits registers and is only used as a whole left operand, all warps along its rows."""
    tile = kernel.object(stage.dst)
    uses = [
        s for s in walk(kernel.body) if s is not stage and not isinstance(s, For | Programs) and stage.dst in touches(s)
    ]
    registers = prod(stage.shape) * tile.dtype.bytes // (4 * kernel.num_threads)
    return (
        isinstance(kernel.object(stage.src.obj), Tensor)
        and bool(uses)
        and registers <= _MOST
        and all(_whole_left(s, stage) for s in uses)
    )


def _whole_left(stmt: Stmt, stage: Stage) -> bool:
    return (
        isinstance(stmt, Mma)
        and stmt.instr in MMA
        and stmt.warps is not None
        and stmt.warps[1] == 1
        and stmt.a.obj == stage.dst != stmt.b.obj
        and stmt.a.index == (Coord(0), Coord(2))
        and stage.shape == (stmt.shape[0], stmt.shape[2])
    )
