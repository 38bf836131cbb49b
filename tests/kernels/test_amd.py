"""Calls of the library's functions for gfx942, from their arguments to code objects that fit the device."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from argus.backend.hip.toolchain import find_compiler
from tests.conftest import require

pytest.importorskip("torch")

ROWS = {
    "softmax 16384 float32": "argus_softmax_rows",  # 16 warps of 64 lanes, where others have 32 of 32
    "softmax 24576": "argus_softmax_held_rows",
    "softmax 24577": "argus_softmax_long_rows",
    "rmsnorm 24576": "argus_rmsnorm_held_rows",
    "rmsnorm 32768": "argus_rmsnorm_long_rows",
    "add_layernorm 12288": "argus_add_layernorm_rows",
    "add_layernorm 12289": "rows of `x` have 12289 elements, and this kernel takes at most 12288",
}
PRODUCTS = {
    "attention 64": ["argus_attention_forward"],
    "attention 128": ["argus_attention_forward"],
    "matmul": ["argus_gemm"],
    "latent heads": ["argus_attention_decode_rows", "argus_attention_combine"],
    "latent heads, more queries": ["argus_attention_decode_rows"],  # the other kernel is loaded already
}
FORMATS = {
    **{f"matmul of {name}": ["argus_gemm"] for name in ("float32", "tfloat32", "e4m3fn", "e4m3fnuz")},
    "matmul of both": ["`a` is of float8_e4m3fnuz and `b` of float8_e4m3fn"],
}


@pytest.mark.parametrize(
    "loaded",
    [{name: [entry] for name, entry in ROWS.items()}, PRODUCTS, FORMATS],
    ids=["rows", "products", "formats"],
)
def test_every_call_is_proved_and_built(loaded: dict[str, list[str]]) -> None:
    require(find_compiler(), "clang 17 or newer")
    command = [sys.executable, "-m", "tests.kernels.on_amd", *loaded]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == loaded
