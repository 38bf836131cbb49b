"""A softmax with one more term in its sum: the exponential of a number keeps the sum above 0, a masked one does not."""

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
def rows(x: al.Tensor[al.float32, "M N"], sink: al.Tensor[al.float32, "M"],
         out: al.Tensor[al.float32, "M N"], BLOCK: al.constexpr = 128):
    N = x.shape[1]
    al.requires(N <= BLOCK)
    al.spec(out, lambda i, j: al.exp(al.where(j < i, x[i, j], -float("inf")))
            / (al.sum(lambda k: al.exp(al.where(k < i, x[i, k], -float("inf")))) + al.exp(TERM)))
    i = al.grid(x.shape[0])
    cols = al.arange(BLOCK)
    live = cols < N
    s = al.load(x[i, cols], mask=live, other=-float("inf"))
    s = al.where(cols < i, s, -float("inf"))
    last = al.load(sink[i])
    one = KEPT
    top = al.maximum(al.max(s), one)
    shift = al.where(top == -float("inf"), 0.0, top)
    w = al.exp(s - shift)
    total = al.sum(w) + al.exp(one - shift)
    al.store(out[i, cols], w * (1.0 / al.where(total == 0.0, 1.0, total)), mask=live)
"""


@pytest.mark.parametrize(
    ("kept", "term", "proved"),
    [
        ("last * 1.0", "sink[i]", True),
        ("last * 2.0", "sink[i]", False),
        ('al.where(last > 0.0, last, -float("inf"))', 'al.where(sink[i] > 0.0, sink[i], -float("inf"))', False),
    ],
)
def test_one_more_term(kept: str, term: str, proved: bool) -> None:
    text = SourceFile("rows.py", TEXT.replace("KEPT", kept).replace("TERM", term))
    kernel = compile.lower(compile.elaborate(text, "rows", Options(target="sm_80")), "sm_80")
    report = compile.verify(kernel)
    assert (report.verdict is Verdict.PROVED) == proved, [d.message for d in report.diagnostics]
