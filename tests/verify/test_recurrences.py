"""What a loop multiplies and adds to in every step, against sums with products; each beside wrong ones."""

from __future__ import annotations

import pytest

from argus.diagnostic import Verdict
from tests.verify.test_spellings import Case, edited, verdict


def recurrence(spec: str, step: str, before: str = "h = al.zeros((32,), al.float32)") -> str:
    """A kernel that carries `h` along the rows of two tensors, and stores it in every step."""
    first, rest = "\n    ".join(before.splitlines()), "\n        ".join(step.strip().splitlines())
    return f"""
import argus
import argus.language as al

@argus.kernel(num_warps=1)
def kernel(g: al.Tensor[al.float32, "T C"], x: al.Tensor[al.float32, "T C"], out: al.Tensor[al.float32, "T C"]):
    T, C = g.shape
    al.spec(out, lambda t, c: al.sum(lambda j: al.where(j <= t, {spec} * x[j, c], 0.0)))
    c = al.grid(al.cdiv(C, 32)) * 32 + al.arange(32)
    {first}
    for t in range(T):
        u = al.load(x[t, c], mask=c < C)
        v = al.load(g[t, c], mask=c < C)
        {rest}
        al.store(out[t, c], h, mask=c < C)
"""


CASES = (
    Case(
        "a moving average",
        recurrence("al.exp((t - j).to(al.float32) * -0.10536052)", "h = h * 0.9 + u"),
        (("h * 0.9", "h * 0.8"), ("h * 0.9 + u", "(h + u) * 0.9"), ("j <= t", "j < t"), ("(t - j)", "(t - j + 1)")),
        (("h * 0.9 + u", "u + 0.9 * h"),),
    ),
    Case(
        "a gate",
        recurrence("al.prod(lambda s: al.where((j < s) & (s <= t), g[s, c], 1.0))", "h = h * v + u"),
        (
            ("h * v + u", "(h + u) * v"),
            ("h * v + u", "h * u + v"),
            ("(j < s)", "(j <= s)"),
            ("(s <= t)", "(s < t)"),
            ("al.zeros((32,), al.float32)", "al.full((32,), 1.0, al.float32)"),
            ("g[s, c], 1.0", "g[s, c], 0.0"),
        ),
        (("h * v + u", "u + v * h"),),
    ),
    Case(
        "two gates",
        recurrence("al.prod(lambda s: al.where((j < s) & (s <= t), g[s, c] * g[s, c], 1.0))", "h = v * (h * v) + u"),
        (("v * (h * v)", "v * h"), ("v * (h * v)", "u * (h * v)")),
    ),
    Case(
        "a gate by a sigmoid",
        recurrence(
            "al.prod(lambda s: al.where((j < s) & (s <= t), al.sigmoid(g[s, c]), 1.0))", "h = h * al.sigmoid(v) + u"
        ),
        (
            ("al.sigmoid(v)", "al.sigmoid(-v)"),
            ("al.sigmoid(v)", "v"),
            ("h * al.sigmoid(v) + u", "(h + u) * al.sigmoid(v)"),
        ),
    ),
    Case(
        "a gate that forgets",
        recurrence("al.prod(lambda s: al.where((j < s) & (s <= t), 1.0 - g[s, c], 1.0))", "h = h - h * v + u"),
        (("h - h * v", "h + h * v"), ("h - h * v", "h - 2.0 * h * v"), ("h - h * v + u", "h - (h + u) * v")),
    ),
    Case(
        "a decay by a scalar argument",
        recurrence("al.prod(lambda s: al.where((j < s) & (s <= t), 1.0 - w, 1.0), T)", "h = h * (1.0 - w) + u").replace(
            '"T C"]):', '"T C"], w: al.float32):'
        ),
        (
            ("h * (1.0 - w)", "h * (1.0 + w)"),
            ("h * (1.0 - w) + u", "(h + u) * (1.0 - w)"),
            ("(j < s)", "(j <= s)"),
            ("(s <= t)", "(s < t)"),
            ("1.0 - w, 1.0)", "1.0 - w, 0.0)"),
        ),
        (("h * (1.0 - w) + u", "u + h - w * h"),),
    ),
    Case(
        "a decay by an exponential",
        recurrence("al.exp(al.sum(lambda s: al.where((j < s) & (s <= t), g[s, c], 0.0)))", "h = h * al.exp(v) + u"),
        (("al.exp(v)", "al.exp(-v)"), ("al.exp(v)", "al.exp2(v)"), ("(s <= t)", "(s < t)"), ("al.exp(v)", "v")),
    ),
    Case(
        "a decay by the difference of cumulated logarithms",
        recurrence(
            "al.exp(g[t, c] - g[j, c])",
            "h = h * al.exp(v - old) + u\nold = v",
            "h = al.zeros((32,), al.float32)\nold = al.zeros((32,), al.float32)",
        ),
        (("v - old", "old - v"), ("old = v", "old = u"), ("g[t, c] - g[j, c]", "g[t, c]"), ("old = v\n", "\n")),
        (("old = al.zeros((32,), al.float32)", "old = al.full((32,), 5.0, al.float32)"),),
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_right(case: Case) -> None:
    for text in (case.text, *(edited(case, edit) for edit in case.right)):
        assert verdict(text) is Verdict.PROVED


@pytest.mark.parametrize(("case", "edit"), [(c, e) for c in CASES for e in c.wrong], ids=lambda each: str(each)[:40])
def test_wrong(case: Case, edit: tuple[str, str]) -> None:
    assert verdict(edited(case, edit)) is Verdict.REFUTED
