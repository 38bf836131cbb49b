"""What the library's products compute on gfx942: the emitted text, run on the host with 64 lanes, against NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from argus.backend.cpu.toolchain import find_compiler
from argus.compile import elaborate
from argus.frontend import Options
from argus.ir.nodes import Kernel
from argus.ir.types import bfloat16, float16
from argus.kernels.attention_tiles import AttentionShape, wave_tiles
from argus.passes import lower
from argus.source import SourceFile
from tests.backend.host import from_bfloat16, run, to_bfloat16

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="needs a C++ compiler")
KERNELS = Path("argus/kernels")
RNG = np.random.default_rng(3)


def lowered(file: str, name: str, num_warps: int, constants: dict[str, Any]) -> Kernel:
    source = SourceFile(file, (KERNELS / file).read_text(encoding="utf-8"))
    return lower(elaborate(source, name, Options("gfx942", num_warps, constants)), "gfx942")


@pytest.mark.product
@pytest.mark.parametrize("heads", [1, 400], ids=["four waves", "eight waves"])
@pytest.mark.parametrize(
    ("size", "causal", "dtype"), [(64, True, bfloat16), (128, False, bfloat16), (128, True, float16)]
)
def test_attention(size: int, causal: bool, dtype: Any, heads: int) -> None:
    """Rows and keys that no tile divides; the first block's product of values is one of zeros."""
    m, n = 150, 203
    tiles = dict(wave_tiles(AttentionShape(size, m, n, heads, heads, causal), dtype))
    waves = int(tiles.pop("num_warps"))
    constants = {**tiles, "D": size, "DTYPE": dtype, "OUT": dtype, "CAUSAL": causal}
    kernel = lowered("attention.py", "attention_forward", waves, constants)
    q, k, v = (RNG.standard_normal((1, 1, rows, size)).astype(np.float32) for rows in (m, n, n))
    narrow, wide = (to_bfloat16, from_bfloat16) if dtype == bfloat16 else (np.float16, np.float32)
    x, y, z = (narrow(t) for t in (q, k, v))
    o, lse = np.zeros((1, 1, 1, m, size), x.dtype), np.zeros((1, 1, 1, m), np.float32)
    scale = size**-0.5
    sizes = {"B": 1, "H": 1, "HK": 1, "M": m, "N": n, "P": 1}
    blocks = -(-m // int(tiles["BLOCK_M"]))
    values = {"q": x, "k": y, "v": z, "o": o, "lse": lse, "scale": scale * 1.4426950408889634}
    run(kernel, (1, 1, blocks) if causal else (blocks, 1, 1), **values, **sizes)
    s = wide(x)[0, 0].astype(np.float64) @ wide(y)[0, 0].T * scale
    if causal:
        s = np.where(np.arange(n) <= np.arange(m)[:, None] + n - m, s, -np.inf)
    e = np.exp(s - s.max(1, keepdims=True))
    np.testing.assert_allclose(wide(o)[0, 0, 0], e @ wide(z)[0, 0] / e.sum(1, keepdims=True), rtol=0.02, atol=0.02)
    np.testing.assert_allclose(lse[0, 0, 0], np.log(e.sum(1)) + s.max(1), rtol=1e-3, atol=1e-3)


@pytest.mark.product
@pytest.mark.parametrize(("a_rows", "b_rows"), [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize(("rows", "columns", "waves"), [(128, 64, 4), (32, 32, 1)])
def test_gemm(a_rows: bool, b_rows: bool, rows: int, columns: int, waves: int) -> None:
    """Operands whose k is contiguous, and those that are turned on the way to LDS."""
    m, n, k = 136, 72, 104
    a, b = to_bfloat16(RNG.standard_normal((m, k))), to_bfloat16(RNG.standard_normal((n, k)))
    constants = {"A": "M K" if a_rows else "K M", "B": "N K" if b_rows else "K N", "BLOCK_M": rows, "BLOCK_N": columns,
                 "BLOCK_K": 32, "STAGES": 2, "PRODUCERS": 0}  # fmt: skip
    kernel = lowered("gemm.py", "gemm", waves, constants)
    c = np.zeros((m, n), np.uint16)
    x, y = (np.ascontiguousarray(t if by else t.T) for t, by in ((a, a_rows), (b, b_rows)))
    one = np.ones(1, np.float32)
    more = {"bias": one, "residual": np.ones((1, 1), np.float32), "scale_a": one, "scale_b": one}
    values = {"a": x, "b": y, "c": c, **more, "M": m, "N": n, "K": k, "lda": x.shape[1], "ldb": y.shape[1]}
    run(kernel, (-(-m // rows), -(-n // columns)), **values)
    np.testing.assert_allclose(from_bfloat16(c), from_bfloat16(a) @ from_bfloat16(b).T, rtol=2**-7, atol=1e-3)
