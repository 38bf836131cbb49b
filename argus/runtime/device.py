"""Devices of arguments: their targets, and loading kernels through their drivers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

from argus.backend.launch.plan import Function
from argus.diagnostic import LaunchError
from argus.ir.target import TARGETS
from argus.ir.target import target_of as target_for
from argus.runtime.executable import Executable


def target_of(device: str) -> str:
    """Return the target of a PyTorch device ("cpu", "cuda:1"). Raises LaunchError "unsupported-device" if there is
    none."""
    kind, _, index = device.partition(":")
    if kind == "cpu":
        return "cpu"
    if kind != "cuda":
        raise _unsupported(f"device {device}", "pass tensors on the CPU, on an NVIDIA GPU or on an MI300X")
    torch = sys.modules["torch"]
    if torch.version.hip is not None:  # PyTorch for ROCm, too, calls its devices "cuda".
        # Features may follow the name: "gfx942:sramecc+:xnack-". Code objects run with any combination of these
        # features.
        architecture = torch.cuda.get_device_properties(int(index)).gcnArchName.partition(":")[0]
        found = target_for("amd", architecture)
        if found is not None:
            return found.name
        raise _unsupported(
            f"{device}, an AMD GPU of architecture {architecture}", "use an MI300X or MI300A (gfx942), or the CPU"
        )
    major, minor = torch.cuda.get_device_capability(int(index))
    found = target_for("nvidia", f"{major}.{minor}")
    if found is not None:
        return found.name
    raise _unsupported(
        f"{device}, of compute capability {major}.{minor}", "use a GPU of compute capability 8.x or 9.0, or the CPU"
    )


def machine_of(device: str) -> str:
    """Return the model of the processor of a PyTorch device; measurements are valid for one model."""
    kind, _, index = device.partition(":")
    return "cpu" if kind == "cpu" else str(sys.modules["torch"].cuda.get_device_name(int(index)))


def load(executable: Executable, device: str) -> Function:
    """Load a kernel on a device. Raises ToolchainError."""
    if executable.target == "cpu":
        from argus.backend.cpu.driver import CpuFunction

        return CpuFunction(executable.binary)
    torch = sys.modules["torch"]
    index = int(device.partition(":")[2])
    stream: Callable[[], int] = partial(torch._C._cuda_getCurrentRawStream, index)
    current = torch._C._cuda_getDevice if torch.cuda.device_count() > 1 else None
    if TARGETS[executable.target].vendor == "amd":
        from argus.backend.hip.driver import runtime
        from argus.backend.hip.function import HipFunction

        return HipFunction(runtime(), executable.binary, executable.entry, index, stream, current)
    from argus.backend.cuda.driver import driver
    from argus.backend.cuda.function import CudaFunction

    return CudaFunction(driver(), executable.binary, executable.entry, index, stream, current)


def _unsupported(what: str, help: str) -> LaunchError:
    return LaunchError.of("unsupported-device", f"the tensors are on {what}", help)
