"""What a block loads, or computes from its program ids, may differ from block to block: races and coverage know it."""

from __future__ import annotations

import pytest

from argus.diagnostic import Verdict
from argus.ir.nodes import Kernel
from argus.ir.text import parse_kernel
from argus.simulate import replay
from argus.verify import verify

SHIFTED = """
kernel shifted
target sm_80
warps 1 of 32
size M
tensor at: int32[2] strides [1:int64] align 4
tensor out: float32[64] strides [1:int64] align 4
grid [2]
requires M < 1000
in_range at from 0 to 2
fragment n: int32 () layout [() | t 32@_ | v]
fragment r: float32 32 layout [32 | t 32@0 | v]
body {
  copy n[] <- at[program_id(0)] shape () layout [() | t 32@_ | v] via ld.global
  map r[c0] = 1.0 shape 32 layout [32 | t 32@0 | v] scope thread
  copy out[(program_id(0) * 32 + OFFSET + c0) % 64] <- r[c0] shape 32 layout [32 | t 32@0 | v] via st.global
}
"""
"""Two blocks write halves of `out`, each shifted by OFFSET: whole and apart if that is the same for both."""


def shifted(offset: str) -> Kernel:
    return parse_kernel(SHIFTED.replace("OFFSET", offset))


@pytest.mark.parametrize("offset", ["0", "32", "M % 2 * 32"])
def test_one_shift_for_all_blocks(offset: str) -> None:
    report = verify(shifted(offset))
    assert report.verdict is Verdict.PROVED, report.diagnostics


@pytest.mark.parametrize("offset", ["n[] * 32", "M * program_id(0) % 2 * 32"])
def test_a_shift_of_its_own_for_each_block(offset: str) -> None:
    kernel = shifted(offset)
    assert replay(kernel, {"M": 1}, None), "two blocks write one half"
    report = verify(kernel)
    assert report.verdict is not Verdict.PROVED
    assert {d.code for d in report.diagnostics} >= {"block-races-unknown"}, report.diagnostics


FOUR = """
kernel four
target sm_80
warps 1 of 32
size A
size B
size C
size D
tensor out: float32[A, B, C, D, 32] strides [a:int64, b:int64, c:int64, d:int64, 1:int64] align 4
grid [D, C, B, A] flat
fragment r: float32 32 layout [32 | t 32@0 | v]
body {
  map r[c0] = 1.0 shape 32 layout [32 | t 32@0 | v] scope thread
  copy out[FIRST, program_id(2), PLACE] <- r[c0] shape 32 layout [32 | t 32@0 | v] via st.global
}
""".replace("PLACE", "program_id(1), program_id(0), c0")


def test_axes_of_a_grid_are_as_many_as_it_declares() -> None:
    kernel = parse_kernel(FOUR.replace("FIRST", "program_id(3)"))
    assert verify(kernel).verdict is Verdict.PROVED
    wrong = parse_kernel(FOUR.replace("FIRST", "program_id(3) // 2"))
    report = verify(wrong)
    assert {d.code for d in report.diagnostics} >= {"block-race", "output-not-covered"}, report.diagnostics
    assert all(d.verdict is Verdict.REFUTED for d in report.diagnostics)
    assert replay(wrong, {"A": 2, "B": 1, "C": 1, "D": 1}, None)


WITHOUT_GRID = """
kernel copies
target sm_80
warps 1 of 32
tensor out: float32[32] strides [1:int64] align 4
fragment r: float32 32 layout [32 | t 32@0 | v]
body {
  map r[c0] = 1.0 shape 32 layout [32 | t 32@0 | v] scope thread
  copy out[c0] <- r[c0] shape 32 layout [32 | t 32@0 | v] via st.global
}
"""


def test_blocks_of_an_undeclared_grid_differ_along_an_axis_that_is_shown() -> None:
    (found,) = (d for d in verify(parse_kernel(WITHOUT_GRID)).diagnostics if d.code == "block-race")
    assert found.witness is not None and found.witness.replayed and "say how many programs" in found.help
    assert found.witness.block == (0, 0, 1) and found.witness.other is not None
    assert found.witness.other["block"] == [0, 0, 0]
    assert verify(parse_kernel(WITHOUT_GRID.replace("fragment", "grid [1]\nfragment"))).verdict is Verdict.PROVED
