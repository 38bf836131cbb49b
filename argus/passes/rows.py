"""Keep each reduced row in few warps: choose the layout of a global access whose contiguous axis is reduced.

    copy x[c0, c1] = a[c0, c1] shape 4x1024     ->  [4x1024 | t 32@1*8 4@0 | v 8@1 4@1*256]
    accumulate m[c0] max= x[c0, c1]                 instead of [4x1024 | t 128@1*8 | v 8@1 4@0]

Both layouts read whole lines. The first one needs no exchange between warps in a reduction.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from argus.ir.expr import Expr, elements
from argus.ir.nodes import Access, Accumulate, Copy, Fragment, Kernel, Map, Scan
from argus.ir.visit import walk
from argus.layout import FragmentLayout, Mode
from argus.passes.layouts import axes_of

Reduced = dict[str, frozenset[int]]
"""The dimensions of each register tile along which its elements, or values computed from them, are reduced."""


def reduced_dimensions(kernel: Kernel) -> Reduced:
    """Find the reduced dimensions of register tiles, going back from the reductions through the maps before them."""
    fragments = {f.name for f in kernel.fragments}
    work = [s for s in walk(kernel.body) if isinstance(s, Accumulate | Map)]
    scans = [s for s in walk(kernel.body) if isinstance(s, Scan)]
    found: Reduced = {tile.operand.obj: frozenset({s.axis}) for s in scans for tile in s.tiles}
    changed = True
    while changed:
        changed = False
        for stmt in reversed(work):
            if stmt.dst.obj not in fragments:
                continue
            axes = reduced_axes(found, stmt.dst)
            if isinstance(stmt, Accumulate):
                axes |= frozenset(range(len(stmt.shape))).difference(axes_of(stmt.dst.index) or ())
            for elem in elements(stmt.value):
                dims = _dimensions(elem.index, axes) if elem.obj in fragments else frozenset()
                if not dims <= found.get(elem.obj, frozenset()):
                    found[elem.obj] = found.get(elem.obj, frozenset()) | dims
                    changed = True
    return found


def reduced_axes(found: Reduced, access: Access) -> frozenset[int]:
    """Return the domain axes of a statement along which the register tile that it accesses is reduced."""
    axes = axes_of(access.index) or ()
    return frozenset(a for d, a in enumerate(axes) if a is not None and d in found.get(access.obj, ()))


def _dimensions(index: Sequence[Expr], axes: frozenset[int]) -> frozenset[int]:
    return frozenset(d for d, a in enumerate(axes_of(index) or ()) if a in axes)


def row_axis(kernel: Kernel, copy: Copy, found: Reduced) -> int | None:
    """Return the axis along which the register side of `copy` is reduced, if there is exactly one."""
    for access in (copy.dst, copy.src):
        if isinstance(kernel.object(access.obj), Fragment):
            axes = reduced_axes(found, access)
            return next(iter(axes)) if len(axes) == 1 else None
    return None


def in_rows(shape: tuple[int, ...], lanes: int, warps: int, order: Sequence[int], vector: int) -> FragmentLayout | None:
    """Return a layout with adjacent lanes along `order[0]`, `vector` elements each, and warps along other axes first.

    Return None if lanes or warps do not divide the remaining elements.
    """
    start = {dim: vector if dim == order[0] else 1 for dim in order}
    threads: list[Mode] = []

    def deal(count: int, dims: Sequence[int]) -> int:
        for dim in dims:
            across = gcd(count, shape[dim] // start[dim])
            threads.append(Mode(across, dim, start[dim]))
            start[dim] *= across
            count //= across
        return count

    if shape[order[0]] % vector or deal(lanes, order) > 1 or deal(warps, (*order[1:], order[0])) > 1:
        return None
    values = [Mode(vector, order[0]), *(Mode(shape[dim] // start[dim], dim, start[dim]) for dim in order)]
    return FragmentLayout(shape, tuple(threads), tuple(values)).simplify()
