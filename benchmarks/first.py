"""Time from the start of Python to the first result of an operation on the GPU, with a warm and a cold build cache.

Each run is a separate process, which imports PyTorch, makes the operands and computes the result once. "torch alone"
is the same process without an operation. PyTorch's own kernels are built ahead; `torch.compile` and Triton build
theirs, and keep them in folders that the cold runs do not have.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from statistics import median
from time import perf_counter

from benchmarks.operations import OPERATIONS
from benchmarks.table import Cell, Results

SIDES = ("torch alone", "argus", "Triton", "PyTorch", "torch.compile")
_CACHED = ("argus", "Triton", "torch.compile")


def run(wanted: Sequence[str], runs: int) -> Results:
    """Rows "operation", "side", "warm ms", "cold ms", medians of `runs` processes. Needs a GPU."""
    from benchmarks import measure

    measure.needs_gpu("first")
    rows: list[dict[str, Cell]] = []
    with tempfile.TemporaryDirectory() as folder:
        for operation in wanted or OPERATIONS:
            for side in SIDES:
                _run(side, operation, folder)  # fills the caches, and writes bytecode
                warm = median(_run(side, operation, folder) for _ in range(runs))
                cold = median(_cold(side, operation) for _ in range(runs)) if side in _CACHED else None
                rows.append({"operation": operation, "side": side, "warm ms": warm, "cold ms": cold})
                print(rows[-1], file=sys.stderr, flush=True)
    notes = (f"medians of {runs} runs, each a process of its own, from its start to the synchronised result",)
    return Results("From Python to the first result", rows, notes)


def _cold(side: str, operation: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        return _run(side, operation, folder)


def _run(side: str, operation: str, folder: str) -> float:
    """Return the milliseconds of one process."""
    names = ("ARGUS_CACHE_DIR", "CUDA_CACHE_PATH", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
    environment = {**os.environ, **dict.fromkeys(names, folder)}
    command = [sys.executable, "-c", f"from benchmarks.first import once; once({side!r}, {operation!r})"]
    started = perf_counter()
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    return 1e3 * (perf_counter() - started)


def once(side: str, operation: str) -> None:
    """Compute the operation once, in a process of its own."""
    import torch

    from benchmarks import operations

    given = operations.tensors(torch, operation)
    if side != SIDES[0]:
        of = "PyTorch" if side == "torch.compile" else side
        call = operations.direct(torch, of, operation)
        if side == "torch.compile":
            call = torch.compile(call, fullgraph=True)
        call(*given)
    torch.cuda.synchronize()
