"""The decomposition of sums at places that index tensors hold: rows that one kernel adds (`argus.graph.scatter`).

    index_put(x, [None, t], y, accumulate=True)     →  x + rows of y, added at the places t
    scatter_add(x, 0, t[:, None].expand(-1, D), y)  →  x + rows of y, added at the places t

Rows are added in float32. Single elements, and sums that must have an order, stay with PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch

from argus.graph.two_steps import wide

aten = torch.ops.aten

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)
_PLACES = (torch.int32, torch.int64)


def index_put(x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Any:
    """Add elements or rows at the places that index tensors hold. Negative places count from the end."""
    dims = [d for d, i in enumerate(indices) if i is not None]
    places = [indices[d] for d in dims]
    if not accumulate or not _may_add(x, values, places):
        return NotImplemented
    rest = [d for d in range(x.dim()) if d not in dims]
    if prod(x.shape[d] for d in rest) == 1:
        return NotImplemented
    places = [_from_the_front(i, x.shape[d]) for d, i in zip(dims, places, strict=True)]
    places = list(aten.broadcast_tensors.default(places))
    first = dims[0] if dims == list(range(dims[0], dims[-1] + 1)) else 0
    shape, columns = places[0].shape, [x.shape[d] for d in rest]
    rows = values.expand(*columns[:first], *shape, *columns[first:])
    rows = rows.movedim(list(range(first, first + len(shape))), list(range(len(shape))))
    at = places[0]
    for d, more in zip(dims[1:], places[1:], strict=True):
        at = at * x.shape[d] + more
    added = _added(rows, at, prod(x.shape[d] for d in dims))
    order = [*dims, *rest]
    added = added.reshape([x.shape[d] for d in order]).permute([order.index(d) for d in range(x.dim())])
    return (wide(x) + added).to(x.dtype)


def scatter_add(x: Any, dim: int, places: Any, values: Any) -> Any:
    """Add rows along one dimension, if all columns of a row have one place."""
    if not x.dim() or not _may_add(x, values, [places]):
        return NotImplemented
    dim = dim % x.dim()
    others = [d for d in range(x.dim()) if d != dim]
    if prod(x.shape[d] for d in others) == 1:
        return NotImplemented
    if any(places.shape[d] != x.shape[d] or (places.stride(d) and places.shape[d] > 1) for d in others):
        return NotImplemented
    rows = values[tuple(slice(0, n) for n in places.shape)].movedim(dim, 0)
    at = places.movedim(dim, 0).flatten(1)[:, 0]
    added = _added(rows, at, x.shape[dim])
    added = added.reshape([x.shape[dim], *(x.shape[d] for d in others)]).movedim(0, dim)
    return (wide(x) + added).to(x.dtype)


def _may_add(x: Any, values: Any, places: list[Any]) -> bool:
    """Return True for floats and integer places of sizes that are known, where sums may have any order."""
    if torch.are_deterministic_algorithms_enabled() or not places:
        return False
    if x.dtype not in _FLOATS or values.dtype != x.dtype or any(i.dtype not in _PLACES for i in places):
        return False
    return all(isinstance(n, int) and n for t in (x, values, *places) for n in t.shape)


def _from_the_front(places: Any, size: int) -> Any:
    return torch.where(places < 0, places + size, places)


def _added(rows: Any, places: Any, count: int) -> Any:
    """Return `count` rows: the sums of the rows at each place, in float32."""
    flat = wide(rows).reshape(places.numel(), -1)
    return aten.embedding_dense_backward.default(flat, places.reshape(-1), count, -1, False)
