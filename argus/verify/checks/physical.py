"""Addresses as the machine uses them: element offsets of every register's cell in a shared tile."""

from __future__ import annotations

from itertools import product
from math import gcd

import numpy as np
from numpy.typing import NDArray

from argus.ir.expr import Elem, Expr, LoopVar, Param, ProgramId, Thread, linear, walk
from argus.ir.nodes import Access, Copy, Shared
from argus.layout import table
from argus.simulate.evaluate import Bindings, evaluate
from argus.verify.model.program import Site, is_uniform


def offsets(site: Site, access: Access, tile: Shared) -> NDArray[np.int64] | None:
    """Return int64 `[U, T, V]`: the element offsets in the tile of the V values of T threads.

    U counts the combinations of uniform indices, such as a stage, and of uniform terms beside coordinates, such as a
    loop's column of a tile. None if an index mixes coordinates with other values.
    """
    stmt = site.stmt
    assert isinstance(stmt, Copy) and stmt.layout is not None and tile.layout is not None
    coordinates = stmt.layout.coordinates().astype(np.int64)
    grid = tuple(coordinates[..., axis] for axis in range(coordinates.shape[-1]))
    choices: list[list[NDArray[np.int64]]] = []
    for extent, index in zip(tile.shape, access.index, strict=True):
        if is_uniform(index):
            choices.append([np.full(coordinates.shape[:2], value) for value in _uniform_values(index, extent)])
        elif _concrete(index):
            values = evaluate(index, _scope(grid, coordinates.shape[0]))
            choices.append([np.broadcast_to(values, coordinates.shape[:2])])
        else:
            moved = None if stmt.mask is not None else _moved(index, extent, grid, coordinates.shape[:2])
            if moved is None:
                return None
            choices.append(moved)
    addresses = table(tile.layout, tile.shape)
    inside = [[np.clip(v, 0, n - 1) for v in values] for values, n in zip(choices, tile.shape, strict=True)]
    return np.stack([addresses[combination] for combination in product(*inside)])


def _uniform_values(index: Expr, extent: int) -> list[int]:
    """Return the values that a uniform index may take: its own value if it is constant, else all indices of the
    dimension."""
    if any(isinstance(e, (Param, ProgramId, LoopVar)) for e in walk(index)):
        return list(range(extent))
    return [int(evaluate(index, _scope((), 1)))]


def _moved(
    index: Expr, extent: int, grid: tuple[NDArray[np.int64], ...], shape: tuple[int, ...]
) -> list[NDArray[np.int64]] | None:
    """Return all values inside of a dimension of an index that is a sum of coordinates and uniform terms, or None if it
    is no such sum.

    The uniform terms together are a multiple of the greatest common divisor of their factors, and may be any.
    """
    terms, constant = linear(index)
    uniform = [factor for term, factor in terms.items() if is_uniform(term)]
    own = {term: factor for term, factor in terms.items() if not is_uniform(term)}
    if not uniform or not all(_concrete(term) for term in own):
        return None
    place = np.full(shape, constant)
    for term, factor in own.items():
        place = place + factor * evaluate(term, _scope(grid, shape[0]))
    step, first, last = gcd(*uniform), -int(place.min()), extent - 1 - int(place.max())
    return [place + start for start in range(-(-first // step) * step, last + 1, step)] or None


def _concrete(index: Expr) -> bool:
    return not any(isinstance(e, (Param, ProgramId, LoopVar, Thread, Elem)) for e in walk(index))


def _scope(coords: tuple[NDArray[np.int64], ...], threads: int) -> Bindings:
    def no_element(elem: Elem) -> NDArray[np.int64]:
        raise AssertionError(elem)

    return Bindings({}, (), {}, coords, np.arange(threads)[:, None], no_element, lambda code, expr, bad: None)
