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
    al.spec(cache, lambda t, d: k[t, d])
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


_DECLARED = """    al.covers(cache, at=lambda t, d: (slot[t], d))
    al.spec(cache, lambda t, d: k[t, d])
"""
LENGTHS = """
import argus
import argus.language as al

@argus.kernel
def kernel(x: al.Tensor[al.float32, "B N"], lens: al.Tensor[al.int32, "B"], out: al.Tensor[al.float32, "B"]):
    B, N = x.shape
    al.requires(al.in_range(lens, 0, N + 1))
    al.spec(out, lambda b: al.sum(lambda k: al.where(k < lens[b], x[b, k], 0.0)))
    b = al.grid(B)
    length = al.load(lens[b])
    acc = al.zeros((128,), al.float32)
    for k0 in range(0, length, 128):
        k = k0 + al.arange(128)
        acc += al.load(x[b, k], mask=k < length)
    al.store(out[b], al.sum(acc))
"""
GROUPED = """
import argus
import argus.language as al

@argus.kernel(num_warps=4)
def kernel(x: al.Tensor[al.bfloat16, "T K"], offsets: al.Tensor[al.int32, "E1"], w: al.Tensor[al.bfloat16, "E N K"],
           out: al.Tensor[al.bfloat16, "T N"], most: al.int32):
    T, K = x.shape
    E, N = w.shape[0], w.shape[1]
    al.requires((offsets.shape[0] == E + 1) & (T < 2**30) & (0 <= most) & (most <= T))
    al.requires(al.offsets(offsets, T, longest=most))
    al.covers(out, at=lambda e, t, n: (t, n), where=lambda e, t, n: (offsets[e] <= t) & (t < offsets[e + 1]))
    al.spec(out, lambda e, t, n: al.sum(lambda k: x[t, k] * w[e, n, k]))
    pid_m, pid_n, e = al.grid(al.cdiv(most, 64), al.cdiv(N, 64), E)
    begin, end = al.load(offsets[e]), al.load(offsets[e + 1])
    m0, n0 = begin + pid_m * 64, pid_n * 64
    acc = al.zeros((64, 64), al.float32)
    for k0 in al.pipelined(0, K, 64, stages=3, producer_warps=4):
        xt = al.stage(x[m0 : m0 + 64, k0 : k0 + 64], boundary_check=(0, 1))
        wt = al.stage(w[e, n0 : n0 + 64, k0 : k0 + 64], boundary_check=(0, 1))
        acc = al.mma(xt, wt, acc)
    row = m0 + al.arange(64)
    al.store(out[row, n0 : n0 + 64], acc.to(al.bfloat16), mask=(row < end)[:, None], boundary_check=(1,))
"""


def lowered(text: str, target: str = "sm_80") -> Kernel:
    source = SourceFile("kernel.py", text)
    return compile.lower(compile.elaborate(source, "kernel", Options(target=target)), target)


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
        (CACHE, _DECLARED, "    al.requires(S > T)\n"),
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


@pytest.mark.parametrize("text", [CACHE, TILES])
def test_a_scatter_follows_its_specification(text: str) -> None:
    report = proved(text.replace("al.load(k[t, :]", "al.load(k[T - 1 - t, :]"))
    assert report.verdict is Verdict.REFUTED and "spec-mismatch" in codes(report)


def test_a_part_that_names_an_element_twice_has_no_specification() -> None:
    """Without the fact two variables may name one element, and the specification would say two things of it."""
    report = proved(CACHE.replace("    al.requires(al.distinct(slot))\n", ""))
    assert report.verdict is not Verdict.PROVED


PAGED = """
import argus
import argus.language as al

@argus.kernel
def kernel(k: al.Tensor[al.float32, "T 128"], slot: al.Tensor[al.int32, "T"], cache: al.Tensor[al.float32, "P 16 128"]):
    T, P = k.shape[0], cache.shape[0]
    al.requires(P < 2**26)
    al.requires(al.in_range(slot, 0, P * 16))
    al.requires(al.distinct(slot))
    al.covers(cache, at=lambda t, d: (slot[t] // 16, slot[t] % 16, d))
    al.spec(cache, lambda t, d: k[t, d])
    t = al.grid(T)
    s = al.load(slot[t])
    al.store(cache[s // 16, s % 16, :], al.load(k[t, :]))
"""


def test_a_slot_is_a_page_and_a_place_in_it() -> None:
    assert proved(PAGED).verdict is Verdict.PROVED
    for right, wrong in (
        ("cache[s // 16, s % 16", "cache[s // 16, (s + 1) % 16"),
        ("    al.requires(al.distinct(slot))\n", ""),
        ("al.load(k[t, :])", "al.load(k[0, :])"),
    ):
        assert right in PAGED
        assert proved(PAGED.replace(right, wrong)).verdict is Verdict.REFUTED


def test_loaded_lengths_in_specifications() -> None:
    assert proved(LENGTHS).verdict is Verdict.PROVED
    for right, wrong in (
        ("range(0, length, 128)", "range(0, length - 1, 128)"),
        ("mask=k < length)", "mask=k < N)"),
        ("    al.requires(al.in_range(lens, 0, N + 1))\n", ""),
        ("al.load(lens[b])", "al.load(lens[0])"),
    ):
        assert right in LENGTHS and proved(LENGTHS.replace(right, wrong)).verdict is not Verdict.PROVED


def test_products_of_segments() -> None:
    kernel = lowered(GROUPED, "sm_90a")
    assert "tma.load" in print_kernel(kernel) and verify(kernel).verdict is Verdict.PROVED


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("w[e, n0", "w[0 * e, n0"),
        ("mask=(row < end)", "mask=(row <= end)"),
        ("offsets[e + 1])\n", "offsets[e + 1]) - 1\n"),
        (", longest=most))", "))"),
        ("al.offsets(offsets, T, longest=most)", "al.in_range(offsets, 0, T + 1)"),
    ],
)
def test_wrong_products_of_segments(right: str, wrong: str) -> None:
    edited = GROUPED.replace(right, wrong)
    assert edited != GROUPED and verify(lowered(edited, "sm_90a"), 5.0).verdict is not Verdict.PROVED


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
