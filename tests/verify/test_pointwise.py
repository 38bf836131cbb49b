"""Functions of one element in other spellings than the textbook's; each beside wrong ones."""

from __future__ import annotations

import pytest

from argus.diagnostic import Verdict
from tests.verify.test_spellings import Case, edited, rows, verdict

GELU = "0.5 * x[i] * (1.0 + al.tanh(0.7978845608 * (x[i] + 0.044715 * x[i] * x[i] * x[i])))"
HUBER = (
    "al.where(al.abs(x[i] - w[i]) <= alpha, 0.5 * (x[i] - w[i]) * (x[i] - w[i]),"
    " alpha * (al.abs(x[i] - w[i]) - 0.5 * alpha))"
)


def stored(value: str, before: str = "") -> str:
    return f"{before}al.store(out[i], {value}, mask=i < N)"


POSITIVE = "al.requires(alpha > 0.0)\n    "
ORDERED = "al.requires(0.5 <= alpha)\n    "
CASES = (
    Case(
        "a clamp to a range that is not empty",
        rows("al.minimum(al.maximum(x[i], 0.5), alpha)", stored("al.maximum(0.5, al.minimum(v, alpha))"), ORDERED),
        (("al.maximum(0.5, al", "al.maximum(0.25, al"), ("0.5 <= alpha", "0.25 <= alpha"), ("0.5 <= alpha", "N >= 1")),
        (("0.5 <= alpha", "alpha > 0.5"), ("0.5 <= alpha", "0.75 < alpha")),
    ),
    Case(
        "an exponential of a logarithm, of what a choice makes positive",
        rows("al.where(x[i] < 1.0, 1.0 - x[i], w[i])", stored("al.where(v < 1.0, al.exp(al.log(1.0 - v)), u)")),
        (
            ("w[i])", "1.0 - x[i])"),
            ("al.where(v < 1.0, al.exp(al.log(1.0 - v)), u)", "al.exp(al.log(1.0 - v))"),
            ("al.where(v < 1.0", "al.where(v < 2.0"),
            ("al.log(1.0 - v)", "al.log(v - 1.0)"),
            ("al.log(1.0 - v)", "2.0 * al.log(1.0 - v)"),
        ),
        (("v < 1.0", "~(v >= 1.0)"),),
    ),
    Case(
        "an exponential of a logarithm, in one of two cases only",
        rows(
            "al.where(w[i] > 0.0, al.where(x[i] < 1.0, 1.0 - x[i], 0.0), x[i])",
            stored("al.where(u > 0.0, al.where(v < 1.0, al.exp(al.log(1.0 - v)), 0.0), v)"),
        ),
        (
            ("0.0), v)", "0.0), al.exp(al.log(1.0 - v)))"),
            ("0.0), v)", "0.0), 1.0 - al.exp(al.log(1.0 - v)))"),
        ),
    ),
    Case(
        "GELU by a sigmoid",
        rows(GELU, stored("v * al.sigmoid(1.5957691216 * v * (1.0 + 0.044715 * v * v))")),
        (("1.5957691216", "0.7978845608"), ("v * v)", "v)"), ("al.sigmoid(", "al.tanh(")),
    ),
    Case(
        "GELU by an exponential",
        rows(GELU, stored("v * (1.0 - 1.0 / (e + 1.0))", "e = al.exp(1.5957691216 * v * (1.0 + 0.044715 * v * v))\n")),
        (("1.0 - 1.0 /", "1.0 + 1.0 /"), ("(e + 1.0)", "(e + 2.0)"), ("(e + 1.0)", "(1.0 - e)")),
    ),
    Case(
        "Huber's loss with the other boundary",
        rows(
            HUBER,
            stored("al.where(d < alpha, 0.5 * d * d, alpha * d - 0.5 * alpha * alpha)", "d = al.abs(u - v)\n"),
            POSITIVE,
        ),
        (("alpha * d - 0.5", "alpha * d - 0.25"), ("al.abs(u - v)", "u - v"), ("d < alpha", "d < 2.0 * alpha")),
        (("d < alpha", "d <= alpha"),),
    ),
    Case(
        "Huber's loss without a choice",
        rows(HUBER, stored("q * (d - 0.5 * q)", "d = al.abs(v - u)\nq = al.minimum(d, alpha)\n"), POSITIVE),
        (("al.minimum", "al.maximum"), ("0.5 * q", "q"), ("q * (d", "d * (d")),
    ),
    Case(
        "softplus",
        rows("al.log(1.0 + al.exp(x[i]))", stored("al.maximum(v, 0.0) + al.log(1.0 + al.exp(-al.abs(v)))")),
        (("-al.abs(v)", "al.abs(v)"), ("al.maximum", "al.minimum"), ("al.log(1.0 + al.exp(-", "al.log(2.0 + al.exp(-")),
        (("al.log(1.0 + al.exp(-al.abs(v)))", "al.log1p(al.exp(-al.abs(v)))"),),
    ),
    Case(
        "cross entropy of a logit",
        rows(
            "-(w[i] * al.log(al.sigmoid(x[i])) + (1.0 - w[i]) * al.log(1.0 - al.sigmoid(x[i])))",
            stored("al.maximum(v, 0.0) - v * u + al.log(1.0 + al.exp(-al.abs(v)))"),
        ),
        (("- v * u", "+ v * u"), ("- v * u", "- u"), ("al.maximum(v, 0.0)", "v")),
    ),
    Case(
        "a sigmoid that does not overflow",
        rows(
            "al.sigmoid(x[i])",
            stored("al.where(v >= 0.0, 1.0 / (1.0 + e), e / (1.0 + e))", "e = al.exp(-al.abs(v))\n"),
        ),
        (("v >= 0.0", "v <= 0.0"), ("e / (1.0 + e)", "e / (2.0 + e)"), ("-al.abs(v)", "-v")),
        (("v >= 0.0", "v > 0.0"),),
    ),
    Case(
        "hard swish",
        rows(
            "x[i] * al.minimum(al.maximum(x[i] + 3.0, 0.0), 6.0) / 6.0",
            stored("al.where(v <= -3.0, 0.0, al.where(v >= 3.0, v, v * (v + 3.0) * 0.16666667))"),
        ),
        (("v <= -3.0", "v <= -2.0"), ("v >= 3.0, v,", "v >= 3.0, 3.0,"), ("(v + 3.0)", "(v + 2.0)")),
        (("v >= 3.0", "v > 3.0"), ("v <= -3.0", "v < -3.0")),
    ),
    Case(
        "ELU by extrema",
        rows(
            "al.where(x[i] > 0.0, x[i], al.exp(x[i]) - 1.0)",
            stored("al.maximum(v, 0.0) + al.minimum(al.exp(v) - 1.0, 0.0)"),
        ),
        (("al.exp(v) - 1.0", "al.exp(v) - 2.0"), ("al.minimum", "al.maximum")),
    ),
    Case(
        "a moving mean and its root",
        rows(
            "x[i] - alpha * ((M) / (al.sqrt((M) * (M)) + 1.0))".replace("M", "0.9 * w[i] + 0.1 * x[i]"),
            stored("v - alpha * (m / (1.0 + al.sqrt(m * m)))", "m = u + 0.1 * (v - u)\n"),
        ),
        (("v - alpha", "u - alpha"), ("0.1 * (v - u)", "0.1 * (u - v)"), ("1.0 + al.sqrt", "al.sqrt")),
    ),
    Case(
        "the absolute value of a product",
        rows("al.abs(x[i] * w[i])", stored("al.abs(v) * al.abs(u)")),
        (("al.abs(v) * al.abs(u)", "al.abs(v) * u"), ("al.abs(v) *", "al.abs(v) * 2.0 *")),
    ),
    Case(
        "a choice by a sum",
        rows(
            "al.where(al.sum(lambda j: x[j] * al.sum(lambda k: w[k])) > 0.0, al.abs(x[i]), 0.0)",
            stored("al.where(t <= 0.0, 0.0, al.maximum(v, -v))", "t = al.sum(v) * al.sum(u)\n"),
        ),
        (("t <= 0.0", "t >= 0.0"), ("al.maximum(v, -v)", "v"), ("al.sum(v) * al.sum(u)", "al.sum(v)")),
    ),
    Case(
        "a choice where two numbers are equal",
        rows("al.where(x[i] > w[i], x[i], w[i] * w[i])", stored("al.where(v <= u, u * u, v)")),
        (("v <= u", "v < u"), ("v <= u", "v >= u")),
    ),
    Case(
        "a choice by a quotient that may be none",
        rows("al.where(x[i] / w[i] > 0.0, x[i], 2.0 * x[i])", stored("v * al.where(v / u > 0.0, 1.0, 2.0)")),
        (("v * al.where(v / u > 0.0, 1.0, 2.0)", "v * al.where(v / u <= 0.0, 2.0, 1.0)"),),
    ),
    Case(
        "a quotient that does not cancel",
        rows("x[i] / (1.0 + w[i] * w[i])", stored("v * u / (u + u * u * u)")),
        (),
    ),
)
RIGHT = CASES[:-2]


@pytest.mark.parametrize("case", RIGHT, ids=lambda case: case.name)
def test_right(case: Case) -> None:
    for text in (case.text, *(edited(case, edit) for edit in case.right)):
        assert verdict(text) is Verdict.PROVED


@pytest.mark.parametrize(("case", "edit"), [(c, e) for c in CASES for e in c.wrong], ids=lambda each: str(each)[:40])
def test_wrong(case: Case, edit: tuple[str, str]) -> None:
    assert verdict(edited(case, edit)) is not Verdict.PROVED


def test_a_divisor_that_may_be_zero_does_not_cancel() -> None:
    assert verdict(CASES[-1].text) is not Verdict.PROVED
