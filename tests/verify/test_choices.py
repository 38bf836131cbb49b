"""Specifications that choose: by a condition on indices, and by one on index data that also guards a gather."""

from __future__ import annotations

import pytest

from argus.compile import elaborate, lower
from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.source import SourceFile
from argus.verify import Report, verify

GATHER = """
import argus.language as al

@argus.kernel(num_warps=1)
def gather(x: al.Tensor[al.float32, "T V"], at: al.Tensor[al.int32, "T"], out: al.Tensor[al.float32, "T"]):
    T, V = x.shape
    al.spec(out, lambda t: al.where((0 <= at[t]) & (at[t] < V), x[t, at[t]] * 2.0, 3.0))
    rows = al.program_id(0) * 32 + al.arange(32)
    al.grid(al.cdiv(T, 32))
    inside = rows < T
    place = al.load(at[rows], mask=inside, other=-1)
    known = (0 <= place) & (place < V)
    taken = al.load(x[rows, place], mask=inside & known)
    al.store(out[rows], al.where(known, taken * 2.0, 3.0), mask=inside)
"""
PAD = """
import argus.language as al

@argus.kernel(num_warps=1)
def pad(x: al.Tensor[al.float32, "N"], out: al.Tensor[al.float32, "P"]):
    N, P = x.shape[0], out.shape[0]
    al.spec(out, lambda i: al.where(i < N, x[i], 1.0))
    i = al.grid(al.cdiv(P, 64)) * 64 + al.arange(64)
    al.store(out[i], al.load(x[i], mask=i < N, other=1.0), mask=i < P)
"""
ROUNDED = """
import argus.language as al

@argus.kernel(num_warps=1)
def rounded(x: al.Tensor[al.float32, "N"], out: al.Tensor[al.float32, "N"]):
    N = x.shape[0]
    al.spec(out, lambda i: al.where(x[i] < 1.0, 0.0, x[i]))
    i = al.grid(al.cdiv(N, 64)) * 64 + al.arange(64)
    y = al.load(x[i], mask=i < N)
    al.store(out[i], al.where(y.to(al.bfloat16).to(al.float32) < 1.0, 0.0, y), mask=i < N)
"""
DECIDED = """
import argus.language as al

@argus.kernel(num_warps=1)
def decided(x: al.Tensor[al.float32, "A B"], out: al.Tensor[al.float32, "A"]):
    A, B = x.shape
    al.requires(B <= 16)
    al.spec(out, lambda a: al.where(al.sum(lambda r: x[a, r]) < 1.0, 0.0, al.sum(lambda r: x[a, r])))
    a = al.grid(al.cdiv(A, 32)) * 32 + al.arange(32)
    b = al.arange(16)
    total = al.sum(al.load(x[a[:, None], b], mask=(a < A)[:, None] & (b < B)), axis=1)
    al.store(out[a], al.where(total < 1.0, 0.0, total), mask=a < A)
"""
PARTS = """
import argus.language as al

@argus.kernel(num_warps=1)
def parts(x: al.Tensor[al.float32, "M K"], out: al.Tensor[al.float32, "Z M"]):
    M, K = x.shape
    Z = out.shape[0]
    al.requires(Z <= 1024)
    al.spec(out, lambda z, m: al.sum(lambda k: al.where((z * 128 <= k) & (k < z * 128 + 128), x[m, k], 0.0)))
    z, m = al.grid(Z, M)
    total = al.zeros((1,), al.float32)
    for k0 in range(z * 128, al.minimum(z * 128 + 128, K), 64):
        total = total + al.sum(al.load(x[m : m + 1, k0 : k0 + 64], boundary_check=(1,)), axis=1)
    al.store(out[z, m : m + 1], total)
"""

COUNTED = """
import argus.language as al

@argus.kernel(num_warps=1)
def counted(x: al.Tensor[al.int32, "M N"], out: al.Tensor[al.int32, "M"]):
    M, N = x.shape
    al.requires(N <= 32)
    al.spec(out, lambda r: al.sum(lambda j: al.where(~((x[r, j] == 3) | (x[r, j] > 9)), 1, 0)))
    r = al.grid(M)
    j = al.arange(32)
    v = al.load(x[r, j], mask=j < N, other=3)
    al.store(out[r], al.sum(al.where((v != 3) & (v <= 9), 1, 0), axis=0))
"""
"""Padding that a condition of two parts does not count."""
ROOT = """
import argus.language as al

@argus.kernel(num_warps=1)
def gelu(x: al.Tensor[al.float32, "N"], out: al.Tensor[al.float32, "N"]):
    al.spec(out, lambda i: 0.5 * x[i] * (1.0 + al.erf(x[i] / al.sqrt(2.0))))
    i = al.grid(al.cdiv(N, 64)) * 64 + al.arange(64)
    v = al.load(x[i], mask=i < N)
    al.store(out[i], v * 0.5 * (1.0 + al.erf(v * 0.7071067811865476)), mask=i < N)
"""
"""A function of a number is a number."""


def report(text: str) -> Report:
    name = text.split("def ")[1].split("(")[0]
    return verify(lower(elaborate(SourceFile(f"{name}.py", text), name, Options()), "sm_80"), 60.0)


@pytest.mark.parametrize("text", [GATHER, PAD, PARTS, DECIDED, COUNTED, ROOT])
def test_both_sides_are_proved(text: str) -> None:
    found = report(text)
    assert found.verdict is Verdict.PROVED, found.diagnostics


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [(COUNTED, "other=3)", "other=4)"), (ROOT, "0.7071067", "0.7081067")],
)
def test_other_padding_and_other_numbers_are_refuted(text: str, old: str, new: str) -> None:
    assert old in text
    assert report(text.replace(old, new)).verdict is Verdict.REFUTED


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        (GATHER, "mask=inside & known", "mask=(rows < T - 1) & known"),
        (GATHER, "al.where(known, taken * 2.0, 3.0)", "al.where(known, 3.0, taken * 2.0)"),
        (GATHER, "al.where(known, taken * 2.0, 3.0)", "taken * 2.0"),
        (GATHER, "known = (0 <= place)", "known = (0 < place)"),
        (GATHER, "al.where(known, taken", "al.where(place < V, taken"),
        (GATHER, "x[t, at[t]] * 2.0", "x[t, at[t]]"),
        (GATHER, "x[t, at[t]]", "x[t, at[0]]"),
        (PAD, "mask=i < N,", "mask=i < N - 1,"),
        (PAD, "other=1.0", "other=0.0"),
        (PAD, "lambda i: al.where(i < N, x[i], 1.0)", "lambda i: al.where(i <= N, x[i], 1.0)"),
        (DECIDED, "al.where(total < 1.0,", "al.where(total <= 2.0,"),
        (DECIDED, "< 1.0, 0.0, al.sum(lambda r", "> 1.0, 0.0, al.sum(lambda r"),
        (PARTS, "(k < z * 128 + 128)", "(k <= z * 128 + 128)"),
        (PARTS, "(k < z * 128 + 128)", "(k < z * 128 + 127)"),
        (PARTS, "x[m, k], 0.0)", "x[m, k], 1.0)"),
        (PARTS, "x[m, k], 0.0)", "0.0, x[m, k])"),
        (PARTS, "(z * 128 <= k)", "(z * 128 < k)"),
        (PARTS, "al.minimum(z * 128 + 128, K)", "K"),
        (PARTS, "range(z * 128,", "range(z * 128 + 64,"),
        (PARTS, "al.store(out[z, m : m + 1], total)", "al.store(out[z, m : m + 1], total * 2.0)"),
    ],
)
def test_a_wrong_choice_is_not_proved(text: str, before: str, after: str) -> None:
    assert before in text
    assert report(text.replace(before, after)).verdict is not Verdict.PROVED


def test_a_choice_by_a_rounded_number_is_not_proved() -> None:
    """Rounding is nobody's mistake, unless it decides."""
    assert report(ROUNDED).verdict is not Verdict.PROVED


MASKS = """
import argus.language as al

@argus.kernel(num_warps=1)
def masks(x: al.Tensor[al.float32, "M N"], p: al.Tensor[al.boolean, "M N"], q: al.Tensor[al.boolean, "M N"],
          a: al.Tensor[al.int32, "N"], n: al.Tensor[al.int32, "M"], out: al.Tensor[al.float32, "M N"]):
    M, N = x.shape
    al.spec(out, lambda i, k: {spec})
    i, t = al.grid(M, al.cdiv(N, 64))
    k = t * 64 + al.arange(64)
    xs = al.load(x[i, k], mask=k < N)
    ps = al.load(p[i, k], mask=k < N)
    qs = al.load(q[i, k], mask=k < N)
    s = al.load(a[k], mask=k < N)
    count = al.load(n[i])
    al.store(out[i, k], {value}, mask=k < N)
"""
SPELLED = (
    ("a negated mask", "al.where(p[i, k], x[i, k], 0.0)", "al.where(~ps, 0.0, xs)", "al.where(~ps, xs, 0.0)"),
    (
        "a mask or a loaded number",
        "al.where(p[i, k], x[i, k], al.where(n[i] < 0, x[i, k], 0.0))",
        "al.where(ps | (count < 0), xs, 0.0)",
        "al.where(ps & (count < 0), xs, 0.0)",
    ),
    (
        "de Morgan",
        "al.where(p[i, k] | (n[i] < 0), x[i, k], 0.0)",
        "al.where(~ps & (count >= 0), 0.0, xs)",
        "al.where(~ps & (count > 0), 0.0, xs)",
    ),
    (
        "two masks the other way round",
        "al.where(p[i, k] & q[i, k], x[i, k], al.where(p[i, k], 1.0, 0.0))",
        "al.where(qs, al.where(ps, xs, 0.0), al.where(~ps, 0.0, 1.0))",
        "al.where(qs, al.where(ps, xs, 0.0), al.where(ps, 0.0, 1.0))",
    ),
    (
        "indices and data",
        "al.where(~p[i, k] & (k < n[i]), x[i, k], 0.0)",
        "al.where(ps | (k >= count), 0.0, xs)",
        "al.where(ps | (k > count), 0.0, xs)",
    ),
    (
        "a comparison turned round",
        "al.where(a[k] < n[i], x[i, k], 0.0)",
        "al.where(s >= count, 0.0, xs)",
        "al.where(s > count, 0.0, xs)",
    ),
)


@pytest.mark.parametrize(("spec", "value", "wrong"), [each[1:] for each in SPELLED], ids=[each[0] for each in SPELLED])
def test_conditions_in_any_spelling(spec: str, value: str, wrong: str) -> None:
    assert report(MASKS.format(spec=spec, value=value)).verdict is Verdict.PROVED
    assert report(MASKS.format(spec=spec, value=wrong)).verdict is Verdict.REFUTED


LAST = """
import argus.language as al

@argus.kernel(num_warps=1)
def last(x: al.Tensor[al.float32, "B N"], lens: al.Tensor[al.int32, "B"], out: al.Tensor[al.float32, "B N"]):
    B, N = x.shape
    al.requires(al.in_range(lens, 0, N + 1))
    al.spec(out, lambda b, i: al.where(i < lens[b], x[b, i], 0.0))
    t, b = al.grid(al.cdiv(N, 64), B)
    i = t * 64 + al.arange(64)
    length = al.load(lens[b])
    al.store(out[b, i], al.where(i <= length - 1, al.load(x[b, i], mask=i < N), 0.0), mask=i < N)
"""


def test_arithmetic_on_a_loaded_number_has_its_declared_range() -> None:
    assert report(LAST).verdict is Verdict.PROVED
    wide = LAST.replace("al.in_range(lens, 0, N + 1)", "N > 0")
    assert report(wide).verdict is not Verdict.PROVED  # the least integer less 1 is the greatest one
