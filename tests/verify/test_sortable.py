"""Integers in the order of floats: results, and what is proved of them."""

from __future__ import annotations

import numpy as np
import pytest

from argus.compile import prove
from argus.diagnostic import SourceError, Verdict
from argus.frontend import Options
from argus.ir.types import float32, int32
from argus.simulate.evaluate import sortable
from argus.source import SourceFile

TEXT = """
import argus
import argus.language as al

@argus.kernel(num_warps=1)
def kernel(x: al.Tensor[al.{dtype}, "N"], out: al.Tensor[al.int32, "N"]):
    N = x.shape[0]
    al.spec(out, lambda i: {spec})
    cols = al.grid(al.cdiv(N, 64)) * 64 + al.arange(64)
    values = al.load(x[cols], mask=cols < N)
    al.store(out[cols], {value}, mask=cols < N)
"""

ORDER = "al.sortable(x[i].to(al.float32), al.int32)"


def verdict(dtype: str, spec: str, value: str) -> Verdict:
    text = TEXT.format(dtype=dtype, spec=spec, value=value)
    return prove(SourceFile("kernel.py", text), "kernel", Options("sm_80", 1)).verdict


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_the_order_of_elements_is_proved(dtype: str) -> None:
    assert verdict(dtype, ORDER, "al.sortable(values.to(al.float32), al.int32)") is Verdict.PROVED


@pytest.mark.parametrize(
    "value",
    [
        "al.sortable(values.to(al.bfloat16).to(al.float32), al.int32)",
        "al.sortable(values.to(al.int32).to(al.float32), al.int32)",
    ],
)
def test_the_order_of_rounded_numbers_is_not_proved(value: str) -> None:
    """Elsewhere conversions that round leave what is computed as it is."""
    assert verdict("float32", ORDER, value) is not Verdict.PROVED


def test_another_order_is_refuted() -> None:
    assert verdict("float32", ORDER, "al.sortable(-values, al.int32)") is Verdict.REFUTED


@pytest.mark.parametrize("number", ["x[i] + 1.0", "al.exp(x[i])"])
def test_specifications_do_not_order_computed_numbers(number: str) -> None:
    with pytest.raises(SourceError, match="the order of computed numbers is no part of a specification"):
        verdict("float32", f"al.sortable({number}, al.int32)", "al.sortable(values, al.int32)")


def test_other_types_are_refused() -> None:
    with pytest.raises(SourceError, match=r"`al\.sortable` does not make int32 of bfloat16"):
        verdict("bfloat16", ORDER, "al.sortable(values, al.int32)")


def test_integers_are_in_the_order_of_floats() -> None:
    inf = np.float32(np.inf)
    numbers = np.array([-inf, -3e38, -1, -1e-45, 0, 1e-45, 1, 3e38, inf], np.float32)
    keys = sortable(numbers, int32)
    assert np.all(np.diff(keys) > 0) and np.array_equal(sortable(keys, float32), numbers)
    nan = np.array([np.nan], np.float32)
    assert sortable(np.array([-0.0], np.float32), int32)[0] == 0
    assert min(sortable(nan, int32)[0], sortable(-nan, int32)[0]) > keys[-1]
