"""Convolutions whose image the copy engine reads pixel by pixel, in the order of their windows (im2col).

A tile is a run of the pixels of all images, whatever their rows are. For each tap, the copy engine brings the pixels
that it meets, with zeros for the border:

    y[f, n, p, q] = sum over r, s, c of w[r, s, f, c] * x[n, p * stride + r - padding, q * stride + s - padding, c]

Images have their channels last. They are neither copied with a border nor, on sm_90a, gathered by threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from argus.graph.capture import inputs, meta_of
from argus.graph.convolution_tiles import PAIRS, ConvolutionTile, column_tile, pair_tile, row_width
from argus.graph.convolutions import ConvolutionEmitter
from argus.graph.group import Group
from argus.graph.layout import PLACE, REDUCED, Axis, Layout
from argus.graph.space import Mismatch
from argus.graph.spatial import Spatial, by_matrices, in_pairs, pixels_of, spatials
from argus.graph.window import window_of
from argus.ir.pixels import CORNERS, MAX_STEP, OFFSETS, Pixels


def has_columns(
    sizes: Sequence[int], taps: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> bool:
    """Return True if the windows of images of these `sizes` are columns of pixels within the copy engine's limits."""
    reach = [gap * (t - 1) for t, gap in zip(taps, dilation, strict=True)]
    counts = _counts(sizes, reach, stride, padding)
    rank, most = len(sizes) + 2, CORNERS.get(len(sizes) + 2, 0)
    if min(*counts, *sizes) < 2 or max(stride) > MAX_STEP or max(reach) >= OFFSETS.get(rank, 0):
        return False
    pixels = Pixels(counts, tuple(stride), tuple(-p for p in padding))
    return all(-most <= corner < most for corner in (*pixels.lower, *pixels.upper(sizes)))


def _counts(
    sizes: Sequence[int], reach: Sequence[int], stride: Sequence[int], padding: Sequence[int]
) -> tuple[int, ...]:
    along = zip(sizes, reach, stride, padding, strict=True)
    return tuple((size + 2 * p - r - 1) // s + 1 for size, r, s, p in along)


def is_by_pixels(group: Group, bits: int) -> bool:
    """Return True if the copy engine can read the convolution's image in columns of pixels. `bits`: the size of the
    elements that are multiplied."""
    if group.window is None or not bits or not by_matrices(group):
        return False
    window, x = window_of(group.window), meta_of(inputs(group.window)[0])
    assert x is not None
    if window.transposed or window.groups != 1 or x.shape[0] == 1:
        return False
    if window.turns and row_width(x.shape[-1] - (window.taps[-1] - 1) * window.dilation[-1]) >= PAIRS:
        return False  # a row is enough for a tile
    units = (x.shape[1], *(s for d, s in enumerate(x.strides) if d != 1 and x.shape[d] > 1))
    if x.shape[1] == 1 or x.strides[1] != 1 or not all(isinstance(u, int) and u * bits % 128 == 0 for u in units):
        return False
    return has_columns(x.shape[2:], window.taps, window.stride, window.padding, window.dilation)


def tile_of(group: Group, layout: Layout, target: str, bits: int) -> ConvolutionTile:
    """Choose the tile of a convolution that is read by columns of pixels."""
    dims = spatials(group, layout)
    shown = tuple(d.result for d in dims if d.result is not None)
    x = next(p for p in layout.reads if p.use == "x")
    images = [a for a in x.axes if a.kind not in (REDUCED, PLACE) and all(a is not d.image for d in dims)]
    if len(images) != 1 or len(shown) != len(dims):
        raise Mismatch("images along several axes, or one place along an axis")
    places = prod(map(pixels_of, dims)) if window_of(group.window).turns else prod(a.extent for a in shown)
    if in_pairs(group, layout):
        pixels = tuple((axis, places) for axis in (images[0], *shown))
        return replace(pair_tile(layout, pixels, places, target, bits), grid=(), flat=False)
    return column_tile(layout, images[0], shown, places, target, bits)


class PixelEmitter(ConvolutionEmitter):
    """Emits a tile of filters by consecutive pixels of all images, and then the operators that use it."""

    bounded = True

    @property
    def images(self) -> Axis:
        """The axis of images."""
        return self.conv.pixels[0][0]

    def places_of(self) -> int:
        """Return the number of an image's pixels at which results have windows."""
        return prod(map(self.windows_of, self.dims))

    def windows_of(self, d: Spatial) -> int:
        """Return the number of places of windows along a dimension."""
        assert d.result is not None
        return pixels_of(d) if self.window.turns else d.result.extent

    def requires(self) -> tuple[str, ...]:
        """Return the condition under which pixels are counted in 32 bits."""
        if self.images.fixed:
            return ()
        return (f"{self.images.size} <= {(2**31 - 1 - self.conv.width) // self.places_of()}",)

    def grid(self) -> None:
        """Emit the program ids. A tile begins at a pixel of some image."""
        conv = self.conv
        assert conv.rows is not None
        f = conv.rows.index
        axes = f"{self.blocks_of_filters()}, al.cdiv({self.images.size} * {self.places_of()}, WIDTH)"
        self.out.add(f"p{f}, run = al.grid({axes}{self.overlapped()})")
        self.out.add(f"{f}0 = p{f} * HEIGHT")
        self.out.add(f"{f} = {f}0 + al.arange(HEIGHT)")

    def pixels(self) -> None:
        """Emit the indices of each of the tile's pixels along the result's axes."""
        self.out.add("pixel = run * WIDTH + al.arange(WIDTH)")
        inner = self.places_of()
        self.out.add(f"{self.images.index} = pixel // {inner}")
        for d in self.dims:
            assert d.result is not None
            inner //= self.windows_of(d)
            place = f"pixel // {inner}" if inner > 1 else "pixel"
            self.out.add(f"{self.pixel(d.result)} = {place} % {self.windows_of(d)}")
        self.turned()

    def surely_inside(self, d: Spatial) -> bool:
        """Return True if all places that a tile reads along a dimension are in the image."""
        return not d.padding

    def conditions(self, axis: Axis) -> list[str]:
        """Return the conditions under which a tile's elements are inside an axis. Places are always inside an image."""
        if self.window.turns:
            own = f"({self.index(axis)} < {axis.size})"
            return [own] if axis is self.images else super().conditions(axis)
        return [] if any(axis is d.result for d in self.dims) else super().conditions(axis)
