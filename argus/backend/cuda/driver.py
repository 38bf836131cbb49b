"""The CUDA driver's C interface (libcuda), without any binding package.

Names and numbers are those of cuda.h, CUDA driver API reference, which NVIDIA keeps stable.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

from argus.diagnostic import Diagnostic, ToolchainError

_LIBRARY = "libcuda.so.1"
_MULTIPROCESSORS = 16  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
_SHARED_OPTIN = 97  # CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
_CAPABILITY_MAJOR = 75  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
_OVERLAPS_FROM = 9  # the first compute capability that has this feature


class Driver:
    """The driver library. `check` turns its status codes into errors."""

    def __init__(self, library: Any) -> None:
        self.library = library

    def check(self, status: int, doing: str) -> None:
        """Raise ToolchainError "driver-failed" unless `status` is success."""
        if status:
            raise ToolchainError(
                Diagnostic(
                    "driver-failed",
                    f"the CUDA driver could not {doing}: {self.describe(status)}",
                    property="toolchain",
                    help="check that `nvidia-smi` works, and that the driver is as new as the CUDA compiler",
                )
            )

    def describe(self, status: int) -> str:
        """Return the driver's description and name of a status code."""
        texts = []
        for function in (self.library.cuGetErrorName, self.library.cuGetErrorString):
            text = ctypes.c_char_p()
            function(ctypes.c_int(status), ctypes.byref(text))
            texts.append((text.value or b"?").decode())
        return f"{texts[1]} ({texts[0]})"

    def primary_context(self, device: int) -> ctypes.c_void_p:
        """Return the context that PyTorch and the CUDA runtime use on a device, retained until the process ends."""
        self.check(self.library.cuInit(ctypes.c_uint(0)), "start")
        handle, context = ctypes.c_int(), ctypes.c_void_p()
        self.check(self.library.cuDeviceGet(ctypes.byref(handle), ctypes.c_int(device)), f"find device {device}")
        retain = self.library.cuDevicePrimaryCtxRetain
        self.check(retain(ctypes.byref(context), handle), f"use device {device}")
        return context

    def enter(self, context: ctypes.c_void_p) -> None:
        """Make `context` the calling thread's current context."""
        self.check(self.library.cuCtxSetCurrent(context), "select the device")

    def shared_limit(self, device: int) -> int:
        """Return the bytes of shared memory that one block may use on a device."""
        return self._attribute(_SHARED_OPTIN, device)

    def multiprocessors(self, device: int) -> int:
        """Return the number of multiprocessors of a device."""
        return self._attribute(_MULTIPROCESSORS, device)

    def overlaps(self, device: int) -> bool:
        """Return True if blocks of a launch may start before the previous launch is complete; they wait in `begin`."""
        return self._attribute(_CAPABILITY_MAJOR, device) >= _OVERLAPS_FROM

    def _attribute(self, number: int, device: int) -> int:
        value, handle = ctypes.c_int(), ctypes.c_int()
        self.check(self.library.cuDeviceGet(ctypes.byref(handle), ctypes.c_int(device)), f"find device {device}")
        get = self.library.cuDeviceGetAttribute
        self.check(get(ctypes.byref(value), ctypes.c_int(number), handle), f"ask device {device}")
        return value.value


@lru_cache(maxsize=1)
def driver() -> Driver:
    """Return the installed driver. Raises ToolchainError "driver-missing" if there is none."""
    try:
        return Driver(ctypes.CDLL(_LIBRARY))
    except OSError:
        raise ToolchainError(
            Diagnostic(
                "driver-missing",
                f"no CUDA driver was found ({_LIBRARY})",
                property="toolchain",
                help="install NVIDIA's driver, or pass CPU tensors: the CPU target needs no GPU",
            )
        ) from None
