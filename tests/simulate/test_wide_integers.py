"""Integers of 64 bits in specifications: the simulator compares them exactly, where float64 would lose digits."""

from __future__ import annotations

import pytest

from argus import compile
from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.source import SourceFile

TEXT = """
import argus
import argus.language as al

@argus.kernel
def greatest(x: al.Tensor[al.int32, "M N"], out: al.Tensor[al.int64, "M"], BLOCK: al.constexpr = 32):
    M, N = x.shape
    al.requires((1 <= N) & (N <= BLOCK))
    al.spec(out, lambda m: al.max(lambda n: x[m, n].to(al.int64) * 4294967296 + n.to(al.int64)))
    m = al.grid(M)
    cols = al.arange(BLOCK)
    t = al.load(x[m, cols], mask=cols < N)
    keys = al.where(cols < N, t.to(al.int64) * 4294967296 + cols.to(al.int64), -9223372036854775808)
    al.store(out[m], al.max(keys, axis=0))
"""


@pytest.mark.parametrize(
    ("edits", "verdict"),
    [
        ((), Verdict.PROVED),
        # What no engine proves, and no run may refute: the same numbers in another form.
        ((("al.max(keys, axis=0))", "(al.max(keys, axis=0) | 0) ^ 0)"),), None),
        ((("+ cols.to", "+ 1 + cols.to"),), Verdict.REFUTED),  # Only the last of 63 bits differ.
        ((("+ n.to", "+ 1 + n.to"),), Verdict.REFUTED),
    ],
)
def test_the_last_bits_count(edits: tuple[tuple[str, str], ...], verdict: Verdict | None) -> None:
    text = TEXT
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    found = compile.prove(SourceFile("greatest.py", text), "greatest", Options(target="sm_80")).verdict
    assert found is verdict if verdict is not None else found is not Verdict.REFUTED
