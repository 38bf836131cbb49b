"""Kernels of code objects, loaded and launched through the HIP runtime.

Names and numbers are those of hip_runtime_api.h and driver_types.h; they are the same in ROCm 5, 6 and 7.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial

from argus.backend.hip.driver import Runtime
from argus.backend.launch.bind import Described
from argus.backend.launch.device import failed, insist_on_room, insist_on_threads, on_device, refused
from argus.backend.launch.plan import Arguments, Encode, Launcher
from argus.diagnostic import LaunchError

_MAX_THREADS = 0  # HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK
_MOST_THREADS = 2**32 - 1  # threads of a launch along one axis: hipModuleLaunchKernel
_NO_DYNAMIC_SHARED = 0  # The code object itself declares the block's LDS.


class HipFunction:
    """A kernel of a code object, loaded on one device.

    `stream()` returns the handle of the stream to launch into. `current_device()` returns the current device; it is
    None if there is only one device.
    """

    def __init__(
        self,
        runtime: Runtime,
        binary: bytes,
        entry: str,
        device: int,
        stream: Callable[[], int],
        current_device: Callable[[], int] | None,
    ) -> None:
        self._runtime, self._device, self._stream, self._current_device = runtime, device, stream, current_device
        self._binary = binary  # The runtime may read the binary while the module is loaded.
        self._module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        load, find = runtime.library.hipModuleLoadData, runtime.library.hipModuleGetFunction
        with runtime.on(device):
            runtime.check(load(ctypes.byref(self._module), ctypes.c_char_p(binary)), "load the kernel")
            found = find(ctypes.byref(self._function), self._module, ctypes.c_char_p(entry.encode()))
            runtime.check(found, f"find the entry point {entry}")

    def describe(self, tensor: Described) -> Encode:
        """Raise LaunchError "tensor-map-refused": gfx942 has no copy engine."""
        message = f"the kernel wants a tensor map of `{tensor.name}`, and AMD GPUs have none"
        raise LaunchError.of("tensor-map-refused", message, "build the kernel for gfx942")

    def resident(self, threads: int, shared_bytes: int, cluster: int) -> int:
        """See `argus.backend.launch.plan.Function`. `cluster` is not used: gfx942 has no clusters."""
        self._claim(threads, shared_bytes)
        value = ctypes.c_int()
        ask = self._runtime.library.hipModuleOccupancyMaxActiveBlocksPerMultiprocessor
        with self._runtime.on(self._device):
            counted = ask(
                ctypes.byref(value), self._function, ctypes.c_int(threads), ctypes.c_size_t(_NO_DYNAMIC_SHARED)
            )
        self._runtime.check(counted, "count the blocks of a compute unit")
        return max(1, value.value * self._runtime.multiprocessors(self._device))

    def prepare(self, grid: tuple[int, int, int], threads: int, shared_bytes: int) -> Launcher:
        """See `argus.backend.launch.plan.Function`. A launch returns as soon as it is queued."""
        self._claim(threads, shared_bytes)
        if grid[0] * threads > _MOST_THREADS:
            message = f"{grid[0]} blocks of {threads} threads are more threads along the grid's first axis than HIP has"
            raise refused(f"{message} ({_MOST_THREADS})", "use fewer warps or larger tiles, or launch in parts")
        function = ctypes.c_void_p.from_param(self._function.value)  # converted once; a number is converted every time
        sizes = tuple(ctypes.c_uint(n) for n in (*grid, threads, 1, 1, _NO_DYNAMIC_SHARED))

        def bound(arguments: Arguments, stream: int) -> tuple[object, ...]:
            # The tuple keeps its members alive.
            return function, *sizes, ctypes.c_void_p(stream), ctypes.byref(arguments), None

        launch: Callable[..., int] = self._runtime.library.hipModuleLaunchKernel
        selected = partial(self._runtime.on, self._device)
        start = on_device(launch, self._device, self._current_device, selected)
        return Launcher(self._stream, bound, start, self._failed)

    def _claim(self, threads: int, shared_bytes: int) -> None:
        """Refuse a block that the device cannot run."""
        limit = self._runtime.shared_limit(self._device)
        insist_on_room(shared_bytes, limit, self._device, "LDS")
        value = ctypes.c_int()
        with self._runtime.on(self._device):
            get = self._runtime.library.hipFuncGetAttribute
            status = get(ctypes.byref(value), ctypes.c_int(_MAX_THREADS), self._function)
        self._runtime.check(status, "ask for the kernel's limits")
        insist_on_threads(threads, value.value)

    def _failed(self, status: int, _bound: tuple[object, ...]) -> None:
        raise failed("HIP runtime", self._runtime.describe(status))
