"""Tensors whose elements are sums already: a tag with a set of contributions, and what adding them up makes of it."""

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
def add_up(parts: al.Tensor[al.float32, "S M"], out: al.Tensor[al.float32, "M"], K: al.int32):
    S, M = parts.shape
    al.requires(K <= S * 8)
    al.requires(S <= 1000)
    al.tag(parts, lambda s, m: dict(m=m, k=al.once(s * 8, al.minimum(s * 8 + 8, K))))
    m0 = al.grid(al.cdiv(M, 32)) * 32
    total = al.zeros((32,), al.float32)
    for s in range(S):
        total += al.load(parts[s, m0 : m0 + 32], boundary_check=(0,))
    al.assert_tags(lambda i: total[i] == (m0 + i, al.once(0, K)), where=lambda i: m0 + i < M)
    al.store(out[m0 : m0 + 32], total, boundary_check=(0,))
"""

WRONG = {
    "a part too few": ("range(S)", "range(S - 1)"),
    "a part twice": ("parts[s, m0", "parts[s // 2, m0"),
    "parts that overlap": ("al.once(s * 8, ", "al.once(s * 7, "),
    "parts with a gap": ("s * 8 + 8, K)", "s * 8 + 7, K)"),
    "parts of too little": ("K <= S * 8", "K <= S * 8 + 1"),
    "another column": ("parts[s, m0 : m0 + 32]", "parts[s, m0 + 1 : m0 + 33]"),
}


def report(text: str) -> tuple[Verdict, list[str], bool]:
    options = Options("sm_80")
    kernel = lower(elaborate(SourceFile("add_up.py", text), "add_up", options), "sm_80")
    found = verify(kernel, 120.0)
    replayed = all(d.witness is not None and d.witness.replayed for d in found.diagnostics if d.property == "tags")
    return found.verdict, [d.code for d in found.diagnostics], replayed


def test_parts_of_every_number_make_up_the_sum() -> None:
    assert report(TEXT)[0] is Verdict.PROVED


@pytest.mark.parametrize("case", WRONG)
def test_parts_that_do_not(case: str) -> None:
    old, new = WRONG[case]
    assert TEXT.count(old) == 1
    verdict, codes, replayed = report(TEXT.replace(old, new))
    assert verdict is Verdict.REFUTED and "tag-mismatch" in codes and replayed


def test_two_sets_in_one_tag_are_not_decided() -> None:
    text = TEXT.replace("dict(m=m, k=", "dict(m=al.once(m, m + 1), k=")
    assert report(text)[0] is Verdict.UNKNOWN
