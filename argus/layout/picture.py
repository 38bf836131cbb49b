"""Pictures of layouts: a plain text grid for the terminal, and SVG.

Plain and swizzled layouts show the offset in each cell of the (first mode) x (all other modes) grid;
register tiles show `T<thread>:V<value>`, the lowest holder of each element, and `+n` for n further
holders. A tile of one dimension is one row; in three or more, all but the first dimension run along the row.
"""

from __future__ import annotations

from colorsys import hls_to_rgb
from dataclasses import dataclass
from html import escape
from math import prod

import numpy as np

from argus.layout.fragment import FragmentLayout
from argus.layout.inttuple import LayoutError
from argus.layout.swizzle import AnyLayout, table

LARGEST = 1 << 14
_HUES = 8
_RICH = ("red", "green", "yellow", "blue", "magenta", "cyan", "bright_red", "bright_green")


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: up to two lines of text, and its tint (see `_color`); -1 for an empty cell."""

    lines: tuple[str, ...]
    tint: int


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows of cells, a title, and the meaning of the colours."""

    title: str
    legend: str
    rows: tuple[tuple[Cell, ...], ...]


def text(layout: AnyLayout | FragmentLayout, color: bool = False, element_bytes: int | None = None) -> str:
    """Return a grid of right-aligned cells under the layout's notation; row and column indices at the edges.

    `color=True` wraps each cell in rich markup, by thread or (given `element_bytes`) by shared-memory bank. Raises
    `LayoutError` for a layout of more than 16384 elements.
    """
    grid = _grid(layout, element_bytes)
    labels = [[":".join(cell.lines) or "-" for cell in row] for row in grid.rows]
    width = max(max(len(label) for row in labels for label in row), len(str(len(labels[0]) - 1)))
    edge = len(str(len(labels) - 1))
    head = " " * edge + " |" + "".join(f" {j:>{width}}" for j in range(len(labels[0])))
    lines = [_markup(grid.title) if color else grid.title, head, "-" * (edge + 1) + "+" + "-" * (len(head) - edge - 2)]
    for i, (row, names) in enumerate(zip(grid.rows, labels, strict=True)):
        cells = [_paint(f"{name:>{width}}", cell, color) for cell, name in zip(row, names, strict=True)]
        lines.append(f"{i:>{edge}} | " + " ".join(cells))
    return "\n".join(lines)


def _markup(plain: str) -> str:
    return plain.replace("[", "\\[")


def _paint(label: str, cell: Cell, color: bool) -> str:
    if not color or cell.tint < 0:
        return label
    name = _RICH[cell.tint % _HUES]
    return f"[{name}]{label}[/{name}]"


def svg(layout: AnyLayout | FragmentLayout, element_bytes: int | None = None) -> str:
    """Return an SVG document with one box for each cell. Register tiles are coloured by thread, layouts by bank if
    `element_bytes` (the bytes of one element) is given, and otherwise by the position in memory.

    Raises `LayoutError` for a layout of more than 16384 elements.
    """
    grid = _grid(layout, element_bytes)
    longest = max(len(line) for row in grid.rows for cell in row for line in cell.lines or ("",))
    tall = max(len(cell.lines) for row in grid.rows for cell in row)
    box_w, box_h = max(32, 8 * longest + 12), 30 if tall < 2 else 38
    left, top = 44, 72
    columns = len(grid.rows[0])
    width = max(left + columns * box_w + 16, 9 * len(grid.title) + 32, 7 * len(grid.legend) + 32)
    height = top + len(grid.rows) * box_h + 16
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="ui-monospace, Menlo, Consolas, monospace" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="16" y="22" font-size="14" font-weight="bold" fill="#1a1a1a">{escape(grid.title)}</text>',
        f'<text x="16" y="40" font-size="11" fill="#666666">{escape(grid.legend)}</text>',
    ]
    for j in range(columns):
        parts.append(_label(left + j * box_w + box_w / 2, top - 6, str(j), "#888888"))
    for i, row in enumerate(grid.rows):
        y = top + i * box_h
        parts.append(_label(left - 16, y + box_h / 2 + 4, str(i), "#888888"))
        for j, cell in enumerate(row):
            parts += _box(cell, left + j * box_w, y, box_w, box_h)
    return "\n".join([*parts, "</svg>", ""])


def notebook(layout: AnyLayout | FragmentLayout) -> str:
    """Return a layout's picture for a notebook, or its notation alone if it has more than 1024 elements."""
    size = layout.size if isinstance(layout, FragmentLayout) else layout.size()
    return svg(layout) if size <= 1024 else f"<code>{escape(str(layout))}</code>"


def _box(cell: Cell, x: int, y: int, width: int, height: int) -> list[str]:
    box = f'x="{x}" y="{y}" width="{width}" height="{height}"'
    parts = [f'<rect {box} fill="{_color(cell.tint)}" stroke="#ffffff" stroke-width="1.5"/>']
    first = y + height / 2 + 4 - 7 * (len(cell.lines) - 1)
    for k, line in enumerate(cell.lines):
        parts.append(_label(x + width / 2, first + 14 * k, line, "#1a1a1a" if k == 0 else "#444444"))
    return parts


def _label(x: float, y: float, content: str, fill: str) -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="middle" fill="{fill}">{escape(content)}</text>'


def _color(tint: int) -> str:
    """Return a light colour for the ground of dark text. `tint % 8` is its hue, `tint // 8 % 4` its depth; -1 is grey.

    The form is `#rrggbb`, which every SVG reader supports.
    """
    if tint < 0:
        return "#eeeeee"
    depth = tint // _HUES % 4
    rgb = hls_to_rgb(tint % _HUES / _HUES, 0.87 - 0.06 * depth, 0.75 - 0.08 * depth)
    return "#" + "".join(f"{round(255 * part):02x}" for part in rgb)


def _grid(layout: AnyLayout | FragmentLayout, element_bytes: int | None) -> Grid:
    size = layout.size if isinstance(layout, FragmentLayout) else layout.size()
    if size > LARGEST:
        raise LayoutError(f"layout {layout} has {size} elements: pictures show at most {LARGEST}; draw one tile of it")
    if isinstance(layout, FragmentLayout):
        return _fragment_grid(layout)
    if element_bytes is not None and (not isinstance(element_bytes, int) or element_bytes < 1):
        raise LayoutError(f"element_bytes must be a positive integer, not {element_bytes!r}")
    return _offset_grid(layout, element_bytes)


def _offset_grid(layout: AnyLayout, element_bytes: int | None) -> Grid:
    full = table(layout)
    flat = full.reshape(full.shape[0] if full.ndim > 1 else 1, -1, order="F")
    if element_bytes is None:
        top = int(np.abs(flat).max()) + 1
        tints = np.maximum(flat, 0) * _HUES // top
        legend = "cell: offset; colour: eighth of the memory it lies in"
    else:
        banks = flat * element_bytes // 4 % 32
        tints = banks // 4 + _HUES * (banks % 4)
        legend = f"cell: offset; hue: 16-byte chunk, depth: bank in it (32 banks, {element_bytes}-byte elements)"
    rows = tuple(
        tuple(Cell((str(int(value)),), int(tint)) for value, tint in zip(row, shade, strict=True))
        for row, shade in zip(flat, tints, strict=True)
    )
    return Grid(str(layout), legend, rows)


def _fragment_grid(f: FragmentLayout) -> Grid:
    columns = prod(f.shape[1:]) if f.rank > 1 else prod(f.shape)
    owners: list[list[tuple[int, int]]] = [[] for _ in range(f.size)]
    values = f.num_values
    for register, element in enumerate(f.linear().reshape(-1).tolist()):
        owners[element].append(divmod(register, values))

    def cell(held: list[tuple[int, int]]) -> Cell:
        if not held:
            return Cell((), -1)
        thread, value = held[0]
        more = f"+{len(held) - 1}" if len(held) > 1 else ""
        return Cell((f"T{thread}", f"V{value}{more}"), thread)

    cells = [cell(held) for held in owners]
    rows = tuple(tuple(cells[i : i + columns]) for i in range(0, len(cells), columns))
    return Grid(str(f), "cell: thread, value (+ further holders); colour: thread", rows)
