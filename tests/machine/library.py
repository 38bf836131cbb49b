"""Calls of the library on the host that run as on an MI300X: proved and built for gfx942, executed by the interpreter.

`python -m tests.machine.library [NAME …]` makes the calls of `tests.gpu.shipped` whose names begin with one of the
given ones, compares each with PyTorch in float64, and prints what was found as JSON. Left out is `UNSEEN`: no kernel
for gfx942 is proved to compute it. A program of its own, because what it prepares must not stay in a process.
"""

from __future__ import annotations

import ctypes
import gc
import json
import re
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from argus.backend.launch.plan import Arguments, Launcher
from argus.runtime import device, planner
from argus.runtime.executable import Executable
from tests.gpu.shipped import UNSEEN, calls, outcome
from tests.machine.gfx942.code import load
from tests.machine.gfx942.paths import unwaited_barriers
from tests.machine.gfx942.run import Argument, launch
from tests.machine.kernels import metadata


class Interpreted:
    """A kernel whose launches the interpreter executes, on the host's tensors."""

    def __init__(self, built: Executable) -> None:
        self._code, self._entry = load(built.binary), built.entry
        assert not unwaited_barriers(self._code), self._entry
        self._arguments = arguments(built.binary)

    def resident(self, threads: int, shared_bytes: int, cluster: int) -> int:
        return 3

    def prepare(self, grid: tuple[int, int, int], threads: int, shared_bytes: int) -> Launcher:
        def start(given: Arguments) -> int:
            self._run(grid, threads, given)
            return 0

        return Launcher(lambda: 0, lambda given, _stream: (given,), start, lambda _status, _bound: None)

    def _run(self, grid: tuple[int, int, int], threads: int, given: Arguments) -> None:
        values = ctypes.cast(given, ctypes.POINTER(ctypes.c_void_p))
        data = [ctypes.string_at(values[n], size) for n, (_, size, _) in enumerate(self._arguments)]
        pointers = [pointer for *_, pointer in self._arguments]
        storages = _storages([_number(d) for d, pointer in zip(data, pointers, strict=True) if pointer])
        passed = [
            _argument(d, place, pointer, storages) for d, (place, _, pointer) in zip(data, self._arguments, strict=True)
        ]
        arrays = [_bytes(s) for s in storages]
        memory = launch(self._code, self._entry, grid, threads, [(a, True) for a in arrays], passed)
        for n, array in enumerate(arrays):
            array[:] = memory.array(n, array.size)


def arguments(binary: bytes) -> list[tuple[int, int, bool]]:
    """Return the place and size of each argument, and whether it is an address, as the code object's notes say."""
    found = re.findall(r"\.offset:\s+(\d+)\s+\.size:\s+(\d+)\s+\.value_kind:\s+(\w+)", metadata(binary))
    return [(int(at), int(size), kind == "global_buffer") for at, size, kind in found if not kind.startswith("hidden")]


def _storages(addresses: Sequence[int]) -> list[torch.UntypedStorage]:
    """Return the storages that hold these addresses, each once.

    A launch keeps them until what it wrote is back in them: their tensors may be collected as garbage before.
    """
    tensors = [x for x in gc.get_objects() if type(x) in (torch.Tensor, torch.nn.Parameter)]
    storages = {s.data_ptr(): s for s in (x.untyped_storage() for x in tensors if x.device.type == "cpu")}
    return [s for s in storages.values() if any(_holds(s, address) for address in addresses)]


def _holds(storage: torch.UntypedStorage, address: int) -> bool:
    return 0 <= address - storage.data_ptr() < storage.nbytes()


def _bytes(storage: torch.UntypedStorage) -> Any:
    return np.ctypeslib.as_array((ctypes.c_uint8 * storage.nbytes()).from_address(storage.data_ptr()))


def _number(data: bytes) -> int:
    return int.from_bytes(data, "little")


def _argument(data: bytes, place: int, pointer: bool, storages: Sequence[torch.UntypedStorage]) -> Argument:
    address = _number(data)
    if not pointer or address == 0:
        return Argument(place, data)
    for n, storage in enumerate(storages):
        if _holds(storage, address):
            return Argument(place, array=n, offset=address - storage.data_ptr())
    raise LookupError(f"argument at {place}: no tensor holds {address:#x}")


def interpret() -> None:
    """From now on tensors of the host count as those of an MI300X."""
    asked = device.target_of
    for name, module in list(sys.modules.items()):
        if name.startswith("argus.") and getattr(module, "target_of", None) is asked:
            vars(module)["target_of"] = lambda _device: "gfx942"
    vars(planner)["load"] = lambda built, _device: Interpreted(built)


def main() -> None:
    """Make the calls that are asked for."""
    interpret()
    found: dict[str, str] = {}
    for call in calls():
        if call[0] != UNSEEN and (not sys.argv[1:] or call[0].startswith(tuple(sys.argv[1:]))):
            found[call[0]] = outcome(call, "cpu")
            print(f"{call[0]}: {found[call[0]]}", file=sys.stderr, flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
