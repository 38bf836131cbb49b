"""Packages on a GPU: kernels of the library and programs, called from a C program, against calls from Python.

`python -m tests.gpu.packages FOLDER` writes a package and a C program into FOLDER, runs both, and prints for each call
whether all bits of all tensors are the same. It needs nvcc, and a C compiler.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

import argus
from argus import kernels
from argus.ir.types import DTYPES
from argus.packages.functions import type_code
from argus.programs import JitProgram
from argus.runtime.device import target_of
from argus.runtime.function import Function
from argus.runtime.jit_kernel import JitKernel
from tests.programs import shipped

WORKERS = 14


@dataclass(frozen=True)
class Subject:
    """A call: its name in C, a kernel or program, its arguments by name, constants, and alignments by tensor."""

    name: str
    item: JitKernel | JitProgram
    arguments: Mapping[str, Any]
    constants: Mapping[str, Any]
    alignment: Mapping[str, int]

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        return {n: a for n, a in self.arguments.items() if isinstance(a, torch.Tensor)}


class _Seen(Exception):
    """The launches of a call of the library are known."""


def library() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Calls of library functions, each with a name."""

    def halves(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device="cuda").bfloat16()

    a, b = halves(512, 512), halves(512, 512)
    q, k, v = (halves(1, 4, 512, 128) for _ in range(3))
    logits = halves(256, 64)
    target = torch.randint(0, 4096, (256,), device="cuda")
    yield "matmul", lambda: kernels.matmul(a, b.t())
    yield "matmul_float32", lambda: kernels.matmul(a.float(), b.float().t(), out_dtype=torch.float32)
    yield "rmsnorm", lambda: kernels.rmsnorm(halves(256, 4096), halves(4096))
    yield "layernorm", lambda: kernels.layernorm(halves(256, 4096), halves(4096), halves(4096))
    yield "softmax", lambda: kernels.softmax(halves(256, 2048))
    yield "silu_mul", lambda: kernels.silu_mul(halves(256, 2048), halves(256, 2048))
    yield "transpose", lambda: kernels.transpose(halves(512, 768))
    yield "reduce", lambda: kernels.reduce(torch.randn(512, 1024, device="cuda"), "sum", 1)
    yield "topk", lambda: kernels.topk(logits, 4)
    yield "cross_entropy", lambda: kernels.cross_entropy(halves(256, 4096), target)
    yield "quantize", lambda: kernels.quantize(halves(256, 1024))
    yield "softmax_backward", lambda: kernels.softmax_backward(halves(256, 2048), halves(256, 2048))
    yield "attention", lambda: kernels.attention(q, k, v)


def captured(name: str, call: Callable[[], Any]) -> Iterator[Subject]:
    """The kernels that a library function would launch, with their arguments."""
    seen: list[Any] = []

    def note(self: Any, tensors: Any, numbers: Any, way: Any) -> Any:
        seen.extend(self._work(tensors, numbers, *way).calls)
        raise _Seen

    prepare, Function._prepare = Function._prepare, note  # type: ignore[method-assign]
    try:
        call()
    except _Seen:
        pass
    finally:
        Function._prepare = prepare  # type: ignore[method-assign]
    for number, one in enumerate(seen):
        names = [p.name for p in one.kernel.parameters if p.kind != "constexpr"]
        arguments = dict(zip(names, one.arguments, strict=False))
        found = one.kernel.situation(*one.arguments, **one.constants)
        absent = {n: None for n, a in arguments.items() if a is None}
        yield Subject(f"{name}_{number}", one.kernel, {n: a for n, a in arguments.items() if a is not None},
                      {**one.constants, **absent}, found.alignments)  # fmt: skip


def programs() -> Iterator[Subject]:
    """Programs of the tests."""

    def rand(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device="cuda")

    index = torch.randint(0, 4096, (1024,), device="cuda", dtype=torch.int32)
    for name, given in (
        ("twice", {"x": rand(4096), "y": rand(4096)}),
        ("forked", {"x": rand(4096), "y": rand(4096), "a": 0.75}),
        ("chunks", {"x": rand(4096), "y": rand(4096)}),
        ("rows", {"x": rand(24, 512), "y": rand(24, 512)}),
        ("ring", {"x": rand(24, 512), "y": rand(24, 512)}),
        ("picked", {"x": rand(4096), "index": index, "y": rand(1024), "a": 0.5, "deep": 1}),
        ("mlp", {"x": rand(64, 96), "w1": rand(96, 128), "w2": rand(128, 64), "y": rand(64, 64)}),
    ):
        yield Subject(name, getattr(shipped, name), given, {}, {})


def build(subject: tuple[JitKernel, str, dict[str, Any]]) -> float:
    """Prove and build a kernel, which is kept in the cache; return the seconds that it took."""
    start = time.perf_counter()
    kernel, target, options = subject
    kernel.build(target, **options)
    return time.perf_counter() - start


def prepared(subjects: Sequence[Subject], target: str) -> None:
    """Build all kernels side by side."""
    with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as pool:
        jobs = [(s, pool.submit(build, (s.item, target, {"alignment": dict(s.alignment), **s.constants})))
                for s in subjects if isinstance(s.item, JitKernel)]  # fmt: skip
        for s, job in jobs:
            print(f"built {s.name} in {job.result():.1f} s", flush=True)


# ---------------------------------------------------------------------------- the C program


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """All elements between a tensor's first and its last, as they are in memory."""
    reach = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.as_strided((reach,), (1,))


def saved(folder: Path, name: str, tensor: torch.Tensor) -> None:
    (folder / name).write_bytes(flat(tensor).view(torch.uint8).cpu().numpy().tobytes())


MAIN = r"""
#include <cuda_runtime.h>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>
#include "library.h"

static char message[512];
static std::string folder;

struct Tensor {
    std::vector<int64_t> shape, strides;
    void *data = nullptr;
    size_t bytes = 0;
    std::string file;
    DLTensor t{};
    Tensor(const char *name, int code, int bits, std::vector<int64_t> s, std::vector<int64_t> d)
        : shape(s), strides(d), file(folder + "/" + name) {
        FILE *f = fopen((file + ".in").c_str(), "rb");
        fseek(f, 0, SEEK_END);
        bytes = ftell(f);
        fseek(f, 0, SEEK_SET);
        std::vector<char> host(bytes);
        if (fread(host.data(), 1, bytes, f) != bytes) exit(3);
        fclose(f);
        cudaMalloc(&data, bytes + 256);
        cudaMemcpy(data, host.data(), bytes, cudaMemcpyHostToDevice);
        t.data = data;
        t.device.device_type = kDLCUDA;
        t.ndim = (int)shape.size();
        t.dtype.code = code, t.dtype.bits = bits, t.dtype.lanes = 1;
        t.shape = shape.data(), t.strides = strides.data();
    }
    void save() {
        std::vector<char> host(bytes);
        cudaMemcpy(host.data(), data, bytes, cudaMemcpyDeviceToHost);
        FILE *f = fopen((file + ".out").c_str(), "wb");
        fwrite(host.data(), 1, bytes, f);
        fclose(f);
        cudaFree(data);
    }
};

static void report(const char *name, int status) {
    const cudaError_t error = cudaDeviceSynchronize();
    if (status || error) printf("C %s: status %d %s %s\n", name, status, message, cudaGetErrorString(error));
    fflush(stdout);
}
"""


def c_program(subjects: Sequence[Subject], folder: Path) -> str:
    opened = "library_open(arguments[1], 0, &p, message, sizeof message)"
    lines = [
        MAIN,
        "int main(int, char **arguments) {",
        "    folder = arguments[1];",
        "    argus_package *p;",
        "    cudaSetDevice(0);",
        "    cudaFree(0);",
        f"    if ({opened}) {{ puts(message); return 1; }}",
    ]
    for s in subjects:
        lines.append("    {")
        given = []
        for name, value in s.arguments.items():
            if isinstance(value, torch.Tensor):
                dtype = DTYPES[str(value.dtype)[6:]]
                shape, strides = (", ".join(map(str, v)) for v in (value.shape, value.stride()))
                file = f"{s.name}.{name}"
                lines.append(
                    f'        Tensor {name}("{file}", {type_code(dtype)}, {dtype.bits}, {{{shape}}}, {{{strides}}});'
                )
                given.append(f"&{name}.t")
            else:
                given.append(f"{float(value).hex()}f" if isinstance(value, float) else str(int(value)))
        listed = ", ".join(["p", *given])
        if isinstance(s.item, JitProgram):
            lines += program_lines(s, listed)
        else:
            lines.append(f'        report("{s.name}", library_{s.name}({listed}, nullptr, message, sizeof message));')
        lines += [f"        {name}.save();" for name in s.tensors]
        lines.append("    }")
    return "\n".join([*lines, "    argus_close(p);", "    return 0;", "}", ""])


def program_lines(s: Subject, listed: str) -> list[str]:
    """A program runs once, then as a CUDA graph, and then many times for its time."""
    call = f"library_{s.name}({listed}, room, bytes, stream, message, sizeof message)"
    return [
        "        size_t bytes = 0; void *room; cudaStream_t stream; cudaGraph_t graph; cudaGraphExec_t exec;",
        f'        report("{s.name}", library_{s.name}_workspace({listed}, &bytes, message, sizeof message));',
        "        cudaMalloc(&room, bytes + 256); cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);",
        f'        report("{s.name}", {call});',
        "        cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);",
        f"        const int captured = {call};",
        "        const cudaError_t ended = cudaStreamEndCapture(stream, &graph);",
        f'        if (captured || ended) printf("C graph of {s.name}: %d %s\\n", captured, cudaGetErrorString(ended));',
        "        else { cudaGraphInstantiate(&exec, graph, 0); cudaGraphLaunch(exec, stream); }",
        f'        report("{s.name} as a graph", 0);',
        "        const auto start = std::chrono::steady_clock::now();",
        f"        for (int i = 0; i < 200; i++) {call};",
        "        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;",
        f'        report("{s.name}", 0);',
        f'        printf("C {s.name}: %.1f us a call on the host\\n", took.count() * 5e3);',
    ]


def compiled(folder: Path) -> None:
    for name in ("argus.c", "library.c"):
        subprocess.run(["gcc", "-std=c11", "-O2", "-c", folder / name, "-o", folder / f"{name}.o"], check=True)
    objects = [folder / "argus.c.o", folder / "library.c.o"]
    subprocess.run(["nvcc", "-std=c++17", "-O1", "-x", "cu", folder / "main.cu", "-c", "-o", folder / "main.o",
                    f"-I{folder}"], check=True)  # fmt: skip
    subprocess.run(["nvcc", folder / "main.o", *objects, "-o", folder / "main", "-ldl"], check=True)


# ---------------------------------------------------------------------------- both, and the difference


def from_python(s: Subject) -> dict[str, bytes]:
    """What a call from Python leaves in its tensors."""
    fresh = {n: _copy(a) if isinstance(a, torch.Tensor) else a for n, a in s.arguments.items()}
    s.item(**fresh, **s.constants)
    torch.cuda.synchronize()
    return {n: flat(fresh[n]).view(torch.uint8).cpu().numpy().tobytes() for n in s.tensors}


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    whole = flat(tensor).clone()
    return whole.as_strided(tensor.shape, tensor.stride())


def timed(s: Subject) -> str:
    """The time of a program's call from Python on the host, and of the replay of its graph on the device."""
    assert isinstance(s.item, JitProgram)
    given = dict(s.arguments)
    start = time.perf_counter()
    for _ in range(100):
        s.item(**given)
    host = (time.perf_counter() - start) * 1e4
    torch.cuda.synchronize()
    graph = s.item.graph(**given)
    expected = {n: t.clone() for n, t in s.tensors.items()}
    for t in s.tensors.values():
        t.add_(0)
    graph.replay()
    torch.cuda.synchronize()
    same = all(torch.equal(expected[n], t) for n, t in s.tensors.items())
    return f"Python {s.name}: {host:.1f} us a call on the host; graph replays {'the same' if same else 'OTHER RESULTS'}"


def main(folder: Path) -> int:
    torch.manual_seed(0)
    target = target_of("cuda:0")
    subjects = list(programs())
    for name, call in library():
        try:
            subjects += captured(name, call)
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}", flush=True)
    print(len(subjects), "calls", flush=True)
    prepared(subjects, target)
    entries = {s.name: (s.item, s.constants) for s in subjects}
    argus.package(folder, entries, target=target, name="library", alignment={s.name: s.alignment for s in subjects})
    (folder / "main.cu").write_text(c_program(subjects, folder))
    for s in subjects:
        for n, t in s.tensors.items():
            saved(folder, f"{s.name}.{n}.in", t)
    compiled(folder)
    print("compiled", flush=True)
    expected = {s.name: from_python(s) for s in subjects}
    run = subprocess.run([folder / "main", folder], capture_output=True, text=True, timeout=60)
    print(run.stdout, run.stderr, f"C ended with {run.returncode}", flush=True)
    different = []
    for s in subjects:
        same = {n: (folder / f"{s.name}.{n}.out").read_bytes() == b for n, b in expected[s.name].items()}
        print(f"{'same bits' if all(same.values()) else 'DIFFERENT ' + json.dumps(same)}: {s.name}", flush=True)
        different += [] if all(same.values()) else [s.name]
    for s in subjects:
        if isinstance(s.item, JitProgram):
            print(timed(s), flush=True)
    return 1 if different or run.returncode else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
