"""Kernels as a newcomer writes them, beside a textbook's specification; each beside wrong ones."""

from __future__ import annotations

import pytest

from argus.diagnostic import Verdict
from tests.verify.test_spellings import Case, edited, rows, verdict

MEAN = "al.sum(lambda j: x[j]) / N.to(al.float32)"
VARIANCE = f"al.sum(lambda k: (x[k] - {MEAN}) * (x[k] - {MEAN})) / N.to(al.float32)"

CASES = (
    Case(
        "preconditions on sizes beside one on a float, in one condition",
        """
import argus
import argus.language as al

@argus.kernel(num_warps=1)
def kernel(x: al.Tensor[al.float32, "N"], out: al.Tensor[al.float32, "N"], eps: al.float32):
    N = x.shape[0]
    al.requires((N > 0) & (N <= 32) & (eps > 0.0))
    al.spec(out, lambda i: (x[i] - MEAN) / al.sqrt(VARIANCE + eps))
    al.grid(1)
    i = al.arange(32)
    v = al.load(x[i], mask=i < N)
    mean = al.sum(v) / N.to(al.float32)
    variance = al.sum(v * v) / N.to(al.float32) - mean * mean
    al.store(out[i], (v - mean) * al.rsqrt(variance + eps), mask=i < N)
""".replace("MEAN", MEAN).replace("VARIANCE", VARIANCE),
        (("mean * mean", "mean"), ("rsqrt(variance + eps)", "rsqrt(variance)"), ("(N <= 32) & ", "")),
    ),
    Case(
        "a gate over a sum that may be empty",
        rows(
            "al.sum(lambda j: x[j]) * al.sigmoid(al.sum(lambda j: x[j])) * w[i]",
            "a = al.sum(v)\nal.store(out[i], a / (1.0 + al.exp(-a)) * u, mask=i < N)",
        ),
        (("1.0 + al.exp(-a)", "al.exp(-a) - 1.0"), ("al.exp(-a)", "al.exp(a)"), ("a / (1.0", "1.0 / (1.0")),
    ),
    Case(
        "a soft cap that a positive scalar gives",
        rows(
            "al.softmax(lambda j: alpha * al.tanh(x[j] / alpha))[i]",
            "s = al.where(i < N, alpha * al.tanh(v * (1.0 / alpha)), -float('inf'))\ne = al.exp(s - al.max(s))\n"
            "al.store(out[i], e / al.sum(e), mask=i < N)",
            "al.requires(alpha > 0.0)\n    ",
        ),
        (("v * (1.0 / alpha)", "v * alpha"), ("al.where(i < N, alpha *", "al.where(i < N, 2.0 *")),
    ),
    Case(
        "labels that are smoothed",
        rows(
            "al.logsumexp(lambda k: x[k]) - (1.0 - alpha) * x[i]"
            " - alpha / N.to(al.float32) * al.sum(lambda n: x[n] - al.logsumexp(lambda k: x[k]))"
            " - alpha * al.logsumexp(lambda k: x[k])",
            "s = al.where(i < N, v, -float('inf'))\ntop = al.max(s)\nlse = top + al.log(al.sum(al.exp(s - top)))\n"
            "al.store(out[i], lse - (1.0 - alpha) * v - alpha * (al.sum(v) / N.to(al.float32)), mask=i < N)",
        ),
        (("lse - (1.0", "2.0 * lse - (1.0"), ("- alpha * (al.sum", "+ alpha * (al.sum"), ("(1.0 - alpha) * v", "v")),
    ),
    Case(
        "a count that is a product of sizes",
        """
import argus
import argus.language as al

@argus.kernel(num_warps=1)
def kernel(x: al.Tensor[al.float32, "C L"], out: al.Tensor[al.float32, "C"]):
    C, L = x.shape
    al.requires((C < 1024) & (0 < L) & (L <= 32))
    al.spec(out, lambda c: al.sum(lambda j: x[c, j]) / (C * L).to(al.float32))
    c = al.grid(C)
    i = al.arange(32)
    al.store(out[c], al.sum(al.load(x[c, i], mask=i < L)) / (C * L).to(al.float32))
""",
        (("(C < 1024) & ", ""), ("al.load(x[c, i], mask=i < L)) / (C * L)", "al.load(x[c, i], mask=i < L)) / (L * L)")),
    ),
    Case(
        "a mean of losses that do not overflow",
        rows(
            "al.sum(lambda j: -w[j] * al.log(al.sigmoid(x[j])) - (1.0 - w[j]) * al.log(1.0 - al.sigmoid(x[j]))) * b[i]",
            "loss = al.maximum(v, 0.0) - v * u + al.log(1.0 + al.exp(-al.abs(v)))\n"
            "al.store(out[i], al.sum(al.where(i < N, loss, 0.0)) * c, mask=i < N)",
        ),
        (("- v * u", "+ v * u"), ("al.where(i < N, loss, 0.0)", "loss"), ("-al.abs(v)", "al.abs(v)")),
    ),
    Case(
        "the largest absolute value, padded with zeros",
        rows(
            "x[i] / al.maximum(al.max(lambda j: al.abs(x[j])), 1.0e-6)",
            "al.store(out[i], v / al.maximum(al.max(al.abs(v)), 1.0e-6), mask=i < N)",
        ),
        (("al.max(al.abs(v))", "al.max(v)"), ("1.0e-6), mask", "1.0), mask"), ("al.abs(v)", "al.abs(v) + 1.0")),
        (("al.maximum(al.max(al.abs(v)), 1.0e-6)", "al.max(al.maximum(al.abs(v), 1.0e-6))"),),
    ),
    Case(
        "a norm that is clipped",
        rows(
            "x[i] * al.minimum(1.0, alpha / (al.sqrt(al.sum(lambda k: x[k] * x[k])) + 1.0e-6))",
            "norm = al.sqrt(al.sum(v * v)) + 1.0e-6\n"
            "al.store(out[i], al.where(norm > alpha, v * (alpha / norm), v), mask=i < N)",
            "al.requires(alpha > 0.0)\n    ",
        ),
        (("norm > alpha", "norm < alpha"), ("v * (alpha / norm)", "v * alpha"), ("al.sum(v * v)", "al.sum(v)")),
    ),
    Case(
        "Mish by a rational function of one exponential",
        rows(
            "x[i] * al.tanh(al.log(1.0 + al.exp(x[i])))",
            "e = al.exp(v)\nn = e * (e + 2.0)\nal.store(out[i], v * n / (n + 2.0), mask=i < N)",
        ),
        (("(n + 2.0)", "(n + 1.0)"), ("(e + 2.0)", "(e + 1.0)"), ("al.exp(v)", "al.exp(-v)")),
    ),
    Case(
        "the logarithm of a softmax",
        rows(
            "al.log(al.softmax(lambda j: x[j])[i])",
            "s = al.where(i < N, v, -float('inf'))\ntop = al.max(s)\n"
            "al.store(out[i], v - top - al.log(al.sum(al.exp(s - top))), mask=i < N)",
        ),
        (
            ("v - top - al.log", "v + top - al.log"),
            ("v - top - al.log", "v - top + al.log"),
            ("v - top - al", "v - al"),
        ),
    ),
    Case(
        "a mean of losses of masked elements that are chosen by known numbers",
        rows(
            "al.sum(lambda j: al.where(al.abs(x[j]) <= 1.0, 0.5 * x[j] * x[j], al.abs(x[j]) - 0.5)) + b[i]",
            "d = al.abs(v)\nal.store(out[i], al.sum(al.where(d < 1.0, 0.5 * d * d, d - 0.5)) + c, mask=i < N)",
        ),
        (("d - 0.5)", "d - 0.25)"), ("d < 1.0", "d > 1.0"), ("0.5 * d * d", "0.5 * d * d + 1.0")),
    ),
    Case(
        "a variance of perhaps no elements",
        """
import argus
import argus.language as al

@argus.kernel(num_warps=1)
def kernel(x: al.Tensor[al.float32, "M N"], out: al.Tensor[al.float32, "M"]):
    M, N = x.shape
    al.requires(N <= 32)
    al.spec(out, lambda m: VARIANCE)
    m = al.grid(M)
    i = al.arange(32)
    v = al.load(x[m, i], mask=i < N)
    total = al.sum(v)
    mean = total / N.to(al.float32)
    al.store(out[m], al.sum(v * v) / N.to(al.float32) - mean * mean)
""".replace("VARIANCE", VARIANCE.replace("x[", "x[m, ")),
        (
            ("- mean * mean", "- mean"),
            ("al.store(out[m], al.sum(v * v) / N.to(", "al.store(out[m], al.sum(v * v) / al.maximum(N, 1).to("),
        ),
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_right(case: Case) -> None:
    for text in (case.text, *(edited(case, edit) for edit in case.right)):
        assert verdict(text) is Verdict.PROVED


@pytest.mark.parametrize(("case", "edit"), [(c, e) for c in CASES for e in c.wrong], ids=lambda each: str(each)[:40])
def test_wrong(case: Case, edit: tuple[str, str]) -> None:
    assert verdict(edited(case, edit)) is not Verdict.PROVED


UNSTABLE = rows(
    "-w[i] * al.log(al.sigmoid(x[i])) - (1.0 - w[i]) * al.log(1.0 - al.sigmoid(x[i]))",
    "al.store(out[i], al.maximum(v, 0.0) - v * u + al.log(1.0 + al.exp(-al.abs(v))), mask=i < N)",
)


def test_a_specification_that_is_infinite_by_rounding_refutes_nothing() -> None:
    assert verdict(UNSTABLE) is not Verdict.REFUTED
    assert verdict(UNSTABLE.replace("al.maximum(v, 0.0)", "al.minimum(v, 0.0)")) is Verdict.REFUTED
