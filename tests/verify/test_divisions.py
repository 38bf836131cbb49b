"""Indices that are divided by sizes, or chosen: the same function of the same numbers is the same place."""

from __future__ import annotations

import pytest

from argus import compile
from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.source import SourceFile

KERNELS = """
import argus
import argus.language as al

@argus.kernel
def roll(x: al.Tensor[al.float32, "B H W C"], out: al.Tensor[al.float32, "B H W C"], SHIFT: al.constexpr = 3):
    B, H, W, C = x.shape
    al.requires((H > SHIFT) & (W > SHIFT))
    al.spec(out, lambda b, h, w, c: x[b, (h + SHIFT) % H, (w + SHIFT) % W, c])
    pc, w, h, b = al.grid(al.cdiv(C, 128), W, H, B)
    c = pc * 128 + al.arange(128)
    al.store(out[b, h, w, c], al.load(x[b, (h + SHIFT) % H, (SHIFT + w) % W, c], mask=c < C), mask=c < C)


@argus.kernel
def shuffle(x: al.Tensor[al.float32, "B C N"], out: al.Tensor[al.float32, "B C N"], G: al.constexpr = 3):
    B, C, N = x.shape
    al.requires(C % G == 0)
    al.spec(out, lambda b, c, n: x[b, c % G * (C // G) + c // G, n])
    pn, c, b = al.grid(al.cdiv(N, 256), C, B)
    n = pn * 256 + al.arange(256)
    al.store(out[b, c, n], al.load(x[b, c % G * (C // G) + c // G, n], mask=n < N), mask=n < N)


@argus.kernel
def bias(x: al.Tensor[al.float32, "T"], b: al.Tensor[al.float32, "C"], out: al.Tensor[al.float32, "T"], HW: al.int32):
    T, C = x.shape[0], b.shape[0]
    al.requires((HW > 0) & (C > 0))
    al.spec(out, lambda i: x[i] + b[i // HW % C])
    i = al.grid(al.cdiv(T, 1024)) * 1024 + al.arange(1024)
    al.store(out[i], al.load(x[i], mask=i < T) + al.load(b[i // HW % C], mask=i < T), mask=i < T)


@argus.kernel
def turned(x: al.Tensor[al.float32, "H C"], out: al.Tensor[al.float32, "H C"], SHIFT: al.constexpr = 3):
    H, C = x.shape
    al.requires(H > SHIFT)
    al.spec(out, lambda h, c: al.where(h + SHIFT < H, x[h + SHIFT, c], x[h + SHIFT - H, c]))
    pc, h = al.grid(al.cdiv(C, 128), H)
    c = pc * 128 + al.arange(128)
    s = al.where(h + SHIFT < H, h + SHIFT, h + SHIFT - H)
    al.store(out[h, c], al.load(x[s, c], mask=c < C), mask=c < C)
"""


def verdict(text: str, name: str) -> Verdict:
    return compile.prove(SourceFile("divisions.py", text), name, Options()).verdict


@pytest.mark.parametrize("name", ["roll", "shuffle", "bias", "turned"])
def test_the_same_place_is_proved(name: str) -> None:
    assert verdict(KERNELS, name) is Verdict.PROVED


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("roll", "al.load(x[b, (h + SHIFT) % H", "al.load(x[b, (h + 1) % H"),
        ("shuffle", "al.load(x[b, c % G * (C // G) + c // G, n]", "al.load(x[b, c // G * G + c % G, n]"),
        ("bias", "al.load(b[i // HW % C]", "al.load(b[i % C]"),
        ("turned", "s = al.where(h + SHIFT < H,", "s = al.where(h + SHIFT < H - 1,"),
    ],
)
def test_another_place_is_refuted(name: str, right: str, wrong: str) -> None:
    assert right in KERNELS
    assert verdict(KERNELS.replace(right, wrong), name) is Verdict.REFUTED


def test_two_functions_that_agree_are_not_refuted() -> None:
    """The remainder is the same if a multiple of the divisor is added; nothing here knows that."""
    small = KERNELS.replace("(W > SHIFT))", "(W > SHIFT) & (H < 2**24))")
    other = small.replace("al.load(x[b, (h + SHIFT) % H", "al.load(x[b, (h + SHIFT + H) % H")
    assert other.count("2**24") == 1
    assert verdict(other, "roll") is Verdict.UNKNOWN


ROLLED = """
import argus
import argus.language as al

@argus.kernel(num_warps=1)
def rolled(x: al.Tensor[al.float32, "N"], out: al.Tensor[al.float32, "N"], s: al.int32, BLOCK: al.constexpr = 32):
    N = x.shape[0]
    al.requires((N > 0) & (N < 1000000) & (0 <= s) & (s < N))
    al.spec(out, lambda i: x[SPEC])
    i = al.grid(al.cdiv(N, BLOCK)) * BLOCK + al.arange(BLOCK)
    al.store(out[i], al.load(x[CODE], mask=i < N), mask=i < N)
"""
ON, BACK = "al.where(i + s < N, i + s, i + s - N)", "al.where(i >= s, i - s, i - s + N)"


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        ("(i + s) % N", ON),
        ("(i + s) % N", "al.where(N <= i + s, i + s - N, i + s)"),
        ("(i - s) % N", BACK),
        ("(i + N - s) % N", BACK),
        (ON, ON),
        ("i - (i - s) // N * 0", "i"),
    ],
)
def test_a_remainder_is_affine_in_each_period(spec: str, code: str) -> None:
    assert verdict(ROLLED.replace("SPEC", spec).replace("CODE", code), "rolled") is Verdict.PROVED


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        ("(i + s) % N", BACK),
        ("(i - s) % N", ON),
        ("(i + s) % N", ON.replace("- N", "- N + 1")),
        ("(i + s) // N", ON),
        (ON.replace("<", "<="), ON),
        (ON.replace("i + s, i + s - N", "i + s - N, i + s"), ON),
    ],
)
def test_another_period_is_refuted(spec: str, code: str) -> None:
    assert verdict(ROLLED.replace("SPEC", spec).replace("CODE", code), "rolled") is Verdict.REFUTED


def test_only_the_nearest_periods_are_known() -> None:
    text = ROLLED.replace("SPEC", "(i + s) % N").replace("CODE", ON)
    assert verdict(text.replace("s < N)", "s <= 2 * N)").replace("- N)", "- N - N)"), "rolled") is not Verdict.PROVED
