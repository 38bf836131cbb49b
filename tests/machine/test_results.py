"""Machine code of gfx942 at real tile sizes and odd shapes: what the interpreter computes, beside NumPy and PyTorch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from argus.backend.emit import emit
from argus.backend.hip.toolchain import find_compiler, find_disassembler
from argus.compile import elaborate
from argus.frontend import Options
from argus.ir.types import DType, bfloat16, float8_e4m3fn, float8_e4m3fnuz, float32, tfloat32
from argus.passes import lower
from argus.simulate.numeric import from_bits
from argus.source import SourceFile
from tests.backend.host import to_bfloat16
from tests.conftest import require
from tests.machine import cases
from tests.machine.families import FAMILIES
from tests.machine.kernels import run

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "shape", [(128, 64, 4, 136, 72, 104), (256, 256, 8, 264, 200, 40)], ids=["four waves", "eight waves"]
)
def test_products(shape: tuple[int, int, int, int, int, int]) -> None:
    cases.gemm(*shape).check()


def test_products_of_many_blocks() -> None:
    """Twenty blocks, numbered anew for eight dies and then in groups of rows."""
    cases.gemm(64, 64, 4, 264, 200, 8).check()


def test_products_in_turns() -> None:
    """One half of the waves is a barrier behind the other."""
    cases.example("gemm_turns", 256, 264, 200, 104).check()


def test_products_of_8_bits() -> None:
    cases.gemm_fp8(128, 128, 4, 136, 72, 80).check()


@pytest.mark.parametrize("dtype", [float32, tfloat32], ids=str)
@pytest.mark.parametrize("tile", [(128, 128, 4), (32, 32, 1)], ids=["four waves", "one wave"])
def test_products_of_float32(dtype: DType, tile: tuple[int, int, int]) -> None:
    cases.gemm_float32(dtype, *tile, 40, 72, 28).check()


def test_products_of_the_format_of_other_machines() -> None:
    cases.gemm_e4m3fn(64, 64, 4, 70, 72, 80).check()


HALVED = """
import argus
import argus.language as al

@argus.kernel(num_warps=1)
def halved(x: al.Tensor[al.float8_e4m3fn, "256"], out: al.Tensor[al.float8_e4m3fnuz, "256"]):
    al.grid(1)
    al.store(out[:], (al.load(x[:]).to(al.float32) * 0.5).to(al.float8_e4m3fnuz))
"""


def test_halves_of_every_number_of_8_bits() -> None:
    """-0 is 0, which has one form there, and no number stays none."""
    kernel = lower(elaborate(SourceFile("halved.py", HALVED), "halved", Options("gfx942")), "gfx942")
    assert "argus::halve<4>" in emit(kernel)
    x, out = np.arange(256, dtype=np.uint8), np.zeros(256, np.uint8)
    run(kernel, (1,), ("out",), x=x, out=out)
    wanted = np.where(x & 0x7F == 0x7F, 0x80, np.where(x == 0x80, 0, x))
    np.testing.assert_array_equal(out, wanted)
    np.testing.assert_array_equal(from_bits(out, float8_e4m3fnuz), from_bits(x, float8_e4m3fn) / 2)


TFLOAT32 = """
import argus
import argus.language as al

@argus.kernel(num_warps=1)
def rounded(
    x: al.Tensor[al.tfloat32, "32 16"], one: al.Tensor[al.tfloat32, "32 16"], out: al.Tensor[al.float32, "32 32"]
):
    al.grid(1)
    al.store(out[:, :], al.mma(al.stage(x[:, :]), al.stage(one[:, :]), al.zeros((32, 32), al.float32)))
"""


def test_tfloat32_is_rounded_to_nearest_before_the_instruction_drops_bits() -> None:
    """Neighbours of ties, the ends of the format, infinities, and what is no number by its last bits alone."""
    kernel = lower(elaborate(SourceFile("rounded.py", TFLOAT32), "rounded", Options("gfx942")), "gfx942")
    ends = [0, 1, 0xFFF, 0x1000, 0x1001, 0x1FFF, 0x2FFF, 0x3000, 0x7FDFFF, 0x7FE000, 0x7FEFFF, 0x7FF000, 0x7FFFFF]
    bits = np.array([sign << 31 | e << 23 | m for sign in (0, 1) for e in (1, 127, 253) for m in ends], np.uint32)
    special = np.array([0, 0x7F800000, 0xFF800000, 0x7F800001, 0xFFFFFFFF, 0x7FC00000, 0x7F7FFFFF], np.uint32)
    given = np.concatenate([bits, special]).view(np.float32)
    with np.errstate(all="ignore"):
        wanted = np.where(np.isnan(given), np.nan, cases.nearest_tfloat32(given))
    for start in range(0, len(given), 32):
        part = given[start : start + 32]
        x, one, out = np.zeros((32, 16), np.float32), np.zeros((32, 16), np.float32), np.zeros((32, 32), np.float32)
        x[: len(part), 5], one[:, 5] = part, 1
        with np.errstate(all="ignore"):
            run(kernel, (1,), ("out",), x=x, one=one, out=out)
        np.testing.assert_array_equal(out[: len(part), 7], wanted[start : start + 32])


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize(
    ("size", "heads", "m", "n"),
    [(128, 1, 70, 75), pytest.param(128, 400, 203, 300, marks=pytest.mark.nightly),
     pytest.param(64, 400, 300, 303, marks=pytest.mark.nightly)],
)  # fmt: skip
def test_attention(size: int, heads: int, m: int, n: int, causal: bool) -> None:
    cases.attention(size, causal, heads, m, n).check()


@pytest.mark.parametrize(
    ("dtype", "tile"),
    [(bfloat16, (64, 64, 4)), (bfloat16, (256, 128, 8)), (float8_e4m3fnuz, (128, 128, 4))],
    ids=["small", "large", "8 bits"],
)
def test_experts(dtype: DType, tile: tuple[int, int, int]) -> None:
    """Experts with no rows, with one, and with more than a small tile."""
    cases.grouped(dtype, tile, 72, 80, (0, 1, 70, 70, 93)).check()


@pytest.mark.parametrize(("side", "waves"), [(256, 8), (32, 4)])
def test_experts_with_scales_of_blocks(side: int, waves: int) -> None:
    """Depths that end within a block of scales, and within a step."""
    cases.grouped_blocks(136, 208, (0, 1, 70, 70, 93), side, waves).check()


ROUNDED = """
import argus
import argus.language as al

@argus.kernel(num_warps=1)
def rounded(x: al.Tensor[al.float32, "N 2048"], out: al.Tensor[al.bfloat16, "N 2048"]):
    row = al.program_id(0)
    al.store(out[row, :], al.moderate(al.load(x[row, :])).to(al.bfloat16))
"""


def test_moderate_numbers_are_rounded_to_nearest() -> None:
    """Neighbours of every tie and of every power of two, of several exponents and both signs; between two numbers the
    even one is taken."""
    kernel = lower(elaborate(SourceFile("rounded.py", ROUNDED), "rounded", Options("gfx942")), "gfx942")
    ends = (np.arange(256)[:, None] * 65536 + [0, 1, 0x7FFF, 0x8000, 0x8001, 0xFF01, 0xFFFE, 0xFFFF]).ravel()
    starts = [e << 23 | sign << 31 for e in (1, 2, 17, 64, 126, 127, 128, 200, 226) for sign in (0, 1)]
    x = np.array([start + ends for start in starts]).astype(np.uint32).view(np.float32)
    x[0, 0] = 0
    out = np.zeros(x.shape, np.uint16)
    run(kernel, (len(x),), ("out",), x=x, out=out, N=len(x))
    np.testing.assert_array_equal(out, to_bfloat16(x))


NEGATED = """
import argus
import argus.language as al

@argus.kernel(num_warps=1)
def negated(keys: al.Tensor[al.int32, "N 256"], out: al.Tensor[al.float32, "N 256"]):
    row = al.program_id(0)
    al.store(out[row, :], al.sigmoid(al.sortable(al.load(keys[row, :]), al.float32)))
"""


def test_numbers_made_of_chosen_bits_are_negated() -> None:
    """clang loses the sign of every second of them if it sees that an integer selection made their bits."""
    kernel = lower(elaborate(SourceFile("negated.py", NEGATED), "negated", Options("gfx942")), "gfx942")
    x = np.linspace(-4, 4, 512, dtype=np.float32).reshape(2, 256)
    bits = x.view(np.int32)
    out = np.zeros_like(x)
    run(kernel, (2,), ("out",), keys=np.where(x < 0, -(bits & 0x7FFFFFFF), bits), out=out, N=2)
    np.testing.assert_allclose(out, 1 / (1 + np.exp(-x.astype(np.float64))), rtol=1e-6)


def printed(module: str, *names: str) -> dict[str, Any]:
    """Run a program of this folder; return the JSON that it prints last."""
    require(find_compiler(), "clang 17 or newer")
    require(find_disassembler(), "llvm-objdump")
    pytest.importorskip("torch")
    command = [sys.executable, "-m", f"tests.machine.{module}", *names]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def library(*names: str) -> dict[str, str]:
    return printed("library", *names)


def test_rows() -> None:
    """Normalisations, softmax, sums and transposes of odd sizes, as the library calls them."""
    names = ("softmax odd", "rmsnorm odd", "layernorm odd", "sum odd 1", "max odd 0", "transpose (130, 72)")
    assert library(*names) == dict.fromkeys(names, "right")


@pytest.mark.nightly
def test_the_whole_library() -> None:
    found = library()
    assert len(found) > 100
    assert found == dict.fromkeys(found, "right")


@pytest.mark.nightly
@pytest.mark.parametrize("family", FAMILIES)
def test_families(family: str) -> None:
    """The tests of the kernels' results, as for an MI300X."""
    found = printed("families", family)
    assert found["failed"] == []
    assert found["passed"] > 0 and found["launches"] > 0
