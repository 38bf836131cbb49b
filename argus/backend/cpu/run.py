"""Runs a kernel on NumPy arrays, without a launcher's checks: for tests and for measuring the host target."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from argus.backend.abi import arguments, shared_bytes
from argus.backend.cpu.driver import CpuFunction
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
) -> None:
    """Run a host library made from `kernel`, in place.

    `values` follow `argus.backend.abi.arguments(kernel)`: for a pointer a C-contiguous array of any dtype of the
    right item size (bfloat16 as uint16, float8 as uint8), for the rest a number. No precondition of the kernel
    is checked. Raises ValueError for values that do not fit the signature, and as `CpuFunction` does.
    """
    described = arguments(kernel)
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
    pointers = (ctypes.c_void_p * max(len(cells), 1))(*(cell.ctypes.data for cell in cells))
    sizes = (*grid, 1, 1)
    if 0 not in grid:
        function = CpuFunction(binary, workers)
        function.prepare(pointers, (sizes[0], sizes[1], sizes[2]), kernel.num_threads, shared_bytes(kernel))()
