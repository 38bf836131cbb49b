"""Axes that are addressed by quotient and remainder of one number: proved as one axis, for all sizes."""

from __future__ import annotations

import pytest

from argus.compile import ExplicitKernel, elaborate, lower
from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.ir.text import print_kernel
from argus.source import SourceFile
from argus.verify import Report, verify
from argus.verify.reductions.joined import joined

SMALL = "(B < 128) & (C < 128) & (H < 128) & (W < 128) & (C > 0) & (H > 0) & (W > 0)"
POINTWISE = """
import argus.language as al

@argus.kernel
def conv(
    x: al.Tensor[al.float16, "B C H W"], k: al.Tensor[al.float16, "F C"], out: al.Tensor[al.float32, "B F H W"]
):
    B, C, H, W = x.shape
    F = k.shape[0]
    al.requires((H < 2**15) & (W < 2**15) & (W > 0))
    al.spec(out, lambda b, f, h, w: al.sum(lambda c: x[b, c, h, w] * k[f, c]))
    pp, pf, b = al.grid(al.cdiv(H * W, 64), al.cdiv(F, 64), B)
    p = pp * 64 + al.arange(64)
    h = p // W
    w = p % W
    live = p < H * W
    f0 = pf * 64
    acc = al.zeros((64, 64), al.float32)
    for c0 in range(0, C, 16):
        c = c0 + al.arange(16)
        xt = al.load(x[b, c[None, :], h[:, None], w[:, None]], mask=live[:, None] & (c < C)[None, :])
        acc = al.mma(xt, al.load(k[f0 : f0 + 64, c0 : c0 + 16], boundary_check=(0, 1)), acc)
    f = f0 + al.arange(64)
    al.store(out[b, f[None, :], h[:, None], w[:, None]], acc, mask=live[:, None] & (f < F)[None, :])
"""
BIASED = f"""
import argus.language as al

@argus.kernel
def biased(
    x: al.Tensor[al.float32, "B C H W"], bias: al.Tensor[al.float32, "C"], out: al.Tensor[al.float32, "B C H W"]
):
    B, C, H, W = x.shape
    al.requires({SMALL})
    al.spec(out, lambda b, c, h, w: x[b, c, h, w] + bias[c])
    i = al.grid(al.cdiv(B * C * H * W, 256)) * 256 + al.arange(256)
    live = i < B * C * H * W
    w = i % W
    h = i // W % H
    c = i // (H * W) % C
    b = i // (C * H * W)
    al.store(out[b, c, h, w], al.load(x[b, c, h, w], mask=live) + al.load(bias[c], mask=live), mask=live)
"""
NESTED = f"""
import argus.language as al

@argus.kernel
def nested(x: al.Tensor[al.float32, "B C H W"], out: al.Tensor[al.float32, "B C H W"]):
    B, C, H, W = x.shape
    al.requires({SMALL})
    al.spec(out, lambda b, c, h, w: al.exp(x[b, c, h, w]))
    i = al.grid(al.cdiv(B * C * H * W, 256)) * 256 + al.arange(256)
    live = i < B * C * H * W
    b, c, h, w = i // W // H // C, i // W // H % C, i // W % H, i % W
    al.store(out[b, c, h, w], al.exp(al.load(x[b, c, h, w], mask=live)), mask=live)
"""
LAST = """
import argus.language as al

@argus.kernel
def channels_last(x: al.Tensor[al.float32, "B C H W"], out: al.Tensor[al.float32, "B H W C"]):
    B, C, H, W = x.shape
    al.requires((H < 2**15) & (W < 2**15) & (W > 0))
    al.spec(out, lambda b, h, w, c: x[b, c, h, w])
    pp, c, b = al.grid(al.cdiv(H * W, 256), C, B)
    p = pp * 256 + al.arange(256)
    live = p < H * W
    al.store(out[b, p // W, p % W, c], al.load(x[b, c, p // W, p % W], mask=live), mask=live)
"""
GUARDED = """
import argus.language as al

@argus.kernel
def guarded(x: al.Tensor[al.float32, "H W"], out: al.Tensor[al.float32, "H W"]):
    H, W = x.shape
    al.requires((H < 2**15) & (W < 2**15) & (W > 0))
    al.spec(out, lambda h, w: x[h, w] * 2.0)
    p = al.grid(al.cdiv(H * W, 256)) * 256 + al.arange(256)
    h, w = p // W, p % W
    al.store(out[h, w], al.load(x[h, w], mask=(0 <= h) & (h < H)) * 2.0, mask=(h < H) & (w < W))
"""
FLAT = """
import argus.language as al

@argus.kernel
def flat(x: al.Tensor[al.float32, "N"], out: al.Tensor[al.float32, "H W"]):
    H, W = out.shape
    N = x.shape[0]
    al.requires((H < 2**15) & (W < 2**15) & (W > 0) & (N == H * W))
    al.spec(out, lambda h, w: x[h * W + w])
    p = al.grid(al.cdiv(H * W, 256)) * 256 + al.arange(256)
    live = p < H * W
    al.store(out[p // W, p % W], al.load(x[p], mask=live), mask=live)
"""
ACROSS = BIASED.replace("w = i % W\n    h = i // W % H", "w = i // H % W\n    h = i % H")
"""Columns first."""
KERNELS = {"across": ACROSS, "pointwise": POINTWISE, "biased": BIASED, "nested": NESTED, "last": LAST}
KERNELS |= {"guarded": GUARDED, "flat": FLAT}


def lowered(text: str, target: str = "sm_80") -> ExplicitKernel:
    name = text.split("def ")[1].split("(")[0]
    return lower(elaborate(SourceFile(f"{name}.py", text), name, Options()), target)


def report(text: str) -> Report:
    return verify(lowered(text))


@pytest.mark.parametrize("text", KERNELS.values(), ids=list(KERNELS))
def test_proved(text: str) -> None:
    found = report(text)
    assert found.verdict is Verdict.PROVED, found.diagnostics


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        (POINTWISE, "live = p < H * W", "live = p < H * W - 1"),
        (POINTWISE, "w = p % W", "w = p % H"),
        (BIASED, "i // (C * H * W)", "i // (C * H * W) % 2"),
        (BIASED, "h = i // W % H", "h = i // W % (H - 1)"),
        (BIASED, "al.load(bias[c]", "al.load(bias[i % C]"),
        (BIASED, "w = i % W\n    h = i // W % H", "w = i // H % W\n    h = i % W"),
        (NESTED, "i // W // H // C", "i // W // H // B"),
        (NESTED, "i // W // H % C", "i // W // C % C"),
        (LAST, "al.load(x[b, c, p // W, p % W]", "al.load(x[b, c, p % W, p // W]"),
        (GUARDED, "mask=(h < H) &", "mask=(h < H - 1) &"),
        (GUARDED, "(0 <= h)", "(0 < h)"),
        (FLAT, "x[h * W + w]", "x[h * H + w]"),
        (FLAT, "al.load(x[p]", "al.load(x[(p + 1) % N]"),
    ],
)
def test_never_proved(text: str, before: str, after: str) -> None:
    assert before in text
    assert report(text.replace(before, after)).verdict is not Verdict.PROVED


def test_text() -> None:
    text = print_kernel(joined(lowered(BIASED)))
    assert "tensor out: float32[`bound size 2`]" in text
    assert "spec out(b) = x[c0] + bias[c0 // `bound size 0` % C]" in text
    assert "% W" not in text


def test_a_tensor_with_another_access_keeps_its_axes() -> None:
    text = FLAT.replace("[p // W, p % W], al.load(x[p], mask=live)", "[p // W, p % W], out[0, 0]")
    text = text.replace("    al.spec(out, lambda h, w: x[h * W + w])\n", "")
    text = text.replace("out[0, 0]", "al.load(out[0, 0]) + al.load(x[p], mask=live)")
    kernel = lowered(text)
    assert joined(kernel) is kernel


PICKED = """
import argus.language as al

@argus.kernel
def picked(x: al.Tensor[al.float32, "K"], at: al.Tensor[al.int32, "H W"], out: al.Tensor[al.float32, "H W"]):
    H, W = at.shape
    K = x.shape[0]
    al.requires((H < 2**15) & (W < 2**15) & (W > 0) & (0 < K) & (K <= 256))
    al.spec(out, lambda h, w: al.softmax(lambda j: x[j])[at[h, w]])
    p = al.grid(al.cdiv(H * W, 256)) * 256 + al.arange(256)
    live = p < H * W
    chosen = al.load(at[p // W, p % W], mask=live)
    j = al.arange(256)
    t = al.load(x[j], mask=j < K, other=-float("inf"))
    top = al.max(t)
    total = al.sum(al.exp(t - top))
    al.store(out[p // W, p % W], al.exp(al.load(x[chosen], mask=live) - top) / total, mask=live)
"""


def test_a_place_in_a_softmax_is_an_access_too() -> None:
    text = print_kernel(joined(lowered(PICKED)))
    spec = next(line for line in text.splitlines() if "spec out" in line)
    assert "at[c0]" in spec and "%" not in spec
