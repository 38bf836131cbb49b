"""Rules that a kernel breaks in every launch: budgets of a block, instructions of a target, operands of products."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from argus.hardware.documents import MACHINES, MOVES, PRODUCTS, LaneMap, Product
from argus.hardware.places import elements, held, registers, threads_of, values_of
from argus.ir.nodes import Access, Copy, Fragment, Kernel, Mma, Stmt
from argus.ir.visit import walk
from argus.layout import FragmentLayout
from argus.source import Span


def breaks(kernel: Kernel, code: str, span: Span) -> bool | None:
    """Return True if the kernel breaks the rule `code` at `span` in its text, or None if `code` is no such rule."""
    if code in _OF_BLOCKS:
        return _OF_BLOCKS[code](kernel, span)
    if code not in _OF_STATEMENTS:
        return None
    return any(_OF_STATEMENTS[code](kernel, stmt) for stmt in walk(kernel.body) if stmt.span == span)


# ---------------------------------------------------------------------------- blocks


def _overlap(kernel: Kernel, span: Span) -> bool:
    return any(max(Counter(elements(tile)).values()) > 1 for tile in kernel.shared if tile.span == span)


def _too_much_shared(kernel: Kernel, span: Span) -> bool:
    ends = [b.offset + 8 * b.count for b in kernel.barriers if b.offset is not None]
    ends += [(t.offset or 0) + (max(elements(t)) + 1) * t.dtype.bits // 8 for t in kernel.shared]
    return max(ends) > MACHINES[kernel.target or "sm_80"].shared_bytes


def _too_many_threads(kernel: Kernel, span: Span) -> bool:
    return kernel.num_warps * kernel.warp_size > MACHINES[kernel.target or "sm_80"].threads


def _too_many_registers(kernel: Kernel, span: Span) -> bool:
    most = MACHINES[kernel.target or "sm_80"].registers
    layouts = [(f.layout, f.dtype.bits) for f in kernel.fragments if f.span == span and f.layout is not None]
    return any(values_of(layout) * bits > 32 * most for layout, bits in layouts)


_OF_BLOCKS: dict[str, Callable[[Kernel, Span], bool]] = {
    "shared-layout-overlaps": _overlap,
    "shared-memory-exceeded": _too_much_shared,
    "too-many-threads": _too_many_threads,
    "register-budget-exceeded": _too_many_registers,
}


# ---------------------------------------------------------------------------- statements


def _absent(kernel: Kernel, stmt: Stmt) -> bool:
    row = MOVES.get(_name(stmt)) or PRODUCTS.get(_name(stmt))
    return row is not None and (kernel.target or "sm_80") not in row.machines


def _width(kernel: Kernel, stmt: Stmt) -> bool:
    move = MOVES.get(_name(stmt))
    if move is None or not isinstance(stmt, Copy):
        return False
    bits = kernel.object(stmt.dst.obj).dtype.bits
    return bits not in move.bits or stmt.vector * bits not in [8 * size for size in move.sizes]


def _shape(kernel: Kernel, stmt: Stmt) -> bool:
    return _tiles(stmt) is None and _name(stmt) in PRODUCTS


def _types(kernel: Kernel, stmt: Stmt) -> bool:
    row = PRODUCTS.get(_name(stmt))
    if row is None or not isinstance(stmt, Mma):
        return False
    a, b, d = (kernel.object(access.obj).dtype.name for access in (stmt.a, stmt.b, stmt.d))
    return a not in row.types or b not in row.types or d != row.sums or (a != b and not row.mixed)


def _operands(kernel: Kernel, stmt: Stmt) -> bool:
    tiles = _tiles(stmt)
    if tiles is None or not isinstance(stmt, Mma):
        return False
    operands = (stmt.a, stmt.b, stmt.d)
    return any(not _as_read(kernel, access, expected) for access, expected in zip(operands, tiles, strict=True))


_OF_STATEMENTS: dict[str, Callable[[Kernel, Stmt], bool]] = {
    "instruction-not-available": _absent,
    "vector-width": _width,
    "mma-shape": _shape,
    "mma-operand-dtype": _types,
    "mma-operand-layout": _operands,
}


def _name(stmt: Stmt) -> str:
    return getattr(stmt, "instr", None) or ""


Tile = Iterator[tuple[tuple[int, int], tuple[int, int]]]
"""Each register of an operand as (thread, value), with the element that an instruction reads from it."""


def _tiles(stmt: Stmt) -> tuple[Tile, Tile, Tile] | None:
    """Return the registers of A, B and C of a product, or None if its instruction does not divide the tile."""
    row = PRODUCTS.get(_name(stmt))
    if row is None or not isinstance(stmt, Mma) or stmt.warps is None:
        return None
    along = (*stmt.warps, 1)
    if any(extent % (step * groups) for extent, step, groups in zip(stmt.shape, row.shape, along, strict=True)):
        return None
    m, n, k = 0, 1, 2

    def tile(lanes: LaneMap, axes: tuple[int, int]) -> Tile:
        return _tile(row, lanes, axes, stmt.shape, along)

    return tile(row.a, (m, k)), tile(row.b, (n, k)), tile(row.c, (m, n))


def _tile(row: Product, lanes: LaneMap, axes: tuple[int, int], shape: tuple[int, ...], along: tuple[int, ...]) -> Tile:
    """Yield the registers of an operand over two of the axes (m, n, k), as warps share out a tile of `shape`.

    Warp w is at (w // WN, w % WN) of the WM x WN warps. Adjacent warps hold adjacent pieces of the instruction's size.
    A warp's pieces follow one another, along the second axis first.
    """
    rows, columns = (row.shape[axis] for axis in axes)
    down, across = (shape[axis] // (row.shape[axis] * along[axis]) for axis in axes)
    each = rows * columns // row.lanes
    for warp in range(along[0] * along[1]):
        at = (warp // along[1], warp % along[1], 0)
        for lane in range(row.lanes):
            for value in range(each * down * across):
                piece, i = divmod(value, each)
                y, x = lanes(lane, i)
                first = (piece // across * along[axes[0]] + at[axes[0]]) * rows
                second = (piece % across * along[axes[1]] + at[axes[1]]) * columns
                yield (warp * row.lanes + lane, value), (first + y, second + x)


def _as_read(kernel: Kernel, access: Access, expected: Tile) -> bool:
    """Return True if the operand's registers hold what the instruction reads from them."""
    tile = kernel.object(access.obj)
    if not isinstance(tile, Fragment) or tile.layout is None:
        return False
    layout: FragmentLayout = tile.layout
    count = 0
    for (thread, value), element in expected:
        count += 1
        if thread >= threads_of(layout) or value >= values_of(layout) or held(layout, thread, value) != element:
            return False
    return count == sum(1 for _ in registers(layout))
