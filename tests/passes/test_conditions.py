"""Conditions that are the same for all elements of a vector are asked once a vector."""

from __future__ import annotations

from typing import Any

import argus.language as al
from argus.compile import choreograph, elaborate
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
    return print_kernel(choreograph(elaborate(masked.file, masked.name, options), "sm_80"))


def test_a_condition_that_changes_between_vectors_only_is_asked_of_the_first_element() -> None:
    assert "c0 - c0 % 8" in explicit()


def test_a_condition_that_may_change_anywhere_stays() -> None:
    assert " % " not in explicit(x=2, out=4)
