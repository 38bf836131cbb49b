"""Rows of operators that write a part of a tensor, and of reads by index tensors.

    slice_scatter(x, y, 0, 2, 8, 3)[i, j] = y[(i - 2) // 3, j] where i is 2 or 5, else x[i, j]
    index(x, [None, t])[i, j]             = x[i, t[j]], where a negative t[j] counts from the end
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from argus.graph.row import INDEXED, NotExpressible, Operand, Row, Site, apply, constant, integer, normal
from argus.graph.terms import Element, Index, Number, Term, cast, is_float


def _slice_scatter(
    site: Site, x: Operand, y: Operand, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Element:
    at = normal(dim, len(x.shape))
    size = x.shape[at]
    if not all(isinstance(n, int) for n in (size, start or 0, end or 0)):
        raise NotExpressible("a slice between places known only when it runs")
    first, last, _ = slice(start, end).indices(size)

    def element(index: Index) -> Term:
        place = apply("sub", index[at], integer(first)) if first else index[at]
        inside = [apply("le", integer(first), index[at])] if first else []
        inside += [apply("lt", index[at], integer(last))] if last < size else []
        inside += [apply("eq", apply("mod", place, integer(step)), integer(0))] if step > 1 else []
        place = apply("floordiv", place, integer(step)) if step > 1 else place
        return _instead(inside, y, (*index[:at], place, *index[at + 1 :]), x, index)

    return element


def _select_scatter(site: Site, x: Operand, y: Operand, dim: int, place: Any) -> Element:
    at = normal(dim, len(x.shape))
    if not isinstance(place, int) or not isinstance(x.shape[at], int):
        raise NotExpressible("a selection of a place known only when it runs")
    chosen = integer(place % x.shape[at])

    def element(index: Index) -> Term:
        return _instead([apply("eq", index[at], chosen)], y, (*index[:at], *index[at + 1 :]), x, index)

    return element


def _instead(conditions: list[Term], y: Operand, place: Index, x: Operand, index: Index) -> Term:
    """Return y's element where all conditions hold, else x's."""
    value = cast(y.at(place), x.dtype)
    if not conditions:
        return value
    inside = conditions[0]
    for condition in conditions[1:]:
        inside = apply("and", inside, condition)
    return apply("where", inside, value, x.at(index))


def _index(site: Site, x: Operand, indices: Sequence[Operand | None]) -> Element:
    """Return the element of x at indices, some of which are read from a tensor.

    PyTorch raises an error for an index out of range; here the element is NaN."""
    given = [(d, i) for d, i in enumerate(indices) if i is not None]
    if len(given) != 1 or given[0][1].dtype not in ("int32", "int64"):
        raise NotExpressible("places read from several tensors, or chosen by truth values")
    if not is_float(x.dtype):
        raise NotExpressible("numbers at places read from a tensor, of a dtype that has no NaN")
    ((at, places),) = given
    rank = len(places.shape)

    def element(index: Index) -> Term:
        read = places.at(index[at : at + rank])
        size = constant(x.shape[at], read)
        known = apply("and", apply("le", constant(-x.shape[at], read), read), apply("lt", read, size))
        value = x.at((*index[:at], apply("mod", read, size), *index[at + rank :]))
        return apply("where", known, value, Number(float("nan"), x.dtype))

    return element


ROWS: dict[str, Row] = {
    "slice_scatter.default": Row(INDEXED, _slice_scatter),
    "select_scatter.default": Row(INDEXED, _select_scatter),
    "index.Tensor": Row(INDEXED, _index),
}
"""The rows by the operator's name without "aten."."""
