"""Sums at places that an index tensor holds, against their specification; each beside wrong ones."""

from __future__ import annotations

import pytest

from argus.diagnostic import Verdict
from tests.verify.test_spellings import Case, edited, verdict

ROWS = """
import argus
import argus.language as al

@argus.kernel(num_warps=1)
def kernel(y: al.Tensor[al.float32, "P D"], gate: al.Tensor[al.float32, "P"], at: al.Tensor[al.int32, "P"],
           other: al.Tensor[al.int32, "P"], out: al.Tensor[al.float32, "T D"]):
    P, D = y.shape
    T = out.shape[0]
    al.requires(al.in_range(at, 0, T))
    al.requires(al.in_range(other, 0, T))
    al.spec(out, lambda t, d: al.sum(lambda p: al.where(at[p] == t, gate[p] * y[p, d], 0.0)))
    p, b = al.grid(P, al.cdiv(D, 32))
    d = b * 32 + al.arange(32)
    al.atomic_add(out[al.load(at[p]), d], al.load(y[p, d], mask=d < D) * al.load(gate[p]), mask=d < D)
"""
HISTOGRAM = """
import argus
import argus.language as al

@argus.kernel(num_warps=1)
def kernel(x: al.Tensor[al.int32, "M N"], out: al.Tensor[al.int32, "K"]):
    M, N = x.shape
    K = out.shape[0]
    al.requires(al.in_range(x, 0, K))
    al.spec(out, lambda k: al.sum(lambda m: al.sum(lambda n: al.where(x[m, n] == k, 1, 0))))
    b, m = al.grid(al.cdiv(N, 32), M)
    n = b * 32 + al.arange(32)
    v = al.load(x[m, n], mask=n < N)
    al.atomic_add(out[v], al.full((32,), 1, al.int32), mask=n < N)
"""
OUTSIDE = """
import argus
import argus.language as al

@argus.kernel(num_warps=1)
def kernel(y: al.Tensor[al.float32, "P D"], at: al.Tensor[al.int64, "P"], out: al.Tensor[al.float32, "T D"]):
    P, D = y.shape
    T = out.shape[0]
    al.spec(out, lambda t, d: al.sum(lambda p: al.where(at[p] == t.to(al.int64), y[p, d], 0.0)))
    p, b = al.grid(P, al.cdiv(D, 32))
    d = b * 32 + al.arange(32)
    row = al.load(at[p])
    al.atomic_add(out[row, d], al.load(y[p, d], mask=d < D), mask=(d < D) & (row >= 0) & (row < T.to(al.int64)))
"""
SCALED = """
import argus
import argus.language as al

@argus.kernel(num_warps=1)
def kernel(y: al.Tensor[al.float32, "P"], w: al.Tensor[al.float32, "T"], at: al.Tensor[al.int32, "P"],
           out: al.Tensor[al.float32, "T"]):
    P, T = y.shape[0], w.shape[0]
    al.requires(al.in_range(at, 0, T))
    al.spec(out, lambda t: al.sum(lambda p: al.where((at[p] == t) & (t != 3), y[p] * w[t], 0.0)))
    p = al.grid(al.cdiv(P, 32)) * 32 + al.arange(32)
    row = al.load(at[p], mask=p < P)
    v = al.load(y[p], mask=p < P) * al.load(w[row], mask=p < P)
    al.atomic_add(out[row], al.where(row != 3, v, 0.0), mask=p < P)
"""
CASES = (
    Case(
        "a condition and a factor of the row",
        SCALED,
        (
            ("(row != 3", "(row != 2"),
            ("(t != 3)", "(t >= 3)"),
            ("w[row]", "w[p]"),
        ),
    ),
    Case(
        "rows that may be outside",
        OUTSIDE,
        (
            ("(row >= 0)", "(row >= 1)"),
            ("(row < T.to(al.int64))", "(row < T.to(al.int64) - 1)"),
            ("(row < T.to(al.int64))", "(row <= T.to(al.int64))"),
            ("(row >= 0)", "(row >= 0) & (row != 3)"),
            ("(row >= 0)", "(row >= 0) & (p > 0)"),
        ),
    ),
    Case(
        "rows",
        ROWS,
        (
            ("out[al.load(at[p]), d]", "out[al.load(other[p]), d]"),
            ("* al.load(gate[p])", ""),
            ("* al.load(gate[p])", "* 2.0 * al.load(gate[p])"),
            ("al.grid(P,", "al.grid(P - 1,"),
            ("al.load(at[p]), d]", "al.load(at[P - 1 - p]), d]"),
            ("* 32 + al.arange(32)", "* 31 + al.arange(32)"),
        ),
    ),
    Case(
        "a histogram",
        HISTOGRAM,
        (
            ("al.full((32,), 1,", "al.full((32,), 2,"),
            ("al.cdiv(N, 32)", "N // 32"),
            ("b * 32 + al.arange(32)", "b * 16 + al.arange(32)"),
            ("== k, 1, 0", "== k, 1, 1"),
        ),
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_right(case: Case) -> None:
    assert verdict(case.text) is Verdict.PROVED


@pytest.mark.parametrize(("case", "edit"), [(c, e) for c in CASES for e in c.wrong], ids=lambda each: str(each)[:40])
def test_wrong(case: Case, edit: tuple[str, str]) -> None:
    assert verdict(edited(case, edit)) is not Verdict.PROVED


def test_rows_that_a_loaded_mask_leaves_out_are_undecided() -> None:
    """The kernel is right, and whether it adds depends on what its blocks load."""
    masked = SCALED.replace("al.where(row != 3, v, 0.0), mask=p < P", "v, mask=(p < P) & (row != 3)")
    assert verdict(masked) is Verdict.UNKNOWN
