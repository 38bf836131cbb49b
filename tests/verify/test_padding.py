"""Padding that is scaled before it is added up: zeros times a finite number count as no contribution."""

from __future__ import annotations

import pytest

from argus.compile import elaborate, lower
from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.source import SourceFile
from argus.verify import verify

TEXT = """
import argus
import argus.language as al

@argus.kernel(num_warps=1)
def row_sums(x: al.Tensor[al.float32, "M 32"], K: al.int32, out: al.Tensor[al.float32, "M"]):
    M, N = x.shape
    al.requires((0 < K) & (K <= N))
    al.tag(x, lambda m, k: (m, k))
    m = al.grid(M)
    column = al.arange(32)
    part = al.load(x[m, column], mask=column < K, other=0.0) * 0.5
    total = al.sum(part[None, :], axis=1)
    al.assert_tags(lambda i: total[i].k == al.once(0, K))
    al.store(out[m : m + 1], total)
"""


def verdict(text: str) -> Verdict:
    return verify(lower(elaborate(SourceFile("row_sums.py", text), "row_sums", Options("sm_80")), "sm_80")).verdict


@pytest.mark.parametrize("factor", ["* 0.5", "* -2.0"])
def test_scaled_zeros_count_as_nothing(factor: str) -> None:
    assert verdict(TEXT.replace("* 0.5", factor)) is Verdict.PROVED


@pytest.mark.parametrize(
    ("old", "new"),
    [("other=0.0", "other=2.0"), ("* 0.5", "+ 0.5"), ("* 0.5", "* float('inf')"), ("al.once(0, K)", "al.once(0, N)")],
)
def test_other_padding_does_not(old: str, new: str) -> None:
    assert TEXT.count(old) == 1
    assert verdict(TEXT.replace(old, new)) is not Verdict.PROVED
