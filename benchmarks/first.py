"""Time from the start of Python to the first result of an operation on the GPU, with a cold and a warm build cache.

Each run is a separate process, which imports PyTorch, makes the operands and computes the result once. "torch alone"
is the same process without an operation. PyTorch's own kernels are built ahead; `torch.compile` and Triton build
theirs, and keep them in folders. The first run has an empty folder, the second has what the first left there. The
process also measures its own part: from the operands to the synchronised result, imports of the side included. Modules
are bytecode, as after an installation, even if the environment forbids it: a first run, which does not count, writes
it.
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
    """Rows "operation", "side", and milliseconds, medians of `runs` processes: "cold", "warm", and the operation's own
    part of each. Needs a GPU."""
    from benchmarks import measure

    measure.needs_gpu("first")
    rows: list[dict[str, Cell]] = []
    for side in SIDES:
        _both(side, OPERATIONS[0])  # writes bytecode
    for operation in wanted or OPERATIONS:
        for side in SIDES:
            (cold, own_cold), (warm, own) = (map(median, zip(*found, strict=True)) for found in zip(
                *(_both(side, operation) for _ in range(runs)), strict=True))  # fmt: skip
            row: dict[str, Cell] = {"operation": operation, "side": side, "warm ms": warm, "own warm ms": own}
            built = side in _CACHED
            rows.append(row | {"cold ms": cold if built else None, "own cold ms": own_cold if built else None})
            print(rows[-1], file=sys.stderr, flush=True)
    notes = (f"medians of {runs} runs, each a process of its own, from its start to the synchronised result",)
    return Results("From Python to the first result", rows, notes)


def _both(side: str, operation: str) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the milliseconds of two runs, with an empty folder of builds and with what the first run left there. A
    side without builds runs once."""
    with tempfile.TemporaryDirectory() as folder:
        first = _run(side, operation, folder)
        return first, _run(side, operation, folder) if side in _CACHED else first


def _run(side: str, operation: str, folder: str) -> tuple[float, float]:
    """Return the milliseconds of one process, and those after it has made the operands."""
    names = ("ARGUS_CACHE_DIR", "CUDA_CACHE_PATH", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
    environment = {**os.environ, **dict.fromkeys(names, folder), "PYTHONDONTWRITEBYTECODE": ""}
    command = [sys.executable, "-c", f"from benchmarks.first import once; once({side!r}, {operation!r})"]
    started = perf_counter()
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return 1e3 * (perf_counter() - started), 1e3 * float(done.stdout.split()[-1])


def once(side: str, operation: str) -> None:
    """Compute the operation once, in a process of its own, and print the seconds from the operands to the result."""
    import torch

    from benchmarks import operations

    given = operations.tensors(torch, operation)
    torch.cuda.synchronize()
    started = perf_counter()
    if side != SIDES[0]:
        of = "PyTorch" if side == "torch.compile" else side
        call = operations.direct(torch, of, operation)
        if side == "torch.compile":
            call = torch.compile(call, fullgraph=True)
        call(*given)
    torch.cuda.synchronize()
    print(perf_counter() - started)
