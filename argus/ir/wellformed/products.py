"""Rules of matrix products: by single warps on registers, and by warpgroups on shared tiles and registers."""

from __future__ import annotations

from collections.abc import Iterator

from argus.ir.expr import Coord, Expr, coords
from argus.ir.instruction import MMA, WGMMA, MmaRow, WgmmaRow
from argus.ir.instruction.limits import ROW_BYTES, row_bytes
from argus.ir.instruction.tiled import wgmma_accumulator, wgmma_operand
from argus.ir.machine import WARPGROUP
from argus.ir.nodes import Access, Fragment, Kernel, Mma, Shared
from argus.ir.statement import Problem
from argus.ir.target import Target
from argus.ir.wellformed.panels import panels
from argus.ir.wellformed.site import Site, dtype_of, uniform
from argus.layout import FragmentLayout, LayoutError
from argus.source import Span


def names(stmt: Mma, site: Site) -> Iterator[Problem]:
    """Check that both operands have the same type."""
    if dtype_of(stmt.a.obj, site.scope) != dtype_of(stmt.b.obj, site.scope):
        yield f"`{stmt.a.obj}` and `{stmt.b.obj}` have different types", stmt.span


def explicit(stmt: Mma, site: Site, target: Target) -> Iterator[Problem]:
    """Check that the target has the instruction, and that the operands fit it."""
    part, wgmma = site.part, WGMMA.get(stmt.instr or "")
    row = wgmma or MMA.get(stmt.instr or "")
    if row is None or stmt.warps is None:
        yield f"`{stmt.instr}` over warps {stmt.warps} is not a matrix instruction", stmt.span
        return
    if not target.has(row):
        yield f"{target.name} has no {row.name}", stmt.span
    if isinstance(row, WgmmaRow):
        yield from asynchronous_product(stmt, row, part)
    else:
        yield from _product(stmt, row, stmt.warps, part)


def _product(stmt: Mma, row: MmaRow, warps: tuple[int, int], part: Kernel) -> Iterator[Problem]:
    if warps[0] * warps[1] != part.num_warps:
        yield f"{warps} warps are not the block's {part.num_warps}", stmt.span
    tile = (row.shape[0] * warps[0], row.shape[1] * warps[1], row.shape[2])
    if any(extent % step for extent, step in zip(stmt.shape, tile, strict=True)):
        yield f"{row.name} on {warps} warps does not divide {stmt.shape}", stmt.span
    c0, c1, c2 = coords(3)
    operands = ((stmt.a, row.a, (c0, c2)), (stmt.b, row.b, (c1, c2)), (stmt.d, row.c, (c0, c1)))
    for access, atom, plain in operands:
        yield from _operand(access, atom, plain, row, part, stmt.span)


def _operand(
    access: Access, atom: FragmentLayout, plain: tuple[Expr, ...], row: MmaRow, kernel: Kernel, span: Span
) -> Iterator[Problem]:
    """Check that the operand's register layout begins with the instruction's own lane map."""
    fragment = kernel.object(access.obj)
    if not isinstance(fragment, Fragment):
        yield f"{row.name} takes registers, and `{access.obj}` is none", span
        return
    allowed = (row.accumulator,) if atom is row.c else row.operands
    if fragment.dtype not in allowed:
        yield f"{row.name} does not take {fragment.dtype} (`{access.obj}`)", span
    layout = fragment.layout
    if layout is None or access.index != plain:
        return
    lanes = layout.threads[: len(atom.threads)] == atom.threads
    if not lanes or layout.values[: len(atom.values)] != atom.values:
        yield f"the layout {layout} of `{access.obj}` is not made of {row.name}'s {atom}", span


def asynchronous_product(stmt: Mma, row: WgmmaRow, kernel: Kernel) -> Iterator[Problem]:
    """Check an asynchronous product of two shared tiles, or of registers and a shared tile, into the registers of whole
    warpgroups."""
    span, warps = stmt.span, stmt.warps
    c0, c1, c2 = coords(3)
    for access, outer in ((stmt.a, c0), (stmt.b, c1)):
        operand = kernel.object(access.obj)
        if operand.dtype not in row.operands:
            yield f"{row.name} does not take {operand.dtype} (`{access.obj}`)", span
        if isinstance(operand, Shared):
            yield from _shared_operand(operand, access, outer, row, span)
        elif not isinstance(operand, Fragment) or access is not stmt.a or access.index != (c0, c2):
            yield f"{row.name} does not read `{access.obj}` from where it is", span
    target = kernel.object(stmt.d.obj)
    if not isinstance(target, Fragment) or stmt.d.index != (c0, c1) or target.dtype != row.accumulator:
        yield f"{row.name} adds into a register tile of {row.accumulator}", span
        return
    if warps is None or warps[0] % WARPGROUP or warps[0] * warps[1] != kernel.num_warps:
        yield f"{row.name} over warps {warps} does not take the {kernel.num_warps} warps as warpgroups", span
        return
    if stmt.shape[2] % row.shape[2]:
        yield f"{row.name} does not divide {stmt.shape}", span
        return
    m, n, k = stmt.shape
    try:
        held = [(target, wgmma_accumulator(row, (m, n), warps))]
        source = kernel.object(stmt.a.obj)
        if isinstance(source, Fragment):
            held.append((source, wgmma_operand(row, (m, k), warps)))
    except LayoutError as error:
        yield str(error), span
        return
    for fragment, needed in held:
        if fragment.layout is not None and fragment.layout.simplify() != needed.simplify():
            yield f"the layout {fragment.layout} of `{fragment.name}` is not {row.name}'s {needed}", span


def _shared_operand(tile: Shared, access: Access, outer: Expr, row: WgmmaRow, span: Span) -> Iterator[Problem]:
    """Check that a shared operand lies in panels, K-major or MN-major, and at the same place for all threads."""
    depth, wide = Coord(2), row_bytes(tile.shape[-1], tile.dtype.bytes) == ROW_BYTES
    yield from panels(tile, row.name, span)
    if access.index[-2:] not in ((outer, depth), (depth, outer)) or not all(map(uniform, access.index[:-2])):
        yield f"{row.name} reads `{access.obj}` by rows and depth, at one place for all threads", span
    elif access.index[-2] == depth and not (row.transposes and wide):
        yield f"{row.name} reads `{access.obj}` only with the depth along its rows", span
