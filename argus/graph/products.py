"""Kernels of matrix products, with the elementwise operators after them.

Half-precision factors go through shared memory to matrix instructions. So do factors of float32, as TF32, if PyTorch's
flags allow it. Otherwise these are multiplied and added in float32.
"""

from __future__ import annotations

from typing import Any

from argus.graph import capture
from argus.graph.capture import Value
from argus.graph.generate import Emitter
from argus.graph.grids import blocks, grid
from argus.graph.group import Group
from argus.graph.layout import Axis, Layout, Param
from argus.graph.operators import name_of
from argus.graph.space import Mismatch
from argus.graph.text import dtype, literal
from argus.graph.tiles import ProductTile, Tile


class ProductEmitter(Emitter):
    """Emits the tile of a product, and then the operators that use it."""

    def __init__(self, group: Group, layout: Layout, tile: ProductTile) -> None:
        plain = Tile(tile.rows, tile.columns, tile.grid, tile.m, tile.n)
        super().__init__(group, layout, plain)
        self.product = tile
        self.factors = {p.use: p for p in layout.reads if p.use}
        self.vectors = sum(not p.use and tile.columns in p.axes for p in layout.reads)

    def body(self) -> list[str]:
        """Return the statements after the specifications."""
        if set(self.factors) != {"a", "b"}:
            raise Mismatch("a product of one tensor with itself")
        tile, out = self.product, self.out
        self.here = self.block
        rows, columns = tile.rows, tile.columns
        axes = [blocks(f"p{rows.index}", rows.size, rows.extent, "HEIGHT", tile.m),
                blocks(f"p{columns.index}", columns.size, columns.extent, "WIDTH", tile.n)]  # fmt: skip
        axes += [(a.index, a.size, a.extent) for a in tile.grid]
        order = ", group=8" if not tile.grid else ""
        persistent = ", persistent=True" if tile.producers else ""
        persistent += ', schedule="rows"' if tile.producers and tile.warps > 4 else ""
        out.add(grid(axes, order + persistent))
        out.add(f"{rows.index}0, {columns.index}0 = p{rows.index} * HEIGHT, p{columns.index} * WIDTH")
        out.add(f"{rows.index} = {rows.index}0 + al.arange(HEIGHT)")
        out.add(f"{columns.index} = {columns.index}0 + al.arange(WIDTH)")
        out.add("product = al.zeros((HEIGHT, WIDTH), al.float32)")
        if tile.mma:
            self.multiply()
        else:
            self.multiply_and_add()
        for param in self.layout.writes:
            self.store(param)
        return out.lines

    def multiply(self) -> None:
        tile, out = self.product, self.out
        producers = f", producer_warps={tile.producers}" if tile.producers else ""
        k = tile.depth.index
        out.add(f"for {k}0 in al.pipelined(0, {tile.depth.symbol}, DEPTH, stages={tile.stages}{producers}):")
        out.depth += 1
        a = self.staged("left", self.factors["a"], tile.rows, "HEIGHT")
        b = self.staged("right", self.factors["b"], tile.columns, "WIDTH")
        out.add(f"product = al.mma({a}, {b}, product)")
        out.depth -= 1

    def staged(self, name: str, param: Param, axis: Axis, size: str) -> str:
        """Return the text that loads a factor's part of the tile into shared memory, as rows of terms."""
        k = self.product.depth
        where = []
        for own in param.axes:
            if own is axis:
                where.append(f"{own.index}0 : {own.index}0 + {size}")
            elif own is k:
                where.append(f"{own.index}0 : {own.index}0 + DEPTH")
            else:
                where.append(own.index)
        self.out.add(f"{name} = al.stage({param.name}[{', '.join(where)}], boundary_check=(0, 1))")
        return name if param.axes.index(axis) < param.axes.index(k) else f"al.trans({name})"

    def store(self, param: Param) -> None:
        """Emit the store of a result. Whole rows of a tile are stored as slices, so that the copy engine can store
        boxes."""
        rows, columns = self.product.rows, self.product.columns
        if not self.product.mma or param.axes[-1] is not columns or rows not in param.axes or param.strides[-1] != 1:
            return super().store(param)
        size = {rows.symbol: "HEIGHT", columns.symbol: "WIDTH"}
        where = [
            f"{axis.index}0 : {axis.index}0 + {size[axis.symbol]}" if axis.symbol in size else axis.index
            for axis in param.axes
        ]
        text = f"{self.value(param.value)}.to({dtype(param.meta.dtype)})"
        self.out.add(f"al.store({param.name}[{', '.join(where)}], {text}, boundary_check=(0, 1))")

    def multiply_and_add(self) -> None:
        tile, out = self.product, self.out
        out.add(f"for {tile.depth.index} in range(0, {tile.depth.symbol}):")
        out.depth += 1
        a, b = self.load(self.factors["a"]), self.load(self.factors["b"])
        out.add(f"product = product + {a} * {b}")
        out.depth -= 1
        for param in self.factors.values():
            self.block.pop(param.name, None)

    def value(self, value: Value) -> str:
        """Return the name of a value's tile: the tile of the product, or one that is computed from it."""
        if value[0] is self.group.product and value not in self.block:
            self.block[value] = self.out.bind(self.finished(value[0]))
        return super().value(value)

    def is_inner(self, value: Value) -> bool:
        """Return True for a value that becomes part of the text of its only reader.

        Where several vectors along the columns follow a product, each has a statement of its own: in one text they
        would all be in registers at a time."""
        return super().is_inner(value) and not (self.vectors > 1 and self.reads_vector(value[0]))

    def reads_vector(self, node: Any) -> bool:
        """Return True for an operator that reads a tensor of another kernel."""
        return any(v not in self.group.space and not capture.is_constant(v[0]) for v in capture.inputs(node))

    def finished(self, node: Any) -> str:
        """Return the product plus the operands that the operator adds to it."""
        if name_of(node.target) not in ("addmm.default", "baddbmm.default"):
            return "product"
        beta, alpha = capture.given(node)[3:5]
        text = "product" if alpha == 1 else f"product * {literal(float(alpha))}"
        if beta == 0:
            return text
        added = self.real(node)
        return f"{text} + {added}" if beta == 1 else f"{text} + {added} * {literal(float(beta))}"
