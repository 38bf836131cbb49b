"""Sizes to try kernels at: what preconditions and units leave."""

from __future__ import annotations

from pathlib import Path

import pytest

import argus.kernels
from argus.compile import elaborate, lower
from argus.frontend import Options
from argus.ir.nodes import Kernel
from argus.ir.types import float8_e4m3fn
from argus.simulate.sizes import admissible, longer, size_vectors
from argus.source import SourceFile

KERNELS = Path(argus.kernels.__file__).parent


def explicit(name: str, kernel: str, **constants: object) -> Kernel:
    path = KERNELS / f"{name}.py"
    source = SourceFile(str(path), path.read_text(encoding="utf-8"))
    return lower(elaborate(source, kernel, Options("sm_90a", constexprs=constants)), "sm_90a")


@pytest.mark.parametrize(("parts", "kinds"), [({}, 2), ({"PARTS": 2, "SPAN": 512}, 2)])
def test_longer_sizes_keep_what_the_kernel_requires(parts: dict[str, int], kinds: int) -> None:
    kernel = explicit("attention", "attention_forward", **parts)
    found = list(longer(kernel, {"B": 1, "H": 1, "M": 4, "HK": 1, "N": 1, "P": 1}, 520))
    assert len(found) == kinds and all(admissible(kernel, sizes) for sizes in found)
    assert all(sizes["N"] >= 520 and sizes["P"] == parts.get("PARTS", 1) for sizes in found)
    assert found[0]["M"] == 4 and found[-1]["M"] >= 520
    assert (found[0]["B"], found[0]["H"]) == (1, 1) and (found[-1]["B"], found[-1]["H"]) == (2, 2)


def test_longer_sizes_are_multiples_of_the_alignment() -> None:
    """Rows of 8-bit operands are multiples of 16: 528, where 520 would do for longer elements."""
    kernel = explicit("gemm", "gemm", IN=float8_e4m3fn, MULTIPLY=float8_e4m3fn, BLOCK_K=128)
    assert {sizes["K"] for sizes in longer(kernel, {"M": 1, "N": 8, "K": 16}, 520)} == {528}


def test_a_size_that_others_determine_is_a_multiple_of_its_unit() -> None:
    """`E1 == E + 1` offsets of 4 bytes in rows that are aligned to 16: 3 experts, not 1 or 2."""
    kernel = explicit("experts_backward", "weight_gradients")
    found = size_vectors(kernel)
    assert len(found) > 3 and all(admissible(kernel, sizes) for sizes in found)
    assert {(sizes["E1"], sizes["E"]) for sizes in found} == {(4, 3)}
