"""Choose the tile that a generated kernel works on. This is the replaceable part of the generator.

A tile has columns, along which memory is contiguous, and rows. A reduction goes along the columns ("rows of a matrix
are summed") or along the rows ("its columns are"). Reduced rows of up to `MOST_HELD` elements stay in registers: one
pass over memory. Longer rows, and rows whose length is known only at run time, are read piece by piece.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING

from argus.graph.layout import LEFT, PARALLEL, PLACE, REDUCED, RIGHT, Axis, Layout, Param
from argus.graph.space import Mismatch
from argus.ir.machine import H200

if TYPE_CHECKING:
    from argus.kernels.product_tile import ProductShape
    from argus.kernels.product_tile import Tile as LibraryTile

MOST_HELD = 8192
"""Largest number of elements of a row that the registers of a block hold, in addition to the values computed from
them."""

MOST_ROWS = 128
"""Largest number of rows that are reduced in registers."""

ELEMENTS = 1024  # elements of a tile: 8 for each thread of 4 warps
_IN_FLIGHT = 4096  # elements of a row that is read piece by piece for which a block waits at a time
_ROWS_OF_COLUMNS, _COLUMNS = 32, 128  # rows and columns of a tile whose rows are reduced
_MOST_COLUMNS = 512  # columns of a tile with few rows
_LEAST_COLUMNS = 16  # columns of a tile whose rows are reduced by few programs: a sector of 16-bit floats
_FILLED = H200.multiprocessors  # programs that fill a GPU
# rows of a tile with scans along the columns, in which every thread gathers the results of all warps
_ROWS_OF_SCANS = 16
_LEAST_WIDTH = 256  # smallest width of a row that is read piece by piece
_LEAST_WORK = 128  # elements of a tile for each warp
_LINE = 32  # elements of a line of memory: a shorter row of a tile is continued by the axis that follows it
_SIDE, _LEAST_SIDE = 64, 4  # sides of a tile that is transposed in shared memory


@dataclass(frozen=True)
class Tile:
    """A tile of `height` by `width` elements along the axes `rows` (if any) and `columns`. Each index along the axes
    `grid` has its own program. `over` says what is reduced: "columns", "rows" or "". `loops` are further reduced axes.
    `held`: one tile contains all reduced elements. `turned`: results are contiguous along the rows, and are stored
    through shared memory."""

    rows: Axis | None
    columns: Axis
    grid: tuple[Axis, ...]
    height: int
    width: int
    over: str = ""
    loops: tuple[Axis, ...] = ()
    held: bool = False
    warps: int = 4
    turned: bool = False


def tile(layout: Layout, scans: bool = False, follows: Mapping[str, Axis] | None = None) -> Tile:
    """Return the tile of a group without a product. `scanned` tells if the group has scans. `follows` maps the symbol
    of an axis that is read at computed indices to the axis of results along which these indices run. Raises Mismatch
    for a group without axes."""
    parallel, reduced = list(layout.of(PARALLEL)), list(layout.of(REDUCED))
    if not parallel and not reduced:
        raise Mismatch("a kernel of one element")
    if not reduced:
        columns = contiguous(layout, parallel)
        found = _turned(layout, columns, follows or {})
        if found is not None:
            stored, read = found
            grid = tuple(a for a in parallel if a not in found)
            width, height = (min(_SIDE, power(a)) for a in (read, stored))
            return Tile(stored, read, grid, height, width, warps=8, turned=True)
        rest = [a for a in parallel if a is not columns]
        width = min(ELEMENTS, power(columns))
        rows = None
        if width < ELEMENTS and rest:
            rows = max(rest, key=lambda a: (_used(a, ELEMENTS // width), rest.index(a)))
            if width < _LINE:
                rows = _continued(layout, rest, width) or rows
        height = min(ELEMENTS // width, power(rows)) if rows is not None else 1
        warps = max(1, min(4, height * width // _LEAST_WORK))
        return Tile(rows, columns, tuple(a for a in rest if a is not rows), height, width, warps=warps)
    inner = contiguous(layout, [*parallel, *reduced])
    if inner in reduced or not parallel:
        columns = inner if inner in reduced else reduced[-1]
        loops = tuple(a for a in reduced if a is not columns)
        held = not loops and isinstance(columns.extent, int) and columns.extent <= MOST_HELD
        width = power(columns) if held else min(_IN_FLIGHT, max(power(columns), _LEAST_WIDTH))
        rows = parallel[-1] if parallel and width < ELEMENTS else None
        height = max(1, ELEMENTS // width) if rows else 1
        grid = tuple(a for a in parallel if a is not rows)
        return Tile(rows, columns, grid, height, width, "columns", loops, held, 8 if width > 2048 else 4)
    rows = reduced[-1]
    loops, grid = tuple(reduced[:-1]), tuple(a for a in parallel if a is not inner)
    height = power(rows)
    if not scans and not loops and isinstance(rows.extent, int) and height <= MOST_ROWS:
        width = min(_COLUMNS, max(_ROWS_OF_COLUMNS, _IN_FLIGHT // height), power(inner))
        return Tile(rows, inner, grid, height, width, "rows", held=True, warps=8)
    if scans:
        return Tile(rows, inner, grid, _ROWS_OF_SCANS, min(_COLUMNS // 2, power(inner)), "rows", loops)
    height = min(_ROWS_OF_COLUMNS, height)
    width = min(max(_COLUMNS, min(_IN_FLIGHT // height, _MOST_COLUMNS)), power(inner))
    height, width = _narrower(rows, inner, grid, height, width)
    held = not loops and isinstance(rows.extent, int) and rows.extent <= height
    return Tile(rows, inner, grid, height, width, "rows", loops, held, 8)


def _narrower(rows: Axis, inner: Axis, grid: tuple[Axis, ...], height: int, width: int) -> tuple[int, int]:
    """Return the height and width of a tile whose rows are reduced, with fewer columns and more rows if programs are
    few: there are more programs then, and each waits for memory less often."""
    sizes = [rows.extent, inner.extent, *(a.extent for a in grid)]
    if not all(isinstance(size, int) for size in sizes):
        return height, width
    programs = prod(a.extent for a in grid)
    while width > _LEAST_COLUMNS and height < power(rows) and programs * -(-inner.extent // width) < _FILLED:
        height, width = 2 * height, width // 2
    if programs * -(-inner.extent // width) < _FILLED and height < power(rows):
        height *= 2
    return height, width


def _continued(layout: Layout, axes: list[Axis], width: int) -> Axis | None:
    """Return the axis that continues short rows of a tile: that of some axes along which elements of the first result
    are closest in memory. If that makes a small tile, a tensor that is read decides."""
    found = [near for p in (layout.writes[0], *layout.reads) if (near := _neighbour(p, axes, width)) is not None]
    return next((a for a in found if min(ELEMENTS, width * power(a)) >= _LEAST_WORK), found[0] if found else None)


def _neighbour(param: Param, axes: list[Axis], width: int) -> Axis | None:
    """Return that of some axes along which elements of a tensor are closest in memory, if rows along it are used."""
    strides = zip(param.axes, param.strides, strict=True)
    known = [(stride, n) for n, (axis, stride) in enumerate(strides) if axis in axes]
    if not known or not all(isinstance(stride, int) for stride, _ in known):
        return None
    near = param.axes[min(known)[1]]
    return near if _used(near, ELEMENTS // width) > 0.5 else None


def _used(axis: Axis, height: int) -> float:
    """Return the share of a tile's rows that are elements of an axis, or 1 for a size that is known only at run time.
    """
    if not isinstance(axis.extent, int):
        return 1.0
    height = min(height, power(axis))
    return axis.extent / (-(-axis.extent // height) * height)


def _turned(layout: Layout, columns: Axis, follows: Mapping[str, Axis]) -> tuple[Axis, Axis] | None:
    """Return the axis along which all results are contiguous, and the axis along which a tensor that is read is
    contiguous instead. `columns` is the axis along which most elements are. Return None if there are no such axes."""
    last = {p.axes[-1].symbol: p.axes[-1] for p in layout.writes if p.axes and p.strides[-1] == 1}
    stored = next(iter(last.values())) if len(last) == 1 else columns
    if any(not p.axes or p.axes[-1] is not stored or p.strides[-1] != 1 for p in layout.writes):
        return None
    for read in layout.reads:
        along = [follows.get(axis.symbol, axis) for axis in read.axes]
        if stored in along[:-1] and read.strides[-1] == 1:
            other = along[-1]
            if other is not stored and other.kind == PARALLEL and min(power(other), power(stored)) >= _LEAST_SIDE:
                return stored, other
    return None


@dataclass(frozen=True)
class ProductTile:
    """A product's tile: `m` by `n` elements along two axes, and `k` terms at a time. `mma`: a matrix instruction
    computes it."""

    rows: Axis
    columns: Axis
    depth: Axis
    grid: tuple[Axis, ...]
    m: int
    n: int
    k: int
    stages: int
    mma: bool
    warps: int
    producers: int = 0


def product_tile(layout: Layout, target: str, bits: int) -> ProductTile:
    """Return the tile of a matrix product. `bits` is the width of an element that a matrix instruction multiplies, or 0
    if no instruction fits. Raises Mismatch if the factors are not batched matrices."""
    left, right, depth = layout.of(LEFT), layout.of(RIGHT), layout.of(REDUCED)
    if len(depth) != 1 or not (left or right):
        raise Mismatch("a product over several axes")
    columns = contiguous(layout, list(right or left))
    rows = contiguous(layout, list(left)) if left and right else None
    grid = tuple(a for a in layout.axes if a.kind != REDUCED and a not in (rows, columns))
    if rows is None:
        raise Mismatch("a product of a matrix and a vector")
    if not bits:
        return ProductTile(rows, columns, depth[0], grid, 32, 32, 1, 1, False, 4)
    found = _measured(layout, rows, columns, depth[0], grid, target, bits)
    return found or ProductTile(rows, columns, depth[0], grid, 64, 64, 512 // bits, 3, True, 4)


def _measured(
    layout: Layout, rows: Axis, columns: Axis, depth: Axis, grid: tuple[Axis, ...], target: str, bits: int
) -> ProductTile | None:
    """Return the tile that the machine's model expects to be the fastest. Return None if sizes are known only at run
    time."""
    from argus.kernels.product_tile import ProductShape

    if target != "sm_90a" or not all(isinstance(a.extent, int) for a in layout.axes):
        return None
    a, b = (next(p for p in layout.reads if p.use == use) for use in "ab")
    by_depth = [p.axes[-1] is depth and p.strides[-1] == 1 for p in (a, b)]
    bulk = bits == 16 or all(by_depth)
    loaded = sum(not _whole_vectors(p, bits) for p in (a, b))
    made = layout.writes[0]
    beside = sum(
        8 * _BYTES.get(p.meta.dtype, 4) for p in layout.reads if not p.use and rows in p.axes and columns in p.axes
    )
    batch = 1
    for axis in grid:
        batch *= axis.extent
    problem = ProductShape(
        rows.extent, columns.extent, depth.extent, batch, bits, 8 * _BYTES.get(made.meta.dtype, 4), target, bulk,
        a_rows=by_depth[0], b_rows=by_depth[1],
        bulk_out=made.strides[-1] == 1 and made.axes[-1] is columns, residual=beside,
        loaded=loaded if bulk else 0,
    )  # fmt: skip
    tile = _fastest(problem)
    if tile is None:
        return None
    sizes = (tile.block_m, tile.block_n, tile.block_k, tile.stages)
    return ProductTile(rows, columns, depth, grid, *sizes, True, tile.num_warps, tile.producers)


@lru_cache(maxsize=256)
def _fastest(problem: ProductShape) -> LibraryTile | None:
    """Return the fastest tile of the library that the generator has a kernel for."""
    from argus.kernels.tile_times import ranked

    for tile, _ in ranked(problem):
        plain = not (tile.swapped or tile.part or tile.packed or tile.shift) and tile.cluster == 1
        if plain and tile.schedule == "rows":
            return tile
    return None


_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "bool": 1}


def _whole_vectors(param: Param, bits: int) -> bool:
    """Return True if rows begin at multiples of 16 bytes and consist of whole vectors."""
    sizes = (param.axes[-1].extent, *param.strides[:-1])
    return param.strides[-1] == 1 and all(size * bits % 128 == 0 for size in sizes)


_WINDOWS, _WIDEST, _HIGHEST = 2048, 256, 16
"""Elements of a tile of windows, and its largest sides."""


def window_tile(
    layout: Layout, spatial: tuple[Axis, ...], strides: Mapping[str, int], follows: Mapping[str, Axis]
) -> Tile:
    """Return the tile of a kernel that goes over the taps of windows. `strides`: of windows along axes, by the axes'
    symbols; `follows`: the axis of results for each axis of the image. What a tile reads must stay in the L1 cache.
    Raises Mismatch if there is one window."""
    axes = [a for a in layout.axes if a.kind not in (REDUCED, PLACE)]
    if not axes:
        raise Mismatch("a kernel of one element")
    columns = contiguous(layout, axes)
    rest = [a for a in axes if a is not columns]
    found = _turned(layout, columns, follows)
    if found is not None:
        stored, read = found
        grid = tuple(a for a in axes if a not in found)
        return Tile(stored, read, grid, _side(stored, _SIDE), _side(read, _SIDE), warps=8, turned=True)
    rows = max(rest, key=lambda a: (a in spatial, rest.index(a)), default=None)
    width = _side(columns, _WIDEST)
    elements = _WINDOWS // strides.get(columns.symbol, 1)
    height = _side(rows, min(_HIGHEST, max(2, _below(elements // width)))) if rows is not None else 1
    warps = max(1, min(4, width * height // (2 * _LEAST_WORK)))
    return Tile(rows, columns, tuple(a for a in rest if a is not rows), height, width, warps=warps)


def _below(number: int) -> int:
    """Round a number down to a power of two that is at least 1."""
    return 1 << max(number, 1).bit_length() - 1


def _side(axis: Axis, most: int) -> int:
    """Return a power of two up to `most`, with which few elements lie outside an axis. A shorter side counts as more
    work."""
    if not isinstance(axis.extent, int):
        return most
    sides = [n for n in (16, 32, 64, 128, 256) if n <= most] or [most]
    return min(min(power(axis), most), *sides, key=lambda n: -(-axis.extent // n) * (n + 8))


def contiguous(layout: Layout, axes: list[Axis]) -> Axis:
    """Return the axis along which most elements are contiguous in memory. Among equals, the last one is returned."""

    def weight(axis: Axis) -> tuple[int, int]:
        tensors = [p for p in (*layout.writes, *layout.reads) if p.axes and p.axes[-1] is axis and p.strides[-1] == 1]
        return sum(len(p.axes) for p in tensors), axes.index(axis)

    return max(axes, key=weight)


def power(axis: Axis) -> int:
    """Return the extent rounded up to a power of two, or a tile's width for a size that is known only at run time."""
    return power_of(axis.extent) if isinstance(axis.extent, int) else ELEMENTS


def power_of(number: int) -> int:
    """Round a number up to a power of two that is at least 2."""
    power = 2
    while power < number:
        power *= 2
    return power
