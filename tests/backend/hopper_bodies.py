"""Small texts in the emitted dialect that try one feature of sm_90a each, what they must give, and how to run them on
the host. The GPU tests run the same texts."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Union

import numpy as np
from numpy.typing import NDArray

from argus.backend.cpu import toolchain
from argus.backend.cpu.driver import CpuFunction
from argus.backend.cpu.tensormap import encode
from argus.backend.device_api import cpp_type, wgmma_function
from argus.ir.instruction import WGMMA, WgmmaRow
from argus.ir.pixels import Pixels
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
    pixels: Pixels | None = None


Value = Union[Array, int, Map]
Runner = Callable[[str, list[Value], int], list[Array]]
"""Runs `argus_k` of a text on 128 threads with so many bytes of shared memory; the arrays as it left them."""


def tensor_map(make: Callable[..., bytes], values: list[Value], addresses: dict[int, int], m: Map) -> bytes:
    """The bytes of a tensor map; `make` is the `encode` of a target."""
    array = values[m.position]
    assert isinstance(array, np.ndarray)
    return make(bfloat16, addresses[m.position], array.shape, array.strides, m.box, 128, m.pixels)


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
    CpuFunction(_compiled(source, eager), 1).prepare((1, 1, 1), 128, shared).launch(pointers)
    return list(arrays.values())


def kernel(parameters: str, body: str, shared: int, symbol: str = "argus_k", cluster: int = 1) -> str:
    head = f"ARGUS_KERNEL({symbol}, 128)" if cluster == 1 else f"ARGUS_CLUSTER_KERNEL({symbol}, 128, {cluster})"
    return f"""{head}({parameters}) {{
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
    source = RNG.integers(1, 1 << 16, shape).astype(np.uint16)
    got = _loaded(run, "tma_load", source, corner, Map(0, box))
    padded = np.zeros(tuple(n + 512 for n in shape), np.uint16)
    padded[tuple(slice(256, 256 + n) for n in shape)] = source
    expected = padded[tuple(slice(256 + c, 256 + c + n) for c, n in zip(corner, box, strict=True))]
    np.testing.assert_array_equal(got, expected.reshape(64, 64))


COLUMNS: tuple[tuple[tuple[int, ...], Pixels, int, tuple[int, ...]], ...] = (
    ((3, 40), Pixels((20,), (2,), (-1,)), 13, (2,)),
    ((2, 9, 7), Pixels((9, 7), (1, 1), (-1, -1)), 0, (0, 0)),
    ((2, 9, 7), Pixels((9, 7), (1, 1), (-1, -1)), 40, (2, 1)),
    ((3, 11, 14), Pixels((5, 7), (2, 2), (-1, 0)), 62, (1, 0)),
    ((4, 6, 5), Pixels((4, 2), (1, 2), (0, 1)), 8, (4, 1)),
    ((2, 4, 5, 6), Pixels((4, 3, 6), (1, 2, 1), (-1, -1, -2)), 17, (1, 2, 4)),
)
"""Images and their sizes; the places of windows; the first pixel; the offsets."""


def check_pixels(run: Runner, sizes: tuple[int, ...], pixels: Pixels, first: int, offsets: tuple[int, ...]) -> None:
    """A column of 64 pixels is that of a convolution's windows for one tap, also from one image to the next."""
    source = RNG.integers(1, 1 << 16, (*sizes, 136)).astype(np.uint16)
    at = _place(first, pixels)
    start = (*offsets, *at, 64)
    got = _loaded(run, "tma_load_im2col", source, start, Map(0, (64, *(1,) * len(offsets), 64), pixels))
    expected = np.zeros((64, 64), np.uint16)
    for row in range(64):
        image, *inside = _place(first + row, pixels)
        place = (image, *(x + far for x, far in zip(inside, offsets, strict=True)))
        if all(0 <= x < size for x, size in zip(place, sizes, strict=True)):
            expected[row] = source[place][64:128]
    np.testing.assert_array_equal(got, expected)


def _place(pixel: int, pixels: Pixels) -> tuple[int, ...]:
    """The image and the place in it of a pixel, by its number."""
    image, *inside = np.unravel_index(pixel, (1 << 20, *pixels.counts))
    steps = zip(inside, pixels.strides, pixels.lower, strict=True)
    return (int(image), *(int(x) * stride + lower for x, stride, lower in steps))


def _loaded(run: Runner, call: str, source: Array, start: tuple[int, ...], described: Map) -> Array:
    """What the copy engine brings to a tile of 64 rows of 64 elements. `start` are the arguments of the call, the last
    one first."""
    rank = len(start)
    at = ", ".join(f"c{i}" for i in reversed(range(rank)))
    body = f"""    if (t == 0) {{
        argus::mbarrier_init(smem, 8192, 1);
        argus::mbarrier_init_fence();
    }}
    argus::barrier();
    if (argus::uniform(t / 32) == 0) {{
        argus::mbarrier_expect(smem, 8192, 8192);
        argus::{call}(smem, 0, 8192, map, {at});
    }}
    argus::mbarrier_wait(smem, 8192, 0);
    for (int i = t; i < 2048; i += 128) {{
        alignas(16) int x[1];
        argus::load_shared<1>(smem, i * 4, x);
        to[i] = x[0];
    }}"""
    parameters = "const argus::bf16* ARGUS_RESTRICT from, int* ARGUS_RESTRICT to, "
    parameters += "".join(f"int c{i}, " for i in range(rank)) + "ARGUS_GRID_CONSTANT argus::TensorMap map"
    values: list[Value] = [source, np.zeros(2048, np.int32), *start, described]
    got = run(kernel(parameters, body, 8200), values, 8200)[1].view(np.uint16)
    return np.asarray(got[swizzled(64)])


def swizzled(rows: int) -> NDArray[np.int64]:
    """Offsets of (rows, 64) elements of 16 bits in the 128-byte swizzle."""
    layout = SwizzledLayout(Swizzle(3, 3, 3), 0, row_major((rows, 64)))
    return np.asarray(table(layout)).reshape((rows, 64), order="F")


# ---------------------------------------------------------------------------- asynchronous products


@dataclass(frozen=True)
class Product:
    """One product: operand types, which operands lie along m or n, whether `a` is in registers, and how many steps of k
    the operands begin after their tile does. It is made by each of `blocks` blocks of a cluster, and the operands'
    tiles begin at byte `base` of the shared memory. `narrow`: their rows have 64 bytes."""

    row: WgmmaRow
    a: DType
    b: DType
    across: tuple[bool, bool] = (False, False)
    registers: bool = False
    step: int = 0
    blocks: int = 1
    base: int = 0
    narrow: bool = False

    def __str__(self) -> str:
        majors = "".join("mn" if x else "k" for x in self.across)
        place = f"{self.step}-{self.blocks}-{self.base}{'-narrow' if self.narrow else ''}"
        return f"{self.row.name}-{self.a}-{self.b}-{majors}{'-registers' if self.registers else ''}-{place}"


def every_product(n: int) -> Iterator[Product]:
    """All types and places of operands of a product with `n` columns; each begins elsewhere in its tiles."""
    number = n // 8
    for bits in (16, 32, 8):
        row = WGMMA[f"wgmma_m64n{n}k{256 // bits}"]
        for a in row.operands:
            for b in row.operands if bits == 8 else (a,):
                ways = (False, True) if row.transposes else (False,)
                for across in product(ways, ways):
                    yield Product(row, a, b, across, False, number % 4)
                    number += 1
                for way in ways:
                    yield Product(row, a, b, (False, way), True, number % 4)
                    number += 1
        yield Product(row, row.operands[0], row.operands[0], step=number % 2, narrow=True)


def encoded(values: NDArray[np.int64], dtype: DType) -> Array:
    """The bits of integers of up to 4 in magnitude, which every operand type holds exactly."""
    floats = values.astype(np.float32)
    match dtype.name:
        case "tfloat32":
            return floats.view(np.uint32)
        case "bfloat16":
            return to_bfloat16(floats)
        case "float16":
            return floats.astype(np.float16).view(np.uint16)
        case "float8_e4m3fn":
            codes = np.array([0x00, 0x38, 0x40, 0x44, 0x48], np.uint8)
        case _:
            codes = np.array([0x00, 0x3C, 0x40, 0x42, 0x44], np.uint8)
    return np.where(values < 0, 0x80, 0).astype(np.uint8) | codes[np.abs(values)]


def panelled(values: Array, width: int) -> Array:
    """The bytes of a matrix in panels of `width` columns, in the swizzle of their rows: of 128 or 64 bytes."""
    rows, columns = values.shape
    panels = values.reshape(rows, columns // width, width).transpose(1, 0, 2).reshape(-1, width)
    count = width * values.itemsize // 16
    units = np.ascontiguousarray(panels).view(np.uint8).reshape(-1, count, 16)
    line = np.arange(units.shape[0])[:, None]
    return np.asarray(units[line, np.arange(count)[None, :] ^ line * count // 8 % count]).reshape(-1)


@dataclass(frozen=True)
class Prepared:
    """A text, its arguments, the bytes of shared memory, and what the argument at position 1 must be afterwards."""

    source: str
    values: list[Value]
    shared: int
    expected: Array


def check_product(run: Runner, case: Product) -> None:
    """D = C + A B^T of small integers is exact."""
    made = prepared(case, "argus_k")
    np.testing.assert_array_equal(run(made.source, made.values, made.shared)[1], made.expected)


def prepared(case: Product, symbol: str) -> Prepared:
    """D = C + A B^T by `symbol`. Tiles are four steps of k deep, or two narrow ones, and read from `step` on."""
    row, (m, n, k) = case.row, case.row.shape
    size, count = case.a.bytes, row.c.num_values
    width = (64 if case.narrow else 128) // size
    wide, depth = -(-n // width) * width if case.across[1] else n, width if case.narrow else 4 * k
    a, b, c = (RNG.integers(-4, 5, (m, depth)), RNG.integers(-4, 5, (wide, depth)), RNG.integers(-100, 100, (m, n)))
    tiles = [
        panelled(encoded(x.T if across else x, dtype), width)
        for x, dtype, across in ((a, case.a, case.across[0]), (b, case.b, case.across[1]))
    ]
    image = np.concatenate(tiles)
    steps = [case.step * (k * 128 if across else 32) // 16 for across in case.across]
    columns = slice(k * case.step, k * case.step + k)
    held = encoded(a[:, columns].reshape(-1)[row.a.linear()], case.a)
    types = f"{cpp_type(case.a)}, {cpp_type(case.b)}, {int(case.across[0])}, {int(case.across[1])}"
    left = "x" if case.registers else "left"
    places = (case.base, case.base + tiles[0].size)
    form = "narrow_descriptor(smem, {})" if case.narrow else f"matrix_descriptor(smem, {{}}, {depth * 128})"
    of = [form.format(place) for place in places]
    body = f"""    const int at = argus::block_id<0>() * 128 + t;
    for (int i = t; i < {image.size // 4}; i += 128) argus::store_shared<1>(smem, {case.base} + i * 4, image + i);
    argus::async_fence();
    argus::barrier();
    alignas(16) float d[{count}];
    alignas(16) {cpp_type(case.a)} x[{row.a.num_values}];
    #pragma unroll
    for (int i = 0; i < {count}; ++i) d[i] = c[at * {count} + i];
    #pragma unroll
    for (int i = 0; i < {row.a.num_values}; ++i) x[i] = a[t * {row.a.num_values} + i];
    const argus::u64 left = argus::descriptor_at(argus::{of[0]}, {steps[0]});
    const argus::u64 right = argus::descriptor_at(argus::{of[1]}, {steps[1]});
    argus::wgmma_hold(d);
    argus::wgmma_hold(x);
    argus::wgmma_fence();
    argus::{wgmma_function(row).name}<{types}>(d, {left}, right, true);
    argus::wgmma_commit();
    argus::wgmma_wait<0>();
    argus::wgmma_hold(d);
    #pragma unroll
    for (int i = 0; i < {count}; ++i) c[at * {count} + i] = d[i];"""
    parameters = f"const int* ARGUS_RESTRICT image, float* ARGUS_RESTRICT c, const {cpp_type(case.a)}* ARGUS_RESTRICT a"
    sums = c.reshape(-1)[row.c.linear()].astype(np.float32)
    expected = (c + a[:, columns] @ b[:n, columns].T).astype(np.float32)
    return Prepared(
        kernel(parameters, body, case.base + image.size, symbol, case.blocks),
        [image.view(np.int32), np.stack([sums] * case.blocks), held],
        case.base + image.size,
        np.stack([expected.reshape(-1)[row.c.linear()]] * case.blocks),
    )
