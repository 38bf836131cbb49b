"""Bound variables of specifications whose range is stated, because they index no tensor by themselves."""

from __future__ import annotations

import pytest

from argus import compile
from argus.diagnostic import SourceError, Verdict
from argus.frontend import Options
from argus.source import SourceFile

TEXT = """
import argus
import argus.language as al

@argus.kernel
def before(x: al.Tensor[al.int32, "E"], out: al.Tensor[al.int32, "N"], BLOCK: al.constexpr = 32):
    E, N = x.shape[0], out.shape[0]
    al.requires((E > 0) & (E <= BLOCK))
    al.requires(al.in_range(x, 0, 3))
    al.spec(out, lambda n: al.sum(lambda e: al.where(al.sum(lambda f: al.where(f <= e, x[f], 0)) <= n, 1, 0), E))
    i = al.grid(al.cdiv(N, BLOCK)) * BLOCK + al.arange(BLOCK)
    e = al.arange(BLOCK)
    parts = al.load(x[e], mask=e < E)
    through = al.sum(al.where(e[None, :] <= e[:, None], parts[None, :], 0), axis=1)
    count = al.sum(al.where((e < E)[None, :] & (through[None, :] <= i[:, None]), 1, 0), axis=1)
    al.store(out[i], count, mask=i < N)
"""


BLOCKS = """
import argus
import argus.language as al

@argus.kernel
def before(x: al.Tensor[al.int32, "E"], out: al.Tensor[al.int32, "N"], BLOCK: al.constexpr = 32):
    E, N = x.shape[0], out.shape[0]
    al.requires((E > 0) & (E < 2**20))
    al.requires(al.in_range(x, 0, 3))
    al.spec(out, lambda n: al.sum(lambda e: al.where(al.sum(lambda f: al.where(f <= e, x[f], 0)) <= n, 1, 0), E))
    i = al.grid(al.cdiv(N, BLOCK)) * BLOCK + al.arange(BLOCK)
    count, total = al.zeros((BLOCK,), al.int32), 0
    for e0 in range(0, E, BLOCK):
        e = e0 + al.arange(BLOCK)
        parts = al.load(x[e], mask=e < E)
        through = total + al.cumsum(parts, 0)
        count += al.sum(al.where((e < E)[None, :] & (through[None, :] <= i[:, None]), 1, 0), axis=1)
        total += al.sum(parts)
    al.store(out[i], count, mask=i < N)
"""
"""The same, with sums that are carried from block to block."""


def verdict(*edits: tuple[str, str], text: str = TEXT) -> Verdict:
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new)
    return compile.prove(SourceFile("before.py", text), "before", Options(target="sm_80")).verdict


def test_a_count_of_sums_is_proved() -> None:
    assert verdict() is Verdict.PROVED


@pytest.mark.parametrize(
    "edit",
    [
        ("(e < E)[None, :] & (through", "(through"),  # Places beyond the last element count, too.
        ("(through[None, :] <= i", "(through[None, :] < i"),
        ("e[None, :] <= e[:, None]", "e[None, :] < e[:, None]"),
        ("1, 0), E))", "1, 0), E - 1))"),
        ("1, 0), axis=1)", "2, 0), axis=1)"),
    ],
)
def test_another_count_is_refuted(edit: tuple[str, str]) -> None:
    assert verdict(edit) is Verdict.REFUTED


def test_a_count_of_sums_over_blocks_is_proved() -> None:
    assert verdict(text=BLOCKS) is Verdict.PROVED


@pytest.mark.parametrize(
    "edit",
    [
        ("through = total + ", "through = "),
        ("(e < E)[None, :] & (through", "(through"),
        ("(through[None, :] <= i", "(through[None, :] < i"),
    ],
)
def test_another_count_over_blocks_is_not_proved(edit: tuple[str, str]) -> None:
    assert verdict(edit, text=BLOCKS) is Verdict.REFUTED


@pytest.mark.parametrize("extent", ["x[0]", "1.5", "n"])
def test_a_range_is_an_integer_of_sizes(extent: str) -> None:
    with pytest.raises(SourceError) as error:
        verdict(("1, 0), E))", f"1, 0), {extent}))"))
    assert [d.code for d in error.value.diagnostics] == ["bad-tag"]
