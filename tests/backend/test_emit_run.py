"""Emitted text, run on the host, against NumPy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from argus.backend.cpu.toolchain import find_compiler
from argus.compile import elaborate, lower
from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.ir.expr import Const, Coord, Param, ProgramId
from argus.ir.instruction import MMA
from argus.ir.nodes import Access, Accumulate
from argus.ir.types import DTYPES, int32
from argus.layout import parse_fragment
from argus.source import SourceFile
from argus.verify import verify
from tests.backend import emit_kernels as kernels
from tests.backend.host import from_bfloat16, run, to_bfloat16

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="needs a C++ compiler")
RNG = np.random.default_rng(0)


@pytest.mark.parametrize("size", [0, 4, 512, 1000])
def test_vector_add(size: int) -> None:
    x, y = (RNG.standard_normal(size).astype(np.float32) for _ in range(2))
    z = np.full(size, np.nan, np.float32)
    run(kernels.vector_add(), (-(-size // 512),), x=x, y=y, z=z, N=size)
    np.testing.assert_array_equal(z, x + y)


def small_integers(dtype: str, shape: tuple[int, int]) -> tuple[NDArray[np.generic], NDArray[np.float64]]:
    """Random small integers as bits of `dtype`, and as numbers; every sum of products of them is exact."""
    numbers = RNG.integers(-4, 5, shape)
    floats = numbers.astype(np.float32)
    match dtype:
        case "bfloat16":
            return to_bfloat16(floats), floats.astype(np.float64)
        case "float16":
            return floats.astype(np.float16), floats.astype(np.float64)
        case "float32" | "tfloat32":
            return floats, floats.astype(np.float64)
        case "int8":
            return numbers.astype(np.int8), numbers.astype(np.float64)
    mantissa, bias = {"e4m3fn": (3, 7), "e5m2": (2, 15), "e4m3fnuz": (3, 8), "e5m2fnuz": (2, 16)}[dtype[7:]]
    size = np.abs(numbers)
    exponent = np.floor(np.log2(np.maximum(size, 1))).astype(np.int64)
    fraction = (size * 2**mantissa >> exponent) - 2**mantissa
    code = np.where(size == 0, 0, (exponent + bias << mantissa) + fraction) | np.where(numbers < 0, 128, 0)
    return code.astype(np.uint8), numbers.astype(np.float64)


@pytest.mark.parametrize(("name", "dtype"), [(r.name, d.name) for r in MMA.values() for d in r.operands])
def test_every_matrix_instruction(name: str, dtype: str) -> None:
    m, n, k = MMA[name].shape
    (a, x), (b, y) = small_integers(dtype, (m, k)), small_integers(dtype, (n, k))
    c = np.zeros((m, n), np.float32 if MMA[name].accumulator.is_float else np.int32)
    run(kernels.one_mma(name, DTYPES[dtype]), (1,), a=a, b=b, c=c, M=m, N=n, K=k)
    np.testing.assert_array_equal(c, x @ y.T)


@pytest.mark.parametrize("sizes", [(64, 64, 64), (136, 72, 40), (1, 8, 8)])
def test_gemm(sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    a, b = to_bfloat16(RNG.standard_normal((m, k))), to_bfloat16(RNG.standard_normal((n, k)))
    c = np.zeros((m, n), np.uint16)
    run(kernels.gemm(), (-(-m // 64), -(-n // 64)), a=a, b=b, c=c, M=m, N=n, K=k)
    expected = from_bfloat16(a) @ from_bfloat16(b).T
    np.testing.assert_allclose(from_bfloat16(c), expected, rtol=2**-7, atol=1e-3)


@pytest.mark.parametrize(("rows", "columns"), [(13, 7), (8, 3), (1, 5), (9, 1)])
@pytest.mark.parametrize("group", [1, 4, 20])
def test_every_program_runs_once(group: int, rows: int, columns: int) -> None:
    """Each block counts itself at its program ids."""
    layout = parse_fragment("[32 | t 32@0 | v]")
    at = Access("out", (ProgramId(0), ProgramId(1), Coord(0)))
    count = Accumulate(at, Const(1), "add", (32,), None, layout, "thread", "red.global")
    kernel = kernels.kernel("programs", (kernels.tensor("out", int32, "R", "C", "L"),), (count,), sizes=("R", "C", "L"))
    out = np.zeros((rows, columns, 32), np.int32)
    kernel = replace(kernel, grid=(Param("R"), Param("C")), group=group)
    run(kernel, (rows, columns), out=out, R=rows, C=columns, L=32)
    np.testing.assert_array_equal(out, 1)


def test_a_missing_wait_shows() -> None:
    """Copies come as late as the waits allow: without its wait the kernel reads what was there before."""
    kernel = kernels.gemm(wait=False)
    a, b = to_bfloat16(np.ones((64, 64))), to_bfloat16(np.ones((64, 64)))
    late, early = np.zeros((64, 64), np.uint16), np.zeros((64, 64), np.uint16)
    run(kernel, (1, 1), a=a, b=b, c=late, M=64, N=64, K=64)
    run(kernel, (1, 1), eager=True, a=a, b=b, c=early, M=64, N=64, K=64)
    assert (from_bfloat16(early) == 64).all()
    assert not (from_bfloat16(late) == 64).any()


def test_a_wider_block_k_with_a_wider_swizzle() -> None:
    a, b = to_bfloat16(RNG.standard_normal((64, 192))), to_bfloat16(RNG.standard_normal((96, 192)))
    c = np.zeros((64, 96), np.uint16)
    kernel = replace(kernels.gemm((1, 2), (32, 32, 64), 3), name="gemm64")
    run(kernel, (2, 3), a=a, b=b, c=c, M=64, N=96, K=192)
    expected = from_bfloat16(a) @ from_bfloat16(b).T
    np.testing.assert_allclose(from_bfloat16(c), expected, rtol=2**-7, atol=1e-3)


WINDOW = """
import argus
import argus.language as al


@argus.kernel(num_warps=1)
def window(x: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "128"], i: al.Tensor[al.int32, "128"],
           first: al.INTEGER, last: al.int32):
    al.requires((first >= 0) & (first <= FIRST) & (last >= 0) & (last <= LAST))
    al.requires(al.in_range(i, 2147483000, 2147483647))
    al.grid(1)
    o = al.arange(128)
    j = al.load(i[o])
    at = PLACE
    al.store(y[o], al.load(x[at], mask=(at >= 0) & (at < N.to(al.INTEGER))))
"""
"""A tile of a window of a tensor that would be far larger."""


@pytest.mark.parametrize(
    ("integer", "place", "first", "last"),
    [
        ("int32", "(o - 64) * 33554432", 0, 0),
        ("int32", "(o - 64) * 16777216 + (o - 64) * 8388608", 0, 0),
        ("int32", "(last - 64) * 33554432 + o", 0, 64),
        ("int32", "(first - j) + last + o", 2**30, 2**30),
        ("int64", "o.to(al.int64) * 33554432 - first", 2**31, 0),
        ("int64", "last.to(al.int64) * 33554432 - first + o.to(al.int64)", 2**31, 64),
    ],
)
def test_an_index_fits_whose_terms_alone_do_not(integer: str, place: str, first: int, last: int) -> None:
    text = WINDOW.replace("INTEGER", integer).replace("PLACE", place).replace("FIRST", str(first))
    file = SourceFile("window.py", text.replace("LAST", str(last)))
    kernel = lower(elaborate(file, "window", Options()), "cpu")
    assert verify(kernel, 120.0).verdict is Verdict.PROVED
    x, y = np.arange(1, 129, dtype=np.float32), np.zeros(128, np.float32)
    indices = np.full(128, 2**31 - 2, np.int32)
    run(kernel, (1,), x=x, y=y, i=indices, first=first, last=last, N=128)
    numbers = {"o": np.arange(128), "j": indices.astype(np.int64), "first": first, "last": last}
    at = np.broadcast_to(eval(place.replace(".to(al.int64)", ""), {"__builtins__": {}}, numbers), 128)
    inside = (at >= 0) & (at < 128)
    assert inside.any()
    np.testing.assert_array_equal(y, np.where(inside, x[np.clip(at, 0, 127)], 0))
