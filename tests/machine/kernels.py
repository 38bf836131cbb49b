"""Explicit kernels, built for gfx942, and run from their code objects by the interpreter."""

from __future__ import annotations

import re
import struct
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from argus.backend import abi
from argus.backend.emit import emit
from argus.backend.hip import toolchain
from argus.compile import elaborate
from argus.environment import find_tool, llvm_directories
from argus.frontend import Options
from argus.ir.nodes import Kernel
from argus.passes import lower
from argus.source import SourceFile
from tests.conftest import require
from tests.machine.gfx942.code import Code, load
from tests.machine.gfx942.run import Argument, launch

Array = NDArray[np.generic]
KERNELS = Path("argus/kernels")
_FORMS = {"size": "<i", "stride": "<q"}


def lowered(path: Path | str, name: str, num_warps: int | None = None, constants: Any = None) -> Kernel:
    """Return an explicit kernel of a file, for gfx942."""
    source = SourceFile(str(path), Path(path).read_text(encoding="utf-8"))
    return lower(elaborate(source, name, Options("gfx942", num_warps, constants or {})), "gfx942")


@cache
def _compiled(text: str) -> bytes:
    return toolchain.compile(text, "gfx942")[0]


def built(kernel: Kernel) -> bytes:
    """Return the code object of a kernel; each text is compiled once a test run."""
    require(toolchain.find_compiler(), "clang 17 or newer")
    require(toolchain.find_disassembler(), "llvm-objdump")
    return _compiled(emit(kernel))


def metadata(binary: bytes) -> str:
    """Return the notes of a code object as text."""
    names = [*(f"llvm-readelf-{release}" for release in (19, 20, 21, 22, 18, 17)), "llvm-readelf"]
    tool = require(find_tool(names, directories=llvm_directories()), "llvm-readelf")
    with tempfile.NamedTemporaryFile(suffix=".co") as file:
        file.write(binary)
        file.flush()
        command = [tool, "--notes", file.name]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def notes(binary: bytes) -> dict[str, int]:
    """Return the figures in a code object's notes, by name."""
    found = re.findall(r"^\s+\.(\w+):\s+(\d+)\s*$", metadata(binary), re.MULTILINE)
    return {name: int(number) for name, number in found}


def run(
    kernel: Kernel,
    grid: Sequence[int],
    outputs: Sequence[str],
    code: Code | None = None,
    visited: set[int] | None = None,
    **named: Any,
) -> None:
    """Run `kernel` on arrays and numbers by name, and put what it stores into the arrays of `outputs`.

    Strides that are not given are those of C order. Stores to any other array are refused. `code` replaces what the
    kernel is compiled to; `visited`: see `launch`.
    """
    tensors = [t.name for t in kernel.tensors]
    arrays = [np.ascontiguousarray(named[name]) for name in tensors]
    given = [(a.reshape(-1).view(np.uint8), name in outputs) for a, name in zip(arrays, tensors, strict=True)]
    loaded = code or load(built(kernel))
    memory = launch(loaded, abi.entry(kernel), grid, _threads(kernel), given, list(_arguments(kernel, named)), visited)
    for n, name in enumerate(tensors):
        if name in outputs:
            named[name].reshape(-1).view(np.uint8)[:] = memory.array(n, arrays[n].nbytes)


def _threads(kernel: Kernel) -> int:
    return kernel.num_warps * kernel.warp_size


def _arguments(kernel: Kernel, named: dict[str, Any]) -> Iterator[Argument]:
    """Yield where each argument lies: one after the other, each at a multiple of its size."""
    at, tensors = 0, [t.name for t in kernel.tensors]
    for argument in abi.arguments(kernel):
        array = tensors.index(argument.name) if argument.kind == "pointer" else None
        data = bytes(8) if array is not None else _bytes(argument, named)
        at = -(-at // len(data)) * len(data)
        yield Argument(at, data, array)
        at += len(data)


def _bytes(argument: abi.Argument, named: dict[str, Any]) -> bytes:
    name = argument.name
    if name in named:
        value = named[name]
    else:
        tensor, _, dim = name.partition(".stride")
        value = named[tensor].strides[int(dim)] // named[tensor].itemsize
    form = _FORMS.get(argument.kind) or {"float32": "<f", "int32": "<i", "int64": "<q"}[str(argument.dtype)]
    return struct.pack(form, value)
