"""Emitted C++ to a host shared library, with g++ or clang++."""

from __future__ import annotations

import tempfile
from pathlib import Path

from argus.backend import process
from argus.environment import find_tool

INCLUDE = Path(__file__).parent
"""Folder of the host's device library, argus_cpu.h."""

_COMPILERS = ("g++", "clang++", "c++", "clang++-19", "clang++-18", "clang++-17", "clang++-16")
_INSTALL = "install g++ (9 or newer) or clang++ (10 or newer), or name one by the environment variable CXX"
_FLAGS = (
    "-std=c++17", "-O2", "-shared", "-fPIC", "-pthread", "-fvisibility=hidden",
    # Integers wrap on every GPU, and so they do here.
    "-fwrapv",
    # A product and a sum stay two roundings: figures then do not depend on the host's instruction set.
    "-ffp-contract=off",
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
) -> bytes:
    """The shared library of emitted text whose kernel is `entry`, for warps of 32 or 64 lanes.

    Asynchronous copies are performed as late as the waits allow, or at once with `eager_copies`: a kernel
    whose result depends on it lacks a wait. Raises `ToolchainError`: "compiler-missing", "compiler-failed".
    """
    with tempfile.TemporaryDirectory(prefix="argus-") as folder:
        text, library = Path(folder) / "kernel.cpp", Path(folder) / "kernel.so"
        text.write_text(
            f'#include "argus_cpu.h"\n#line 1\n{source}\nARGUS_CPU_EXPORT({entry})\n', encoding="utf-8"
        )
        defines = [f"-DARGUS_WARP_SIZE={warp_size}", *(["-DARGUS_CPU_EAGER_COPIES"] if eager_copies else [])]
        command = [_compiler(), *_FLAGS, *defines, f"-I{INCLUDE}", "-o", str(library), str(text)]
        process.run("C++ compiler", command, timeout_s=timeout_s)
        return library.read_bytes()


def identity() -> str:
    """Which compiler `compile` would use, for cache keys; "" if there is none."""
    tool = find_tool(_COMPILERS, "CXX")
    if tool is None:
        return ""
    status = Path(tool).stat()
    return f"{tool}:{status.st_size}:{status.st_mtime_ns}"


def _compiler() -> str:
    tool = find_tool(_COMPILERS, "CXX")
    if tool is None:
        raise process.missing("C++ compiler", _INSTALL)
    return tool
