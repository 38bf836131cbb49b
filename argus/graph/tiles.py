"""Which tile a generated kernel works on: the replaceable part of the generator.

A tile has columns, along which memory is contiguous, and rows. A reduction goes along the columns ("rows of a matrix
are summed") or along the rows ("its columns are"). Reduced rows of up to `MOST_HELD` elements stay in registers: one
pass over memory. Longer ones, and those whose length is known only when they run, are read piece by piece.
"""

from __future__ import annotations

from dataclasses import dataclass

from argus.graph.layout import LEFT, PARALLEL, REDUCED, RIGHT, Axis, Layout
from argus.graph.space import Mismatch

MOST_HELD = 8192
"""Elements of a row that the registers of a block hold beside what is computed from them."""

_ELEMENTS = 1024  # of a tile: 8 a thread of 4 warps
_ROWS_OF_COLUMNS, _COLUMNS = 32, 64  # of a tile whose rows are reduced


@dataclass(frozen=True)
class Tile:
    """A tile of `height` by `width` elements along the axes `rows` (if any) and `columns`; the axes `grid` have a
    program each. `over`: "columns", "rows" or "" for what is reduced; `loops`: further reduced axes; `held`: one tile
    has all that is reduced."""

    rows: Axis | None
    columns: Axis
    grid: tuple[Axis, ...]
    height: int
    width: int
    over: str = ""
    loops: tuple[Axis, ...] = ()
    held: bool = False
    warps: int = 4


def tile(layout: Layout) -> Tile:
    """The tile of a group without a product. Raises Mismatch for a group without axes."""
    parallel, reduced = list(layout.of(PARALLEL)), list(layout.of(REDUCED))
    if not parallel and not reduced:
        raise Mismatch("a kernel of one element")
    if not reduced:
        columns = contiguous(layout, parallel)
        rest = [a for a in parallel if a is not columns]
        width = min(_ELEMENTS, _power(columns))
        height = _ELEMENTS // width
        rows = rest.pop() if rest and height > 1 else None
        return Tile(rows, columns, tuple(rest), height if rows else 1, width)
    inner = contiguous(layout, [*parallel, *reduced])
    if inner in reduced or not parallel:
        columns = inner if inner in reduced else reduced[-1]
        loops = tuple(a for a in reduced if a is not columns)
        held = not loops and isinstance(columns.extent, int) and columns.extent <= MOST_HELD
        width = _power(columns) if held else _ELEMENTS
        rows = parallel[-1] if parallel and width < _ELEMENTS else None
        height = max(1, _ELEMENTS // width) if rows else 1
        grid = tuple(a for a in parallel if a is not rows)
        return Tile(rows, columns, grid, height, width, "columns", loops, held, 8 if width > 2048 else 4)
    rows = reduced[-1]
    loops, grid = tuple(reduced[:-1]), tuple(a for a in parallel if a is not inner)
    return Tile(rows, inner, grid, _ROWS_OF_COLUMNS, min(_COLUMNS, _power(inner)), "rows", loops)


@dataclass(frozen=True)
class ProductTile:
    """A product's tile: `m` by `n` elements along two axes, `k` terms at a time; `mma`: by a matrix instruction."""

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


def product_tile(layout: Layout, target: str) -> ProductTile:
    """The tile of a matrix product. Raises Mismatch for one whose factors are no matrices with batches."""
    left, right, depth = layout.of(LEFT), layout.of(RIGHT), layout.of(REDUCED)
    if len(depth) != 1 or not left or not right:
        raise Mismatch("a product over several axes")
    columns = contiguous(layout, list(right))
    rows = contiguous(layout, list(left))
    grid = tuple(a for a in layout.axes if a.kind != REDUCED and a not in (rows, columns))
    a = next(p for p in layout.reads if p.use == "a")
    if a.meta.dtype == "float32":
        return ProductTile(rows, columns, depth[0], grid, 32, 32, 1, 1, False, 4)
    big = target == "sm_90a" and all(isinstance(x.extent, int) and x.extent >= 128 for x in (rows, columns))
    if big:
        return ProductTile(rows, columns, depth[0], grid, 128, 128, 64, 4, True, 8, 4)
    return ProductTile(rows, columns, depth[0], grid, 64, 64, 32, 3, True, 4)


def contiguous(layout: Layout, axes: list[Axis]) -> Axis:
    """Of these axes the one along which most elements are contiguous in memory; the last of equals."""

    def weight(axis: Axis) -> tuple[int, int]:
        tensors = [p for p in (*layout.writes, *layout.reads) if p.axes and p.axes[-1] is axis and p.strides[-1] == 1]
        return sum(len(p.axes) for p in tensors), axes.index(axis)

    return max(axes, key=weight)


def _power(axis: Axis) -> int:
    """The extent rounded up to a power of two; of a size known only when it runs, a tile's width."""
    if not isinstance(axis.extent, int):
        return _ELEMENTS
    power = 1
    while power < axis.extent:
        power *= 2
    return max(power, 2)
