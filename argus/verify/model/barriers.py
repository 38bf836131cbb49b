"""The barriers that statements use, and an order of roles in which each finds arrived what it first waits for."""

from __future__ import annotations

import operator
from collections.abc import Callable

from argus.ir.expr import Const, Expr, LoopVar, Op
from argus.ir.nodes import (
    BarrierArrive,
    BarrierSync,
    Copy,
    For,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierWait,
    Programs,
    Role,
    Signal,
    Stmt,
)
from argus.ir.visit import walk as walk_statements


def in_turn(roles: tuple[Role, ...]) -> list[Role]:
    """Sort the roles so that each comes after the roles that its first waits need; break cycles by source order.

    This only guesses a good schedule: no proof depends on it.
    """
    at_once = {_arrived_on(stmt) for role in roles for stmt in role.body}  # a waiting role waits for others' arrivals
    needs = {role.name: _needed_first(role.body, {}) - at_once for role in roles}
    gives = {role.name: {_arrived_on(stmt) for stmt in walk_statements(role.body)} for role in roles}
    left, result = list(roles), []
    while left:
        free = (r for r in left if not any(o is not r and needs[r.name] & gives[o.name] for o in left))
        chosen = next(free, left[0])
        left.remove(chosen)
        result.append(chosen)
    return result


def _needed_first(body: tuple[Stmt, ...], start: dict[str, int]) -> set[str]:
    """Return the barriers at which the first iterations wait for other roles.

    A wait for parity 1 is not one of them: it passes at once on a fresh mbarrier.
    """
    found: set[str] = set()
    for stmt in body:
        match stmt:
            case MbarrierWait(barrier=name, parity=parity) if _first_value(parity, start) % 2 == 0:
                found.add(name)
            case BarrierSync():
                found.add(stmt.barrier)
            case For(body=inner):
                found |= _needed_first(inner, start | {stmt.var: _first_value(stmt.start, start)})
            case Programs(body=inner):
                found |= _needed_first(inner, start)
            case _:
                pass
    return found


def _first_value(expr: Expr, start: dict[str, int]) -> int:
    """Evaluate an integer expression in the first iteration of its loops, with all sizes 0; 0 for unknown parts."""
    match expr:
        case Const(value=value):
            return int(value)
        case LoopVar(name=name):
            return start.get(name, 0)
        case Op(op=name, args=(a, b)) if name in _ARITHMETIC:
            x, y = _first_value(a, start), _first_value(b, start)
            return _ARITHMETIC[name](x, y) if y or name not in ("floordiv", "mod") else 0
        case _:
            return 0


_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "floordiv": operator.floordiv, "mod": operator.mod,
}  # fmt: skip


def _arrived_on(stmt: Stmt) -> str:
    """Return the barrier at which a statement arrives, announces bytes or delivers them; "" for other statements."""
    used = None if isinstance(stmt, MbarrierWait) else barrier_use(stmt)
    return "" if used is None else used[0]


def mbarrier_use(stmt: Stmt) -> tuple[str, Expr] | None:
    """Return the name and index of the mbarrier that a statement uses."""
    match stmt:
        case (
            MbarrierExpect(barrier=name, index=index)
            | MbarrierArrive(barrier=name, index=index)
            | MbarrierWait(barrier=name, index=index)
        ):
            return name, index
        case Copy(signal=Signal(barrier=name, index=index)):
            return name, index
        case _:
            return None


def barrier_use(stmt: Stmt) -> tuple[str, Expr] | None:
    """Return the name and index of the mbarrier that a statement uses, or the name of its named barrier and index 0."""
    return (stmt.barrier, Const(0)) if isinstance(stmt, BarrierSync | BarrierArrive) else mbarrier_use(stmt)
