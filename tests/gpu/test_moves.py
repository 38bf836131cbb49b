"""Data movement of the CUDA header on the hardware: every size, guards, zero fill, lane maps."""

from __future__ import annotations

import numpy as np
import pytest

from argus.backend.device_api import TYPES
from argus.layout.atoms import LDMATRIX, STMATRIX

pytestmark = pytest.mark.gpu
pytest.importorskip("torch")

from tests.gpu.device import architecture, run  # noqa: E402

STORAGE = {"int8": np.uint8, "bfloat16": np.uint16, "float32": np.uint32, "int64": np.uint64}
SIZES = [(name, n) for name in STORAGE for n in (1, 2, 4, 8, 16) if n * np.dtype(STORAGE[name]).itemsize <= 16]


def numbers(name: str, count: int) -> np.ndarray:
    """Elements that differ from one another as far as the type allows."""
    return (np.arange(count, dtype=np.uint64) * 0x9E3779B97F4A7C15 >> 7).astype(STORAGE[name])


def test_ids() -> None:
    body = """
    const int block = argus::block_id<0>() + 2 * (argus::block_id<1>() + 3 * argus::block_id<2>());
    p0[block * 64 + t] = block * 1000 + t;"""
    (got,) = run(body, ["int"], [np.zeros((24, 64), np.int32)], threads=64, grid=(2, 3, 4))
    np.testing.assert_array_equal(got, np.arange(24)[:, None] * 1000 + np.arange(64))


@pytest.mark.parametrize(("name", "n"), SIZES)
def test_global_memory(name: str, n: int) -> None:
    body = f"""
    alignas(16) {TYPES[name]} x[{n}], y[{n}], z[{n}];
    argus::load_global<{n}>(p0, t * {n}, x);
    for (int i = 0; i < {n}; ++i) y[i] = x[{n} - 1 - i];
    argus::load_global_if<{n}>(t % 3 == 0, p0, (t + 32) * {n}, y);
    argus::load_global_or<{n}>(t % 5 == 0, p0, (t + 64) * {n}, z, x[0]);
    argus::store_global<{n}>(p1, t * {n}, x);
    argus::store_global<{n}>(p1, (t + 32) * {n}, y);
    argus::store_global_if<{n}>(t % 2 == 0, p1, (t + 64) * {n}, z);"""
    source = numbers(name, 96 * n).reshape(3, 32, n)
    cpp = TYPES[name]
    _, got = run(body, [f"const {cpp}", cpp], [source, np.zeros_like(source)])
    lane = np.arange(32)[:, None]
    np.testing.assert_array_equal(got[0], source[0])
    np.testing.assert_array_equal(got[1], np.where(lane % 3 == 0, source[1], source[0, :, ::-1]))
    expected = np.where(lane % 5 == 0, source[2], source[0, :, :1])
    np.testing.assert_array_equal(got[2], np.where(lane % 2 == 0, expected, 0))


@pytest.mark.parametrize(("name", "n"), SIZES)
def test_shared_memory(name: str, n: int) -> None:
    body = f"""
    alignas(16) {TYPES[name]} x[{n}], y[{n}];
    argus::load_global<{n}>(p0, t * {n}, x);
    argus::store_shared<{n}>(smem, t * 16, x);
    argus::barrier();
    argus::load_shared<{n}>(smem, (127 - t) * 16, y);
    argus::store_global<{n}>(p1, t * {n}, y);"""
    source = numbers(name, 128 * n).reshape(128, n)
    cpp = TYPES[name]
    _, got = run(body, [f"const {cpp}", cpp], [source, np.zeros_like(source)], threads=128, shared=2048)
    np.testing.assert_array_equal(got, source[::-1])


@pytest.mark.parametrize("size", [4, 8, 16])
def test_cp_async_copies_and_fills_with_zeros(size: int) -> None:
    """Two groups; the first must have landed when one is left pending. The source of a guarded-off copy is not read."""
    n = size // 4
    body = f"""
    alignas(16) float x[{n}], ones[{n}];
    for (int i = 0; i < {n}; ++i) ones[i] = 1.0f;
    argus::store_shared<{n}>(smem, 512 + t * 16, ones);
    argus::barrier();
    argus::cp_async<{size}>(smem, t * 16, p0, argus::i64(t) * {n});
    argus::cp_async_commit();
    argus::cp_async_or_zero<{size}>(smem, 512 + t * 16, p0, t % 2 ? argus::i64(t) * {n} : argus::i64(1) << 40, t % 2);
    argus::cp_async_commit();
    argus::cp_async_wait<1>();
    argus::barrier();
    argus::load_shared<{n}>(smem, (31 - t) * 16, x);
    argus::store_global<{n}>(p1, t * {n}, x);
    argus::cp_async_wait<0>();
    argus::barrier();
    argus::load_shared<{n}>(smem, 512 + (31 - t) * 16, x);
    argus::store_global<{n}>(p1, (t + 32) * {n}, x);"""
    source = np.arange(1, 32 * n + 1, dtype=np.float32).reshape(32, n)
    _, got = run(body, ["const float", "float"], [source, np.zeros((2, 32, n), np.float32)], shared=1024)
    np.testing.assert_array_equal(got[0], source[::-1])
    np.testing.assert_array_equal(got[1], np.where(np.arange(32)[:, None] % 2, source, 0)[::-1])


@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix_lane_map(count: int, trans: bool) -> None:
    """Shared memory holds element numbers; each lane must receive those that the lane map says."""
    move = LDMATRIX[count, trans]
    name = f"ldmatrix_x{count}" + ("_trans" if trans else "")
    body = f"""
    alignas(16) argus::bf16 x[8], y[{2 * count}];
    argus::load_global<8>(p0, t * 8, x);
    argus::store_shared<8>(smem, t * 16, x);
    argus::barrier();
    argus::{name}(smem, t * 16, y);
    argus::store_global<{2 * count}>(p1, t * {2 * count}, y);"""
    elements = np.arange(256, dtype=np.uint16)
    result = np.zeros((32, 2 * count), np.uint16)
    _, got = run(body, ["const argus::bf16", "argus::bf16"], [elements, result], shared=512)
    np.testing.assert_array_equal(got, move.data.linear())


@pytest.mark.parametrize("count", [1, 2, 4])
def test_stmatrix_lane_map(count: int) -> None:
    if architecture() == "sm_80":
        pytest.skip("needs sm_90")
    move = STMATRIX[count, False]
    body = f"""
    alignas(16) argus::bf16 x[8], y[{2 * count}];
    argus::load_global<{2 * count}>(p0, t * {2 * count}, y);
    argus::stmatrix_x{count}(smem, t * 16, y);
    argus::barrier();
    argus::load_shared<8>(smem, t * 16, x);
    argus::store_global<8>(p1, t * 8, x);"""
    held = move.data.linear().astype(np.uint16)
    types = ["const argus::bf16", "argus::bf16"]
    _, got = run(body, types, [held, np.zeros((32, 8), np.uint16)], shared=512)
    np.testing.assert_array_equal(got.reshape(-1)[: 64 * count], np.arange(64 * count))


@pytest.mark.parametrize("name", list(TYPES))
def test_shuffles(name: str) -> None:
    cpp = TYPES[name]
    storage = {"bool": np.uint8}.get(name)
    if storage is None:
        size = next(s for s in ("8", "16", "32", "64") if s in name.replace("e8", "")) if "float8" not in name else "8"
        storage = np.dtype(f"uint{size}").type
    values = (np.arange(32) % 2 if name == "bool" else np.arange(32, dtype=np.uint64) * 0x0101010101010101).astype(
        storage
    )
    body = """
    p1[t] = argus::shuffle(p0[t], (t * 5 + 3) % 32);
    p1[32 + t] = argus::shuffle_xor(p0[t], 1);
    p1[64 + t] = argus::shuffle_xor(p0[t], 16);
    p1[96 + t] = argus::shuffle(p0[t], 7);"""
    _, got = run(body, [f"const {cpp}", cpp], [values, np.zeros((4, 32), storage)])
    lane = np.arange(32)
    expected = [values[(lane * 5 + 3) % 32], values[lane ^ 1], values[lane ^ 16], np.full(32, values[7])]
    np.testing.assert_array_equal(got, np.stack(expected))


@pytest.mark.parametrize(("cpp", "dtype"), [("float", np.float32), ("int", np.int32), ("argus::i64", np.int64)])
def test_atomics(cpp: str, dtype: type) -> None:
    generator = np.random.default_rng(0)
    values = generator.integers(-1000, 1000, (4, 128)).astype(dtype)
    start = np.repeat(np.array([[5], [-2000], [2000]], dtype), 8, axis=1)
    body = """
    const int at = argus::block_id<0>() * 128 + t;
    argus::atomic_add(p1, t % 8, p0[at]);
    argus::atomic_maximum(p1, 8 + t % 8, p0[at]);
    argus::atomic_minimum(p1, 16 + t % 8, p0[at]);"""
    _, got = run(body, [f"const {cpp}", cpp], [values, start], threads=128, grid=(4, 1, 1))
    columns = values.reshape(-1, 8)
    expected = np.stack([5 + columns.sum(0), columns.max(0), columns.min(0)])
    np.testing.assert_array_equal(got, expected.astype(dtype))


def test_atomic_extrema_of_floats_keep_nan() -> None:
    """NaN wins over every number, whatever its sign bit, and whether it comes first or last."""
    nan, negative_nan = np.array([0x7FC00000, 0xFFC00000], np.uint32).view(np.float32)
    start = np.array([nan, negative_nan, 1, 1, np.inf, -np.inf, -1, 0], np.float32)
    values = np.array([1, -1, nan, negative_nan, -np.inf, np.inf, 2, -3], np.float32)
    body = """
    if (t < 8) {
        argus::atomic_maximum(p1, t, p0[t]);
        argus::atomic_minimum(p2, t, p0[t]);
    }"""
    _, largest, smallest = run(body, ["const float", "float", "float"], [values, start, start.copy()])
    np.testing.assert_array_equal(largest, np.maximum(start, values))
    np.testing.assert_array_equal(smallest, np.minimum(start, values))
