"""Hints on gfx942: which loops get them, and that they count what a wave issues."""

from __future__ import annotations

from collections import Counter

import pytest

from argus.ir.nodes import For, Kernel
from argus.ir.ordering import SchedGroup
from argus.ir.visit import walk
from argus.passes import lower
from tests.passes import kernels

PRODUCT, LOAD, READ, WRITE = 0x8, 0x20, 0x100, 0x200


def hints(kernel: Kernel) -> Counter[int]:
    """Instructions in hints, by their kind."""
    found: Counter[int] = Counter()
    for loop in walk(kernel.body):
        for s in loop.body if isinstance(loop, For) else ():
            if isinstance(s, SchedGroup):
                found[s.mask] += s.size
    return found


def test_everything_that_a_wave_issues_is_counted() -> None:
    """Four waves, each with 64 x 64 of the tile. A thread loads 16 bytes twice for each tile, and stores 8 at a time; a
    step reads 8 bytes twice for each operand, as one instruction."""
    kernel = lower(kernels.gemm((128, 128, 32), stages=2, warp_size=64), "gfx942")
    steps = 32 // 8
    assert hints(kernel) == {PRODUCT: 4 * steps, LOAD: 2 * 2, READ: 2 * steps, WRITE: 2 * 4}


@pytest.mark.parametrize(
    ("tile", "stages", "target"),
    [
        pytest.param((64, 64, 16), 2, "gfx942", id="too few products"),
        pytest.param((128, 128, 32), 3, "gfx942", id="loads straight to LDS"),
        pytest.param((128, 128, 32), 2, "sm_80", id="another target"),
    ],
)
def test_loops_without_hints(tile: tuple[int, int, int], stages: int, target: str) -> None:
    kernel = lower(kernels.gemm(tile, stages=stages, warp_size=64 if target == "gfx942" else 32), target)
    assert not hints(kernel)
