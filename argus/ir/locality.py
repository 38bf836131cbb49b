"""Compare the threads of a statement's domain with the threads that hold its operands.

All (thread, value) pairs of the domain's layout are enumerated, if the index is a function of the coordinates and the
thread alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from argus.ir.expr import Const, Coord, Expr, Op, Thread, walk
from argus.layout import FragmentLayout

Table: TypeAlias = NDArray[np.int64]

_TABLES: dict[str, Callable[..., Table]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "floordiv": np.floor_divide,
    "mod": np.mod,
    "neg": np.negative,
    "abs": np.abs,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "shl": np.left_shift,
    "shr": np.right_shift,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "where": np.where,
    "cast": np.asarray,
}


def evaluate(expr: Expr, domain: FragmentLayout) -> Table | None:
    """Return the value of `expr` at every (thread, value) of `domain` as an array `[num_threads, num_values]`. Return
    None if `expr` reads anything but coordinates."""
    match expr:
        case Const(value=int(value)):
            return np.asarray(value)
        case Coord(axis=axis):
            return domain.coordinates()[..., axis].astype(np.int64)
        case Thread():
            return np.arange(domain.num_threads, dtype=np.int64)[:, None]
        case Op(op=op, args=args) if op in _TABLES:
            values = [evaluate(a, domain) for a in args]
            known = [v for v in values if v is not None]
            return _TABLES[op](*known) if len(known) == len(values) else None
        case _:
            return None


def cells(index: tuple[Expr, ...], shape: tuple[int, ...], domain: FragmentLayout) -> Table | None:
    """Return the row-major cell of an object of `shape` at every (thread, value), or -1 outside of it. Return None if
    `evaluate` does."""
    size = (domain.num_threads, domain.num_values)
    result = np.zeros(size, dtype=np.int64)
    inside = np.ones(size, dtype=np.bool_)
    for expr, extent in zip(index, shape, strict=True):
        table = evaluate(expr, domain)
        if table is None:
            return None
        result = result * extent + table
        np.logical_and(inside, (table >= 0) & (table < extent), out=inside)
    return np.where(inside, result, -1)


def holders(layout: FragmentLayout) -> NDArray[np.bool_]:
    """Return a bool array `[num_threads, cells]` that tells if the thread holds the row-major cell."""
    held = np.zeros((layout.num_threads, layout.size), dtype=np.bool_)
    held[np.arange(layout.num_threads)[:, None], layout.linear()] = True
    return held


def by_warp(held: NDArray[np.bool_], warp_size: int) -> NDArray[np.bool_]:
    """Return the same for warps, as an array `[num_warps, cells]`."""
    warps: NDArray[np.bool_] = np.logical_or.reduce(held.reshape(-1, warp_size, held.shape[1]), axis=1)
    return warps


@lru_cache(maxsize=4096)
def foreign(
    domain: FragmentLayout, index: tuple[Expr, ...], operand: FragmentLayout, warp_size: int | None
) -> tuple[int, int] | None:
    """Return the first (thread, value) of `domain` for which the thread does not hold its cell of `operand`, or None.

    With a `warp_size`, no lane of the thread's warp holds the cell. The result is also None if the index cannot be
    enumerated. Cells outside of the operand are checked by bounds, not here.
    """
    where = cells(index, operand.shape, domain)
    if where is None:
        return None
    held = holders(operand)
    owner = np.arange(domain.num_threads)[:, None]
    if warp_size is not None:
        held, owner = by_warp(held, warp_size), owner // warp_size
    wrong = np.argwhere((where >= 0) & ~held[owner, np.maximum(where, 0)])
    return (int(wrong[0][0]), int(wrong[0][1])) if len(wrong) else None


@lru_cache(maxsize=4096)
def partial(
    domain: FragmentLayout, index: tuple[Expr, ...], target: FragmentLayout, warp_size: int
) -> tuple[int, int] | None:
    """Return the first (element of the domain, warp) for which the warp holds the element's cell of `target` but not
    the element, or None.

    Such a warp cannot compute the total of the cell alone. The result is also None if the index cannot be enumerated.
    """
    where = cells(index, target.shape, domain)
    if where is None:
        return None
    elements = domain.linear().reshape(-1)
    by_thread = any(isinstance(e, Thread) for expr in index for e in walk(expr))
    if not by_thread and _held_along(domain, where, target, warp_size):
        return None
    has_element = by_warp(holders(domain), warp_size)[:, elements]
    has_cell = by_warp(holders(target), warp_size)[:, np.maximum(where.reshape(-1), 0)]
    wrong = np.argwhere((has_cell & ~has_element & (where.reshape(-1) >= 0)[None, :]).T)
    return (int(elements[wrong[0][0]]), int(wrong[0][1])) if len(wrong) else None


def _held_along(domain: FragmentLayout, where: Table, target: FragmentLayout, warp_size: int) -> bool:
    """Return True if every warp that holds the cell of an element in `target` also holds the element.

    `where` is the cell of each register of the domain. Registers of one element have the same cell. The function
    compares the number of warps that hold the cell with the number of those that also hold the element.
    """
    cell_of = np.full(domain.size, -1, dtype=np.int64)
    cell_of[domain.linear()] = where
    warp, element = np.divmod(_held(domain, warp_size), domain.size)
    of_target = _held(target, warp_size)
    cell = cell_of[element]
    both = (cell >= 0) & np.isin(warp * target.size + cell, of_target)
    found = np.bincount(element[both], minlength=domain.size)
    wanted = np.bincount(of_target % target.size, minlength=target.size)
    return bool((found == wanted[np.maximum(cell_of, 0)])[cell_of >= 0].all())


def _held(layout: FragmentLayout, warp_size: int) -> Table:
    """Return the pairs (warp, element that the warp holds), each encoded as warp * layout.size + element."""
    warps = np.arange(layout.num_threads, dtype=np.int64)[:, None] // warp_size
    return np.unique(warps * layout.size + layout.linear())
