"""Specifications of tensors whose elements stand in pages that a table names: pages are a dimension of them."""

from __future__ import annotations

import numpy as np
import pytest

from argus import compile
from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.render import diagnostic_text
from argus.simulate import replay
from argus.source import SourceFile

DECODE = """
import argus
import argus.language as al

NEVER = -float("inf")
LOG2E = 1.4426950408889634

@argus.kernel(num_warps=4)
def decode(
    q: al.Tensor[al.bfloat16, "B HK G D"], keys: al.Tensor[al.bfloat16, "NB PAGE HK D"],
    values: al.Tensor[al.bfloat16, "NB PAGE HK D"], table: al.Tensor[al.int32, "B MAXP"],
    lens: al.Tensor[al.int32, "B"], out: al.Tensor[al.float32, "B HK PARTS G D"],
    level: al.Tensor[al.float32, "B HK PARTS G"], scale: al.float32,
    G: al.constexpr = 4, D: al.constexpr = 64, PAGE: al.constexpr = 16, SPAN: al.constexpr = 2,
    PARTS: al.constexpr = 3, ROWS: al.constexpr = 64,
):
    B, HK, NB, MAXP = q.shape[0], q.shape[1], keys.shape[0], table.shape[1]
    al.requires((scale > 0.0) & (MAXP <= PARTS * SPAN))
    al.requires(al.in_range(table, 0, NB))
    al.requires(al.in_range(lens, 0, MAXP * PAGE + 1))
    al.spec(out, lambda b, h, t, g, e: al.sum(lambda n: al.softmax(
        lambda j: al.where((j < lens[b]) & (j // (SPAN * PAGE) == t),
            al.sum(lambda d: q[b, h, g, d] * keys[table[b, j // PAGE], j % PAGE, h, d]) * scale, NEVER)
        )[n] * values[table[b, n // PAGE], n % PAGE, h, e]))
    al.spec(level, lambda b, h, t, g: al.logsumexp(
        lambda j: al.where((j < lens[b]) & (j // (SPAN * PAGE) == t),
            al.sum(lambda d: q[b, h, g, d] * keys[table[b, j // PAGE], j % PAGE, h, d]) * scale, NEVER)))
    part, head, b = al.grid(PARTS, HK, B)
    length = al.load(lens[b])
    first = part * SPAN
    last = al.minimum(first + SPAN, al.cdiv(length, PAGE))
    rows = al.arange(ROWS)
    qt = al.load(q[b, head, 0:ROWS, :], boundary_check=(0,))
    top = al.full((ROWS,), NEVER, al.float32)
    total = al.zeros((ROWS,), al.float32)
    acc = al.zeros((ROWS, D), al.float32)
    for p in range(first, last):
        page = al.load(table[b, p])
        kt = al.stage(keys[page, :, head, :])
        vt = al.stage(values[page, :, head, :])
        s = al.mma(qt, kt, al.zeros((ROWS, PAGE), al.float32)) * (scale * LOG2E)
        s = al.where((p * PAGE + al.arange(PAGE) < length)[None, :], s, NEVER)
        new = al.maximum(top, al.max(s, axis=1))
        shift = al.where(new == NEVER, 0.0, new)
        shrink = al.exp2(top - shift)
        weights = al.exp2(s - shift[:, None])
        total = total * shrink + al.sum(weights, axis=1)
        top = new
        acc = al.mma(weights.to(al.bfloat16), al.trans(vt), acc * shrink[:, None])
    y = acc / al.where(total == 0.0, 1.0, total)[:, None]
    al.store(out[b, head, part, 0:ROWS, :], y, boundary_check=(0,))
    found = (al.where(top == NEVER, 0.0, top) + al.log2(total)) / LOG2E
    al.store(level[b, head, part, rows], found, mask=rows < G)
"""

GATHERED = """
import argus
import argus.language as al

@argus.kernel
def total(x: al.Tensor[al.float32, "NB 8"], table: al.Tensor[al.int32, "B P"], out: al.Tensor[al.float32, "B"],
          BLOCK: al.constexpr = 64):
    NB, P = x.shape[0], table.shape[1]
    al.requires(P < 2**24)
    al.requires(al.in_range(table, 0, NB))
    al.spec(out, lambda b: al.sum(lambda j: x[table[b, j // 8], j % 8]))
    b = al.grid(table.shape[0])
    acc = al.zeros((BLOCK,), al.float32)
    for j0 in range(0, P * 8, BLOCK):
        j = j0 + al.arange(BLOCK)
        page = al.load(table[b, j // 8], mask=j < P * 8)
        acc += al.load(x[page, j % 8], mask=j < P * 8)
    al.store(out[b], al.sum(acc))
"""


def prove(text: str, name: str, **constants: object) -> Verdict:
    return compile.prove(SourceFile("pages.py", text), name, Options(constexprs=constants)).verdict


@pytest.mark.parametrize("page", [16, 32])
def test_attention_over_pages_is_proved_whole(page: int) -> None:
    assert prove(DECODE, "decode", PAGE=page) is Verdict.PROVED


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("page = al.load(table[b, p])", "page = al.load(table[0, p])"),
        ("p * PAGE + al.arange(PAGE) < length", "p * PAGE + al.arange(PAGE) <= length"),
        ("vt = al.stage(values[page,", "vt = al.stage(values[al.load(table[b, first]),"),
        ("al.cdiv(length, PAGE))", "length // PAGE)"),
    ],
)
def test_another_page_or_length_is_refuted(right: str, wrong: str) -> None:
    assert right in DECODE
    assert prove(DECODE.replace(right, wrong), "decode") is Verdict.REFUTED


def test_a_page_of_each_element_is_looked_up() -> None:
    assert prove(GATHERED, "total") is Verdict.PROVED
    assert prove(GATHERED.replace("table[b, j // 8], mask", "table[b, j % P], mask"), "total") is not Verdict.PROVED


def test_a_variable_ranges_over_as_many_places_as_pages_have() -> None:
    """All pages count: a sum that stops before the last of them lacks terms."""
    assert prove(GATHERED.replace("range(0, P * 8, BLOCK)", "range(0, P * 8 - 32, BLOCK)"), "total") is Verdict.REFUTED


def test_a_counterexample_shows_the_pages_and_is_replayed_with_them() -> None:
    wrong = GATHERED.replace("table[b, j // 8], mask", "table[0, j // 8], mask")
    source = SourceFile("pages.py", wrong)
    kernel = compile.lower(compile.elaborate(source, "total", Options()), "sm_80")
    (found,) = [d for d in compile.verify(kernel).diagnostics if d.verdict is Verdict.REFUTED]
    assert found.witness is not None
    shown = ", ".join(map(str, found.witness.contents["table"][0][:8]))
    assert f"with      table = [[{shown}" in diagnostic_text(found).plain
    given = {name: np.array(values, np.int32) for name, values in found.witness.contents.items()}
    again = replay(kernel, found.witness.sizes, None, tensors=given)
    assert any(v.code == found.code and v.contents == found.witness.contents for v in again)
