"""No kernel that ships keeps anything in memory that belongs into registers, on gfx942.

What the code objects say themselves is read: clang's notes of each kernel.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from argus.backend.build import build
from argus.backend.hip.toolchain import find_compiler
from benchmarks.amd_built import ELSEWHERE, KERNELS, lowered
from tests.conftest import CLUSTER_EXAMPLES, NVIDIA_EXAMPLES, require
from tests.machine.kernels import notes

IN_LANES = {"place_pairs": 49, "product_of_packed": 2, "examples/gemm.py": 24}
"""Kernels with more masks than scalar registers: so many of these are kept in lanes of a vector register, at most."""

QUICK = {"rmsnorm_rows", "layernorm_long_rows", "reduce_last", "topk_rows", "expert_rows", "place_pairs"}


def kernel(file: str, name: str, alignment: int) -> Any:
    marks = () if name in QUICK else (pytest.mark.nightly,)
    return pytest.param(file, name, alignment, marks=marks, id=f"{Path(file).stem}-{name}")


@pytest.mark.slow
@pytest.mark.parametrize(("file", "name", "alignment"), [kernel(*k) for k in KERNELS])
def test_nothing_spills(file: str, name: str, alignment: int) -> None:
    require(find_compiler(), "clang 17 or newer")
    binary = build(lowered(file, name, alignment), "gfx942").binary
    assert binary is not None
    found = notes(binary)
    assert (found["vgpr_spill_count"], found["private_segment_fixed_size"]) == (0, 0)
    assert found["sgpr_spill_count"] <= IN_LANES.get(name if file.startswith("argus/kernels") else file, 0)


def test_what_is_left_out_names_other_instructions() -> None:
    assert ELSEWHERE == NVIDIA_EXAMPLES | CLUSTER_EXAMPLES
