"""Machine rules of matrix moves and matrix products: rows of shared tiles, and registers of operands."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from argus.ir.expr import Coord
from argus.ir.instruction import INSTRUCTIONS, MMA
from argus.ir.instruction.tiled import tiled_mma
from argus.ir.nodes import Access, Copy, Fragment, Kernel, Mma, Shared
from argus.ir.target import TARGETS
from argus.ir.types import DType
from argus.layout import FragmentLayout, LayoutError
from argus.verify.checks.bounds import BoundsChecker
from argus.verify.checks.physical import offsets
from argus.verify.findings import Finding, refused, unknown
from argus.verify.model.program import Site


def matrix_rows(site: Site, stmt: Copy, access: Access, tile: Shared) -> list[Finding]:
    """Check that ldmatrix and stmatrix use rows of 16 aligned bytes, spread over lanes as their document says."""
    found = offsets(site, access, tile)
    layout = stmt.layout
    assert layout is not None and tile.offset is not None
    if found is None:
        return [
            unknown(
                "vector-unknown",
                "machine",
                stmt.span,
                f"cannot tell the rows of '{tile.name}' that {stmt.instr} reads",
                "use constant tile indices",
            )
        ]
    trans = INSTRUCTIONS[stmt.instr or ""].transposed
    per_lane = 4 // tile.dtype.bytes  # one matrix gives a lane 4 bytes
    byte = found * tile.dtype.bytes + tile.offset
    # [..., warp, lane // 4, lane % 4, matrix, element of the lane]
    lanes = byte.reshape(*byte.shape[:-2], -1, 8, 4, byte.shape[-1] // per_lane, per_lane)
    if trans:  # lane // 4 is the column; all columns of a row start from one address
        start = lanes - (np.arange(8) * tile.dtype.bytes)[:, None, None, None]
        one_row = bool((start == start[..., :1, :, :, :]).all())
    else:  # lane // 4 is the row; lane % 4 and the element walk along it
        start = lanes - (np.arange(4) * 4)[:, None, None] - np.arange(per_lane) * tile.dtype.bytes
        one_row = bool((start == start[..., :1, :, :1]).all())
    ok = one_row and bool((start % 16 == 0).all())
    if ok:
        return []
    return [
        refused(
            "matrix-row-layout",
            stmt.span,
            f"{stmt.instr} needs rows of 16 contiguous, aligned bytes and its own spread over lanes; "
            f"'{tile.name}' with layout {tile.layout} and registers {layout} is not that",
            "use the layouts of al.tiled_mma and a swizzle that keeps 16-byte rows whole",
        )
    ]


def mma(bounds: BoundsChecker, stmt: Mma) -> list[Finding]:
    """Check that the operands' registers are exactly those that the instruction reads."""
    kernel = bounds.kernel
    target = TARGETS[kernel.target or "sm_80"]
    if stmt.instr not in MMA or stmt.warps is None:
        return []  # wgmma takes descriptors of one fixed form: a rule of well-formed IR
    row = MMA[stmt.instr]
    if not target.has(row):
        text = f"{row.name} needs {' or '.join(row.architectures)}"
        return [refused("instruction-not-available", stmt.span, f"{target.name} has no {row.name}", text)]
    try:
        tiled = tiled_mma(row, stmt.shape, stmt.warps)
    except LayoutError as error:
        return [refused("mma-shape", stmt.span, str(error), "choose other tile sizes or warps")]
    findings = [
        *_mma_operand("a", stmt, stmt.a, kernel, tiled.a, (0, 2), row.operands),
        *_mma_operand("b", stmt, stmt.b, kernel, tiled.b, (1, 2), row.operands),
        *_mma_operand("d", stmt, stmt.d, kernel, tiled.c, (0, 1), (row.accumulator,)),
    ]
    operands = {kernel.object(a.obj).dtype for a in (stmt.a, stmt.b)}
    if len(operands) > 1 and not findings and row.operands[0].bits != 8:
        text = "the two operands have different dtypes"
        findings.append(refused("mma-operand-dtype", stmt.span, text, "convert one of them"))
    return findings


def _mma_operand(
    what: str,
    stmt: Mma,
    access: Access,
    kernel: Kernel,
    layout: FragmentLayout,
    dims: tuple[int, int],
    dtypes: tuple[DType, ...],
) -> Iterator[Finding]:
    """Check that operand `what` has the instruction's `layout`, is indexed by `dims`, and has one of `dtypes`."""
    obj = kernel.object(access.obj)
    name = f"operand {what} ('{access.obj}')"
    if not isinstance(obj, Fragment) or obj.layout is None or not _same_registers(obj.layout, layout):
        text = f"{name} is not laid out as {stmt.instr} reads it"
        yield refused("mma-operand-layout", stmt.span, text, f"give it the layout {layout}")
    elif access.index != tuple(Coord(d) for d in dims):
        text = f"{name} is not indexed by the tile's own coordinates"
        yield unknown("mma-operand-index", "machine", stmt.span, text, "give the instruction whole register tiles")
    elif obj.dtype not in dtypes:
        text = f"{name} is {obj.dtype}; {stmt.instr} takes {', '.join(map(str, dtypes))}"
        yield refused("mma-operand-dtype", stmt.span, text, "convert it, or choose another instruction")


def _same_registers(a: FragmentLayout, b: FragmentLayout) -> bool:
    """Return True if two layouts have the same element in every register of every thread."""
    return a.shape == b.shape and bool(np.array_equal(a.coordinates(), b.coordinates()))
