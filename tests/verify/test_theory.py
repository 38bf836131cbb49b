"""Exponentials, quotients and choices that a specification spells as a textbook does; each beside wrong ones."""

from __future__ import annotations

import pytest

from argus.diagnostic import Verdict
from tests.verify.test_spellings import Case, edited, rows, verdict

SOFTMAX = "al.softmax(lambda j: x[j])[i]"
SCORES = "s = al.where(i < N, v, -float('inf'))\n"

CASES = (
    Case(
        "a softmax by the logarithm of its sum",
        rows(
            SOFTMAX,
            SCORES + "top = al.max(s)\nlevel = top + al.log(al.sum(al.exp(s - top)))\n"
            "al.store(out[i], al.exp(v - level), mask=i < N)",
        ),
        (
            ("al.exp(v - level)", "al.exp(level - v)"),
            ("al.exp(v - level)", "al.exp(u - level)"),
            ("top + al.log(", "al.log("),
            ("top + al.log(", "top - al.log("),
            ("al.exp(s - top)", "al.exp(s)"),
            ("al.exp(s - top)", "al.exp2(s - top)"),
            ("al.log(", "al.log2("),
        ),
    ),
    Case(
        "a factor that cancels",
        rows(
            SOFTMAX,
            SCORES + "e = al.exp(s - al.max(s))\nal.store(out[i], 3.0 * e / al.sum(e * 3.0), mask=i < N)",
        ),
        (("3.0 * e", "2.0 * e"), ("e * 3.0", "e"), ("3.0 * e", "u * e"), ("al.max(s)", "al.max(u)")),
    ),
    Case(
        "a temperature",
        rows(
            "al.softmax(lambda j: x[j] / alpha)[i]",
            "s = al.where(i < N, v / alpha, -float('inf'))\ne = al.exp(s - al.max(s))\n"
            "al.store(out[i], e / al.sum(e), mask=i < N)",
            "al.requires(alpha > 0.0)\n    ",
        ),
        (("v / alpha", "v * alpha"), ("v / alpha", "v"), ("e / al.sum(e)", "e / al.sum(e * alpha)")),
    ),
    Case(
        "a floor below the maximum",
        rows(
            SOFTMAX,
            SCORES + "e = al.exp(s - al.maximum(al.max(s), -1.0e30))\nal.store(out[i], e / al.sum(e), mask=i < N)",
        ),
        (("-1.0e30)", "al.max(u))"), ("e / al.sum(e)", "e"), ("e / al.sum(e)", "e * al.sum(e)")),
        (("-1.0e30", "0.5"), ("-1.0e30)", "0.5) * 2.0")),
    ),
    Case(
        "a swish",
        rows(
            "x[i] / (1.0 + al.exp(-x[i]))",
            "al.store(out[i], v / (1.0 + al.exp2(v * -1.4426950408889634)), mask=i < N)",
        ),
        (("v * -1.44", "v * 1.44"), ("1.0 + al.exp2", "2.0 + al.exp2"), ("v / (", "u / ("), ("-1.442695", "-1.5")),
    ),
    Case(
        "a masked softmax whose rows may be masked",
        rows(
            "al.softmax(lambda j: al.where(j < i, x[j], -float('inf')))[0] * w[i]",
            "s = al.where(i[None, :] < i[:, None], v[None, :], -float('inf'))\n"
            "top = al.max(s, axis=1)\ntop = al.where(top == -float('inf'), 0.0, top)\n"
            "e = al.exp(s - top[:, None])\ntotal = al.sum(e, axis=1)\n"
            "first = al.sum(al.where((i == 0)[None, :], e, 0.0), axis=1)\n"
            "al.store(out[i], first / al.where(total == 0.0, 1.0, total) * u, mask=i < N)",
        ),
        (
            ("first / al.where(total == 0.0, 1.0, total)", "first / total"),
            ("(i == 0)", "(i == 1)"),
            ("i[None, :] < i[:, None]", "i[None, :] <= i[:, None]"),
            ("total == 0.0, 1.0", "total == 1.0, 1.0"),
        ),
    ),
    Case(
        "a clamp",
        rows(
            "al.minimum(al.maximum(x[i], -1.0), 1.0)",
            "al.store(out[i], al.minimum(1.0, al.maximum(-1.0, v)), mask=i < N)",
        ),
        (("al.minimum(1.0", "al.minimum(2.0"), ("al.maximum(-1.0", "al.maximum(1.0"), ("-1.0, v", "-1.0, u")),
    ),
    Case(
        "factors of a sum of weights that differ by row",
        rows(
            SOFTMAX,
            SCORES + "e = al.exp(s - al.max(s))\n"
            "t = al.sum(al.where((i < 5)[:, None], 1.0 * e[None, :], e[None, :]), axis=1)\n"
            "al.store(out[i], al.where(i < 5, e, e * 1.0) / t, mask=i < N)",
        ),
        (("1.0 * e[", "2.0 * e["), ("1.0 * e[", "alpha * e["), ("e * 1.0", "e * 2.0")),
    ),
    Case(
        "a maximum that the specification subtracts",
        rows(
            "al.exp(x[i] - al.max(lambda j: x[j]))",
            SCORES + "al.store(out[i], al.exp(v - al.max(s)), mask=i < N)",
        ),
        (("v - al.max(s)", "v"), ("v - al.max(s)", "v - al.max(u)"), ("v - al.max(s)", "v + al.max(s)")),
    ),
    Case(
        "a maximum that the specification leaves out of a logarithm",
        rows(
            "al.log(al.sum(lambda j: al.exp(x[j] - al.max(lambda k: x[k])))) + w[i]",
            SCORES + "al.store(out[i], u + al.log(al.sum(al.exp(s - al.max(s)))), mask=i < N)",
        ),
        (("s - al.max(s)", "s"), ("s - al.max(s))))", "s))) - 1.0")),
    ),
    Case(
        "nothing times a quotient",
        rows(
            "x[i]",
            "al.store(out[i], v + 0.0 * (u / alpha), mask=i < N)",
            "al.requires(alpha > 0.0)\n    ",
        ),
        (("al.requires(alpha > 0.0)", "al.requires(alpha >= 0.0)"), ("u / alpha", "alpha / u")),
    ),
    Case(
        "quotients that cancel in an exponent",
        rows(
            "al.exp(x[i])",
            "al.store(out[i], al.exp(v + u / alpha - u / alpha), mask=i < N)",
            "al.requires(alpha > 0.0)\n    ",
        ),
        (("al.requires(alpha > 0.0)", "al.requires(alpha >= 0.0)"), ("- u / alpha", "- u")),
    ),
    Case(
        "numbers that cancel in a condition",
        rows(
            "al.where(x[i] > 0.0, w[i], b[i])",
            "al.store(out[i], al.where(v + u - u > 0.0, u, c), mask=i < N)",
        ),
        (("u - u", "1.0 / u - 1.0 / u"), ("u - u", "u")),
    ),
    Case(
        "a divisor in place of a sum that may be 0",
        rows(
            "x[i] / al.where(al.sum(lambda j: al.where(j > 40, al.exp(w[j]), 0.0)) == 0.0, 1.0, "
            "al.sum(lambda j: al.where(j > 40, al.exp(w[j]), 0.0)))",
            "t = al.sum(al.where((i > 40) & (i < N), al.exp(u), 0.0))\n"
            "al.store(out[i], v / al.where(t == 0.0, 1.0 * 1.0, t), mask=i < N)",
        ),
        (("1.0 * 1.0", "2.0"), ("al.where(t == 0.0, 1.0 * 1.0, t)", "t")),
    ),
    Case(
        "a sum of weights under a logarithm, beside a number",
        rows(
            "al.logsumexp(lambda j: x[j]) + w[i]",
            SCORES + "top = al.max(s)\nal.store(out[i], u + top + al.log(al.sum(al.exp(s - top))), mask=i < N)",
        ),
        (("u + top", "u"), ("u + top", "top"), ("u + top", "u - top"), ("al.exp(s - top)", "al.exp(s - top) * 2.0")),
    ),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_right(case: Case) -> None:
    for text in (case.text, *(edited(case, edit) for edit in case.right)):
        assert verdict(text) is Verdict.PROVED


@pytest.mark.parametrize(("case", "edit"), [(c, e) for c in CASES for e in c.wrong], ids=lambda each: str(each)[:40])
def test_wrong(case: Case, edit: tuple[str, str]) -> None:
    assert verdict(edited(case, edit)) is not Verdict.PROVED
