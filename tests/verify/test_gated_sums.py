"""Functions of several sums, each of scaled sums of blocks: every sum is compared with the one that is specified."""

from __future__ import annotations

import pytest

from argus.compile import prove
from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.source import SourceFile

GATED = """
import argus
import argus.language as al

@argus.kernel
def gated(
    x: al.Tensor[al.float32, "M 64"],
    y: al.Tensor[al.float32, "M 64"],
    scale: al.Tensor[al.float32, "M 2"],
    out: al.Tensor[al.float32, "M"],
):
    al.spec(
        out,
        lambda i: al.exp2(al.sum(lambda k: x[i, k] * scale[i, k // 32]))
        * al.sum(lambda k: x[i, k] * scale[i, k // 32])
        * al.sum(lambda k: y[i, k] * scale[i, k // 32]),
    )
    i = al.grid(out.shape[0])
    gate = 0.0
    up = 0.0
    for g in al.static_range(2):
        k = g * 32 + al.arange(32)
        gate += al.load(scale[i, g]) * al.sum(al.load(x[i, k]), axis=0)
        up += al.load(scale[i, g]) * al.sum(al.load(y[i, k]), axis=0)
    al.store(out[i], al.exp2(gate) * gate * up)
"""


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        ("", "", Verdict.PROVED),
        ("up += al.load(scale[i, g])", "up += al.load(scale[i, 0])", Verdict.REFUTED),
        ("al.exp2(gate) * gate * up", "al.exp2(gate) * up * up", Verdict.REFUTED),
    ],
    ids=["right", "the first block's scale twice", "another sum twice"],
)
def test_gated(old: str, new: str, verdict: Verdict) -> None:
    source = SourceFile("gated.py", GATED.replace(old, new) if old else GATED)
    assert prove(source, "gated", Options("sm_80", 1)).verdict is verdict
