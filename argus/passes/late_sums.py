"""Move the exchange between lanes behind the loop for sums that the loop rescales and carries.

    map t[c0] = 0                                  ->  map p[c0, c1] = 0
    for ... {                                          for ... {
      map s[c0] = 0                                      map p[c0, c1] = p[c0, c1] * x[c0]
      map p[c0, c1] = 0                                  accumulate p[c0, lane(c2)] add w[c0, c2]   thread
      accumulate p[c0, lane(c2)] add w[c0, c2]   thread }
      accumulate s[c0] add p[c0, c1]             warp  map t[c0] = 0
      map t[c0] = t[c0] * x[c0] + s[c0]                accumulate t[c0] add p[c0, c1]               warp
    }

Inside the loop, each of the lanes that share a row keeps its own part of the row's sum. An exchange between lanes takes
as long as twenty other instructions, and later instructions wait for it. All parts of a row have the same factor.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from argus.ir.expr import Const, Elem, Expr, Op, coords, elements, op
from argus.ir.nodes import Accumulate, Copy, For, Kernel, Map, Mma, Stmt, Tag
from argus.ir.visit import walk
from argus.layout import FragmentLayout, Mode
from argus.passes.context import Enclosing, rewrite_bodies
from argus.passes.fresh import names


@dataclass(frozen=True, slots=True)
class Carried:
    """The positions, in a loop's body, of the statements shown in this module's docstring, and the row's factor."""

    sum_zero: int
    part_zero: int
    sum: int
    total: int
    factor: Expr


def sum_behind_loops(kernel: Kernel) -> Kernel:
    """Move the exchange of sums over lanes that loops carry behind the loops."""

    def change(body: tuple[Stmt, ...], context: Enclosing) -> tuple[Stmt, ...]:
        place = 0
        while place < len(body):
            stmt = body[place]
            changed = _behind(kernel, body, place, stmt) if isinstance(stmt, For) else None
            body, place = (body, place + 1) if changed is None else (changed, place)
        return body

    body = rewrite_bodies(kernel.body, change)
    if body == kernel.body:
        return kernel
    gone = set().union(*map(names, walk(kernel.body))) - set().union(*map(names, walk(body)))
    return replace(kernel, body=body, fragments=tuple(f for f in kernel.fragments if f.name not in gone))


def _behind(kernel: Kernel, body: tuple[Stmt, ...], place: int, loop: For) -> tuple[Stmt, ...] | None:
    """Return `body` in which one sum of the loop at `place` is exchanged behind the loop, or None if the loop carries
    no such sum."""
    for at in range(len(loop.body)):
        found = _found(kernel, loop.body, at)
        if found is None:
            continue
        steps = list(loop.body)
        part, last, total = steps[found.part_zero], steps[found.sum], steps[found.total]
        assert isinstance(part, Map) and isinstance(last, Accumulate) and isinstance(total, Map)
        before = _places(body[:place], total.dst.obj)
        first = body[before[-1]] if before else None
        if not (isinstance(first, Map) and _is_zero(first) and first.layout == total.layout):
            continue
        own = Elem(part.dst.obj, part.dst.index, part.value.dtype)
        steps[found.part_zero] = replace(part, value=op("mul", own, found.factor), span=total.span)
        gone = {found.sum_zero, found.sum, found.total}
        inside = replace(loop, body=tuple(s for i, s in enumerate(steps) if i not in gone))
        behind = (first, replace(last, dst=replace(last.dst, obj=total.dst.obj)))
        rest = (*body[: before[-1]], part, *body[before[-1] + 1 : place])
        return (*rest, inside, *behind, *body[place + 1 :])
    return None


def _found(kernel: Kernel, body: tuple[Stmt, ...], at: int) -> Carried | None:
    """Return the statements that belong to the one at `at`, if that is `t = t * x + s` with `s` a sum over lanes."""
    total = body[at]
    if not isinstance(total, Map):
        return None
    match total.value:
        case Op(op="add", args=(Op(op="mul", args=(Elem() as old, factor)), Elem() as row)):
            pass
        case _:
            return None
    index = coords(len(total.shape))
    if total.dst.index != index or old != Elem(total.dst.obj, index, old.dtype) or row.index != index:
        return None
    places = _places(body, row.obj)
    if _places(body, old.obj) != (at,) or len(places) != 3 or places[2] != at or _uses(kernel, row.obj) != 3:
        return None
    zero, last = body[places[0]], body[places[1]]
    if not (_is_zero(zero) and isinstance(last, Accumulate) and last.scope == "warp" and last.dst.index == index):
        return None
    part = last.value
    if not isinstance(part, Elem) or part.index != coords(len(last.shape)) or not _adds(last):
        return None
    parts = _places(body, part.obj)
    if len(parts) != 3 or parts[2] != places[1] or _uses(kernel, part.obj) != 3:
        return None
    start, step = body[parts[0]], body[parts[1]]
    if not (_is_zero(start) and isinstance(step, Accumulate) and step.scope == "thread" and _adds(step)):
        return None
    read = {e.obj for e in elements(factor)}
    if read & _written(body[parts[0] : at]) or not _same_rows(last.layout, total.layout):
        return None
    return Carried(places[0], parts[0], places[1], at, factor)


def _adds(stmt: Accumulate) -> bool:
    return stmt.op == "add" and stmt.mask is None


def _is_zero(stmt: Stmt) -> bool:
    return isinstance(stmt, Map) and isinstance(stmt.value, Const) and stmt.value.value == 0


def _same_rows(parts: FragmentLayout | None, rows: FragmentLayout | None) -> bool:
    """Return True if every thread with a part of a row also holds the row: the last axis of the parts runs over copies
    of rows."""
    if parts is None or rows is None:
        return False
    axis = len(parts.shape) - 1
    if any(m.dim == axis for m in parts.values):
        return False
    threads = tuple(Mode(m.extent, None) if m.dim == axis else m for m in parts.threads)
    return FragmentLayout(parts.shape[:axis], threads, parts.values).simplify() == rows.simplify()


def _places(body: tuple[Stmt, ...], obj: str) -> tuple[int, ...]:
    """Return the statements of a list that name `obj`, directly or in a nested statement."""
    return tuple(i for i, stmt in enumerate(body) if any(_names(s, obj) for s in walk((stmt,))))


def _uses(kernel: Kernel, obj: str) -> int:
    return len([s for s in walk(kernel.body) if _names(s, obj)])


def _names(stmt: Stmt, obj: str) -> bool:
    return obj in names(stmt) or (isinstance(stmt, Tag) and stmt.obj == obj)


def _written(body: tuple[Stmt, ...]) -> set[str]:
    """Return the register tiles that the statements may write."""
    return {s.dst.obj for s in walk(body) if isinstance(s, Map | Accumulate | Copy)} | {
        s.d.obj for s in walk(body) if isinstance(s, Mma)
    }
