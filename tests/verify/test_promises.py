"""`al.without_nan`, `al.moderate`: proofs do not depend on them, and only code for gfx942 becomes another."""

from __future__ import annotations

import pytest

from argus.backend.emit import emit
from argus.compile import elaborate, prove
from argus.diagnostic import SourceError, Verdict
from argus.frontend import Options
from argus.passes import lower
from argus.source import SourceFile

TEXT = """
import argus
import argus.language as al

@argus.kernel(num_warps=1)
def kernel(x: al.Tensor[al.float32, "N 256"], top: al.Tensor[al.float32, "N"], out: al.Tensor[al.bfloat16, "N 256"]):
    N = x.shape[0]
    al.spec(out, lambda i, j: x[i, j] * 2.0)
    al.spec(top, lambda i: {spec})
    row = al.grid(N)
    values = al.load(x[row, :])
    al.store(top[row], {promise}(al.maximum(al.max({promise}(values)), al.load(x[row, 0]))))
    doubled = values * {factor}
    al.store(out[row, :], {promise}(doubled).to(al.bfloat16))
"""
LARGEST = "al.max(lambda j: x[i, j])"


def source(promise: str = "al.without_nan", factor: str = "2.0", spec: str = LARGEST) -> SourceFile:
    return SourceFile("kernel.py", TEXT.format(promise=promise, factor=factor, spec=spec))


def options(target: str) -> Options:
    return Options(target, 1)


def emitted(target: str, promise: str) -> str:
    text = emit(lower(elaborate(source(promise), "kernel", options(target)), target))
    return "\n".join(line for line in text.splitlines() if not line.startswith(("#line", "//")))


PROMISES = ["al.without_nan", "al.moderate"]


@pytest.mark.parametrize("promise", PROMISES)
@pytest.mark.parametrize(("factor", "verdict"), [("2.0", Verdict.PROVED), ("3.0", Verdict.REFUTED)])
def test_values_are_judged_as_without_it(promise: str, factor: str, verdict: Verdict) -> None:
    for target in ("gfx942", "sm_80"):
        assert prove(source(promise, factor), "kernel", options(target)).verdict is verdict


@pytest.mark.parametrize(("promise", "name"), [("al.without_nan", "numbers"), ("al.moderate", "moderate")])
def test_only_gfx942_makes_use_of_it(promise: str, name: str) -> None:
    assert emitted("sm_80", promise) == emitted("sm_80", "")
    kept, open_ = (emitted("gfx942", given) for given in ("", promise))
    assert "maximum_of<" in kept and "narrow<" in kept and f"_{name}" not in kept
    assert "maximum_of_numbers<" in open_ and f"narrow_{name}<" in open_


def test_lanes_combine_what_was_promised_like_their_own_numbers() -> None:
    """Exchanges look for NaN unless of NaN any number may become."""
    kept, open_ = (emitted("gfx942", given) for given in ("", "al.without_nan"))
    exchanged = "(total[0], argus::shuffle_xor(total[0], 32))"
    assert f"argus::maximum{exchanged}" in kept and f"argus::maximum_of_two{exchanged}" in open_
    assert "= argus::maximum(" in kept and "= argus::maximum(" not in open_


@pytest.mark.parametrize("promise", PROMISES)
def test_specifications_do_not_use_it(promise: str) -> None:
    with pytest.raises(SourceError, match="a specification says nothing about NaN"):
        prove(source(spec=f"al.max(lambda j: {promise}(x[i, j]))"), "kernel", options("sm_80"))
