"""Sorting networks: in registers, lanes and across warps; equal to NumPy's order, proved safe."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import argus.language as al
from argus.compile import elaborate, lower, verify
from argus.diagnostic import SourceError, Verdict
from argus.frontend import Options
from argus.frontend.decorator import kernel
from argus.simulate import simulate
from argus.source import SourceFile


@kernel(num_warps=2)
def rows(x: al.Tensor[al.float32, "M N"], y: al.Tensor[al.float32, "M N"], DOWN: al.constexpr = False,
         BLOCK: al.constexpr = 256):  # fmt: skip
    al.requires(N <= BLOCK)
    i = al.grid(M)
    least = -float("inf") if DOWN else float("inf")
    t = al.load(x[i, 0:BLOCK], boundary_check=(0,), other=least)
    al.store(y[i, 0:BLOCK], al.sort(t, 0, DOWN), boundary_check=(0,))


@kernel(num_warps=2)
def columns(x: al.Tensor[al.int32, "16 8"], y: al.Tensor[al.int32, "16 8"]):
    p = al.grid(1)
    al.store(y[p : p + 16, :], al.sort(al.load(x[:, :]), 0))


def made(source: Any, x: Any, target: str = "sm_80", **constants: object) -> Any:
    options = Options(target=target, default_alignment=4, constexprs=constants)
    lowered = lower(elaborate(source.file, source.name, options), target)
    assert verify(lowered).verdict is Verdict.PROVED
    outcome = simulate(lowered, {"x": x, "y": np.zeros_like(x)})
    assert outcome.ok, outcome.violations
    return outcome.tensors["y"]


@pytest.mark.parametrize(("target", "down"), [("sm_80", False), ("sm_80", True), ("gfx942", False)])
def test_rows(target: str, down: bool) -> None:
    x = np.random.default_rng(0).integers(-50, 50, (2, 201)).astype(np.float32)
    x[0, 3], x[1, 5] = np.inf, -np.inf
    wanted = np.sort(x, 1)
    np.testing.assert_array_equal(made(rows, x, target, DOWN=down), wanted[:, ::-1] if down else wanted)


def test_not_a_number_comes_last() -> None:
    x = np.random.default_rng(1).standard_normal((1, 256)).astype(np.float32)
    x[0, [3, 77]] = np.nan
    np.testing.assert_array_equal(made(rows, x), np.sort(x, 1))


def test_columns() -> None:
    x = np.random.default_rng(2).integers(-9, 9, (16, 8)).astype(np.int32)
    np.testing.assert_array_equal(made(columns, x), np.sort(x, 0))


@pytest.mark.parametrize(
    ("call", "code"),
    [("al.sort(t, 1)", "bad-shape"), ("al.sort(u, 0)", "bad-shape"), ("al.sort(t < 0.0, 0)", "type-mismatch")],
)
def test_what_is_not_sorted(call: str, code: str) -> None:
    text = f"""
import argus
import argus.language as al

@argus.kernel
def k(x: al.Tensor[al.float32, "64"], out: al.Tensor[al.float32, "64"]):
    p = al.grid(1)
    t = al.load(x[:])
    u = al.load(x[0:48])
    r = {call}
    al.store(out[p : p + 64], t)
"""

    def codes(text: str) -> list[str]:
        try:
            elaborate(SourceFile("k.py", text), "k", Options(target="sm_80"))
        except SourceError as error:
            return [d.code for d in error.diagnostics]
        return []

    assert codes(text) == [code]
    assert codes(text.replace(call, "al.sort(t, 0)")) == []
