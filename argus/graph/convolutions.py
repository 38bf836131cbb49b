"""Kernels of convolutions, with the elementwise operators behind them.

A tile has filters as rows and pixels as columns, or the reverse if results have their channels last. With a matrix
instruction the convolution is an implicit product: for
each tap and each part of the channels, the filters and the pixels under the tap are loaded into shared memory. Pixels
outside the image are zero there. Without a matrix instruction, products are added up one by one.

A transposed convolution with a stride becomes several convolutions (`phases`), one for each remainder of a coordinate
divided by the stride. The places of one phase use the same taps.
"""

from __future__ import annotations

from math import ceil, prod

from argus.graph.capture import Value, inputs
from argus.graph.convolution_tiles import ConvolutionTile, convolution_tile
from argus.graph.generate import Emitter
from argus.graph.grids import GridAxis, grid
from argus.graph.group import Group
from argus.graph.layout import Axis, Layout
from argus.graph.space import Mismatch
from argus.graph.spatial import Spatial, channels, pixels_of, spatials
from argus.graph.tiles import Tile
from argus.graph.turns import ordered
from argus.graph.window import window_of

MOST_GRID = 8
"""Largest number of axes of a grid."""


def tile_of(group: Group, layout: Layout, target: str, bits: int) -> ConvolutionTile:
    """Return the tile of a group's convolution."""
    dims = spatials(group, layout)
    phases = {d.result.symbol: d.phases for d in dims if d.result is not None}
    shown = tuple(d.result for d in dims if d.result is not None)
    return convolution_tile(layout, channels(group, layout), shown, phases, target, bits)


class ConvolutionEmitter(Emitter):
    """Emits the tile of a convolution, and then the operators that use it. `bounded`: every tap is written as a
    remainder."""

    bounded = False

    def __init__(self, group: Group, layout: Layout, tile: ConvolutionTile) -> None:
        if not tile.pixels:
            raise Mismatch("a convolution with one pixel")
        last = tile.pixels[-1][0]
        super().__init__(group, layout, Tile(tile.rows, last, tile.grid, tile.filters, tile.width))
        self.conv, self.window = tile, window_of(group.window)
        self.across = tuple(axis for axis, _ in tile.pixels)
        # the axes whose index differs within a tile
        self.lines = {axis.symbol for axis, part in tile.pixels if part > 1}
        self.dims, self.channels = spatials(group, layout), channels(group, layout)
        self.phase = {d.number: f"phase{d.number}" for d in self.dims if d.phases > 1 and d.result is not None}
        self.x, self.w = (next(p for p in layout.reads if p.use == use) for use in "xw")
        self.filter = layout.axis(group.space[(group.window, 0)][1]) if self.window.turns else None

    def body(self) -> list[str]:
        """Return the statements after the specifications."""
        self.here = self.block
        self.grid()
        self.pixels()
        shape = "(WIDTH,)" if self.flat else self.conv.rows_by_columns
        for name in ("total", "other") if self.conv.pairs else ("total",):
            self.out.add(f"{name} = al.zeros({shape}, al.float32)")
        if self.conv.mma:
            self.multiply()
        else:
            self.multiply_and_add()
        if self.conv.pairs:
            self.out.add("total = al.join(total, other)")
        for param in self.layout.writes:
            self.store(param)
        return self.out.lines

    def requires(self) -> tuple[str, ...]:
        """Return the preconditions of the kernel."""
        return ()

    # ------------------------------------------------------------------------ places

    def grid(self) -> None:
        conv, axes = self.conv, list[GridAxis]()
        if conv.rows is not None:
            axes.append((f"p{conv.rows.index}", self.blocks_of_filters(), ceil(conv.rows.extent / conv.filters)))
        for axis, part in reversed(conv.pixels):
            text = self.blocks(axis, part)
            axes.append((f"p{axis.index}", str(text), text if isinstance(text, int) else axis.extent))
        phases = [(name, self.dims[d].phases) for d, name in self.phase.items()]
        beside = [(axis.index, axis.size, axis.extent) for axis in conv.grid]
        together = len(axes) + len(phases) + len(beside) > MOST_GRID
        shown = [("phase", prod(size for _, size in phases))] if together else phases
        self.out.add(grid([*axes, *((name, str(size), size) for name, size in shown), *beside], self.order()))
        for place, (name, size) in enumerate(phases if together else []):
            self.out.add(f"{name} = phase // {prod(s for _, s in phases[place + 1 :])} % {size}")
        if conv.rows is not None:
            index = conv.rows.index
            self.out.add(f"{index}0 = p{index} * HEIGHT")
            self.out.add(f"{index} = {index}0 + al.arange(HEIGHT)")

    def order(self) -> str:
        """Return the order of the grid's programs, as further arguments."""
        conv = self.conv
        return ", persistent=True" + (', schedule="rows"' if conv.warps > 4 else "") if conv.producers else ""

    def overlapped(self) -> str:
        """Return an order in which one tile's results are stored while another one is multiplied."""
        schedule = "rows" if self.conv.warps > 4 else "pingpong"
        return f', persistent=True, schedule="{schedule}"' if self.conv.producers else ""

    def blocks_of_filters(self) -> str:
        """Return the number of tiles along the filters."""
        rows = self.conv.rows
        assert rows is not None
        return f"al.cdiv({rows.extent // 2 if self.conv.pairs else rows.size}, HEIGHT)"

    def blocks(self, axis: Axis, part: int) -> int | str:
        own = next((d for d in self.dims if d.result is axis), None)
        if own is None and not isinstance(axis.extent, int):
            return f"al.cdiv({axis.size}, {part})"
        extent = ceil(axis.extent / (own.phases if own is not None else 1))
        extent = pixels_of(own) if self.window.turns and own is not None else extent
        return ceil(extent / part) if axis.fixed else f"al.cdiv({axis.size}, {part})"

    def pixels(self) -> None:
        """Return the indices of each of the tile's pixels along the result's axes."""
        out, below = self.out, 1
        out.add("pixel = al.arange(WIDTH)")
        for place, (axis, part) in enumerate(reversed(self.conv.pixels)):
            text = f"pixel // {below}" if below > 1 else "pixel"
            if place < len(self.conv.pixels) - 1:
                text = f"{text} % {part}"
            below *= part
            d = next((d for d in self.dims if d.result is axis), None)
            text = f"p{axis.index}" if part == 1 else f"p{axis.index} * {part} + {text}"
            if d is not None and d.number in self.phase:
                out.add(f"{axis.index}1 = {text}")
                text = f"{axis.index}1 * {d.stride} + {self.phase[d.number]}"
            out.add(f"{axis.index} = {text}")

    def reached(self, d: Spatial, turn: str) -> tuple[str, str, str]:
        """Return the tap of a turn, its coordinate in the image, and a condition on the tap, or ""."""
        index = self.pixel(d.result) if d.result is not None else "0"
        if not d.transposed:
            far = f"{turn} * {d.dilation}" if d.dilation > 1 else turn
            return turn, f"{index} * {d.stride} + ({far} - {d.padding})", ""
        if d.step == 1 and d.stride == 1:
            return turn, f"{index} + ({d.padding} - {turn} * {d.dilation})", ""
        phase = self.phase.get(d.number, "0")
        base = f"{index}1" if d.number in self.phase else index
        reach = f"({phase} + {d.padding})"
        first = f"({reach} // {d.common} * {pow(d.dilation // d.common, -1, d.step)} % {d.step})"
        tap = f"{first} + {turn} * {d.step}"
        place = f"{base} + (({reach} - {first} * {d.dilation}) // {d.stride} - {turn} * {d.dilation // d.common})"
        conditions = [f"({tap} < {d.taps})"] if d.turns * d.step > d.taps else []
        conditions += [f"({reach} % {d.common} == 0)"] if d.common > 1 else []
        return tap, place, " & ".join(conditions)

    # ------------------------------------------------------------------------ phases that are stored in turns

    def pixel(self, axis: Axis) -> str:
        """Return the name of the index along an axis at which a tile's windows are. Without phases in turns, it is that
        of the result."""
        return f"{axis.index}1" if self.window.turns else axis.index

    def turned(self) -> None:
        """Emit the indices of the result at which the phases of the tile's pixels are stored in turns."""
        turns, row = self.window.turns, self.conv.rows
        if not turns or row is None:
            return
        below = self.filter.extent if self.filter is not None else 1
        if self.filter is not None:
            self.out.add(f"{self.filter.index} = {row.index} % {below}")
        phases = {}
        for number in reversed(ordered(len(turns))):
            phase = f"{row.index} // {below}" if below > 1 else row.index
            phases[number], below = f"{phase} % {turns[number][0]}", below * turns[number][0]
        for d, (step, begin) in zip(self.dims, turns, strict=True):
            if d.result is None:
                continue
            pixel, side = self.pixel(d.result), self.conv.pairs and d.number == len(turns) - 1
            shaped = f"{pixel}[:, None, None]" if self.conv.pairs and d.result.symbol in self.lines else pixel
            phase = "al.arange(2)" if side else f"({phases[d.number]}{f' - {begin}' if begin else ''})[:, None]"
            text = f"{shaped} * {step} + {phase}" if step > 1 else shaped
            if begin and (side or step == 1):
                text = f"{text} - {begin}"
            self.out.add(f"{d.result.index} = {text}")

    def index(self, axis: Axis) -> str:
        """Return the index along an axis, shaped so that the indices broadcast to a tile."""
        if self.conv.last:
            return f"{axis.index}[:, None]" if axis.symbol in self.lines else axis.index
        if self.conv.pairs and axis.symbol in self.lines and all(axis is not d.result for d in self.dims):
            return f"{axis.index}[:, None, None]"
        return f"{axis.index}[:, None]" if axis is self.filter else super().index(axis)

    def conditions(self, axis: Axis) -> list[str]:
        """Return the conditions under which a tile's elements are inside an axis."""
        if self.conv.last:
            inside = f"({axis.index} < {axis.size})"
            return [inside] if axis is self.conv.rows else [f"{inside}[:, None]"] if axis in self.across else []
        if not self.window.turns:
            return super().conditions(axis)
        if axis is self.filter and self.conv.rows is not None:
            rows = self.conv.rows
            if not self.conv.pairs:
                return super().conditions(rows)
            half = rows.extent // 2
            return [f"({rows.index} < {half})[:, None]"] if half % self.conv.filters else []
        own = next((d.number for d in self.dims if d.result is axis), None)
        if own is None:
            return []
        after = [f"(0 <= {axis.index})"] if self.window.turns[own][1] else []
        return [*after, f"({axis.index} < {axis.size})"]

    # ------------------------------------------------------------------------ products

    def multiply(self) -> None:
        """Emit an implicit product: all taps and parts of the channels in one pipelined loop."""
        conv, out = self.conv, self.out
        assert self.channels is not None and conv.rows is not None
        c = self.channels
        parts = ceil(c.extent / conv.k)
        turns = [d.turns for d in self.dims]
        producers = f", producer_warps={conv.producers}" if conv.producers else ""
        out.add(f"for step in al.pipelined(0, {parts * prod(turns)}, 1, stages={conv.stages}{producers}):")
        out.depth += 1
        out.add(f"{c.index}0 = step % {parts} * DEPTH" if parts > 1 else f"{c.index}0 = 0")
        if not conv.flat:
            out.add(f"{c.index} = {c.index}0 + al.arange(DEPTH)")
        conditions = self.taps(parts, turns)
        filters, windows = self.filters(conditions), self.windows()
        if conv.pairs:
            beside = self.filters(conditions, "beside", f"{conv.rows.index}0 + {conv.rows.extent // 2}")
            out.add(f"other = al.mma({windows}, {beside}, other)")
        out.add(f"total = al.mma({windows}, {filters}, total)" if conv.last or conv.pairs
                else f"total = al.mma({filters}, {windows}, total)")  # fmt: skip
        out.depth -= 1

    def taps(self, parts: int, turns: list[int]) -> list[str]:
        """Bind the tap and the coordinate of each spatial dimension in this step. Return conditions on the taps."""
        conditions, below = [], parts
        for d in reversed(self.dims):
            turn = "0"
            if d.turns > 1:
                turn = f"step // {below}" if below > 1 else "step"
                turn = f"{turn} % {d.turns}" if self.bounded or prod(turns[: d.number]) > 1 else turn
                below *= d.turns
                self.out.add(f"turn{d.number} = {turn}")
                turn = f"turn{d.number}"
            tap, place, condition = self.reached(d, turn)
            if d.tap is not None:
                self.out.add(f"{d.tap.index} = {tap}")
            self.out.add(f"at{d.number} = {place}")
            conditions += [condition] if condition else []
        return conditions

    def filters(self, conditions: list[str], name: str = "filters", begin: str = "") -> str:
        """Return the text that loads this step's filters into shared memory as rows of channels. `begin`: the first
        one, if it is not the tile's."""
        f, c, where = self.conv.rows, self.channels, []
        assert f is not None and c is not None
        first = self.w.axes.index(f) < self.w.axes.index(c)
        for axis in self.w.axes:
            if axis is f:
                first_row = begin or f"{f.index}0"
                where.append(f"{first_row} : {first_row} + HEIGHT")
            elif axis is c:
                where.append(f"{c.index}0 : {c.index}0 + DEPTH")
            else:
                where.append(axis.index)
        whole = [f.extent % (self.conv.filters * (1 + self.conv.pairs)) == 0, c.extent % self.conv.k == 0]
        checked = ", ".join(str(d) for d, w in enumerate(whole if first else whole[::-1]) if not w)
        mask = f", boundary_check=({checked},)" if checked else ""
        if conditions:
            rows = " & ".join([f"({f.index} < {f.size})", *conditions])
            mask += f", mask=({rows}){'[:, None]' if first else '[None, :]'}"
        self.out.add(f"{name} = al.stage({self.w.name}[{', '.join(where)}]{mask})")
        return name if first else f"al.trans({name})"

    def windows(self) -> str:
        """Return the text that loads the pixels under this step's taps into shared memory as rows of channels."""
        c = self.channels
        assert c is not None
        last = self.x.axes[-1] is c
        pixel, channel = ("[:, None]", "[None, :]") if last else ("[None, :]", "[:, None]")
        at = {
            d.image.symbol: f"at{d.number}{pixel if self.differs(d) else ''}" for d in self.dims if d.image is not None
        }
        where = []
        for axis in self.x.axes:
            if axis is c:
                where.append(f"{c.index}{channel}")
            elif axis.symbol in at:
                where.append(at[axis.symbol])
            else:
                where.append(f"{axis.index}{pixel}" if axis.symbol in self.lines else axis.index)
        inside = [] if c.extent % self.conv.k == 0 else [f"({c.index} < {c.extent}){channel}"]
        for d in self.dims:
            if not self.surely_inside(d):
                within = f"((0 <= at{d.number}) & (at{d.number} < {d.size}))"
                inside.append(f"{within}{pixel}" if self.differs(d) else within)
        inside += [f"({a.index} < {a.size}){pixel}" for a in self.across if a in self.x.axes]
        if inside and not any("None" in text for text in inside):
            inside.append(f"({c.index} < {c.extent}){channel}")
        mask = f", mask={' & '.join(inside)}" if inside else ""
        self.out.add(f"windows = al.stage({self.x.name}[{', '.join(where)}]{mask})")
        return "windows" if last else "al.trans(windows)"

    def surely_inside(self, d: Spatial) -> bool:
        """Return True if all places that a tile reads along a dimension are in the image."""
        if d.transposed or d.padding:
            return False
        part = next((part for axis, part in self.conv.pixels if axis is d.result), 1)
        made = ceil(d.result.extent / part) * part if d.result is not None else 1
        return (made - 1) * d.stride + (d.taps - 1) * d.dilation < d.size

    def differs(self, d: Spatial) -> bool:
        """Return True if the pixels of a tile have different places along a dimension."""
        return d.result is not None and d.result.symbol in self.lines

    def multiply_and_add(self) -> None:
        """Emit products that are added up one by one, over channels and taps."""
        out, loops = self.out, 0
        c = self.channels
        if c is not None:
            out.add(f"for {c.index} in range(0, {c.size}):")
            out.depth, loops = out.depth + 1, loops + 1
        conditions: list[str] = []
        inside = self.inside()
        for d in self.dims:
            turn = "0"
            if d.turns > 1:
                turn = f"turn{d.number}"
                out.add(f"for {turn} in range({d.turns}):")
                out.depth, loops = out.depth + 1, loops + 1
            tap, place, condition = self.reached(d, turn)
            if d.tap is not None:
                out.add(f"{d.tap.index} = {tap}")
            out.add(f"at{d.number} = {place}")
            if not self.in_bounds(d):
                inside.append(f"(0 <= at{d.number}) & (at{d.number} < {d.size})")
            conditions += [condition] if condition else []
        at = {d.image.symbol: f"at{d.number}" for d in self.dims if d.image is not None}
        pixels = ", ".join(at.get(axis.symbol, axis.index) for axis in self.x.axes)
        inside += [f"({a.index} < {a.size})" for a in self.across if a in self.x.axes]
        mask = f", mask={' & '.join(inside + conditions)}" if inside or conditions else ""
        out.add(f"window = al.load({self.x.name}[{pixels}]{mask}).to(al.float32)")
        f = self.conv.rows
        filters = ", ".join(axis.index for axis in self.w.axes)
        cut = f is not None and f.extent % self.conv.filters != 0
        guard = " & ".join([*([f"({f.index} < {f.size})"] if f is not None and cut else []), *conditions])
        wanted = f", mask={guard}" if guard else ""
        if f is None and conditions:
            wanted = ""  # For a scalar, the window is zero there, and the tap is clamped.
            filters = ", ".join(self.clamped(axis) for axis in self.w.axes)
        out.add(f"weight = al.load({self.w.name}[{filters or '0'}]{wanted}).to(al.float32)")
        out.add(f"total = total + {'weight' if f is None else 'weight[:, None]'} * window")
        out.depth -= loops

    def inside(self) -> list[str]:
        """Return conditions on the tile's pixels under which `in_bounds` holds."""
        return []

    def in_bounds(self, d: Spatial) -> bool:
        """Return True if all places that pixels of the result reach along a dimension are in the image."""
        return False

    def clamped(self, axis: Axis) -> str:
        taps = {d.tap.symbol for d in self.dims if d.tap is not None}
        return f"al.minimum({axis.index}, {axis.extent - 1})" if axis.symbol in taps else axis.index

    def value(self, value: Value) -> str:
        """Return the name of a value's tile: the convolution's tile, or one that is computed from it."""
        node = self.group.window
        if value[0] is node and value not in self.block:
            read = inputs(node)
            bias = self.param(read[2]) if len(read) > 2 else None
            self.block[value] = self.out.bind(f"total + {self.real(node, 2)}" if bias is not None else "total")
        return super().value(value)
