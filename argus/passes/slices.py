"""Load the operands of matrix products into registers, one instruction step of K at a time, or a few of many steps.

    mma acc += sa[c0, c2] * sb[c1, c2]      ->  copy a[c0, c1] = sa[c0, 0 + c1];  copy b[c0, c1] = sb[c0, 0 + c1]
       (shape 128x128x32)                       mma acc += a[c0, c2] * b[c1, c2]        (shape 128x128x16)
                                                copy a[c0, c1] = sa[c0, 16 + c1];  ...

Register operands are sliced by maps, which move nothing. The steps are straight-line code, so the target's compiler
overlaps the loads of a step with the products of the previous step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from argus.ir.expr import Const, Coord, Elem, Expr, op, rewrite
from argus.ir.instruction import MMA, WGMMA
from argus.ir.instruction.tiled import tiled_mma
from argus.ir.nodes import Access, Fragment, Kernel, Map, Mma, Shared, Stmt, ThreadCopy
from argus.ir.visit import rewrite_body
from argus.layout import FragmentLayout
from argus.passes.fresh import Fresh
from argus.passes.infer import tiled

_K = 2  # the coordinate of a product that its operands share
_MOST = 8  # pieces of a product: proofs look at each


def slice_products(kernel: Kernel) -> Kernel:
    """Expand every product unless both operands are already in registers in the layout that its instruction needs."""
    fresh = Fresh(kernel)

    def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
        if not isinstance(stmt, Mma) or _ready(kernel, stmt):
            return None
        return _expand(kernel, fresh, stmt)

    return fresh.finish(rewrite_body(kernel.body, change))


def _ready(kernel: Kernel, stmt: Mma) -> bool:
    if stmt.instr in WGMMA:  # Such instructions read shared tiles.
        return True
    layouts = tiled(stmt)
    a, b = kernel.object(stmt.a.obj), kernel.object(stmt.b.obj)
    return (
        _spread(a, layouts.a)
        and _spread(b, layouts.b)
        and stmt.a.index == (Coord(0), Coord(_K))
        and stmt.b.index == (Coord(1), Coord(_K))
    )


def _spread(obj: object, layout: FragmentLayout) -> bool:
    if not isinstance(obj, Fragment) or obj.layout is None:
        return False
    return obj.layout == layout


def _expand(kernel: Kernel, fresh: Fresh, stmt: Mma) -> tuple[Stmt, ...]:
    assert stmt.instr is not None and stmt.warps is not None
    row = MMA[stmt.instr]
    m, n, k = stmt.shape
    steps = k // row.shape[_K]
    step = row.shape[_K] * next(n for n in range(1, steps + 1) if steps % n == 0 and steps // n <= _MOST)
    part = tiled_mma(row, (m, n, step), stmt.warps)
    dtypes = [kernel.object(access.obj).dtype for access in (stmt.a, stmt.b)]
    a = fresh.fragment(f"{stmt.a.obj}_a", dtypes[0], (m, step), part.a)
    b = fresh.fragment(f"{stmt.b.obj}_b", dtypes[1], (n, step), part.b)
    result: list[Stmt] = []
    for start in range(0, k, step):
        result.append(_bring(kernel, a, stmt.a, part.a, (0, _K), start, stmt))
        result.append(_bring(kernel, b, stmt.b, part.b, (1, _K), start, stmt))
        operands = Access(a, (Coord(0), Coord(_K))), Access(b, (Coord(1), Coord(_K)))
        result.append(replace(stmt, a=operands[0], b=operands[1], shape=(m, n, step)))
    return tuple(result)


def _bring(
    kernel: Kernel, name: str, source: Access, layout: FragmentLayout, axes: tuple[int, int], start: int, stmt: Mma
) -> Stmt:
    """Return `name[c0, c1] = source`, with the product's coordinates `axes` replaced by c0 and `start` + c1."""
    here = Access(name, (Coord(0), Coord(1)))
    index = _shifted(source.index, {axes[0]: Coord(0), axes[1]: op("add", Const(start), Coord(1))})
    obj = kernel.object(source.obj)
    if isinstance(obj, Shared):
        return ThreadCopy(here, Access(source.obj, index), layout.shape, None, None, layout, span=stmt.span)
    return Map(here, Elem(source.obj, index, obj.dtype), layout.shape, layout, "thread", span=stmt.span)


def _shifted(index: Sequence[Expr], places: dict[int, Expr]) -> tuple[Expr, ...]:
    return tuple(rewrite(e, lambda x: places.get(x.axis) if isinstance(x, Coord) else None) for e in index)
