"""Choose a register layout for each fragment and each statement.

Layouts spread from anchors: the layouts that the author wrote, and the accumulators of matrix products. A statement
takes the layout of an operand that has all of its elements. A tile takes the part of the statement's layout that its
indices select (`project`): a row maximum, for example, is held by all threads that work on its row. Where no anchor
reaches, the largest domain is decided first, by its global access: consecutive threads access consecutive vectors, and
rows that a reduction sums are kept in as few warps as possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import gcd, prod

from argus.ir.affine import Facts, facts
from argus.ir.expr import Const, Coord, Elem, Expr, Op, elements, op, rewrite
from argus.ir.instruction import INSTRUCTIONS, MMA, WGMMA
from argus.ir.instruction.row import WgmmaRow
from argus.ir.instruction.tiled import TiledMma, tiled_mma, wgmma_accumulator, wgmma_operand
from argus.ir.nodes import Access, Accumulate, Copy, Fragment, Kernel, Map, Mma, Scan, Shared, Tensor, ThreadCopy
from argus.ir.visit import numbered, walk
from argus.layout import FragmentLayout
from argus.layout.swizzle import SwizzledLayout
from argus.passes.layouts import (
    brought,
    carried,
    complete,
    default,
    everywhere,
    holds,
    in_order,
    joined,
    lift,
    project,
    uneven,
)
from argus.passes.moves import by_engine, contiguous_axis, moves, target_of, vector_width
from argus.passes.rows import Reduced, in_rows, reduced_dimensions, row_axis

Work = ThreadCopy | Map | Accumulate | Scan
"""Statements with a layout of their own."""

_VECTOR = 16  # bytes of the widest access of all targets


@dataclass
class Layouts:
    """The layouts known so far: of fragments by name, and of the numbered statements of `kernel` by `id`."""

    kernel: Kernel
    known: Facts
    reduced: Reduced
    fragments: dict[str, FragmentLayout] = field(default_factory=dict)
    domains: dict[int, FragmentLayout] = field(default_factory=dict)
    accesses: dict[int, list[tuple[Access, Fragment]]] = field(default_factory=dict)
    """# The accesses of each statement, computed once, because they are needed very often."""
    finished: set[int] = field(default_factory=set)
    """Statements from which no further layout follows."""

    def fragment(self, name: str) -> Fragment | None:
        """Return the fragment called `name`, or None if `name` is another object."""
        obj = self.kernel.object(name)
        return obj if isinstance(obj, Fragment) else None


def infer(kernel: Kernel) -> Layouts:
    """Return the layouts of all fragments by name, and those of all statements with a domain by their `id` in the
    numbered kernel."""
    kernel = numbered(kernel)
    state = Layouts(kernel, facts(kernel), reduced_dimensions(kernel))
    work = [s for s in walk(kernel.body) if isinstance(s, Work) and not by_engine(s)]
    products = [s for s in walk(kernel.body) if isinstance(s, Mma)]
    for fragment in kernel.fragments:
        if fragment.layout is not None:
            state.fragments[fragment.name] = fragment.layout
        elif prod(fragment.shape) == 1:
            state.fragments[fragment.name] = _single(fragment.shape, kernel.num_threads)
    for stmt in work:
        if stmt.layout is not None:
            state.domains[stmt.id] = stmt.layout
    for product in products:
        state.fragments.setdefault(product.d.obj, accumulator(product))
    _propagate(state, work)
    for product in products:
        for place, (access, domain, index) in enumerate(operands(product)):
            operand = state.fragment(access.obj)
            if operand is None or (operand.name in state.fragments and not _disordered(state, product, place)):
                continue
            layout = project(domain, index, operand.shape)
            if layout is not None:
                state.fragments[operand.name] = domain if layout == domain.simplify() else layout
                _propagate(state, work)
    _default_rest(state, work)
    for fragment in kernel.fragments:
        state.fragments.setdefault(fragment.name, default(fragment.shape, kernel.num_threads))
    return state


def _disordered(state: Layouts, product: Mma, place: int) -> bool:
    """Return True if every thread holds its elements of operand `place`, but in registers in another order than the
    instruction takes them. The order is open unless the author chose it."""
    access, domain, index = operands(product)[place]
    operand, row = state.fragment(access.obj), MMA.get(product.instr or "") or WGMMA[product.instr or ""]
    if operand is None or operand.layout is not None:
        return False
    known, values = state.fragments[operand.name], (row.a if place == 0 or isinstance(row, WgmmaRow) else row.b)
    return holds(known, domain, index) and not in_order(known, domain, index, values.num_values)


def tiled(product: Mma) -> TiledMma:
    """Return the operand layouts of a product whose instruction and warps are chosen."""
    assert product.instr is not None and product.warps is not None
    return tiled_mma(MMA[product.instr], product.shape, product.warps)


def accumulator(product: Mma) -> FragmentLayout:
    """Return the layout that the product's accumulator must have."""
    row = WGMMA.get(product.instr or "")
    if row is None:
        return tiled(product).c
    assert product.warps is not None
    return wgmma_accumulator(row, product.shape[:2], product.warps)


def operands(product: Mma) -> tuple[tuple[Access, FragmentLayout, tuple[Expr, ...]], ...]:
    """Return, for operands a and b, the access, the needed layout over (m, k) or (n, k), and the index over that
    domain.

    Asynchronous products take `a` from registers, or from a shared tile, and `b` from a shared tile.
    """
    row = WGMMA.get(product.instr or "")
    if row is not None:
        assert product.warps is not None
        m, _, k = product.shape
        return ((product.a, wgmma_operand(row, (m, k), product.warps), _over(product.a.index, {0: 0, 2: 1})),)
    layouts = tiled(product)
    return (
        (product.a, layouts.a, _over(product.a.index, {0: 0, 2: 1})),
        (product.b, layouts.b, _over(product.b.index, {1: 0, 2: 1})),
    )


def _over(index: Sequence[Expr], axes: dict[int, int]) -> tuple[Expr, ...]:
    def change(e: Expr) -> Expr | None:
        return Coord(axes[e.axis]) if isinstance(e, Coord) and e.axis in axes else None

    return tuple(rewrite(e, change) for e in index)


def register_reads(stmt: Work) -> tuple[Access, ...]:
    """Return the register tiles that a statement reads, with their indices."""
    exprs: list[Expr] = []
    if isinstance(stmt, Scan):
        return tuple(tile.operand for tile in stmt.tiles)
    match stmt:
        case Copy(src=src, dst=dst, mask=mask):
            exprs = [*src.index, *dst.index]
        case Map(value=value, dst=dst):
            mask = None
            exprs = [value, *dst.index]
        case Accumulate(value=value, dst=dst, mask=mask):
            exprs = [value, *dst.index]
    if mask is not None:
        exprs.append(mask)
    reads = [Access(e.obj, e.index) for expr in exprs for e in elements(expr)]
    if isinstance(stmt, Copy):
        reads.insert(0, stmt.src)
    return tuple(reads)


def written(stmt: Work) -> tuple[Access, ...]:
    """Return the accesses that a statement writes."""
    return tuple(tile.result for tile in stmt.tiles) if isinstance(stmt, Scan) else (stmt.dst,)


def _accesses(state: Layouts, stmt: Work) -> list[tuple[Access, Fragment]]:
    """Return the fragment accesses, the written one first. For a reduction, the written one is last, because it is
    smaller."""
    found = state.accesses.get(stmt.id)
    if found is None:
        reads, writes = register_reads(stmt), written(stmt)
        order = (*reads, *writes) if isinstance(stmt, Accumulate | Scan) else (*writes, *reads)
        found = state.accesses[stmt.id] = [(a, f) for a in order if (f := state.fragment(a.obj)) is not None]
    return found


def _propagate(state: Layouts, work: list[Work]) -> None:
    """Propagate known layouts until nothing changes."""
    changed = True
    while changed:
        changed = False
        for stmt in work:
            if stmt.id not in state.finished:
                changed |= _visit(state, stmt)


def _visit(state: Layouts, stmt: Work) -> bool:
    accesses = _accesses(state, stmt)
    changed = False
    if stmt.id not in state.domains:
        for access, fragment in accesses:
            layout = state.fragments.get(fragment.name)
            found = None if layout is None else lift(layout, access.index, stmt.shape)
            if found is None and layout is not None and _is_move(stmt):
                found = carried(layout, access.index, stmt.shape)
            if found is None and layout is not None and _is_join(stmt):
                found = joined(layout, access.index, stmt.shape)
            if found is not None and isinstance(stmt, Scan) and uneven(found, stmt.axis):
                found = default(stmt.shape, state.kernel.num_threads)
            if found is not None:
                state.domains[stmt.id] = found
                changed = True
                break
    domain = state.domains.get(stmt.id)
    if domain is None:
        return changed
    for access, fragment in accesses:
        if fragment.name not in state.fragments:
            layout = project(domain, access.index, fragment.shape)
            if layout is None and isinstance(stmt, Map) and isinstance(stmt.value, Elem):
                layout = brought(domain, access.index, fragment.shape)
            if layout is not None:
                state.fragments[fragment.name] = layout
                changed = True
    if all(fragment.name in state.fragments for _, fragment in accesses):
        state.finished.add(stmt.id)
    return changed


def _is_move(stmt: Work) -> bool:
    """Return True if each element of a statement's result is the element of another tile, and not one number for all
    elements."""
    return isinstance(stmt, Map) and isinstance(stmt.value, Elem) and bool(stmt.value.index)


def _is_join(stmt: Work) -> bool:
    """Return True if a statement puts two tiles side by side along a new last dimension."""
    if not isinstance(stmt, Map) or not isinstance(stmt.value, Op) or stmt.value.op != "where":
        return False
    condition, *both = stmt.value.args
    return condition == op("eq", Coord(len(stmt.shape) - 1), Const(0)) and all(isinstance(x, Elem) for x in both)


def _default_rest(state: Layouts, work: list[Work]) -> None:
    """Decide the layouts that no anchor determines: the largest domain first, global accesses before others."""

    def rank(entry: tuple[int, Work]) -> tuple[int, int, int]:
        position, stmt = entry
        moves_global = isinstance(stmt, Copy) and any(
            isinstance(state.kernel.object(a.obj), Tensor) for a in (stmt.src, stmt.dst)
        )
        return (-prod(stmt.shape), 0 if moves_global else 1, position)

    for _, stmt in sorted(enumerate(work), key=rank):
        if stmt.id not in state.domains:
            state.domains[stmt.id] = _default_domain(state, stmt)
            _propagate(state, work)


def _default_domain(state: Layouts, stmt: Work) -> FragmentLayout:
    threads = state.kernel.num_threads
    if prod(stmt.shape) == 1:
        return _single(stmt.shape, threads)
    if isinstance(stmt, Copy):
        return memory_domain(state, stmt)
    vector = _VECTOR // state.kernel.object(written(stmt)[0].obj).dtype.bytes
    partial = [(a, f) for a, f in _accesses(state, stmt) if f.name in state.fragments and prod(f.shape) > 1]
    for access, fragment in sorted(partial, key=lambda e: -prod(e[1].shape)):
        found = complete(state.fragments[fragment.name], access.index, stmt.shape, vector)
        if found is not None:
            return found
    return default(stmt.shape, threads, vector=vector)


def memory_domain(state: Layouts, copy: Copy) -> FragmentLayout:
    """Return the layout that suits the memory side of `copy`: the widest vectors, and adjacent vectors in adjacent
    threads."""
    kernel = state.kernel
    names = moves(target_of(kernel))
    memory = [(a, kernel.object(a.obj)) for a in (copy.src, copy.dst)]
    access, obj = next(((a, o) for a, o in memory if isinstance(o, Tensor)), memory[0])
    if isinstance(obj, Fragment):
        access, obj = memory[1]
    axis = contiguous_axis(obj, access.index) if isinstance(obj, Tensor) else _tile_axis(obj, access)
    size = obj.dtype.bytes
    order = None
    if axis is not None:
        order = (axis, *(d for d in reversed(range(len(copy.shape))) if d != axis))
    row = INSTRUCTIONS[names.load_global if isinstance(obj, Tensor) else names.load_shared]
    layout = default(copy.shape, kernel.num_threads, order, _VECTOR // size)
    width = max(1, vector_width(kernel, copy, layout, row, state.known))
    layout = default(copy.shape, kernel.num_threads, order, width)
    if order is None or order[0] != row_axis(kernel, copy, state.reduced):
        return layout
    width = layout.vector_width(order[0])
    return in_rows(copy.shape, kernel.warp_size, kernel.num_warps, order, gcd(width, _VECTOR // size)) or layout


def _tile_axis(obj: Shared | Fragment, access: Access) -> int | None:
    """Return the axis along which a shared tile is contiguous."""
    if isinstance(obj, Fragment) or obj.layout is None:
        return None
    inner = obj.layout.inner if isinstance(obj.layout, SwizzledLayout) else obj.layout
    strides = inner.stride if isinstance(inner.stride, tuple) else (inner.stride,)
    for index, stride in zip(access.index, strides, strict=True):
        if stride == 1 and isinstance(index, Coord):
            return index.axis
    return None


def _single(shape: tuple[int, ...], threads: int) -> FragmentLayout:
    return FragmentLayout(shape, everywhere(threads).threads, ())
