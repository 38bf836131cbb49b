"""Rules of panels: the arrangement of shared tiles that the copy engine fills or reads, and that asynchronous products
read."""

from __future__ import annotations

from collections.abc import Iterator

from argus.ir.instruction.limits import SWIZZLE_ATOM, row_bytes
from argus.ir.nodes import Shared
from argus.ir.statement import Problem
from argus.layout import Layout, SwizzledLayout
from argus.source import Span


def panels(tile: Shared, what: str, span: Span, row: int = 0) -> Iterator[Problem]:
    """Check that a tile (…, rows, columns) consists of panels of columns, one after the other. The rows of a panel have
    `row` bytes (0: as wide as the tile's width allows) and a swizzle that repeats after 8 rows, at multiples of 1024
    bytes (PTX ISA, matrix descriptors)."""
    layout, unit = tile.layout, tile.dtype.bytes
    row = row or row_bytes(tile.shape[-1], unit)
    width = row // unit
    fits = isinstance(layout, SwizzledLayout) and layout.offset == 0 and len(tile.shape) >= 2
    if fits:
        assert isinstance(layout, SwizzledLayout)
        swizzle, inner = layout.swizzle, layout.inner
        chunk = (16 // unit).bit_length() - 1
        rows, columns = tile.shape[-2:]
        strides = inner.stride if isinstance(inner.stride, tuple) else (inner.stride,)
        count = columns // width
        across = 1 if count == 1 else (1, rows * width)
        fits = (
            (swizzle.bits, swizzle.base, swizzle.shift) == ((row // 16).bit_length() - 1, chunk, 3)
            and width > 0
            and columns % width == 0
            and (count == 1 or rows * row % SWIZZLE_ATOM == 0)
            and inner[len(tile.shape) - 1] == (Layout(width, 1) if count == 1 else Layout((width, count), across))
            and strides[-2] == width
            and all(isinstance(s, int) and s * unit % SWIZZLE_ATOM == 0 for s in strides[:-2])
        )
    if not fits or (tile.offset or 0) % SWIZZLE_ATOM:
        yield f"{what} needs `{tile.name}` in rows of {row} bytes, swizzled by {row} bytes, at a multiple of 1024", span
