"""Rearrange tiles in shared memory before they are stored to global memory, so that the stores are wide."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from argus.ir.expr import Expr, elements
from argus.ir.nodes import Access, Stmt, Tensor, ThreadCopy
from argus.ir.visit import walk
from argus.layout import FragmentLayout
from argus.passes.allocate import tile_bytes, tile_lives
from argus.passes.context import Enclosing
from argus.passes.infer import memory_domain
from argus.passes.layouts import lift, project
from argus.passes.moves import contiguous_axis, target_of
from argus.passes.tile_moves import TileMoves

_SEGMENT = 64  # in bytes: a store whose warps access fewer consecutive bytes is worth rearranging


def stage_store(
    moves: TileMoves, stmt: ThreadCopy, domain: FragmentLayout, context: Enclosing, before: list[Stmt]
) -> ThreadCopy | None:
    """Return a store to global memory that passes through shared memory, if this makes its accesses wide and
    consecutive."""
    fragment, tensor = moves.state.fragment(stmt.src.obj), moves.state.kernel.object(stmt.dst.obj)
    if fragment is None or not isinstance(tensor, Tensor) or stmt.instr is not None or context.divergent:
        return None
    if len(stmt.shape) < 2 or any(True for e in (*stmt.dst.index, *_mask(stmt)) for _ in elements(e)):
        return None
    if lift(moves.layout(fragment.name), stmt.src.index, stmt.shape) is None:
        return None
    wanted = memory_domain(moves.state, stmt)
    axis = contiguous_axis(tensor, stmt.dst.index)
    enough = min(stmt.shape[axis] if axis is not None else 0, _SEGMENT // tensor.dtype.bytes)
    if axis is None or _run(domain, axis) >= min(enough, _run(wanted, axis)):
        return None
    scratch = prod(fragment.shape) * fragment.dtype.bytes
    kernel = moves.state.kernel
    # If bulk copies fill tiles, narrow stores cost more than a buffer. A remark advises the author to give up a
    # buffer.
    if not kernel.barriers and _shared_bytes(moves, stmt) + scratch > target_of(kernel).shared_bytes:
        return None
    layout = project(wanted, stmt.src.index, fragment.shape)
    if layout is None:
        return None
    name = moves.fresh.fragment(f"{fragment.name}_rows", fragment.dtype, fragment.shape, layout)
    moves.state.fragments[name] = layout
    before += moves.through_shared(fragment.name, name, layout, stmt.span, context)
    return replace(stmt, src=Access(name, stmt.src.index), layout=wanted)


def _shared_bytes(moves: TileMoves, stmt: ThreadCopy) -> int:
    """Return the bytes of the tiles with which a scratch tile for `stmt` cannot share memory."""
    kernel = moves.state.kernel
    here = next(i for i, top in enumerate(kernel.body) if any(s.id == stmt.id for s in walk((top,))))
    lives = tile_lives(kernel)
    living = [s for s in kernel.shared if lives[s.name][0] <= here <= lives[s.name][1]]
    return sum(tile_bytes(s) for s in (*living, *moves.fresh.shared))


def _run(layout: FragmentLayout, axis: int) -> int:
    """Return the number of consecutive elements along `axis` that adjacent threads access together."""
    run = layout.vector_width(axis)
    for mode in layout.threads:
        if mode.dim != axis or mode.stride != run:
            break
        run *= mode.extent
    return run


def _mask(stmt: ThreadCopy) -> tuple[Expr, ...]:
    return () if stmt.mask is None else (stmt.mask,)
