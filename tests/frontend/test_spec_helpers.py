"""Helpers in specifications: how far a parameter ranges is also said by what a helper indexes with it."""

from __future__ import annotations

import pytest

from argus import compile
from argus.diagnostic import SourceError, Verdict
from argus.frontend import Options
from argus.source import SourceFile

TEXT = """
import argus
import argus.language as al

@argus.func
def part(x, i, j):
    return x[i, SOURCE] * 1.0

@argus.func
def term(x, i, j):
    return part(x, i, j)

@argus.kernel
def rows(x: al.Tensor[al.float32, "M 64"], out: al.Tensor[al.float32, "M"]):
    al.spec(out, lambda i: al.sum(lambda j: term(x, i, j)))
    i = al.grid(x.shape[0])
    al.store(out[i], al.sum(al.load(x[i, :]), axis=0))
"""


def explicit(source: str, text: str = TEXT) -> compile.ExplicitKernel:
    file = SourceFile("rows.py", text.replace("SOURCE", source))
    return compile.lower(compile.elaborate(file, "rows", Options(target="sm_80")), "sm_80")


def test_a_parameter_that_a_helper_indexes_with() -> None:
    assert compile.verify(explicit("j")).verdict is Verdict.PROVED


def test_a_parameter_that_no_helper_indexes_with() -> None:
    with pytest.raises(SourceError, match="nothing says how far `j` ranges"):
        explicit("i % 2")


PAGED = """
import argus
import argus.language as al

@argus.func
def score(x, table, i, j):
    return x[table[i, j // 16], j % 16] * 1.0

@argus.kernel
def rows(x: al.Tensor[al.float32, "P 16"], table: al.Tensor[al.int32, "M 2"], out: al.Tensor[al.float32, "M"]):
    al.requires(al.in_range(table, 0, x.shape[0]))
    al.spec(out, lambda i: al.sum(lambda n: al.softmax(lambda j: score(x, table, i, SOURCE))[n]
                                  * score(x, table, i, n)))
    i = al.grid(table.shape[0])
    j = al.arange(32)
    s = al.load(x[al.load(table[i, j // 16]), j % 16])
    w = al.exp(s - al.max(s))
    al.store(out[i], al.sum(w * s) / al.sum(w))
"""


def test_a_parameter_of_an_inner_lambda_by_pages() -> None:
    assert compile.verify(explicit("j", PAGED)).verdict is Verdict.PROVED


def test_a_parameter_of_an_inner_lambda_that_indexes_nothing() -> None:
    with pytest.raises(SourceError, match="nothing says how far `j` ranges"):
        explicit("j % 7", PAGED)


INDEXED = """
import argus
import argus.language as al

@argus.func
def last(n):
    return SOURCE

@argus.kernel
def rows(x: al.Tensor[al.float32, "M 8"], count: al.Tensor[al.int32, "M"], out: al.Tensor[al.float32, "M"]):
    M = x.shape[0]
    al.requires(al.in_range(count, 0, 9))
    al.spec(out, lambda i: x[i, last(count[i])])
    i = al.grid(al.cdiv(M, 64)) * 64 + al.arange(64)
    n = al.load(count[i], mask=i < M)
    al.store(out[i], al.load(x[i, al.maximum(n - 1, 0)], mask=i < M), mask=i < M)
"""


def test_a_helper_inside_an_index() -> None:
    assert compile.verify(explicit("al.maximum(n - 1, 0)", INDEXED)).verdict is Verdict.PROVED
    assert compile.verify(explicit("al.maximum(n - 2, 0)", INDEXED)).verdict is Verdict.REFUTED
    keyword = INDEXED.replace("last(count[i])", "last(n=count[i])")
    assert compile.verify(explicit("al.maximum(n - 1, 0)", keyword)).verdict is Verdict.PROVED


@pytest.mark.parametrize("sum", ["al.sum(lambda c: al.where(c < n, 1, 0), 8)", "n + n.to(al.int64)"])
def test_a_helper_inside_an_index_that_is_no_number_of_one_dtype(sum: str) -> None:
    with pytest.raises(SourceError, match="`last` is called in an index") as caught:
        explicit(sum, INDEXED)
    assert [(d.code, d.span.line) for d in caught.value.diagnostics] == [("bad-index", 13)]
