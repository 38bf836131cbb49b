"""Products on gfx942 build with the tiles that they get: nothing spills, and LDS suffices."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from argus.backend.build import build
from argus.backend.hip.toolchain import find_compiler
from argus.ir.target import TARGETS
from argus.ir.types import DType, bfloat16, float8_e4m3fnuz, float16
from argus.kernels.attention_tiles import AttentionShape, wave_tiles
from argus.kernels.wave_tiles import wave_shapes
from tests.conftest import require
from tests.kernels.test_amd_results import lowered

pytestmark = pytest.mark.slow


def built(file: str, name: str, num_warps: int, constants: dict[str, Any]) -> None:
    require(find_compiler(), "clang 17 or newer")
    resources = build(lowered(file, name, num_warps, constants), "gfx942").resources
    assert resources is not None and resources.spill_bytes == 0
    assert resources.shared_bytes <= TARGETS["gfx942"].shared_bytes


@pytest.mark.parametrize(
    ("size", "causal", "dtype", "heads"), list(product((64, 128), (False, True), (bfloat16, float16), (1, 400)))
)
def test_attention(size: int, causal: bool, dtype: DType, heads: int) -> None:
    tiles = dict(wave_tiles(AttentionShape(size, 4096, 4096, heads, heads, causal), dtype))
    waves = int(tiles.pop("num_warps"))
    constants = {**tiles, "D": size, "DTYPE": dtype, "OUT": dtype, "CAUSAL": causal, "GROUP": 4}
    built("attention.py", "attention_forward", waves, constants)


@pytest.mark.parametrize("dtype", [bfloat16, float8_e4m3fnuz], ids=str)
@pytest.mark.parametrize("shape", list(wave_shapes(16)), ids=str)
@pytest.mark.parametrize("b", ["N K", "K N"])
def test_gemm(shape: tuple[int, int, int, int], b: str, dtype: DType) -> None:
    rows, columns, depth, waves = shape
    constants = {"BLOCK_M": rows, "BLOCK_N": columns, "BLOCK_K": depth * 16 // dtype.bits, "STAGES": 2, "PRODUCERS": 0,
                 "IN": dtype, "MULTIPLY": dtype, "B": b}  # fmt: skip
    built("gemm.py", "gemm", waves, constants)
