"""What lowered kernels compute, executed: right values, and no rule broken under an adversarial order of warps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from argus.ir.nodes import Kernel
from argus.ir.types import DType, bfloat16, float8_e4m3fn, float8_e4m3fnuz, float32, int8, tfloat32
from argus.passes import lower
from argus.simulate import simulate
from argus.simulate.numeric import round_to
from tests.passes import kernels

Array = NDArray[Any]

TARGETS = [("sm_80", 32), ("gfx942", 64)]


def run(kernel: Kernel, target: str, **arguments: Array) -> dict[str, Array]:
    outcome = simulate(lower(kernel, target), arguments, tags=True, schedule="reverse")
    assert not outcome.violations, [str(v) for v in outcome.violations]
    return outcome.tensors


def values(dtype: DType, *shape: int) -> Array:
    generator = np.random.default_rng(sum(shape))
    if dtype.is_int:
        return generator.integers(-100, 100, shape).astype(np.int8)
    return np.asarray(round_to(generator.standard_normal(shape).astype(np.float32), dtype))


@pytest.mark.parametrize(("target", "warp_size"), TARGETS)
def test_add(target: str, warp_size: int) -> None:
    x, y = values(bfloat16, 1500), values(bfloat16, 1500)
    result = run(kernels.add(warp_size=warp_size), target, x=x, y=y, out=np.zeros(1500, np.float32))
    assert np.array_equal(result["out"], x + y)


@pytest.mark.parametrize(("target", "warp_size"), TARGETS)
@pytest.mark.parametrize(("shape", "tile"), [((3, 1000), (1, 1024)), ((17, 100), (16, 128)), ((9, 24), (8, 32))])
def test_softmax(shape: tuple[int, int], tile: tuple[int, int], target: str, warp_size: int) -> None:
    x = values(bfloat16, *shape)
    result = run(kernels.softmax(*tile, warp_size=warp_size), target, x=x, out=np.zeros_like(x))
    e = np.exp(x - x.max(axis=1, keepdims=True))
    assert np.allclose(result["out"], e / e.sum(axis=1, keepdims=True), rtol=1e-5, atol=1e-7)


def check_gemm(
    target: str, sizes: tuple[int, int, int], dtype: DType = bfloat16, by_columns: bool = False, **options: Any
) -> None:
    m, n, k = sizes
    a, b = values(dtype, m, k), values(dtype, *((k, n) if by_columns else (n, k)))
    kernel = kernels.gemm(dtype=dtype, b_by_columns=by_columns, **options)
    result = run(kernel, target, a=a, b=b, c=np.zeros((m, n), np.float32))["c"]
    expected = a.astype(np.float64) @ (b if by_columns else b.T).astype(np.float64)
    assert np.allclose(result, round_to(expected.astype(np.float32), bfloat16), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(("target", "warp_size"), TARGETS)
@pytest.mark.parametrize(("stages", "k"), [(1, 40), (2, 64), (4, 0), (4, 8), (4, 72), (4, 136)])
def test_gemm_for_trip_counts_around_the_stages(k: int, stages: int, target: str, warp_size: int) -> None:
    check_gemm(target, (72, 40, k), stages=stages, tile=(64, 64, 16) if k > 100 else (64, 64, 32), warp_size=warp_size)


@pytest.mark.parametrize(("target", "warp_size"), TARGETS)
@pytest.mark.parametrize("by_columns", [False, True])
def test_gemm_of_odd_sizes(by_columns: bool, target: str, warp_size: int) -> None:
    check_gemm(target, (71, 35, 45), alignment=2, by_columns=by_columns, warp_size=warp_size)


@pytest.mark.parametrize(("target", "warp_size"), TARGETS)
def test_gemm_of_b_by_columns(target: str, warp_size: int) -> None:
    check_gemm(target, (72, 48, 72), by_columns=True, warp_size=warp_size)


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
    check_gemm(target, (64, 48, 80), dtype, tile=tile, warp_size=warp_size)


@pytest.mark.parametrize(("target", "warp_size"), TARGETS)
@pytest.mark.parametrize("shape", [(40, 72), (33, 5)])
def test_transpose(shape: tuple[int, int], target: str, warp_size: int) -> None:
    kernel = kernels.transpose(dtype=bfloat16, warp_size=warp_size, alignment=2)
    x = values(bfloat16, *shape)
    assert np.array_equal(run(kernel, target, x=x, out=np.zeros(shape[::-1], np.float32))["out"], x.T)


@pytest.mark.parametrize(("target", "warp_size"), TARGETS)
def test_column_sums(target: str, warp_size: int) -> None:
    x = values(bfloat16, 77, 100)
    result = run(kernels.column_sums(warp_size=warp_size), target, x=x, total=np.zeros(100, np.float32))
    assert np.allclose(result["total"], x.sum(axis=0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("target", "warp_size"), TARGETS)
def test_gather(target: str, warp_size: int) -> None:
    table = values(bfloat16, 12, 52)
    rows = np.random.default_rng(0).integers(0, 12, 36).astype(np.int32)
    out = np.zeros((36, 52), np.float32)
    assert np.array_equal(
        run(kernels.gather(warp_size=warp_size), target, rows=rows, table=table, out=out)["out"], table[rows]
    )


@pytest.mark.parametrize(("target", "warp_size"), TARGETS)
@pytest.mark.parametrize(("m", "n"), [(70, 75), (64, 32), (3, 1)])
def test_attention(m: int, n: int, target: str, warp_size: int) -> None:
    rows = 2 * warp_size
    kernel = kernels.attention(rows, warp_size=warp_size)
    q, k, v = values(bfloat16, m, 32), values(bfloat16, n, 32), values(bfloat16, n, 32)
    result = run(kernel, target, q=q, k=k, v=v, out=np.zeros((m, 32), np.float32))["out"]
    scores = np.exp(q @ k.T - (q @ k.T).max(axis=1, keepdims=True))
    assert np.allclose(result, scores / scores.sum(axis=1, keepdims=True) @ v, rtol=2e-2, atol=2e-2)
