"""Shared tiles in panels, the form in which the copy engine and asynchronous products address them: rows of 128 bytes
in the 128-byte swizzle, one panel of columns after another. Tiles of 64 bytes a row, and stored boxes of 64 or 32
bytes a row, are in the swizzle of that width."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from argus.backend.emit.address import leaves, uniform_text
from argus.backend.emit.expression import Printer
from argus.backend.emit.problem import problem
from argus.backend.emit.registers import Affine, Digit, Ints, fit
from argus.backend.emit.scope import Domain, Writer
from argus.backend.emit.sums import Parts, split, sum_text, times_text
from argus.ir.expr import Coord, Expr, Thread, walk
from argus.ir.instruction import WgmmaRow
from argus.ir.instruction.limits import NARROW_ROW, NARROW_ROWS, ROW_BYTES, row_bytes
from argus.ir.nodes import Shared
from argus.layout import FragmentLayout, Layout, Swizzle, SwizzledLayout
from argus.source import Span

_UNIT = 16
"""Size in bytes of the units in which descriptors count addresses."""


@dataclass(frozen=True)
class Panels:
    """The positions of a tile's elements before the swizzle, in elements.

    `strides` are those of all dimensions but the last. The last dimension's columns come in rows of `width`. `step` is
    the distance from one panel to the next, or 0 if there is one panel.
    """

    strides: tuple[int, ...]
    width: int
    step: int

    def column(self, column: int) -> int:
        """Return the offset of a column."""
        return column // self.width * self.step + column % self.width


def panels_of(shared: Shared, span: Span, code: str, row: int = ROW_BYTES) -> Panels:
    """Return a tile's panels, with rows of `row` bytes. Raises `ArgusError` `code` if the tile has another layout."""
    layout, offset, size = shared.layout, shared.offset, shared.dtype.bytes
    wanted = Swizzle((row // 16).bit_length() - 1, (16 // size).bit_length() - 1, 3)
    if not isinstance(layout, SwizzledLayout) or layout.swizzle != wanted or offset is None or offset % 1024:
        raise problem(code, f"shared tile `{shared.name}` is not in the {row}-byte swizzle", span,
                      f"give it the swizzle {wanted}, from a multiple of 1024 bytes on")  # fmt: skip
    *others, last = (leaves(mode) for mode in tuple(layout.inner))
    width = row // size
    in_panels = last[0] == (width, 1) and len(last) <= 2
    if not in_panels or any(len(mode) > 1 for mode in others) or layout.offset:
        raise problem(code, f"shared tile `{shared.name}` is not made of panels of {row} bytes", span,
                      f"lay {width} columns after one another in a row, and panels of such rows")  # fmt: skip
    return Panels(tuple(mode[0][1] for mode in others), width, last[1][1] if len(last) == 2 else 0)


def _rows_of(shared: Shared) -> Panels:
    """Return the rows of a tile that is not swizzled as panels of one row each."""
    assert isinstance(shared.layout, Layout)
    *others, (last,) = (leaves(mode) for mode in tuple(shared.layout))
    return Panels(tuple(mode[0][1] for mode in others), last[0], 0)


# ---------------------------------------------------------------------------- boxes of the copy engine


def box_origin(shared: Shared, index: tuple[Expr, ...], shape: tuple[int, ...], writer: Writer, span: Span) -> str:
    """Return the byte offset of a box of `shape` in a shared tile; the box is one panel or a part of one.

    Raises `ArgusError` "tma-layout" if the box is not dense in the tile, as the copy engine writes it.
    """
    size = shared.dtype.bytes
    row = shape[-1] * size
    width = row if row in NARROW_ROWS else ROW_BYTES
    panels = _rows_of(shared) if len(shape) == 1 else panels_of(shared, span, "tma-layout", width)
    parts, last = Parts(), split(index[-1])
    for expr, stride in zip(index[:-1], panels.strides, strict=True):
        parts.add(expr, stride)
    parts.constant += panels.column(last.constant)
    dense, weight = {}, 1
    for axis in reversed(range(len(shape))):
        dense[axis], weight = weight, weight * shape[axis]
    laid = {axis: {**parts.coords, **last.coords}.get(axis, 0) for axis in dense if shape[axis] > 1}
    whole = shape[-1] == panels.width and last.constant % panels.width == 0 and not last.uniform
    if not whole or any(dense[axis] != stride for axis, stride in laid.items()):
        raise problem("tma-layout", f"a box of {shape} does not lie densely in `{shared.name}`", span,
                      "copy boxes of rows of 128 bytes to tiles that hold one after the other")  # fmt: skip
    if parts.mixed or parts.threads or last.mixed or last.threads:
        raise problem("tma-layout", f"the place in `{shared.name}` depends on a thread", span)
    terms = uniform_text(parts, Printer(writer), size)
    return sum_text([*terms, str(parts.constant * size + (shared.offset or 0))])


def box_corner(expr: Expr, writer: Writer, span: Span) -> str:
    """Return the start of a box along one dimension: the index without its coordinate. It may be in a register."""
    parts = split(expr)
    if parts.threads or any(isinstance(e, Coord | Thread) for _, term in parts.mixed for e in walk(term)):
        raise problem("tma-index", "the corner of a bulk copy depends on a thread or an element", span)
    printer = Printer(writer, Domain(writer, FragmentLayout((), (), ()), (), span))
    terms = [*uniform_text(parts, printer, 1), *(printer.times(e, factor) for factor, e in parts.mixed)]
    return sum_text([*terms, str(parts.constant)]) if parts.constant or not terms else sum_text(terms)


# ---------------------------------------------------------------------------- operands of asynchronous products


@dataclass(frozen=True)
class Blocks:
    """The positions of one statement's products: `at` = (m, n, k), each `[groups, combinations]`.

    `groups` are the digits of the warpgroup's number with their C++; `loops` are the digits of the combination.
    """

    at: tuple[Ints, Ints, Ints]
    groups: tuple[Digit, ...]
    loops: tuple[Digit, ...]


@dataclass(frozen=True)
class Descriptor:
    """The descriptors of an operand: for each combination, `start` (C++) advanced by `steps` units.

    `major` is 1 if k runs across rows.
    """

    start: str
    steps: Ints
    major: int

    def text(self, steps: Affine | int) -> str:
        """Return the C++ of the descriptor advanced by `steps` units."""
        moved = str(steps) if isinstance(steps, int) else steps.text()
        return self.start if moved == "0" else f"argus::descriptor_at({self.start}, {moved})"


def matrix_descriptor(
    shared: Shared, index: tuple[Expr, ...], axis: int, row: WgmmaRow, blocks: Blocks, writer: Writer, span: Span
) -> Descriptor:
    """Return the descriptor of the operand over m (`axis` 0) or n (1) and k.

    The part that is the same for all products is computed in the prologue. Raises `ArgusError` "mma-operand" if the
    tile does not have a layout that the instruction reads.
    """
    wide, major = row_bytes(shared.shape[-1], shared.dtype.bytes), int(index[-2] == Coord(2))
    panels, narrow = panels_of(shared, span, "mma-operand", wide), wide == NARROW_ROW
    transposes = row.transposes and not narrow
    if index[-2:] != ((Coord(2), Coord(axis)) if major else (Coord(axis), Coord(2))) or major > transposes:
        raise problem("mma-operand", f"{row.name} does not read `{shared.name}` in that order", span,
                      "read it by rows and depth, or, if it has 16 bits, by depth and rows")  # fmt: skip
    rows, columns = (blocks.at[2], blocks.at[axis]) if major else (blocks.at[axis], blocks.at[2])
    inside, reach = columns % panels.width, row.shape[axis] if major else row.shape[2]
    if (inside * (inside + reach > panels.width)).any():
        raise problem("mma-operand", f"a product of {row.name} reads across panels of `{shared.name}`", span,
                      f"let {row.name} begin at multiples of {panels.width} columns, or end within them")  # fmt: skip
    offsets = rows * panels.strides[-1] + columns // panels.width * panels.step + inside
    steps, own = _units(offsets[0], shared, row, span), _units(offsets[:, 0] - offsets[0, 0], shared, row, span)
    mine = fit(own, blocks.groups)
    if mine is None or (offsets != offsets[:1] + (offsets[:, :1] - offsets[0, 0])).any():
        raise problem("mma-operand", f"warpgroups read `{shared.name}` at places of no rule", span)
    leading = panels.step * shared.dtype.bytes if major and panels.step else _UNIT
    whole = f"matrix_descriptor(smem, {shared.offset}, {leading})"
    described = f"narrow_descriptor(smem, {shared.offset})" if narrow else whole
    start = writer.hoist("argus::u64", f"argus::{described}", "p")
    share = sum_text([times_text(name, f) for name, f in mine.factors.items() if f])
    if share != "0":
        start = writer.hoist("argus::u64", f"argus::descriptor_at({start}, argus::uniform({share}))", "p")
    return Descriptor(_placed(start, shared, index, panels, row, writer, span), steps, major)


def _placed(
    start: str, shared: Shared, index: tuple[Expr, ...], panels: Panels, row: WgmmaRow, writer: Writer, span: Span
) -> str:
    """Return the C++ of the descriptor at the place that the leading indices select."""
    parts, printer = Parts(), Printer(writer)
    for expr, stride in zip(index[:-2], panels.strides, strict=False):
        parts.add(expr, stride)
    if parts.mixed or parts.threads or parts.coords:
        raise problem("mma-operand", f"the place in `{shared.name}` depends on a thread", span)

    def units(elements: int) -> int:
        return int(_units(np.asarray(elements), shared, row, span))

    terms = [printer.times(e, units(f)) for f, e in parts.uniform]
    total = sum_text([*terms, str(units(parts.constant))])
    if total == "0":
        return start
    text = f"argus::descriptor_at({start}, {total})"
    return text if terms else writer.hoist("argus::u64", text, "p")


def _units(elements: Ints, shared: Shared, row: WgmmaRow, span: Span) -> Ints:
    bytes = elements * shared.dtype.bytes
    if (bytes % _UNIT).any():
        raise problem("mma-operand", f"an operand of {row.name} starts between units of {_UNIT} bytes", span)
    return bytes // _UNIT
