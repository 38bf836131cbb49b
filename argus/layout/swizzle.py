"""XOR swizzles, swizzled layouts, and the table of all offsets of a layout."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from argus.layout import inttuple
from argus.layout.core import Layout, flat_modes
from argus.layout.inttuple import IntTuple, LayoutError

IntArray: TypeAlias = NDArray[np.int64]


MAX_BITS = 1024
"""The highest bit of an offset that a swizzle may read or change."""


@dataclass(frozen=True, slots=True)
class Swizzle:
    """CuTe's `Swizzle<bits, base, shift>`, an involution on offsets: `x ^ ((x & yyy) >> shift)`.

    `yyy` is the mask of `bits` ones at bit `base + shift` (at bit `base` when `shift < 0`); its bits
    are XORed into the `bits` bits at `base`:

        0bxxxxYYYxxxZZZxxxx      base = number of x's on the right; shift = distance from ZZZ to YYY

    Requires `bits >= 0`, `base >= 0`, `abs(shift) >= bits` (the masks must not overlap);
    raises `LayoutError` otherwise.
    """

    bits: int
    base: int
    shift: int

    def __post_init__(self) -> None:
        if not all(inttuple.is_int(value) for value in (self.bits, self.base, self.shift)):
            raise LayoutError(f"{self!r}: bits, base and shift must be integers")
        if self.bits < 0 or self.base < 0:
            raise LayoutError(f"{self}: bits and base count bits of an offset, so they cannot be negative")
        if self.bits + self.base + abs(self.shift) > MAX_BITS:
            raise LayoutError(f"{self}: bits, base and shift reach beyond bit {MAX_BITS}; offsets have 62 bits")
        if abs(self.shift) < self.bits:
            raise LayoutError(
                f"{self}: source and target bits overlap because |shift| = {abs(self.shift)} is less than "
                f"bits = {self.bits}; use a shift of at least {self.bits}"
            )

    @property
    def source_mask(self) -> int:
        """The bits that are read (`yyy`)."""
        return ((1 << self.bits) - 1) << (self.base + max(0, self.shift))

    @property
    def target_mask(self) -> int:
        """The bits that are changed (`zzz`)."""
        return ((1 << self.bits) - 1) << (self.base - min(0, self.shift))

    @overload
    def __call__(self, offset: int) -> int: ...
    @overload
    def __call__(self, offset: IntArray) -> IntArray: ...
    def __call__(self, offset: int | IntArray) -> int | IntArray:
        """Return the swizzled offset of an integer, or of each element of an int64 array. Law: `S(S(x)) == x`."""
        source = offset & self.source_mask
        return offset ^ (source >> self.shift if self.shift >= 0 else source << -self.shift)

    def __str__(self) -> str:
        return f"Sw<{self.bits},{self.base},{self.shift}>"


@dataclass(frozen=True, slots=True)
class SwizzledLayout:
    """`swizzle o offset o inner`: the function `c -> swizzle(offset + inner(c))`.

    `inner` and `offset` must be non-negative, so that XOR acts on natural numbers.
    """

    swizzle: Swizzle
    offset: int
    inner: Layout

    def __post_init__(self) -> None:
        if not inttuple.is_int(self.offset) or self.offset < 0:
            raise LayoutError(f"offset {self.offset!r} of a swizzled layout must be a non-negative integer")
        if any(step < 0 for _, step in flat_modes(self.inner)):
            raise LayoutError(f"layout {self.inner} has a negative stride: a swizzle needs offsets from 0 on")

    def __call__(self, *coords: IntTuple) -> int:
        """Offset of a flat index or nested coordinate, as for `Layout`."""
        return self.swizzle(self.offset + self.inner(*coords))

    def size(self) -> int:
        """Return the number of coordinates."""
        return self.inner.size()

    def cosize(self) -> int:
        """Return the largest offset plus one. The result is exact, because the layout's leaves are enumerated."""
        return int(offsets(self).max()) + 1

    @property
    def shape(self) -> IntTuple:
        """The shape of the layout before the swizzle."""
        return self.inner.shape

    @property
    def rank(self) -> int:
        """The number of top-level modes."""
        return self.inner.rank

    @property
    def depth(self) -> int:
        """The depth to which modes are nested."""
        return self.inner.depth

    def __getitem__(self, index: int) -> SwizzledLayout:
        """Top-level mode `index`, the other coordinates being 0."""
        return SwizzledLayout(self.swizzle, self.offset, self.inner[index])

    def __iter__(self) -> Iterator[SwizzledLayout]:
        return (self[i] for i in range(self.rank))

    def __len__(self) -> int:
        return self.rank

    def _repr_html_(self) -> str:
        """Return a picture as a notebook shows it, or the notation where that would be too large."""
        from argus.layout.picture import notebook

        return notebook(self)

    def __str__(self) -> str:
        return f"{self.swizzle} o {self.offset} o {self.inner}"


AnyLayout: TypeAlias = Layout | SwizzledLayout

_LARGEST = 1 << 62


def extremes(layout: AnyLayout) -> tuple[int, int]:
    """Return the smallest and the largest offset. Raises `LayoutError` if a swizzled offset has more than 62 bits."""
    if isinstance(layout, SwizzledLayout):
        found = offsets(layout)
        return int(found.min()), int(found.max())
    reach = [(extent - 1) * step for extent, step in flat_modes(layout)]
    return sum(min(r, 0) for r in reach), sum(max(r, 0) for r in reach)


def offsets(layout: AnyLayout) -> IntArray:
    """int64 offsets of all flat indices, shape `[size]`. Law: `offsets(L)[i] == L(i)`.

    Raises `LayoutError` where an offset has more than 62 bits.
    """
    if isinstance(layout, SwizzledLayout):
        masks = layout.swizzle.source_mask | layout.swizzle.target_mask | layout.offset
        if masks >= _LARGEST:
            raise LayoutError(f"{layout} reaches beyond offsets of 62 bits: no memory is that large")
        return layout.swizzle(layout.offset + offsets(layout.inner))
    low, high = extremes(layout)
    if low <= -_LARGEST or high >= _LARGEST:
        raise LayoutError(f"{layout} reaches beyond offsets of 62 bits: no memory is that large")
    result: IntArray = np.zeros(1, dtype=np.int64)
    for extent, step in flat_modes(layout):
        digits = np.arange(extent, dtype=np.int64) * step
        result = (digits[:, None] + result[None, :]).reshape(-1)
    return result


def table(layout: AnyLayout, shape: tuple[int, ...] | None = None) -> IntArray:
    """int64 offsets of every coordinate of a tile: an array of shape `shape` (default: the mode sizes).

    Top-level mode `i` of the layout, which may be nested, is flattened to array axis `i`, so
    `table(L, shape)[c] == L(c)`. Raises `LayoutError` unless `shape[i]` is the size of mode `i`.
    """
    sizes = tuple(mode.size() for mode in layout)
    if shape is not None and tuple(shape) != sizes:
        raise LayoutError(
            f"layout {layout} describes a tile of shape {sizes}, not {tuple(shape)}: "
            "each top-level mode must have the size of its tile dimension"
        )
    return np.ascontiguousarray(offsets(layout).reshape(sizes[::-1]).T)
