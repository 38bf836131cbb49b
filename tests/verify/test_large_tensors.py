"""Tensors of more than 2^31 elements: each extent fits 32 bits, offsets in memory have 64."""

from __future__ import annotations

import pytest

from argus import compile
from argus.backend.emit import emit
from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.simulate import replay
from argus.source import SourceFile

COPY = """
import argus
import argus.language as al

@argus.kernel
def copy(x: al.Tensor[al.float32, "M N"], out: al.Tensor[al.float32, "M N"]):
    M, N = x.shape
    al.spec(out, lambda m, n: x[m, n])
    p, m = al.grid(al.cdiv(N, 256), M)
    n = p * 256 + al.arange(256)
    al.store(out[m, n], al.load(x[m, n], mask=n < N), mask=n < N)
"""

SHIFTED = """
import argus
import argus.language as al

@argus.kernel
def shifted(x: al.Tensor[al.float32, "N"], out: al.Tensor[al.float32, "N"], k: al.int32):
    N = x.shape[0]
    al.requires((0 <= k) & (k < 2**24))
    i = al.grid(al.cdiv(N, 256)) * 256 + al.arange(256)
    at = {index}
    al.store(out[i], al.load(x[at], mask=(i < N) & (0 <= at) & (at < N), other=0.0), mask=i < N)
"""


def test_the_last_row_of_a_tensor_of_five_billion_elements() -> None:
    kernel = compile.lower(compile.elaborate(SourceFile("copy.py", COPY), "copy", Options()), "sm_80")
    assert compile.verify(kernel).verdict is Verdict.PROVED
    assert replay(kernel, {"M": 70_000, "N": 72_000}, [(281, 69_999)]) == ()
    assert "argus::i64(block1) * x_stride0" in emit(kernel)


@pytest.mark.parametrize(
    ("index", "verdict", "advised"),
    [("i + k - N", Verdict.REFUTED, True), ("i + (k - N)", Verdict.PROVED, False), ("i + k", Verdict.REFUTED, False)],
)
def test_an_intermediate_sum_that_is_too_large(index: str, verdict: Verdict, advised: bool) -> None:
    report = compile.prove(SourceFile("shifted.py", SHIFTED.format(index=index)), "shifted", Options())
    assert report.verdict is verdict
    overflows = [d for d in report.diagnostics if d.code == "int32-overflow"]
    assert bool(overflows) == (verdict is Verdict.REFUTED)
    assert any("subtract before you add" in d.help for d in overflows) == advised
