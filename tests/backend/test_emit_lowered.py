"""Lowered kernels of every target: their emitted text, run unmodified on the host, against NumPy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from argus.backend.cpu.toolchain import find_compiler
from argus.passes.lower import lower
from tests.backend.host import from_bfloat16, run, to_bfloat16
from tests.passes import kernels

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="needs a C++ compiler")
RNG = np.random.default_rng(1)
WARP = {"cpu": 32, "sm_80": 32, "sm_90a": 32, "gfx942": 64}


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_add(target: str) -> None:
    n = 2500
    x, y = (RNG.standard_normal(n).astype(np.float32) for _ in range(2))
    out = np.full(n, np.nan, np.float32)
    run(lower(kernels.add(warp_size=WARP[target]), target), (3,), x=x, y=y, out=out, N=n)
    np.testing.assert_array_equal(out, x + y)


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
@pytest.mark.parametrize(("rows", "warps"), [(1, 4), (8, 2)])
def test_softmax(target: str, rows: int, warps: int) -> None:
    m, n = 9, 300
    x = RNG.standard_normal((m, n)).astype(np.float32)
    out = np.full((m, n), np.nan, np.float32)
    kernel = lower(kernels.softmax(rows, 512, warps, WARP[target]), target)
    run(kernel, (-(-m // rows),), x=x, out=out, M=m, N=n)
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(out, e / e.sum(1, keepdims=True), rtol=1e-5)


@pytest.mark.product
@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "gfx942"])
@pytest.mark.parametrize("b_by_columns", [False, True])
def test_gemm(target: str, b_by_columns: bool) -> None:
    m, n, k = 72, 136, 104
    a, b = to_bfloat16(RNG.standard_normal((m, k))), to_bfloat16(RNG.standard_normal((n, k)))
    c = np.zeros((m, n), np.uint16)
    kernel = lower(kernels.gemm(warp_size=WARP[target], b_by_columns=b_by_columns), target)
    stored = np.ascontiguousarray(b.T) if b_by_columns else b
    run(kernel, (2, 3), a=a, b=stored, c=c, M=m, N=n, K=k)
    expected = from_bfloat16(a) @ from_bfloat16(b).T
    np.testing.assert_allclose(from_bfloat16(c), expected, rtol=2**-7, atol=1e-3)


@pytest.mark.product
@pytest.mark.parametrize("target", ["cpu", "sm_90a", "gfx942"])
@pytest.mark.parametrize(("m", "n", "k"), [(650, 130, 45), (65, 200, 33), (1, 1, 1)])
def test_gemm_of_grouped_blocks(target: str, m: int, n: int, k: int) -> None:
    a, b = to_bfloat16(RNG.standard_normal((m, k))), to_bfloat16(RNG.standard_normal((n, k)))
    c = np.zeros((m, n), np.uint16)
    kernel = lower(replace(kernels.gemm(warp_size=WARP[target], alignment=2), group=8), target)
    assert kernel.group == 8
    run(kernel, (-(-m // 64), -(-n // 64)), a=a, b=b, c=c, M=m, N=n, K=k)
    expected = from_bfloat16(a) @ from_bfloat16(b).T
    np.testing.assert_allclose(from_bfloat16(c), expected, rtol=2**-7, atol=1e-3)
