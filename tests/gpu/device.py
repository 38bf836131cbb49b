"""Runs on the GPU: a body in the emitted dialect, NumPy arrays in, the same arrays as the kernel left them out; and an
explicit kernel on tensors of PyTorch."""

from __future__ import annotations

import ctypes
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray

from argus.backend.abi import entry
from argus.backend.cuda import toolchain
from argus.backend.cuda.driver import driver
from argus.backend.cuda.function import CudaFunction
from argus.backend.launch.array import array
from argus.backend.launch.bind import bind
from argus.backend.launch.plan import LaunchPlan
from argus.backend.launch.signature import signature
from argus.ir.nodes import Kernel

Array = NDArray[np.generic]


@lru_cache(maxsize=1)
def architecture() -> str:
    """The target of the installed GPU."""
    return "sm_90a" if torch.cuda.get_device_capability() == (9, 0) else "sm_80"


@lru_cache(maxsize=64)
def compiled(source: str) -> bytes:
    """The cubin of an emitted text."""
    return toolchain.compile(source, architecture())[0]


def function(cubin: bytes, symbol: str) -> CudaFunction:
    """An entry point, launched into the current stream."""
    stream = torch.cuda.current_stream().cuda_stream
    return CudaFunction(driver(), cubin, symbol, 0, lambda: stream, None)


def launch(kernel: Kernel, cubin: bytes, tensors: dict[str, torch.Tensor], grid: tuple[int, ...]) -> None:
    """Launches `kernel`, of which `cubin` has the code, on tensors by its parameters' names."""
    called = signature(kernel)
    binding = bind(called, {name: array(name, tensor) for name, tensor in tensors.items()}, {}, grid)
    LaunchPlan(called, binding, function(cubin, entry(kernel))).run(tuple(t.data_ptr() for t in tensors.values()))


def run(
    body: str,
    types: list[str],
    arrays: list[Array],
    *,
    threads: int = 32,
    shared: int = 0,
    grid: tuple[int, int, int] = (1, 1, 1),
) -> list[Array]:
    """Launches `body` with pointers `p0, p1, ...` to copies of `arrays`, of C++ types `types`, and `t`, the thread.

    `smem` is the shared memory, if there is any. Returns the copies after the launch.
    """
    parameters = ", ".join(f"{cpp}* ARGUS_RESTRICT p{i}" for i, cpp in enumerate(types))
    head = f"ARGUS_SHARED(smem, {shared});\n" if shared else ""
    head += "const int t = argus::thread_id();\n"
    source = f"ARGUS_KERNEL(entry, {threads})({parameters}) {{\n{head}{body}\n}}\n"
    tensors = [torch.from_numpy(a.reshape(-1).view(np.uint8).copy()).cuda() for a in arrays]
    values = [ctypes.c_uint64(tensor.data_ptr()) for tensor in tensors]
    pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
    function(compiled(source), "entry").prepare(grid, threads, shared).launch(pointers)
    torch.cuda.synchronize()
    results = [tensor.cpu().numpy() for tensor in tensors]
    return [r.view(a.dtype).reshape(a.shape) for r, a in zip(results, arrays, strict=True)]
