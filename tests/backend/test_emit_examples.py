"""The examples for every target, their text run unmodified on the host at awkward sizes, against NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from argus.backend.abi import arguments, entry
from argus.backend.cpu.run import run_cpu
from argus.backend.cpu.toolchain import find_compiler
from argus.backend.emit import emit
from argus.frontend import Options, check, parse
from argus.ir.cluster import unite
from argus.ir.nodes import Kernel
from argus.passes import lower
from argus.source import SourceFile
from tests.backend.host import compiled, from_bfloat16, to_bfloat16
from tests.conftest import example_runs
from tests.random_numbers import philox

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="needs a C++ compiler")
EXAMPLES = Path(__file__).parents[2] / "examples"
TARGETS = ("cpu", "sm_80", "sm_90a", "gfx942")
Arrays = dict[str, NDArray[np.generic]]


@cache
def kernel(name: str, target: str, constants: tuple[tuple[str, object], ...] = ()) -> Kernel:
    """The explicit IR of an example whose file, kernel and name are one; 8-byte alignment is all it may assume."""
    path = EXAMPLES / f"{name}.py"
    source = SourceFile(str(path), path.read_text(encoding="utf-8"))
    options = Options(target=target, constexprs=dict(constants), default_alignment=8)
    return lower(check(parse(source), name, options), target)


def run(name: str, target: str, grid: tuple[int, ...], values: Mapping[str, NDArray[np.generic] | float]) -> None:
    """Values by name; sizes and strides are read off the arrays where they are not given."""
    explicit = unite(kernel(name, target))
    known: dict[str, NDArray[np.generic] | float] = dict(values)
    for t in explicit.tensors:
        array = values[t.name]
        assert isinstance(array, np.ndarray)
        for symbol, extent in zip(t.shape, array.shape, strict=True):
            known.setdefault(getattr(symbol, "name", ""), extent)
        for symbol, stride in zip(t.strides, array.strides, strict=True):
            known.setdefault(getattr(symbol, "name", ""), stride // array.itemsize)
    binary = compiled(emit(explicit), entry(explicit), explicit.warp_size, False)
    run_cpu(binary, explicit, [known[a.name] for a in arguments(explicit)], grid, 2)


def normal(seed: int, *shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def vector_add(target: str) -> None:
    x, y, out = normal(0, 2052), normal(1, 2052), np.full(2052, np.nan, np.float32)
    run("vector_add", target, (3,), {"x": x, "y": y, "out": out})
    np.testing.assert_array_equal(out, x + y)


def softmax(target: str) -> None:
    x, out = normal(2, 5, 998), np.full((5, 998), np.nan, np.float32)
    run("softmax", target, (5,), {"x": x, "out": out})
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(out, e / e.sum(1, keepdims=True), rtol=1e-5)


def cluster_softmax(target: str) -> None:
    x, out = normal(17, 3, 7002), np.full((3, 7002), np.nan, np.float32)
    run("cluster_softmax", target, (3,), {"x": x, "out": out})
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(out, e / e.sum(1, keepdims=True), rtol=1e-5)


def rmsnorm(target: str) -> None:
    x, weight, out = to_bfloat16(normal(3, 3, 900)), to_bfloat16(normal(4, 900)), np.zeros((3, 900), np.uint16)
    run("rmsnorm", target, (3,), {"x": x, "weight": weight, "out": out, "eps": 1e-5})
    xf, wf = from_bfloat16(x), from_bfloat16(weight)
    expected = xf / np.sqrt((xf**2).mean(1, keepdims=True) + 1e-5) * wf
    np.testing.assert_allclose(from_bfloat16(out), expected, rtol=2**-7, atol=1e-6)


def transpose(target: str) -> None:
    x, out = normal(5, 70, 38), np.full((38, 70), np.nan, np.float32)
    run("transpose", target, (3, 2), {"x": x, "out": out})
    np.testing.assert_array_equal(out, x.T)


def embedding(target: str) -> None:
    table = normal(6, 11, 300).astype(np.float16)
    tokens = np.random.default_rng(7).integers(0, 11, 37).astype(np.int32)
    out = np.zeros((37, 300), np.float16)
    run("embedding", target, (3, 3), {"tokens": tokens, "table": table, "out": out})
    np.testing.assert_array_equal(out, table[tokens])


def product(name: str, block: tuple[int, int], target: str) -> None:
    m, n, k = 140, 76, 100
    a, b, c = to_bfloat16(normal(8, m, k)), to_bfloat16(normal(9, n, k)), np.zeros((m, n), np.uint16)
    run(name, target, (-(-m // block[0]), -(-n // block[1])), {"a": a, "b": b, "c": c})
    expected = from_bfloat16(a) @ from_bfloat16(b).T
    np.testing.assert_allclose(from_bfloat16(c), expected, rtol=2**-7, atol=1e-3)


def segments(name: str, target: str) -> None:
    """A product by expert, of an empty segment and of some with tails."""
    offsets, w = np.array([0, 70, 70, 139], np.int32), to_bfloat16(normal(31, 3, 76, 100))
    token = np.random.default_rng(32).integers(0, 11, 139).astype(np.int32)
    gathered = name == "gathered_matmul"
    x, out = to_bfloat16(normal(33, 11 if gathered else 139, 100)), np.zeros((139, 76), np.uint16)
    values: dict[str, NDArray[np.generic] | float] = {"x": x, "offsets": offsets, "w": w, "out": out, "most": 70}
    run(name, target, (2, 2, 3), {**values, "token": token} if gathered else values)
    rows, expert = from_bfloat16(x[token] if gathered else x), np.searchsorted(offsets, np.arange(139), "right") - 1
    expected = np.einsum("tk,tnk->tn", rows, from_bfloat16(w)[expert])
    np.testing.assert_allclose(from_bfloat16(out), expected, rtol=2**-7, atol=1e-2)


def grouped_matmul(target: str) -> None:
    segments("grouped_matmul", target)


def gathered_matmul(target: str) -> None:
    segments("gathered_matmul", target)


def paged_decode(target: str) -> None:
    q, keys, values = (to_bfloat16(normal(34, *n)) for n in ((3, 2, 8, 64), (9, 16, 2, 64), (9, 16, 2, 64)))
    table = np.random.default_rng(35).permutation(9).reshape(3, 3).astype(np.int32)
    lens, out = np.array([17, 48, 0], np.int32), np.full((3, 2, 8, 64), np.nan, np.float32)
    arrays = {"q": q, "keys": keys, "values": values, "table": table, "lens": lens, "out": out}
    run("paged_decode", target, (2, 3), {**arrays, "scale": 0.25})
    expected = np.zeros(out.shape, np.float32)
    for b, length in enumerate(lens[:2]):
        k, v = (from_bfloat16(np.concatenate(list(cache[table[b]]))[:length]) for cache in (keys, values))
        weights = np.exp(np.einsum("hgd,jhd->hgj", from_bfloat16(q[b]), k) * 0.25)
        expected[b] = np.einsum("hgj,jhd->hgd", weights / weights.sum(-1, keepdims=True), v)
    np.testing.assert_allclose(out, expected, rtol=2**-6, atol=1e-2)


def gemm(target: str) -> None:
    product("gemm", (128, 128), target)


def gemm_explicit(target: str) -> None:
    product("gemm_explicit", (64, 64), target)


def gemm_hopper(target: str) -> None:
    product("gemm_hopper", (128, 256), target)


def gemm_pingpong(target: str) -> None:
    product("gemm_pingpong", (128, 128), target)


def gemm_waves(target: str) -> None:
    product("gemm_waves", (64, 64), target)


def gemm_turns(target: str) -> None:
    product("gemm_turns", (256, 256), target)


def linear(target: str) -> None:
    m, n, k = 70, 132, 100
    x, weight, bias = to_bfloat16(normal(10, m, k)), to_bfloat16(normal(11, n, k)), normal(12, n)
    out = np.zeros((m, n), np.uint16)
    run("linear", target, (2, 2), {"x": x, "weight": weight, "bias": bias, "out": out})
    expected = np.maximum(from_bfloat16(x) @ from_bfloat16(weight).T + bias, 0)
    np.testing.assert_allclose(from_bfloat16(out), expected, rtol=2**-7, atol=1e-3)


def split_k(target: str) -> None:
    m, n, k = 20, 68, 300
    a, b, c = to_bfloat16(normal(13, m, k)), to_bfloat16(normal(14, n, k)), normal(15, m, n)
    expected = c + from_bfloat16(a) @ from_bfloat16(b).T
    run("split_k", target, (2, 2, 2), {"a": a, "b": b, "c": c})
    np.testing.assert_allclose(c, expected, rtol=1e-4, atol=1e-3)


def stream_k_atomic(target: str) -> None:
    m, n, k = 70, 140, 200
    a, b, c = to_bfloat16(normal(13, m, k)), to_bfloat16(normal(14, n, k)), normal(15, m, n)
    expected = c + from_bfloat16(a) @ from_bfloat16(b).T
    run("stream_k_atomic", target, (2, 5), {"a": a, "b": b, "c": c})
    np.testing.assert_allclose(c, expected, rtol=1e-4, atol=1e-3)


def column_sum(target: str) -> None:
    x, total = normal(16, 70, 132), normal(17, 132)
    expected = total + x.sum(0)
    run("column_sum", target, (3, 2), {"x": x, "total": total})
    np.testing.assert_allclose(total, expected, rtol=1e-4, atol=1e-4)


def cumsum(target: str) -> None:
    x, out = normal(18, 11, 36), np.full((11, 36), np.nan, np.float32)
    run("cumsum", target, (2,), {"x": x, "out": out})
    np.testing.assert_allclose(out, x.cumsum(1), rtol=1e-4, atol=1e-4)


def dropout(target: str) -> None:
    x, out = normal(28, 300), np.full(300, np.nan, np.float32)
    run("dropout", target, (2,), {"x": x, "out": out, "seed": -7, "share": 2**23, "scale": 2.0})
    np.testing.assert_array_equal(out, np.where(philox(-7, np.arange(300)) >> 8 < 2**23, x * np.float32(2), 0))


def conv2d(target: str) -> None:
    x, weight, bias = normal(19, 2, 2, 9, 36), normal(20, 3, 2, 3, 3), normal(21, 3)
    out = np.full((2, 3, 9, 36), np.nan, np.float32)
    run("conv2d", target, (2, 3, 2), {"x": x, "weight": weight, "bias": bias, "out": out})
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3))
    expected = np.einsum("bchwrs,ocrs->bohw", windows, weight) + bias[:, None, None]
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4)


def depthwise(target: str) -> None:
    x, weight, bias = normal(22, 2, 3, 9, 68), normal(23, 3, 3, 3), normal(24, 3)
    out = np.full_like(x, np.nan)
    run("depthwise", target, (2, 2, 3, 2), {"x": x, "weight": weight, "bias": bias, "out": out})
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3))
    expected = np.einsum("bchwrs,crs->bchw", windows, weight) + bias[:, None, None]
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4)


def rotary(target: str) -> None:
    x, position, frequency = normal(25, 2, 5, 2, 2, 10), np.float32([0, 1, 2, 60000, 3]), normal(26, 10)
    out = np.full_like(x, np.nan)
    run("rotary", target, (1, 2, 5, 2), {"x": x, "position": position, "frequency": frequency, "out": out})
    angle = (position[:, None] * frequency)[None, :, None].astype(np.float64)
    turned = (x[:, :, :, 0] + 1j * x[:, :, :, 1]) * np.exp(1j * angle)
    np.testing.assert_allclose(out, np.stack([turned.real, turned.imag], 3), rtol=1e-4, atol=1e-5)


CASES: dict[str, Callable[[str], None]] = {
    f.__name__: f
    for f in (
        vector_add, softmax, rmsnorm, transpose, embedding, gemm, gemm_explicit, gemm_hopper, gemm_pingpong,
        gemm_waves, gemm_turns, linear, split_k, stream_k_atomic, column_sum, cumsum, dropout, conv2d, depthwise,
        rotary, cluster_softmax, grouped_matmul, gathered_matmul, paged_decode,
    )
}  # fmt: skip


@pytest.mark.product
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CASES)
def test_example(name: str, target: str) -> None:
    if not example_runs(name, target):
        pytest.skip("names another vendor's instructions, or has tiles for its shared memory")
    CASES[name](target)


def test_every_example_has_a_case() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(CASES)
