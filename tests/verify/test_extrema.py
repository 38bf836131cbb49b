"""Places of extrema: `al.argmax` and `al.argmin` in specifications, and kernels that find another place."""

from __future__ import annotations

import pytest

from argus import compile
from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.source import SourceFile

KERNEL = """
import argus
import argus.language as al

@argus.kernel
def place(x: al.Tensor[al.float32, "M N"], out: al.Tensor[al.int32, "M"], BLOCK: al.constexpr = 128):
    M, N = x.shape
    al.requires(N <= BLOCK)
    al.requires(N >= 1)
    al.spec(out, lambda m: al.argmax(lambda n: x[m, n]))
    r = al.grid(M)
    j = al.arange(BLOCK)
    v = al.load(x[r, j], mask=j < N, other=float("-inf"))
    best = al.max(v, axis=0)
    al.store(out[r], RESULT)
"""

FIRST = "al.argmax(v, axis=0)"
BY_HAND = "al.min(al.where((v == best) | (v != v), j, BEYOND), axis=0)"


def verdict(result: str, *edits: tuple[str, str]) -> Verdict:
    text = KERNEL.replace("RESULT", result)
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new)
    return compile.prove(SourceFile("place.py", text), "place", Options(target="sm_90a")).verdict


MINIMUM = ("al.argmax(lambda", "al.argmin(lambda"), ('float("-inf")', 'float("inf")')
INTEGERS = ("x: al.Tensor[al.float32", "x: al.Tensor[al.int32"), ('float("-inf")', "-2147483648")
ROWS = (
    ("r = al.grid(M)", "r = al.grid(al.cdiv(M, 4)) * 4"),
    (
        'al.load(x[r, j], mask=j < N, other=float("-inf"))',
        'al.load(x[r : r + 4, 0:BLOCK], boundary_check=(0, 1), other=float("-inf"))',
    ),
    ("best = al.max(v, axis=0)", ""),
    ("al.store(out[r], al.argmax(v, axis=0))", "al.store(out[r : r + 4], al.argmax(v, axis=1), boundary_check=(0,))"),
)


@pytest.mark.parametrize(
    ("result", "edits"),
    [
        (FIRST, ()),
        (FIRST, (("x: al.Tensor[al.float32", "x: al.Tensor[al.bfloat16"),)),
        (FIRST, INTEGERS),
        (FIRST, ROWS),
        (f"{FIRST} + 1", (("x[m, n])", "x[m, n]) + 1"),)),
        ("al.argmin(v, axis=0)", MINIMUM),
        (BY_HAND.replace("BEYOND", "127"), ()),
        (BY_HAND.replace("BEYOND", "1000000"), ()),
        (BY_HAND.replace("| (v != v)) ", "| (v != v)) & (j < N) "), ()),
    ],
)
def test_the_first_place_of_an_extremum_is_proved(result: str, edits: tuple[tuple[str, str], ...]) -> None:
    assert verdict(result.replace("BEYOND", "127"), *edits) is Verdict.PROVED


@pytest.mark.parametrize(
    ("result", "edits"),
    [
        ("al.max(al.where((v == best) | (v != v), j, -1), axis=0)", ()),  # the last place
        ("al.argmin(v, axis=0)", (('float("-inf")', 'float("inf")'),)),
        (FIRST, (("    al.requires(N >= 1)\n", ""),)),  # A row without elements has no place.
        (FIRST, (('float("-inf")', "0.0"),)),  # Padding is greater than negative elements.
        (FIRST, (("mask=j < N", "mask=j < N - 1"),)),
        (FIRST, (("x[r, j]", "x[0, j]"),)),
        (BY_HAND.replace("BEYOND", "N - 2"), ()),  # Less than the place of the last element.
        (BY_HAND.replace("BEYOND", "1000").replace("v == best", "v >= best - 1.0"), ()),
        (f"{FIRST} + 1", ()),
    ],
)
def test_another_place_is_refuted(result: str, edits: tuple[tuple[str, str], ...]) -> None:
    assert verdict(result, *edits) is Verdict.REFUTED


@pytest.mark.parametrize(
    "result",
    [
        BY_HAND.replace("BEYOND", "1000").replace("(v == best) | (v != v)", "v == best"),  # differs for NaN
        BY_HAND.replace("BEYOND", "50"),  # differs for rows of more than 51 elements
        "al.argmax(v.to(al.bfloat16), axis=0)",
    ],
)
def test_places_that_differ_for_few_inputs_are_not_proved(result: str) -> None:
    assert verdict(result) is not Verdict.PROVED
