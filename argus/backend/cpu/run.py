"""Run a kernel on NumPy arrays without a launcher's checks, for tests and for measuring the host target."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from argus.backend.abi import arguments, persistent, shared_bytes, tensor_maps
from argus.backend.cpu.driver import CpuFunction
from argus.backend.cpu.tensormap import encode
from argus.ir.expr import Const, Expr, Param
from argus.ir.nodes import Kernel

_SCALARS = {
    "float32": np.float32, "int8": np.int8, "uint8": np.uint8, "int32": np.int32, "int64": np.int64,
    "bool": np.bool_,
}  # fmt: skip


def run_cpu(
    binary: bytes,
    kernel: Kernel,
    values: Sequence[NDArray[np.generic] | float],
    grid: tuple[int, ...],
    workers: int | None = None,
    launch: str = "argus_cpu_launch",
) -> None:
    """Run a host library made from `kernel`; the kernel writes into the arrays that are passed.

    `launch` is the function to call if the library holds several kernels. `values` follow
    `argus.backend.abi.arguments(kernel)` without tensor maps: a C-contiguous array for each pointer, of any dtype of
    the right item size (bfloat16 as uint16, float8 as uint8), and a number for everything else. No precondition of
    the kernel is checked. Raises ValueError for values that do not fit the signature, and the errors of `CpuFunction`.
    """
    described = tuple(a for a in arguments(kernel) if a.kind != "tensormap")
    if len(described) != len(values):
        raise ValueError(f"kernel {kernel.name} takes {len(described)} arguments, not {len(values)}")
    cells: list[NDArray[np.generic]] = []
    for argument, value in zip(described, values, strict=True):
        if argument.kind != "pointer":
            cells.append(np.array(value, dtype=_SCALARS[argument.dtype.name]))
        elif isinstance(value, np.ndarray) and value.itemsize == argument.dtype.bytes:
            cells.append(np.array(value.ctypes.data, dtype=np.uint64))
        else:
            raise ValueError(f"argument {argument.name} of kernel {kernel.name} is an array of {argument.dtype}")
    cells += _tensor_maps(kernel, {a.name: cell for a, cell in zip(described, cells, strict=True)})
    pointers = (ctypes.c_void_p * max(len(cells), 1))(*(cell.ctypes.data for cell in cells))
    sizes = (*grid, 1, 1)
    if 0 not in grid:
        function = CpuFunction(binary, workers, launch)
        blocks = (prod(grid), 1, 1) if kernel.flat else (sizes[0], sizes[1], sizes[2])
        claimed = shared_bytes(kernel)
        if persistent(kernel):
            blocks = (min(prod(blocks), function.resident(kernel.num_threads, claimed, kernel.cluster)), 1, 1)
        function.prepare(blocks, kernel.num_threads, claimed).launch(pointers)


def _tensor_maps(kernel: Kernel, cells: Mapping[str, NDArray[np.generic]]) -> list[NDArray[np.generic]]:
    """Return the kernel's tensor maps, made from the arguments by name."""

    def number(expr: Expr) -> int:
        match expr:
            case Const(value=value):
                return int(value)
            case Param(name=name):
                return int(cells[name])
            case _:
                raise ValueError(f"an extent or stride of kernel {kernel.name} is neither a size nor a constant")

    tensors = {t.name: t for t in kernel.tensors}
    maps: list[NDArray[np.generic]] = []
    for m in tensor_maps(kernel):
        tensor = tensors[m.tensor]
        extents = [number(e) for e in tensor.shape]
        strides = [number(e) * tensor.dtype.bytes for e in tensor.strides]
        made = encode(tensor.dtype, int(cells[m.tensor]), extents, strides, m.box, m.swizzle_bytes, m.pixels)
        maps.append(np.frombuffer(made, dtype=np.uint8))
    return maps
