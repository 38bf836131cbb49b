"""Places of elements: registers by the digits of threads and values, shared tiles by shapes and strides."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod

from argus.ir.nodes import Shared
from argus.layout import AnyLayout, FragmentLayout, Layout
from argus.layout.core import flat_modes
from argus.layout.swizzle import SwizzledLayout


def held(layout: FragmentLayout, thread: int, value: int) -> tuple[int, ...]:
    """Return the coordinates of the element in register `value` of `thread`: each digit moves along one dimension."""
    place = [0] * len(layout.shape)
    for number, modes in ((thread, layout.threads), (value, layout.values)):
        for mode in modes:
            number, digit = divmod(number, mode.extent)
            if mode.dim is not None:
                place[mode.dim] += digit * mode.stride
    return tuple(place)


def threads_of(layout: FragmentLayout) -> int:
    """Return the number of threads that the layout spreads its tile over."""
    return prod(mode.extent for mode in layout.threads)


def values_of(layout: FragmentLayout) -> int:
    """Return the number of registers of each thread."""
    return prod(mode.extent for mode in layout.values)


def registers(layout: FragmentLayout) -> Iterator[tuple[tuple[int, int], tuple[int, ...]]]:
    """Yield each register as (thread, value), with the coordinates of its element, threads in order."""
    for thread, value in product(range(threads_of(layout)), range(values_of(layout))):
        yield (thread, value), held(layout, thread, value)


def offset(layout: AnyLayout, index: tuple[int, ...]) -> int:
    """Return the offset, in elements, of the element at `index` of a shared tile."""
    if isinstance(layout, SwizzledLayout):
        start = layout.offset + _strided(layout.inner, index)
        bits, base, shift = layout.swizzle.bits, layout.swizzle.base, layout.swizzle.shift
        chosen = start >> (base + max(shift, 0)) & (1 << bits) - 1
        return start ^ chosen << (base + max(-shift, 0))
    return _strided(layout, index)


def _strided(layout: Layout, index: tuple[int, ...]) -> int:
    """Return the sum of digits times strides. The first extent of a dimension is the fastest one."""
    total = 0
    for dim, place in enumerate(index):
        for extent, stride in flat_modes(layout[dim]):
            place, digit = divmod(place, extent)
            total += digit * stride
    return total


def elements(tile: Shared) -> Iterator[int]:
    """Yield the offset of each element of a shared tile."""
    assert tile.layout is not None
    for index in product(*(range(extent) for extent in tile.shape)):
        yield offset(tile.layout, index)
