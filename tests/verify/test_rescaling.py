"""Accumulators that are rescaled between products keep what contributed to them; tiles can be tagged anew."""

from __future__ import annotations

import pytest

from argus.compile import elaborate, lower, prove
from argus.diagnostic import Verdict
from argus.frontend.options import Options
from argus.simulate import replay
from argus.source import SourceFile

KERNEL = """
import argus
import argus.language as al

@argus.kernel(num_warps=4)
def scaled(
    a: al.Tensor[al.bfloat16, "M K"],
    b: al.Tensor[al.bfloat16, "N K"],
    f: al.Tensor[al.float32, "M"],
    c: al.Tensor[al.float32, "M N"],
):
    M, K = a.shape
    N = b.shape[0]
    al.tag(a, lambda m, k: (m, k))
    al.tag(b, lambda n, k: (n, k))
    pid_m, pid_n = al.grid(al.cdiv(M, 64), al.cdiv(N, 64))
    m0, n0 = pid_m * 64, pid_n * 64
    rows = m0 + al.arange(64)
    factor = al.load(f[rows], mask=rows < M, other=1.0)
    acc = al.zeros((64, 64), al.float32)
    for k0 in al.pipelined(0, K, 32, stages=2):
        at = al.stage(a[m0 : m0 + 64, k0 : k0 + 32], boundary_check=(0, 1))
        bt = al.stage(b[n0 : n0 + 64, k0 : k0 + 32], boundary_check=(0, 1))
        acc = acc * factor[:, None]
        acc = al.mma(at, bt, acc)
    al.assert_tags(
        lambda i, j: acc[i, j] == (m0 + i, n0 + j, al.once(0, K)),
        where=lambda i, j: (m0 + i < M) & (n0 + j < N),
    )
    al.tag(acc, lambda i, j: dict(n=n0 + j, m=m0 + i))
    al.assert_tags(lambda i, j: acc[i, j] == (n0 + j, m0 + i))
    al.store(c[m0 : m0 + 64, n0 : n0 + 64], acc, boundary_check=(0, 1))
"""
WRONG = {
    "a step is left out": ("al.pipelined(0, K, 32", "al.pipelined(32, K, 32"),
    "the tag is another": ("acc[i, j] == (n0 + j, m0 + i))", "acc[i, j] == (m0 + j, m0 + i))"),
}


def verdict(text: str) -> Verdict:
    return prove(SourceFile("scaled.py", text), "scaled", Options(target="sm_80")).verdict


def test_accepted() -> None:
    assert verdict(KERNEL) is Verdict.PROVED


@pytest.mark.parametrize("name", WRONG)
def test_rejected(name: str) -> None:
    old, new = WRONG[name]
    assert old in KERNEL
    assert verdict(KERNEL.replace(old, new)) is Verdict.REFUTED


def test_simulated_over_several_steps() -> None:
    """What was rescaled is accumulated into as before."""
    source = SourceFile("scaled.py", KERNEL)
    kernel = lower(elaborate(source, "scaled", Options(target="sm_80")), "sm_80")
    assert not replay(kernel, {"M": 64, "N": 64, "K": 104}, None)


def test_other_factors_mix() -> None:
    """A factor of the whole tile is an elementwise product of two values, not a rescaling."""
    text = KERNEL.replace("acc * factor[:, None]", "acc * (acc + factor[:, None])")
    assert verdict(text) is not Verdict.PROVED
