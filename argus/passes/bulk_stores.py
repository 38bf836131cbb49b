"""Results of specialised kernels leave by bulk stores: through shared memory, a panel of columns at a time.

    copy c[m0 + c0, n0 + c1] <- ct[c0, c1]  ->  wait until bulk stores have read; barrier     (persistent kernels)
       shape 128x256 if inside of c             panels[0, c0, c1] <- ct[c0, c1]  shape 128x64
                                                proxy fence; barrier
                                                c[m0 + c0, n0 + c1] <~ panels[0, c0, c1];  commit
                                                panels[1, c0, c1] <- ct[c0, 64 + c1]
                                                ...
                                                wait until all but the last bulk store have read; barrier
                                                panels[0, c0, c1] <- ct[c0, 128 + c1]
                                                ...
                                                at the end of the kernel: wait for all bulk stores

A panel has rows of 128 bytes in the swizzle of the copy engine. There are as many as there is room for, up to the
whole tile: the copy engine reads some while the threads write others, or, in a persistent kernel, multiply for the
next program. Where the whole tile has room, one barrier does for all of its panels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from argus.diagnostic import Diagnostic
from argus.ir.expr import Const, Coord, Expr, Op, coords, op, substitute_coords
from argus.ir.instruction import INSTRUCTIONS
from argus.ir.nodes import (
    Access,
    Barrier,
    BarrierArrive,
    BulkCommit,
    BulkWait,
    Copy,
    For,
    Fragment,
    Kernel,
    Programs,
    ProxyFence,
    Roles,
    Stmt,
    Tensor,
)
from argus.ir.types import boolean
from argus.ir.visit import rewrite_body, walk
from argus.ir.wellformed_hopper import MAX_BOX, ROW_BYTES, SWIZZLE_ATOM, bulk_copy
from argus.layout import FragmentLayout, Layout, LayoutError, Mode, Swizzle, SwizzledLayout
from argus.passes.allocate import fits
from argus.passes.fresh import Fresh, touches
from argus.passes.infer import infer
from argus.passes.layouts import holds
from argus.passes.report import Unfit
from argus.passes.roles import Pass, by_role

_ROW = INSTRUCTIONS["tma.store"]
_ATOM_ROWS = SWIZZLE_ATOM // ROW_BYTES
_MOST_PANELS = 8


def store_in_bulk(kernel: Kernel) -> Kernel:
    """The kernel whose roles store register tiles by the copy engine; it remarks which ones cannot be, and why."""
    if not any(isinstance(s, Roles) for s in kernel.body):
        return kernel
    most, done = _MOST_PANELS, kernel
    while most:
        done = by_role(_storing(most))(kernel)
        counts = [s.shape[0] for s in done.shared if s not in kernel.shared]
        if not counts or fits(done):
            return done
        most = max(counts) - 1
    return done


@dataclass(frozen=True, slots=True)
class _Plan:
    """A store of a tile, spread by `whole`, in panels of `width` columns, each spread by `layout`."""

    stmt: Copy
    source: Fragment
    whole: FragmentLayout
    width: int
    layout: FragmentLayout

    @property
    def count(self) -> int:
        """Panels of the whole tile."""
        return self.stmt.shape[1] // self.width


def _storing(most: int) -> Pass:
    """The pass on the program of one role, a kernel of its own warps: with `most` panels for each store."""

    def run(kernel: Kernel) -> Kernel:
        plans, remarks = _plans(kernel)
        kernel = replace(kernel, remarks=(*kernel.remarks, *remarks))
        return _with_panels(kernel, plans, most) if plans else kernel

    return run


def _with_panels(kernel: Kernel, plans: Sequence[_Plan], most: int) -> Kernel:
    fresh = Fresh(kernel)
    persistent = any(isinstance(s, Programs) for s in kernel.body)
    through = {
        id(plan.stmt): _through_panels(fresh, plan, min(most, plan.count), again=persistent and plan is plans[0])
        for plan in plans
    }
    body = rewrite_body(kernel.body, lambda s: through.get(id(s)))
    done = fresh.finish((*body, BulkWait(0, span=plans[-1].stmt.span)))
    pinned = {p.source.name: p.whole for p in plans}
    return replace(done, fragments=tuple(replace(f, layout=pinned.get(f.name, f.layout)) for f in done.fragments))


# ---------------------------------------------------------------------------- what the copy engine can store


def _plans(kernel: Kernel) -> tuple[list[_Plan], list[Diagnostic]]:
    """The stores that the copy engine can do, and remarks on the others."""
    stores = [s for s in _program(kernel.body) if isinstance(s, Copy) and _is_store(kernel, s)]
    layouts = infer(kernel).fragments if stores else {}
    plans: list[_Plan] = []
    remarks: list[Diagnostic] = []
    for stmt in stores:
        try:
            plans.append(_plan(kernel, stmt, layouts))
        except Unfit as unfit:
            remarks.append(unfit.remark(f"{stmt.dst.obj} is stored by the threads, not by the copy engine"))
    return plans, remarks


def _program(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The statements that run once a program."""
    match body:
        case (BarrierArrive(), *rest):
            return _program(tuple(rest))
        case (Programs(body=inner), *_) | (For(start=Const(value=0), stop=Const(value=1), body=inner),):
            return _program(inner)
        case _:
            return body


def _is_store(kernel: Kernel, stmt: Copy) -> bool:
    """Whether `stmt` stores a tile of rows and columns, in whatever way suits: vectors are not worth a panel."""
    source, target = kernel.object(stmt.src.obj), kernel.object(stmt.dst.obj)
    return stmt.instr is None and len(stmt.shape) > 1 and isinstance(source, Fragment) and isinstance(target, Tensor)


def _plan(kernel: Kernel, stmt: Copy, layouts: Mapping[str, FragmentLayout]) -> _Plan:
    """How `stmt` is done by the copy engine. Raises `Unfit`."""
    source, tensor = kernel.object(stmt.src.obj), kernel.object(stmt.dst.obj)
    assert isinstance(source, Fragment)
    width = ROW_BYTES // source.dtype.bytes
    if len(stmt.shape) != 2 or stmt.src.index != coords(2) or stmt.shape != source.shape:
        raise Unfit(f"{source.name} is not stored as a whole tile of rows and columns", stmt.span, "store it as one")
    rows, columns = stmt.shape
    if columns % width or rows % _ATOM_ROWS or rows > MAX_BOX:
        what = f"{rows} x {columns} elements are not panels of {ROW_BYTES} bytes a row, and 8 to {MAX_BOX} rows"
        raise Unfit(what, stmt.span, f"choose columns in multiples of {width}, and rows in multiples of 8")
    if sum(tensor.name in touches(s) for s in walk(kernel.body)) > 1:
        raise Unfit(f"{tensor.name} is used elsewhere in the kernel", stmt.span, "store it once, and do not read it")
    whole = layouts[source.name]
    layout = panel_layout(whole, width)
    plan = None if layout is None else _Plan(stmt, source, whole, width, layout)
    if plan is None or not _in_place(plan):
        raise Unfit(f"rows of {source.name} are shared by warps", stmt.span, "let warps share the tile by rows")
    fresh = Fresh(kernel)
    stores = [s for s in _through_panels(fresh, plan, 1, again=False) if isinstance(s, Copy) and s.instr == _ROW.name]
    trial = fresh.finish(kernel.body)
    for store in stores:
        for problem, _ in bulk_copy(store, _ROW, trial):
            raise Unfit(problem, stmt.span, "keep the rules of the copy engine")
    return plan


def panel_layout(tile: FragmentLayout, width: int) -> FragmentLayout | None:
    """The layout of the first `width` columns of a tile, held by the threads that hold them; None if not all do."""
    if any(m.dim == 1 and m.stride * m.extent > width for m in tile.threads):
        return None
    values = []
    for mode in tile.values:
        if mode.dim == 1 and mode.stride * mode.extent > width:
            if max(mode.stride, width) % min(mode.stride, width):
                return None
            mode = Mode(max(1, width // mode.stride), 1, mode.stride)
        values.append(mode)
    try:
        return FragmentLayout((tile.shape[0], width), tile.threads, tuple(v for v in values if v.extent > 1))
    except LayoutError:
        return None


def _in_place(plan: _Plan) -> bool:
    """Whether every thread holds its part of every panel."""
    return all(holds(plan.whole, plan.layout, _shifted(coords(2), n * plan.width)) for n in range(plan.count))


# ---------------------------------------------------------------------------- the panels


def _through_panels(fresh: Fresh, plan: _Plan, buffers: int, *, again: bool) -> tuple[Stmt, ...]:
    """The store by way of `buffers` panels in shared memory; `again`: programs before this one used them as well."""
    stmt, source, width = plan.stmt, plan.source, plan.width
    rows, span = stmt.shape[0], stmt.span
    panels = fresh.tile(f"{source.name}_panels", source.dtype, (buffers, rows, width), _place(plan, buffers))
    together = plan.count if plan.count <= buffers else 1
    result: list[Stmt] = []
    for first in range(0, plan.count, together):
        writes: list[Stmt] = []
        stores: list[Stmt] = []
        for number in range(first, first + together):
            here = Access(panels, (Const(number % buffers), *coords(2)))
            part = Access(source.name, _shifted(coords(2), number * width))
            to = Access(stmt.dst.obj, _start(stmt.dst.index, number * width))
            mask = _mask(stmt, to.index, number * width)
            writes.append(Copy(here, part, (rows, width), layout=plan.layout, span=span))
            stores.append(Copy(to, here, (rows, width), mask, instr=_ROW.name, span=span))
        if first >= buffers or (again and first == 0):
            result += [BulkWait(buffers - 1 if first else 0, read=True, span=span), Barrier(span)]
        result += [*writes, ProxyFence(span), Barrier(span), *stores, BulkCommit(span)]
    return tuple(result)


def _place(plan: _Plan, buffers: int) -> SwizzledLayout:
    """Panels one after the other, 16 bytes XORed with the row (CUDA driver API, CU_TENSOR_MAP_SWIZZLE_128B)."""
    rows, width = plan.stmt.shape[0], plan.width
    chunk = (16 // plan.source.dtype.bytes).bit_length() - 1
    return SwizzledLayout(Swizzle(3, chunk, 3), 0, Layout((buffers, rows, width), (rows * width, width, 1)))


def _shifted(index: tuple[Expr, ...], columns: int) -> tuple[Expr, ...]:
    """`index` with `columns` + c1 for c1."""
    there = (Coord(0), op("add", Const(columns), Coord(1)) if columns else Coord(1))
    return tuple(substitute_coords(e, there) for e in index)


def _start(index: tuple[Expr, ...], columns: int) -> tuple[Expr, ...]:
    """`index` with `columns` + c1 for c1, written as a start plus c1, as boxes are."""

    def one(expr: Expr) -> Expr:
        match expr:
            case Op(op="add", args=(start, Coord(axis=1) as c1)) | Op(op="add", args=(Coord(axis=1) as c1, start)):
                return op("add", op("add", start, Const(columns)), c1)
            case _:
                return _shifted((expr,), columns)[0]

    return index if columns == 0 else tuple(one(e) for e in index)


def _mask(stmt: Copy, start: tuple[Expr, ...], columns: int) -> Expr | None:
    """The mask of `stmt` over a panel, with the panel's indices as `start` writes them."""
    moved = dict(zip(stmt.dst.index, start, strict=True))

    def one(expr: Expr) -> Expr:
        match expr:
            case Op(op="and", args=(x, y), dtype=dtype) if dtype is boolean:
                return op("and", one(x), one(y))
            case Op(op="lt" | "ge", args=(x, y)) if x in moved:
                return op(expr.op, moved[x], y)
            case _:
                return _shifted((expr,), columns)[0]

    return None if stmt.mask is None else one(stmt.mask)
