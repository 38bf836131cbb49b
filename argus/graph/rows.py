"""Convolutions whose image is read row by row: implicit products whose operands the copy engine loads.

A tile has filters as rows, and pixels of one row of the result as columns. With channels last, no padding, and no
stride along the last dimension, the pixels of a row that meet a tap are one box:

    y[f, p, q] = sum over r, s, c of w[r, s, f, c] * x[p * stride + r * dilation, q + s * dilation, c]

`decompose` joins the taps of the last dimension with the channels (`unfold`). Windows then overlap in memory. So
convolutions with a stride, and those with few channels, are read by boxes, too.
"""

from __future__ import annotations

from argus.graph.capture import inputs, meta_of
from argus.graph.convolution_tiles import PAIRS, ConvolutionTile, pair_tile, row_tile, row_width
from argus.graph.convolutions import ConvolutionEmitter
from argus.graph.group import Group
from argus.graph.layout import Layout
from argus.graph.spatial import Spatial, by_matrices, in_pairs, pixels_of, spatials
from argus.graph.window import window_of


def is_by_rows(group: Group, bits: int) -> bool:
    """Return True if boxes can read rows of the convolution's image. `bits`: the size of the elements that are
    multiplied."""
    if group.window is None or not bits or not by_matrices(group):
        return False
    window, x = window_of(group.window), meta_of(inputs(group.window)[0])
    assert x is not None
    if window.transposed or window.groups != 1 or {*window.padding} != {0} or window.stride[-1] != 1:
        return False
    units = (x.shape[1], *(s for d, s in enumerate(x.strides) if d != 1 and x.shape[d] > 1))
    aligned = x.shape[1] > 1 and x.strides[1] == 1 and all(unit * bits % 128 == 0 for unit in units)
    return aligned and row_width(x.shape[-1] - (window.taps[-1] - 1) * window.dilation[-1]) > 0


def tile_of(group: Group, layout: Layout, target: str, bits: int) -> ConvolutionTile:
    """Choose the tile of a convolution that is read by rows."""
    dims = spatials(group, layout)
    spatial, row = tuple(d.result for d in dims if d.result is not None), pixels_of(dims[-1])
    width = row_width(row)
    if in_pairs(group, layout) and (width >= PAIRS or target != "sm_90a"):
        return pair_tile(layout, (*((a, 1) for a in spatial[:-1]), (spatial[-1], width)), row, target, bits, width)
    return row_tile(layout, spatial, row, target, bits)


class RowEmitter(ConvolutionEmitter):
    """Emits a tile of filters by pixels of a row, and then the operators that use it."""

    def __init__(self, group: Group, layout: Layout, tile: ConvolutionTile) -> None:
        super().__init__(group, layout, tile)
        self.across = self.across[-1:]

    def order(self) -> str:
        """Return the order of the grid's programs."""
        return self.overlapped()

    def pixels(self) -> None:
        """Emit the indices of the tile's pixels along the result's axes."""
        for axis, part in self.conv.pixels:
            tile, pixel = f"p{axis.index}", self.pixel(axis)
            self.out.add(f"{pixel} = {tile} * WIDTH + al.arange(WIDTH)" if part > 1 else f"{pixel} = {tile}")
        self.turned()

    def reached(self, d: Spatial, turn: str) -> tuple[str, str, str]:
        """Return the tap of an iteration, the first place that it reads, and no condition."""
        if d.result is None or not self.differs(d):
            return super().reached(d, turn)
        far = turn if d.dilation == 1 else f"{turn} * {d.dilation}"
        first = f"p{d.result.index} * WIDTH"
        return turn, first if turn == "0" else f"{first} + {far}", ""

    def windows(self) -> str:
        """Stage the pixels that the taps of this step read in shared memory, as rows of channels."""
        c = self.channels
        assert c is not None
        at = {d.image.symbol: d for d in self.dims if d.image is not None}
        where = []
        for axis in self.x.axes:
            d = at.get(axis.symbol)
            if axis is c:
                where.append(f"{c.index}0 : {c.index}0 + DEPTH")
            elif d is not None and self.differs(d):
                where.append(f"at{d.number} : at{d.number} + WIDTH")
            else:
                where.append(f"at{d.number}" if d is not None else axis.index)
        checked = "(0,)" if c.extent % self.conv.k == 0 else "(0, 1)"
        self.out.add(f"windows = al.stage({self.x.name}[{', '.join(where)}], boundary_check={checked})")
        return "windows"
