"""All orders of events of the hand-built GEMM, which are right, and of what is wrong with its order, which are not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from argus.ir.nodes import Kernel
from tests.verify.hopper import gemm
from tests.verify.hopper_mutants import MUTANTS
from tests.verify.interleavings import explore

FENCES_AND_REGISTERS = {"no fence", "no wait before the epilogue"}
"""What is wrong with these is nothing that the order of events shows."""


def explored(kernel: Kernel, k: int) -> str | None:
    return explore(kernel, {"M": 128, "N": 128, "K": k}, [(0, 0)], 20000)


@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("k", [0, 64, 320])
def test_accepted(stages: int, k: int) -> None:
    wrong = explored(gemm(stages), k)
    if stages == 1 and k > 64:
        assert wrong is not None and wrong.startswith("deadlock"), "a buffer comes back an iteration late"
    else:
        assert wrong == ""


@pytest.mark.parametrize("name", sorted(set(MUTANTS) - FENCES_AND_REGISTERS))
def test_rejected(name: str) -> None:
    assert explored(MUTANTS[name](), 448)


def test_too_many_states() -> None:
    kernel = gemm()
    assert explore(kernel, {"M": 128, "N": 128, "K": 640}, [(0, 0)], 10) is None
    assert explored(replace(kernel, barriers=tuple(replace(b, count=1) for b in kernel.barriers)), 640)
