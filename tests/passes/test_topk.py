"""`al.topk`: the greatest or least elements and their places, equal to NumPy's stable order, and proved."""

from __future__ import annotations

import numpy as np
import pytest

import argus
import argus.language as al
from argus import compile
from argus.diagnostic import SourceError, Verdict
from argus.frontend import Options
from argus.source import SourceFile

TEXT = """
import argus
import argus.language as al

@argus.kernel
def top(
    x: al.Tensor[al.float32, "M N"], values: al.Tensor[al.float32, "M K"], places: al.Tensor[al.int32, "M K"],
    K: al.constexpr = 3, ROWS: al.constexpr = 4, BLOCK: al.constexpr = 32,
):
    M, N = x.shape
    al.requires((K <= N) & (N <= BLOCK))
    al.spec(values, lambda m, r: al.topk(lambda n: x[m, n], K)[0][r])
    al.spec(places, lambda m, r: al.topk(lambda n: x[m, n], K)[1][r])
    rows = al.grid(al.cdiv(M, ROWS)) * ROWS + al.arange(ROWS)[:, None]
    cols = al.arange(BLOCK)
    t = al.load(x[rows, cols], mask=(rows < M) & (cols < N))
    v, p = al.topk(t, K, 1, mask=cols < N)
    al.store(values[rows, al.arange(K)], v, mask=rows < M)
    al.store(places[rows, al.arange(K)], p, mask=rows < M)
"""

LEAST = ("K)[", "K, largest=False)["), ("mask=cols < N)", "mask=cols < N, largest=False)")
"""Edits that ask for the least elements, in the specification and in the kernel."""


def edited(*edits: tuple[str, str]) -> SourceFile:
    text = TEXT
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new)
    return SourceFile("top.py", text)


def verdict(*edits: tuple[str, str]) -> Verdict:
    return compile.prove(edited(*edits), "top", Options(target="sm_90a")).verdict


@pytest.mark.parametrize(
    "edits",
    [
        (),
        LEAST,
        (
            ("x: al.Tensor[al.float32", "x: al.Tensor[al.int32"),
            ("values: al.Tensor[al.float", "values: al.Tensor[al.int"),
        ),
    ],
)
def test_the_greatest_and_the_least_are_proved(edits: tuple[tuple[str, str], ...]) -> None:
    assert verdict(*edits) is Verdict.PROVED


@pytest.mark.parametrize(
    "edits",
    [
        (("t, K, 1, mask=cols < N)", "t, K, 1)"),),  # Zeros beyond the row take part.
        (("t, K, 1, mask=cols < N)", "t, K, 1, mask=cols < N - 1)"),),
        LEAST[:1],
        LEAST[1:],
        (("places[rows, al.arange(K)], p", "places[rows, al.arange(K)], K - 1 - p"),),
        (("x[m, n], K)[1][r]", "x[m, n], K)[1][K - 1 - r]"),),
    ],
)
def test_other_elements_are_refuted(edits: tuple[tuple[str, str], ...]) -> None:
    assert verdict(*edits) is Verdict.REFUTED


@argus.kernel
def of_rows(
    x: al.Tensor[al.float32, "M N"], values: al.Tensor[al.float32, "M 5"], places: al.Tensor[al.int32, "M 5"],
    LARGEST: al.constexpr = True,
):  # fmt: skip
    al.requires(N <= 64)
    m = al.grid(M)
    cols = al.arange(64)
    v, p = al.topk(al.load(x[m, cols], mask=cols < N), 5, 0, mask=cols < N, largest=LARGEST)
    al.store(values[m, :], v)
    al.store(places[m, :], p)


@pytest.mark.parametrize("largest", [True, False])
def test_equal_elements_infinity_and_nan(largest: bool) -> None:
    x = np.random.default_rng(3).integers(-3, 3, (6, 41)).astype(np.float32)
    x[0, [7, 9]], x[1, 11], x[2, 3] = np.nan, np.inf, -np.inf
    values, places = np.zeros((6, 5), np.float32), np.zeros((6, 5), np.int32)
    of_rows(x, values, places, LARGEST=largest)
    keys = np.where(np.isnan(x), np.float32(1e38), np.clip(x, -1e37, 1e37))
    wanted = np.argsort(-keys if largest else keys, axis=1, kind="stable")[:, :5]
    np.testing.assert_array_equal(places, wanted)
    np.testing.assert_array_equal(values, np.take_along_axis(x, wanted, 1))


@pytest.mark.parametrize(
    ("edits", "code"),
    [
        ((("al.topk(t, K, 1", "al.topk(t, 33, 1"),), "bad-shape"),
        ((("al.topk(t, K, 1", "al.topk(t < 0.0, K, 1"),), "type-mismatch"),
        ((("al.topk(t, K, 1", "al.topk(t, 0, 1"),), "wrong-arguments"),
        ((("x[m, n], K)[0][r]", "x[m, n] * 3.0, K)[0][r]"),), "bad-tag"),
        ((("K)[0][r]", "K)[2][r]"),), "bad-tag"),
    ],
)
def test_what_has_no_greatest_elements(edits: tuple[tuple[str, str], ...], code: str) -> None:
    with pytest.raises(SourceError) as error:
        compile.elaborate(edited(*edits), "top", Options(target="sm_80"))
    assert [d.code for d in error.value.diagnostics] == [code]
