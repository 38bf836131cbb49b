"""Choose the layout of a scratch tile that is written in one register layout and read in another.

The candidates have either dimension contiguous, and swizzles of 4 to 32 bytes. They are compared by the shared-memory
passes that one warp needs to write and to read its part. Among equals, the wider vectors win.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

import numpy as np

from argus.ir.target import Target
from argus.layout import AnyLayout, FragmentLayout, Layout, Swizzle, SwizzledLayout
from argus.layout.analysis import AMD_LDS, AMD_LDS_WRITE, NVIDIA_SHARED, BankModel, access_conflicts
from argus.layout.swizzle import table
from argus.passes.moves import fast_axis, runs
from argus.passes.tiles import swizzle

_WIDEST = 16  # bytes of one access
_UNITS = (16, 32, 8, 4)  # bytes that a swizzle moves together, in order of preference


def scratch_layout(
    shape: tuple[int, ...], itemsize: int, writer: FragmentLayout, reader: FragmentLayout, target: Target
) -> AnyLayout:
    """Return the candidate with the fewest passes for one warp. A shape of one dimension stays compact."""
    models = (AMD_LDS_WRITE, AMD_LDS) if target.vendor == "amd" else (NVIDIA_SHARED, NVIDIA_SHARED)

    def cost(layout: AnyLayout) -> int:
        return sum(
            _passes(layout, shape, itemsize, side, target.warp_size, model)
            for side, model in zip((writer, reader), models, strict=True)
        )

    return min(_candidates(shape, itemsize), key=cost)


def _candidates(shape: tuple[int, ...], itemsize: int) -> Iterator[AnyLayout]:
    dims = [d for d in reversed(range(len(shape))) if shape[d] > 1]
    rest = [d for d in range(len(shape)) if shape[d] == 1]
    orders = [tuple(dims)] if len(dims) < 2 else [p for p in permutations(dims) if sorted(p[1:]) == list(p[1:])[::-1]]
    for order in orders or [()]:
        strides = [0] * len(shape)
        step = 1
        for dim in (*order, *rest):
            strides[dim] = step
            step *= shape[dim]
        inner = Layout(tuple(shape), tuple(strides)) if shape else Layout(1, 0)
        yield inner
        if len(dims) < 2:
            continue
        row = shape[order[0]] * itemsize
        for unit in _UNITS:
            found: Swizzle | None = swizzle(row, itemsize, unit)
            if found is not None:
                yield SwizzledLayout(found, 0, inner)


def _passes(
    layout: AnyLayout, shape: tuple[int, ...], itemsize: int, side: FragmentLayout, lanes: int, model: BankModel
) -> int:
    """Count the passes of the first warp's accesses to the whole tile, with the widest vectors that fit."""
    offsets = table(layout, shape) if shape else np.zeros((), dtype=np.int64)
    width = max(
        w
        for w in (1, 2, 4, 8, 16)
        if w == 1 or (w * itemsize <= _WIDEST and (axis := fast_axis(side, w)) is not None and runs(offsets, axis, w))
    )
    cells = side.linear()[:lanes, ::width]
    addresses = offsets.reshape(-1)[cells] * itemsize
    holds = side.primary()[:lanes, ::width]
    total = 0
    for value in range(addresses.shape[1]):
        active = holds[:, value] if holds[:, value].any() else None
        total += access_conflicts(addresses[:, value], width * itemsize, model, active).wavefronts
    return total
