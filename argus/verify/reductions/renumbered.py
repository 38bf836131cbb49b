"""Number the programs of a grid so that their places are written without quotients.

    grid [E * 4], with program_id(0) // 4 and program_id(0) % 4   ->   grid [E, 4], with program_id(0) and program_id(1)
    grid [E], with E - 1 - program_id(0)                          ->   grid [E], with program_id(0)

For C > 0, (a, b) -> C a + b is one-to-one between [0, E) x [0, C) and [0, E * C), and so is p -> E - 1 - p between
[0, E) and itself. So both grids have the same programs, and what holds for every one of the right form holds for every
one of the left form. No question depends on the order in which a block takes its programs. E is a quotient itself, as
(M + 127) // 128. Sets have a dimension of their own for each quotient, and every question about them takes longer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from argus.ir.expr import Const, Expr, Op, ProgramId, linear, op, walk
from argus.ir.nodes import Kernel, Stmt
from argus.ir.visit import map_exprs, rewrite_body
from argus.ir.visit import walk as statements


def renumbered(kernel: Kernel) -> Kernel:
    """Divide each axis whose extent is a multiple of a constant by which its places are divided, and turn round each
    axis whose places are counted from its end.

    The blocks of a cluster are consecutive, so its kernel stays as it is.
    """
    if kernel.cluster > 1:
        return kernel
    for axis, extent in enumerate(kernel.grid or ()):
        match extent:
            case Op(op="mul", args=(count, Const(value=parts))) if _divides(kernel, axis, int(parts)):
                kernel = _divide(kernel, axis, count, int(parts))
            case _:
                pass
    for axis, extent in enumerate(kernel.grid or ()):
        if not isinstance(extent, Const) and (before := _occurrences(kernel, extent)):
            turned = _turn(kernel, axis, extent)
            kernel = turned if _occurrences(turned, extent) < before else kernel
    return kernel


def _divides(kernel: Kernel, axis: int, parts: int) -> bool:
    """Return True if places along an axis are divided by `parts`."""
    quotients = (e for e in _expressions(kernel) if isinstance(e, Op) and e.op == "floordiv")
    divided = (e.args[0] for e in quotients if e.args[1] == Const(parts))
    return parts > 1 and any(ProgramId(axis) in walk(e) for e in divided)


def _expressions(kernel: Kernel) -> Iterator[Expr]:
    """Yield the expressions in statements, and their parts."""
    found: list[Expr] = []

    def look(expr: Expr) -> Expr | None:
        found.append(expr)
        return None

    for stmt in statements(kernel.body):
        map_exprs(stmt, look)
    return iter(found)


def _occurrences(kernel: Kernel, expr: Expr) -> int:
    return sum(e == expr for e in _expressions(kernel))


def _turn(kernel: Kernel, axis: int, extent: Expr) -> Kernel:
    """Return the kernel with an axis counted from its end, and sums in which its extent cancels written without it."""
    own = ProgramId(axis)
    turned = op("sub", op("sub", extent, Const(1)), own)

    def change(expr: Expr) -> Expr | None:
        match expr:
            case ProgramId() if expr == own:
                return turned
            case Op(op="add" | "sub"):
                terms, number = linear(expr)
                return _sum(terms, number) if own in terms and extent not in terms else None
            case _:
                return None

    def changed(stmt: Stmt) -> tuple[Stmt, ...]:
        return (map_exprs(stmt, change),)

    return replace(kernel, body=rewrite_body(kernel.body, changed))


def _divide(kernel: Kernel, axis: int, count: Expr, parts: int) -> Kernel:
    """Return the kernel with an axis of `count` programs, and another one of `parts`."""
    grid = (*(kernel.grid or ()), Const(parts))
    own = ProgramId(len(grid) - 1)
    whole = op("add", op("mul", ProgramId(axis), Const(parts)), own)

    def change(expr: Expr) -> Expr | None:
        match expr:
            case ProgramId(axis=number) if number == axis:
                return whole
            case Op(op="floordiv" | "mod" as name, args=(dividend, Const(value=by))) if by == parts:
                return _quotient(name, dividend, own, parts)
            case _:
                return None

    def changed(stmt: Stmt) -> tuple[Stmt, ...]:
        return (map_exprs(stmt, change),)

    grid = (*grid[:axis], count, *grid[axis + 1 :])
    return replace(kernel, grid=grid, body=rewrite_body(kernel.body, changed))


def _quotient(name: str, dividend: Expr, own: ProgramId, parts: int) -> Expr | None:
    """Return the quotient, or the remainder for `name` "mod", of a multiple of `parts` plus or minus `own` and a
    number; None for other dividends."""
    terms, number = linear(dividend)
    sign = terms.pop(own, 0)
    lowest = number + min(0, sign * (parts - 1))
    highest = number + max(0, sign * (parts - 1))
    if abs(sign) > 1 or lowest // parts != highest // parts or any(f % parts for f in terms.values()):
        return None
    if name == "mod":
        return _sum({own: sign}, number - lowest // parts * parts)
    return _sum({term: factor // parts for term, factor in terms.items()}, lowest // parts)


def _sum(terms: dict[Expr, int], number: int) -> Expr:
    found: Expr = Const(number)
    for term in _products(terms):
        found = op("add", found, term)
    return found


def _products(terms: dict[Expr, int]) -> Iterator[Expr]:
    return (op("mul", term, Const(factor)) for term, factor in terms.items() if factor)
