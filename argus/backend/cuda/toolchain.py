"""Compile CUDA C++ to a cubin with NVRTC or nvcc. This needs no driver and no GPU."""

from __future__ import annotations

import ctypes.util
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from argus.backend import process
from argus.backend.artifact import Resources
from argus.environment import cuda_directories, find_tool, variable

INCLUDE = (Path(__file__).parent, Path(__file__).parent.parent)
"""Folders of the device library's headers."""

_INSTALL = (
    'install NVRTC 12.4 or newer: `pip install "nvidia-cuda-nvrtc>=13,<14"` (PyTorch\'s CUDA wheels bring it), '
    "or a CUDA toolkit with nvcc on PATH; ARGUS_NVRTC and ARGUS_NVCC name one by its path"
)
_WORKER = Path(__file__).parent / "nvrtc_worker.py"


WAITS_APART = "#define ARGUS_WAITS_APART\n"
"""Before the text: ptxas moves no instruction across a wait for all products, see `wgmma_wait` in hopper.h."""


def compile(source: str, arch: str, *, timeout_s: float = process.TIMEOUT_S) -> tuple[bytes, Resources]:
    """Compile emitted text, preceded by the device header, for `arch` ("sm_80", "sm_90a") to a cubin.

    Uses NVRTC if it is installed, else nvcc. `Resources` are ptxas's figures, the largest if there are several
    kernels; `shared_bytes` counts only statically declared shared memory. Raises `ToolchainError`:
    "compiler-missing", "compiler-failed".
    """
    with standby(arch) as compiler:
        return compiler(source, timeout_s)


Compiler = Callable[[str, float], tuple[bytes, Resources]]
"""Compiles one emitted text within the given number of seconds; see `compile`."""


@contextmanager
def standby(arch: str) -> Iterator[Compiler]:
    """Start a compiler for `arch` and one text; it starts up while the text is being written.

    The compiler is killed at the end of the `with` block. A missing compiler is reported when it is asked to compile.
    """
    library = find_nvrtc()
    with tempfile.TemporaryDirectory(prefix="argus-") as folder:
        if library is None:
            yield lambda source, timeout_s: _with_nvcc(source, arch, Path(folder), timeout_s)
            return
        # The program needs no site packages, and starts in half the time without them.
        command = [sys.executable, "-I", "-S", str(_WORKER), str(library), "kernel.cu", "kernel.cubin"]
        options = [f"--gpu-architecture={arch}", "--std=c++17", "--ptxas-options=-v", *_include()]
        running = process.start("NVRTC", [*command, *options], cwd=Path(folder))

        def with_nvrtc(source: str, timeout_s: float) -> tuple[bytes, Resources]:
            done = running.finish(_text(source), timeout_s=timeout_s)
            return process.output("NVRTC", Path(folder) / "kernel.cubin"), parse_resources(done.stderr)

        try:
            yield with_nvrtc
        finally:
            running.end()


def _with_nvcc(source: str, arch: str, folder: Path, timeout_s: float) -> tuple[bytes, Resources]:
    nvcc = find_nvcc()
    if nvcc is None:
        raise process.missing("CUDA compiler (NVRTC or nvcc)", _INSTALL)
    (folder / "kernel.cu").write_text(_text(source), encoding="utf-8")
    command = [nvcc, "kernel.cu", "-cubin", "-o", "kernel.cubin", "-std=c++17", "-O3"]
    options = [f"-gencode=arch={arch.replace('sm_', 'compute_')},code={arch}", "-Xptxas", "-v", *_include()]
    done = process.run("nvcc", [*command, *options], cwd=folder, timeout_s=timeout_s)
    return process.output("nvcc", folder / "kernel.cubin"), parse_resources(done.stderr)


def _text(source: str) -> str:
    defined = WAITS_APART if source.startswith(WAITS_APART) else ""
    return f'{defined}#include "argus_cuda.h"\n#line 1 "kernel.cu"\n{source.removeprefix(defined)}'


def _include() -> list[str]:
    return [f"-I{directory}" for directory in INCLUDE]


def find_compiler() -> str | None:
    """Return the path of the compiler that `compile` would use, for cache keys; None if there is none."""
    library = find_nvrtc()
    return str(library) if library is not None else find_nvcc()


def disassemble(cubin: bytes) -> str:
    """Return the machine code (SASS) of a cubin as text. Raises `ToolchainError` "compiler-missing"."""
    tool = find_disassembler()
    if tool is None:
        help = "install a CUDA toolkit, `pip install nvidia-cuda-nvdisasm`, or Triton, which brings it"
        raise process.missing("disassembler (nvdisasm)", help)
    with tempfile.TemporaryDirectory(prefix="argus-") as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        return process.run("nvdisasm", [tool, "--print-code", str(path)]).stdout


def find_disassembler() -> str | None:
    """Return the path of nvdisasm, searched on `PATH`, among Python packages, in CUDA toolkits and in Triton."""
    return find_tool(["nvdisasm"], directories=_tool_directories())


def find_nvrtc() -> Path | None:
    """Return the path of NVRTC's library: the one that `ARGUS_NVRTC` names, else the newest release found.

    Searches Python packages (which include PyTorch's CUDA libraries) and CUDA toolkits; of equal releases, packages
    come first. If there is none, searches the loader's folders. Returns None if `ARGUS_NVCC` is set.
    """
    chosen = variable("ARGUS_NVRTC")
    if chosen:
        return Path(chosen) if Path(chosen).is_file() else None
    if variable("ARGUS_NVCC"):
        return None
    folders = [*_package_directories("lib"), Path(sys.prefix) / "lib"]
    folders += [path for bin in cuda_directories() for path in (bin.parent / "lib64", bin.parent / "lib")]
    found = [path for folder in folders for path in folder.glob("libnvrtc.so.*") if _release(path)]
    if found:
        return max(found, key=_release)  # `max` returns the first of equals, so packages come before toolkits.
    name = ctypes.util.find_library("nvrtc")
    return next((path for path in _loader_paths(name) if path.is_file()), None) if name else None


def find_nvcc() -> str | None:
    """Return the path of nvcc: `ARGUS_NVCC`, else on `PATH`, else in CUDA toolkits; None if `ARGUS_NVRTC` is set."""
    return None if variable("ARGUS_NVRTC") else find_tool(["nvcc"], "ARGUS_NVCC", cuda_directories())


def parse_resources(log: str) -> Resources:
    """Return the largest registers, shared memory and stack in ptxas's verbose log, and its performance warnings.

    One such warning says that asynchronous products are made to wait for one another. A thread's stack holds its spills
    and any array indexed at run time; both cost memory traffic.
    """

    def largest(pattern: str) -> int | None:
        return max((int(number) for number in re.findall(pattern, log)), default=None)

    stack = largest(r"(\d+) bytes stack frame")
    spilled = largest(r"(\d+) bytes spill stores")
    return Resources(
        registers=largest(r"Used (\d+) registers"),
        shared_bytes=largest(r"(\d+) bytes smem") or 0,
        spill_bytes=None if stack is None or spilled is None else max(stack, spilled),
        warnings=tuple(dict.fromkeys(re.findall(r"\(C\d+\) (Potential Performance Loss: .*)", log))),
    )


def _release(path: Path) -> tuple[int, ...]:
    match = re.fullmatch(r"libnvrtc\.so\.(\d+(?:\.\d+)*)", path.name)
    return tuple(int(part) for part in match[1].split(".")) if match else ()


def _package_directories(leaf: str) -> Iterator[Path]:
    """Yield the `leaf` folders of NVIDIA's Python packages (nvidia/cu13/lib, nvidia/cuda_nvrtc/lib, ...)."""
    spec = find_spec("nvidia")
    for root in spec.submodule_search_locations or () if spec is not None else ():
        yield from sorted(Path(root).glob(f"*/{leaf}"))


def _tool_directories() -> tuple[Path, ...]:
    triton = find_spec("triton")
    places = triton.submodule_search_locations or () if triton is not None else ()
    bundled = [Path(place) / "backends" / "nvidia" / "bin" for place in places]
    return (*_package_directories("bin"), *cuda_directories(), *bundled)


def _loader_paths(name: str) -> Iterator[Path]:
    for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"):
        yield Path(folder) / name
