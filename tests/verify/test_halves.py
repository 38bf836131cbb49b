"""Products of float8_e4m3fn on gfx942, whose instructions take e4m3fnuz: halves are multiplied, and the sum times 4."""

from __future__ import annotations

import pytest

from argus.compile import elaborate, lower
from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.source import SourceFile
from argus.verify import verify

TEXT = """
import argus
import argus.language as al

@argus.func
def halved(x):
    return (al.load(x).to(al.float32) * 0.5).to(al.float8_e4m3fnuz)

@argus.kernel(num_warps=1)
def product(a: al.Tensor[al.float8_e4m3fn, "32 16"], b: al.Tensor[al.float8_e4m3fn, "32 16"],
            c: al.Tensor[al.float32, "32 32"]):
    al.spec(c, lambda m, n: al.sum(lambda k: a[m, k] * b[n, k]))
    al.grid(1)
    sums = al.mma(halved(a[:, :]), halved(b[:, :]), al.zeros((32, 32), al.float32))
    al.store(c[:, :], sums * 4.0)
"""


def verdict(text: str) -> Verdict:
    return verify(lower(elaborate(SourceFile("product.py", text), "product", Options("gfx942")), "gfx942")).verdict


def test_the_product_of_halves_is_a_quarter() -> None:
    assert verdict(TEXT) is Verdict.PROVED


@pytest.mark.parametrize(("old", "new"), [("sums * 4.0", "sums"), ("* 0.5)", "* 0.25)")])
def test_another_share_is_refuted(old: str, new: str) -> None:
    assert TEXT.count(old) == 1
    assert verdict(TEXT.replace(old, new)) is Verdict.REFUTED


def test_twice_the_product_is_not_proved() -> None:
    assert verdict(TEXT.replace("sums * 4.0", "sums * 8.0")) is Verdict.REFUTED
    assert verdict(TEXT.replace("sums * 4.0", "sums * 2.0")) is not Verdict.PROVED
