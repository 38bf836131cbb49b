"""The rules of what orders roles: named barriers, the initialisation of mbarriers, and running counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from argus.ir.expr import Const, Expr, LoopVar, rewrite
from argus.ir.instruction import BARRIERS
from argus.ir.nodes import (
    Access,
    AssertTags,
    BarrierArrive,
    BarrierSync,
    BulkCopy,
    For,
    Kernel,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierFence,
    MbarrierInit,
    MbarrierWait,
    Roles,
    Spec,
    Stmt,
    Tag,
)
from argus.ir.rings import place_in_ring, turn_in_ring
from argus.ir.target import TARGETS
from argus.ir.visit import map_accesses, map_exprs, walk
from argus.source import Span

Problem = tuple[str, Span]


def named_barriers(kernel: Kernel) -> Iterator[Problem]:
    """Named barriers order roles: their numbers are not those that roles have for themselves."""
    roles = next((s for s in kernel.body if isinstance(s, Roles)), None)
    outside = walk(tuple(s for s in kernel.body if s is not roles))
    stray = next((s for s in outside if isinstance(s, BarrierSync | BarrierArrive)), None)
    if stray is not None:
        yield "named barriers order roles, and stand in them", stray.span
    if stray is not None or roles is None:
        return
    for stmt in walk((roles,)):
        if not isinstance(stmt, BarrierSync | BarrierArrive):
            continue
        row = BARRIERS["bar.sync" if isinstance(stmt, BarrierSync) else "bar.arrive"]
        first = len(roles.roles) + 1
        if not first <= stmt.number < row.barriers:
            text = f"barrier {stmt.number} is not free: the block has 0, its roles have 1 to {first - 1}, and there are"
            yield f"{text} {row.barriers}", stmt.span
        if stmt.count % row.unit or not 0 < stmt.count <= kernel.num_threads:
            text = f"barrier {stmt.number} counts {stmt.count} threads: a multiple of {row.unit}, at most the block's"
            yield f"{text} {kernel.num_threads}", stmt.span
        target = TARGETS.get(kernel.target or "")
        if target is not None and not target.has(row):
            yield f"{target.name} has no {row.name}", stmt.span


def initialisations(kernel: Kernel) -> Iterator[Problem]:
    """Each array of mbarriers is initialised by one statement at most, which runs once."""
    declared = {b.name for b in kernel.barriers}
    once = [s for body in (kernel.body, *_roles(kernel)) for s in body if isinstance(s, MbarrierInit | MbarrierFence)]
    found = [s for s in walk(kernel.body) if isinstance(s, MbarrierInit | MbarrierFence)]
    for stmt in found:
        if not any(s is stmt for s in once):
            yield "mbarriers are initialised outside of loops, branches and programs", stmt.span
    names = Counter(s.barrier for s in found if isinstance(s, MbarrierInit))
    for name, count in names.items():
        span = next(s.span for s in found if isinstance(s, MbarrierInit) and s.barrier == name)
        if name not in declared:
            yield f"there is no mbarrier `{name}`", span
        if count > 1:
            yield f"mbarrier `{name}` is initialised {count} times", span


def running_counts(kernel: Kernel) -> Iterator[Problem]:
    """A running count is that of one loop: no other of the same role, or of a kernel without roles, has its name. It
    says which place of a ring it is, and nothing else: emitted counts are unsigned."""
    parts = _roles(kernel) or (kernel.body,)
    for part in parts:
        counting = [(s.counter.name, s) for s in walk(part) if isinstance(s, For) and s.counter is not None]
        for name, number in Counter(name for name, _ in counting).items():
            if number > 1:
                loop = [s for found, s in counting if found == name][-1]
                yield f"{number} loops have the running count `{name}`", loop.span
        names = {name for name, _ in counting}
        for stmt in walk(part) if names else ():
            if name := next((e.name for e in _loop_variables(_without_places(stmt, kernel)) if e.name in names), ""):
                yield f"the running count `{name}` is used as other than a place in a ring of buffers", stmt.span


def _without_places(stmt: Stmt, kernel: Kernel) -> Stmt:
    """A statement without the places in rings of its shared tiles and mbarriers, and without what only claims."""
    tiles = {tile.name for tile in kernel.shared}

    def zero(expr: Expr) -> Expr | None:
        place, turn = place_in_ring(expr), turn_in_ring(expr)
        ahead = [place.shift] if place is not None else [turn.shift, turn.ahead] if turn is not None else [-1]
        return Const(0, expr.dtype) if min(ahead) >= 0 else None

    def of_tile(access: Access) -> Access:
        index = tuple(rewrite(e, zero) for e in access.index)
        return replace(access, index=index) if access.obj in tiles else access

    match stmt:
        case MbarrierExpect() | MbarrierArrive() | MbarrierWait():
            return map_exprs(stmt, zero)
        case Tag() | AssertTags() | Spec():
            return Tag("", (), ())
        case BulkCopy(signal=signal) if signal is not None:
            return map_accesses(replace(stmt, signal=replace(signal, index=rewrite(signal.index, zero))), of_tile)
        case _:
            return map_accesses(stmt, of_tile)


def _loop_variables(stmt: Stmt) -> list[LoopVar]:
    """Those that a statement's own expressions are over."""
    found: list[LoopVar] = []

    def note(expr: Expr) -> Expr | None:
        if isinstance(expr, LoopVar):
            found.append(expr)
        return None

    map_exprs(stmt, note)
    return found


def _roles(kernel: Kernel) -> tuple[tuple[Stmt, ...], ...]:
    return tuple(role.body for s in kernel.body if isinstance(s, Roles) for role in s.roles)
