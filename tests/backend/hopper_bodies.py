"""Small texts in the emitted dialect that try one feature of sm_90a each, what they must give, and how to run them on
the host. The GPU tests run the same texts."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Union

import numpy as np
from numpy.typing import NDArray

from argus.backend.cpu import toolchain
from argus.backend.cpu.driver import CpuFunction
from argus.backend.cpu.tensormap import encode
from argus.backend.device_api import cpp_type, wgmma_function
from argus.ir.instruction import WgmmaRow
from argus.ir.types import DType, bfloat16
from argus.layout import Swizzle, SwizzledLayout, row_major, table
from tests.backend.host import to_bfloat16

Array = NDArray[np.generic]
RNG = np.random.default_rng(0)


@dataclass(frozen=True)
class Map:
    """An argument: the tensor map of the array at `position` among the arguments, which is bfloat16."""

    position: int
    box: tuple[int, ...]


Value = Union[Array, int, Map]
Runner = Callable[[str, list[Value], int], list[Array]]
"""Runs `argus_k` of a text on 128 threads with so many bytes of shared memory; the arrays as it left them."""


def tensor_map(make: Callable[..., bytes], values: list[Value], addresses: dict[int, int], m: Map) -> bytes:
    """The bytes of a tensor map; `make` is the `encode` of a target."""
    array = values[m.position]
    assert isinstance(array, np.ndarray)
    return make(bfloat16, addresses[m.position], array.shape, array.strides, m.box, 128)


@cache
def _compiled(source: str, eager: bool) -> bytes:
    return toolchain.compile(source, "argus_k", 32, eager_copies=eager)[0]


def run_on_host(source: str, values: list[Value], shared: int, eager: bool = False) -> list[Array]:
    arrays = {i: v.copy() for i, v in enumerate(values) if isinstance(v, np.ndarray)}
    addresses = {i: a.ctypes.data for i, a in arrays.items()}
    cells: list[Array] = []
    for i, v in enumerate(values):
        match v:
            case Map():
                cells.append(np.frombuffer(tensor_map(encode, values, addresses, v), np.uint8))
            case int():
                cells.append(np.array(v, np.int32))
            case _:
                cells.append(np.array(addresses[i], np.uint64))
    pointers = (ctypes.c_void_p * len(cells))(*(cell.ctypes.data for cell in cells))
    CpuFunction(_compiled(source, eager), 1).prepare(pointers, (1, 1, 1), 128, shared)()
    return list(arrays.values())


def kernel(parameters: str, body: str, shared: int) -> str:
    return f"""ARGUS_KERNEL(argus_k, 128)({parameters}) {{
    ARGUS_SHARED(smem, {shared});
    const int t = argus::thread_id();
{body}
}}
"""


# ---------------------------------------------------------------------------- mbarriers


def check_parity(run: Runner) -> None:
    """Of a fresh barrier the phase before counts as completed; then phases follow with the arrivals."""
    body = """    if (t == 0) {
        argus::mbarrier_init(smem, 0, 4);
        argus::mbarrier_init(smem, 8, 4);
        argus::mbarrier_init_fence();
    }
    argus::barrier();
    argus::mbarrier_wait(smem, 0, 1);
    int turns = 0;
    for (int i = 0; i < 6; ++i) {
        argus::mbarrier_arrive(smem, i % 2 * 8);
        argus::mbarrier_wait(smem, i % 2 * 8, i / 2 % 2);
        turns += 1;
    }
    to[t] = turns;"""
    (got,) = run(kernel("int* ARGUS_RESTRICT to", body, 16), [np.zeros(128, np.int32)], 16)
    np.testing.assert_array_equal(got, 6)


# ---------------------------------------------------------------------------- bulk copies

CORNERS: tuple[tuple[int, ...], ...] = (
    (0, 0),
    (8, 64),
    (60, 104),
    (-3, -8),
    (200, 0),
    (0, 136),
    (1, 5, 64),
    (2, -1, 0),
)


def check_box(run: Runner, corner: tuple[int, ...]) -> None:
    """A box of rows of 64 elements lands swizzled; what is outside of the tensor is zero."""
    shape, box = ((100, 136), (64, 64)) if len(corner) == 2 else ((3, 40, 136), (2, 32, 64))
    rank = len(shape)
    source = RNG.integers(1, 1 << 16, shape).astype(np.uint16)
    at = ", ".join(f"c{i}" for i in reversed(range(rank)))
    body = f"""    if (t == 0) {{
        argus::mbarrier_init(smem, 8192, 1);
        argus::mbarrier_init_fence();
    }}
    argus::barrier();
    if (argus::uniform(t / 32) == 0) {{
        argus::mbarrier_expect(smem, 8192, 8192);
        argus::tma_load(smem, 0, 8192, map, {at});
    }}
    argus::mbarrier_wait(smem, 8192, 0);
    for (int i = t; i < 2048; i += 128) {{
        alignas(16) int x[1];
        argus::load_shared<1>(smem, i * 4, x);
        to[i] = x[0];
    }}"""
    parameters = "const argus::bf16* ARGUS_RESTRICT from, int* ARGUS_RESTRICT to, "
    parameters += "".join(f"int c{i}, " for i in range(rank)) + "ARGUS_GRID_CONSTANT argus::TensorMap map"
    values: list[Value] = [source, np.zeros(2048, np.int32), *corner, Map(0, box)]
    got = run(kernel(parameters, body, 8200), values, 8200)[1].view(np.uint16)
    padded = np.zeros(tuple(n + 512 for n in shape), np.uint16)
    padded[tuple(slice(256, 256 + n) for n in shape)] = source
    expected = padded[tuple(slice(256 + c, 256 + c + n) for c, n in zip(corner, box, strict=True))]
    np.testing.assert_array_equal(got[swizzled(64)], expected.reshape(64, 64))


def swizzled(rows: int) -> NDArray[np.int64]:
    """Offsets of (rows, 64) elements of 16 bits in the 128-byte swizzle."""
    layout = SwizzledLayout(Swizzle(3, 3, 3), 0, row_major((rows, 64)))
    return np.asarray(table(layout)).reshape((rows, 64), order="F")


# ---------------------------------------------------------------------------- asynchronous products


def check_product(run: Runner, row: WgmmaRow, dtype: DType, step: int) -> None:
    """D = C + A B^T of small integers is exact; the operands are columns 16 * step and on of rows of 64."""
    m, n, k = row.shape
    a, b, c = RNG.integers(-4, 5, (m, 64)), RNG.integers(-4, 5, (n, 64)), RNG.integers(-100, 100, (m, n))
    image = np.zeros((m + n) * 64, np.uint16)
    for values, start in ((a, 0), (b, m * 64)):
        floats = values.astype(np.float32)
        bits = to_bfloat16(floats) if dtype is bfloat16 else floats.astype(np.float16).view(np.uint16)
        image[start + swizzled(values.shape[0])] = bits
    count = row.c.num_values
    body = f"""    for (int i = t; i < {image.size // 2}; i += 128) argus::store_shared<1>(smem, i * 4, image + i);
    argus::async_fence();
    argus::barrier();
    alignas(16) float d[{count}];
    #pragma unroll
    for (int i = 0; i < {count}; ++i) d[i] = c[t * {count} + i];
    const argus::u64 left = argus::descriptor_at(argus::matrix_descriptor(smem, 0), {2 * step});
    const argus::u64 right = argus::descriptor_at(argus::matrix_descriptor(smem, {m * 128}), {2 * step});
    argus::wgmma_hold(d);
    argus::wgmma_fence();
    argus::{wgmma_function(row).name}<{cpp_type(dtype)}>(d, left, right);
    argus::wgmma_commit();
    argus::wgmma_wait<0>();
    argus::wgmma_hold(d);
    #pragma unroll
    for (int i = 0; i < {count}; ++i) c[t * {count} + i] = d[i];"""
    source = kernel("const int* ARGUS_RESTRICT image, float* ARGUS_RESTRICT c", body, image.nbytes)
    held = c.reshape(-1)[row.c.linear()].astype(np.float32)
    got = run(source, [image.view(np.int32), held], image.nbytes)[1]
    columns = slice(k * step, k * step + k)
    expected = c + a[:, columns] @ b[:, columns].T
    np.testing.assert_array_equal(got, expected.reshape(-1)[row.c.linear()])
