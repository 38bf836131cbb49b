"""Split reductions over threads: first each thread's own registers, then the lanes of a warp, then the warps.

    accumulate m[c0] max= x[c0, c1]         ->  map p[...] = -inf
       (c1 spread over 8 lanes, 2 warps)        accumulate p[c0, warp(c1), lane(c1)] max= x[c0, c1]   thread
                                                map q[...] = -inf
                                                accumulate q[c0, c1] max= p[c0, c1, c2]               warp
                                                s[...] = q[...]; barrier; r[...] = s[...]
                                                accumulate m[c0] max= r[c0, c1]                       thread

`lane(c1)` and `warp(c1)` number the lanes and warps that share axis c1, by division and remainder of the coordinate.
Each partial result therefore has one holder (and its replicas), and every term counts once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from argus.diagnostic import Diagnostic
from argus.ir.expr import Const, Coord, Elem, Expr, Op, coords, op, rewrite
from argus.ir.nodes import Access, Accumulate, Barrier, Fragment, Kernel, Map, Stmt, Tensor, ThreadCopy
from argus.ir.promise import WITHOUT_NAN, promised
from argus.layout import FragmentLayout, Mode
from argus.passes.context import Enclosing, rewrite_in_context
from argus.passes.fresh import Fresh, identity
from argus.passes.layouts import Digit, axes_of, split_threads, uneven
from argus.passes.moves import by_engine, moves, target_of
from argus.passes.report import LoweringError, problem
from argus.passes.scratch import scratch_layout


def split_reductions(kernel: Kernel) -> Kernel:
    """Give a scope to every `Accumulate` without one, and split those that cross threads."""
    fresh = Fresh(kernel)
    atomic = moves(target_of(kernel)).reduce_global

    def change(stmt: Stmt, context: Enclosing) -> tuple[Stmt, ...] | None:
        if not isinstance(stmt, Accumulate) or stmt.scope is not None or by_engine(stmt):
            return None
        if isinstance(kernel.object(stmt.dst.obj), Tensor):
            return (replace(stmt, scope="thread", instr=stmt.instr or atomic),)
        plan = _plan(kernel, stmt)
        if not plan.lanes and not plan.warps:
            return (replace(stmt, scope="thread"),)
        return _expand(kernel, fresh, stmt, plan, context)

    return fresh.finish(rewrite_in_context(kernel.body, change))


@dataclass(frozen=True, slots=True)
class ReductionPlan:
    """The split of a reduced domain over threads: the axes kept, and the digits of lanes and of warps, fastest first.
    """

    layout: FragmentLayout
    kept: tuple[int, ...]
    lanes: tuple[Digit, ...]
    warps: tuple[Digit, ...]


def _plan(kernel: Kernel, stmt: Accumulate) -> ReductionPlan:
    assert stmt.layout is not None
    axes = axes_of(stmt.dst.index)
    kept = tuple(sorted(a for a in axes or () if a is not None))
    reduced = [axis for axis in range(len(stmt.shape)) if axis not in kept]
    parts = split_threads(stmt.layout, kernel.warp_size)
    if parts is None or any(uneven(stmt.layout, axis) for axis in reduced):
        raise LoweringError(_uneven(stmt))
    lanes, warps = (tuple(d for d in each if d.axis in reduced) for each in parts)
    return ReductionPlan(stmt.layout, kept, lanes, warps)


def _uneven(stmt: Accumulate) -> Diagnostic:
    return problem(
        "reduction-layout",
        f"the layout {stmt.layout} does not split the reduced axis evenly over threads and registers",
        stmt.span,
        "leave the layout of the operand open, or choose one whose modes nest",
    )


def _expand(
    kernel: Kernel, fresh: Fresh, stmt: Accumulate, plan: ReductionPlan, context: Enclosing
) -> tuple[Stmt, ...]:
    """Return the steps for a reduction that crosses lanes, warps, or both."""
    target = kernel.object(stmt.dst.obj)
    assert isinstance(target, Fragment)
    span, dtype = stmt.span, target.dtype
    rank = len(plan.kept)
    kept = {axis: Coord(place) for place, axis in enumerate(plan.kept)}
    final = tuple(rewrite(e, lambda x: kept.get(x.axis) if isinstance(x, Coord) else None) for e in stmt.dst.index)
    zero = identity(stmt.op, dtype)

    def start(name: str, layout: FragmentLayout) -> Map:
        return Map(Access(name, coords(len(layout.shape))), zero, layout.shape, layout, "thread", span=span)

    def value(name: str, layout: FragmentLayout) -> Expr:
        part = Elem(name, coords(len(layout.shape)), dtype)
        return part if promised(stmt.value) is None else Op(WITHOUT_NAN, (part,), dtype)

    layout = _partial(plan, bool(plan.warps), bool(plan.lanes))
    partial = fresh.fragment(f"{target.name}_partial", dtype, layout.shape, layout)
    index = (*(Coord(axis) for axis in plan.kept), *_numbers(plan))
    result: list[Stmt] = [start(partial, layout), replace(stmt, dst=Access(partial, index), scope="thread")]
    if not plan.warps:
        total = Access(target.name, final)
        last = Accumulate(total, value(partial, layout), stmt.op, layout.shape, None, layout, "warp", span=span)
        return (*result, last)
    if plan.lanes:
        across = _partial(plan, True, False)
        warp = fresh.fragment(f"{target.name}_warp", dtype, across.shape, across)
        step = Accumulate(
            Access(warp, coords(rank + 1)), value(partial, layout), stmt.op, layout.shape, None, layout, "warp"
        )
        result += [start(warp, across), replace(step, span=span)]
        partial, layout = warp, across
    if context.divergent:
        what = "this reduction crosses warps, which needs all threads of the block"
        raise LoweringError(problem("barrier-in-divergent-branch", what, span, "reduce before the branch"))
    result += _across_warps(fresh, stmt, partial, layout, Access(target.name, final), context)
    return tuple(result)


def _across_warps(
    fresh: Fresh, stmt: Accumulate, partial: str, layout: FragmentLayout, target: Access, context: Enclosing
) -> list[Stmt]:
    """Combine the warps' results through shared memory, for all threads that need them."""
    dtype = stmt.value.dtype
    shape, index, span = layout.shape, coords(len(layout.shape)), stmt.span
    axis = len(shape) - 1
    together = FragmentLayout(
        shape,
        tuple(Mode(m.extent, None) if m.dim == axis else m for m in layout.threads),
        (*layout.values, Mode(shape[axis], axis)),
    ).simplify()
    place = scratch_layout(shape, dtype.bytes, layout, together, target_of(fresh.kernel))
    scratch = fresh.tile(f"{target.obj}_scratch", dtype, shape, place)
    all_warps = fresh.fragment(f"{target.obj}_warps", dtype, shape, together)
    again: list[Stmt] = [] if context.meets else [Barrier(span=span)]
    return [
        *again,
        ThreadCopy(Access(scratch, index), Access(partial, index), shape, None, None, layout, span=span),
        Barrier(span=span),
        ThreadCopy(Access(all_warps, index), Access(scratch, index), shape, None, None, together, span=span),
        Accumulate(target, Elem(all_warps, index, dtype), stmt.op, shape, None, together, "thread", span=span),
    ]


def _partial(plan: ReductionPlan, warps: bool, lanes: bool) -> FragmentLayout:
    """Return the layout of partial results: the kept axes, then, as requested, warp numbers and lane numbers."""
    place = {axis: dim for dim, axis in enumerate(plan.kept)}
    shape = [plan.layout.shape[axis] for axis in plan.kept]
    digits: dict[Digit, Mode] = {}
    for wanted, group in ((warps, plan.warps), (lanes, plan.lanes)):
        step = 1
        for digit in group:
            digits[digit] = Mode(digit.extent, len(shape) if wanted else None, step)
            step *= digit.extent
        if wanted:
            shape.append(step)
    threads: list[Mode] = []
    for mode in plan.layout.threads:
        if mode.dim is None or mode.dim in place:
            threads.append(Mode(mode.extent, None if mode.dim is None else place[mode.dim], mode.stride))
            continue
        mine = [d for d in (*plan.lanes, *plan.warps) if d.axis == mode.dim and _inside(d, mode)]
        threads += [digits[d] for d in mine]
    values = tuple(Mode(m.extent, place[m.dim], m.stride) for m in plan.layout.values if m.dim in place)
    return FragmentLayout(tuple(shape), tuple(threads), values).simplify()


def _inside(digit: Digit, mode: Mode) -> bool:
    """Return True if a digit is (a part of) a thread mode of the same axis."""
    return mode.stride <= digit.stride < mode.stride * mode.extent


def _numbers(plan: ReductionPlan) -> tuple[Expr, ...]:
    """Return the warp number and the lane number of an element as expressions of its coordinates."""
    result: list[Expr] = []
    for group in (plan.warps, plan.lanes):
        if not group:
            continue
        total: Expr = Const(0)
        step = 1
        for digit in group:
            place = op("floordiv", Coord(digit.axis), Const(digit.stride))
            if digit.stride * digit.extent < plan.layout.shape[digit.axis]:
                place = op("mod", place, Const(digit.extent))
            total = op("add", total, op("mul", place, Const(step)))
            step *= digit.extent
        result.append(total)
    return tuple(result)
