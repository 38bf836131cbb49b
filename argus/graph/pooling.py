"""Kernels of pooling, with the elementwise operators after it: a tile of results iterates over the taps of its
windows."""

from __future__ import annotations

from argus.graph.capture import Value, inputs
from argus.graph.generate import IDENTITY, ONTO, Emitter
from argus.graph.layout import PARALLEL, Axis, Layout
from argus.graph.partition import Group
from argus.graph.space import Dim
from argus.graph.text import bare
from argus.graph.tiles import Tile
from argus.graph.window import Window, window_of


class PoolEmitter(Emitter):
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
        window, out = self.window, self.out
        op = "max" if window.op == "max" else "sum"
        source = (inputs(self.group.window)[0], "x")
        dims = self.group.space[source]
        param = self.params[(source[0], dims)]
        taps = [f"t{d}" if size > 1 else "0" for d, size in enumerate(window.taps)]
        shape = "(WIDTH,)" if self.flat else "(HEIGHT, WIDTH)"
        made = self.group.space[(self.group.window, 0)]
        conditions = [self.mask(self.layout.of(PARALLEL))]
        out.add(f"pooled = al.full({shape}, {IDENTITY[op]}, al.float32)")
        for tap, size in zip(taps, window.taps, strict=True):
            if size > 1:
                out.add(f"for {tap} in range({size}):")
                out.depth += 1
        first = len(dims) - window.spatial
        at: dict[Dim, tuple[str, Axis | None]] = {}
        for d in range(window.spatial):
            axis, size = self.layout.axis(made[first + d]), param.meta.shape[first + d]
            place = self.reached(axis, taps[d], d, made[first + d])
            at[dims[first + d]] = place, axis
            if axis is None and size == 1:
                continue
            inside = f"((0 <= {place}) & ({place} < {size}))"
            conditions.append(f"{inside}[:, None]" if axis is not None and axis is self.tile.rows else inside)
        where = []
        for own in param.axes:
            text, axis = at.get(own.atoms, (self.index(own), None))
            where.append(f"{text}[:, None]" if axis is not None and axis is self.tile.rows else text)
        mask = " & ".join(c if c.isidentifier() or c.startswith("(") else f"({c})" for c in conditions if c)
        loaded = f"al.load({param.name}[{', '.join(where)}], mask={mask}, other={IDENTITY[op]}).to(al.float32)"
        out.add(f"pooled = {ONTO[op].format(a='pooled', b=loaded)}")
        out.depth -= sum(size > 1 for size in window.taps)
        return self.averaged(made[first:]) if window.op == "average" else "pooled"

    def reached(self, axis: Axis | None, tap: str, d: int, dim: Dim) -> str:
        """Return the coordinate in the image of one tap of a window."""
        window, index = self.window, axis.index if axis is not None else "0"
        offset = f"{tap} * {window.dilation[d]}" if window.dilation[d] > 1 else tap
        text = f"{index} * {window.stride[d]} + ({offset} - {window.padding[d]})"
        return self.out.bind(text) if axis is not None else f"({bare(text)})"

    def averaged(self, dims: tuple[Dim, ...]) -> str:
        """Divide the sum by the divisor of the window, or by the number of pixels that count."""
        window = self.window
        if window.divisor is not None:
            return f"pooled / {float(window.divisor)!r}"
        read = self.params[(inputs(self.group.window)[0], self.group.space[(inputs(self.group.window)[0], "x")])].meta
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
