"""Rules of statements that compute in registers: maps and accumulations."""

from __future__ import annotations

from collections.abc import Iterator

from argus.ir.expr import REDUCTIONS, Elem, coords
from argus.ir.instruction import INSTRUCTIONS, REDUCES
from argus.ir.locality import partial
from argus.ir.nodes import Accumulate, DeviceAssert, DevicePrint, Kernel, Map, Scan, Tensor, Watch
from argus.ir.statement import Problem
from argus.ir.target import Target
from argus.ir.types import boolean
from argus.ir.wellformed import engine
from argus.ir.wellformed.layouts import domain, layout_of, own, reads
from argus.ir.wellformed.site import Site, dtype_of, has_type
from argus.layout import FragmentLayout


def map_names(stmt: Map, site: Site) -> Iterator[Problem]:
    """Check that the value has the tile's type."""
    yield from has_type(f"the value for `{stmt.dst.obj}`", stmt.value, dtype_of(stmt.dst.obj, site.scope), stmt.span)


def map_explicit(stmt: Map, site: Site, target: Target) -> Iterator[Problem]:
    """Check that threads compute from registers that they hold, or exchange single elements within a warp."""
    problems = list(domain(stmt, site.part))
    yield from problems
    if stmt.scope not in ("thread", "warp"):
        yield f"a map has the scope {stmt.scope}", stmt.span
    if stmt.scope == "warp" and not isinstance(stmt.value, Elem):
        yield "a map across lanes reads more than one element", stmt.span
    if problems or stmt.layout is None:
        return
    yield from own(stmt.layout, [stmt.dst], site.part, stmt.span)
    lanes = site.part.warp_size if stmt.scope == "warp" else None
    yield from own(stmt.layout, reads([stmt.value]), site.part, stmt.span, lanes)


def watch_names(stmt: Watch, site: Site) -> Iterator[Problem]:
    """Check that the text is one line, and that an assertion reads truth values."""
    if not stmt.text.isprintable():
        yield "the text for a person has characters that cannot be printed", stmt.span
    dtype = dtype_of(stmt.src.obj, site.scope)
    if isinstance(stmt, DeviceAssert) and dtype not in (None, boolean):
        yield f"an assertion reads `{stmt.src.obj}`, which is {dtype}, not bool", stmt.span


def watch_explicit(stmt: Watch, site: Site, target: Target) -> Iterator[Problem]:
    """Check that threads print or test registers that they hold."""
    if isinstance(stmt, DevicePrint) and not target.prints:
        yield f"kernels print nothing on {target.name}", stmt.span
    problems = list(domain(stmt, site.part))
    yield from problems
    if not problems and stmt.layout is not None:
        yield from own(stmt.layout, [stmt.src], site.part, stmt.span)


def accumulate_names(stmt: Accumulate, site: Site) -> Iterator[Problem]:
    """Check that the operation is a reduction, and that the value has the destination's type."""
    if stmt.op not in REDUCTIONS:
        yield f"`{stmt.op}` is not a reduction", stmt.span
    yield from has_type(f"the value for `{stmt.dst.obj}`", stmt.value, dtype_of(stmt.dst.obj, site.scope), stmt.span)


def accumulate_explicit(stmt: Accumulate, site: Site, target: Target) -> Iterator[Problem]:
    """Check an accumulation by threads, by warps, or by the copy engine, according to its instruction."""
    part, row = site.part, REDUCES.get(stmt.instr or "")
    if row is not None:
        if not target.has(row):
            yield f"{target.name} has no {row.name}", stmt.span
        yield from engine.bulk_reduce(stmt, row, part)
        return
    problems = list(domain(stmt, part))
    yield from problems
    to_memory = isinstance(part.object(stmt.dst.obj), Tensor)
    if to_memory:
        yield from _atomic(stmt, target)
    elif stmt.scope not in ("thread", "warp"):
        yield f"an accumulation into registers has the scope {stmt.scope}", stmt.span
    if problems or stmt.layout is None:
        return
    exprs = [stmt.value, *([stmt.mask] if stmt.mask is not None else []), *stmt.dst.index]
    yield from own(stmt.layout, reads(exprs), part, stmt.span)
    if not to_memory:
        yield from _totals(stmt, stmt.layout, part)


def scan_names(stmt: Scan, site: Site) -> Iterator[Problem]:
    """Check that a scan runs over whole tiles, combines them in their own types, and reads no other registers."""
    if not stmt.tiles:
        yield "a scan of no tile", stmt.span
    if not 0 <= stmt.axis < len(stmt.shape):
        yield f"a scan along axis {stmt.axis} of {len(stmt.shape)}", stmt.span
    whole = coords(len(stmt.shape))
    own_tiles = [access for tile in stmt.tiles for access in (tile.operand, tile.result)]
    if len({access.obj for access in own_tiles}) < len(own_tiles):
        yield "a tile takes part in a scan twice", stmt.span
    for access in own_tiles:
        extents = getattr(site.scope.objects.get(access.obj), "shape", stmt.shape)
        if access.index != whole or extents != stmt.shape:
            yield f"`{access.obj}` does not take part in a scan of shape {stmt.shape} as a whole", stmt.span
    for tile in stmt.tiles:
        held = dtype_of(tile.result.obj, site.scope)
        yield from has_type(f"the combination for `{tile.result.obj}`", tile.combine, held, stmt.span)
        if held != dtype_of(tile.operand.obj, site.scope):
            yield f"`{tile.operand.obj}` and `{tile.result.obj}` of a scan differ in type", stmt.span
        for read in reads([tile.combine]):
            if read not in own_tiles:
                yield f"a scan combines elements of its own tiles, and `{read.obj}` is none of them", stmt.span


def scan_explicit(stmt: Scan, site: Site, target: Target) -> Iterator[Problem]:
    """Check that the kernel is not explicit yet: passes lower scans."""
    yield "a scan is still a policy", stmt.span


def _atomic(stmt: Accumulate, target: Target) -> Iterator[Problem]:
    row = INSTRUCTIONS.get(stmt.instr or "")
    if stmt.op == "mul":
        yield "memory multiplies no atomic product", stmt.span
    if row is None or (row.src, row.dst) != ("fragment", "global"):
        yield f"`{stmt.instr}` does not accumulate into global memory", stmt.span
    elif not target.has(row):
        yield f"{target.name} has no {row.name}", stmt.span


def _totals(stmt: Accumulate, layout: FragmentLayout, part: Kernel) -> Iterator[Problem]:
    """Check that a thread adds into its own registers, and that a warp holds all elements that it adds to a cell."""
    if stmt.scope == "thread":
        yield from own(layout, [stmt.dst], part, stmt.span)
        return
    cell = layout_of(stmt.dst.obj, part)
    short = partial(layout, stmt.dst.index, cell, part.warp_size) if cell is not None else None
    if short is not None:
        yield f"warp {short[1]} totals a cell of `{stmt.dst.obj}` without element {short[0]}", stmt.span
