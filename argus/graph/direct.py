"""Float32 convolutions with few channels, whose products are added up one by one.

Libraries compute them without TF32 too, because so few channels do not fill a matrix instruction. A tile has filters as
rows, and pixels that are consecutive in the result as columns, so that results are written in whole lines for any image
size. For each channel and tap, a thread holds one or two pixels and all filters of the tile.
"""

from __future__ import annotations

from math import ceil, prod

from argus.graph.capture import inputs, meta_of
from argus.graph.convolution_tiles import FEW_CHANNELS, ConvolutionTile, direct_tile
from argus.graph.convolutions import ConvolutionEmitter
from argus.graph.grids import GridAxis, blocks, grid
from argus.graph.group import Group
from argus.graph.layout import Layout
from argus.graph.spatial import Spatial, spatials
from argus.graph.window import window_of


def is_direct(group: Group) -> bool:
    """Return True for a float32 convolution with few channels and a contiguous result."""
    if group.window is None:
        return False
    window, made = window_of(group.window), meta_of((group.window, 0))
    if window.op != "convolution":
        return False
    x, weight = (meta_of(v) for v in inputs(group.window)[:2])
    assert x is not None and weight is not None and made is not None
    packed, follows = 1, True
    for size, stride in zip(reversed(made.shape[2:]), reversed(made.strides[2:]), strict=True):
        follows, packed = follows and (size == 1 or stride == packed), packed * size
    few = weight.shape[1] < FEW_CHANNELS and x.dtype == "float32"
    return bool(few and follows and not window.transposed and window.groups == 1 and packed > 1)


def tile_of(group: Group, layout: Layout) -> ConvolutionTile:
    """Choose the tile of a direct convolution."""
    return direct_tile(layout, tuple(d.result for d in spatials(group, layout) if d.result is not None))


class DirectEmitter(ConvolutionEmitter):
    """Emits a tile of filters by consecutive pixels, and then the operators that use it."""

    def grid(self) -> None:
        """Emit the program ids. A tile begins at a pixel of an image."""
        conv, axes = self.conv, list[GridAxis]()
        if conv.rows is not None:
            axes.append(blocks(f"p{conv.rows.index}", conv.rows.size, conv.rows.extent, "HEIGHT", conv.filters))
        runs = ceil(prod(a.extent for a in self.across) / conv.width)
        axes.append(("run", str(runs), runs))
        axes += [(axis.index, axis.size, axis.extent) for axis in conv.grid]
        if len(axes) == 3:
            axes.append(("one", "1", 1))  # there may be more images than a grid admits along its third axis
        self.out.add(grid(axes))
        if conv.rows is not None:
            self.out.add(f"{conv.rows.index} = p{conv.rows.index} * HEIGHT + al.arange(HEIGHT)")

    def pixels(self) -> None:
        """Emit the indices of each of the tile's pixels along the result's axes."""
        self.out.add("pixel = run * WIDTH + al.arange(WIDTH)")
        inner = prod(a.extent for a in self.across)
        for place, axis in enumerate(self.across):
            inner //= axis.extent
            text = f"pixel // {inner}" if inner > 1 else "pixel"
            self.out.add(f"{axis.index} = {text} % {axis.extent}" if place else f"{axis.index} = {text}")

    def inside(self) -> list[str]:
        """Return the condition that a pixel is one of the image: the first index tells."""
        first = self.across[0]
        width = prod(a.extent for a in self.across)
        return [] if width % self.conv.width == 0 else [f"({first.index} < {first.size})"]

    def in_bounds(self, d: Spatial) -> bool:
        """Return True if all places that pixels of the result reach along a dimension are in the image."""
        made = d.result.extent if d.result is not None else 1
        return d.padding == 0 and (made - 1) * d.stride + (d.taps - 1) * d.dilation < d.size
