"""Recognise rescaled accumulators: `acc[i, j] = acc[i, j] * factor[i]` between accumulations, as in online softmax.

What contributed to each element stays the same: the result has the accumulator's tags. Both the verifier and the
simulator go by this.
"""

from __future__ import annotations

from argus.ir.expr import Coord, Elem, Op, coords, elements, walk
from argus.ir.nodes import Accumulate, Kernel, Map, Mma, Stmt
from argus.ir.visit import walk as statements


def accumulators(kernel: Kernel) -> frozenset[str]:
    """Return the tiles into which statements accumulate."""
    return frozenset(s.dst.obj if isinstance(s, Accumulate) else s.d.obj
                     for s in statements(kernel.body) if isinstance(s, (Accumulate, Mma)))  # fmt: skip


def rescaled(stmt: Stmt, accumulated: frozenset[str]) -> Elem | None:
    """Return the accumulator element that a statement multiplies, for each element of its domain, by a factor that is
    constant along an axis. Return None if the statement does something else."""
    match stmt:
        case Map(dst=dst, value=Op(op="mul", args=(a, b)), shape=shape) if dst.index == coords(len(shape)):
            for elem, factor in ((a, b), (b, a)):
                if not isinstance(elem, Elem) or elem.obj not in accumulated or elem.index != dst.index:
                    continue
                used = {e.axis for e in walk(factor) if isinstance(e, Coord)}
                if {elem.obj, dst.obj}.isdisjoint(e.obj for e in elements(factor)) and len(used) < len(shape):
                    return elem
            return None
        case _:
            return None
