"""Kernels of pooling, with the elementwise operators after it."""

from __future__ import annotations

from argus.graph.capture import Value
from argus.graph.group import Group
from argus.graph.layout import Layout
from argus.graph.reduction_text import IDENTITY, ONTO
from argus.graph.space import Dim
from argus.graph.taps import TapsEmitter
from argus.graph.tiles import Tile
from argus.graph.window import Window, window_of


class PoolEmitter(TapsEmitter):
    """Emits the extremum or the sum of each window, and then the operators that use it."""

    def __init__(self, group: Group, layout: Layout, tile: Tile) -> None:
        super().__init__(group, layout, tile)
        self.window: Window = window_of(group.window)

    def value(self, value: Value) -> str:
        """Return the name of a value's tile: the tile of the windows, or one that is computed from it."""
        if value[0] is self.group.window and value not in self.block:
            self.block[value] = self.out.bind(self.pooled())
        return super().value(value)

    def pooled(self) -> str:
        """Emit the extremum or the sum over the taps, and return the pooled value."""
        window, out = self.window, self.out
        op = "max" if window.op == "max" else "sum"
        out.add(f"pooled = al.full({self.shape}, {IDENTITY[op]}, al.float32)")
        with self.each_tap(IDENTITY[op]) as loaded:
            out.add(f"pooled = {ONTO[op].format(a='pooled', b=loaded)}")
        made = self.group.space[(self.group.window, 0)][-window.spatial :]
        return self.averaged(made) if window.op == "average" else "pooled"

    def averaged(self, dims: tuple[Dim, ...]) -> str:
        """Divide the sum by the divisor of the window, or by the number of pixels that count."""
        window = self.window
        if window.divisor is not None:
            return f"pooled / {float(window.divisor)!r}"
        read = self.x.meta
        constant, counts = 1, []
        for d, dim in enumerate(dims):
            size, taps, padding = read.shape[d - window.spatial], window.taps[d], window.padding[d]
            border, axis = padding if window.padded else 0, self.layout.axis(dim)
            extent = axis.extent if axis is not None else 1
            last = (extent - 1) * window.stride[d] - padding + taps
            if border == padding and last <= size + border:
                constant *= taps
                continue
            index = axis.index if axis is not None else "0"
            start = self.out.bind(f"{index} * {window.stride[d]} - {padding}")
            count = self.out.bind(f"al.minimum({start} + {taps}, {size + border}) - al.maximum({start}, {-border})")
            counts.append(f"{count}[:, None]" if axis is not None and axis is self.tile.rows else count)
        if not counts:
            return f"pooled / {float(constant)!r}"
        return f"pooled / ({' * '.join([str(constant), *counts])}).to(al.float32)"
