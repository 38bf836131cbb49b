"""`al.without_nan`: what is proved does not depend on it, and only code for gfx942 becomes another."""

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
    al.store(top[row], al.max({promise}(values)))
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


@pytest.mark.parametrize("target", ["gfx942", "sm_80"])
@pytest.mark.parametrize(("factor", "verdict"), [("2.0", Verdict.PROVED), ("3.0", Verdict.REFUTED)])
def test_values_are_judged_as_without_it(target: str, factor: str, verdict: Verdict) -> None:
    assert prove(source(factor=factor), "kernel", options(target)).verdict is verdict


def test_only_gfx942_looks_for_no_nan() -> None:
    assert emitted("sm_80", "al.without_nan") == emitted("sm_80", "")
    kept, open_ = (emitted("gfx942", promise) for promise in ("", "al.without_nan"))
    assert "maximum_of<" in kept and "narrow<" in kept and "_numbers" not in kept
    assert "maximum_of_numbers<" in open_ and "narrow_numbers<" in open_


def test_specifications_do_not_use_it() -> None:
    with pytest.raises(SourceError, match="a specification says nothing about NaN"):
        prove(source(spec="al.max(lambda j: al.without_nan(x[i, j]))"), "kernel", options("sm_80"))
