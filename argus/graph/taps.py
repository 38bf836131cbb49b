"""Kernels that go over the taps of windows one by one: pooling, and convolutions with a filter for each channel.

A tile has whole lines of the contiguous axis as columns, and if possible a second axis of the image as rows, so that
windows that overlap are read from the L1 cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from argus.graph.capture import inputs
from argus.graph.generate import Emitter
from argus.graph.group import Group
from argus.graph.layout import Axis, Layout, Param
from argus.graph.spatial import Spatial
from argus.graph.tiles import Tile, window_tile
from argus.graph.window import window_of


def spatials(group: Group, layout: Layout) -> tuple[Spatial, ...]:
    """Return the spatial dimensions of a group's window."""
    window, space, read = window_of(group.window), group.space, inputs(group.window)
    image, result = space[(read[0], "x")][-window.spatial :], space[(group.window, 0)][-window.spatial :]
    taps = space[(read[1], "w")][2:] if window.depthwise else ((),) * window.spatial
    sizes = _image(group, layout).meta.shape[-window.spatial :]
    return tuple(
        Spatial(
            d, layout.axis(result[d]), layout.axis(image[d]), layout.axis(taps[d]), sizes[d],
            window.taps[d], window.stride[d], window.padding[d], window.dilation[d], False,
        )
        for d in range(window.spatial)
    )  # fmt: skip


def _image(group: Group, layout: Layout) -> Param:
    value = inputs(group.window)[0]
    return next(p for p in layout.reads if (p.value, p.dims) == (value, group.space[(value, "x")]))


def tile_of(group: Group, layout: Layout) -> Tile:
    """Choose the tile of results."""
    dims = [(d.result, d) for d in spatials(group, layout) if d.result is not None]
    strides = {axis.symbol: d.stride for axis, d in dims}
    follows = {d.image.symbol: axis for axis, d in dims if d.image is not None}
    return window_tile(layout, tuple(axis for axis, _ in dims), strides, follows)


class TapsEmitter(Emitter):
    """Emits loops over taps, and what they read of the image."""

    def __init__(self, group: Group, layout: Layout, tile: Tile) -> None:
        super().__init__(group, layout, tile)
        self.dims, self.x = spatials(group, layout), _image(group, layout)
        self.shape = "(WIDTH,)" if self.flat else "(HEIGHT, WIDTH)"

    @contextmanager
    def each_tap(self, other: str = "") -> Iterator[str]:
        """Emit loops over the taps. Yield the text that loads what they meet in the image, as float32.

        `other`: the value of places outside the image, by default 0."""
        out, checked = self.out, [d for d in self.dims if not self.in_bounds(d)]
        symbols = {d.result.symbol for d in checked if d.result is not None}
        conditions = [self.mask(tuple(a for a in self.sides() if a.symbol not in symbols))]
        depth = out.depth
        for d in self.dims:
            tap = "0"
            if d.taps > 1:
                tap = d.tap.index if d.tap is not None else f"t{d.number}"
                out.add(f"for {tap} in range({d.taps}):")
                out.depth += 1
            if d.image is not None:
                out.add(f"at{d.number} = {self.reached(d, tap)}")
                if d in checked:
                    conditions.append(self.spread(f"(0 <= at{d.number}) & (at{d.number} < {d.size})", d))
        at = {d.image.symbol: self.spread(f"at{d.number}", d) for d in self.dims if d.image is not None}
        yield self.loaded(self.x, [at.get(a.symbol) or self.index(a) for a in self.x.axes], conditions, other)
        out.depth = depth

    def sides(self) -> tuple[Axis, ...]:
        """Return the axes of the tile."""
        return tuple(a for a in (self.tile.rows, self.tile.columns) if a is not None)

    def reached(self, d: Spatial, tap: str) -> str:
        """Return the place in the image that a tap meets."""
        index = d.result.index if d.result is not None else "0"
        place = f"{index} * {d.stride}" if d.stride > 1 else index
        far = f"{tap} * {d.dilation}" if d.dilation > 1 else tap
        if d.padding:
            return f"{place} + ({far} - {d.padding})"
        return place if tap == "0" else f"{place} + {far}"

    def spread(self, text: str, d: Spatial) -> str:
        """Return an index or a condition along a dimension, shaped so that it broadcasts to the tile."""
        text = text if text.isidentifier() else f"({text})"
        return f"{text}[:, None]" if d.result is not None and d.result is self.tile.rows else text

    def loaded(self, param: Param, where: list[str], conditions: list[str], other: str = "") -> str:
        """Return the text of a load as float32."""
        parts = [c if c.isidentifier() or c.startswith("(") else f"({c})" for c in conditions if c]
        mask = f", mask={' & '.join(parts)}" if parts else ""
        mask += f", other={other}" if parts and other else ""
        return f"al.load({param.name}[{', '.join(where) or '0'}]{mask}).to(al.float32)"

    def in_bounds(self, d: Spatial) -> bool:
        """Return True if all places that results reach along a dimension are in the image."""
        made = d.result.extent if d.result is not None else 1
        return d.padding == 0 and (made - 1) * d.stride + (d.taps - 1) * d.dilation < d.size
