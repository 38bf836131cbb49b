"""Products on gfx942 build with the tiles that they get: nothing spills, and LDS suffices."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from argus.backend.build import build
from argus.backend.hip.toolchain import find_compiler
from argus.ir.target import TARGETS
from argus.ir.types import DType, bfloat16, float8_e4m3fnuz, float16, float32
from argus.kernels.attention_decode import wave_step
from argus.kernels.attention_tiles import AttentionShape, wave_tiles
from argus.kernels.matmul_packed import tile_of
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


@pytest.mark.parametrize("rows", [1, 32, 64])
@pytest.mark.parametrize("page", [16, 32, 48, 64, 128, 256])
def test_waves_of_decode(page: int, rows: int) -> None:
    """Each wave has a product of 16 x 16 scores, and a page is whole steps."""
    tile = wave_step(page, rows)
    waves, block = int(str(tile["num_warps"])), int(str(tile["BLOCK"]))
    assert page % block == 0 and waves * 256 <= block * max(16, rows)


@pytest.mark.nightly
@pytest.mark.parametrize(("page", "rows"), [(16, 16), (16, 64), (48, 16), (64, 64), (128, 16)])
def test_decode(page: int, rows: int) -> None:
    tile = wave_step(page, rows)
    waves = int(str(tile.pop("num_warps")))
    built("attention_decode.py", "attention_decode_pages", waves, {**tile, "PAGE": page, "ROWS": rows, "SPAN": 16})


@pytest.mark.nightly
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(("tokens", "depth"), [(1, 1), (16, 4096), (32, 8192), (200, 20000)])
def test_packed(tokens: int, depth: int, bits: int) -> None:
    tile = dict(tile_of("gfx942", tokens, 4096, depth, bits, 128, False))
    waves, parts = int(tile.pop("num_warps")), {"OUT_SHAPE": "S M N", "OUT": float32} if tile["DEPTH"] else {}
    built("packed.py", "product_of_packed", waves, {**tile, **parts, "BITS": bits})
