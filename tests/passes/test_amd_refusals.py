"""What gfx942 cannot run is refused before anything is built, beside a twin that it can run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from argus.compile import elaborate
from argus.diagnostic import ArgusError, Diagnostic
from argus.frontend import Options
from argus.ir.types import bfloat16, float8_e4m3fn, float8_e4m3fnuz, float8_e5m2fnuz
from argus.passes import lower
from argus.source import SourceFile

FILE = Path("argus/kernels/gemm.py")
TILE = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "STAGES": 2, "PRODUCERS": 0}
FP8 = {"IN": float8_e4m3fnuz, "MULTIPLY": float8_e4m3fnuz}
HALVES = {"IN": float8_e4m3fn, "MULTIPLY": float8_e4m3fnuz}
PAIR = """
import argus
import argus.language as al

@argus.kernel(num_warps=4)
def pair(a: al.Tensor[LEFT, "128 64"], b: al.Tensor[RIGHT, "128 64"], c: al.Tensor[al.float32, "128 128"],
         LEFT: al.constexpr = al.float8_e4m3fnuz, RIGHT: al.constexpr = al.float8_e4m3fnuz):
    al.grid(1)
    acc = al.zeros((128, 128), al.float32)
    at, bt = al.stage(a[:, :]), al.stage(b[:, :])
    al.store(c[:, :], al.mma(at, bt, acc))
"""


def lowered(source: SourceFile, name: str, **constants: Any) -> None:
    lower(elaborate(source, name, Options("gfx942", 4, constants)), "gfx942")


def refused(source: SourceFile, name: str, **constants: Any) -> Diagnostic:
    with pytest.raises(ArgusError) as caught:
        lowered(source, name, **constants)
    return caught.value.diagnostics[0]


def test_more_lds_than_there_is() -> None:
    source = SourceFile(str(FILE), FILE.read_text(encoding="utf-8"))
    lowered(source, "gemm", **TILE)
    found = refused(source, "gemm", **{**TILE, "BLOCK_K": 256})
    assert found.code == "shared-memory"
    assert "65536" in found.message
    assert found.help


@pytest.mark.parametrize("other", [float8_e4m3fn, float8_e5m2fnuz, bfloat16], ids=str)
def test_two_formats_in_one_product(other: Any) -> None:
    source = SourceFile("pair.py", PAIR)
    lowered(source, "pair")
    found = refused(source, "pair", RIGHT=other)
    assert found.code == "type-mismatch"
    assert "float8_e4m3fnuz" in found.message and str(other) in found.message
    assert found.help


def test_the_format_of_other_machines() -> None:
    source = SourceFile(str(FILE), FILE.read_text(encoding="utf-8"))
    lowered(source, "gemm", **TILE, **FP8)
    lowered(source, "gemm", **TILE, **HALVES)
    found = refused(source, "gemm", **TILE, IN=float8_e4m3fn, MULTIPLY=float8_e4m3fn)
    assert found.code == "no-matrix-instruction"
    assert "gfx942 has no matrix instruction for float8_e4m3fn" in found.message
    assert found.help.startswith("convert the operands to float8_e4m3fnuz")
