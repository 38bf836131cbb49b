"""Sums over lanes that loops carry: which meet behind the loop, and what they come to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from argus.frontend import Options, check, parse
from argus.ir.nodes import Accumulate, For, Kernel
from argus.ir.visit import walk
from argus.passes import lower
from argus.source import SourceFile
from argus.verify import verify
from tests.backend.host import run

TEXT = """
import argus
import argus.language as al

@argus.kernel(num_warps=1)
def decayed(x: al.Tensor[al.float32, "M N"], y: al.Tensor[al.float32, "M"]):
    M, N = x.shape
    rows = al.program_id(0) * 4 + al.arange(4)
    al.grid(al.cdiv(M, 4))
    total = al.zeros((4,), al.float32)
    for n0 in range(0, N, 32):
        part = al.load(x[rows[:, None], (n0 + al.arange(32))[None, :]],
                       mask=(rows < M)[:, None] & (n0 + al.arange(32) < N)[None, :], other=0.0)
        factor = 1.0 / (1.0 + al.max(part, axis=1))
        STEP
    al.store(y[rows], total, mask=rows < M)
"""
CARRIED = "total = total * factor + al.sum(part, axis=1)"
STAYING = {
    "no factor": "total = total + al.sum(part, axis=1)",
    "used in the loop": "total = total * factor + al.sum(part, axis=1)\n        factor = total",
    "the sum is used again": "s = al.sum(part, axis=1)\n        total = total * factor + s\n        total = total + s",
    "a maximum": "total = al.maximum(total, al.max(part, axis=1))",
}


def lowered(step: str, target: str = "cpu") -> Kernel:
    text = TEXT.replace("STEP", step)
    return lower(check(parse(SourceFile("decayed.py", text)), "decayed", Options(target)), target)


def exchanges(kernel: Kernel) -> tuple[int, int]:
    """Sums over lanes in loops, and elsewhere."""
    every = [s for s in walk(kernel.body) if isinstance(s, Accumulate) and s.scope == "warp" and s.op == "add"]
    inside = [s for loop in walk(kernel.body) if isinstance(loop, For) for s in walk(loop.body) if s in every]
    return len(inside), len(every) - len(inside)


def test_carried_sums_meet_behind_the_loop(require_tool: Any) -> None:
    require_tool("g++", "clang++", "c++")
    kernel = lowered(CARRIED)
    assert exchanges(kernel) == (0, 1)
    assert verify(kernel).verdict.value == "proved"
    x = np.random.default_rng(1).random((6, 72), dtype=np.float32)
    total = np.zeros(6)
    for n0 in range(0, 72, 32):
        part = x[:, n0 : n0 + 32]
        total = total / (1 + part.max(1)) + part.sum(1)
    y = np.full(6, np.nan, np.float32)
    run(kernel, (2,), x=x, y=y, M=6, N=72)
    np.testing.assert_allclose(y, total, rtol=1e-5)


@pytest.mark.parametrize("step", STAYING.values(), ids=STAYING)
def test_others_stay_in_the_loop(step: str) -> None:
    inside, behind = exchanges(lowered(step))
    assert behind == 0 and (inside or "max" in step)
