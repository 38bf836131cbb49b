"""What kernels of roles compute, run on the host through the GPU's text, at sizes that nothing divides."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from argus.diagnostic import Verdict
from argus.frontend import Options, check, parse
from argus.ir.nodes import Kernel, Mma, Roles
from argus.ir.visit import walk
from argus.passes import lower
from argus.source import SourceFile
from argus.verify import verify
from tests.backend.host import from_bfloat16, run, to_bfloat16

Bits = NDArray[np.uint16]

EXAMPLE = (Path(__file__).parents[2] / "examples" / "gemm_hopper.py").read_text(encoding="utf-8")

GATED = """
import argus
import argus.language as al


@argus.kernel(num_warps=4)
def gated(
    x: al.Tensor[al.bfloat16, "M K"],
    w: al.Tensor[al.bfloat16, "N K"],
    v: al.Tensor[al.bfloat16, "N K"],
    out: al.Tensor[al.bfloat16, "M N"],
):
    M, K = x.shape
    N = w.shape[0]
    pid_m, pid_n = al.grid(al.cdiv(M, 64), al.cdiv(N, 64))
    m0, n0 = pid_m * 64, pid_n * 64
    left = al.zeros((64, 64), al.float32)
    right = al.zeros((64, 64), al.float32)
    for k0 in al.pipelined(0, K, 64, stages=2, producer_warps=4):
        xt = al.stage(x[m0 : m0 + 64, k0 : k0 + 64], boundary_check=(0, 1))
        wt = al.stage(w[n0 : n0 + 64, k0 : k0 + 64], boundary_check=(0, 1))
        vt = al.stage(v[n0 : n0 + 64, k0 : k0 + 64], boundary_check=(0, 1))
        left = al.mma(xt, wt, left)
        right = al.mma(xt, vt, right)
    y = left * al.sigmoid(left) * right
    al.store(out[m0 : m0 + 64, n0 : n0 + 64], y.to(al.bfloat16), boundary_check=(0, 1))
"""


@cache
def lowered(text: str, name: str, num_warps: int, **constexprs: int) -> Kernel:
    options = Options(target="sm_90a", num_warps=num_warps, constexprs=constexprs)
    kernel = lower(check(parse(SourceFile(f"{name}.py", text)), name, options), "sm_90a")
    assert isinstance(kernel.body[-1], Roles)
    return kernel


def gemm(num_warps: int, block_m: int, block_n: int, stages: int) -> Kernel:
    blocks = {"BLOCK_M": block_m, "BLOCK_N": block_n, "STAGES": stages}
    return lowered(EXAMPLE, "gemm_hopper", num_warps, **blocks)


def bits(seed: int, *shape: int) -> Bits:
    return to_bfloat16(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


CONFIGURATIONS = [(4, 64, 64, 2), (8, 128, 256, 3), (8, 256, 24, 4)]
SIZES = [(64, 64, 0), (64, 64, 8), (70, 80, 128), (130, 40, 200), (33, 264, 520), (1, 8, 72)]


@pytest.mark.product
@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_gemm(configuration: tuple[int, int, int, int], sizes: tuple[int, int, int], eager: bool) -> None:
    m, n, k = sizes
    _, block_m, block_n, _ = configuration
    a, b, c = bits(1, m, k), bits(2, n, k), np.full((m, n), 0x7FC0, np.uint16)
    named: dict[str, Any] = {"a": a, "b": b, "c": c, "M": m, "N": n, "K": k}
    run(gemm(*configuration), (-(-m // block_m), -(-n // block_n)), eager, **named)
    expected = from_bfloat16(a) @ from_bfloat16(b).T
    np.testing.assert_allclose(from_bfloat16(c), expected, rtol=2**-7, atol=2e-3)


@pytest.mark.parametrize("k", [0, 64, 200])
def test_two_products_share_a_tile(k: int) -> None:
    kernel = lowered(GATED, "gated", 4)
    assert sum(isinstance(s, Mma) for s in walk(kernel.body)) == 2
    m, n = 70, 40
    x, w, v, out = bits(1, m, k), bits(2, n, k), bits(3, n, k), np.full((m, n), 0x7FC0, np.uint16)
    run(kernel, (2, 1), x=x, w=w, v=v, out=out, M=m, N=n, K=k)
    left, right = (from_bfloat16(x) @ from_bfloat16(t).T for t in (w, v))
    np.testing.assert_allclose(from_bfloat16(out), left / (1 + np.exp(-left)) * right, rtol=2**-6, atol=2e-2)


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_gemm_is_proved(configuration: tuple[int, int, int, int]) -> None:
    report = verify(gemm(*configuration))
    assert report.verdict is Verdict.PROVED, report.diagnostics


def test_two_products_are_proved() -> None:
    report = verify(lowered(GATED, "gated", 4))
    assert report.verdict is Verdict.PROVED, report.diagnostics
