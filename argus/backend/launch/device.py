"""Launch code that the CUDA and HIP drivers share: selecting the current device, and refusing launches."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from argus.diagnostic import LaunchError


def on_device(
    launch: Callable[..., int],
    device: int,
    current: Callable[[], int] | None,
    selected: Callable[[], AbstractContextManager[None]],
) -> Callable[..., int]:
    """Return a function that calls `launch` with `device` as the current device.

    Return `launch` itself if there is only one device (`current` is None).
    """
    if current is None:
        return launch

    def start(*bound: object) -> int:
        if current() == device:
            return launch(*bound)
        with selected():
            return launch(*bound)

    return start


def insist_on_room(needed: int, limit: int, device: int, memory: str) -> None:
    """Refuse a block that needs more shared memory than the device has."""
    if needed > limit:
        what = f"a block needs {needed} bytes of {memory}; device {device} has {limit}"
        raise refused(what, "use smaller tiles or fewer stages")


def insist_on_threads(threads: int, most: int) -> None:
    """Refuse a block of more threads than the compiled kernel can run."""
    if threads > most:
        what = f"a block has {threads} threads; the compiled kernel can run at most {most} on this device"
        raise refused(what, "use fewer warps or smaller tiles")


def refused(message: str, help: str) -> LaunchError:
    """Return the error for a launch that the device cannot run."""
    return LaunchError.of("launch-refused", message, help)


def failed(driver: str, what: str) -> LaunchError:
    """Return the error for a launch that the driver refused."""
    help = "an earlier kernel may have failed: errors of a launch are reported by later calls"
    return refused(f"the {driver} refused the launch: {what}", help)
