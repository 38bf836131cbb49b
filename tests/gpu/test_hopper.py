"""mbarriers, bulk copies and asynchronous products on the hardware, and whole products by two roles."""

from __future__ import annotations

import ctypes
from functools import partial

import numpy as np
import pytest

from argus.backend.abi import arguments, entry, shared_bytes, tensor_maps
from argus.backend.cuda.driver import CudaFunction, driver
from argus.backend.cuda.tensormap import encode
from argus.backend.emit import emit
from argus.ir.instruction import WGMMA
from argus.ir.types import DType, bfloat16, float16
from tests.backend import hopper_bodies as bodies
from tests.backend.hopper_bodies import Array, Map, Value, tensor_map
from tests.backend.hopper_kernels import gemm

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")

from tests.gpu.device import architecture, compiled  # noqa: E402


@pytest.fixture(autouse=True)
def needs_hopper() -> None:
    if architecture() != "sm_90a":
        pytest.skip("needs sm_90a")


def launch(
    source: str,
    symbol: str,
    cells: list[ctypes.Array[ctypes.c_char]],
    grid: tuple[int, int, int],
    threads: int,
    shared: int,
) -> None:
    pointers = (ctypes.c_void_p * len(cells))(*(ctypes.addressof(cell) for cell in cells))
    stream = torch.cuda.current_stream().cuda_stream
    function = CudaFunction(driver(), compiled(source), symbol, 0, lambda: stream, None)
    function.prepare(pointers, grid, threads, shared)()
    torch.cuda.synchronize()


def cell(value: bytes) -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(value, len(value))


def run_on_gpu(source: str, values: list[Value], shared: int) -> list[Array]:
    torch.cuda.current_device()
    arrays = {i: v for i, v in enumerate(values) if isinstance(v, np.ndarray)}
    tensors = {i: torch.from_numpy(a.reshape(-1).view(np.uint8).copy()).cuda() for i, a in arrays.items()}
    addresses = {i: int(t.data_ptr()) for i, t in tensors.items()}
    cells = []
    for i, v in enumerate(values):
        match v:
            case Map():
                cells.append(cell(tensor_map(partial(encode, driver()), values, addresses, v)))
            case int():
                cells.append(cell(v.to_bytes(4, "little", signed=True)))
            case _:
                cells.append(cell(addresses[i].to_bytes(8, "little")))
    launch(source, "argus_k", cells, (1, 1, 1), 128, shared)
    return [t.cpu().numpy().view(arrays[i].dtype).reshape(arrays[i].shape) for i, t in tensors.items()]


def test_parity() -> None:
    bodies.check_parity(run_on_gpu)


@pytest.mark.parametrize("corner", bodies.CORNERS)
def test_boxes(corner: tuple[int, ...]) -> None:
    bodies.check_box(run_on_gpu, corner)


@pytest.mark.parametrize("dtype", [bfloat16, float16], ids=str)
@pytest.mark.parametrize("n", range(8, 257, 8))
def test_products(n: int, dtype: DType) -> None:
    bodies.check_product(run_on_gpu, WGMMA[f"wgmma_m64n{n}k16"], dtype, n // 8 % 4)


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
    tensors = {"a": a, "b": b, "c": c}
    known = {"M": rows, "N": columns, "K": depth} | {f"{x}.stride0": t.stride(0) for x, t in tensors.items()}
    maps = {
        m.name: encode(driver(), bfloat16, tensors[m.tensor].data_ptr(), tuple(tensors[m.tensor].shape),
                       tuple(s * 2 for s in tensors[m.tensor].stride()), m.box, m.swizzle_bytes)
        for m in tensor_maps(kernel)
    }  # fmt: skip
    cells = []
    for argument in arguments(kernel):
        match argument.kind:
            case "pointer":
                cells.append(cell(tensors[argument.name].data_ptr().to_bytes(8, "little")))
            case "tensormap":
                cells.append(cell(maps[argument.name]))
            case _:
                cells.append(cell(known[argument.name].to_bytes(argument.dtype.bytes, "little")))
    grid = (-(-rows // block[0]), -(-columns // block[1]), 1)
    launch(emit(kernel), entry(kernel), cells, grid, kernel.num_threads, shared_bytes(kernel))
    torch.testing.assert_close(c.float(), a.float() @ b.float().T, rtol=2**-7, atol=0.05)
