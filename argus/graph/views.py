"""Rows of views and gathers: the source of each element of the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from argus.graph.row import (
    INDEXED,
    OTHER,
    VIEW,
    NotExpressible,
    Operand,
    Row,
    Site,
    add,
    apply,
    broadcast,
    integer,
    mul,
    normal,
    reshaped,
)
from argus.graph.terms import ZERO, Element, Index, Number, Term, cast, is_float, number

A_VIEW = "a view"
"""The reason of operators that are left because PyTorch runs them without touching memory."""


def _same(site: Site, x: Operand, *_: Any) -> Element:
    return lambda index: x.at(index)


def _reshape(site: Site, x: Operand, *_: Any) -> Element:
    return lambda index: x.at(reshaped(index, site.result.shape, x.shape))


def _permute(site: Site, x: Operand, dims: Sequence[int]) -> Element:
    order = [normal(d, len(x.shape)) for d in dims]

    def element(index: Index) -> Term:
        return x.at(tuple(index[order.index(d)] for d in range(len(order))))

    return element


def _transpose(site: Site, x: Operand, a: int = 0, b: int = 1) -> Element:
    order = list(range(len(x.shape)))
    if order:
        a, b = normal(a, len(order)), normal(b, len(order))
        order[a], order[b] = order[b], order[a]
    return _permute(site, x, order)


def _matrix_transpose(site: Site, x: Operand) -> Element:
    return _permute(site, x, tuple(reversed(range(len(x.shape)))))


def _expand(site: Site, x: Operand, *_: Any) -> Element:
    return lambda index: broadcast(x, index)


def _unsqueeze(site: Site, x: Operand, dim: int) -> Element:
    at = normal(dim, len(x.shape) + 1)
    return lambda index: x.at(index[:at] + index[at + 1 :])


def _squeeze(site: Site, x: Operand, *_: Any) -> Element:
    """Remove dimensions of one element. Any choice of squeezed dimensions reads the same elements."""

    def element(index: Index) -> Term:
        rest = list(index)
        missing = len(x.shape) - len(site.result.shape)
        dims = _given(_[0], len(x.shape)) if _ else [d for d, size in enumerate(x.shape) if size == 1]
        squeezed = [d for d in dims if x.shape[d] == 1][: missing or None] if missing else []
        return x.at(tuple(ZERO if d in squeezed else rest.pop(0) for d in range(len(x.shape))))

    return element


def _given(dims: Any, rank: int) -> list[int]:
    return [normal(d, rank) for d in ((dims,) if isinstance(dims, int) else dims)]


def _slice(site: Site, x: Operand, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Element:
    at = normal(dim, len(x.shape))
    first = start or 0
    if not isinstance(first, int) or not isinstance(x.shape[at], int):
        raise NotExpressible("a slice that begins at a place known only when it runs")
    first = max(0, min(first + x.shape[at] if first < 0 else first, x.shape[at]))

    def element(index: Index) -> Term:
        place = add(mul(index[at], integer(step)), integer(first)) if (step, first) != (1, 0) else index[at]
        return x.at((*index[:at], place, *index[at + 1 :]))

    return element


def _select(site: Site, x: Operand, dim: int, place: Any) -> Element:
    at = normal(dim, len(x.shape))
    if not isinstance(place, int) or not isinstance(x.shape[at], int):
        raise NotExpressible("a selection of a place known only when it runs")
    chosen = integer(place + x.shape[at] if place < 0 else place)
    return lambda index: x.at((*index[:at], chosen, *index[at:]))


def _unfold(site: Site, x: Operand, dim: int, size: int, step: int) -> Element:
    """Windows of `size` elements along a dimension, `step` apart; the last dimension goes over a window."""
    at = normal(dim, len(x.shape))

    def element(index: Index) -> Term:
        *rest, inner = index
        start = mul(rest[at], integer(step)) if step != 1 else rest[at]
        return x.at((*rest[:at], add(start, inner), *rest[at + 1 :]))

    return element


def _split(site: Site, x: Operand, sizes: Any, dim: int = 0) -> tuple[Element, ...]:
    at = normal(dim, len(x.shape))
    starts = [0]
    for result in site.results:
        starts.append(starts[-1] + result.shape[at])

    def part(start: int) -> Element:
        return lambda index: x.at((*index[:at], add(index[at], integer(start)), *index[at + 1 :]))

    return tuple(part(start) for start in starts[:-1])


def _unbind(site: Site, x: Operand, dim: int = 0) -> tuple[Element, ...]:
    at = normal(dim, len(x.shape))

    def part(place: int) -> Element:
        return lambda index: x.at((*index[:at], integer(place), *index[at:]))

    return tuple(part(i) for i in range(len(site.results)))


def _flip(site: Site, x: Operand, dims: Sequence[int]) -> Element:
    turned = {normal(d, len(x.shape)) for d in dims}

    def element(index: Index) -> Term:
        places = (apply("sub", integer(x.shape[d] - 1), i) if d in turned else i for d, i in enumerate(index))
        return x.at(tuple(places))

    return element


def _triangle(lower: bool) -> Any:
    """Keep what is on one side of a diagonal, the diagonal included; the rest is 0."""

    def meaning(site: Site, x: Operand, diagonal: int = 0) -> Element:
        def element(index: Index) -> Term:
            *_, row, column = index
            value = x.at(index)
            edge = add(row, integer(diagonal)) if diagonal else row
            kept = apply("le", column, edge) if lower else apply("le", edge, column)
            return apply("where", kept, value, Number(number(0, x.dtype), x.dtype))

        return element

    return meaning


def _cat(site: Site, tensors: Sequence[Operand], dim: int = 0) -> Element:
    rank = len(site.result.shape)
    pieces = [t for t in tensors if len(t.shape) == rank]
    at = normal(dim, rank)

    def element(index: Index) -> Term:
        value, end = None, site.result.shape[at]
        for piece in reversed(pieces):
            start = end - piece.shape[at]
            where = (*index[:at], apply("sub", index[at], integer(start)), *index[at + 1 :])
            own = cast(piece.at(where), site.result.dtype)
            value = own if value is None else apply("where", apply("lt", index[at], integer(end)), own, value)
            end = start
        if value is None:
            raise NotExpressible("a concatenation of nothing")
        return value

    return element


def _pad(site: Site, x: Operand, pad: Sequence[int], value: Any = 0) -> Element:
    rank = len(x.shape)

    def element(index: Index) -> Term:
        inside: Term | None = None
        places = list(index)
        for n in range(len(pad) // 2):
            d = rank - 1 - n
            if not any(pad[2 * n : 2 * n + 2]):
                continue
            places[d] = apply("sub", index[d], integer(pad[2 * n]))
            here = within(places[d], x.shape[d])
            inside = here if inside is None else apply("and", inside, here)
        found = x.at(tuple(places))
        filling = Number(number(value or 0, x.dtype), x.dtype)
        return found if inside is None else apply("where", inside, found, filling)

    return element


def within(place: Term, size: Any) -> Term:
    return apply("and", apply("le", integer(0), place), apply("lt", place, integer(size)))


def _found(x: Operand, at: int, place: Term, index: Index) -> Term:
    """Return the element of x whose index along dimension `at` is read from a tensor.

    PyTorch raises an error for an index out of range; here the element is NaN."""
    value = x.at((*index[:at], place, *index[at + 1 :]))
    return apply("where", within(place, x.shape[at]), value, Number(float("nan"), x.dtype))


def _only_floats(x: Operand) -> None:
    if not is_float(x.dtype):
        raise NotExpressible("numbers at places read from a tensor, of a dtype that has no NaN")


def _embedding(site: Site, weight: Operand, indices: Operand, *_: Any) -> Element:
    _only_floats(weight)
    return lambda index: _found(weight, 0, indices.at(index[:-1]), (ZERO, index[-1]))


def _index_select(site: Site, x: Operand, dim: int, indices: Operand) -> Element:
    _only_floats(x)
    at = normal(dim, len(x.shape))
    return lambda index: _found(x, at, indices.at((index[at],) if indices.shape else ()), index)


def _gather(site: Site, x: Operand, dim: int, indices: Operand, *_: Any) -> Element:
    _only_floats(x)
    at = normal(dim, len(x.shape))
    return lambda index: _found(x, at, indices.at(index), index)


ROWS: dict[str, Row] = {
    "alias.default": Row(VIEW, _same),
    "detach.default": Row(VIEW, _same),
    "view.default": Row(VIEW, _reshape),
    "_unsafe_view.default": Row(VIEW, _reshape),
    "reshape.default": Row(VIEW, _reshape),
    "permute.default": Row(VIEW, _permute),
    "transpose.int": Row(VIEW, _transpose),
    "t.default": Row(VIEW, _matrix_transpose),
    "expand.default": Row(VIEW, _expand),
    "unsqueeze.default": Row(VIEW, _unsqueeze),
    "squeeze.default": Row(VIEW, _squeeze),
    "squeeze.dim": Row(VIEW, _squeeze),
    "squeeze.dims": Row(VIEW, _squeeze),
    "slice.Tensor": Row(OTHER, _slice, A_VIEW),
    "select.int": Row(OTHER, _select, A_VIEW),
    "split_with_sizes.default": Row(OTHER, _split, A_VIEW),
    "split.Tensor": Row(OTHER, _split, A_VIEW),
    "unbind.int": Row(OTHER, _unbind, A_VIEW),
    "unfold.default": Row(OTHER, _unfold, A_VIEW),
    "flip.default": Row(INDEXED, _flip),
    "tril.default": Row(INDEXED, _triangle(True)),
    "triu.default": Row(INDEXED, _triangle(False)),
    "cat.default": Row(INDEXED, _cat),
    "constant_pad_nd.default": Row(INDEXED, _pad),
    "embedding.default": Row(INDEXED, _embedding),
    "index_select.default": Row(INDEXED, _index_select),
    "gather.default": Row(INDEXED, _gather),
}
"""The rows by the operator's name without "aten."."""
