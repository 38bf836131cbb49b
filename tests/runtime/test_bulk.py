"""Calls of a kernel with tensor maps: the text for sm_90a, made for the host and launched there."""

import json
import subprocess
import sys
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from argus.backend.abi import entry
from argus.backend.emit import emit
from argus.backend.launch.signature import Signature, signature, signature_from_json, signature_to_json
from argus.diagnostic import LaunchError
from argus.frontend.options import Options
from argus.runtime.executable import TENSOR, Executable, Parameter, unaligned
from argus.runtime.jit_kernel import JitKernel
from argus.source import SourceFile
from tests.backend import hopper_kernels, host

GEMM = hopper_kernels.gemm(block=(64, 64), stages=2, n=64, warps=(4, 1))


@cache
def library() -> bytes:
    return host.compiled(emit(GEMM), entry(GEMM), GEMM.warp_size, False)


class OnTheHost:
    """`GEMM`, proved by nobody; its signature as the cache keeps it."""

    def __init__(self) -> None:
        data = json.loads(json.dumps(signature_to_json(signature(GEMM))))
        self.signature = signature_from_json(data, SourceFile("gemm.py", ""))

    def parameters(self) -> tuple[Parameter, ...]:
        return tuple(Parameter(p.name, TENSOR) for p in self.signature.params)

    def interface(self, options: Options) -> Signature:
        return unaligned(replace(self.signature, slots=(), maps=()))

    def executable(self, options: Options) -> Executable:
        return Executable(self.signature, "cpu", entry(GEMM), "", library(), None, (), {})


@pytest.fixture
def kernel(require_tool: Any) -> JitKernel:
    require_tool("g++", "clang++", "c++")
    return JitKernel("gemm", OnTheHost())


def operands(m: int, n: int, k: int, seed: int = 0) -> tuple[Any, Any, Any]:
    """Aligned to 16 bytes; `k` may be 0."""
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(seed)
    a, b = (torch.randn(rows, max(k, 8), generator=generator).bfloat16()[:, :k] for rows in (m, n))
    return a, b, torch.full((m, n), float("nan"), dtype=torch.bfloat16)


def check(kernel: JitKernel, a: Any, b: Any, c: Any) -> None:
    torch = pytest.importorskip("torch")
    kernel[-(-a.shape[0] // 64), -(-b.shape[0] // 64)](a, b, c)
    torch.testing.assert_close(c, (a.double() @ b.double().T).bfloat16(), rtol=0.01, atol=0.05)


def test_boxes_of_an_empty_tensor_are_outside(kernel: JitKernel) -> None:
    a, b, c = operands(0, 64, 64)
    kernel[1, 1](a, b, c)


@pytest.mark.parametrize("shape", [(64, 64, 64), (100, 72, 136), (8, 8, 8), (70, 80, 0), (0, 64, 64)])
def test_products_of_torch_tensors(kernel: JitKernel, shape: tuple[int, int, int]) -> None:
    check(kernel, *operands(*shape))


def test_addresses_change(kernel: JitKernel) -> None:
    sets = [operands(64, 64, 64, seed) for seed in range(3)]
    for i, j in ((0, 0), (0, 1), (2, 1), (0, 0), (1, 2)):
        check(kernel, sets[i][0], sets[j][1], sets[i][2].fill_(float("nan")))


def test_views_have_maps_of_their_own(kernel: JitKernel) -> None:
    wide = operands(64, 64, 128)[0]
    _, b, c = operands(64, 64, 64)
    for a in (wide[:, :64], wide[:, 64:], wide[:, 8:72], wide[:64, :64].contiguous()):
        check(kernel, a, b, c.fill_(float("nan")))


def test_numpy_arrays(kernel: JitKernel) -> None:
    a, b = (host.to_bfloat16(np.random.default_rng(i).standard_normal((64, 64))) for i in range(2))
    out = np.zeros((64, 64), np.uint16)
    kernel[1, 1](a, b, out)
    assert np.allclose(host.from_bfloat16(out), host.from_bfloat16(a) @ host.from_bfloat16(b).T, rtol=0.01, atol=0.05)
    with pytest.raises(LaunchError, match="tensor-map-refused"):
        kernel[1, 1](a[::-1], b, out)


def test_operands_that_are_less_aligned_are_refused_by_this_build(kernel: JitKernel) -> None:
    a, b, c = operands(64, 64, 72)
    with pytest.raises(LaunchError, match="misaligned-argument"):
        kernel[1, 1](a[:, 1:65], b[:, :64], c)


def test_a_launcher_loads_no_ir() -> None:
    text = (
        "import sys, argus.backend.cpu.driver, argus.backend.cuda.function, argus.backend.hip.function\n"
        "import argus.runtime\n"
        "print([m for m in ('lark', 'z3', 'islpy', 'argus.ir.nodes', 'argus.backend.abi') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", text], check=True, capture_output=True, text=True).stdout == "[]\n"
