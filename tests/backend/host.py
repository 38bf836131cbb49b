"""Builds and runs explicit kernels on the host, each text compiled once a test run; bfloat16 as uint16."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from argus.backend.abi import arguments, entry
from argus.backend.cpu import toolchain
from argus.backend.cpu.run import run_cpu
from argus.backend.emit import emit
from argus.ir.nodes import Kernel

Array = NDArray[np.generic]


@cache
def compiled(source: str, symbol: str, warp_size: int, eager: bool) -> bytes:
    return toolchain.compile(source, symbol, warp_size, eager_copies=eager)[0]


def run(kernel: Kernel, grid: tuple[int, ...], eager: bool = False, **named: Array | float) -> None:
    """Run `kernel` on arguments by name (strides of arrays that are not given are those of C order)."""
    values: list[Array | float] = []
    for a in arguments(kernel):
        if a.kind == "tensormap":
            continue
        if a.name in named:
            values.append(named[a.name])
        else:
            tensor, _, dim = a.name.partition(".stride")
            array = named[tensor]
            assert isinstance(array, np.ndarray)
            values.append(array.strides[int(dim)] // array.itemsize)
    run_cpu(compiled(emit(kernel), entry(kernel), kernel.warp_size, eager), kernel, values, grid, 2)


def to_bfloat16(x: Array) -> NDArray[np.uint16]:
    """Round to nearest, ties to even; no NaNs."""
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def from_bfloat16(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    return (bits.astype(np.uint32) << 16).view(np.float32)
