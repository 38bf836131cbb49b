"""Lane maps of the matrix instructions against the vendors' formulas, as the documents give them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from argus.ir.instruction import MMA
from argus.ir.types import int8
from argus.layout import FragmentLayout

Formula = Callable[[int, int], tuple[int, int]]


def check(fragment: FragmentLayout, formula: Formula) -> None:
    expected = [[formula(t, v) for v in range(fragment.num_values)] for t in range(fragment.num_threads)]
    assert np.array_equal(fragment.coordinates(), np.array(expected))
    assert fragment.covers() and fragment.replication() == 1


def mma16(lane: int, i: int) -> tuple[int, int]:
    """PTX: row and column of a_i of m16n8k16."""
    row = lane // 4 if i < 2 or 4 <= i < 6 else lane // 4 + 8
    return row, (lane % 4) * 2 + (i & 1) + (0 if i < 4 else 8)


def mma32(lane: int, i: int) -> tuple[int, int]:
    """PTX: row and column of a_i of m16n8k32."""
    row = lane // 4 if i < 4 or 8 <= i < 12 else lane // 4 + 8
    return row, (lane % 4) * 4 + (i & 3) + (0 if i < 8 else 16)


def accumulator(lane: int, i: int) -> tuple[int, int]:
    """PTX: row and column of c_i of every m16n8."""
    return (lane // 4 if i < 2 else lane // 4 + 8), (lane % 4) * 2 + (i & 1)


# name: (a over (m, k), b over (n, k), c over (m, n))
NVIDIA: dict[str, tuple[Formula, Formula]] = {
    "mma_m16n8k16": (mma16, lambda t, i: (t // 4, (t % 4) * 2 + (i & 1) + (0 if i < 2 else 8))),
    "mma_m16n8k8": (
        lambda t, i: (t // 4 + (8 if i in (1, 3) else 0), t % 4 + (4 if i >= 2 else 0)),
        lambda t, i: (t // 4, t % 4 + 4 * i),
    ),
    "mma_m16n8k32": (mma32, lambda t, i: (t // 4, (t % 4) * 4 + (i & 3) + (0 if i < 4 else 16))),
    "mma_m16n8k32_fp8": (mma32, lambda t, i: (t // 4, (t % 4) * 4 + (i & 3) + (0 if i < 4 else 16))),
}


@pytest.mark.parametrize("name", NVIDIA)
def test_nvidia_lane_maps(name: str) -> None:
    row = MMA[name]
    a, b = NVIDIA[name]
    check(row.a, a)
    check(row.b, b)
    check(row.c, accumulator)


@pytest.mark.parametrize("name", [name for name in MMA if name.startswith("mfma")])
def test_amd_lane_maps(name: str) -> None:
    row = MMA[name]
    side, k = row.shape[0], row.shape[2]
    run = side * k // 64
    check(row.a, lambda t, v: (t % side, run * (t // side) + v))
    check(row.b, lambda t, v: (t % side, run * (t // side) + v))

    def held(t: int, v: int) -> tuple[int, int]:
        place = 8 * (v // 4) + 4 * (t // side) + v % 4, t % side
        return (place[1], place[0]) if name.endswith("_t") else place

    check(row.c, held)


@pytest.mark.parametrize("name", MMA)
def test_shapes_and_types(name: str) -> None:
    row = MMA[name]
    m, n, k = row.shape
    assert (row.a.shape, row.b.shape, row.c.shape) == ((m, k), (n, k), (m, n))
    assert row.a.num_threads == row.b.num_threads == row.c.num_threads == row.warp_size
    assert row.accumulator.name == ("int32" if int8 in row.operands else "float32")
    assert len({d.bits for d in row.operands}) == 1
