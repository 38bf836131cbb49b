"""Loads and launches what the host's toolchain made."""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from argus.backend.abi import arguments, shared_bytes
from argus.backend.artifact import Artifact
from argus.diagnostic import Diagnostic, LaunchError, ToolchainError
from argus.ir.types import DType

_MESSAGE_BYTES = 2000
_SCALARS: dict[str, type[ctypes._SimpleCData[int]] | type[ctypes._SimpleCData[float]]] = {
    "float32": ctypes.c_float,
    "int8": ctypes.c_int8,
    "uint8": ctypes.c_uint8,
    "int32": ctypes.c_int32,
    "int64": ctypes.c_int64,
}

Argument = int | float | NDArray[np.generic]


@dataclass(frozen=True)
class CpuModule:
    """A loaded kernel of `threads` threads a block and `shared_bytes` bytes of shared memory a block."""

    library: ctypes.CDLL
    name: str
    threads: int
    shared_bytes: int

    def launch(
        self, values: Sequence[ctypes._SimpleCData[int]], grid: tuple[int, ...], workers: int | None = None
    ) -> None:
        """Run all blocks of `grid` (one to three axes) and return when they are done.

        `values` are the arguments in the order of `argus.backend.abi.arguments`; pointers are host addresses.
        `workers` host threads share the blocks (default: one a core). Raises `LaunchError` "kernel-failed" if
        a block ends in an error: threads that wait for one another for ever, a misaligned access, an access
        outside of shared memory.
        """
        sizes = (*grid, 1, 1, 1)[:3]
        if any(n <= 0 for n in sizes):
            return
        pointers = (ctypes.c_void_p * max(1, len(values)))(*(ctypes.addressof(v) for v in values))
        message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        status = self.library.argus_cpu_launch(
            pointers, (ctypes.c_int * 3)(*sizes), self.threads, self.shared_bytes,
            workers or os.cpu_count() or 1, message, _MESSAGE_BYTES,
        )  # fmt: skip
        if status:
            text = message.value.decode(errors="replace")
            raise LaunchError(
                Diagnostic("kernel-failed", f"kernel {self.name} failed in {text}", property="launch",
                           help="the kernel breaks a rule of the machine: argus.verify tells where")
            )  # fmt: skip


def load(artifact: Artifact) -> CpuModule:
    """Load a host library. Raises `ToolchainError` "module-unloadable" if the system refuses it."""
    if artifact.binary is None:
        raise _unloadable(artifact, "it was built without a compiler")
    with tempfile.TemporaryDirectory(prefix="argus-") as folder:
        path = Path(folder) / "kernel.so"
        path.write_bytes(artifact.binary)
        try:
            library = ctypes.CDLL(str(path))  # stays mapped when its file is gone
        except OSError as error:
            raise _unloadable(artifact, str(error)) from None
    kernel = artifact.kernel
    return CpuModule(library, kernel.name, kernel.num_threads, shared_bytes(kernel))


def run_cpu(
    artifact: Artifact, values: Sequence[Argument], grid: tuple[int, ...], workers: int | None = None
) -> None:
    """Run a kernel on NumPy arrays, in place.

    `values` follow `argus.backend.abi.arguments(artifact.kernel)`: a C-contiguous array (any dtype of the
    right item size; bfloat16 as uint16, float8 as uint8) for a pointer, a number for the rest. Nothing of the
    kernel's preconditions is checked here. Raises as `load` and `CpuModule.launch`.
    """
    described = arguments(artifact.kernel)
    if len(described) != len(values):
        raise ValueError(f"kernel {artifact.kernel.name} takes {len(described)} arguments, not {len(values)}")
    made: list[ctypes._SimpleCData[int]] = []
    for argument, value in zip(described, values, strict=True):
        if isinstance(value, np.ndarray):
            if argument.kind != "pointer" or value.itemsize != argument.dtype.bytes:
                raise ValueError(f"argument {argument.name} is a {argument.kind} of {argument.dtype}")
            made.append(ctypes.c_size_t(value.ctypes.data))
        else:
            made.append(scalar(argument.dtype, value))
    load(artifact).launch(made, grid, workers)


def scalar(dtype: DType, value: float) -> ctypes._SimpleCData[int]:
    """A scalar argument's C value."""
    return _SCALARS[dtype.name](value)  # type: ignore[return-value, arg-type]


def _unloadable(artifact: Artifact, why: str) -> ToolchainError:
    return ToolchainError(
        Diagnostic("module-unloadable", f"the library of {artifact.kernel.name} cannot be loaded: {why}",
                   property="toolchain", help="build the kernel again on this machine")
    )  # fmt: skip
