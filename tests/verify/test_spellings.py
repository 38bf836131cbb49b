"""Right kernels whose specification is spelled in another way than their code; each beside wrong ones."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from argus.compile import prove
from argus.diagnostic import Verdict
from argus.frontend.options import Options
from argus.source import SourceFile


@dataclass(frozen=True)
class Case:
    """A kernel and its specification, what may be edited without harm, and what may not."""

    name: str
    text: str
    wrong: tuple[tuple[str, str], ...]
    right: tuple[tuple[str, str], ...] = ()


def rows(spec: str, body: str, more: str = "") -> str:
    """A kernel over vectors of at most 32 elements."""
    lines = "\n    ".join(body.strip().splitlines())
    return f"""
import argus
import argus.language as al

@argus.kernel(num_warps=1)
def kernel(x: al.Tensor[al.float32, "N"], w: al.Tensor[al.float32, "N"], b: al.Tensor[al.float32, "N"],
           out: al.Tensor[al.float32, "N"], alpha: al.float32):
    N = x.shape[0]
    al.requires((N > 0) & (N <= 32))
    {more}al.spec(out, lambda i: {spec})
    al.grid(1)
    i = al.arange(32)
    v = al.load(x[i], mask=i < N)
    u = al.load(w[i], mask=i < N)
    c = al.load(b[i], mask=i < N)
    {lines}
"""


ATTENTION = """
import argus
import argus.language as al

NEVER = -float("inf")

@argus.kernel(num_warps=1)
def kernel(p: al.Tensor[al.float32, "B T 3 D"], bias: al.Tensor[al.float32, "T T"], slope: al.Tensor[al.float32, "B"],
           out: al.Tensor[al.float32, "B T D"], alpha: al.float32, D: al.constexpr = 8):
    B, T = p.shape[0], p.shape[1]
    al.requires((T > 0) & (T <= 16))
    al.spec(out, lambda b, i, e: al.sum(lambda n: p[b, n, 2, e] * al.softmax(
        lambda j: al.sum(lambda d: p[b, i, 0, d] * p[b, j, 1, d]) * slope[b] + bias[i, j])[n]))
    b = al.grid(B)
    i, d = al.arange(16), al.arange(D)
    live = (i < T)[:, None]
    q = al.load(p[b, i[:, None], 0, d], mask=live)
    k = al.load(p[b, i[:, None], 1, d], mask=live)
    v = al.load(p[b, i[:, None], 2, d], mask=live)
    s = al.sum(q[:, None, :] * k[None, :, :], axis=2) * al.load(slope[b])
    s = s + al.load(bias[i[:, None], i], mask=live & (i < T))
    s = al.where((i < T)[None, :], s, NEVER)
    w = al.exp(s - al.max(s, axis=1, keep_dims=True))
    y = al.sum(w[:, :, None] * v[None, :, :], axis=1)
    al.store(out[b, i[:, None], d], y / al.sum(w, axis=1, keep_dims=True), mask=live)
"""

CASES = (
    Case(
        "a sum over pairs of one vector",
        rows("al.sum(lambda j: x[i] * x[j])", "al.store(out[i], al.sum(v[:, None] * v[None, :], axis=1), mask=i < N)"),
        (("v[None, :]", "u[None, :]"), ("x[i] * x[j]", "x[j] * x[j]"), ("axis=1)", "axis=1) + v")),
        (("x[i] * x[j]", "x[j] * x[i]"),),
    ),
    Case(
        "differences of one vector",
        rows(
            "al.sum(lambda j: (x[i] - x[j]) * w[j])",
            "al.store(out[i], al.sum((v[:, None] - v[None, :]) * u[None, :], axis=1), mask=i < N)",
        ),
        (("x[i] - x[j]", "x[j] - x[i]"), ("* u[None, :]", "* u[:, None]")),
    ),
    Case(
        "attention on one packed tensor with a loaded scale and a bias",
        ATTENTION,
        (
            ("bias[i[:, None], i]", "bias[i, i[:, None]]"),
            ("p[b, i[:, None], 1, d]", "p[b, i[:, None], 2, d]"),
            ("* al.load(slope[b])", "* al.load(slope[0])"),
            ("s = al.where((i < T)[None, :], s, NEVER)", "s = al.where((i < T - 1)[None, :], s, NEVER)"),
            ("y / al.sum(w, axis=1, keep_dims=True)", "y"),
            ("* slope[b] + bias[i, j]", "* slope[b] - bias[i, j]"),
        ),
        (("slope[b] + bias[i, j]", "slope[b] + bias[i, j] * 1.0"),),
    ),
)


def verdict(text: str) -> Verdict:
    return prove(SourceFile("kernel.py", text), "kernel", Options(target="sm_80"), limit_s=120).verdict


def edited(case: Case, edit: tuple[str, str]) -> str:
    assert case.text.count(edit[0]) == 1, edit
    return case.text.replace(*edit)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(text, id=f"{case.name}: {number}")
        for case in CASES
        for number, text in enumerate([case.text, *(edited(case, edit) for edit in case.right)])
    ],
)
def test_right(text: str) -> None:
    assert verdict(text) is Verdict.PROVED


@pytest.mark.parametrize(
    "text", [pytest.param(edited(case, edit), id=f"{case.name}: {edit[1]}") for case in CASES for edit in case.wrong]
)
def test_wrong(text: str) -> None:
    assert verdict(text) is not Verdict.PROVED
