"""Two executions of the same explicit kernel: its emitted text on the host, and the simulator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from argus.backend.abi import arguments, entry
from argus.backend.cpu.run import run_cpu
from argus.backend.cpu.toolchain import find_compiler
from argus.backend.emit import emit
from argus.backend.launch.evaluate import evaluate
from argus.ir.cluster import unite
from argus.ir.expr import Param
from argus.ir.nodes import Kernel
from argus.ir.types import DType, bfloat16, float8_e4m3fn, float8_e4m3fnuz, float32, int8, tfloat32
from argus.passes import lower
from argus.simulate import simulate
from argus.simulate.numeric import from_bits, round_to, to_bits
from tests.backend.host import compiled
from tests.passes import kernels

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="needs a C++ compiler")
Array = NDArray[Any]
TARGETS = [("sm_80", 32), ("gfx942", 64)]


def execute(kernel: Kernel, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The tensors after a run of the emitted text; values in, values out, as the simulator takes them. The host runs a
    cluster as one block."""
    kernel = unite(kernel)
    known: dict[str, Any] = {}
    stored = {t.name: np.ascontiguousarray(to_bits(arrays[t.name], t.dtype)) for t in kernel.tensors}
    for t in kernel.tensors:
        array = stored[t.name]
        known[t.name] = array
        for symbols, numbers in ((t.shape, array.shape), (t.strides, array.strides)):
            unit = 1 if symbols is t.shape else array.itemsize
            known.update({s.name: n // unit for s, n in zip(symbols, numbers, strict=True) if isinstance(s, Param)})
    sizes = {name: value for name, value in known.items() if isinstance(value, int)}
    assert kernel.grid is not None
    grid = tuple(int(evaluate(g, sizes)) for g in kernel.grid)
    binary = compiled(emit(kernel), entry(kernel), kernel.warp_size, False)
    run_cpu(binary, kernel, [known[a.name] for a in arguments(kernel)], grid, 1)
    return {t.name: from_bits(stored[t.name], t.dtype) for t in kernel.tensors}


def agree(kernel: Kernel, tolerance: float = 0.0, **arrays: Array) -> None:
    """Both executions of `kernel` end with the same tensors."""
    outcome = simulate(kernel, {name: array.copy() for name, array in arrays.items()})
    assert not outcome.violations
    for name, array in execute(kernel, arrays).items():
        np.testing.assert_allclose(array, outcome.tensors[name], rtol=tolerance, atol=tolerance)


def values(dtype: DType, *shape: int) -> Array:
    generator = np.random.default_rng(sum(shape))
    if dtype.is_int:
        return generator.integers(-100, 100, shape).astype(np.int8)
    return np.asarray(round_to(generator.standard_normal(shape).astype(np.float32), dtype))


@pytest.mark.parametrize(("target", "warp_size"), TARGETS)
def test_transpose(target: str, warp_size: int) -> None:
    kernel = lower(kernels.transpose(dtype=bfloat16, warp_size=warp_size, alignment=2), target)
    agree(kernel, x=values(bfloat16, 33, 45), out=np.zeros((45, 33), np.float32))


@pytest.mark.parametrize(("target", "warp_size"), TARGETS)
def test_column_sums(target: str, warp_size: int) -> None:
    kernel = lower(kernels.column_sums(warp_size=warp_size), target)
    agree(kernel, 1e-5, x=values(float32, 77, 100), total=np.zeros(100, np.float32))


@pytest.mark.parametrize(("target", "warp_size"), TARGETS)
def test_gather(target: str, warp_size: int) -> None:
    rows = np.random.default_rng(0).integers(0, 12, 36).astype(np.int32)
    kernel = lower(kernels.gather(warp_size=warp_size), target)
    agree(kernel, rows=rows, table=values(float32, 12, 52), out=np.zeros((36, 52), np.float32))


@pytest.mark.parametrize(("target", "warp_size"), TARGETS)
def test_attention(target: str, warp_size: int) -> None:
    kernel = lower(kernels.attention(2 * warp_size, warp_size=warp_size), target)
    q, k, v = values(bfloat16, 70, 32), values(bfloat16, 75, 32), values(bfloat16, 75, 32)
    agree(kernel, 2e-2, q=q, k=k, v=v, out=np.zeros((70, 32), np.float32))


@pytest.mark.parametrize(
    ("target", "warp_size", "dtype", "tile"),
    [
        ("sm_80", 32, tfloat32, (64, 64, 16)),
        ("sm_80", 32, int8, (64, 32, 64)),
        ("sm_90a", 32, float8_e4m3fn, (64, 64, 64)),
        ("gfx942", 64, int8, (64, 64, 32)),
        ("gfx942", 64, float8_e4m3fnuz, (64, 64, 32)),
        ("gfx942", 64, float32, (64, 64, 16)),
        ("gfx942", 64, tfloat32, (64, 64, 16)),
    ],
)
def test_gemm_of_other_types(target: str, warp_size: int, dtype: DType, tile: tuple[int, int, int]) -> None:
    kernel = lower(kernels.gemm(tile, dtype=dtype, warp_size=warp_size), target)
    a, b = values(dtype, 64, 80), values(dtype, 48, 80)
    agree(kernel, 1e-2, a=a, b=b, c=np.zeros((64, 48), np.float32))
