"""Edits of kernels over segments, pages and parts of outputs: wrong ones are never proved, and other spellings are."""

from __future__ import annotations

import pytest

from argus import compile
from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.source import SourceFile
from tests.verify.test_covers import GROUPED, PREFIX, TILES

PAGED = """
import argus
import argus.language as al

@argus.kernel(num_warps=4)
def kernel(q: al.Tensor[al.bfloat16, "B 64 D"], keys: al.Tensor[al.bfloat16, "NB 16 D"],
           table: al.Tensor[al.int32, "B MAXP"], lens: al.Tensor[al.int32, "B"],
           out: al.Tensor[al.float32, "B 64 D"], D: al.constexpr = 64):
    B, NB, MAXP = q.shape[0], keys.shape[0], table.shape[1]
    al.requires(MAXP < 2**24)
    al.requires(al.in_range(table, 0, NB))
    al.requires(al.in_range(lens, 0, MAXP * 16 + 1))
    al.spec(out, lambda b, r, e: al.sum(lambda j: al.where(
        j < lens[b],
        al.sum(lambda d: q[b, r, d] * keys[table[b, j // 16], j % 16, d]) * keys[table[b, j // 16], j % 16, e],
        0.0)))
    b = al.grid(B)
    length = al.load(lens[b])
    qt = al.load(q[b, 0:64, :])
    acc = al.zeros((64, D), al.float32)
    for p in range(al.cdiv(length, 16)):
        page = al.load(table[b, p])
        kt = al.stage(keys[page, :, :])
        s = al.mma(qt, kt, al.zeros((64, 16), al.float32))
        s = al.where((p * 16 + al.arange(16) < length)[None, :], s, 0.0)
        acc = al.mma(s.to(al.bfloat16), al.trans(kt), acc)
    al.store(out[b, 0:64, :], acc)
"""
INVARIANT = """
import argus
import argus.language as al

@argus.kernel(num_warps=4)
def kernel(x: al.Tensor[al.float32, "M N"], row: al.Tensor[al.int32, "M"], y: al.Tensor[al.float32, "M"]):
    M, N = x.shape
    al.requires(al.in_range(row, 0, M))
    al.invariant(y, M)
    n = al.arange(128)
    m = al.grid(M)
    acc = al.zeros((128,), al.float32)
    for n0 in range(0, N, 128):
        acc = acc + al.load(x[m, n0 + n], mask=n0 + n < N)
    al.store(y[m], al.sum(acc, axis=0))
"""
SLOW = (
    (GROUPED, "w[e, n0 : n0 + 64", "w[al.minimum(e + 1, E - 1), n0 : n0 + 64"),
    (GROUPED, "m0, n0 = begin + pid_m * 64", "m0, n0 = al.maximum(end - 64 - pid_m * 64, begin)"),
    (GROUPED, "al.pipelined(0, K, 64", "al.pipelined(0, K - 8, 64"),
    (GROUPED, "al.pipelined(0, K, 64", "al.pipelined(0, al.minimum(K, end), 64"),
    (PAGED, "al.load(table[b, p])", "al.load(table[0, p])"),
    (PAGED, "al.load(table[b, p])", "al.load(table[b, al.minimum(p + 1, MAXP - 1)])"),
    (PAGED, "al.where((p * 16 + al.arange(16) < length)[None, :], s, 0.0)", "s"),
)
WRONG = (
    (GROUPED, "al.grid(al.cdiv(most, 64)", "al.grid(most // 64"),
    (GROUPED, "(row < end)[:, None]", "(row <= end)[:, None]"),
    (GROUPED, "(row < end)[:, None]", "(row < T)[:, None]"),
    (PAGED, "al.cdiv(length, 16)", "length // 16"),
    (PAGED, "MAXP * 16 + 1)", "MAXP * 16 + 17)"),
    (TILES, "al.cdiv(T, 32)", "T // 32"),
    (TILES, "al.load(k[t, :]", "al.load(k[at % T, :]"),
    (TILES, "mask=live)\n", "mask=live & (at > 0)[:, None])\n"),
    (PREFIX, "lambda i: i < n)", "lambda i: i < N)"),
    (INVARIANT, "x[m, n0 + n]", "x[al.load(row[m]), n0 + n]"),
    (INVARIANT, "range(0, N, 128)", "range(0, al.where(m > M // 2, N, N - 4), 128)"),
    (INVARIANT, "mask=n0 + n < N", "mask=(n0 + n < N) & (n0 + n >= M % 8)"),
)
RIGHT = (
    (GROUPED, "(row < end)[:, None]", "(~(end <= row))[:, None]"),
    (GROUPED, "row = m0 + al.arange(64)", "row = al.arange(64) + pid_m * 64 + begin"),
    (GROUPED, "al.pipelined(0, K, 64", "al.pipelined(0, K - 1, 64"),  # rows are a multiple of 16 bytes
    (PAGED, "(p * 16 + al.arange(16) < length)", "(al.arange(16) < length - p * 16)"),
    (PAGED, "al.cdiv(length, 16)", "(length + 15) // 16"),
    (TILES, "mask=live)\n", "mask=~(t >= T)[:, None])\n"),
    (INVARIANT, "mask=n0 + n < N", "mask=(n0 + n < N) & (n0 + n >= M % 2)"),  # and so is the vector of results
)


def verdict(text: str, old: str, new: str) -> Verdict:
    assert old in text
    edited = SourceFile("kernel.py", text.replace(old, new))
    return compile.prove(edited, "kernel", Options(target="sm_90a")).verdict


@pytest.mark.parametrize(("text", "old", "new"), WRONG, ids=lambda value: value[:40].strip())
def test_wrong_edits_are_refuted(text: str, old: str, new: str) -> None:
    assert verdict(text, old, new) is Verdict.REFUTED


@pytest.mark.nightly
@pytest.mark.parametrize(("text", "old", "new"), SLOW, ids=lambda value: value[:40].strip())
def test_wrong_edits_that_runs_refute(text: str, old: str, new: str) -> None:
    assert verdict(text, old, new) is Verdict.REFUTED


@pytest.mark.parametrize(("text", "old", "new"), RIGHT, ids=lambda value: value[:40].strip())
def test_other_spellings_are_proved(text: str, old: str, new: str) -> None:
    assert verdict(text, old, new) is Verdict.PROVED
