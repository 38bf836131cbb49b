"""Softmax, online and in two passes, against its specification; each mistake beside the accepted kernel."""

from __future__ import annotations

from functools import cache

import pytest

from argus.compile import prove
from argus.diagnostic import Verdict
from argus.frontend.options import Options
from argus.source import SourceFile
from argus.verify import Report

ONLINE = """
import argus
import argus.language as al

NEVER = -float("inf")
LOG2E = 1.4426950408889634

@argus.kernel(num_warps=1)
def weighed(
    x: al.Tensor[al.float32, "M N"],
    v: al.Tensor[al.float32, "N"],
    out: al.Tensor[al.float32, "M"],
    level: al.Tensor[al.float32, "M"],
    scale: al.float32,
):
    M, N = x.shape
    al.requires(scale > 0.0)
    al.spec(
        out,
        lambda i: al.sum(
            lambda n: al.softmax(lambda j: al.where(j <= i + N - M, x[i, j] * scale, NEVER))[n] * v[n]
        ),
    )
    al.spec(level, lambda i: al.logsumexp(lambda j: al.where(j <= i + N - M, x[i, j] * scale, NEVER)))
    rows = al.grid(al.cdiv(M, 4)) * 4 + al.arange(4)
    top = al.full((4,), NEVER, al.float32)
    total = al.zeros((4,), al.float32)
    acc = al.zeros((4,), al.float32)
    for n0 in range(0, N, 8):
        cols = n0 + al.arange(8)
        s = al.load(x[rows[:, None], cols], mask=(rows < M)[:, None] & (cols < N))
        s = al.where((cols < N)[None, :] & (cols[None, :] <= rows[:, None] + (N - M)), s, NEVER)
        y = al.load(v[cols], mask=cols < N)
        new = al.maximum(top, al.max(s, axis=1))
        shift = al.where(new == NEVER, 0.0, -new * (scale * LOG2E))
        shrink = al.exp2(top * (scale * LOG2E) + shift)
        w = al.exp2(s * (scale * LOG2E) + shift[:, None])
        total = total * shrink + al.sum(w, axis=1)
        acc = acc * shrink + al.sum(w * y[None, :], axis=1)
        top = new
    al.store(out[rows], acc / al.where(total == 0.0, 1.0, total), mask=rows < M)
    al.store(level[rows], al.where(top == NEVER, 0.0, top * scale) + al.log(total), mask=rows < M)
"""

SAME = {
    "natural exponentials": [
        ("-new * (scale * LOG2E)", "-new * scale"),
        ("al.exp2(top * (scale * LOG2E) + shift)", "al.exp(top * scale + shift)"),
        ("al.exp2(s * (scale * LOG2E) + shift[:, None])", "al.exp(s * scale + shift[:, None])"),
    ],
    "a level that is never -inf": [
        ("shift = al.where(new == NEVER, 0.0, -new * (scale * LOG2E))", "safe = al.where(new == NEVER, 0.0, new)"),
        ("top * (scale * LOG2E) + shift", "(top - safe) * (scale * LOG2E)"),
        ("s * (scale * LOG2E) + shift[:, None]", "(s - safe[:, None]) * (scale * LOG2E)"),
    ],
    "the sums come late": [
        ("    acc = al.zeros((4,), al.float32)\n", "    acc = al.zeros((4,), al.float32)\n    held = acc * 0.0\n"),
        ("acc = acc * shrink + al.sum(w * y[None, :], axis=1)", "acc = (acc + held) * shrink\n"
         "        held = al.sum(w * y[None, :], axis=1)"),
        ("out[rows], acc /", "out[rows], (acc + held) /"),
    ],
    "the causal mask is the tail's as well": [("(cols < N)[None, :] & (cols[None, :] <=", "(cols[None, :] <=")],
    "the inverse": [("acc / al.where(total == 0.0, 1.0, total)", "acc * (1.0 / al.where(total == 0.0, 1.0, total))")],
    "a finite start": [
        ("top = al.full((4,), NEVER, al.float32)", "top = al.full((4,), -1.0e30, al.float32)"),
        ("shift = al.where(new == NEVER, 0.0, -new * (scale * LOG2E))", "shift = -new * (scale * LOG2E)"),
        ("al.where(top == NEVER, 0.0, top * scale)", "top * scale"),
    ],
}  # fmt: skip

WRONG = {
    "the accumulator is not rescaled": ("acc = acc * shrink +", "acc = acc +", "is not rescaled"),
    "the sum is not rescaled": ("total = total * shrink +", "total = total +", "is not rescaled"),
    "the accumulator is rescaled twice": ("acc = acc * shrink +", "acc = acc * shrink * shrink +", "another factor"),
    "the other way round": ("acc = acc * shrink +", "acc = acc / shrink +", ""),
    "a factor without the scale": ("shrink = al.exp2(top * (scale * LOG2E) + shift)",
                                   "shrink = al.exp2(top * LOG2E + shift)", "different factors"),
    "the division is forgotten": ("acc / al.where(total == 0.0, 1.0, total)", "acc", "not divided"),
    "the division is unguarded": ("acc / al.where(total == 0.0, 1.0, total)", "acc / total", "0 / 0"),
    "the maximum forgets": ("new = al.maximum(top, al.max(s, axis=1))", "new = al.max(s, axis=1)", "fall back to -inf"),
    "the level is unguarded": ("al.where(new == NEVER, 0.0, -new * (scale * LOG2E))", "-new * (scale * LOG2E)",
                               "no number"),
    "the mask lets one more through": ("<= rows[:, None] + (N - M)", "<= rows[:, None] + (N - M) + 1", ""),
    "the mask lets one less through": ("<= rows[:, None] + (N - M)", "< rows[:, None] + (N - M)", "missing"),
    "a block is left out": ("range(0, N, 8)", "range(8, N, 8)", "missing"),
    "natural weights": ("w = al.exp2(", "w = al.exp(", "different factors"),
    "another value": ("y = al.load(v[cols], mask=cols < N)", "y = al.load(v[cols + 1], mask=cols + 1 < N)", ""),
    "the level lacks the maximum": ("al.where(top == NEVER, 0.0, top * scale) + al.log(total)", "al.log(total)",
                                    "lacks the maximum"),
    "the level in base 2": ("al.log(total)", "al.log2(total)", "lacks the maximum"),
    "a scale of any sign": ("    al.requires(scale > 0.0)\n", "", "positive"),
}  # fmt: skip


@cache
def report(*edits: tuple[str, str]) -> Report:
    text = ONLINE
    for old, new in edits:
        old, new = old.replace("\n", "\n"), new.replace("\n", "\n")
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return prove(SourceFile("weighed.py", text), "weighed", Options(target="sm_80"), limit_s=120)


def test_accepted() -> None:
    assert report().verdict is Verdict.PROVED


@pytest.mark.parametrize("name", SAME)
def test_other_ways_to_compute_it(name: str) -> None:
    found = report(*SAME[name])
    assert found.verdict is Verdict.PROVED, found.diagnostics


@pytest.mark.parametrize("name", WRONG)
def test_rejected(name: str) -> None:
    old, new, reason = WRONG[name]
    found = report((old, new))
    assert found.verdict is (Verdict.UNKNOWN if name == "a scale of any sign" else Verdict.REFUTED)
    assert any(reason in d.message for d in found.diagnostics if d.property == "tags"), found.diagnostics
