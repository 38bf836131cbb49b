"""Intervals: constant bounds of integer expressions at a site, in unbounded arithmetic."""

from __future__ import annotations

from argus.ir.expr import Const, Coord, Elem, Expr, LoopVar, Op, Param, ProgramId, Thread
from argus.ir.interval import WIDE, Interval, operate, within
from argus.ir.nodes import Kernel
from argus.ir.types import MAX_EXTENT
from argus.verify.checks.totals import Totals
from argus.verify.model.program import Site


def counts_around(site: Site) -> dict[str, int]:
    """Map the running counts of the loops around a site to the numbers at which they wrap."""
    return {loop.counter.name: loop.counter.wrap for loop in site.loops if loop.counter is not None}


class Intervals:
    """The intervals of a kernel's integer expressions. Those of its counting registers are computed once (`totals`)."""

    def __init__(self, kernel: Kernel, sites: tuple[Site, ...]) -> None:
        self.kernel = kernel
        self.totals = Totals(kernel, sites, self.of)

    def of(self, expr: Expr, site: Site | None) -> Interval:
        """Return constant bounds of an integer expression at a site."""
        match expr:
            case Const(value=value) if not isinstance(value, float):
                return int(value), int(value)
            case Param(name=name) if name in self.kernel.sizes:
                return 0, MAX_EXTENT
            case Param(dtype=dtype) if dtype.is_int:
                return dtype.integers
            case ProgramId(axis=axis):
                grid = self.kernel.grid
                if grid is None:
                    return 0, 2**31 - 2
                return (0, max(0, self.of(grid[axis], None)[1] - 1)) if axis < len(grid) else (0, 0)
            case LoopVar(name=name) if site is not None and name in counts_around(site):
                return 0, counts_around(site)[name] - 1
            case LoopVar(name=name) if site is not None:
                loop = next((loop for loop in site.loops if loop.var == name), None)
                if loop is None:
                    return WIDE
                return self.of(loop.start, site)[0], self.of(loop.stop, site)[1] - 1
            case Coord(axis=axis) if site is not None and axis < len(site.shape):
                return 0, site.shape[axis] - 1
            case Thread():
                return 0, self.kernel.num_threads - 1
            case Elem(obj=obj, dtype=dtype) if dtype.is_int:
                return self.totals.range(obj) if self.totals.counts(obj) else dtype.integers
            case Op(op=name, args=args) if expr.dtype.is_int and all(a.dtype.is_int for a in args):
                return within(expr.dtype, operate(name, [self.of(a, site) for a in args]))
            case Op(op="cast") if expr.dtype.modular:
                return expr.dtype.integers
            case Op(op="where", args=(_, a, b)):
                x, y = self.of(a, site), self.of(b, site)
                return min(x[0], y[0]), max(x[1], y[1])
            case _:
                return WIDE
