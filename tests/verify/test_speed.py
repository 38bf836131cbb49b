"""Warnings of sectors: strides count where they are stated, and a message says what stating them would save."""

from __future__ import annotations

from pathlib import Path

import pytest

from argus.compile import elaborate, lower, verify
from argus.diagnostic import Diagnostic, Verdict
from argus.frontend import Options
from argus.source import SourceFile
from argus.verify.checks import speed
from argus.verify.model.program import sites

TEXT = """
import argus
import argus.language as al

@argus.kernel(num_warps=1)
def k(x: al.Tensor[al.float32, {shape}], out: al.Tensor[al.float32, "N"]):
    N = out.shape[0]
    i = al.grid(al.cdiv(N, 32)) * 32 + al.arange(32)
    al.store(out[i], al.load(x[i, 0], mask=i < N), mask=i < N)
"""


def warnings(shape: str) -> tuple[Diagnostic, ...]:
    source = SourceFile("k.py", TEXT.replace("{shape}", shape))
    report = verify(lower(elaborate(source, "k", Options(target="sm_80", default_alignment=4)), "sm_80"))
    assert report.verdict is Verdict.PROVED
    return report.diagnostics


def test_rows_that_may_lie_anywhere() -> None:
    (found,) = warnings('"N 2"')
    assert "touches 32 sectors of 32 bytes a warp where 4 would do" in found.message
    assert '"2 1"' in found.help and "8 sectors" in found.help


@pytest.mark.parametrize(("shape", "sectors"), [('"N 2", "2 1"', 8), ('"N 4", "4 1"', 16)])
def test_rows_that_follow_one_another(shape: str, sectors: int) -> None:
    (found,) = warnings(shape)
    assert f"touches {sectors} sectors" in found.message
    assert "consecutive threads" in found.help


def test_columns_of_one_element_are_contiguous() -> None:
    assert not warnings('"N 1", "1 1"')


TURNED = """
import argus
import argus.language as al

@argus.kernel(num_warps=4)
def k(x: al.Tensor[al.float32, "32 32"], out: al.Tensor[al.float32, "32 32"]):
    al.grid(1)
    tile = al.shared((32, 32), al.float32)
    al.store(tile, al.load(x[:, :]))
    al.barrier()
    al.store(out[:, :], al.load(al.trans(tile)))
"""


LINEAR = Path("examples/linear.py").read_text(encoding="utf-8")


@pytest.mark.parametrize(("text", "name", "help"), [(LINEAR, "linear", "the compiler's own"), (TURNED, "k", "swizzle")])
def test_only_tiles_of_the_author_are_to_be_swizzled(text: str, name: str, help: str) -> None:
    kernel = lower(elaborate(SourceFile("k.py", text), name, Options("gfx942")), "gfx942")
    found = [f for f in speed.check(kernel, sites(kernel)) if f.code == "bank-conflicts"]
    assert found and all(help in f.help for f in found)
