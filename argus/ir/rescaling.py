"""Rescaled accumulators: `acc[i, j] = acc[i, j] * factor[i]` between accumulations, as online softmax does.

What contributed to each element stays the same, so the statement moves no tags. Both the verifier and the simulator go
by this.
"""

from __future__ import annotations

from argus.ir.expr import Coord, Elem, Op, coords, elements, walk
from argus.ir.nodes import Accumulate, Kernel, Map, Mma, Stmt
from argus.ir.visit import walk as statements


def accumulators(kernel: Kernel) -> frozenset[str]:
    """The tiles that are accumulated into."""
    return frozenset(s.dst.obj if isinstance(s, Accumulate) else s.d.obj
                     for s in statements(kernel.body) if isinstance(s, (Accumulate, Mma)))  # fmt: skip


def rescales(stmt: Stmt, accumulated: frozenset[str]) -> str | None:
    """The accumulator whose elements a statement multiplies where they stand, by a factor that is the same along an
    axis; None if it does something else."""
    match stmt:
        case Map(dst=dst, value=Op(op="mul", args=(a, b)), shape=shape) if dst.obj in accumulated:
            here = Elem(dst.obj, coords(len(shape)), a.dtype)
            factor = b if a == here else a
            used = {e.axis for e in walk(factor) if isinstance(e, Coord)}
            apart = dst.obj not in {e.obj for e in elements(factor)} and len(used) < len(shape)
            return dst.obj if here in (a, b) and dst.index == here.index and apart else None
        case _:
            return None
