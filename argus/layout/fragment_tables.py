"""Modes of register tiles, and the NumPy tables derived from them (cached, shared, read-only)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from argus.layout.inttuple import LayoutError, is_int

Shape: TypeAlias = tuple[int, ...]
_Scalar = TypeVar("_Scalar", bound=np.generic)
_CACHED = 256


@dataclass(frozen=True, slots=True)
class Mode:
    """One digit of a thread or value index: `extent` steps of `stride` elements along dimension `dim`.

    `dim=None` is a replicated digit: it moves nowhere, and its stride reads 0 whatever was given.
    Printed `8@1*2` (stride 1 left out), replicated `8@_`. Raises `LayoutError` for an extent below 1, a
    negative dimension, or a stride below 1 along a dimension.
    """

    extent: int
    dim: int | None
    stride: int = 1

    def __post_init__(self) -> None:
        if not is_int(self.extent) or self.extent < 1:
            raise LayoutError(f"mode extent {self.extent!r} must be a positive integer")
        if self.dim is None:
            object.__setattr__(self, "stride", 0)
            return
        if not is_int(self.dim) or self.dim < 0:
            raise LayoutError(f"mode dimension {self.dim!r} must be an integer >= 0, or None to replicate")
        if not is_int(self.stride) or self.stride < 1:
            raise LayoutError(
                f"mode stride {self.stride!r} must be a positive integer; write dim=None for a mode that moves nowhere"
            )

    def __str__(self) -> str:
        if self.dim is None:
            return f"{self.extent}@_"
        return f"{self.extent}@{self.dim}" + (f"*{self.stride}" if self.stride != 1 else "")


Modes: TypeAlias = tuple[Mode, ...]


def _frozen(array: NDArray[_Scalar]) -> NDArray[_Scalar]:
    array.setflags(write=False)
    return array


def _along(modes: Modes, dim: int) -> NDArray[np.int64]:
    """int64 `[product of extents]`: the coordinate along `dim` for every index of the modes."""
    result = np.zeros(1, dtype=np.int64)
    for mode in modes:
        step = mode.stride if mode.dim == dim else 0
        result = (np.arange(mode.extent, dtype=np.int64)[:, None] * step + result[None, :]).reshape(-1)
    return result


@lru_cache(maxsize=_CACHED)
def coordinates(shape: Shape, threads: Modes, values: Modes) -> NDArray[np.int32]:
    """int32 `[T, V, rank]`."""
    size = (prod(m.extent for m in threads), prod(m.extent for m in values))
    result = np.zeros((*size, len(shape)), dtype=np.int32)
    for dim in range(len(shape)):
        result[:, :, dim] = _along(threads, dim)[:, None] + _along(values, dim)[None, :]
    return _frozen(result)


@lru_cache(maxsize=_CACHED)
def linear(shape: Shape, threads: Modes, values: Modes) -> NDArray[np.int64]:
    """int64 `[T, V]`: row-major element index."""
    size = (prod(m.extent for m in threads), prod(m.extent for m in values))
    result = np.zeros(size, dtype=np.int64)
    for dim, extent in enumerate(shape):
        result *= extent
        result += _along(threads, dim)[:, None] + _along(values, dim)[None, :]
    return _frozen(result)


@lru_cache(maxsize=_CACHED)
def counts(shape: Shape, threads: Modes, values: Modes) -> NDArray[np.int64]:
    """int64 of the tile's shape: registers per element."""
    index = linear(shape, threads, values).reshape(-1)
    return _frozen(np.bincount(index, minlength=prod(shape)).astype(np.int64).reshape(shape))


@lru_cache(maxsize=_CACHED)
def primary(shape: Shape, threads: Modes, values: Modes) -> NDArray[np.bool_]:
    """bool `[T, V]`: the first holder of each element in (thread, value) order."""
    index = linear(shape, threads, values)
    result = np.zeros(index.size, dtype=np.bool_)
    result[np.unique(index.reshape(-1), return_index=True)[1]] = True
    return _frozen(result.reshape(index.shape))


@lru_cache(maxsize=_CACHED)
def locate(shape: Shape, threads: Modes, values: Modes) -> NDArray[np.int32]:
    """int32 `[T, *shape]`: lowest value holding the element in that thread, or -1."""
    index = linear(shape, threads, values)
    result = np.full((index.shape[0], prod(shape)), -1, dtype=np.int32)
    rows = np.arange(index.shape[0])
    for value in range(index.shape[1] - 1, -1, -1):
        result[rows, index[:, value]] = value
    return _frozen(result.reshape((index.shape[0], *shape)))
