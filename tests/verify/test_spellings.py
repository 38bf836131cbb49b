"""Right kernels whose specification is spelled in another way than their code; each beside wrong ones."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from argus.compile import prove
from argus.diagnostic import Verdict
from argus.frontend.options import Options
from argus.source import SourceFile


@dataclass(frozen=True)
class Case:
    """A kernel and its specification, what may be edited without harm, and what may not."""

    name: str
    text: str
    wrong: tuple[tuple[str, str], ...]
    right: tuple[tuple[str, str], ...] = ()


def rows(spec: str, body: str, more: str = "") -> str:
    """A kernel over vectors of at most 32 elements."""
    lines = "\n    ".join(body.strip().splitlines())
    return f"""
import argus
import argus.language as al

@argus.kernel(num_warps=1)
def kernel(x: al.Tensor[al.float32, "N"], w: al.Tensor[al.float32, "N"], b: al.Tensor[al.float32, "N"],
           out: al.Tensor[al.float32, "N"], alpha: al.float32):
    N = x.shape[0]
    al.requires((N > 0) & (N <= 32))
    {more}al.spec(out, lambda i: {spec})
    al.grid(1)
    i = al.arange(32)
    v = al.load(x[i], mask=i < N)
    u = al.load(w[i], mask=i < N)
    c = al.load(b[i], mask=i < N)
    {lines}
"""


ATTENTION = """
import argus
import argus.language as al

NEVER = -float("inf")

@argus.kernel(num_warps=1)
def kernel(p: al.Tensor[al.float32, "B T 3 D"], bias: al.Tensor[al.float32, "T T"], slope: al.Tensor[al.float32, "B"],
           out: al.Tensor[al.float32, "B T D"], alpha: al.float32, D: al.constexpr = 8):
    B, T = p.shape[0], p.shape[1]
    al.requires((T > 0) & (T <= 16))
    al.spec(out, lambda b, i, e: al.sum(lambda n: p[b, n, 2, e] * al.softmax(
        lambda j: al.sum(lambda d: p[b, i, 0, d] * p[b, j, 1, d]) * slope[b] + bias[i, j])[n]))
    b = al.grid(B)
    i, d = al.arange(16), al.arange(D)
    live = (i < T)[:, None]
    q = al.load(p[b, i[:, None], 0, d], mask=live)
    k = al.load(p[b, i[:, None], 1, d], mask=live)
    v = al.load(p[b, i[:, None], 2, d], mask=live)
    s = al.sum(q[:, None, :] * k[None, :, :], axis=2) * al.load(slope[b])
    s = s + al.load(bias[i[:, None], i], mask=live & (i < T))
    s = al.where((i < T)[None, :], s, NEVER)
    w = al.exp(s - al.max(s, axis=1, keep_dims=True))
    y = al.sum(w[:, :, None] * v[None, :, :], axis=1)
    al.store(out[b, i[:, None], d], y / al.sum(w, axis=1, keep_dims=True), mask=live)
"""

CASES = (
    Case(
        "a comparison of a reduction, denied",
        rows(
            "al.where(~(al.max(lambda j: x[j]) > 1.0), x[i], 0.0)",
            "top = al.max(al.load(x[i], mask=i < N, other=-float('inf')))\n"
            "al.store(out[i], al.where(~(top > 1.0), v, 0.0), mask=i < N)",
        ),
        (("~(top", "(top"), ("~(al.max(lambda", "(al.max(lambda")),
    ),
    Case(
        "a sum over pairs of one vector",
        rows("al.sum(lambda j: x[i] * x[j])", "al.store(out[i], al.sum(v[:, None] * v[None, :], axis=1), mask=i < N)"),
        (("v[None, :]", "u[None, :]"), ("x[i] * x[j]", "x[j] * x[j]"), ("axis=1)", "axis=1) + v")),
        (("x[i] * x[j]", "x[j] * x[i]"),),
    ),
    Case(
        "differences of one vector",
        rows(
            "al.sum(lambda j: (x[i] - x[j]) * w[j])",
            "al.store(out[i], al.sum((v[:, None] - v[None, :]) * u[None, :], axis=1), mask=i < N)",
        ),
        (("x[i] - x[j]", "x[j] - x[i]"), ("* u[None, :]", "* u[:, None]")),
    ),
    Case(
        "attention on one packed tensor with a loaded scale and a bias",
        ATTENTION,
        (
            ("bias[i[:, None], i]", "bias[i, i[:, None]]"),
            ("p[b, i[:, None], 1, d]", "p[b, i[:, None], 2, d]"),
            ("* al.load(slope[b])", "* al.load(slope[0])"),
            ("s = al.where((i < T)[None, :], s, NEVER)", "s = al.where((i < T - 1)[None, :], s, NEVER)"),
            ("y / al.sum(w, axis=1, keep_dims=True)", "y"),
            ("* slope[b] + bias[i, j]", "* slope[b] - bias[i, j]"),
        ),
        (("slope[b] + bias[i, j]", "slope[b] + bias[i, j] * 1.0"),),
    ),
    Case(
        "three factors",
        rows("x[i] * w[i] * b[i]", "al.store(out[i], c * u * v, mask=i < N)"),
        (
            ("c * u * v", "c * u * u"),
            ("c * u * v", "c * u"),
            ("c * u * v", "c * u + v"),
            ("c * u * v", "c * u * v * 2.0"),
        ),
        (("c * u * v", "v * (c * u)"), ("c * u * v", "-c * u * -v"), ("c * u * v", "c * (u * 4.0) * v / 4.0")),
    ),
    Case(
        "a difference of squares",
        rows("(x[i] + w[i]) * (x[i] - w[i])", "al.store(out[i], v * v - u * u, mask=i < N)"),
        (("v * v - u * u", "v * v + u * u"), ("v * v - u * u", "u * u - v * v"), ("v * v - u * u", "v - u")),
        (("v * v - u * u", "-(u * u - v * v)"), ("v * v - u * u", "v * (v - u) + u * (v - u)")),
    ),
    Case(
        "a quotient by a constant",
        rows("(x[i] + w[i] * alpha) / 4.0 - b[i]", "al.store(out[i], v * 0.25 + (u * alpha * 0.25 - c), mask=i < N)"),
        (("v * 0.25", "v * 0.26"), ("u * alpha", "u"), ("- c", "+ c"), ("v * 0.25", "v * 0.25 * alpha")),
        (("u * alpha * 0.25", "u / 4.0 * alpha"), ("- c", "- (c + v) + v")),
    ),
    Case(
        "a leaky unit",
        rows("al.where(x[i] > 0.0, x[i], 0.01 * x[i])", "al.store(out[i], al.where(v > 0.0, v, 0.01 * v), mask=i < N)"),
        (
            ("al.where(v > 0.0, v, 0.01 * v)", "al.where(v < 0.0, v, 0.01 * v)"),
            ("al.where(v > 0.0, v, 0.01 * v)", "al.minimum(v, 0.01 * v)"),
            ("al.where(v > 0.0, v, 0.01 * v)", "al.where(v > 1.0, v, 0.01 * v)"),
            ("al.where(v > 0.0, v, 0.01 * v)", "al.where(v > 0.0, v, 0.02 * v)"),
            ("al.where(v > 0.0, v, 0.01 * v)", "al.where(u > 0.0, v, 0.01 * v)"),
        ),
        (
            ("al.where(v > 0.0, v, 0.01 * v)", "al.maximum(v * 0.01, v)"),
            ("al.where(v > 0.0, v, 0.01 * v)", "al.where(0.0 <= v, v, v * 0.01)"),
            ("al.where(v > 0.0, v, 0.01 * v)", "al.where(v <= 0.0, v / 100.0, v)"),
        ),
    ),
    Case(
        "a step, which is another one where its sides meet",
        rows("al.where(x[i] > w[i], 1.0, 0.0)", "al.store(out[i], al.where(v - u > 0.0, 1.0, 0.0), mask=i < N)"),
        (
            ("v - u > 0.0", "v - u >= 0.0"),
            ("v - u > 0.0", "u < v + 1.0"),
            ("v - u > 0.0", "u - v > 0.0"),
            ("v - u > 0.0", "(v - u).to(al.bfloat16).to(al.float32) > 0.0"),
        ),
        (("al.where(v - u > 0.0, 1.0, 0.0)", "al.where(u - v >= 0.0, 0.0, 1.0)"), ("v - u > 0.0", "2.0 * u < 2.0 * v")),
    ),
    Case(
        "a Huber loss",
        rows(
            "al.where(al.abs(x[i] - w[i]) < 1.0, 0.5 * (x[i] - w[i]) * (x[i] - w[i]), al.abs(x[i] - w[i]) - 0.5)",
            "d = v - u\nal.store(out[i], al.where(al.abs(d) < 1.0, d * d / 2.0, al.maximum(d, -d) - 0.5), mask=i < N)",
        ),
        (
            ("- 0.5), mask", "- 0.4), mask"),
            ("al.maximum(d, -d)", "al.maximum(d, d)"),
            ("d * d / 2.0", "d / 2.0"),
            ("al.abs(d) <", "d <"),
            ("d = v - u", "d = v + u"),
        ),
        (("al.abs(d) < 1.0", "al.maximum(-d, d) < 1.0"), ("d = v - u", "d = u - v")),
    ),
    Case(
        "a sigmoid",
        rows("x[i] * al.sigmoid(x[i] * alpha)", "al.store(out[i], v / (1.0 + al.exp(-(v * alpha))), mask=i < N)"),
        (
            ("al.exp(-(v * alpha))", "al.exp(v * alpha)"),
            ("(1.0 + al", "(2.0 + al"),
            ("(1.0 + al", "(1.0 - al"),
            ("-(v * alpha)", "-v"),
        ),
        (("-(v * alpha)", "alpha * -v"),),
    ),
    Case(
        "exponentials",
        rows("al.exp(x[i] + w[i])", "al.store(out[i], al.exp(v) * al.exp(u), mask=i < N)"),
        (("al.exp(v) * al.exp(u)", "al.exp(v) + al.exp(u)"), ("al.exp(u)", "al.exp(-u)"), ("al.exp(u)", "al.exp2(u)")),
        (("al.exp(v) * al.exp(u)", "al.exp(v) / al.exp(-u)"), ("al.exp(u)", "al.exp2(u * 1.4426950408889634)")),
    ),
    Case(
        "a variance in one pass",
        rows(
            "al.sum(lambda j: (x[j] - al.sum(lambda k: x[k]) / N.to(al.float32))"
            " * (x[j] - al.sum(lambda k: x[k]) / N.to(al.float32))) / N.to(al.float32) + x[i]",
            "n = N.to(al.float32)\nmean = al.sum(v) / n\n"
            "al.store(out[i], al.sum(v * v) / n - mean * mean + v, mask=i < N)",
        ),
        (
            ("- mean * mean", "- mean"),
            ("al.sum(v) / n", "al.sum(v)"),
            ("- mean * mean", "- mean * mean * 2.0"),
            ("al.sum(v * v)", "al.sum(v * u)"),
            ("al.sum(v) / n", "al.sum(u) / n"),
        ),
        (("al.sum(v * v) / n - mean * mean + v", "v + (al.sum(v * v) - mean * al.sum(v)) / n"),),
    ),
    Case(
        "a normalised row",
        rows(
            "(x[i] - al.sum(lambda k: x[k]) / N.to(al.float32))"
            " * al.rsqrt(al.sum(lambda j: x[j] * x[j]) / N.to(al.float32) + alpha) * w[i] + b[i]",
            "n = N.to(al.float32)\nmean = al.sum(v) * (1.0 / n)\nroot = al.sqrt(alpha + al.sum(v * v) / n)\n"
            "al.store(out[i], c + u * (v - mean) / root, mask=i < N)",
        ),
        (
            ("al.sqrt(alpha + al.sum(v * v) / n)", "al.sqrt(al.sum(v * v) / n)"),
            ("/ root", "* root"),
            ("c + u", "c - u"),
            ("al.sum(v * v)", "al.sum(v)"),
            ("(v - mean)", "(mean - v)"),
        ),
        (("(v - mean) / root", "(1.0 / root) * -(mean - v)"),),
    ),
    Case(
        "a weighted mean",
        rows(
            "al.sum(lambda j: w[j] * x[j]) / al.sum(lambda j: w[j]) * b[i]",
            "al.store(out[i], c / al.sum(u) * al.sum(v * u), mask=i < N)",
        ),
        (("al.sum(u)", "al.sum(v)"), ("al.sum(v * u)", "al.sum(v) * al.sum(u)"), ("c / al", "al"), ("al.sum(u)", "u")),
    ),
    Case(
        "a sum over a function of a sum",
        rows(
            "al.sum(lambda j: al.sqrt(al.sum(lambda k: (x[j] - w[k]) * (x[j] - w[k]))) * b[j])",
            "d = u[:, None] - v[None, :]\nnear = al.sqrt(al.sum(al.where((i < N)[:, None], d * d, 0.0), axis=0))\n"
            "al.store(out[i], al.sum(al.where(i < N, c * near, 0.0)) + 0.0 * v, mask=i < N)",
        ),
        (("d * d, 0.0", "d, 0.0"), ("axis=0", "axis=1"), ("c * near", "c + near"), ("c * near", "u * near")),
    ),
    Case(
        "a cumulative sum",
        rows(
            "al.sum(lambda j: al.where(j <= i, x[j] * w[i], 0.0))",
            "al.store(out[i], al.sum(al.where(i[None, :] <= i[:, None], v[None, :], 0.0), axis=1) * u, mask=i < N)",
        ),
        (("i[None, :] <= i[:, None]", "i[None, :] < i[:, None]"), ("* u", "* v"), ("<= i[:, None]", ">= i[:, None]")),
        (("i[None, :] <= i[:, None]", "i[:, None] >= i[None, :]"),),
    ),
    Case(
        "the largest of some sums",
        rows(
            "al.max(lambda j: x[i] * x[j] + w[j])",
            "s = al.where((i < N)[None, :], u[None, :] + v[None, :] * v[:, None], -float('inf'))\n"
            "al.store(out[i], al.max(s, axis=1), mask=i < N)",
        ),
        (("u[None, :] +", "u[None, :] -"), ("u[None, :] +", "u[:, None] +"), ("axis=1", "axis=0")),
    ),
)


def verdict(text: str) -> Verdict:
    return prove(SourceFile("kernel.py", text), "kernel", Options(target="sm_80"), limit_s=120).verdict


def edited(case: Case, edit: tuple[str, str]) -> str:
    assert case.text.count(edit[0]) == 1, edit
    return case.text.replace(*edit)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(text, id=f"{case.name}: {number}")
        for case in CASES
        for number, text in enumerate([case.text, *(edited(case, edit) for edit in case.right)])
    ],
)
def test_right(text: str) -> None:
    assert verdict(text) is Verdict.PROVED


@pytest.mark.parametrize(
    "text", [pytest.param(edited(case, edit), id=f"{case.name}: {edit[1]}") for case in CASES for edit in case.wrong]
)
def test_wrong(text: str) -> None:
    assert verdict(text) is not Verdict.PROVED


STORE = "al.store(out[i], {}, mask=i < N)"
NEVER = "-float('inf')"
MASKED = f"s = al.where(i < N, v, {NEVER})\nm = al.max(s)\nn = al.where(m == {NEVER}, 0.0, m)\n"
SHARE = "al.softmax(lambda k: x[k])[i]"
BY_HAND = "al.exp(x[i] - al.max(lambda k: x[k])) / al.sum(lambda j: al.exp(x[j] - al.max(lambda k: x[k])))"
ALONE = STORE.format("{} + al.zeros((32,), al.float32)")

SOFTMAX = {
    "without a maximum": ("e = al.where(i < N, al.exp(v), 0.0)\n", "e / al.sum(e)"),
    "with a maximum": (MASKED + "e = al.exp(s - m)\n", "e / al.sum(e)"),
    "by the inverse": (MASKED + "e = al.exp(s - m)\n", "e * (1.0 / al.sum(e))"),
    "in base 2": (MASKED + "e = al.exp2((s - m) * 1.4426950408889634)\n", "e / al.sum(e)"),
    "in two factors": (MASKED + "t = al.sum(al.exp(s - m))\n", "al.exp(v) * al.exp(-m) / t"),
    "guarded by an equality": (MASKED + "e = al.exp(s - n)\n", "e / al.sum(e)"),
    "guarded by >": (MASKED + f"n = al.where(m > {NEVER}, m, 0.0)\ne = al.exp(s - n)\n", "e / al.sum(e)"),
    "guarded by <": (MASKED + f"n = al.where({NEVER} < m, m, 0.0)\ne = al.exp(s - n)\n", "e / al.sum(e)"),
    "guarded by a least number": (MASKED + "n = al.maximum(m, -1.0e30)\ne = al.exp(s - n)\n", "e / al.sum(e)"),
    "with a guarded divisor": (MASKED + "e = al.exp(s - m)\nt = al.sum(e)\n", "e / al.where(t > 0.0, t, 1.0)"),
    "with an added mask": (f"s = v + al.where(i < N, 0.0, {NEVER})\ne = al.exp(s - al.max(s))\n", "e / al.sum(e)"),
    "relative to the greatest magnitude": (MASKED + "e = al.exp(s - al.max(al.abs(v)))\n", "e / al.sum(e)"),
}
NO_SOFTMAX = {
    "padding counts": ("e = al.exp(v)\n", "e / al.sum(e)"),
    "one maximum of two": (MASKED + "e = al.exp(s - m)\nf = al.where(i < N, al.exp(v), 0.0)\n", "e / al.sum(f)"),
    "the sum twice": (MASKED + "e = al.exp(s - m)\n", "e / (al.sum(e) + al.sum(e))"),
    "another base": (MASKED + "e = al.exp2(s - m)\n", "e / al.sum(e)"),
    "another guard": (MASKED + f"n = al.where(m > 0.0, m, {NEVER})\ne = al.exp(s - n)\n", "e / al.sum(e)"),
    "a divisor that is always 1": (MASKED + "e = al.exp(s - m)\nt = al.sum(e)\n", "e / al.where(t > 0.0, 1.0, t)"),
    "another row": (MASKED + "e = al.exp(s - m)\n", "al.exp(u - m) / al.sum(e)"),
}


WRITTEN_OUT = [(spec, name) for spec in (BY_HAND, "al.exp(x[i]) / al.sum(lambda j: al.exp(x[j]))")
               for name in ("with a maximum", "in base 2")]  # fmt: skip


@pytest.mark.parametrize(("spec", "name"), [*((SHARE, name) for name in SOFTMAX), *WRITTEN_OUT])
def test_softmax(spec: str, name: str) -> None:
    body, value = SOFTMAX[name]
    assert verdict(rows(spec, body + STORE.format(value))) is Verdict.PROVED


@pytest.mark.parametrize("name", NO_SOFTMAX)
def test_no_softmax(name: str) -> None:
    body, value = NO_SOFTMAX[name]
    assert verdict(rows(SHARE, body + STORE.format(value))) is not Verdict.PROVED


LEVEL = "m + al.log(al.sum(al.exp(s - m)))"

OTHERS = (
    ("al.logsumexp(lambda k: x[k])", MASKED + ALONE.format(LEVEL), True),
    ("al.logsumexp(lambda k: x[k])", "s = al.where(i < N, al.exp(v), 0.0)\n" + ALONE.format("al.log(al.sum(s))"), True),
    ("al.log(al.sum(lambda k: al.exp(x[k])))", MASKED + ALONE.format(LEVEL), True),
    ("x[i] - al.logsumexp(lambda k: x[k])", MASKED + STORE.format("(v - m) - al.log(al.sum(al.exp(s - m)))"), True),
    ("x[i] - al.logsumexp(lambda k: x[k])", MASKED + STORE.format("(v - m) + al.log(al.sum(al.exp(s - m)))"), False),
    ("x[i] - al.logsumexp(lambda k: x[k])", MASKED + STORE.format("v - al.log(al.sum(al.exp(s - m)))"), False),
    ("1.0", STORE.format("v / v"), False),
    ("0.0", STORE.format("0.0 / v"), False),
    ("0.0", STORE.format("0.0 * v"), True),
    ("0.0", STORE.format("v - v"), True),
    ("0.0", STORE.format("1.0 / v - 1.0 / v"), False),
    ("0.0", STORE.format("al.log(v) - al.log(v)"), False),
    ("0.0", STORE.format("0.0 * al.log(v)"), False),
    ("x[i] + 0.0 * al.log(w[i])", STORE.format("v"), False),
    ("x[i] + 1.0 / w[i] - 1.0 / w[i]", STORE.format("v"), False),
    ("x[i]", STORE.format("al.sqrt(v) * al.sqrt(v)"), False),
    ("w[i]", STORE.format("v * (u / v)"), False),
    ("x[i] * w[i] / x[i]", STORE.format("v * (u / v)"), True),
    ("1.0", STORE.format("al.exp(v) * al.exp(-v)"), True),
    ("1.0", STORE.format("al.exp(v) * al.exp(-u)"), False),
    ("x[i]", STORE.format("v * alpha / alpha"), False),
    ("x[i]", STORE.format(f"v + 0.0 * {NEVER}"), False),
    ("al.sum(lambda k: al.log(x[k]))", ALONE.format("al.sum(al.log(v))"), False),
    ("al.sum(lambda k: 1.0 / x[k])", ALONE.format("al.sum(1.0 / v)"), False),
    ("al.sum(lambda k: 1.0 / x[k])", ALONE.format("al.sum(al.where(i < N, 1.0 / v, 0.0))"), True),
    ("al.sum(lambda k: w[k] / x[k])", ALONE.format("al.sum(u / v)"), False),
    ("al.sum(lambda k: x[k] + 1.0)", ALONE.format("al.sum(v + 1.0)"), False),
    ("al.sum(lambda k: x[k])", ALONE.format("al.sum(v) + al.sum(v)"), False),
    ("al.sum(lambda k: x[k])", ALONE.format("0.5 * al.sum(v) + al.sum(v) * 0.5"), True),
    ("al.sum(lambda k: x[k])", ALONE.format("2.0 * al.sum(v) - al.sum(v)"), True),
    ("al.sum(lambda j: al.sum(lambda k: x[j] * x[k]))", ALONE.format("al.sum(v) * al.sum(v)"), True),
    ("al.sum(lambda j: x[j] * x[j])", ALONE.format("al.sum(v) * al.sum(v)"), False),
    ("al.sum(lambda j: al.sum(lambda k: al.where(j < k, x[j] * x[k], 0.0)))", ALONE.format("al.sum(v) * al.sum(v)"),
     False),
    ("al.where(x[i] == w[i], 1.0, 0.0)", STORE.format("al.where(u == v, 1.0, 0.0)"), True),
    ("al.where(x[i] == w[i], 1.0, 0.0)", STORE.format("al.where(u != v, 1.0, 0.0)"), False),
    ("al.where((x[i] > 0.0) & (w[i] < 1.0), x[i], 0.0)", STORE.format("al.where((u < 1.0) & (0.0 < v), v, 0.0)"), True),
    ("al.where((x[i] > 0.0) & (w[i] < 1.0), x[i], 0.0)", STORE.format("al.where((u < 1.0) | (v > 0), v, 0.0)"), False),
    ("0.5 * x[i] * (1.0 + al.tanh(0.8 * (x[i] + 0.04 * x[i] * x[i] * x[i])))",
     "t = v * v * v * 0.04 + v\n" + STORE.format("(al.tanh(t * 0.8) + 1.0) * v / 2.0"), True),
    ("0.5 * x[i] * (1.0 + al.tanh(0.8 * (x[i] + 0.04 * x[i] * x[i] * x[i])))",
     "t = v * v * 0.04 + v\n" + STORE.format("(al.tanh(t * 0.8) + 1.0) * v / 2.0"), False),
    ("3.0 * al.tanh(x[i] / 3.0)", STORE.format("3.0 * al.tanh_approx(v * (1.0 / 3.0))"), True),
    ("3.0 * al.tanh(x[i] / 3.0)", STORE.format("3.0 * al.tanh_approx(v * 3.0)"), False),
    ("0.5 * x[i] * (1.0 + al.erf(x[i] * 0.7))", STORE.format("v * 0.5 + v * 0.5 * al.erf(v * 0.7)"), True),
    ("al.minimum(al.maximum(x[i], -1.0), 1.0)", STORE.format("al.minimum(1.0, al.maximum(-1.0, v))"), True),
    ("al.minimum(al.maximum(x[i], -1.0), 1.0)", STORE.format("al.maximum(al.minimum(v, 1.0), 1.0)"), False),
)  # fmt: skip


@pytest.mark.parametrize(("spec", "body", "right"), OTHERS, ids=[f"{s} - {b[-60:]}" for s, b, _ in OTHERS])
def test_other_terms(spec: str, body: str, right: bool) -> None:
    assert (verdict(rows(spec, body)) is Verdict.PROVED) == right


GATHERED = """
import argus
import argus.language as al

@argus.kernel
def kernel(q: al.Tensor[al.float32, "B"], kc: al.Tensor[al.float32, "S"], slot: al.Tensor[al.int32, "B N"],
           out: al.Tensor[al.float32, "B"]):
    B, N = slot.shape
    S = kc.shape[0]
    al.requires(N <= 128)
    al.requires(al.in_range(slot, 0, S))
    al.spec(out, lambda b: al.logsumexp(lambda j: q[b] * kc[slot[b, j]]))
    b = al.grid(B)
    j = al.arange(128)
    at = al.load(slot[b, j], mask=j < N)
    s = al.where(j < N, al.load(kc[at], mask=j < N) * al.load(q[b]), -float("inf"))
    top = al.max(s)
    t = al.where(top > -float("inf"), top, 0.0)
    al.store(out[b], t + al.log(al.sum(al.exp(s - t))))
"""


@pytest.mark.parametrize(
    ("old", "new", "right"),
    [("", "", True), ("j < N, al.load(kc", "j < N - 1, al.load(kc", False), ("t + al.log", "top - t + al.log", False),
     ("* al.load(q[b])", "+ al.load(q[b])", False)],
)  # fmt: skip
def test_gathered_scores(old: str, new: str, right: bool) -> None:
    assert (verdict(GATHERED.replace(old, new) if old else GATHERED) is Verdict.PROVED) == right


COMPARED = """
import argus
import argus.language as al

@argus.kernel(num_warps=1)
def kernel(x: al.Tensor[al.TYPE, "N"], w: al.Tensor[al.TYPE, "N"], out: al.Tensor[al.int32, "N"]):
    N = x.shape[0]
    al.requires(N <= 32)
    al.spec(out, lambda i: (x[i] < w[i]).to(al.int32))
    al.grid(1)
    i = al.arange(32)
    s = al.shared((32,), al.KEPT)
    al.store(s[i], al.load(x[i], mask=i < N).to(al.KEPT))
    al.barrier()
    al.store(out[i], (al.load(s[i]).to(al.float32) < al.load(w[i], mask=i < N).to(al.float32)).to(al.int32), mask=i < N)
"""


@pytest.mark.parametrize(
    ("dtype", "kept", "right"),
    [("float32", "float32", True), ("float32", "bfloat16", False), ("int32", "int32", False)],
)
def test_comparisons_of_numbers_that_were_rounded_before(dtype: str, kept: str, right: bool) -> None:
    text = COMPARED.replace("TYPE", dtype).replace("KEPT", kept)
    assert (verdict(text) is Verdict.PROVED) == right
