"""A value is refuted only if neither rounding nor overflow explains it; a wrong term is refuted all the same."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from argus import compile
from argus.frontend import Options
from argus.simulate import replay
from argus.simulate.numeric import shaken
from argus.source import SourceFile

HEAD = "import argus\nimport argus.language as al\n\n\n@argus.kernel\n"


@dataclass(frozen=True, slots=True)
class Twins:
    """A kernel with `EDIT` where its value is another form of the specified one, or another value."""

    name: str
    text: str
    right: str
    wrong: str


def elementwise(specified: str) -> str:
    return f"""
def k(x: al.Tensor[al.float32, "N"], out: al.Tensor[al.float32, "N"], BLOCK: al.constexpr = 128):
    N = x.shape[0]
    al.spec(out, lambda i: {specified})
    i = al.grid(al.cdiv(N, BLOCK)) * BLOCK + al.arange(BLOCK)
    v = al.load(x[i], mask=i < N)
    al.store(out[i], EDIT, mask=i < N)
"""


ROWS = """
def k(x: al.Tensor[al.float32, "M N"], out: al.Tensor[al.float32, "M"], BLOCK: al.constexpr = 128):
    M, N = x.shape
    al.requires((N > 0) & (N <= BLOCK))
    al.spec(out, lambda m: al.sum(lambda n: x[m, n] * x[m, n]) / N.to(al.float32) - SQUARE)
    m = al.grid(M)
    i = al.arange(BLOCK)
    v = al.load(x[m, i], mask=i < N)
    mean = al.sum(v) / N.to(al.float32)
    al.store(out[m], EDIT / N.to(al.float32))
""".replace("SQUARE", "(al.sum(lambda n: x[m, n]) / N.to(al.float32)) * (al.sum(lambda n: x[m, n]) / N.to(al.float32))")
TWINS = (
    Twins("squares that overflow", elementwise("al.exp(x[i] * 100.0)"), "al.exp(v * 50.0) * al.exp(v * 50.0)",
          "al.exp(v * 50.0) * al.exp(v * 49.0)"),
    Twins("a quotient of infinities", elementwise("al.sigmoid(x[i] * 60.0)"),
          "al.exp(v * 60.0) / (1.0 + al.exp(v * 60.0))", "al.exp(v * 60.0) / (2.0 + al.exp(v * 60.0))"),
    Twins("a product with zero by underflow", elementwise("al.exp(x[i] * 0.125)"),
          "al.exp(v * 40.0) * al.exp(v * -39.875)", "al.exp(v * 40.0) * al.exp(v * -39.75)"),
    Twins("a logarithm of an overflow", elementwise("x[i] * 90.0"), "al.log(al.exp(v * 90.0))",
          "al.log(al.exp(v * 90.0)) + 1.0"),
    Twins("a variance by another formula", ROWS, "al.sum(al.where(i < N, (v - mean) * (v - mean), 0.0))",
          "al.sum(al.where(i < N, (v - mean) * v * 2.0, 0.0))"),
    Twins("a wrong number that is not finite", elementwise("al.where(x[i] == 0.0, 0.0, x[i])"),
          "al.where(v == 0.0, 0.0, v * v / v)", "v * v / v"),
)  # fmt: skip


def differs(text: str) -> bool:
    """Whether the simulator finds another value than the specified one at some sizes."""
    source = SourceFile("k.py", HEAD + text.lstrip("\n"))
    kernel = compile.lower(compile.elaborate(source, "k", Options(target="sm_80")), "sm_80")
    sizes = {"N": 40, "M": 4} if '"M N"' in text else {"N": 40}
    return any(v.code == "spec-mismatch" for v in replay(kernel, sizes, None))


@pytest.mark.parametrize("twins", TWINS, ids=lambda t: t.name)
def test_rounding_and_overflow_refute_nothing(twins: Twins) -> None:
    assert not differs(twins.text.replace("EDIT", twins.right))
    assert differs(twins.text.replace("EDIT", twins.wrong))


def test_disturbed_numbers_are_near_and_equal_ones_alike() -> None:
    values = np.concatenate([np.linspace(-3, 3, 1001), [0.0, np.inf, -np.inf, 1e300, -1e-300]])
    changed = shaken(values)
    finite = np.isfinite(values)
    assert np.all(np.abs(changed[finite] - values[finite]) <= np.abs(values[finite]) * 2.0**-39)
    assert np.all(changed[~finite] == values[~finite]) and np.array_equal(changed, shaken(values))
    assert np.mean(changed != values) > 0.9
