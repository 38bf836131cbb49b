"""Sums that a kernel cuts otherwise than its specification: sums of sums, several accumulators, prefixes, padding."""

from __future__ import annotations

import pytest

from argus.compile import prove
from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.source import SourceFile
from argus.verify import Report

CONVOLUTION = """
def kernel(x: al.Tensor[al.float32, "C N"], w: al.Tensor[al.float32, "C 3"], z: al.Tensor[al.float32, "N"]):
    al.spec(z, lambda i: al.sum(lambda c: al.sum(lambda r: al.where(i + r < N, w[c, r] * x[c, i + r], 0.0))))
    i = al.grid(al.cdiv(N, 32)) * 32 + al.arange(32)
    acc = al.zeros((32,), al.float32)
    for c in range(C):
        for r in al.static_range(TAPS):
            acc += al.load(w[c, TAP]) * al.load(x[c, i + r], mask=i + r < N)
    al.store(z[i], acc, mask=i < N)
"""
ACCUMULATORS = """
def kernel(x: al.Tensor[al.float32, "M N"], z: al.Tensor[al.float32, "M"]):
    al.requires(N % 64 == 0)
    al.spec(z, lambda i: al.OP(lambda k: x[i, k]))
    row = al.grid(M)
    a, b = al.full((32,), START, al.float32), al.full((32,), START, al.float32)
    for k in range(0, N, 64):
        a = JOIN(a, al.load(x[row, k : k + 32]))
        b = JOIN(b, al.load(x[row, HALF : HALF + 32]))
    al.store(z[row], JOIN(al.OP(a), al.OP(LAST)))
"""
SUM = (
    ACCUMULATORS.replace("JOIN(al.OP(a), al.OP(LAST))", "al.sum(a) + al.sum(LAST)")
    .replace("JOIN(a, al", "(a + al")
    .replace("JOIN(b, al", "(b + al")
    .replace("OP", "sum")
    .replace("START", "0.0")
)
MAXIMUM = ACCUMULATORS.replace("JOIN", "al.maximum").replace("OP", "max").replace("START", '-float("inf")')
PREFIX = """
def kernel(x: al.Tensor[al.float32, "M N"], z: al.Tensor[al.float32, "M N"]):
    al.spec(z, lambda i, j: al.sum(lambda k: al.where(k <= j, x[i, k], 0.0)))
    row, j = al.grid(M), al.arange(32)
    total = al.zeros((1,), al.float32)
    for j0 in range(0, N, 32):
        t = al.load(x[row, j0 : j0 + 32], boundary_check=(0,))
        part = al.sum(al.where(j[None, :] BEFORE j[:, None], t[None, :], 0.0), axis=1)
        al.store(z[row, j0 : j0 + 32], total + part, boundary_check=(0,))
        total += al.sum(t)
"""
PADDING = """
def kernel(x: al.Tensor[al.float32, "M N"], z: al.Tensor[al.float32, "M"]):
    al.spec(z, lambda i: al.sum(lambda k: TERM(x[i, k], LEAST)))
    row = al.grid(M)
    acc = al.zeros((32,), al.float32)
    for j0 in range(0, N, 32):
        acc += TERM(al.load(x[row, j0 : j0 + 32], boundary_check=(0,)), LEAST)
    al.store(z[row], al.sum(acc))
"""
POOLING = """
def kernel(x: al.Tensor[al.float32, "N"], z: al.Tensor[al.float32, "P"]):
    al.requires(P == N // 2)
    al.spec(z, lambda p: al.max(lambda i: al.where(i // 2 == p, x[i], -float("inf"))))
    p = al.grid(al.cdiv(P, 32)) * 32 + al.arange(32)
    best = al.full((32,), -float("inf"), al.float32)
    for r in al.static_range(WINDOW):
        best = al.maximum(best, al.load(x[2 * p + r], mask=p < P))
    al.store(z[p], best, mask=p < P)
"""
CASES = [
    pytest.param(POOLING, "WINDOW", "2", "1", id="windows-of-one"),
    pytest.param(CONVOLUTION.replace("TAPS", "3"), "TAP", "r", "2 - r", id="filters-that-are-flipped"),
    pytest.param(CONVOLUTION.replace("TAP]", "r]"), "TAPS", "3", "2", id="taps-that-are-missing"),
    pytest.param(SUM.replace("HALF", "k + 32"), "LAST", "b", "a", id="one-accumulator-twice"),
    pytest.param(SUM.replace("LAST", "b"), "HALF", "k + 32", "k", id="one-half-twice"),
    pytest.param(PREFIX, "BEFORE", "<=", "<", id="prefixes-without-their-last"),
    pytest.param(PREFIX.replace("BEFORE", "<="), "+ part", "+ part", "+ part + part", id="prefixes-with-a-part-twice"),
    pytest.param(PADDING.replace("TERM", "al.maximum"), "LEAST", "0.0", "1.0", id="padding-below-a-maximum"),
    pytest.param(PADDING.replace("TERM", "al.minimum"), "LEAST", "0.0", "-1.0", id="padding-above-a-minimum"),
]


def report(text: str) -> Report:
    source = SourceFile("kernel.py", f"import argus\nimport argus.language as al\n\n\n@argus.kernel(num_warps=1){text}")
    return prove(source, "kernel", Options())


@pytest.mark.parametrize(("text", "edit", "right", "wrong"), CASES)
def test_sums(text: str, edit: str, right: str, wrong: str) -> None:
    assert report(text.replace(edit, right)).verdict is Verdict.PROVED
    refuted = [d for d in report(text.replace(edit, wrong)).diagnostics if d.verdict is Verdict.REFUTED]
    assert {d.code for d in refuted if d.witness is not None} == {"spec-mismatch"}


def test_maxima_in_several_registers() -> None:
    """A half may be looked at twice, and not left out; that no trial may show."""
    assert report(MAXIMUM.replace("LAST", "b").replace("HALF", "k + 32")).verdict is Verdict.PROVED
    again = MAXIMUM.replace("al.max(LAST)", "al.maximum(al.max(b), al.max(a))").replace("HALF", "k + 32")
    assert report(again).verdict is Verdict.PROVED
    assert report(MAXIMUM.replace("LAST", "b").replace("HALF", "k")).verdict is not Verdict.PROVED


def test_scores_that_are_sums_over_no_terms() -> None:
    text = """
def kernel(x: al.Tensor[al.float32, "M K"], w: al.Tensor[al.float32, "16 K"], z: al.Tensor[al.float32, "M 16"]):
    al.requires(LEAST)
    al.spec(z, lambda m, n: al.softmax(lambda j: al.sum(lambda k: x[m, k] * w[j, k]))[n])
    m = al.grid(M)
    score = al.zeros((16,), al.float32)
    for k in range(K):
        score += al.load(x[m, k]) * al.load(w[0:16, k])
    weight = al.exp(score - al.max(score, axis=0))
    al.store(z[m, 0:16], weight / al.sum(weight, axis=0))
"""
    for least in ("K > 0", "K >= 0"):
        right = text.replace("LEAST", least)
        assert report(right).verdict is Verdict.PROVED
        assert report(right.replace("al.sum(weight", "al.sum(score")).verdict is not Verdict.PROVED
