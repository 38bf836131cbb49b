"""Integers that may leave the range of their type are refused wherever they go, and proved where a bound is stated."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from argus import compile
from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.source import SourceFile
from argus.verify import Report

HEAD = "import argus\nimport argus.language as al\n\n\n@argus.kernel\n"


@dataclass(frozen=True, slots=True)
class Twins:
    """A kernel with `EDIT` where an integer may wrap around, or may not."""

    name: str
    text: str
    right: str
    wrong: str


def prove(text: str) -> Report:
    return compile.prove(SourceFile("k.py", HEAD + text.lstrip("\n")), "k", Options(target="sm_80"))


MEAN = """
def k(x: al.Tensor[al.float32, "N"], out: al.Tensor[al.float32, "1"], BLOCK: al.constexpr = 1024):
    N = x.shape[0]
    al.requires(N > 0)
    EDIT
    p = al.grid(1)
    acc = al.zeros((BLOCK,), al.float32)
    for k in range(0, N, BLOCK):
        acc += al.load(x[k + al.arange(BLOCK)], mask=k + al.arange(BLOCK) < N)
    al.store(out[0], al.sum(acc) / VALUE)
"""
TILE = """
def k(x: al.Tensor[al.float32, "N"], out: al.Tensor[al.float32, "N"], BLOCK: al.constexpr = 128):
    N = x.shape[0]
    al.spec(out, lambda i: x[i] * (i * N).to(al.float32))
    i = al.grid(al.cdiv(N, BLOCK)) * BLOCK + al.arange(BLOCK)
    al.store(out[i], al.load(x[i], mask=i < N) * EDIT.to(al.float32), mask=i < N)
"""
LOOP = """
def k(x: al.Tensor[al.float32, "N"], out: al.Tensor[al.float32, "1"]):
    N = x.shape[0]
    al.requires(N > 0)
    p = al.grid(1)
    n = 0
    for k in range(N):
        n = al.where(k % 2 == 0, n + EDIT, n)
    al.store(out[0], al.load(x[0]) * n.to(al.float32))
"""
SUM = """
def k(x: al.Tensor[al.float32, "N"], out: al.Tensor[al.float32, "1"]):
    N = x.shape[0]
    al.requires(N > 0)
    p = al.grid(1)
    al.store(out[0], al.load(x[0]) * al.sum(al.arange(1024) * EDIT).to(al.float32))
"""
SPEC = "al.spec(out, lambda o: al.sum(lambda n: x[n]) / (N * N).to(al.float32))"
TWINS = (
    Twins(
        "a product of sizes, with nothing specified",
        MEAN.replace("VALUE", "(N * N).to(al.float32)"),
        "al.requires(N < 46000)",
        "al.requires(N < 47000)",
    ),
    Twins(
        "a product of sizes in 64 bits, as specified",
        MEAN.replace("EDIT", SPEC).replace("VALUE", "EDIT.to(al.float32)"),
        "(N.to(al.int64) * N.to(al.int64))",
        "(N * N)",
    ),
    Twins(
        "a named product of sizes",
        MEAN.replace("EDIT", "count = EDIT").replace("VALUE", "count.to(al.float32)"),
        "N // 2",
        "N * 2",
    ),
    Twins("an element's number times a size", TILE, "(i.to(al.int64) * N.to(al.int64))", "(i * N)"),
    Twins("a counter of a loop", LOOP, "1", "N"),
    Twins("a sum of numbers", SUM, "4", "5000"),
)


@pytest.mark.parametrize("twins", TWINS, ids=lambda t: t.name)
def test_integers_of_sizes_are_exact(twins: Twins) -> None:
    assert prove(twins.text.replace("EDIT", twins.right)).verdict is Verdict.PROVED
    assert prove(twins.text.replace("EDIT", twins.wrong)).verdict is not Verdict.PROVED


def test_an_overflow_of_a_value_is_replayed() -> None:
    report = prove(MEAN.replace("EDIT", SPEC).replace("VALUE", "(N * N).to(al.float32)"))
    refused = next(d for d in report.diagnostics if d.code == "int32-overflow")
    assert refused.verdict is Verdict.REFUTED and refused.witness is not None and refused.witness.sizes["N"] > 46340


DATA = """
def k(x: al.Tensor[al.TYPE, "N"], y: al.Tensor[al.TYPE, "N"], out: al.Tensor[al.RESULT, "N"], B: al.constexpr = 64):
    N = x.shape[0]
    al.requires(al.in_range(y, -20000, 20000))
    al.spec(out, lambda i: SPEC)
    i = al.grid(al.cdiv(N, B)) * B + al.arange(B)
    a, b = al.load(x[i], mask=i < N), al.load(y[i], mask=i < N)
    al.store(out[i], VALUE, mask=i < N)
"""


@pytest.mark.parametrize(
    ("dtype", "result", "right", "wrong"),
    [
        ("uint8", "float32", "({x} & 15).to(al.float32) - 8.0", "({x} + 15).to(al.float32) - 8.0"),
        ("uint8", "float32", "({x} >> 4).to(al.float32)", "(({x} << 4) >> 4).to(al.float32)"),
        ("uint8", "int32", "{x}.to(al.int32) * 255", "({x} * 2).to(al.int32)"),
        ("int32", "int32", "{y} * {y}", "{x} * {y}"),
        ("int32", "float32", "({y} * {y} + 7).to(al.float32)", "({x} * {x}).to(al.float32)"),
        ("int32", "float32", "({x} & 255).to(al.float32)", "({x} + 255).to(al.float32)"),
        ("int32", "int64", "{x}.to(al.int64) * {y}.to(al.int64)", "({x} * {y}).to(al.int64)"),
    ],
)
def test_integers_of_data_are_those_of_mathematics(dtype: str, result: str, right: str, wrong: str) -> None:
    def verdict(form: str) -> Verdict:
        text = DATA.replace("TYPE", dtype).replace("RESULT", result)
        if dtype == "uint8":
            text = text.replace("-20000, 20000", "0, 256")
        text = text.replace("SPEC", form.format(x="x[i]", y="y[i]")).replace("VALUE", form.format(x="a", y="b"))
        return prove(text).verdict

    assert verdict(right) is Verdict.PROVED
    assert verdict(wrong) is not Verdict.PROVED


SQUARES = """
def k(x: al.Tensor[al.int32, "M N"], out: al.Tensor[al.int32, "M"], BLOCK: al.constexpr = 128):
    M, N = x.shape
    al.requires((N <= BLOCK) & (N > 0))
    al.requires(al.in_range(x, 0, EDIT))
    al.spec(out, lambda m: al.sum(lambda n: x[m, n] * x[m, n]))
    m = al.grid(M)
    i = al.arange(BLOCK)
    v = al.load(x[m, i], mask=i < N)
    al.store(out[m], al.sum(v * v))
"""


def test_the_terms_of_a_sum_are_exact() -> None:
    assert prove(SQUARES.replace("EDIT", "4000")).verdict is Verdict.PROVED
    assert prove(SQUARES.replace("EDIT", "400000")).verdict is Verdict.REFUTED


ROWS = """
def k(x: al.Tensor[al.float32, "M N"], out: al.Tensor[al.float32, "M"], BLOCK: al.constexpr = 1024):
    M, N = x.shape
    row = al.grid(M)
    acc = al.zeros((BLOCK,), al.float32)
    for n0 in range(0, N, BLOCK):
        acc += al.load(x[row, n0 + al.arange(BLOCK)], mask=n0 + al.arange(BLOCK) < N)
    al.store(out[row], al.sum(acc) / (M * N).to(al.float32))
"""


def test_an_overflow_is_shown_where_loops_are_short() -> None:
    """Many short rows, in place of few rows that no replay goes through."""
    refused = next(d for d in prove(ROWS).diagnostics if d.code == "int32-overflow")
    assert refused.verdict is Verdict.REFUTED and refused.witness is not None
    assert refused.witness.sizes["N"] <= 16 * 1024 and refused.witness.sizes["M"] * refused.witness.sizes["N"] >= 2**31
