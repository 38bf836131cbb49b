"""Convolutions that read their image by boxes: implicit products whose operands the copy engine loads.

With channels last, a stride of 1 and no padding, the window of tap (r, s) is the image itself, shifted:

    place = p * W + q          of the result's pixel (p, q), counted in the image's rows
    y[f, p, q] = sum over r, s, c of w[r, s, f, c] * x[place + (r * W + s) * dilation, c]

A tile is therefore a run of places; its windows are one box of rows of channels for each tap. Places with q >= Q belong
to no pixel; they are computed but not stored. `decompose` pads images and converts transposed convolutions for this.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod
from typing import Any

from argus.graph.capture import inputs, meta_of
from argus.graph.convolution_tiles import ConvolutionTile, flat_tile, pair_tile
from argus.graph.convolutions import ConvolutionEmitter
from argus.graph.group import Group
from argus.graph.layout import PLACE, Layout
from argus.graph.spatial import Spatial, by_matrices, in_pairs, pixels_of, spatials
from argus.graph.window import window_of

MOST_OUTSIDE = 1.6
"""The largest ratio of computed places to stored places: above it, gathering the pixels costs less."""


def is_flat(group: Group, bits: int) -> bool:
    """Return True if boxes can read the convolution's image. `bits`: the size of the elements that are multiplied."""
    if group.window is None or not bits or not by_matrices(group):
        return False
    window, x = window_of(group.window), meta_of(inputs(group.window)[0])
    assert x is not None
    if window.transposed or window.groups != 1 or {*window.stride} != {1} or {*window.padding} != {0}:
        return False
    inner, packed = x.shape[1], x.shape[1]
    for size, stride in zip(reversed(x.shape[2:]), reversed(x.strides[2:]), strict=True):
        if size > 1 and stride != packed:
            return False
        packed *= size
    reach = [(t - 1) * d for t, d in zip(window.taps, window.dilation, strict=True)]
    made = [size - r for size, r in zip(x.shape[2:], reach, strict=True)]
    outside = prod(x.shape[3:]) / max(prod(made[1:]), 1)
    return bool(inner > 1 and x.strides[1] == 1 and inner * bits % 128 == 0 and outside <= MOST_OUTSIDE)


def tile_of(group: Group, layout: Layout, target: str, bits: int) -> ConvolutionTile:
    """Choose the tile of a flat convolution."""
    dims, x = spatials(group, layout), meta_of(inputs(group.window)[0])
    assert x is not None
    spatial = tuple(d.result for d in dims if d.result is not None)
    places = _places(dims, _inner(x.shape[2:]))
    if in_pairs(group, layout):
        return pair_tile(layout, tuple((a, 1) for a in spatial), places, target, bits)
    return flat_tile(layout, spatial, places, target, bits, places == prod(pixels_of(d) for d in dims))


def _inner(sizes: Any) -> list[int]:
    """Return the number of places between neighbours along each dimension of an image."""
    return [prod(sizes[d + 1 :]) for d in range(len(sizes))]


def _places(dims: Sequence[Spatial], inner: Sequence[int]) -> int:
    """Return the number of an image's places from the first pixel of the result to the last one."""
    return sum((pixels_of(d) - 1) * step for d, step in zip(dims, inner, strict=True)) + 1


class FlatEmitter(ConvolutionEmitter):
    """Emits a tile of filters by consecutive places, and then the operators that use it."""

    def __init__(self, group: Group, layout: Layout, tile: ConvolutionTile) -> None:
        super().__init__(group, layout, tile)
        sizes: Any = next(p for p in layout.reads if p.use == "x").meta.shape[2:]
        self.inner, self.image = _inner(sizes), sizes
        self.lines = {axis.symbol for axis in self.across}

    def grid(self) -> None:
        """Emit the program ids. A tile begins at a place of an image."""
        conv = self.conv
        assert conv.rows is not None
        f = conv.rows.index
        last = _places(self.dims, self.inner)
        axes = [(f"p{f}", self.blocks_of_filters()), ("run", str(ceil(last / conv.width)))]
        axes += [(axis.index, axis.size) for axis in conv.grid]
        names, extents = ", ".join(n for n, _ in axes), ", ".join(extent for _, extent in axes)
        self.out.add(f"{names} = al.grid({extents}{self.overlapped()})")
        self.out.add(f"{f}0 = p{f} * HEIGHT")
        self.out.add(f"{f} = {f}0 + al.arange(HEIGHT)")

    def pixels(self) -> None:
        """Emit the indices of each of the tile's places along the result's axes."""
        self.out.add("first = run * WIDTH")
        self.out.add("place = first + al.arange(WIDTH)")
        for d in self.dims:
            if d.result is None:
                continue
            text = f"place // {self.inner[d.number]}" if self.inner[d.number] > 1 else "place"
            if prod(self.image[: d.number]) > 1:
                text = f"{text} % {self.image[d.number]}"
            self.out.add(f"{self.pixel(d.result)} = {text}")
        self.turned()

    def reached(self, d: Spatial, turn: str) -> tuple[str, str, str]:
        """Return the tap of an iteration, how far it moves the window, and no condition."""
        far = d.dilation * self.inner[d.number]
        return turn, turn if far == 1 else f"{turn} * {far}", ""

    def windows(self) -> str:
        """Stage the places that the taps of this step read in shared memory, as rows of channels."""
        c = self.channels
        assert c is not None
        moved = " + ".join(f"at{d.number}" for d in self.dims if d.turns > 1) or "0"
        self.out.add(f"moved = first + {moved}" if moved != "0" else "moved = first")
        where = [
            f"{c.index}0 : {c.index}0 + DEPTH"
            if axis is c
            else "moved : moved + WIDTH"
            if axis.kind == PLACE
            else axis.index
            for axis in self.x.axes
        ]
        checked = "(0,)" if c.extent % self.conv.k == 0 else "(0, 1)"
        self.out.add(f"windows = al.stage({self.x.name}[{', '.join(where)}], boundary_check={checked})")
        return "windows"
