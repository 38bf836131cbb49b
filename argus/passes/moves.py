"""Find the instruction that moves data between two spaces on a target, and the number of elements that it can move at
once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from argus.ir.affine import Facts, begins_runs, depends_on, linear, on_runs, uniform
from argus.ir.cluster import peers_of
from argus.ir.expr import Const, Coord, Expr
from argus.ir.instruction import INSTRUCTIONS, REDUCES, CopyRow, Ends
from argus.ir.locality import cells
from argus.ir.nodes import Access, Accumulate, BulkCopy, Copy, Fragment, Kernel, MemoryObject, Shared, Stmt, Tensor
from argus.ir.prefix import along
from argus.ir.reach import stated, steps
from argus.ir.target import TARGETS, Target
from argus.ir.waves import in_lane_order
from argus.layout import FragmentLayout
from argus.layout.swizzle import table


@dataclass(frozen=True, slots=True)
class Moves:
    """Names of a vendor's instructions. Matrix moves are tried in order before `load_shared` and `store_shared`."""

    load_global: str
    store_global: str
    load_shared: str
    store_shared: str
    reduce_global: str
    load_matrix: tuple[str, ...] = ()
    store_matrix: tuple[str, ...] = ()
    load_peer: str | None = None
    store_peer: str | None = None
    asynchronous: str | None = None
    load_near: str | None = None
    """Loads that a mask costs less, of elements that lie close together."""
    asynchronous_bytes: int = 16
    """The widest asynchronous copy of a thread, in bytes."""


_NVIDIA = Moves(
    "ld.global", "st.global", "ld.shared", "st.shared", "red.global",
    ("ldmatrix", "ldmatrix.trans"), ("stmatrix",), "ld.shared.cluster", "st.shared.cluster", "cp.async",
)  # fmt: skip
_AMD = Moves(
    "buffer_load", "buffer_store", "ds_read", "ds_write", "global_atomic",
    asynchronous="global_load_lds", load_near="buffer_load.offen", asynchronous_bytes=4,
)  # fmt: skip


def moves(target: Target) -> Moves:
    """Return the instructions of `target`. The CPU target runs NVIDIA's instructions."""
    return _AMD if target.vendor == "amd" else _NVIDIA


def target_of(kernel: Kernel) -> Target:
    """Return the target of a kernel, which must have one."""
    assert kernel.target is not None
    return TARGETS[kernel.target]


def space(obj: MemoryObject) -> str:
    """Return the space of a memory object in the terms of the instruction table."""
    match obj:
        case Tensor():
            return "global"
        case Shared():
            return "shared"
        case Fragment():
            return "fragment"


def by_engine(stmt: Stmt) -> bool:
    """Return True if the copy engine does the copy or update, so that no thread takes part in it."""
    return isinstance(stmt, BulkCopy) or (isinstance(stmt, Accumulate) and stmt.instr in REDUCES)


def select(kernel: Kernel, copy: Copy) -> str | None:
    """Return the synchronous, non-collective instruction between the spaces of `copy`, or None if there is none."""
    names = moves(target_of(kernel))
    if peers_of(copy):
        return names.load_peer if isinstance(kernel.object(copy.dst.obj), Fragment) else names.store_peer
    match space(kernel.object(copy.src.obj)), space(kernel.object(copy.dst.obj)):
        case "global", "fragment":
            return names.load_global
        case "fragment", "global":
            return names.store_global
        case "shared", "fragment":
            return names.load_shared
        case "fragment", "shared":
            return names.store_shared
        case _:
            return None


def near(kernel: Kernel, copy: Copy) -> str | None:
    """Return the instruction for a load that is filled with zeros where it is masked, if preconditions say that all of
    its elements lie near enough to each other."""
    name = moves(target_of(kernel)).load_near
    source, into = kernel.object(copy.src.obj), kernel.object(copy.dst.obj)
    if name is None or copy.mask is None or copy.other is None or copy.other.value != 0:
        return None
    if not isinstance(source, Tensor) or not isinstance(into, Fragment):
        return None
    return name if within_reach(kernel, copy, INSTRUCTIONS[name]) else None


def within_reach(kernel: Kernel, copy: Copy, row: CopyRow) -> bool:
    """Return True if preconditions say that a load's elements lie within the reach of `row`."""
    tensor = kernel.object(copy.src.obj)
    far = steps(copy.src.index, copy.shape)
    if far is None or not isinstance(tensor, Tensor):
        return False
    most = stated(kernel, tensor, far)
    return most is not None and most + max(row.vector_bytes) <= row.reach


def contiguous_dim(tensor: Tensor) -> int | None:
    """Return the last dimension of stride 1."""
    for dim in reversed(range(len(tensor.strides))):
        stride = tensor.strides[dim]
        if isinstance(stride, Const) and stride.value == 1:
            return dim
    return None


def contiguous_axis(tensor: Tensor, index: Sequence[Expr]) -> int | None:
    """Return the domain axis along which `tensor[index]` steps through consecutive elements."""
    dim = contiguous_dim(tensor)
    if dim is None:
        return None
    steps = [e.axis for e, c in linear(index[dim]).terms if isinstance(e, Coord) and c == 1]
    others = [e for d, e in enumerate(index) if d != dim]
    for axis in sorted(steps, reverse=True):
        rest = linear(index[dim]).without(Coord(axis))
        if not rest.depends_on(axis) and not any(depends_on(e, axis) for e in others):
            return axis
    return None


def vector_width(kernel: Kernel, copy: Copy, layout: FragmentLayout, row: CopyRow, known: Facts) -> int:
    """Return the largest number of elements that one access of `row` can move for `copy` in `layout`, or 0 if no width
    is allowed."""
    memory = [o for a in (copy.src, copy.dst) if not isinstance(o := kernel.object(a.obj), Fragment)]
    size = memory[0].dtype.bytes
    for allowed in sorted(row.vector_bytes, reverse=True):
        width = allowed // size
        if width < 1 or allowed % size:
            continue
        if all(_fits(kernel, a, copy, layout, width, known, row) for a in (copy.src, copy.dst)):
            return width
    return 0


def _fits(
    kernel: Kernel, access: Access, copy: Copy, layout: FragmentLayout, width: int, known: Facts, row: CopyRow
) -> bool:
    """Return True if runs of `width` values are consecutive elements of the accessed object, aligned as `row` needs."""
    obj = kernel.object(access.obj)
    if isinstance(obj, Tensor) and row.ends is not Ends.WHOLE:
        axis = fast_axis(layout, width)
        follows = axis == contiguous_axis(obj, access.index)
        return axis is not None and follows and along(copy.mask, axis, row.ends) is not None
    if isinstance(obj, Tensor) and width * obj.dtype.bytes > max(obj.alignment, obj.dtype.bytes):
        return False
    if width == 1 or isinstance(obj, Fragment):
        return True
    axis = fast_axis(layout, width)
    if axis is None or not uniform(copy.mask, axis, width, known):
        return False
    index = [on_runs(e, axis, width, known) for e in access.index]
    moving = [dim for dim, (e, _) in enumerate(index) if depends_on(e, axis)]
    if len(moving) != 1 or not begins_runs(linear(index[moving[0]][0]), axis, width, index[moving[0]][1]):
        return False
    if isinstance(obj, Tensor):
        return moving[0] == contiguous_dim(obj)
    return obj.layout is not None and runs(table(obj.layout, obj.shape), moving[0], width)


def fast_axis(layout: FragmentLayout, width: int) -> int | None:
    """Return the axis along which every aligned run of `width` values is consecutive and starts at a multiple of
    `width`."""
    axis = next((m.dim for m in layout.values if m.extent > 1), None)
    if axis is None or layout.vector_width(axis) % width:
        return None
    rest = [m for m in (*layout.threads, *layout.values) if m.dim == axis and m.extent > 1 and m.stride > 1]
    return axis if all(m.stride % width == 0 for m in rest) else None


def runs(offsets: NDArray[np.int64], dim: int, width: int) -> bool:
    """Return True if aligned runs of `width` coordinates along `dim` have consecutive offsets, and the first one is
    aligned."""
    if offsets.shape[dim] % width:
        return False
    runs = np.moveaxis(offsets, dim, -1).reshape(-1, width)
    return bool((runs[:, 0] % width == 0).all() and (runs == runs[:, :1] + np.arange(width)).all())


def matrix_width(shared: Shared, index: Sequence[Expr], layout: FragmentLayout, row: CopyRow) -> int:
    """Return the number of elements that a lane receives from one matrix move for `shared[index]` in `layout`, or 0 if
    no such move fits.

    Every group of four bytes of a lane must lie where the instruction's 8 rows of 16 bytes place it.
    """
    bits = shared.dtype.bits
    if bits not in row.dtypes_bits or shared.layout is None or layout.num_threads % 32:
        return 0
    group = 32 // bits
    if layout.num_values % group:
        return 0
    offsets = table(shared.layout, shared.shape).reshape(-1)
    for touched in _touched(shared, index, layout):
        if touched is None or bool((touched < 0).any()):
            return 0
        if not _rows(offsets[touched], group, row.transposed):
            return 0
    return group * next(n for n in (4, 2, 1) if _cuts(layout, group * n))


def lane_order(kernel: Kernel, copy: Copy, layout: FragmentLayout, width: int) -> bool:
    """Return True if a load to LDS of `width` elements per lane fits: all threads take part, and each wave fills one
    run."""
    tile = kernel.object(copy.dst.obj)
    assert isinstance(tile, Shared)
    if tile.layout is None or not layout.primary().all() or layout.num_threads % kernel.warp_size:
        return False
    offsets = table(tile.layout, tile.shape).reshape(-1)
    for touched in _touched(tile, copy.dst.index, layout):
        if touched is None or bool((touched < 0).any()):
            return False
        first = offsets[touched][None, :, ::width] * tile.dtype.bytes
        if not in_lane_order(first, kernel.warp_size).all():
            return False
    return True


def _cuts(layout: FragmentLayout, width: int) -> bool:
    """Return True if the value digits of `layout` can be split into digits that count to `width` and the remaining
    ones."""
    weight = 1
    for mode in layout.values:
        if weight * mode.extent >= width:
            return width % weight == 0 and weight * mode.extent % width == 0
        weight *= mode.extent
    return weight == width


def _touched(shared: Shared, index: Sequence[Expr], layout: FragmentLayout) -> list[NDArray[np.int64] | None]:
    """Return the cells accessed for every value of the one index that may depend on a loop counter (the stage)."""
    rank = len(layout.shape)
    fixed = [not any(depends_on(e, axis) for axis in range(rank)) and not isinstance(e, Const) for e in index]
    if sum(fixed) > 1:
        return [None]
    places = range(shared.shape[fixed.index(True)]) if any(fixed) else range(1)
    return [
        cells(tuple(Const(p) if f else e for e, f in zip(index, fixed, strict=True)), shared.shape, layout)
        for p in places
    ]


def _rows(offsets: NDArray[np.int64], group: int, trans: bool) -> bool:
    """Return True if offsets `[threads, values]` are the offsets of matrices with 8 rows of 16 bytes."""
    by_lane = offsets.reshape(-1, 32, offsets.shape[1] // group, group)
    lane = np.arange(32)[:, None]
    part = np.arange(group)[None, :]
    along, across = lane % 4 * group + part, lane // 4 + 0 * part
    row, column = (along, across) if trans else (across, along)
    start = by_lane.transpose(0, 2, 1, 3) - column
    first = np.zeros((*start.shape[:2], 8), dtype=np.int64)
    first[:, :, row] = start
    return bool((first[:, :, row] == start).all() and (first % (4 * group) == 0).all())
