"""Operators that read at computed indices, as the partition sees them: the dimensions that are read in step with the
result.

    cat([a, b], 1)[i, j] = a[i, j] where j < 3, else b[i, j - 3]     a and b: i in step, the other computed
    embedding(w, t)[i, d] = w[t[i], d]                               t: i in step; w: d in step, the other computed

The dimensions follow from the operator's row alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from argus.graph import capture
from argus.graph.capture import Value, meta_of, value_of
from argus.graph.operators import elements
from argus.graph.row import NotExpressible, Operand, Result, Site
from argus.graph.terms import Element, Extent, Flat, Load, Reduce, Term, Var, parts, walk

if TYPE_CHECKING:
    from torch.fx import Node

INSIDE = "at "
"""Prefix of the name of a use whose operator reads at computed indices. The name follows."""


@dataclass(frozen=True)
class Reading:
    """A tensor that an operator reads. `along` maps each of its dimensions to the dimension of the result with which it
    is in step, or to None if its indices are computed."""

    value: Value
    shape: tuple[Extent, ...]
    along: tuple[int | None, ...]


def readings(node: Node) -> tuple[tuple[Reading, ...], frozenset[int]]:
    """Return the tensors that an operator reads, and the result's dimensions whose indices are used as values. May
    raise NotExpressible."""
    term, index = meaning(node)
    found: dict[Value, Reading] = {}
    for load in walk(term):
        if isinstance(load, Reduce):
            raise NotExpressible("a reduction at computed places")
        if isinstance(load, Load):
            reading = _reading(load, index)
            if found.setdefault(load.source, reading) != reading:
                raise NotExpressible("a tensor read at two places")
    places = {i: d for d, i in enumerate(index)}
    fixed = frozenset(places[i] for i in _values(term, found) if i in places)
    if not all(isinstance(e, int) for r in found.values() for e, d in zip(r.shape, r.along, strict=True) if d is None):
        raise NotExpressible("computed places along a size that is known only when it runs")
    return tuple(found.values()), fixed


def meaning(node: Node, dtype: str = "") -> tuple[Term, tuple[Flat, ...]]:
    """Return the term for one element of an operator's result, and the index variables of that element, one for each
    dimension. Tensors are loaded from values of the graph. Raises NotExpressible."""
    row, made = capture.row(node), capture.results(node)[0]
    assert row is not None and made is not None
    index = tuple(Flat((Var(f"i{d}", size),)) for d, size in enumerate(made.shape))
    given = tuple(_operand(a) for a in capture.given(node))
    (element,) = elements(row, Site((Result(made.shape, dtype or made.dtype),)), given)
    assert element is not None
    return element(index), index


def _operand(argument: Any) -> Any:
    import torch

    if isinstance(argument, (list, tuple)):
        return type(argument)(_operand(a) for a in argument)
    if not isinstance(argument, torch.fx.Node):
        return argument
    value = value_of(argument)
    meta = meta_of(value)
    if meta is None:  # a size of the result, which its row does not read
        return argument
    element = _constant(argument) if capture.is_constant(argument) else _loaded(value, meta.dtype)
    return Operand(meta.shape, meta.dtype, element, lambda d: (meta.shape[d],))


def _loaded(value: Value, dtype: str) -> Element:
    return lambda index: Load(value, index, dtype)


def _constant(node: Node) -> Element:
    """Return the elements of a tensor that is filled with one number."""
    row, made = capture.row(node), capture.results(node)[0]
    assert row is not None and made is not None
    (found,) = elements(row, Site((Result(made.shape, made.dtype),)), capture.given(node))
    assert found is not None
    return found


def _reading(load: Load, index: tuple[Flat, ...]) -> Reading:
    meta = meta_of(load.source)
    assert meta is not None
    along = []
    for size, place in zip(meta.shape, load.index, strict=True):
        same = isinstance(place, Flat) and place in index and place.digits[0].size == size
        along.append(index.index(place) if same else None)
    return Reading(load.source, meta.shape, tuple(along))


def _values(term: Term, found: dict[Value, Reading]) -> Iterator[Flat]:
    """Yield the indices that a term computes with."""
    if isinstance(term, Flat):
        yield term
    elif isinstance(term, Load):
        for place, d in zip(term.index, found[term.source].along, strict=True):
            if d is None:
                yield from _values(place, found)
    else:
        for part in parts(term):
            yield from _values(part, found)
