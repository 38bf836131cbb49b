"""Replace result stores of specialised kernels by bulk stores or atomic updates, through shared memory, a panel of
columns at a time.

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

A panel has rows of 128 bytes in the swizzle of the copy engine. There are as many panels as fit into shared memory, up
to the whole tile. The copy engine reads some panels while the threads write others or, in a persistent kernel, multiply
for the next program. If the whole tile fits, one barrier is enough for all of its panels. Remaining columns have
narrower panels with rows of 64 or 32 bytes, which are written and stored with the last full panel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from argus.diagnostic import Diagnostic
from argus.ir.expr import Const, Coord, Elem, Expr, Op, Thread, coords, op, substitute_coords
from argus.ir.expr import walk as walk_expr
from argus.ir.instruction.limits import MAX_BOX, ROW_BYTES, SWIZZLE_ATOM
from argus.ir.nodes import (
    Access,
    Barrier,
    BulkCommit,
    BulkWait,
    For,
    Fragment,
    If,
    Kernel,
    Programs,
    ProxyFence,
    Roles,
    Stmt,
    ThreadCopy,
)
from argus.ir.types import boolean
from argus.ir.visit import numbered, rewrite_body, walk
from argus.layout import FragmentLayout, Layout, LayoutError, Mode, Swizzle, SwizzledLayout
from argus.passes.allocate import fits
from argus.passes.bulk_results import STORE, Result, engine_problems, in_tiles, result_of
from argus.passes.fresh import Fresh, touches
from argus.passes.infer import infer
from argus.passes.layouts import holds
from argus.passes.moves import target_of
from argus.passes.report import Unfit
from argus.passes.roles import Pass, by_role

_ATOM_ROWS = SWIZZLE_ATOM // ROW_BYTES
_MOST_PANELS = 8
_NARROWEST = 16  # bytes: the narrowest rows that the copy engine stores


def store_in_bulk(kernel: Kernel) -> Kernel:
    """Return the kernel whose roles store register tiles by the copy engine. Remarks name the stores that stay
    ordinary, and why."""
    if not any(isinstance(s, Roles) for s in kernel.body) or not target_of(kernel).has(STORE):
        return kernel
    inner = outer = _MOST_PANELS
    while True:
        done = by_role(_storing(inner, outer))(kernel)
        counts = [s.shape[0] for s in done.shared if s not in kernel.shared]
        most = max(counts, default=1) - 1
        if not most or fits(done):
            return done
        inner, outer = (inner, min(outer - 1, most)) if outer > 1 else (min(inner - 1, most), 1)


@dataclass(frozen=True, slots=True)
class _Panel:
    """The `width` columns of a tile from `start` on, spread by `layout`."""

    start: int
    width: int
    layout: FragmentLayout


@dataclass(frozen=True, slots=True)
class _PanelPlan:
    """The panels through which a tile, spread by `whole`, is stored: panels with whole rows of a swizzle, then narrower
    ones."""

    stmt: Result
    source: Fragment
    whole: FragmentLayout
    panels: tuple[_Panel, ...]
    rest: tuple[_Panel, ...]
    repeated: bool = False


def _storing(inner: int, outer: int) -> Pass:
    """Return the pass for one role, whose program is treated as a kernel with the role's warps. A store in a loop gets
    at most `inner` panels, because it waits for them in every iteration; any other store gets at most `outer`."""

    def run(kernel: Kernel) -> Kernel:
        kernel = numbered(in_tiles(kernel))
        plans, remarks = _plans(kernel)
        # Roles that store parts of one tile have the same remark, of which one is enough.
        new = (r for r in remarks if r not in kernel.remarks)
        kernel = replace(kernel, remarks=(*kernel.remarks, *new))
        return _with_panels(kernel, plans, inner, outer) if plans else kernel

    return run


def _with_panels(kernel: Kernel, plans: Sequence[_PanelPlan], inner: int, outer: int) -> Kernel:
    fresh = Fresh(kernel)
    persistent = any(isinstance(s, Programs) for s in kernel.body)
    through = {}
    final = [p for p in plans if not p.repeated]
    for p in plans:
        again = p.repeated or (persistent and p is final[0])
        count = min(inner if p.repeated else outer, len(p.panels))
        through[p.stmt.stmt.id] = _through_panels(fresh, p, count, again=again)
    body = rewrite_body(kernel.body, lambda s: through.get(s.id))
    done = fresh.finish((*body, BulkWait(0, span=plans[-1].stmt.span)))
    pinned = {p.source.name: p.whole for p in plans}
    return replace(done, fragments=tuple(replace(f, layout=pinned.get(f.name, f.layout)) for f in done.fragments))


# ---------------------------------------------------------------------------- what the copy engine can store


def _plans(kernel: Kernel) -> tuple[list[_PanelPlan], list[Diagnostic]]:
    """Return the stores that the copy engine can do, and remarks on the other stores."""
    stores = [(r, again) for s, again in _placed(kernel.body) if (r := result_of(kernel, s)) is not None]
    layouts = infer(kernel).fragments if stores else {}
    plans: list[_PanelPlan] = []
    remarks: list[Diagnostic] = []
    for stmt, again in stores:
        try:
            plans.append(replace(_plan(kernel, stmt, layouts), repeated=again))
        except Unfit as unfit:
            remarks.append(unfit.remark(stmt.by_threads))
    return plans, remarks


def _placed(body: tuple[Stmt, ...], again: bool = False) -> Iterator[tuple[Stmt, bool]]:
    """Yield the statements that all threads of the role reach together, each with whether it runs more than once in a
    program."""
    for stmt in body:
        match stmt:
            case Programs(body=inner):
                yield from _placed(inner, again)
            case For(body=inner):
                once = (stmt.start, stmt.stop) == (Const(0), Const(1))
                yield from _placed(inner, again or not once)
            case If(cond=cond) if not any(isinstance(e, Thread | Elem) for e in walk_expr(cond)):
                yield from _placed((*stmt.then, *stmt.orelse), again)
            case _:
                yield stmt, again


def _plan(kernel: Kernel, stmt: Result, layouts: Mapping[str, FragmentLayout]) -> _PanelPlan:
    """Plan how the copy engine carries out `stmt`. Raises `Unfit` if it cannot."""
    source, tensor = kernel.object(stmt.source.obj), kernel.object(stmt.dst.obj)
    assert isinstance(source, Fragment)
    narrowest = _NARROWEST // source.dtype.bytes
    if len(stmt.shape) != 2 or stmt.source.index != coords(2) or stmt.shape != source.shape:
        raise Unfit(f"{source.name} is not stored as a whole tile of rows and columns", stmt.span, "store it as one")
    rows, columns = stmt.shape
    if columns % narrowest or rows % _ATOM_ROWS or rows > MAX_BOX:
        what = f"{rows} x {columns} elements are not panels of {_NARROWEST} bytes a row, and 8 to {MAX_BOX} rows"
        raise Unfit(what, stmt.span, f"choose columns in multiples of {narrowest}, and rows in multiples of 8")
    if sum(tensor.name in touches(s) for s in walk(kernel.body)) > 1:
        raise Unfit(f"{tensor.name} is used elsewhere in the kernel", stmt.span, "store it once, and do not read it")
    whole = layouts[source.name]
    panels = [_panel(whole, start, width) for start, width in _cuts(columns, source.dtype.bytes)]
    found = [p for p in panels if p is not None]
    if len(found) < len(panels):
        raise Unfit(f"rows of {source.name} are shared by warps", stmt.span, "let warps share the tile by rows")
    wide = ROW_BYTES // source.dtype.bytes
    full, rest = (tuple(p for p in found if (p.width == wide) is whether) for whether in (True, False))
    plan = _PanelPlan(stmt, source, whole, full, rest)
    fresh = Fresh(kernel)
    steps = _through_panels(fresh, plan, 1, again=False)
    trial = fresh.finish(kernel.body)
    for step in steps:
        for problem, _ in engine_problems(step, trial):
            raise Unfit(problem, stmt.span, "keep the rules of the copy engine")
    return plan


def _cuts(columns: int, unit: int) -> list[tuple[int, int]]:
    """Cut `columns` elements of `unit` bytes into panels (start, width): whole panels first, then narrower ones."""
    found, start, width = [], 0, ROW_BYTES // unit
    while start < columns:
        if start + width > columns:
            width //= 2
        else:
            found.append((start, width))
            start += width
    return found


def _panel(tile: FragmentLayout, start: int, width: int) -> _Panel | None:
    """Return columns of a tile if the threads that hold the first columns hold them in the same way."""
    layout = panel_layout(tile, width)
    fits = layout is not None and holds(tile, layout, _shifted(coords(2), start))
    return _Panel(start, width, layout) if layout is not None and fits else None


def panel_layout(tile: FragmentLayout, width: int) -> FragmentLayout | None:
    """Return the layout of the first `width` columns of a tile over the threads that hold them, or None if some thread
    holds none."""
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


# ---------------------------------------------------------------------------- the panels


def _through_panels(fresh: Fresh, plan: _PanelPlan, buffers: int, *, again: bool) -> tuple[Stmt, ...]:
    """Return the store through `buffers` panels in shared memory. `again` tells that earlier programs used the panels,
    too."""
    source, span = plan.source, plan.stmt.span
    ring = _tile(fresh, plan, f"{source.name}_panels", buffers, plan.panels[0].width) if plan.panels else ""
    places = [(panel, Access(ring, (Const(n % buffers), *coords(2)))) for n, panel in enumerate(plan.panels)]
    rest = [(panel, _tile(fresh, plan, f"{source.name}_rest", 1, panel.width)) for panel in plan.rest]
    alone = [(panel, Access(name, (Const(0), *coords(2)))) for panel, name in rest]
    together = max(len(places), 1) if len(places) <= buffers else 1
    result: list[Stmt] = []
    for first in range(0, max(len(places), 1), together):
        last = first + together >= len(places)
        group = [*places[first : first + together], *(alone if last else ())]
        if first >= max(buffers, 1) or (again and first == 0):
            result += [BulkWait(buffers - 1 if first else 0, read=True, span=span), Barrier(span=span)]
        writes, stores = zip(*(_moved(plan, panel, here) for panel, here in group), strict=True)
        result += [*writes, ProxyFence(span=span), Barrier(span=span), *stores, BulkCommit(span=span)]
    if plan.stmt.rest is not None:
        result.append(If(plan.stmt.rest, (plan.stmt.stmt,), span=span))
    return tuple(result)


def _moved(plan: _PanelPlan, panel: _Panel, here: Access) -> tuple[ThreadCopy, Stmt]:
    """Return the statements that copy a panel of the tile to shared memory, and from there to the tensor."""
    stmt, shape = plan.stmt, (plan.stmt.shape[0], panel.width)
    part = Access(plan.source.name, _shifted(coords(2), panel.start))
    to = Access(stmt.dst.obj, _start(stmt.dst.index, panel.start))
    mask = _mask(stmt, to.index, panel.start)
    return (
        ThreadCopy(here, part, shape, layout=panel.layout, span=stmt.span),
        stmt.sent(to, here, plan.source.dtype, shape, mask),
    )


def _tile(fresh: Fresh, plan: _PanelPlan, name: str, count: int, width: int) -> str:
    """Declare panels one after another, in which 16-byte units are XORed with the row (CU_TENSOR_MAP_SWIZZLE_128B, 64B,
    32B, NONE)."""
    rows, unit = plan.stmt.shape[0], plan.source.dtype.bytes
    bits, chunk = (width * unit // 16).bit_length() - 1, (16 // unit).bit_length() - 1
    layout = SwizzledLayout(Swizzle(bits, chunk, 3), 0, Layout((count, rows, width), (rows * width, width, 1)))
    return fresh.tile(name, plan.source.dtype, (count, rows, width), layout)


def _shifted(index: tuple[Expr, ...], columns: int) -> tuple[Expr, ...]:
    """Return `index` with `columns` + c1 in place of c1."""
    there = (Coord(0), op("add", Const(columns), Coord(1)) if columns else Coord(1))
    return tuple(substitute_coords(e, there) for e in index)


def _start(index: tuple[Expr, ...], columns: int) -> tuple[Expr, ...]:
    """Return `index` with `columns` + c1 in place of c1, written as a start plus c1, the form of boxes."""

    def one(expr: Expr) -> Expr:
        match expr:
            case Op(op="add", args=(start, Coord(axis=1) as c1)) | Op(op="add", args=(Coord(axis=1) as c1, start)):
                return op("add", op("add", start, Const(columns)), c1)
            case _:
                return _shifted((expr,), columns)[0]

    return index if columns == 0 else tuple(one(e) for e in index)


def _mask(stmt: Result, start: tuple[Expr, ...], columns: int) -> Expr | None:
    """Return the mask of `stmt` over a panel, in terms of the panel's indices from `start`."""
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
