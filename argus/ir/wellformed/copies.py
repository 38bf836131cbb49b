"""Rules of all copies and of copies by threads. `engine` has the rules of the copy engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from argus.ir.cluster import peer, peers_of
from argus.ir.instruction import INSTRUCTIONS, CopyRow, Mechanism
from argus.ir.nodes import Access, Copy, Fragment, Kernel, Share, Shared, Stage, Tensor, ThreadCopy
from argus.ir.statement import Problem
from argus.ir.target import Target
from argus.ir.types import int32
from argus.ir.waves import load_to_lds
from argus.ir.wellformed.layouts import domain, own, reads
from argus.ir.wellformed.site import Site, dtype_of, typed
from argus.source import Span

_SPACES: dict[type, str] = {Tensor: "global", Shared: "shared", Fragment: "fragment"}


def stage_names(stmt: Stage, site: Site) -> Iterator[Problem]:
    """Check that the staged elements fit the shared tile."""
    tile = site.scope.objects.get(stmt.dst)
    if not isinstance(tile, Shared) or tile.shape != stmt.shape:
        yield f"`{stmt.dst}` is not a shared tile of shape {stmt.shape}", stmt.span
    if stmt.other is not None and stmt.other.dtype != dtype_of(stmt.dst, site.scope):
        yield f"padding of type {stmt.other.dtype} does not fit `{stmt.dst}`", stmt.span


def share_names(stmt: Share, site: Site) -> Iterator[Problem]:
    """Check that the whole register tile fits the shared tile."""
    tile, given = site.scope.objects.get(stmt.dst), site.scope.objects.get(stmt.src.obj)
    if not isinstance(tile, Shared) or tile.shape != stmt.shape:
        yield f"`{stmt.dst}` is not a shared tile of shape {stmt.shape}", stmt.span
    elif isinstance(given, Fragment) and given.dtype != tile.dtype:
        yield f"`{stmt.src.obj}` holds {given.dtype}, `{stmt.dst}` {tile.dtype}: a copy does not convert", stmt.span


def stage_explicit(stmt: Stage | Share, site: Site, target: Target) -> Iterator[Problem]:
    """Reject a `Stage`: explicit IR has no policies."""
    yield f"the staging of `{stmt.dst}` is still a policy", stmt.span


def names(stmt: Copy, site: Site) -> Iterator[Problem]:
    """Check that a copy converts nothing, and that the blocks that it reaches are in its cluster."""
    for access in peers_of(stmt):
        assert access.block is not None
        scope = replace(site.scope, axes=frozenset())
        yield from typed("the number of a block", access.block, int32, scope, stmt.span)
        yield from _peer(site.kernel, access, stmt.span)
    held, moved = dtype_of(stmt.dst.obj, site.scope), dtype_of(stmt.src.obj, site.scope)
    if held != moved:
        yield f"`{stmt.src.obj}` holds {moved}, `{stmt.dst.obj}` {held}: a copy does not convert", stmt.span
    if stmt.other is not None and stmt.other.dtype != held:
        yield f"padding of type {stmt.other.dtype} does not fit `{stmt.dst.obj}`", stmt.span
    if stmt.vector < 1:
        yield f"a vector of {stmt.vector} elements is none", stmt.span


def _peer(kernel: Kernel, access: Access, span: Span) -> Iterator[Problem]:
    """Check that a tile of another block is shared memory, and that the number of the own block determines that block.
    """
    if access.obj not in {s.name for s in kernel.shared}:
        yield f"`{access.obj}` is no shared tile, and so not one of a block", span
    assert access.block is not None
    reached = [peer(access.block, rank, kernel.cluster) for rank in range(kernel.cluster)]
    for number in reached:
        if number is None:
            yield f"which block's `{access.obj}` this is depends on more than the own block's number", span
            return
        if not 0 <= number < kernel.cluster:
            yield f"a cluster of {kernel.cluster} has no block {number}, whose `{access.obj}` this would be", span
            return


def moved(stmt: Copy, row: CopyRow, kernel: Kernel, target: Target) -> Iterator[Problem]:
    """Check that the target has the instruction, and that the instruction moves data between these two objects."""
    spaces = tuple(_SPACES[type(kernel.object(access.obj))] for access in (stmt.src, stmt.dst))
    if spaces != (row.src, row.dst):
        yield f"{row.name} copies {row.src} to {row.dst}, not {spaces[0]} to {spaces[1]}", stmt.span
    if not target.has(row):
        yield f"{target.name} has no {row.name}", stmt.span
    if row.peer != bool(peers_of(stmt)):
        yield f"{row.name} reaches {'tiles of a peer' if row.peer else 'no tile of a peer'} in a cluster", stmt.span


def explicit(stmt: ThreadCopy, site: Site, target: Target) -> Iterator[Problem]:
    """Check that the instruction moves vectors of this width, and that each thread moves elements that it holds."""
    part = site.part
    row = INSTRUCTIONS.get(stmt.instr or "")
    problems = list(domain(stmt, part))
    yield from problems
    if row is None or row.mechanism is Mechanism.BULK:
        yield f"`{stmt.instr}` is not a copy instruction of threads", stmt.span
        return
    yield from moved(stmt, row, part, target)
    src, dst = part.object(stmt.src.obj), part.object(stmt.dst.obj)
    width = stmt.vector * dst.dtype.bytes
    if width not in row.vector_bytes or dst.dtype.bits not in row.dtypes_bits:
        yield f"{row.name} does not move {stmt.vector} elements of {dst.dtype} ({width} bytes) at once", stmt.span
    if problems or stmt.layout is None:
        return
    if stmt.layout.num_values % stmt.vector:
        yield f"{stmt.layout.num_values} values a thread are no multiple of the vector {stmt.vector}", stmt.span
    if row.in_lane_order:
        yield from load_to_lds(stmt, row)
    registers = [a for a, o in ((stmt.src, src), (stmt.dst, dst)) if isinstance(o, Fragment)]
    yield from own(stmt.layout, registers, part, stmt.span)
    exprs = [*stmt.src.index, *stmt.dst.index, *([stmt.mask] if stmt.mask is not None else [])]
    yield from own(stmt.layout, reads(exprs), part, stmt.span)
