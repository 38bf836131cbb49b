"""What messages advise: the remedy fits the mistake, and following it makes the kernel right."""

from __future__ import annotations

import re

import pytest

from argus import compile
from argus.diagnostic import ArgusError, Diagnostic, Verdict
from argus.frontend import Options
from argus.source import SourceFile

HEAD = "import argus\nimport argus.language as al\n\n@argus.kernel\n"
ONE = HEAD + """def k(x: al.Tensor[al.float32, "N"], out: al.Tensor[al.float32, "N"], BLOCK: al.constexpr = 128):
    i = al.grid(al.cdiv(N, BLOCK)) * BLOCK + al.arange(BLOCK)
    v = {value}
    al.store({place}, v, mask=i < N)
"""
TILES = HEAD + """def k(x: al.Tensor[al.float32, "M N"], out: al.Tensor[al.float32, "M N"], B: al.constexpr = 32):
    m, n = al.grid(al.cdiv(M, B), al.cdiv(N, B))
    here = x[m * B : m * B + B, n * B : n * B + B]
    v = al.load(here{check})
    al.store(out[m * B : m * B + B, n * B : n * B + B], v{check})
"""
SOFTMAX = HEAD + """def k(x: al.Tensor[al.float32, "M N"], out: al.Tensor[al.float32, "M N"], B: al.constexpr = 256):
    al.requires(N <= B)
    al.spec(out, lambda m, n: al.softmax(lambda k: x[m, k])[n])
    row = al.grid(M)
    j = al.arange(B)
    v = al.load(x[row, j], mask=j < N{other})
    e = al.exp(v - al.max(v))
    al.store(out[row, j], e / al.sum(e), mask=j < N)
"""
LOAD = "al.load(x[i], mask=i < N, other=1.0)"


def found(text: str) -> tuple[Verdict | None, tuple[Diagnostic, ...]]:
    """The verdict, or None for text that is no kernel, and the findings."""
    try:
        report = compile.prove(SourceFile("k.py", text), "k", Options(target="cpu"))
    except ArgusError as error:
        return None, error.diagnostics
    return report.verdict, report.diagnostics


def test_a_pointer_is_an_index() -> None:
    verdict, (finding, *_) = found(ONE.format(value="al.load(x + i, mask=i < N)", place="out[i]"))
    assert verdict is None and finding.help == "write `x[i]`"
    assert found(ONE.format(value="al.load(x[i], mask=i < N)", place="out[i]"))[0] is Verdict.PROVED


def test_all_dimensions_without_a_boundary_check_are_named_at_once() -> None:
    verdict, findings = found(TILES.format(check=""))
    assert verdict is Verdict.REFUTED
    assert all("boundary_check=(0, 1)" in d.help for d in findings if d.code == "out-of-bounds")
    verdict, findings = found(TILES.format(check=", boundary_check=(1,)"))
    assert verdict is Verdict.REFUTED
    assert all("boundary_check=(0,)" in d.help for d in findings if d.code == "out-of-bounds")
    assert found(TILES.format(check=", boundary_check=(0, 1)"))[0] is Verdict.PROVED


def test_softmax_padded_with_zeros() -> None:
    verdict, findings = found(SOFTMAX.format(other=""))
    finding = next(d for d in findings if d.code == "spec-mismatch")
    assert verdict is Verdict.REFUTED and 'other=float("-inf")' in finding.help and "`x`" in finding.help
    assert found(SOFTMAX.format(other=', other=float("-inf")'))[0] is Verdict.PROVED


def test_no_barrier_is_advised_within_one_statement() -> None:
    verdict, findings = found(ONE.format(value=LOAD, place="out[i // 2]"))
    race = next(d for d in findings if d.code == "data-race")
    assert verdict is Verdict.REFUTED
    assert "no barrier can stand between them" in race.help and "put al.barrier()" not in race.help
    assert race.witness is not None and "barrier" not in race.witness.expected


@pytest.mark.parametrize("name", ["rand", "frobnicate", "argsort", "cat", "any"])
def test_nothing_unrelated_is_suggested(name: str) -> None:
    verdict, (finding, *_) = found(ONE.format(value=f"al.{name}({LOAD})", place="out[i]"))
    assert verdict is None and finding.code == "unknown-function" and "did you mean" not in finding.help


@pytest.mark.parametrize(
    ("slip", "meant"), [("laod", "load"), ("arrange", "arange"), ("maximun", "maximum"), ("wher", "where")]
)
def test_slips_of_the_pen_are_recognised(slip: str, meant: str) -> None:
    _, (finding, *_) = found(ONE.format(value=f"al.{slip}({LOAD})", place="out[i]"))
    assert finding.help == f"did you mean `al.{meant}`?"


@pytest.mark.parametrize(
    "name", ["silu", "gelu", "softplus", "reciprocal", "square", "relu", "zeros_like"]
)
def test_what_is_advised_is_in_the_language(name: str) -> None:
    """The expression between the backquotes of the advice elaborates."""
    _, (finding, *_) = found(ONE.format(value=f"al.{name}({LOAD})", place="out[i]"))
    advised = finding.help.split("`")[1].replace(", axis)", ", 0)").replace("x.dtype", "al.float32")
    with_advice = f"    u = {_on_tile(advised)}\n    al.store("
    text = ONE.format(value=LOAD, place="out[i]").replace("    al.store(", with_advice)
    assert found(text)[0] is Verdict.PROVED, text


def _on_tile(expression: str) -> str:
    return re.sub(r"\bx\b", "v", expression)


@pytest.mark.parametrize(
    ("value", "remedy"),
    [
        (f"al.cast({LOAD}, al.float32)", "write `x.to(al.float32)`"),
        (f"{LOAD}.astype(al.float32)", "write `x.to(al.float32)`"),
        (f"al.float32({LOAD})", "convert a value with `x.to(al.float32)`"),
        (f"al.fdiv({LOAD}, 2.0)", "write `x / y`"),
        (f"al.sum({LOAD}, dim=0)", "write `axis=`"),
        (f"al.sum({LOAD}, 0, keepdim=True)", "did you mean `keep_dims`?"),
        (f"al.max({LOAD}, return_indices=True)", "call `al.argmax(x, axis)` or `al.argmin(x, axis)` as well"),
        ("al.load(x[i], eviction_policy='evict_last')", "leave it out"),
        ("al.load(x[i], cache_modifier='.cg')", "leave it out"),
        ("al.load(x[i], padding_option='zero')", "write `other=0.0`"),
        ("al.load(i + x)", "write `x[i]`"),
        ("x.size(0)", "write `x.shape[0]`"),
        ("x.numel()", "multiply the extents"),
        ("len(x)", "write `x.shape[0]`"),
        (f"{LOAD}.T", "write `al.trans(x)`"),
        (f"al.cummax({LOAD}, 0)", "write `al.associative_scan"),
        ("al.multiple_of(i, 8)", "leave it out: alignment is read off the arguments"),
        ("al.static_assert(BLOCK == 128)", "write `assert condition"),
        ("al.static_print(i)", "print what the compiler made"),
        ("al.atomic_cas(x[i], 1.0, 2.0)", "use `al.atomic_add`"),
        ("al.rand(0, i)", "pass a tensor of random numbers, or compute them with `al.uint32`"),
        ("al.local_tile(x)", "slice the tensor"),
        ("al.make_layout((4, 8), (8, 1))", "write `al.layout("),
        ("al.arch()", "write `al.thread_id()`"),
        ("al.range(0, 4)", "write `range(lo, hi)`"),
        ("al.size(x)", "write `x.shape[0]`"),
        (f"al.dot({LOAD}, {LOAD})", "write `acc = al.mma(a, b, acc)`"),
        ("tl.load(x[i])", "the language is imported as `al`"),
    ],
)  # fmt: skip
def test_habits_from_elsewhere_have_an_answer(value: str, remedy: str) -> None:
    verdict, (finding, *_) = found(ONE.format(value=value, place="out[i]"))
    assert verdict is None and finding.help.startswith(remedy), finding.help


def test_a_program_id_of_a_grid_that_is_not_declared_is_answered_with_the_grid() -> None:
    text = ONE.format(value="al.load(x[i], i < N, 0.0)", place="out[i]")
    text = text.replace("al.arange(BLOCK)", "al.arange(0, BLOCK)")
    assert found(text)[0] is Verdict.PROVED
    for start in ("al.program_id(0)", "al.program_id(axis=0)"):
        verdict, (finding, *_) = found(text.replace("al.grid(al.cdiv(N, BLOCK))", start))
        assert verdict is Verdict.REFUTED and "al.grid(" in finding.help
