"""Declared parts of outputs: prefix writes, scatters and segments are proved for exactly what they promise."""

from __future__ import annotations

import pytest

from argus import compile
from argus.diagnostic import SourceError, Verdict
from argus.frontend import Options
from argus.ir.nodes import Kernel
from argus.ir.text import print_kernel
from argus.ir.text_parser import parse_kernel
from argus.source import SourceFile
from argus.verify import Report, verify

PREFIX = """
import argus
import argus.language as al

@argus.kernel
def kernel(x: al.Tensor[al.float32, "N"], n: al.int32, out: al.Tensor[al.float32, "N"]):
    N = x.shape[0]
    al.requires((0 <= n) & (n <= N))
    al.covers(out, where=lambda i: i < n)
    al.spec(out, lambda i: x[i] * 2.0)
    i = al.grid(al.cdiv(n, 128)) * 128 + al.arange(128)
    al.store(out[i], al.load(x[i], mask=i < n) * 2.0, mask=i < n)
"""
CACHE = """
import argus
import argus.language as al

@argus.kernel
def kernel(k: al.Tensor[al.float32, "T 128"], slot: al.Tensor[al.int32, "T"], cache: al.Tensor[al.float32, "S 128"]):
    T, S = k.shape[0], cache.shape[0]
    al.requires(al.in_range(slot, 0, S))
    al.requires(al.distinct(slot))
    al.covers(cache, at=lambda t, d: (slot[t], d))
    t = al.grid(T)
    al.store(cache[al.load(slot[t]), :], al.load(k[t, :]))
"""
TILES = CACHE.replace("""    t = al.grid(T)
    al.store(cache[al.load(slot[t]), :], al.load(k[t, :]))
""", """    t = al.grid(al.cdiv(T, 32)) * 32 + al.arange(32)
    at = al.load(slot[t], mask=t < T)
    live = (t < T)[:, None]
    al.store(cache[at, :], al.load(k[t, :], mask=live), mask=live)
""")
ROWS = """
import argus
import argus.language as al

@argus.kernel
def kernel(x: al.Tensor[al.float32, "N 128"], index: al.Tensor[al.int32, "T"], out: al.Tensor[al.float32, "N 128"]):
    N, T = x.shape[0], index.shape[0]
    al.requires(N < 2**30)
"""
PERMUTED = ROWS + """
    al.requires(al.permutation(index))
    al.requires(T == N)
    i = al.grid(T)
    al.store(out[al.load(index[i]), :], al.load(x[i, :]))
"""
SEGMENTS = ROWS + """
    al.requires(al.offsets(index, N))
    s = al.grid(T - 1)
    begin, end = al.load(index[s]), al.load(index[s + 1])
    for first in range(begin, end, 32):
        row = first + al.arange(32)
        live = (row < end)[:, None]
        al.store(out[row, :], al.load(x[row, :], mask=live), mask=live)
"""


def lowered(text: str) -> Kernel:
    source = SourceFile("kernel.py", text)
    return compile.lower(compile.elaborate(source, "kernel", Options()), "sm_80")


def proved(text: str) -> Report:
    return verify(lowered(text))


def codes(report: Report) -> set[str]:
    return {d.code for d in report.diagnostics if d.verdict is Verdict.REFUTED}


@pytest.mark.parametrize("text", [PREFIX, CACHE, TILES, PERMUTED, SEGMENTS])
def test_exactly_what_is_declared(text: str) -> None:
    assert proved(text).verdict is Verdict.PROVED


@pytest.mark.parametrize(
    ("text", "right", "wrong"),
    [
        (PREFIX, "lambda i: i < n)", "lambda i: i <= n)"),
        (PREFIX, "al.cdiv(n, 128)", "n // 128"),
        (PREFIX, "    al.covers(out, where=lambda i: i < n)\n", ""),
        (CACHE, "    al.covers(cache, at=lambda t, d: (slot[t], d))\n", "    al.requires(S > T)\n"),
        (CACHE, "al.load(slot[t])", "al.load(slot[T - 1 - t // 2])"),
        (TILES, "al.cdiv(T, 32)", "T // 32"),
        (PERMUTED, "    al.requires(al.permutation(index))\n", "    al.requires(al.in_range(index, 0, N))\n"),
        (SEGMENTS, "range(begin, end, 32)", "range(begin, end - 1, 32)"),
        (SEGMENTS, "al.grid(T - 1)", "al.grid(T - 2)"),
        (SEGMENTS, "al.offsets(index, N)", "al.offsets(index, N // 2)"),
    ],
)
def test_what_is_not_written(text: str, right: str, wrong: str) -> None:
    edited = text.replace(right, wrong)
    assert edited != text
    report = proved(edited.replace("    t = al.grid", "    al.requires(T > 4)\n    t = al.grid"))
    assert report.verdict is Verdict.REFUTED and "output-not-covered" in codes(report)


@pytest.mark.parametrize(
    ("text", "right", "wrong"),
    [
        (PREFIX, "lambda i: i < n)", "lambda i: i + 1 < n)"),
        (CACHE, "(slot[t], d))", "(slot[t], d), where=lambda t, d: d < 64)"),
        (TILES, "(slot[t], d))", "(slot[t], d), where=lambda t, d: t > 0)"),
    ],
)
def test_what_is_written_beside(text: str, right: str, wrong: str) -> None:
    edited = text.replace(right, wrong)
    assert edited != text and codes(proved(edited)) >= {"output-written-outside"}


@pytest.mark.parametrize("text", [CACHE, TILES])
def test_rows_that_may_be_one_race(text: str) -> None:
    report = proved(text.replace("    al.requires(al.distinct(slot))\n", ""))
    assert report.verdict is not Verdict.PROVED
    assert {"races", "coverage"} & {d.property for d in report.diagnostics}


def test_a_specification_of_a_part() -> None:
    report = proved(PREFIX.replace("x[i] * 2.0)\n    i", "x[i] * 3.0)\n    i"))
    assert report.verdict is Verdict.REFUTED and "spec-mismatch" in codes(report)


def test_text_form() -> None:
    for text in (PREFIX, CACHE):
        kernel = lowered(text)
        assert kernel.covers and parse_kernel(print_kernel(kernel)) == kernel


@pytest.mark.parametrize(
    ("covers", "message"),
    [
        ("al.covers(out)", "says nothing"),
        ("al.covers(out[0], where=lambda i: i < n)", "a part is declared of a whole tensor"),
        ("al.covers(out, where=lambda i, j: i < n)", "`where` has 2 parameters"),
        ("al.covers(out, at=lambda i: (i, i))", "`at` gives 2 indices"),
        ("al.covers(out, at=lambda i: i, where=lambda j: j < n)", "other parameters"),
        ("al.covers(out, at=lambda i: i + 1)", "nothing says how far `i` ranges"),
        ("al.covers(out, where=lambda i: out[i] < 1.0)", "depends on what it holds"),
        ("al.covers(out, where=lambda i: i < n); al.covers(out, where=lambda i: i < n)", "said twice"),
        ("al.covers(out, at=lambda i: 0.5)", "type"),
    ],
)
def test_what_is_no_part(covers: str, message: str) -> None:
    lines = "".join(f"    {line.strip()}\n" for line in covers.split(";"))
    with pytest.raises(SourceError) as caught:
        text = PREFIX.replace("    al.spec(out, lambda i: x[i] * 2.0)\n", "")
        lowered(text.replace("    al.covers(out, where=lambda i: i < n)\n", lines))
    found = caught.value.diagnostics[0]
    assert message in found.message or message in found.code
