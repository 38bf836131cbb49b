"""No product of a kernel that ships waits for another on sm_90a, and nothing is kept in memory beyond what is listed.

ptxas remarks on both (`argus/backend/remarks.py`). Every form that the library calls is built.
"""

from __future__ import annotations

from typing import Any

import pytest

from argus.backend.artifact import SERIALISED
from argus.backend.build import build
from argus.backend.cuda.toolchain import find_compiler
from benchmarks.nvidia_built import TARGET, Built, kernels
from tests.conftest import require

SPILLS = {
    "attention_backward_keys, 64": 12,
    "attention_backward_keys, 64 causal": 24,
    "attention_backward_keys, 64 window": 36,
    "attention_backward_keys, 64 shared": 8,
    "attention_backward_blocks, 64": 44,
    "attention_backward_blocks, 64 shared": 44,
}
"""Bytes of a thread that are in memory, at most. These kernels are faster than those of half as many rows a turn."""

QUICK = {"expert_rows, 8 rows an expert", "product_of_blocks, 64 rows"}
"""The kernel whose products wait unless it is compiled a second time, and one whose products run beside the scaling of
another's sums."""


def form(built: Built) -> Any:
    return pytest.param(built, marks=() if built.title in QUICK else (pytest.mark.nightly,), id=built.title)


@pytest.mark.slow
@pytest.mark.parametrize("built", [form(built) for built in kernels()])
def test_no_product_waits_and_nothing_spills(built: Built) -> None:
    require(find_compiler(), "NVRTC or nvcc")
    artifact = build(built.lowered(), TARGET)
    assert artifact.resources is not None and artifact.resources.spill_bytes is not None
    assert [d.message for d in artifact.remarks if d.code == SERIALISED] == []
    assert artifact.resources.spill_bytes <= SPILLS.get(built.title, 0)


def test_the_lists_name_kernels() -> None:
    titles = {built.title for built in kernels()}
    assert titles >= QUICK and titles >= set(SPILLS)
