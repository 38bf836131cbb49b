"""Compile emitted C++ to a host shared library with g++ or clang++."""

from __future__ import annotations

import tempfile
from pathlib import Path

from argus.backend import process
from argus.backend.artifact import Resources
from argus.backend.device_api import cpu_variants
from argus.environment import find_tool

INCLUDE = (Path(__file__).parent, Path(__file__).parent.parent)
"""Folders of the device library's headers."""

_COMPILERS = ("g++", "clang++", "c++", "clang++-19", "clang++-18", "clang++-17", "clang++-16")
_INSTALL = "install g++ (9 or newer) or clang++ (10 or newer), or name one by the environment variable CXX"
OPTIMISATION = "-O1"
"""How far the compiler optimises."""

_FLAGS = (
    "-std=c++17", "-shared", "-fPIC", "-pthread",
    # Integers wrap around on every GPU, so they do here.
    "-fwrapv",
    # A product and a sum are rounded separately, so that results do not depend on the host's instruction set.
    "-ffp-contract=off",
    # The loop vectoriser of g++ 12 drops terms of sums over registers that were loaded as vectors of shared memory.
    "-fno-tree-vectorize",
    # The unroll pragmas are meant for GPU compilers.
    "-Wno-unknown-pragmas",
)  # fmt: skip


def compile(
    source: str,
    entry: str,
    warp_size: int,
    *,
    eager_copies: bool = False,
    timeout_s: float = process.TIMEOUT_S,
) -> tuple[bytes, Resources]:
    """Compile emitted text of any target, whose kernel is `entry`, for warps of 32 or 64 lanes.

    Asynchronous copies run as late as the waits allow, or at once with `eager_copies`. A kernel whose result depends
    on that choice lacks a wait. Raises `ToolchainError`: "compiler-missing", "compiler-failed".
    """
    tool = find_compiler()
    if tool is None:
        raise process.missing("C++ compiler", _INSTALL)
    with tempfile.TemporaryDirectory(prefix="argus-") as folder:
        text = f'{header()}#line 1 "kernel.cpp"\n{source}\nARGUS_CPU_EXPORT({entry})\n'
        (Path(folder) / "kernel.cpp").write_text(text, encoding="utf-8")
        defines = [f"-DARGUS_WARP_SIZE={warp_size}", *(["-DARGUS_CPU_EAGER_COPIES"] if eager_copies else [])]
        include = [f"-I{directory}" for directory in INCLUDE]
        command = [tool, OPTIMISATION, *_FLAGS, *defines, *include, "kernel.cpp", "-o", "kernel.so"]
        process.run("C++ compiler", command, cwd=Path(folder), timeout_s=timeout_s)
        binary = process.output("C++ compiler", Path(folder) / "kernel.so")
    return binary, Resources(registers=None, shared_bytes=0, spill_bytes=None)


def header() -> str:
    """Return what stands before emitted text: the header for the CPU, and the functions that it leaves out."""
    return f'#include "argus_cpu.h"\n{cpu_variants()}'


def find_compiler() -> str | None:
    """Return the path of g++ or clang++: the one that `CXX` names, else the first one on `PATH`."""
    return find_tool(_COMPILERS, "CXX")
