"""Kernels of cubins, loaded and launched through the CUDA driver.

Names and numbers are those of cuda.h, CUDA driver API reference, which NVIDIA keeps stable.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import lru_cache, partial

from argus.backend.cuda.driver import Driver
from argus.backend.cuda.tensormap import encoder
from argus.backend.launch.bind import Described
from argus.backend.launch.device import failed, insist_on_room, insist_on_threads, on_device
from argus.backend.launch.plan import Arguments, Encode, Launcher
from argus.diagnostic import LaunchError

_INVALID_CONTEXT = 201  # CUDA_ERROR_INVALID_CONTEXT
_ASSERTED = 710  # CUDA_ERROR_ASSERT
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_MAX_THREADS = 0  # CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK
_OVERLAPPED = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION

_CONFIG = struct.Struct("=7I4xQQI4x")  # CUlaunchConfig: grid, block, shared bytes, stream, attributes, their number
_ATTRIBUTE = struct.Struct("=I4xi60x")  # CUlaunchAttribute: its number, its value


class CudaFunction:
    """A kernel of a cubin, loaded on one device.

    `stream()` returns the handle of the stream to launch into. `current_device()` returns the current device; it is
    None if there is only one device.
    """

    def __init__(
        self,
        driver: Driver,
        binary: bytes,
        entry: str,
        device: int,
        stream: Callable[[], int],
        current_device: Callable[[], int] | None,
    ) -> None:
        self._driver, self._device, self._stream, self._current_device = driver, device, stream, current_device
        self._context = driver.primary_context(device)
        self._zeros: dict[str, int] = {}
        self._module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        with _Current(driver, self._context):
            load, find = driver.library.cuModuleLoadData, driver.library.cuModuleGetFunction
            driver.check(load(ctypes.byref(self._module), ctypes.c_char_p(binary)), "load the kernel")
            found = find(ctypes.byref(self._function), self._module, ctypes.c_char_p(entry.encode()))
            driver.check(found, f"find the entry point {entry}")

    def describe(self, tensor: Described) -> Encode:
        """See `argus.backend.launch.plan.Function`."""
        if 0 not in tensor.extents:
            return encoder(self._driver, tensor)
        # The driver refuses empty tensors (K = 0, for example). But a kernel may prefetch the map, and copy boxes that
        # lie outside the tensor. So one zero element of our own stands for the tensor. Each empty tensor gets its own
        # element, because a kernel may store to it.
        if tensor.name not in self._zeros:
            self._zeros[tensor.name] = self._cleared()
        rank, zero = len(tensor.extents), self._zeros[tensor.name]
        extents, strides = (1,) * rank, (16,) * rank
        if tensor.pixels is not None:  # The places of windows belong to images of this size: all their pixels are one.
            extents, strides = (1, *tensor.extents[1:-1], 1), (0,) * rank
        encode = encoder(self._driver, replace(tensor, extents=extents, strides_bytes=strides))
        return lambda _address, place: encode(zero, place)

    def _cleared(self) -> int:
        """Return the address of 16 zero bytes on the device, kept until the process ends, like the kernel."""
        library, address = self._driver.library, ctypes.c_uint64()
        with _Current(self._driver, self._context):
            self._driver.check(library.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(16)), "allocate memory")
            status = library.cuMemsetD8_v2(address, ctypes.c_ubyte(0), ctypes.c_size_t(16))
            self._driver.check(status or library.cuCtxSynchronize(), "clear memory")
        return address.value

    def resident(self, threads: int, shared_bytes: int, cluster: int) -> int:
        """See `argus.backend.launch.plan.Function`."""
        self._claim(threads, shared_bytes)
        value = ctypes.c_int()
        with _Current(self._driver, self._context):
            if cluster > 1:  # the size of a cluster is fixed in the machine code
                config = ctypes.create_string_buffer(_CONFIG.size)
                _CONFIG.pack_into(config, 0, cluster, 1, 1, threads, 1, 1, shared_bytes, 0, 0, 0)
                status = self._driver.library.cuOccupancyMaxActiveClusters(ctypes.byref(value), self._function, config)
                self._driver.check(status, "count the clusters of the device")
                return max(1, value.value) * cluster
            status = self._driver.library.cuOccupancyMaxActiveBlocksPerMultiprocessor(
                ctypes.byref(value), self._function, ctypes.c_int(threads), ctypes.c_size_t(shared_bytes)
            )
            self._driver.check(status, "count the blocks of a multiprocessor")
        return max(1, value.value * self._driver.multiprocessors(self._device))

    def prepare(self, grid: tuple[int, int, int], threads: int, shared_bytes: int) -> Launcher:
        """See `argus.backend.launch.plan.Function`. A launch returns as soon as it is queued."""
        self._claim(threads, shared_bytes)
        overlaps = self._driver.overlaps(self._device)
        # The pointer is converted once, because an integer would be converted at every launch.
        function = ctypes.c_void_p.from_param(self._function.value)

        @lru_cache(maxsize=64)
        def config(stream: int) -> object:
            made = ctypes.create_string_buffer(_CONFIG.size + _ATTRIBUTE.size)
            attribute = ctypes.addressof(made) + _CONFIG.size
            _CONFIG.pack_into(made, 0, *grid, threads, 1, 1, shared_bytes, stream, attribute, overlaps)
            _ATTRIBUTE.pack_into(made, _CONFIG.size, _OVERLAPPED, 1)
            return ctypes.byref(made)

        def bound(arguments: Arguments, stream: int) -> tuple[object, ...]:
            # These objects keep alive what they point to.
            return config(stream), function, ctypes.byref(arguments), None

        launch: Callable[..., int] = self._driver.library.cuLaunchKernelEx
        selected = partial(_Current, self._driver, self._context)
        start = on_device(launch, self._device, self._current_device, selected)
        return Launcher(self._stream, bound, start, self._failed)

    def _claim(self, threads: int, shared_bytes: int) -> None:
        """Request the block's shared memory, and refuse a block that the device cannot run."""
        limit = self._driver.shared_limit(self._device)
        insist_on_room(shared_bytes, limit, self._device, "shared memory")
        library, value = self._driver.library, ctypes.c_int()
        with _Current(self._driver, self._context):
            status = library.cuFuncSetAttribute(
                self._function, ctypes.c_int(_MAX_DYNAMIC_SHARED), ctypes.c_int(shared_bytes)
            )
            self._driver.check(status, f"set aside {shared_bytes} bytes of shared memory")
            status = library.cuFuncGetAttribute(ctypes.byref(value), ctypes.c_int(_MAX_THREADS), self._function)
            self._driver.check(status, "ask for the kernel's limits")
        insist_on_threads(threads, value.value)

    def _failed(self, status: int, bound: tuple[object, ...]) -> None:
        if status == _INVALID_CONTEXT:  # The thread makes its first CUDA call.
            self._driver.enter(self._context)
            status = self._driver.library.cuLaunchKernelEx(*bound)
        if status == _ASSERTED:
            text = "an `al.device_assert` of an earlier launch failed; the standard output says which"
            help = "a process cannot use the GPU after that: mend the cause, and start it again"
            raise LaunchError.of("device-assert", text, help)
        if status:
            raise failed("CUDA driver", self._driver.describe(status))


class _Current(AbstractContextManager[None]):
    """`with _Current(driver, context):` makes `context` current, and restores the previous context at the end."""

    def __init__(self, driver: Driver, context: ctypes.c_void_p) -> None:
        self._driver, self._context = driver, context

    def __enter__(self) -> None:
        push = self._driver.library.cuCtxPushCurrent_v2
        self._driver.check(push(self._context), "select the device")

    def __exit__(self, *_: object) -> None:
        self._driver.library.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))
