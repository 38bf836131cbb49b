"""uint32: arithmetic modulo 2^32 by definition, in kernels and in specifications, never that of mathematics."""

from __future__ import annotations

import numpy as np
import pytest

import argus
from argus import compile
from argus.diagnostic import LaunchError, SourceError, Verdict
from argus.frontend import Options
from argus.source import SourceFile
from argus.verify import Report

HEAD = "import argus\nimport argus.language as al\n\n@argus.kernel\n"
TEXT = HEAD + """def k(
    x: al.Tensor[al.TYPE, "N"], y: al.Tensor[al.TYPE, "N"], out: al.Tensor[al.RESULT, "N"], B: al.constexpr = 64
):
    al.spec(out, lambda i: SPEC)
    i = al.grid(al.cdiv(N, B)) * B + al.arange(B)
    a, b = al.load(x[i], mask=i < N), al.load(y[i], mask=i < N)
    al.store(out[i], VALUE, mask=i < N)
"""


def text(spec: str, value: str, dtype: str = "uint32", result: str = "uint32") -> str:
    spec, value = spec.format(a="x[i]", b="y[i]"), value.format(a="a", b="b")
    return TEXT.replace("TYPE", dtype).replace("RESULT", result).replace("SPEC", spec).replace("VALUE", value)


def prove(source: str) -> Report:
    return compile.prove(SourceFile("k.py", source), "k", Options(target="cpu"))


FORMS = [
    "{a} * 2654435761 + {b}",
    "({a} ^ ~{b}) << 7",
    "({a} - {b}) >> 3",
    "-{a} | {b}",
    "{a} // 7 + {b} % 10",
    "al.umulhi({a}, {b}) & 255",
    "al.where({a} < {b}, {a} - {b}, {b})",
    "al.maximum({a}, {b}) * {a}",
    "i.to(al.uint32) * 3000000000 + {a}",
]


@pytest.mark.parametrize("form", FORMS)
def test_what_is_specified_is_computed(form: str) -> None:
    assert prove(text(form, form)).verdict is Verdict.PROVED


@pytest.mark.parametrize(
    ("spec", "value"),
    [
        ("{a} * 2654435761 + {b}", "{a} * 2654435760 + {b}"),
        ("{a} - {b}", "{b} - {a}"),
        ("{a} >> 3", "{a} >> 4"),
        ("al.umulhi({a}, {b})", "{a} * {b}"),
        ("~{a}", "-{a}"),
        ("{a}.to(al.int64).to(al.uint32) + {b}", "{a}"),
    ],
)
def test_what_differs_is_not_proved(spec: str, value: str) -> None:
    assert prove(text(spec, value)).verdict is not Verdict.PROVED


def test_another_product_is_refuted() -> None:
    assert prove(text("{a} * 2654435761 + {b}", "{a} * 2654435760 + {b}")).verdict is Verdict.REFUTED


@pytest.mark.parametrize(
    ("spec", "right", "wrong"),
    [
        ("{a}.to(al.int64) + {b}.to(al.int64)", "{a}.to(al.int64) + {b}.to(al.int64)", "({a} + {b}).to(al.int64)"),
        ("{a}.to(al.int64) * 3", "{a}.to(al.int64) * 3", "({a} * 3).to(al.int64)"),
        ("({a} - {b}).to(al.int64)", "({a} - {b}).to(al.int64)", "{a}.to(al.int64) - {b}.to(al.int64)"),
        ("({a} + {b}).to(al.int64)", "({b} + {a}).to(al.int64)", "{a}.to(al.int64) + {b}.to(al.int64)"),
        ("({a} * {b}).to(al.int64)", "({b} * {a}).to(al.int64)", "{a}.to(al.int64) * {b}.to(al.int64)"),
        ("(-{a}).to(al.int64)", "(-{a}).to(al.int64)", "-{a}.to(al.int64)"),
        ("(~{a}).to(al.int64)", "(~{a}).to(al.int64)", "~{a}.to(al.int64)"),
        ("({a} << 1).to(al.int64)", "({a} << 1).to(al.int64)", "{a}.to(al.int64) << 1"),
    ],
)
def test_modular_and_mathematical_integers_are_told_apart(spec: str, right: str, wrong: str) -> None:
    assert prove(text(spec, right, result="int64")).verdict is Verdict.PROVED
    assert prove(text(spec, wrong, result="int64")).verdict is not Verdict.PROVED


def test_narrow_arithmetic_is_not_widened_by_a_conversion() -> None:
    right, wrong = "{a}.to(al.uint32) + {b}.to(al.uint32)", "({a} + {b}).to(al.uint32)"
    for dtype in ("uint8", "uint16"):
        assert prove(text(right, right, dtype)).verdict is Verdict.PROVED
        assert prove(text(right, wrong, dtype)).verdict is not Verdict.PROVED


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32"])
@pytest.mark.parametrize("form", ["{a} & {b}", "{a} | {b}", "{a} ^ {b}", "{a} >> 2", "({a} & 15) << 2"])
def test_bits_of_unsigned_types(dtype: str, form: str) -> None:
    assert prove(text(form, form, dtype, dtype)).verdict is Verdict.PROVED


INDEX = HEAD + """def k(x: al.Tensor[al.float32, "256"], out: al.Tensor[al.float32, "N"]):
    i = al.grid(al.cdiv(N, 64)) * 64 + al.arange(64)
    h = ((i.to(al.uint32) * 2654435761) MASK).to(al.int32)
    al.store(out[i], al.load(x[h]), mask=i < N)
"""


@pytest.mark.parametrize(("right", "wrong"), [(">> 24", ">> 23"), ("& 255", "& 511"), ("% 256", "% 257")])
def test_a_hash_is_an_index(right: str, wrong: str) -> None:
    assert prove(INDEX.replace("MASK", right)).verdict is Verdict.PROVED
    assert prove(INDEX.replace("MASK", wrong)).verdict is not Verdict.PROVED


@pytest.mark.parametrize(
    ("value", "code", "words"),
    [
        ("a + b.to(al.int32)", "type-mismatch", "mixes uint32 and int32"),
        ("a * 4294967296", "bad-constant", "does not fit uint32"),
        ("al.umulhi(a.to(al.int32), b.to(al.int32))", "type-mismatch", "multiplies uint32"),
        ("a << 32", "bad-constant", "shift"),
        ("al.load(x[a])", "bad-index", "not uint32"),
    ],
)
def test_mistakes_are_located(value: str, code: str, words: str) -> None:
    with pytest.raises(SourceError) as caught:
        prove(text("x[i]", value))
    (found,) = caught.value.diagnostics
    assert found.code == code and words in found.message and found.span.known and found.help


def test_a_specification_mixes_no_modular_with_other_integers() -> None:
    with pytest.raises(SourceError, match="mixes uint32 and int32"):
        prove(text("x[i] + i", "a"))


def test_a_sum_of_many_is_of_mathematical_integers() -> None:
    form = HEAD + """def k(x: al.Tensor[al.uint32, "M 64"], out: al.Tensor[al.int64, "M"]):
    al.spec(out, lambda m: al.sum(lambda n: x[m, n].to(al.int64)))
    m = al.grid(M)
    al.store(out[m], VALUE)
"""
    row = "al.load(x[m, al.arange(64)])"
    right, wrong = f"al.sum({row}.to(al.int64))", f"al.sum({row}).to(al.int64)"
    assert prove(form.replace("VALUE", right)).verdict is Verdict.PROVED
    assert prove(form.replace("VALUE", wrong)).verdict is not Verdict.PROVED
    with pytest.raises(SourceError, match="no proof follows"):
        prove(form.replace("VALUE", right).replace("n].to(al.int64)", "n]"))


def test_results_are_those_of_python() -> None:
    kernel = argus.from_text(text(*2 * [" + ".join(f"({form})" for form in FORMS)]))["k"]
    rng = np.random.default_rng(3)
    x, y = (rng.integers(0, 2**32, 200, dtype=np.uint32) for _ in range(2))
    x[:20], y[:10] = y[:20], 0
    out = np.zeros_like(x)
    kernel(x, y, out)
    a, b, i = (v.astype(object) for v in (x, y, np.arange(200)))
    modulo = 2**32
    expected = a * 2654435761 + b + (((a ^ (modulo - 1 - b)) << 7) % modulo) + ((a - b) % modulo >> 3)
    expected += (-a % modulo | b) + a // 7 + b % 10 + (a * b >> 32 & 255) + np.where(a < b, a - b, b)
    expected += np.maximum(a, b) * a + i * 3000000000 + a
    assert (out.astype(object) == expected % modulo).all()


SEEDED = HEAD + """def k(
    x: al.Tensor[al.float32, "N"], y: al.Tensor[al.uint32, "N"], out: al.Tensor[al.uint32, "N"], s: al.uint32
):
    al.requires((s + 1 > 10) & (N >= 10))
    al.spec(out, lambda i: (y[i] + s) * 5)
    i = al.grid(al.cdiv(N, 64)) * 64 + al.arange(64)
    al.store(out[i], 5 * (s + al.load(y[i], mask=i < N)), mask=i < N)
"""
"""For no seed from 2^32 - 1 to 2^32 + 8, which is 8, the precondition holds."""


def test_a_seed_is_an_argument() -> None:
    assert prove(SEEDED).verdict is Verdict.PROVED
    assert prove(SEEDED.replace("5 * (s +", "5 * (s + 1 +")).verdict is not Verdict.PROVED
    y, out = np.arange(100, dtype=np.uint32), np.zeros(100, np.uint32)
    kernel = argus.from_text(SEEDED)["k"]
    kernel(np.zeros(100, np.float32), y, out, 4_000_000_000)
    assert (out == (y.astype(np.uint64) + 4_000_000_000) * 5 % 2**32).all()
    for wrong in (2**32 - 1, 8, 2**32, -1):
        with pytest.raises(LaunchError):
            kernel(np.zeros(100, np.float32), y, out, wrong)


def test_a_seed_as_a_place() -> None:
    """The sum wraps around, so it says nothing of the seed."""
    text = SEEDED.replace("s + 1 > 10", "s < 10").replace("(s + al.load(y[i]", "(s + al.load(y[s.to(al.int32) + i]")
    text = text.replace("y[i] + s", "y[i + s.to(al.int32)] + s").replace("N >= 10", "N >= 0")
    inside = text.replace("mask=i < N)), mask=i < N", "mask=i + s.to(al.int32) < N)), mask=i < N - s.to(al.int32)")
    assert "out-of-bounds" not in {d.code for d in prove(inside).diagnostics}
    assert prove(inside.replace("s < 10", "s + 1 < 10")).verdict is Verdict.REFUTED
