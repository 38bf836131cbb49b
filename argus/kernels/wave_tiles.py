"""Choose the tile of a matrix product on gfx942: the one with the fewest cycles by the machine's rates.

The model is not calibrated by measurements. A step of a tile takes as long as the slower of the matrix units and LDS.
Operands are written to LDS once, and every wave reads them; blocks of a compute unit run one after the other. Sums that
are cut into parts take a second launch, and the parts are written to memory and read again.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from argus.ir.machine import MI300X

_SHAPES = (
    (256, 256, 8),
    (256, 128, 8),
    (128, 256, 8),
    (128, 128, 4),
    (128, 64, 4),
    (64, 128, 4),
    (64, 64, 4),
    (32, 32, 1),
)
"""Rows, columns and waves of a block's tile."""
_BUFFERS = 2
_DEPTH = 64  # bytes of k in each row that one step multiplies
_AROUND = 4000.0  # cycles of a block outside its products: before the first and after the last
_COMBINE_S = 6e-6  # of the launch that adds parts, without its bytes: assumed
_PARTED_BLOCKS = 2 * MI300X.multiprocessors
_MOST_PARTS = 64


def wave_shapes(bits: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield the rows, columns, depth and waves of tiles whose buffers fit LDS, for operands of `bits` bits."""
    for rows, columns, waves in _SHAPES:
        if _BUFFERS * (rows + columns) * _DEPTH <= MI300X.block_shared_bytes:
            yield rows, columns, _DEPTH * 8 // bits, waves


def wave_parts(shape: tuple[int, int, int, int], m: int, n: int, k: int) -> Iterator[int]:
    """Yield the terms of a part of the sum, if tiles of `shape` leave most compute units idle: whole steps, two lengths
    for each power of two, so that sums of many lengths share kernels."""
    rows, columns, depth, _ = shape
    blocks, steps, unit = ceil(m / rows) * ceil(n / columns), ceil(k / depth), 4
    while unit < steps:
        for length in (unit, unit * 3 // 2):
            if 2 <= ceil(steps / length) <= min(_MOST_PARTS, _PARTED_BLOCKS // max(blocks, 1)):
                yield length * depth
        unit *= 2


def wave_seconds(
    shape: tuple[int, int, int, int], m: int, n: int, k: int, batch: int, bits: int, part: int = 0
) -> float:
    """Estimate the seconds of `batch` products c[m, n] = a[m, k] b[n, k] in tiles of `shape`.

    `part`: the terms of each part of the sum, or 0 if the sum is not cut.
    """
    if part:
        parts = ceil(k / part)
        moved = m * n * (2 * 4 * parts + 2) / MI300X.memory_bytes_s
        return wave_seconds(shape, m, n, part, batch * parts, bits) + _COMBINE_S + moved
    rows, columns, depth, waves = shape
    blocks = ceil(m / rows) * ceil(n / columns) * batch
    resident = max(MI300X.shared_bytes // (_BUFFERS * (rows + columns) * _DEPTH), 1)
    across = max(d for d in range(1, waves + 1) if waves % d == 0 and d * d <= waves)
    read = (across * rows + waves // across * columns) * _DEPTH
    flops = 2.0 * rows * columns * depth
    step = max(flops / MI300X.matrix_rate(bits), ((rows + columns) * _DEPTH + read) / MI300X.shared_rate)
    rounds = ceil(blocks / MI300X.multiprocessors)
    each = ceil(k / depth) * step * max(1.0, 4 / waves / resident)
    return (rounds * each + ceil(rounds / resident) * _AROUND) / MI300X.clock_hz
