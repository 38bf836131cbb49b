"""Shuffles, reductions, atomics, gathers, branches and arithmetic: emitted, run on the host, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from argus.backend.cpu.toolchain import find_compiler
from argus.backend.emit import emit
from argus.ir.expr import Const, Coord, Elem, Expr, Op, coords, op
from argus.ir.types import DType, bfloat16, boolean, float32, int8, int32, int64
from argus.layout import FragmentLayout, Layout, Swizzle, SwizzledLayout, parse, parse_fragment
from tests.backend import emit_kernels as kernels
from tests.backend.host import from_bfloat16, run, to_bfloat16

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="needs a C++ compiler")
RNG = np.random.default_rng(2)
LINE = parse_fragment("[128 | t 32@0 2@0*64 | v 2@0*32]")
PAIRS = parse_fragment("[128 | t 32@0*2 2@0*64 | v 2@0]")


def up(distance: int) -> Expr:
    inside = op("ge", op("mod", Coord(0), Const(64)), Const(distance))
    return Op("where", (inside, op("sub", Coord(0), Const(distance)), Coord(0)), int32)


@pytest.mark.parametrize(
    ("layout", "index", "form"),
    [
        (LINE, op("xor", Coord(0), Const(5)), "shuffle_xor(xf[v0], 5)"),
        (LINE, op("xor", Coord(0), Const(33)), "shuffle_xor(xf[-1 * v0 + 1], 1)"),
        (PAIRS, op("xor", Coord(0), Const(8)), "shuffle_xor(xf[v0], 4)"),
        (PAIRS, up(3), "moved"),
        (LINE, up(4), "moved"),
    ],
)
def test_shuffles(layout: FragmentLayout, index: Expr, form: str) -> None:
    kernel = kernels.shuffles(layout, layout, index)
    assert form in emit(kernel)
    x, out = RNG.integers(0, 1000, 128).astype(np.int32), np.zeros(128, np.int32)
    run(kernel, (1,), x=x, out=out, N=128)
    i = np.arange(128)
    match index:
        case Op(op="xor", args=(_, Const(value=mask))):
            source = i ^ int(mask)
        case _:
            distance = 3 if layout is PAIRS else 4
            source = np.where(i % 64 >= distance, i - distance, i)
    np.testing.assert_array_equal(out, x[source])


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", ["add", "maximum"])
def test_reductions_across_a_warp(name: str, masked: bool) -> None:
    # Columns over lane bits 0, 2 and values; bit 1 replicates; rows over bits 3, 4, the warp and values.
    layout = parse_fragment("[16x16 | t 2@1*4 2@_ 2@1*8 4@0*2 2@0*8 | v 4@1 2@0]")
    x, out = (RNG.standard_normal(s).astype(np.float32) for s in ((16, 16), (16,)))
    before, columns = out.copy(), 11 if masked else 16
    run(kernels.row_sums(layout, name, masked), (1,), x=x, out=out, M=16, N=16, L=columns)
    total = x[:, :columns].sum(1) + before if name == "add" else np.maximum(x[:, :columns].max(1), before)
    np.testing.assert_allclose(out, total, rtol=1e-5, atol=1e-6)


def test_atomics_count_each_element_once() -> None:
    x = RNG.integers(-3, 10, 150).astype(np.int32)
    count, top = np.zeros(10, np.int32), np.full(1, -99, np.int32)
    run(kernels.histogram(), (3,), x=x, count=count, top=top, N=150, C=10, One=1)
    np.testing.assert_array_equal(count, np.bincount(x[x >= 0], minlength=10))
    assert top[0] == x.max()


@pytest.mark.parametrize("text", ["((8,4),(4,4)):((20,160),(1,4))", "(32,16):(16,1)", "(32,(4,4)):(4,(1,128))"])
@pytest.mark.parametrize("swizzled", [False, True])
def test_shared_tiles_of_any_layout_and_registers_in_any_order(text: str, swizzled: bool) -> None:
    plain = parse(text)
    assert isinstance(plain, Layout)
    kernel = kernels.rotated(SwizzledLayout(Swizzle(2, 2, 3), 32, plain) if swizzled else plain)
    x, out = RNG.integers(-99, 99, (32, 16)).astype(np.int32), np.zeros((32, 16), np.int32)
    run(kernel, (1,), x=x, out=out, M=32, N=16, S=3)
    j = np.arange(16)
    np.testing.assert_array_equal(out[:, j ^ 1], sum(x[:, (j + s) % 16] for s in range(3)))


def test_gather_branches_and_reserved_names() -> None:
    m, n, k = 19, 21, 7
    x, rows = RNG.standard_normal((k, n)).astype(np.float32), RNG.integers(0, k, m).astype(np.int32)
    out = np.zeros((m, n), np.float32)
    run(kernels.gather_loop(), (3,), x=x, rows=rows, out=out, K=k, N=n, M=m)
    sign = np.where(np.arange(m) // 8 % 2 == 1, -1, 1)[:, None]
    np.testing.assert_array_equal(out, 2 * x[rows] * sign)


def x(name: str, dtype: DType) -> Elem:
    return Elem(f"{name}f", coords(1), dtype)


def test_integer_arithmetic_is_pythons_modulo_two_to_the_bits() -> None:
    a, b, narrow = x("a", int32), x("b", int32), x("n", int8)
    outputs: dict[str, Expr] = {
        "sum": Op("add", (Op("mul", (a, a), int32), b), int32),
        "quotient": Op("floordiv", (a, b), int32),
        "rest": Op("mod", (a, b), int32),
        "seven": Op("floordiv", (a, Const(-7)), int32),
        "bits": Op("xor", (Op("and", (a, b), int32), Op("not", (Op("or", (a, Const(3)), int32),), int32)), int32),
        "moved": Op("shr", (Op("sub", (Op("neg", (a,), int32), b), int32), Const(3)), int32),
        "small": Op("shr", (Op("add", (narrow, narrow), int8), Const(1, int8)), int8),
        "wide": Op("add", (Op("cast", (a,), int64), Op("mul", (Op("cast", (b,), int64),) * 2, int64)), int64),
        "where": Op("where", (Op("lt", (a, b), boolean), a, Op("maximum", (b, Coord(0)), int32)), int32),
        "test": Op("cast", (Op("and", (Op("lt", (a, b), boolean), Op("not", (Op("eq", (b, Const(3)), boolean),),
                                                                      boolean)), boolean),), int32),
    }  # fmt: skip
    kernel = kernels.elementwise(outputs, {"a": int32, "b": int32, "n": int8})
    i32 = np.iinfo(np.int32)
    av = RNG.integers(i32.min, i32.max, 64, dtype=np.int64).astype(np.int32)
    bv = RNG.integers(1, 50, 64).astype(np.int32) * RNG.choice(np.array([-1, 1], np.int32), 64)
    nv = RNG.integers(-128, 128, 64).astype(np.int8)
    results: dict[str, NDArray[np.generic]] = {
        n: np.zeros(64, {"small": np.int8, "wide": np.int64}.get(n, np.int32)) for n in outputs
    }
    run(kernel, (1,), a=av, b=bv, n=nv, N=64, **results)
    with np.errstate(over="ignore"):
        expected = {
            "sum": av * av + bv, "quotient": av // bv, "rest": av % bv, "seven": av // np.int32(-7),
            "bits": (av & bv) ^ ~(av | 3), "moved": (-av - bv) >> 3, "small": (nv + nv) >> np.int8(1),
            "wide": av.astype(np.int64) + bv.astype(np.int64) ** 2,
            "where": np.where(av < bv, av, np.maximum(bv, np.arange(64))),
            "test": ((av < bv) & (bv != 3)).astype(np.int32),
        }  # fmt: skip
    for name, result in results.items():
        np.testing.assert_array_equal(result, expected[name], name)


def test_float_arithmetic() -> None:
    a, b = x("a", float32), x("b", bfloat16)
    inf, nan = Const(float("-inf"), float32), Const(float("nan"), float32)
    outputs: dict[str, Expr] = {
        "poly": Op("sub", (a, Op("sub", (Op("mul", (a, a), float32), Const(0.1, float32)), float32)), float32),
        "chain": Op("truediv", (Op("exp2", (a,), float32), Op("add", (Const(1, float32), Op("sigmoid", (a,), float32)),
                                                              float32)), float32),
        "low": Op("add", (b, Op("mul", (b, Const(1.5, bfloat16)), bfloat16)), bfloat16),
        "top": Op("maximum", (a, inf), float32),
        "poison": Op("minimum", (nan, a), float32),
        "size": Op("abs", (Op("neg", (b,), bfloat16),), bfloat16),
        "whole": Op("cast", (Op("floor", (Op("mul", (a, Const(-3.0, float32)), float32),), float32),), int32),
    }  # fmt: skip
    kernel = kernels.elementwise(outputs, {"a": float32, "b": bfloat16})
    av, bv = RNG.standard_normal(64).astype(np.float32), to_bfloat16(RNG.standard_normal(64))
    kinds = {"low": np.uint16, "size": np.uint16, "whole": np.int32}
    results = {n: np.zeros(64, kinds.get(n, np.float32)) for n in outputs}
    run(kernel, (1,), a=av, b=bv, N=64, **results)
    bf = from_bfloat16(bv)
    np.testing.assert_array_equal(results["poly"], av - (av * av - np.float32(0.1)))
    chain = np.exp2(av) / (1 + 1 / (1 + np.exp(-av)))
    np.testing.assert_allclose(results["chain"], chain, rtol=1e-6)
    np.testing.assert_array_equal(results["low"], to_bfloat16(bf + from_bfloat16(to_bfloat16(bf * 1.5))))
    np.testing.assert_array_equal(results["top"], av)
    assert np.isnan(results["poison"]).all()
    np.testing.assert_array_equal(from_bfloat16(results["size"]), np.abs(bf))
    np.testing.assert_array_equal(results["whole"], np.floor(av * np.float32(-3)).astype(np.int32))
