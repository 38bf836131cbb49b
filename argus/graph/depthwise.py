"""Convolutions with a filter for each channel, with the elementwise operators behind them.

    y[n, g, p, q] = sum over r, s of w[g, r, s] * x[n, g, p * stride + r * dilation, q * stride + s * dilation]
"""

from __future__ import annotations

from argus.graph.capture import Value, inputs
from argus.graph.group import Group
from argus.graph.taps import TapsEmitter
from argus.graph.window import window_of


def is_depthwise(group: Group) -> bool:
    """Return True for a convolution with a filter for each channel."""
    return group.window is not None and window_of(group.window).depthwise


class DepthwiseEmitter(TapsEmitter):
    """Emits the sum over the taps, and then the operators that use it."""

    def value(self, value: Value) -> str:
        """Return the name of a value's tile: the tile of the sums, or one that is computed from it."""
        node = self.group.window
        if value[0] is node and value not in self.block:
            total = self.convolved()
            self.block[value] = self.out.bind(f"{total} + {self.real(node, 2)}" if len(inputs(node)) > 2 else total)
        return super().value(value)

    def convolved(self) -> str:
        """Emit the products of all taps, and return the name of their sum."""
        out, filters = self.out, next(p for p in self.layout.reads if p.use == "w")
        channels = self.mask(tuple(a for a in filters.axes if a in self.sides()))
        out.add(f"total = al.zeros({self.shape}, al.float32)")
        with self.each_tap() as window:
            out.add(f"window = {window}")
            out.add(f"weight = {self.loaded(filters, [self.index(a) for a in filters.axes], [channels])}")
            out.add("total = total + weight * window")
        return "total"
