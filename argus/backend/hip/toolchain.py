"""Compile HIP C++ to a code object for AMD GPUs with clang. This needs no ROCm, no driver and no GPU."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from argus.backend import process
from argus.backend.artifact import Resources
from argus.environment import find_tool, llvm_directories

INCLUDE = (Path(__file__).parent, Path(__file__).parent.parent)
"""Folders of the device library's headers."""

_RELEASES = (19, 20, 21, 22, 18, 17)  # The tested release comes first. Releases before 17 do not support gfx942.
_INSTALL = (
    "install clang 17 or newer with lld (Debian and Ubuntu: clang-19 lld-19), or ROCm; "
    "ARGUS_CLANG names one by its path"
)
_FLAGS = (
    "-x", "hip", "--cuda-device-only", "--no-gpu-bundle-output", "-nogpulib", "-nogpuinc", "-std=c++17", "-O3",
    "-fuse-cuid=none",  # Otherwise a symbol would be named after the temporary folder, and builds would differ.
    # One instruction adds floats in memory. This is safe because tensors are in ordinary device memory.
    "-munsafe-fp-atomics",
    "-Rpass-analysis=kernel-resource-usage",
)  # fmt: skip
_ALL_REGISTERS = "-DARGUS_WAVES=1"


def compile(source: str, arch: str, *, timeout_s: float = process.TIMEOUT_S) -> tuple[bytes, Resources]:
    """Compile emitted text, preceded by the device header, for `arch` ("gfx942") to a code object.

    `Resources` are clang's figures, the largest if there are several kernels. Kernels that need more registers than
    two waves of a SIMD have each are compiled again for one. Raises `ToolchainError`:
    "compiler-missing", "compiler-failed".
    """
    clang = find_compiler()
    if clang is None:
        raise process.missing("compiler for AMD GPUs (clang)", _INSTALL)
    with tempfile.TemporaryDirectory(prefix="argus-") as folder:
        text = f'#include "argus_hip.h"\n#line 1 "kernel.hip"\n{source}'
        (Path(folder) / "kernel.hip").write_text(text, encoding="utf-8")
        include = [f"-I{directory}" for directory in INCLUDE]
        command = [clang, *_FLAGS, f"--offload-arch={arch}", *include, "kernel.hip", "-o", "kernel.co"]
        done = process.run("clang", command, cwd=Path(folder), timeout_s=timeout_s)
        if parse_resources(done.stderr).spill_bytes:
            done = process.run("clang", [*command, _ALL_REGISTERS], cwd=Path(folder), timeout_s=timeout_s)
        return process.output("clang", Path(folder) / "kernel.co"), parse_resources(done.stderr)


def find_compiler() -> str | None:
    """Return the path of clang: `ARGUS_CLANG`, else a release on `PATH` that supports gfx942, else ROCm's clang."""
    names = [*(f"clang-{release}" for release in _RELEASES), "amdclang", "clang"]
    return find_tool(names, "ARGUS_CLANG", llvm_directories())


def find_disassembler() -> str | None:
    """Return the path of llvm-objdump, on `PATH` or in ROCm."""
    names = [*(f"llvm-objdump-{release}" for release in _RELEASES), "llvm-objdump"]
    return find_tool(names, directories=llvm_directories())


def disassemble(code_object: bytes) -> str:
    """Return the machine code of a code object as text. Raises `ToolchainError` "compiler-missing"."""
    tool = find_disassembler()
    if tool is None:
        raise process.missing("disassembler (llvm-objdump)", "install LLVM 17 or newer (Debian: llvm-19), or ROCm")
    with tempfile.TemporaryDirectory(prefix="argus-") as folder:
        path = Path(folder) / "kernel.co"
        path.write_bytes(code_object)
        return process.run("llvm-objdump", [tool, "--disassemble", str(path)]).stdout


def parse_resources(remarks: str) -> Resources:
    """Return the figures in clang's remarks: vector registers (VGPRs plus AGPRs), LDS, scratch.

    Scratch is a lane's stack in memory: spills, and arrays indexed at run time.
    """

    def largest(label: str) -> int | None:
        found = re.findall(rf"remark:.*?\s{re.escape(label)}: (\d+)", remarks)
        return max((int(number) for number in found), default=None)

    vector, accumulation = largest("VGPRs"), largest("AGPRs")
    return Resources(
        registers=None if vector is None else vector + (accumulation or 0),
        shared_bytes=largest("LDS Size [bytes/block]") or 0,
        spill_bytes=largest("ScratchSize [bytes/lane]"),
    )
