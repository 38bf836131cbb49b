"""Load and launch a kernel that was compiled to a host shared library."""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from argus.backend.cpu.tensormap import encode
from argus.backend.launch.bind import Described
from argus.backend.launch.plan import Arguments, Encode, Launcher
from argus.diagnostic import Diagnostic, LaunchError, ToolchainError

_MESSAGE_BYTES = 1024
_ASSERTED = 2  # in fibers.h


class CpuFunction:
    """A kernel in a host shared library, called by its function `launch`.

    `workers` host threads share the blocks of a launch; by default one for each core that the process may use.
    """

    def __init__(self, binary: bytes, workers: int | None = None, launch: str = "argus_cpu_launch") -> None:
        self._launch = _entry(binary, launch)
        self._workers = workers or len(os.sched_getaffinity(0))

    def describe(self, tensor: Described) -> Encode:
        """See `argus.backend.launch.plan.Function`. The map has the layout of the host's header."""
        t = tensor

        def write(address: int, place: int) -> None:
            made = encode(t.dtype, address, t.extents, t.strides_bytes, t.box, t.swizzle_bytes, t.pixels)
            ctypes.memmove(place, made, len(made))

        return write

    def resident(self, threads: int, shared_bytes: int, cluster: int) -> int:
        """See `argus.backend.launch.plan.Function`. The number is two blocks, which run several programs even in small
        grids."""
        return 2

    def prepare(self, grid: tuple[int, int, int], threads: int, shared_bytes: int) -> Launcher:
        """See `argus.backend.launch.plan.Function`. A launch returns when the kernel has ended."""
        # The values are converted to C once, not at every launch.
        numbers = (
            (ctypes.c_int * 3)(*grid),
            ctypes.c_int(threads),
            ctypes.c_int(shared_bytes),
            ctypes.c_int(self._workers),
        )

        def bound(arguments: Arguments, _stream: int) -> tuple[Any, ...]:
            message = ctypes.create_string_buffer(_MESSAGE_BYTES)
            return (arguments, *numbers, message, ctypes.c_int(_MESSAGE_BYTES))

        return Launcher(_no_stream, bound, self._launch, _failed)


def _no_stream() -> int:
    return 0


def _failed(status: int, bound: tuple[Any, ...]) -> None:
    text = bound[-2].value.decode(errors="replace")
    if status == _ASSERTED:
        help = "look at the values with `al.device_print`; outputs hold what the kernel wrote before it stopped"
        raise LaunchError.of("device-assert", text, help)
    message = f"the kernel stopped: {text}"
    help = "a proved kernel does not do this: report it with the kernel's text and the arguments"
    raise LaunchError.of("kernel-failed", message, help)


def _entry(binary: bytes, launch: str) -> Callable[..., int]:
    """Return the library's function `launch`. The file is only needed until the library is mapped."""
    with tempfile.TemporaryDirectory(prefix="argus-") as folder:
        path = Path(folder) / "kernel.so"
        path.write_bytes(binary)
        try:
            return ctypes.CDLL(str(path))[launch]
        except (OSError, AttributeError) as error:
            raise ToolchainError(
                Diagnostic(
                    "module-not-loaded",
                    f"the compiled kernel could not be loaded: {error}",
                    property="toolchain",
                    help="if the temporary directory forbids running programs, set TMPDIR to one that allows it",
                )
            ) from None
