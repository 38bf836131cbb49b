"""mbarriers, bulk copies and asynchronous products on the hardware, and whole products by two roles."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from argus.backend.cuda.driver import driver
from argus.backend.cuda.function import CudaFunction
from argus.backend.cuda.tensormap import encoder
from argus.backend.emit import emit
from argus.backend.launch.bind import Described
from argus.ir.pixels import Pixels
from argus.ir.types import DType
from tests.backend import hopper_bodies as bodies
from tests.backend.hopper_bodies import Array, Map, Value, tensor_map
from tests.backend.hopper_kernels import gemm

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")

from tests.gpu.device import architecture, compiled, function, launch  # noqa: E402


@pytest.fixture(autouse=True)
def needs_hopper() -> None:
    if architecture() != "sm_90a":
        pytest.skip("needs sm_90a")


def encode(
    dtype: DType,
    address: int,
    extents: Sequence[int],
    strides_bytes: Sequence[int],
    box: Sequence[int],
    swizzle_bytes: int,
    pixels: Pixels | None = None,
) -> bytes:
    """The driver's tensor map, as `argus.backend.cpu.tensormap.encode` makes the host's."""
    room = ctypes.create_string_buffer(128 + 64)
    start = -ctypes.addressof(room) % 64
    described = Described("map", "x", 0, dtype, tuple(extents), tuple(strides_bytes), tuple(box), swizzle_bytes, pixels)
    encoder(driver(), described)(address, ctypes.addressof(room) + start)
    return room.raw[start : start + 128]


def cell(value: bytes) -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(value, len(value))


def run_on_gpu(source: str, values: list[Value], shared: int) -> list[Array]:
    return run_loaded(function(compiled(source), "argus_k"), values, shared)


def run_loaded(kernel: CudaFunction, values: list[Value], shared: int, blocks: int = 1) -> list[Array]:
    """Runs a kernel on blocks of 128 threads; the arrays as it left them."""
    arrays = {i: v for i, v in enumerate(values) if isinstance(v, np.ndarray)}
    tensors = {i: torch.from_numpy(a.reshape(-1).view(np.uint8).copy()).cuda() for i, a in arrays.items()}
    addresses = {i: int(t.data_ptr()) for i, t in tensors.items()}
    cells = []
    for i, v in enumerate(values):
        match v:
            case Map():
                cells.append(cell(tensor_map(encode, values, addresses, v)))
            case int():
                cells.append(cell(v.to_bytes(4, "little", signed=True)))
            case _:
                cells.append(cell(addresses[i].to_bytes(8, "little")))
    pointers = (ctypes.c_void_p * len(cells))(*(ctypes.addressof(cell) for cell in cells))
    kernel.prepare((blocks, 1, 1), 128, shared).launch(pointers)
    torch.cuda.synchronize()
    return [t.cpu().numpy().view(arrays[i].dtype).reshape(arrays[i].shape) for i, t in tensors.items()]


def test_parity() -> None:
    bodies.check_parity(run_on_gpu)


@pytest.mark.parametrize("corner", bodies.CORNERS)
def test_boxes(corner: tuple[int, ...]) -> None:
    bodies.check_box(run_on_gpu, corner)


@pytest.mark.parametrize("column", bodies.COLUMNS)
def test_columns_of_pixels(column: tuple[Any, ...]) -> None:
    bodies.check_pixels(run_on_gpu, *column)


@pytest.mark.parametrize("sizes", [(128, 256, 64), (512, 512, 512), (130, 264, 328), (1, 8, 8), (2000, 1000, 4096)])
@pytest.mark.parametrize(("block", "n", "warps"), [((128, 256), 256, (8, 1)), ((256, 128), 128, (8, 1)),
                                                   ((64, 256), 128, (4, 2)), ((64, 64), 64, (4, 1))])  # fmt: skip
def test_gemm(block: tuple[int, int], n: int, warps: tuple[int, int], sizes: tuple[int, int, int]) -> None:
    """Two roles: copies run ahead of products, sizes that no tile divides."""
    kernel = gemm(block, 3, n, warps)
    rows, columns, depth = sizes
    generator = torch.Generator(device="cuda").manual_seed(0)
    a = torch.randn(rows, depth, device="cuda", generator=generator).to(torch.bfloat16)
    b = torch.randn(columns, depth, device="cuda", generator=generator).to(torch.bfloat16)
    c = torch.full((rows, columns), float("nan"), device="cuda", dtype=torch.bfloat16)
    grid = (-(-rows // block[0]), -(-columns // block[1]))
    launch(kernel, compiled(emit(kernel)), {"a": a, "b": b, "c": c}, grid)
    torch.testing.assert_close(c.float(), a.float() @ b.float().T, rtol=2**-7, atol=0.05)
