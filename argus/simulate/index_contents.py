"""Draw contents of index tensors that satisfy their declarations, at concrete sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from argus.ir.contents import arrangements, offence, ranges
from argus.ir.nodes import Kernel, Tensor
from argus.simulate.evaluate import Number
from argus.simulate.launch import scalar

Ints = NDArray[np.int64]
_SPARE = 8
"""Number of additional candidates among which distinct numbers are chosen."""


@dataclass(frozen=True, slots=True)
class Declared:
    """The values that a tensor may hold: integers of [low, high), arranged according to `how`.

    `total` and `longest` describe offsets.
    """

    low: int
    high: int
    how: frozenset[str] = frozenset()
    total: int = 0
    longest: int | None = None

    def possible(self, shape: tuple[int, ...]) -> bool:
        """Return True if a tensor of that shape can hold contents as declared."""
        count = prod(shape)
        if "offsets" in self.how:
            most = self.total if self.longest is None else self.longest * (count - 1)
            return count > 0 and self.total >= 0 and self.total <= (most if count > 1 else 0)
        room = self.high - self.low
        return count == 0 or room >= (count if self.how & {"distinct", "permutation"} else 1)

    def kept(self, values: Ints) -> bool:
        """Return True if `values` are as declared."""
        inside = not values.size or (self.low <= values.min() and values.max() < self.high)
        return inside and not any(offence(how, values, self.total, self.longest) for how in self.how)


def declared(kernel: Kernel, tensor: Tensor, params: Mapping[str, Number]) -> Declared | None:
    """Return the declarations about a tensor's contents, or None if there are none."""
    within = [(int(scalar(r.lo, params)), int(scalar(r.hi, params))) for r in ranges(kernel, tensor.name)]
    facts = arrangements(kernel, tensor.name)
    if not within and not facts:
        return None
    low, high = max((lo for lo, _ in within), default=-3), min((hi for _, hi in within), default=0)
    if not within:  # Only an order is declared, so any numbers will do, if there are enough distinct ones.
        high = low + prod(int(scalar(e, params)) for e in tensor.shape) + _SPARE
    totals = [int(scalar(p.total, params)) for p in facts if p.total is not None]
    limits = [int(scalar(p.longest, params)) for p in facts if p.longest is not None]
    how = frozenset(p.how for p in facts)
    return Declared(low, high, how, totals[0] if totals else 0, min(limits, default=None))


def drawn(
    what: Declared, shape: tuple[int, ...], noise: Callable[[int], NDArray[np.uint64]], given: Mapping[int, int]
) -> Ints | None:
    """Return contents that satisfy the declaration and have the `given` values at some row-major places, or None if
    none were found.

    `noise(n)` returns n pseudo-random numbers.
    """
    count = prod(shape)
    if not what.possible(shape):
        return None
    if "offsets" in what.how:
        values = _offsets(what, count, noise, given)
    elif what.how & {"distinct", "permutation"}:
        values = _distinct(what, count, noise, given)
    else:
        values = (noise(count) % np.uint64(max(1, what.high - what.low))).astype(np.int64) + what.low
    if values is None:
        return None
    values = values.reshape(shape)
    if "sorted" in what.how:
        values = np.sort(values, axis=-1)
    if given:
        values = values.reshape(-1)
        values[list(given)] = list(given.values())
        values = _between(values.reshape(shape), given) if "sorted" in what.how else values.reshape(shape)
    return values if what.kept(values) else None


def _offsets(
    what: Declared, count: int, noise: Callable[[int], NDArray[np.uint64]], given: Mapping[int, int]
) -> Ints | None:
    """Return offsets that cut [0, total] and contain the given ones. Each is as close to a random cut as the limits
    allow."""
    if count == 0:
        return None
    fixed = {**given, 0: 0, count - 1: what.total}
    most = what.longest if what.longest is not None else max(0, what.total)
    wished = np.sort((noise(count) % np.uint64(max(0, what.total) + 1)).astype(np.int64))
    low, high = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    for place in range(count):  # the range that the earlier cuts leave
        low[place] = fixed.get(place, low[place - 1] if place else 0)
        high[place] = fixed.get(place, high[place - 1] + most if place else 0)
    for place in reversed(range(count - 1)):  # and the range that the later cuts leave
        low[place] = max(low[place], low[place + 1] - most)
        high[place] = min(high[place], high[place + 1])
    values = np.zeros(count, dtype=np.int64)
    for place in range(count):
        least = max(low[place], values[place - 1] if place else 0)
        values[place] = min(max(wished[place], least), high[place], values[place - 1] + most if place else 0)
    return values


def _distinct(
    what: Declared, count: int, noise: Callable[[int], NDArray[np.uint64]], given: Mapping[int, int]
) -> Ints | None:
    room = what.high - what.low
    if room < count:
        return None
    chosen = np.argsort(noise(min(room, 2 * count + _SPARE)), kind="stable")[:count].astype(np.int64) + what.low
    for place, value in given.items():
        chosen[chosen == value] = chosen[place]
        chosen[place] = value
    return chosen


def _between(values: Ints, given: Mapping[int, int]) -> Ints:
    """Return sorted values, moved as far as the given values require."""
    row = values.shape[-1]
    flat = values.reshape(-1)
    for place, value in given.items():
        start, end = place // row * row, place // row * row + row
        np.minimum(flat[start:place], value, out=flat[start:place])
        np.maximum(flat[place + 1 : end], value, out=flat[place + 1 : end])
    flat[list(given)] = list(given.values())
    return flat.reshape(values.shape)
