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


def explicit(source: str) -> compile.ExplicitKernel:
    text = SourceFile("rows.py", TEXT.replace("SOURCE", source))
    return compile.lower(compile.elaborate(text, "rows", Options(target="sm_80")), "sm_80")


def test_a_parameter_that_a_helper_indexes_with() -> None:
    assert compile.verify(explicit("j")).verdict is Verdict.PROVED


def test_a_parameter_that_no_helper_indexes_with() -> None:
    with pytest.raises(SourceError, match="nothing says how far `j` ranges"):
        explicit("i % 2")
