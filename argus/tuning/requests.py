"""Count the cache lines that the threads of a block request, from the addresses of a copy's elements.

A warp's request to global memory takes a cycle of the multiprocessor for each 128-byte line that it accesses, whether
or not the line is in the L1 cache. Elements that several warps hold are requested by each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from argus.backend.launch.evaluate import Number, evaluate
from argus.ir.expr import Const, Coord, Elem, Expr, Op, Param, walk
from argus.ir.nodes import Access, Copy, Tensor

_LINE = 128
_REQUESTS = 64
"""Largest number of requests of a warp whose lines are counted. Further requests are assumed to be similar."""

_Places = NDArray[Any]
_EXACT: Mapping[str, Callable[[_Places, _Places], _Places]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "minimum": np.minimum, "maximum": np.maximum,
}  # fmt: skip
_DIVIDING: Mapping[str, Callable[[_Places, _Places], _Places]] = {"floordiv": np.floor_divide, "mod": np.mod}
_DECIDING: Mapping[str, Callable[[_Places, _Places], NDArray[np.bool_]]] = {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
}  # fmt: skip
_SAMPLED = 4096
"""Largest number of elements of a tile at which a mask is evaluated."""


def lines(copy: Copy, access: Access, tensor: Tensor, values: Mapping[str, Number], warp_size: int) -> float:
    """Return how many lines all warps of the copy's layout request in one execution, or 0 if no thread moves data.

    The lines are counted for the first warp of the first program in the first iteration. Strides without a given value
    are assumed to be contiguous.
    """
    if copy.layout is None:
        return 0.0
    layout = copy.layout
    if not layout.rank:
        return float(max(1, layout.num_threads // warp_size))
    warp = layout.coordinates()[:warp_size].astype(np.int64)
    starts = warp.reshape(len(warp), -1, copy.vector, layout.rank)[:, :, 0]
    requests = starts.shape[1]
    sampled = starts[:, :_REQUESTS]
    address = np.zeros(sampled.shape[:2], dtype=np.int64)
    for index, stride in zip(access.index, strides(tensor, values), strict=True):
        address += _places(index, sampled, values) * stride
    line = address * tensor.dtype.bytes // _LINE
    sampled_requests = min(requests, _REQUESTS)
    counted = sum(len(np.unique(line[:, request])) for request in range(sampled_requests))
    return float(counted * requests / sampled_requests * max(1, layout.num_threads // warp_size))


def active(copy: Copy, values: Mapping[str, Number]) -> float:
    """Return the share of a copy's elements that its mask keeps, in the first program and iteration."""
    if copy.mask is None or not copy.shape:
        return 1.0
    shape = copy.shape
    step = max(1, prod(shape) // _SAMPLED)
    flat = np.arange(0, prod(shape), step, dtype=np.int64)
    coordinates = np.stack(np.unravel_index(flat, shape), axis=-1)
    return max(float(np.broadcast_to(_holds(copy.mask, coordinates, values), flat.shape).mean()), 1.0 / prod(shape))


def _holds(mask: Expr, coordinates: _Places, values: Mapping[str, Number]) -> NDArray[np.bool_]:
    """Evaluate a condition at many coordinates. Conditions that depend on data count as true."""
    match mask:
        case Op(op="and", args=(left, right)):
            return _holds(left, coordinates, values) & _holds(right, coordinates, values)
        case Op(op=name, args=(left, right)) if name in _DECIDING and not _loaded(mask):
            return _DECIDING[name](_places(left, coordinates, values), _places(right, coordinates, values))
        case _:
            return np.asarray(True)


def _loaded(expr: Expr) -> bool:
    return any(isinstance(part, Elem) for part in walk(expr))


def strides(tensor: Tensor, values: Mapping[str, Number]) -> Sequence[int]:
    """Return the strides of a tensor in elements. Unknown strides are assumed to be those of contiguous memory."""
    shape = [int(evaluate(e, values)) for e in tensor.shape]
    found = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        found[axis] = found[axis + 1] * max(1, shape[axis + 1])
    known = [_known(s, values) for s in tensor.strides]
    return [default if given is None else given for default, given in zip(found, known, strict=True)]


def _known(stride: Expr, values: Mapping[str, Number]) -> int | None:
    try:
        return int(evaluate(stride, values))
    except (KeyError, TypeError, ArithmeticError, ValueError):
        return None


def _places(expr: Expr, coordinates: _Places, values: Mapping[str, Number]) -> _Places:
    """Evaluate an index at many coordinates. Terms that the program or the iteration decides count as 0.

    An element that is read from a tile, such as a gathered row, counts as its place in the tile.
    """
    match expr:
        case Coord(axis=axis):
            return coordinates[..., axis]
        case Const(value=value):
            return np.asarray(int(value), dtype=np.int64)
        case Param(name=name):
            return np.asarray(int(values.get(name, 0)), dtype=np.int64)
        case Elem(index=index):
            return sum((_places(i, coordinates, values) for i in index), np.asarray(0, dtype=np.int64))
        case Op(op="cast", args=(inner,)):
            return _places(inner, coordinates, values)
        case Op(op=name, args=(left, right)) if name in _EXACT:
            return _EXACT[name](_places(left, coordinates, values), _places(right, coordinates, values))
        case Op(op=name, args=(left, right)) if name in _DIVIDING:
            divisor = _places(right, coordinates, values)
            return _DIVIDING[name](_places(left, coordinates, values), np.where(divisor == 0, 1, divisor))
        case _:
            return np.asarray(0, dtype=np.int64)
