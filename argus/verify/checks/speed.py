"""Warnings about slow accesses, in units of the hardware: shared-memory wavefronts and global-memory sectors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from argus.diagnostic import Severity, Verdict
from argus.ir.expr import Const, Coord, Op
from argus.ir.instruction import INSTRUCTIONS
from argus.ir.nodes import Access, Copy, Kernel, Shared, Tensor
from argus.ir.target import TARGETS
from argus.layout import LayoutError
from argus.layout.analysis import AMD_LDS, AMD_LDS_WRITE, NVIDIA_SHARED, BankModel, access_conflicts
from argus.verify.checks.physical import offsets
from argus.verify.findings import Finding
from argus.verify.model.program import Site

SECTOR = 32
"""Bytes of a global-memory sector (NVIDIA L2, Nsight Compute's unit)."""


def check(kernel: Kernel, sites: tuple[Site, ...]) -> list[Finding]:
    """Warn about every copy whose accesses take more wavefronts or sectors than necessary."""
    findings = []
    for site in sites:
        stmt = site.stmt
        if not isinstance(stmt, Copy) or stmt.layout is None or stmt.instr is None:
            continue
        for access in (stmt.src, stmt.dst):
            obj = kernel.object(access.obj)
            finding = None
            if isinstance(obj, Shared):
                finding = _banks(kernel, site, stmt, access, obj)
            elif isinstance(obj, Tensor):
                finding = _sectors(kernel, stmt, access, obj)
            if finding is not None:
                findings.append(finding)
    return findings


def wavefronts(kernel: Kernel, site: Site, stmt: Copy, access: Access, tile: Shared) -> tuple[int, int] | None:
    """Return (wavefronts, fewest possible) of one execution of a copy by all warps of a block; None if unknown."""
    found = offsets(site, access, tile)
    if found is None or stmt.layout is None or stmt.instr is None:
        return None
    size, model = kernel.warp_size, _model(kernel, stmt, access)
    bytes_ = found[0] * tile.dtype.bytes
    if INSTRUCTIONS[stmt.instr].collective:
        return _matrix_wavefronts(bytes_, tile.dtype.bytes)
    width = stmt.vector * tile.dtype.bytes
    starts = bytes_.reshape(-1, size, bytes_.shape[-1] // stmt.vector, stmt.vector)[..., 0]
    active = stmt.layout.primary() if access is stmt.dst else np.ones(bytes_.shape, dtype=np.bool_)
    used = active.reshape(-1, size, bytes_.shape[-1] // stmt.vector, stmt.vector)[..., 0]
    total = ideal = 0
    for warp in range(starts.shape[0]):
        for group in range(starts.shape[2]):
            found_here = access_conflicts(starts[warp, :, group], width, model, used[warp, :, group])
            total, ideal = total + found_here.wavefronts, ideal + found_here.ideal
    return total, ideal


def _matrix_wavefronts(bytes_: NDArray[Any], element: int) -> tuple[int, int]:
    """Return (wavefronts, fewest possible) of ldmatrix.

    Each 8x8 matrix takes one pass if its eight 16-byte rows lie in different banks.
    """
    per_lane = 4 // element
    total = ideal = 0
    lanes = bytes_.reshape(-1, 32, bytes_.shape[-1] // per_lane, per_lane)
    for warp in range(lanes.shape[0]):
        for matrix in range(lanes.shape[2]):
            rows = np.unique(lanes[warp, :, matrix, :] // 16)
            passes = np.bincount(rows % 8).max()
            total, ideal = total + int(passes), ideal + max(1, -(-len(rows) // 8))
    return total, ideal


def _model(kernel: Kernel, stmt: Copy, access: Access) -> BankModel:
    if TARGETS[kernel.target or "sm_80"].vendor == "amd":
        return AMD_LDS_WRITE if access is stmt.dst else AMD_LDS
    return NVIDIA_SHARED


def _banks(kernel: Kernel, site: Site, stmt: Copy, access: Access, tile: Shared) -> Finding | None:
    try:
        counted = wavefronts(kernel, site, stmt, access, tile)
    except LayoutError:  # Another property reports misaligned accesses and accesses outside.
        return None
    if counted is None or counted[0] <= counted[1]:
        return None
    total, ideal = counted
    help = "swizzle the tile (al.swizzle) or change the register layout"
    if not tile.span.known:
        help = f"'{tile.name}' is the compiler's own, to exchange registers: only another register layout avoids this"
    return Finding(
        "bank-conflicts",
        "speed",
        Verdict.REFUTED,
        f"{stmt.instr} of shared tile '{tile.name}' takes {total} wavefronts a block where {ideal} would do "
        f"({total / ideal:.1f}-way bank conflicts)",
        stmt.span,
        help=help,
        severity=Severity.WARNING,
    )


def _sectors(kernel: Kernel, stmt: Copy, access: Access, tensor: Tensor) -> Finding | None:
    """Warn if a warp touches at least twice as many sectors as necessary.

    This covers accesses that are affine in the coordinates, to tensors with a known stride-1 dimension.
    """
    layout = stmt.layout
    assert layout is not None
    unit = [i for i, s in enumerate(tensor.strides) if s == Const(1, s.dtype)]
    if not unit:
        return None
    moving = [_single_coordinate(e) for e in access.index]
    if all(m is None for m in moving):
        return None
    strides = [int(s.value) if isinstance(s, Const) else None for s in tensor.strides]
    sectors, ideal = _counted(kernel, stmt, tensor, moving, strides)
    if sectors < 2 * ideal:
        return None
    help = "let consecutive threads run along the tensor's contiguous dimension"
    whole = _contiguous(tensor)
    if whole is not None:
        fewer, _ = _counted(kernel, stmt, tensor, moving, [*whole])
        if fewer < sectors:
            help = (
                f"the strides of '{tensor.name}' are known at launch only. If its rows follow one another, say so: "
                f'`al.Tensor[al.{tensor.dtype}, "...", "{" ".join(map(str, whole))}"]`, and {fewer} sectors do'
            )
    return Finding(
        "uncoalesced-access",
        "speed",
        Verdict.REFUTED,
        f"{stmt.instr} of tensor '{tensor.name}' touches {sectors} sectors of {SECTOR} bytes a warp "
        f"where {ideal} would do",
        stmt.span,
        help=help,
        severity=Severity.WARNING,
    )


def _counted(
    kernel: Kernel, stmt: Copy, tensor: Tensor, moving: list[int | None], strides: list[int | None]
) -> tuple[int, int]:
    """Return the number of sectors that a warp touches, and the number that its elements would fill.

    Elements that are an unknown stride apart count as lying in different sectors.
    """
    layout = stmt.layout
    assert layout is not None
    coordinates = layout.coordinates().astype(np.int64)
    warp = coordinates[: kernel.warp_size].reshape(kernel.warp_size, -1, stmt.vector, layout.rank)[:, 0]
    offset, row, element = (np.zeros(warp.shape[:2], dtype=np.int64) for _ in range(3))
    for along, stride in zip(moving, strides, strict=True):
        if along is None:
            continue
        element = element * layout.shape[along] + warp[..., along]
        if stride is None:
            row = row * layout.shape[along] + warp[..., along]
        else:
            offset = offset + warp[..., along] * stride
    sector = offset * tensor.dtype.bytes // SECTOR
    sectors = len(np.unique(np.stack([row.ravel(), sector.ravel()], axis=1), axis=0))
    return sectors, -(-len(np.unique(element)) * tensor.dtype.bytes // SECTOR)


def _contiguous(tensor: Tensor) -> list[int] | None:
    """Return the strides of contiguous rows; None if they are not constant, or if the tensor states all of its strides.
    """
    strides = [1]
    for extent in reversed(tensor.shape[1:]):
        if not isinstance(extent, Const):
            return None
        strides.insert(0, strides[0] * int(extent.value))
    return None if all(isinstance(s, Const) for s in tensor.strides) else strides


def _single_coordinate(index: object) -> int | None:
    """Return the axis of the only coordinate in an index of the form `uniform + Coord`; None for other indices."""
    match index:
        case Coord(axis=axis):
            return axis
        case Op(op="add", args=(a, b)):
            left, right = _single_coordinate(a), _single_coordinate(b)
            return left if right is None else right if left is None else None
        case _:
            return None
