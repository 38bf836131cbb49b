"""Specifications of values that are computed from indices: proved where they are those, and nothing else is."""

from __future__ import annotations

import numpy as np
import pytest

from argus.compile import elaborate, lower, verify
from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.ir.nodes import Kernel
from argus.simulate import simulate
from argus.source import SourceFile

TEXT = """
import argus
import argus.language as al

@argus.kernel(num_warps=1)
def k(x: al.Tensor[al.float32, "T D"], out: al.Tensor[al.{dtype}, "T D"], BLOCK: al.constexpr = 64):
    T, D = x.shape
    al.requires(T < 100000)
    al.requires(D < 10000)
    al.spec(out, lambda t, d: {spec})
    j, t = al.grid(al.cdiv(D, BLOCK), T)
    d = j * BLOCK + al.arange(BLOCK)
    v = al.load(x[t, d], mask=d < D)
    al.store(out[t, d], {value}, mask=d < D)
"""

MEAN = """
import argus
import argus.language as al

@argus.kernel(num_warps=1)
def k(x: al.Tensor[al.float32, "T D"], out: al.Tensor[al.float32, "T"], BLOCK: al.constexpr = 64):
    T, D = x.shape
    al.spec(out, lambda t: al.sum(lambda d: {spec}))
    t = al.grid(T)
    acc = al.zeros((BLOCK,), al.float32)
    for d0 in range(0, D, BLOCK):
        d = d0 + al.arange(BLOCK)
        v = al.load(x[t, d], mask=d < D)
        acc += {value}
    al.store(out[t], al.sum(acc))
"""

ELEMENTS = {
    "a number": ("int32", "t * 3 + d", "t * 3 + d", "d * 3 + t"),
    "of the whole tensor": ("int32", "t * D + d", "t * D + d", "d * T + t"),
    "quotients": ("int32", "d // 4 - t % 3", "d // 4 - t % 3", "d // 3 - t % 3"),
    "in another form": ("int32", "2 * d + 2 * t", "(t + d) * 2", "(t + d) * 2 + 1"),
    "an exclusive or": ("int32", "(d - 9) ^ 5", "(d - 9) ^ 5", "(d - 9) ^ 4"),
    "wider": ("int64", "t.to(al.int64) * 1000000", "t.to(al.int64) * 1000000", "d.to(al.int64) * 1000000"),
    "an angle": (
        "float32", "x[t, d] * al.sin(t.to(al.float32) * 0.5)", "v * al.sin(t.to(al.float32) * 0.5)",
        "v * al.sin(d.to(al.float32) * 0.5)"),
    "a choice": (
        "float32", "al.where(d % 2 == 0, x[t, d], d.to(al.float32))", "al.where(d % 2 == 0, v, d.to(al.float32))",
        "al.where(d % 2 == 0, v, t.to(al.float32))"),
}  # fmt: skip


def kernel(text: str, **parts: str) -> Kernel:
    for name, part in parts.items():
        text = text.replace("{" + name + "}", part)
    options = Options(target="sm_80", default_alignment=4)
    return lower(elaborate(SourceFile("k.py", text), "k", options), "sm_80")


@pytest.mark.parametrize("name", ELEMENTS)
def test_elements(name: str) -> None:
    dtype, spec, right, wrong = ELEMENTS[name]
    proved = kernel(TEXT, dtype=dtype, spec=spec, value=right)
    report = verify(proved)
    assert report.verdict is Verdict.PROVED, report.diagnostics
    x = np.random.default_rng(5).standard_normal((7, 70)).astype(np.float32)
    outcome = simulate(proved, {"x": x, "out": np.zeros((7, 70), dtype)})
    assert outcome.ok, outcome.violations
    report = verify(kernel(TEXT, dtype=dtype, spec=spec, value=wrong))
    assert report.verdict is Verdict.REFUTED, report.diagnostics


@pytest.mark.parametrize("narrow", ["int8", "uint8"])
def test_numbers_that_a_narrow_type_may_not_hold(narrow: str) -> None:
    """What is converted to 8 bits on the way is that modulo 256, in a kernel as in a specification."""
    through = f"d.to(al.{narrow}).to(al.int32)"
    assert verify(kernel(TEXT, dtype="int32", spec="d + 0", value=through)).verdict is not Verdict.PROVED
    assert verify(kernel(TEXT, dtype="int32", spec=through, value="d + 0")).verdict is not Verdict.PROVED


def test_sums_over_a_variable_that_is_a_factor() -> None:
    weighted = "x[t, d] * d.to(al.float32)"
    assert verify(kernel(MEAN, spec=weighted, value="v * d.to(al.float32)")).verdict is Verdict.PROVED
    for wrong in ("v * (d - d0).to(al.float32)", "v * t.to(al.float32)", "v"):
        assert verify(kernel(MEAN, spec=weighted, value=wrong)).verdict is not Verdict.PROVED


def test_a_count_by_a_condition_on_data() -> None:
    """Its terms load through the variable in the condition alone."""
    spec = "al.where(x[t, d] > 0.0, 1.0, 0.0)"
    report = verify(kernel(MEAN, spec=spec, value="al.where((v > 0.0) & (d < D), 1.0, 0.0)"))
    assert report.verdict is not Verdict.REFUTED, report.diagnostics
