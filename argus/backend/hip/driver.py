"""The HIP runtime's C interface (libamdhip64), without any binding package.

Names and numbers are those of hip_runtime_api.h and driver_types.h; they are the same in ROCm 5, 6 and 7.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from argus.diagnostic import Diagnostic, ToolchainError

_LIBRARY = "libamdhip64.so"
_MAPPED = Path("/proc/self/maps")
_MULTIPROCESSORS = 63  # hipDeviceAttributeMultiprocessorCount
_NO_BINARY_FOR_GPU = 209  # hipErrorNoBinaryForGpu
_SHARED = 74  # hipDeviceAttributeMaxSharedMemoryPerBlock


class Runtime:
    """The runtime library. `check` turns its status codes into errors."""

    def __init__(self, library: Any) -> None:
        self.library = library
        library.hipGetErrorName.restype = library.hipGetErrorString.restype = ctypes.c_char_p

    def check(self, status: int, doing: str) -> None:
        """Raise ToolchainError "driver-failed" unless `status` is success."""
        if status:
            text = f"the HIP runtime could not {doing}: {self.describe(status)}"
            help = "check that `rocminfo` lists the GPU, and that ROCm is as new as the compiler (clang)"
            if status == _NO_BINARY_FOR_GPU:
                text += "; the code object is not for this GPU"
                help = "build for the architecture that `rocminfo` names; gfx942 is that of MI300X and MI300A"
            raise ToolchainError(Diagnostic("driver-failed", text, property="toolchain", help=help))

    def describe(self, status: int) -> str:
        """Return the runtime's description and name of a status code."""
        functions = (self.library.hipGetErrorString, self.library.hipGetErrorName)
        words, name = ((function(ctypes.c_int(status)) or b"?").decode() for function in functions)
        return f"{words} ({name})"

    @contextmanager
    def on(self, device: int) -> Iterator[None]:
        """Make `device` the calling thread's current device, and restore the previous device at the end."""
        before = ctypes.c_int()
        self.check(self.library.hipGetDevice(ctypes.byref(before)), "tell the current device")
        self.check(self.library.hipSetDevice(ctypes.c_int(device)), f"use device {device}")
        try:
            yield
        finally:
            self.check(self.library.hipSetDevice(before), f"use device {before.value}")

    def shared_limit(self, device: int) -> int:
        """Return the bytes of LDS that one block may use on a device."""
        return self._attribute(_SHARED, device)

    def multiprocessors(self, device: int) -> int:
        """Return the number of compute units of a device."""
        return self._attribute(_MULTIPROCESSORS, device)

    def _attribute(self, number: int, device: int) -> int:
        value = ctypes.c_int()
        get = self.library.hipDeviceGetAttribute
        self.check(get(ctypes.byref(value), ctypes.c_int(number), ctypes.c_int(device)), f"ask device {device}")
        return value.value


@lru_cache(maxsize=1)
def runtime() -> Runtime:
    """Return the process's HIP runtime. Raises ToolchainError "driver-missing" if there is none.

    PyTorch brings its own copy of the runtime, and another copy would not know its memory or its streams. So a copy
    that is already mapped comes before an installed one.
    """
    try:
        return Runtime(ctypes.CDLL(mapped(_MAPPED.read_text(encoding="utf-8")) or _LIBRARY))
    except OSError:
        raise ToolchainError(
            Diagnostic(
                "driver-missing",
                f"no HIP runtime was found ({_LIBRARY})",
                property="toolchain",
                help="install ROCm or PyTorch for ROCm, or pass CPU tensors: the CPU target needs no GPU",
            )
        ) from None


def mapped(maps: str) -> str | None:
    """Return the path of the HIP runtime that a process has mapped, from the text of its /proc/PID/maps; or None."""
    lines = (line.split(maxsplit=5) for line in maps.splitlines())
    paths = (fields[5] for fields in lines if len(fields) == 6)
    return next((path for path in paths if Path(path).name.startswith(_LIBRARY)), None)
