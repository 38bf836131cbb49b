"""Remove conditions that the grid implies, and evaluate conditions that are constant on a vector once per vector.

    copy y[c0] <- x[program_id(0), c0] if (program_id(0) < M) & (c0 < N)   ->   ... if c0 < N
       (grid [M])

    map y[c0] = where(c0 < N, x[c0], 0)     ->  map y[c0] = where(c0 - c0 % 8 < N, x[c0], 0)
       (8 elements a vector, N % 8 == 0)

After unrolling, one comparison for 8 elements remains, and the copy's mask contains the same one.
"""

from __future__ import annotations

from dataclasses import replace

from argus.ir.affine import Facts, facts, linear, uniform
from argus.ir.expr import Const, Coord, Expr, Op, ProgramId, elements, op, rewrite
from argus.ir.nodes import Accumulate, Copy, Kernel, Map, Stmt
from argus.ir.types import boolean
from argus.ir.visit import rewrite_body
from argus.layout import FragmentLayout
from argus.passes.moves import fast_axis

_WIDTHS = (16, 8, 4, 2)
_TRUE = Const(True, boolean)


def trust_the_grid(kernel: Kernel) -> Kernel:
    """Drop conditions that a program id is less than its axis of the grid from masks and branches. The proof knows
    these facts."""
    grid = kernel.grid
    if grid is None or kernel.cluster > 1:  # A kernel with clusters has a rounded-up grid.
        return kernel

    def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
        if not isinstance(stmt, Copy | Map | Accumulate):
            return None
        shape = stmt.shape

        def asked(expr: Expr) -> Expr:
            return rewrite(expr, lambda e: _without(e, grid, shape))

        if not isinstance(stmt, Copy):
            stmt = replace(stmt, value=asked(stmt.value))
        if isinstance(stmt, Map) or stmt.mask is None:
            return (stmt,)
        mask = asked(stmt.mask)
        if mask != _TRUE:
            return (replace(stmt, mask=mask),)
        return (replace(stmt, mask=None, other=None) if isinstance(stmt, Copy) else replace(stmt, mask=None),)

    return replace(kernel, body=rewrite_body(kernel.body, change))


def _without(expr: Expr, grid: tuple[Expr, ...], shape: tuple[int, ...]) -> Expr | None:
    match expr:
        case Op(op="lt", args=(x, bound)):
            place = linear(x)
            ids = [e for e, _ in place.terms if not (isinstance(e, Coord) and shape[e.axis] == 1)]
            match ids:
                case [ProgramId(axis=axis) as own] if place.coefficient(own) == 1 and place.const <= 0:
                    return _TRUE if axis < len(grid) and grid[axis] == bound else None
        case Op(op="and", args=(x, y), dtype=dtype) if dtype is boolean and _TRUE in (x, y):
            return y if x == _TRUE else x
        case Op(op="where", args=(condition, x, _)) if condition == _TRUE:
            return x
    return None


def ask_once_a_vector(kernel: Kernel) -> Kernel:
    """Rewrite the conditions of `where` in maps and accumulations, and the masks of accumulations."""
    known = facts(kernel)

    def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
        if not isinstance(stmt, Map | Accumulate) or stmt.layout is None:
            return None
        layout = stmt.layout
        value = rewrite(stmt.value, lambda e: _chosen(e, layout, known))
        if isinstance(stmt, Accumulate) and stmt.mask is not None:
            return (replace(stmt, value=value, mask=_shared(stmt.mask, layout, known)),)
        return (replace(stmt, value=value),)

    return replace(kernel, body=rewrite_body(kernel.body, change))


def _chosen(expr: Expr, layout: FragmentLayout, known: Facts) -> Expr | None:
    match expr:
        case Op(op="where", args=(condition, x, y), dtype=dtype):
            return Op("where", (_shared(condition, layout, known), x, y), dtype)
        case _:
            return None


def _shared(condition: Expr, layout: FragmentLayout, known: Facts) -> Expr:
    """Return `condition` at the first element of each vector if it has the same value at the others."""
    if any(True for _ in elements(condition)):
        return condition
    for width in _WIDTHS:
        axis = fast_axis(layout, width)
        if axis is not None and uniform(condition, axis, width, known):
            return _at_first(condition, Coord(axis), width)
    return condition


def _at_first(condition: Expr, coord: Coord, width: int) -> Expr:
    first = op("sub", coord, op("mod", coord, Const(width)))
    return rewrite(condition, lambda e: first if e == coord else None)
