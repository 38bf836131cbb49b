"""Limits of loaded numbers: those that the declared range meets change nothing, and others do."""

from __future__ import annotations

import pytest

from argus.compile import prove
from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.source import SourceFile

TEXT = """
import argus
import argus.language as al


@argus.kernel
def gathered(
    x: al.Tensor[al.float32, "P 16"], table: al.Tensor[al.int32, "T"], out: al.Tensor[al.float32, "T 16"]
):
    T, P = table.shape[0], x.shape[0]
    FACT
    al.spec(out, lambda t, d: x[table[t], d])
    t = al.grid(T)
    page = al.minimum(al.maximum(al.load(table[t]), LOW), HIGH)
    d = al.arange(16)
    al.store(out[t, d], al.load(x[page, d]))
"""
FACT = "al.requires(al.in_range(table, 0, P))"


def verdict(fact: str, low: str, high: str) -> Verdict:
    text = TEXT.replace("FACT", fact).replace("LOW", low).replace("HIGH", high)
    return prove(SourceFile("gathered.py", text), "gathered", Options("sm_90a")).verdict


@pytest.mark.parametrize(("low", "high"), [("0", "P - 1"), ("-3", "P"), ("0", "P + 7")])
def test_limits_outside_of_the_range_change_nothing(low: str, high: str) -> None:
    assert verdict(FACT, low, high) is Verdict.PROVED


@pytest.mark.parametrize(
    ("fact", "low", "high"),
    [(FACT, "1", "P - 1"), (FACT, "0", "P - 2"), (FACT, "0", "T"), ("al.requires(P > 0)", "0", "P - 1")],
)
def test_limits_inside_of_it_do(fact: str, low: str, high: str) -> None:
    assert verdict(fact, low, high) is not Verdict.PROVED
