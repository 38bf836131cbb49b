"""Conditions that are the same for all elements of a vector are asked once a vector; what the grid says, never."""

from __future__ import annotations

from typing import Any

import pytest

import argus.language as al
from argus.compile import elaborate, lower, verify
from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.frontend.decorator import kernel
from argus.ir.text import print_kernel


@kernel
def masked(x: al.Tensor[al.float16, "N"], out: al.Tensor[al.float32, "N"], BLOCK: al.constexpr = 1024):
    N = x.shape[0]
    offs = al.grid(al.cdiv(N, BLOCK)) * BLOCK + al.arange(BLOCK)
    values = al.load(x[offs], mask=offs < N).to(al.float32)
    kept = al.where(offs < N, values + 1.0, 0.0)
    al.store(out[offs], kept, mask=offs < N)


def explicit(**alignment: Any) -> str:
    options = Options("sm_80", alignment=alignment)
    return print_kernel(lower(elaborate(masked.file, masked.name, options), "sm_80"))


def test_a_condition_that_changes_between_vectors_only_is_asked_of_the_first_element() -> None:
    assert "c0 - c0 % 8" in explicit()


def test_a_condition_that_may_change_anywhere_stays() -> None:
    assert " % " not in explicit(x=2, out=4)


@kernel
def of_rows(x: al.Tensor[al.float32, "M N"], out: al.Tensor[al.float32, "M N"], ROWS: al.constexpr, MORE: al.constexpr):
    M, N = x.shape
    rows = al.grid(al.cdiv(M, ROWS) + MORE) * ROWS + al.arange(ROWS)
    cols = al.arange(64)
    live = (rows < M)[:, None] & (cols < N)
    al.requires(N <= 64)
    al.store(out[rows[:, None], cols], al.where(live, al.load(x[rows[:, None], cols], mask=live), 1.0), mask=live)


@pytest.mark.parametrize(("rows", "more", "asked"), [(1, 0, False), (2, 0, True), (1, 1, True)])
def test_a_program_id_is_not_compared_with_its_axis_of_the_grid(rows: int, more: int, asked: bool) -> None:
    options = Options("sm_80", constexprs={"ROWS": rows, "MORE": more})
    explicit = lower(elaborate(of_rows.file, of_rows.name, options), "sm_80")
    text = print_kernel(explicit)
    assert ("< M" in text) == asked and text.count("< N") == 3
    assert verify(explicit).verdict is Verdict.PROVED
