"""Kernels of sums at places that an index tensor holds.

Each program adds a part of one row to the row of the result that the index tensor says, by atomic additions. The result
is 0 before the launch. Blocks add in any order, so results may differ by rounding from run to run.
"""

from __future__ import annotations

from argus.graph.grids import blocks, grid
from argus.graph.layout import REDUCED, Axis, Layout

_WIDEST, _OF_A_WARP = 1024, 256
"""Columns of a program, and columns for each of its warps."""


def scattered(layout: Layout) -> tuple[list[str], int, int]:
    """Return the statements of the kernel, its number of columns, and its number of warps."""
    at, gradient = sorted(layout.reads, key=lambda p: p.meta.dtype.startswith("float"))
    made, rows = layout.writes[0], layout.of(REDUCED)
    columns = next(axis for axis in made.axes if axis in gradient.axes)
    places = next(axis for axis in made.axes if axis is not columns)
    width = _width(columns)
    c, inside = columns.index, f"{columns.index} < {columns.size}"
    most = f"{places.size}.to(al.int64)" if at.meta.dtype == "int64" else places.size
    axes = [*((a.index, a.size, a.extent) for a in rows), blocks(f"p{c}", columns.size, columns.extent, "WIDTH", width)]
    index = {columns.symbol: c, places.symbol: "at"}
    lines = [
        grid(axes),
        f"{c} = p{c} * WIDTH + al.arange(WIDTH)",
        f"at = al.load({at.name}[{', '.join(a.index for a in at.axes)}])",
        f"value = al.load({gradient.name}[{', '.join(a.index for a in gradient.axes)}], mask={inside})",
        f"al.atomic_add({made.name}[{', '.join(index[a.symbol] for a in made.axes)}], value, "
        f"mask=({inside}) & (at >= 0) & (at < {most}))",
    ]
    return ["    " + line for line in lines], width, max(1, width // _OF_A_WARP)


def _width(columns: Axis) -> int:
    if not isinstance(columns.extent, int):
        return _OF_A_WARP
    return min(_WIDEST, max(32, 1 << (columns.extent - 1).bit_length()))
