"""Rules of running counts: a count belongs to one loop, and is used only for places in rings.

Emitted counts are unsigned and wrap around, and any other use would depend on that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from argus.ir.expr import Const, Expr, LoopVar, rewrite
from argus.ir.nodes import (
    Access,
    AssertTags,
    BulkCopy,
    For,
    Kernel,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierWait,
    Spec,
    Stmt,
    Tag,
)
from argus.ir.rings import place_in_ring, turn_in_ring
from argus.ir.statement import Problem
from argus.ir.visit import map_accesses, map_exprs, walk
from argus.ir.wellformed.site import Site


def names(body: tuple[Stmt, ...]) -> frozenset[str]:
    """Return the running counts in the statements of the block, or of a role."""
    return frozenset(s.counter.name for s in walk(body) if isinstance(s, For) and s.counter is not None)


def clashes(body: tuple[Stmt, ...]) -> Iterator[Problem]:
    """Yield loops of the same part of a kernel that share a running count."""
    counting = [(s.counter.name, s) for s in walk(body) if isinstance(s, For) and s.counter is not None]
    for name, number in Counter(name for name, _ in counting).items():
        if number > 1:
            loop = [s for found, s in counting if found == name][-1]
            yield f"{number} loops have the running count `{name}`", loop.span


def problems(stmt: Stmt, site: Site) -> Iterator[Problem]:
    """Yield uses of running counts other than as places in rings."""
    if not site.counts:
        return
    if name := next((e.name for e in _loop_variables(_elsewhere(stmt, site.kernel)) if e.name in site.counts), ""):
        yield f"the running count `{name}` is used as other than a place in a ring of buffers", stmt.span


def _elsewhere(stmt: Stmt, kernel: Kernel) -> Stmt:
    """Return a statement without its places in rings of shared tiles and mbarriers, and without statements that only
    make claims."""
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
    """Return the loop variables in a statement's own expressions."""
    found: list[LoopVar] = []

    def note(expr: Expr) -> Expr | None:
        if isinstance(expr, LoopVar):
            found.append(expr)
        return None

    map_exprs(stmt, note)
    return found
