"""How far the elements of a copy lie from the first place of its tile, in a tensor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from argus.ir.affine import linear
from argus.ir.expr import Const, Coord, Elem, Expr, Op, Param, Thread, walk
from argus.ir.nodes import Kernel, Requires, Tensor


def steps(index: Sequence[Expr], shape: Sequence[int]) -> tuple[int, ...] | None:
    """Return how much each index of a tensor is, at most, above its value at the tile's coordinates 0.

        a[128 * pid(0) + c0, k0 + c1] over 128x32  ->  (127, 31)

    None if an index does not grow with the coordinates alone, from a value that all threads have in common.
    """
    found = []
    for expr in index:
        step = 0
        for atom, factor in linear(expr).terms:
            if isinstance(atom, Coord) and factor > 0:
                step += factor * (shape[atom.axis] - 1)
            elif any(isinstance(e, Coord | Elem | Thread) for e in walk(atom)):
                return None
        found.append(step)
    return tuple(found)


def stated(kernel: Kernel, tensor: Tensor, far: Sequence[int]) -> int | None:
    """Return how many bytes elements lie apart, at most, whose indices differ by `far`, as preconditions bound strides.

    None if `requires` does not say `0 <= stride` and `stride < number` of a stride.
    """
    known = [b for p in kernel.preconditions if isinstance(p, Requires) for b in _bounds(p.cond)]
    total = 0
    for stride, step in ((s, n) for s, n in zip(tensor.strides, far, strict=True) if n):
        if isinstance(stride, Const):
            total += step * int(stride.value)
            continue
        most = [n for size, n in known if size == stride and n is not None]
        if not most or (stride, None) not in known:
            return None
        total += step * min(most)
    return total * tensor.dtype.bytes


def _bounds(condition: Expr) -> Iterator[tuple[Expr, int | None]]:
    """Yield each size with the largest number that it may be, or with None if it is not negative."""
    match condition:
        case Op(op="and", args=(x, y)):
            yield from _bounds(x)
            yield from _bounds(y)
        case Op(op="lt", args=(Param() as size, Const(value=most))):
            yield size, int(most) - 1
        case Op(op="le", args=(Param() as size, Const(value=most))):
            yield size, int(most)
        case Op(op="le", args=(Const(value=0), Param() as size)) | Op(op="ge", args=(Param() as size, Const(value=0))):
            yield size, None
