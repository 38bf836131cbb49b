"""Masks of waves: what loops count is subtracted from the bound once, instead of added in every lane."""

from __future__ import annotations

import pytest

from argus.backend.emit import emit
from argus.compile import elaborate
from argus.frontend import Options
from argus.passes import lower
from argus.source import SourceFile

TEXT = """
import argus
import argus.language as al

@argus.kernel(num_warps=1)
def kernel(x: al.Tensor[al.float32, "N"], first: al.Tensor[al.int32, "one"], out: al.Tensor[al.float32, "one"]):
    N = x.shape[0]
    al.requires(N % 4 == 0)
    start = al.load(first[0])
    total = al.zeros((256,), al.float32)
    for n in range({range}):
        at = {place} + al.arange(256)
        total += al.load(x[at], mask=(0 <= at) & (at < N))
    al.store(out[0], al.sum(total))
"""


def emitted(target: str, place: str = "n", counted: str = "0, N, 256") -> str:
    source = SourceFile("kernel.py", TEXT.format(place=place, range=counted))
    return emit(lower(elaborate(source, "kernel", Options(target, 1)), target))


@pytest.mark.parametrize(
    ("place", "mask"),
    [("n", "t0 < N - n"), ("n + 256", "t0 + 256 < N - n"), ("n + 256 - 256", "t0 < N - n"),
     ("n - 256", "t0 + -256 < N - n")],
)  # fmt: skip
def test_lanes_are_compared_with_a_difference(place: str, mask: str) -> None:
    assert f"{mask}," in emitted("gfx942", place) or f"{mask})" in emitted("gfx942", place)
    assert "< N - n" not in emitted("sm_80", place)


@pytest.mark.parametrize(
    ("place", "counted"),
    [("n", "0 - N, N, 256"), ("start + n", "0, N, 256"), ("n * 2", "0, N, 256")],
    ids=["counts from below zero", "of data", "no counter by itself"],
)
def test_differences_that_could_overflow_are_not_made(place: str, counted: str) -> None:
    assert "< N - " not in emitted("gfx942", place, counted)
