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
