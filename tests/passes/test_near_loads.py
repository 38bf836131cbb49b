"""Loads on gfx942 of tiles whose elements lie close together: by offsets of 32 bits from a descriptor's base."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from argus.compile import elaborate, verify
from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.ir.nodes import Copy, Kernel, WaitCounts
from argus.ir.visit import walk
from argus.passes import LoweringError, lower
from argus.source import SourceFile
from tests.machine import cases
from tests.machine.kernels import run
from tests.reject.edits import drop

MOVED = """
import argus
import argus.language as al

@argus.kernel(num_warps=1)
def moved(x: al.Tensor[al.bfloat16, "M K"], y: al.Tensor[al.bfloat16, "M K"], FAR: al.constexpr = 2**22):
    al.requires((0 <= x.stride(0)) & (x.stride(0) < FAR))
    al.requires(x.shape[1] <= 64)
    i = al.grid(al.cdiv(x.shape[0], 16))
    al.store(
        y[i * 16 : i * 16 + 16, 0:64],
        al.load(x[i * 16 : i * 16 + 16, 0:64], boundary_check=(0, 1)),
        boundary_check=(0, 1),
    )
"""
BOUND = "    al.requires((0 <= x.stride(0)) & (x.stride(0) < FAR))\n"


def moved(text: str = MOVED, **constants: Any) -> Kernel:
    return lower(elaborate(SourceFile("moved.py", text), "moved", Options("gfx942", None, constants)), "gfx942")


def load_of(kernel: Kernel) -> str | None:
    return next(s.instr for s in walk(kernel.body) if isinstance(s, Copy) and s.src.obj == "x")


def test_rows_that_are_near_are_loaded_by_offsets() -> None:
    """15 rows of 2 bytes each: fewer than 2**26 elements apart, they span less than 2**31 bytes."""
    assert load_of(moved()) == load_of(moved(FAR=2**26)) == "buffer_load.offen"
    assert load_of(moved(FAR=2**27)) == "buffer_load"
    assert load_of(moved(MOVED.replace(BOUND, ""))) == "buffer_load"
    assert load_of(moved(MOVED.replace("(0 <= x.stride(0)) & ", ""))) == "buffer_load", "strides may be negative"
    filled = MOVED.replace("boundary_check=(0, 1)),", "boundary_check=(0, 1), other=1.0),")
    assert load_of(moved(filled)) == "buffer_load"


def test_the_bound_is_proved() -> None:
    kernel = moved()
    assert verify(kernel).verdict is Verdict.PROVED
    report = verify(replace(kernel, preconditions=tuple(p for p in kernel.preconditions if "stride" not in repr(p))))
    assert report.verdict is Verdict.UNKNOWN
    assert [(d.code, "2147483648 bytes" in d.message) for d in report.diagnostics] == [("vector-unknown", True)]


def test_a_named_load_says_what_it_needs() -> None:
    named = MOVED.replace("boundary_check=(0, 1)),", 'boundary_check=(0, 1), instruction="buffer_load.offen"),')
    assert load_of(moved(named)) == "buffer_load.offen"
    with pytest.raises(LoweringError, match="reaches 2147483648 bytes") as caught:
        moved(named.replace(BOUND, ""))
    assert "x.stride(0) < n" in (caught.value.diagnostics[0].help or "")


@pytest.mark.nightly
@pytest.mark.parametrize("shape", [(1, 8), (16, 64), (37, 56)])
def test_what_is_loaded(shape: tuple[int, int]) -> None:
    """From machine code: elements behind rows and columns are zeros, and none of them is touched."""
    x = np.arange(1, shape[0] * shape[1] + 1, dtype=np.uint16).reshape(shape)
    y = np.zeros_like(x)
    run(moved(), (-(-shape[0] // 16),), ("y",), x=x, y=y, M=shape[0], K=shape[1])
    np.testing.assert_array_equal(y, x)


@pytest.mark.nightly
def test_loads_to_lds_by_offsets_are_proved() -> None:
    """A product with counted waits. Without the bound of the strides it is refused, and one wait fewer is refuted."""
    kernel = cases.example("gemm_waves", 64, 72, 64, 168, near=True).kernel
    assert any(isinstance(s, Copy) and s.instr == "buffer_load_lds.offen" for s in walk(kernel.body))
    assert verify(kernel).verdict is Verdict.PROVED
    assert verify(replace(kernel, body=drop(WaitCounts)(kernel).body)).verdict is Verdict.REFUTED
