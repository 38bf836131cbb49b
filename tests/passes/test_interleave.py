"""Hints on gfx942: which loops get them, and that they count what a wave issues."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from argus.compile import elaborate
from argus.frontend import Options
from argus.ir.nodes import Accumulate, Barrier, For, Kernel
from argus.ir.ordering import SchedGroup, WavePriority
from argus.ir.visit import walk
from argus.passes import lower
from argus.source import SourceFile
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


@pytest.mark.parametrize(("waves", "levels"), [(8, [1, 0]), (4, [])])
def test_waves_that_share_a_simd_let_others_go_first_at_their_last_sums(waves: int, levels: list[int]) -> None:
    """From before the barrier to the last sums, of the products of the iteration."""
    file = Path("argus/kernels/gated_blocks.py")
    source = SourceFile(str(file), file.read_text(encoding="utf-8"))
    constants = {"ACTIVATION": None, "ROWS": 32 * waves, "COLUMNS": 64}
    kernel = lower(elaborate(source, "gated_block_rows", Options("gfx942", waves, constants)), "gfx942")
    (loop,) = (s for s in walk(kernel.body) if isinstance(s, For))
    assert [s.level for s in walk(loop.body) if isinstance(s, WavePriority)] == levels
    if levels:
        first, last = (n for n, s in enumerate(loop.body) if isinstance(s, WavePriority))
        assert isinstance(loop.body[first + 1], Barrier) and isinstance(loop.body[last + 1], Accumulate)
