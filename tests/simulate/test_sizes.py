"""Sizes to try kernels at: what preconditions and units leave."""

from __future__ import annotations

from pathlib import Path

import pytest

import argus.kernels
from argus.compile import elaborate, lower
from argus.frontend import Options
from argus.ir.nodes import Kernel
from argus.ir.text import parse_kernel
from argus.ir.types import float8_e4m3fn
from argus.simulate.sizes import admissible, round_the_rings, several_programs, size_vectors
from argus.source import SourceFile

KERNELS = Path(argus.kernels.__file__).parent


def explicit(name: str, kernel: str, num_warps: int | None = None, **constants: object) -> Kernel:
    path = KERNELS / f"{name}.py"
    source = SourceFile(str(path), path.read_text(encoding="utf-8"))
    return lower(elaborate(source, kernel, Options("sm_90a", num_warps=num_warps, constexprs=constants)), "sm_90a")


SMALLEST = {"B": 1, "H": 1, "M": 4, "HK": 1, "N": 1, "P": 1}


@pytest.mark.parametrize("parts", [{}, {"PARTS": 2, "SPAN": 512}])
def test_loops_go_round_the_rings(parts: dict[str, int]) -> None:
    """Rings of two tiles of 128 keys are in their second round after three iterations; the fourth has one key."""
    kernel = explicit("attention", "attention_forward", **parts)
    found = round_the_rings(kernel, SMALLEST)
    assert found is not None and admissible(kernel, found)
    assert found == {**SMALLEST, "N": 385, "P": parts.get("PARTS", 1)}


def test_a_block_runs_several_programs() -> None:
    kernel = explicit("attention", "attention_forward")
    found = several_programs(kernel, SMALLEST)
    assert found == {**SMALLEST, "B": 2, "H": 2, "HK": 2, "N": 256}, "four programs of one tile of queries"
    in_turns = several_programs(explicit("gemm", "gemm", 4, SCHEDULE="pingpong", BLOCK_N=192), {"M": 1, "N": 8, "K": 0})
    assert in_turns == {"M": 257, "N": 392, "K": 128}, "nine programs, of which each of two roles has four"


def test_raised_sizes_are_multiples_of_the_alignment() -> None:
    """Rows of 8-bit operands are multiples of 16: 528, where 520 would do for longer elements."""
    kernel = explicit("gemm", "gemm", IN=float8_e4m3fn, MULTIPLY=float8_e4m3fn, BLOCK_K=128)
    found = round_the_rings(kernel, {"M": 1, "N": 8, "K": 16})
    assert found is not None and found["K"] % 16 == 0 and found["K"] > 512


def test_a_size_that_others_determine_is_a_multiple_of_its_unit() -> None:
    """`E1 == E + 1` offsets of 4 bytes in rows that are aligned to 16: 3 experts, not 1 or 2."""
    kernel = explicit("experts_backward", "weight_gradients")
    found = size_vectors(kernel)
    assert len(found) > 3 and all(admissible(kernel, sizes) for sizes in found)
    assert {(sizes["E1"], sizes["E"]) for sizes in found} == {(4, 3)}


COMPUTED = """
kernel computed
target sm_90a
warps 1 of 32
size K
tensor x: float32[K, 32] strides [32:int64, 1:int64] align 4
tensor out: float32[32] strides [1:int64] align 4
grid [1]
shared s: float32 4x1x32 layout (4,1,32):(32,32,1) at 0
fragment deep: int32 () layout [() | t 32@_ | v]
fragment r: float32 32 layout [32 | t 32@0 | v]
body {
  map deep[] = where(program_id(0) < 1, K, 0) shape () layout [() | t 32@_ | v] scope thread
  for n in 0 .. deep[] step 8 {
    copy r[c0] <- x[n, c0] shape 32 layout [32 | t 32@0 | v] via ld.global
  }
  copy out[c0] <- r[c0] shape 32 layout [32 | t 32@0 | v] via st.global
}
"""


def test_a_loop_up_to_a_computed_number_goes_round_the_rings() -> None:
    assert round_the_rings(parse_kernel(COMPUTED), {"K": 1}) == {"K": 5 * 8 + 1}
