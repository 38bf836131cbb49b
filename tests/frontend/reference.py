"""`al` over NumPy: a kernel's text is Python, so Python itself says what the text means.

Enough of the language for generated programs of one block: constructors, loads and stores, elementwise
functions, reductions, loops. Names, rebinding, aliasing, branches and calls are Python's own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

float32, int32 = np.float32, np.int32
static_range = pipelined = range


class Tile(np.ndarray):
    """An array that converts as tiles do and, unlike NumPy's, is a value: `+=` makes a new one."""

    def __iadd__(self, other: Any) -> Tile:
        return self + other

    def __isub__(self, other: Any) -> Tile:
        return self - other

    def to(self, dtype: type) -> Tile:
        return self.astype(dtype).view(Tile)


def tile(values: Any) -> Any:
    return np.asarray(values).view(Tile)


class Memory:
    """A tensor parameter: a subscript is a place."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.shape = array.shape

    def __getitem__(self, key: Any) -> tuple[np.ndarray, Any]:
        return self.array, key


def load(view: tuple[np.ndarray, Any], mask: Any = None) -> Any:
    array, key = view
    values = np.array(array[key])
    return tile(values if mask is None else np.where(mask, values, values.dtype.type(0)))


def store(view: tuple[np.ndarray, Any], value: Any) -> None:
    array, key = view
    array[key] = value


def arange(n: int) -> Any:
    return tile(np.arange(n, dtype=np.int32))


def zeros(shape: tuple[int, ...], dtype: type) -> Any:
    return tile(np.zeros(shape, dtype))


def full(shape: tuple[int, ...], value: Any, dtype: type) -> Any:
    return tile(np.full(shape, value, dtype))


def maximum(x: Any, y: Any) -> Any:
    return tile(np.maximum(x, y))


def minimum(x: Any, y: Any) -> Any:
    return tile(np.minimum(x, y))


def where(condition: Any, x: Any, y: Any) -> Any:
    return tile(np.where(condition, x, y))


def trans(x: Any) -> Any:
    return np.transpose(x)


def sum(x: Any, axis: int | None = None) -> Any:
    return tile(np.sum(np.asarray(x), axis=axis, dtype=x.dtype))


def max(x: Any, axis: int | None = None) -> Any:
    return tile(np.max(np.asarray(x), axis=axis))
