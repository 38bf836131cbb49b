"""Tensor maps of the host: the contents of a CUtensorMap in Argus's own layout."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from argus.ir.pixels import Pixels
from argus.ir.types import DType

# The layout of `struct TensorMap` in fibers.h: base, strides (bytes), extents, box, rank, bytes of an element, swizzle;
# of places of pixels: counts, first places, strides.
_LAYOUT = struct.Struct("=Q5q5i5i3i3i3h3h4x")


def encode(
    dtype: DType,
    address: int,
    extents: Sequence[int],
    strides_bytes: Sequence[int],
    box: Sequence[int],
    swizzle_bytes: int,
    pixels: Pixels | None = None,
) -> bytes:
    """Return the 128 bytes of a host tensor map.

    All sequences are in the tensor's own order of dimensions; the last dimension is contiguous.
    """
    rank = len(extents)

    def innermost_first(values: Sequence[int]) -> tuple[int, ...]:
        return (*reversed(values), *(0,) * (5 - len(values)))

    dimensions = (innermost_first(strides_bytes), innermost_first(extents), innermost_first(box))
    places = () if pixels is None else (pixels.counts, pixels.lower, pixels.strides)
    along = (x for d in places for x in innermost_first(d)[:3])
    numbers = (*(x for d in dimensions for x in d), rank, dtype.bytes, swizzle_bytes)
    return _LAYOUT.pack(address, *numbers, *(along if places else (0,) * 9))
