"""Specifications that name what the kernel itself stores: recurrences and chains of results, equations that say
nothing, and what is refuted."""

from __future__ import annotations

import pytest

from argus.compile import prove
from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.source import SourceFile

SOLVED = """
import argus
import argus.language as al

@argus.kernel(num_warps=1)
def solved(a: al.Tensor[al.float32, "N 8 8"], x: al.Tensor[al.float32, "N 8 8"], u: al.Tensor[al.float32, "N 8 8"]):
    al.spec(u, lambda n, t, j: x[n, t, j] - al.sum(lambda s: al.where(s < t, a[n, t, s] * u[n, s, j], 0.0), 8))
    n = al.grid(x.shape[0])
    i = al.arange(8)
    lower, rows = al.shared((8, 8), al.float32), al.shared((8, 8), al.float32)
    al.store(lower, al.where(i[None, :] < i[:, None], al.load(a[n, :, :]), 0.0))
    left = al.load(x[n, :, :])
    for r in range(8):
        al.store(rows, left, mask=(i == r)[:, None])
        al.barrier()
        left = left - al.load(lower[:, r])[:, None] * al.load(rows[r, :])[None, :]
    al.store(u[n, :, :], al.load(rows))
"""
CHAIN = """
import argus
import argus.language as al

@argus.kernel(num_warps=1)
def chain(x: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "N"], z: al.Tensor[al.float32, "N"]):
    al.spec(y, lambda i: 2.0 * x[i])
    al.spec(z, lambda i: y[i] * y[i])
    i = al.grid(al.cdiv(x.shape[0], 32)) * 32 + al.arange(32)
    y_tile = al.load(x[i], mask=i < x.shape[0]) * 2.0
    al.store(y[i], y_tile, mask=i < x.shape[0])
    al.store(z[i], y_tile * y_tile, mask=i < x.shape[0])
"""
STEPS = """
import argus
import argus.language as al

@argus.kernel(num_warps=1)
def steps(x: al.Tensor[al.float32, "T 32"], y: al.Tensor[al.float32, "T 32"], z: al.Tensor[al.float32, "T 32"]):
    T = x.shape[0]
    al.requires(T < 2**24)
    al.spec(y, lambda t, j: x[t, j] + 0.5 * al.where(t > 0, z[t - 1, j], 0.0))
    al.spec(z, lambda t, j: al.tanh(y[t, j]) * y[t, j])
    first = al.grid(1)
    j = al.arange(32)
    kept = al.shared((32,), al.float32)
    al.store(kept, al.zeros((32,), al.float32))
    for t in range(T):
        a = al.load(x[t, j]) + 0.5 * al.load(kept)
        b = al.tanh(a) * a
        al.store(kept, b)
        al.store(y[t, j], a)
        al.store(z[t, j], b)
"""
"""What is stored as `z` is computed from what is stored as `y`: each is known to the other as an element."""


def verdict(text: str, name: str) -> Verdict:
    return prove(SourceFile("own.py", text), name, Options("sm_80", 1)).verdict


@pytest.mark.parametrize(("text", "name"), [(SOLVED, "solved"), (CHAIN, "chain"), (STEPS, "steps")])
def test_proved(text: str, name: str) -> None:
    assert verdict(text, name) is Verdict.PROVED


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("left = left - al", "left = left + al"),
        ("al.load(lower[:, r])[:, None]", "al.load(lower[r, :])[:, None]"),
        ("(i == r)", "(i == 7 - r)"),
        ("al.where(s < t,", "al.where(t < s,"),
    ],
)
def test_another_recurrence_is_refuted(old: str, new: str) -> None:
    """A sign, the transposed matrix, rows in the wrong order, and a specification of later rows."""
    assert SOLVED.count(old) == 1
    assert verdict(SOLVED.replace(old, new), "solved") is Verdict.REFUTED


@pytest.mark.parametrize(("old", "new"), [("* y_tile", "* 3.0"), ("y[i] * y[i]", "y[i] * x[i]")])
def test_another_chain_is_refuted(old: str, new: str) -> None:
    assert CHAIN.count(old) == 1
    assert verdict(CHAIN.replace(old, new), "chain") is Verdict.REFUTED


@pytest.mark.parametrize(
    ("old", "new"),
    [("b = al.tanh(a) * a", "b = al.tanh(a) * al.load(kept)"), ("al.store(kept, b)", "al.store(kept, a)")],
)
def test_other_steps_are_refuted(old: str, new: str) -> None:
    assert STEPS.count(old) == 1
    assert verdict(STEPS.replace(old, new), "steps") is Verdict.REFUTED


@pytest.mark.parametrize(
    "value",
    [
        "y[i]",
        "z[i] * 0.25 / y[i] * y[i] / x[i] * 4.0 * x[i] * x[i] / y[i]",
        "al.where(i < 5, y[i], 2.0 * x[i])",
    ],
)
def test_what_says_nothing_of_an_element_is_not_proved(value: str) -> None:
    """Every kernel follows `y[i] = y[i]`, and so does one of whose results the first is specified by the second."""
    text = CHAIN.replace("al.spec(y, lambda i: 2.0 * x[i])", f"al.spec(y, lambda i: {value})")
    assert verdict(text, "chain") is not Verdict.PROVED


def test_two_results_by_each_other_are_not_proved() -> None:
    text = CHAIN.replace("2.0 * x[i])", "z[i])").replace("y[i] * y[i]", "y[i]").replace("y_tile * y_tile", "y_tile")
    assert verdict(text, "chain") is Verdict.UNKNOWN


def test_a_result_that_is_read_stands_for_its_contents_at_launch() -> None:
    text = CHAIN.replace("y_tile * y_tile", "al.load(z[i], mask=i < x.shape[0])")
    assert verdict(text.replace("y[i] * y[i]", "z[i]"), "chain") is Verdict.PROVED
    assert verdict(text, "chain") is Verdict.REFUTED


def test_a_rounded_result_is_not_the_number_before() -> None:
    """What is stored has 8 bits of mantissa; the square is one of the number that has 24."""
    text = CHAIN.replace("y: al.Tensor[al.float32", "y: al.Tensor[al.bfloat16").replace(
        "al.store(y[i], y_tile,", "al.store(y[i], y_tile.to(al.bfloat16),"
    )
    assert verdict(text, "chain") is not Verdict.PROVED
