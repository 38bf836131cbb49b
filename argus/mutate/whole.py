"""Edits of declarations: grid, preconditions, alignments, shared tiles, mbarriers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from argus.ir.expr import Const, Expr, Op, rewrite
from argus.ir.nodes import Arranged, Assume, InRange, Kernel, Mbarrier, Requires, Shared
from argus.ir.text import print_expr
from argus.ir.visit import map_exprs, rewrite_body
from argus.layout import AnyLayout, Layout, Swizzle, SwizzledLayout
from argus.mutate.kind import Kind
from argus.source import Span


@dataclass(frozen=True, slots=True)
class Declared:
    """An edit of a declaration, and the edited kernel."""

    name: str
    kind: Kind
    span: Span
    before: str
    after: str
    kernel: Kernel


def edits(kernel: Kernel) -> Iterator[Declared]:
    """Yield every edit of the declarations that precede the body."""
    yield from _grid(kernel)
    yield from _preconditions(kernel)
    for tile in kernel.shared:
        for name, new in _tile(tile):
            before, after = (f"shared {t.name} layout {t.layout} at {t.offset}" for t in (tile, new))
            changed = replace(kernel, shared=tuple(new if s is tile else s for s in kernel.shared))
            yield Declared(f"{name} of {tile.name}", Kind.LAYOUT, tile.span, before, after, changed)
    yield from _stages(kernel)
    for barrier in kernel.barriers:
        for name, array in _mbarrier(barrier):
            before, after = (f"mbarrier {b.name} count {b.count} arrivals {b.arrivals}" for b in (barrier, array))
            changed = replace(kernel, barriers=tuple(array if b is barrier else b for b in kernel.barriers))
            yield Declared(f"{name} of {barrier.name}", Kind.COUNT, barrier.span, before, after, changed)


def _grid(kernel: Kernel) -> Iterator[Declared]:
    others: tuple[tuple[str, Callable[[Expr], Expr]], ...] = (
        ("one block more", lambda e: Op("add", (e, Const(1, e.dtype)), e.dtype)),
        ("one block less", lambda e: Op("sub", (e, Const(1, e.dtype)), e.dtype)),
        ("round the grid down", lambda e: rewrite(e, _rounded_down)),
    )
    extents = kernel.grid or ()
    for axis, extent in enumerate(extents):
        for name, change in others:
            grid = tuple(change(e) if i == axis else e for i, e in enumerate(extents))
            before, after = (f"grid axis {axis}: {print_expr(e)}" for e in (extent, grid[axis]))
            changed = replace(kernel, grid=grid)
            yield Declared(f"{name} along axis {axis}", Kind.GRID, kernel.span, before, after, changed)


def _rounded_down(e: Expr) -> Expr | None:
    match e:
        case Op(op="floordiv", args=(Op(op="add", args=(x, Const())), divisor)):
            return Op("floordiv", (x, divisor), e.dtype)
        case _:
            return None


def _preconditions(kernel: Kernel) -> Iterator[Declared]:
    for number, condition in enumerate(kernel.preconditions):
        rest = kernel.preconditions[:number] + kernel.preconditions[number + 1 :]
        match condition:
            case InRange(tensor=name, lo=lo, hi=hi):
                text = f"in_range {name} from {print_expr(lo)} to {print_expr(hi)}"
            case Arranged(tensor=name, how=how):
                text = f"{how} {name}"
            case Assume(cond=cond):
                text = f"assume {print_expr(cond)}"
            case Requires(cond=cond):
                text = f"requires {print_expr(cond)}"
        changed = replace(kernel, preconditions=rest)
        what = "index fact" if isinstance(condition, InRange | Arranged) else "precondition"
        yield Declared(f"drop {what} {number}", Kind.REQUIRES, condition.span, text, "", changed)
    for tensor in kernel.tensors:
        if tensor.alignment > tensor.dtype.bytes:
            less = replace(tensor, alignment=tensor.alignment // 2)
            before, after = (f"tensor {t.name} align {t.alignment}" for t in (tensor, less))
            changed = replace(kernel, params=tuple(less if p is tensor else p for p in kernel.params))
            name = f"halve the alignment of {tensor.name}"
            yield Declared(name, Kind.REQUIRES, tensor.span, before, after, changed)


def _stages(kernel: Kernel) -> Iterator[Declared]:
    """Use one buffer less in all indices. Tiles of more than two dimensions have their number of buffers first."""
    for stages in sorted({t.shape[0] for t in kernel.shared if len(t.shape) > 2 and t.shape[0] > 1}):

        def fewer(e: Expr, stages: int = stages) -> Expr | None:
            match e:
                case Op(op="mod" | "floordiv", args=(x, Const(value=value) as count)) if value == stages:
                    return replace(e, args=(x, replace(count, value=stages - 1)))
                case _:
                    return None

        body = rewrite_body(kernel.body, lambda s, change=fewer: (map_exprs(s, change),))  # type: ignore[misc]
        name = f"go round {stages - 1} of {stages} buffers"
        yield Declared(name, Kind.COUNT, kernel.span, f"% {stages}", f"% {stages - 1}", replace(kernel, body=body))


def _tile(tile: Shared) -> Iterator[tuple[str, Shared]]:
    """Return edits of one shared tile: another layout, or another place."""
    if tile.offset:
        yield "place at byte 0", replace(tile, offset=0)
    if tile.layout is None:
        return
    if len(tile.shape) > 2 and tile.shape[0] > 1:
        yield "one buffer less", _shorter(tile, tile.layout)
    for name, layout in _layouts(tile.layout):
        yield name, replace(tile, layout=layout)


def _shorter(tile: Shared, layout: AnyLayout) -> Shared:
    """Return the tile with an extent smaller by one along its first dimension."""
    plain = layout.inner if isinstance(layout, SwizzledLayout) else layout
    assert isinstance(plain, Layout) and isinstance(plain.shape, tuple) and isinstance(plain.stride, tuple)
    shape = (tile.shape[0] - 1, *tile.shape[1:])
    less = Layout((shape[0], *plain.shape[1:]), plain.stride)
    changed = replace(layout, inner=less) if isinstance(layout, SwizzledLayout) else less
    return replace(tile, shape=shape, layout=changed)


def _layouts(layout: AnyLayout) -> Iterator[tuple[str, AnyLayout]]:
    if isinstance(layout, SwizzledLayout):
        swizzle = layout.swizzle
        if layout.offset == 0:
            yield "drop the swizzle", layout.inner
        if swizzle.bits:
            yield "swizzle fewer bits", replace(layout, swizzle=replace(swizzle, bits=swizzle.bits - 1))
        for name, inner in _layouts(layout.inner):
            if isinstance(inner, Layout):
                yield name, replace(layout, inner=inner)
        return
    if not isinstance(layout.shape, tuple) or not isinstance(layout.stride, tuple):
        return
    shape, stride = layout.shape, layout.stride
    if layout.cosize() % 4 == 0:
        yield "swizzle neighbours", SwizzledLayout(Swizzle(1, 0, 1), 0, layout)
    for axis, step in enumerate(stride):
        if isinstance(step, int) and step > 1:
            yield f"halve stride {axis}", Layout(shape, (*stride[:axis], step // 2, *stride[axis + 1 :]))
    match shape[-2:], stride[-2:]:
        case (int(rows), int(columns)), (int(down), 1) if down == columns:
            yield "transpose the layout", Layout(shape, (*stride[:-2], 1, rows))
        case _:
            pass


def _mbarrier(barrier: Mbarrier) -> Iterator[tuple[str, Mbarrier]]:
    yield "one arrival more", replace(barrier, arrivals=barrier.arrivals + 1)
    yield "one arrival less", replace(barrier, arrivals=barrier.arrivals - 1)
    yield "one mbarrier less", replace(barrier, count=barrier.count - 1)
