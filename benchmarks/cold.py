"""Time from the start of Python to a launchable kernel with nothing cached: in total, and step by step.

Each run is a separate process. Python's modules are bytecode, as after an installation: a first run, which does not
count, writes it. The steps are those of `argus.compile`. In the total, the compiler works while the proof
does, so that it takes less than the sum of the steps.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from statistics import median
from time import perf_counter

from benchmarks.cold_steps import Step
from benchmarks.table import Cell, Results

_RUNS = 3


def run(target: str) -> Results:
    """Rows "step", "ms", "cpu ms" of the product with tensor maps, the default constants."""
    rows: list[dict[str, Cell]] = []
    with tempfile.TemporaryDirectory() as bytecode:
        _in_a_process("steps", target, bytecode)
        for way in ("whole", "steps"):
            found = [_in_a_process(way, target, bytecode) for _ in range(_RUNS)]
            for step in zip(*found, strict=True):
                clock, cpu = (1e3 * median(entry[place] for entry in step) for place in (1, 2))
                rows.append({"step": step[0][0], "ms": clock, "cpu ms": cpu})
    notes = (
        f"medians of {_RUNS} runs, each a process of its own with an empty cache of kernels, modules as bytecode",
        "cpu ms: of the process itself; compilers are others",
    )
    return Results(f"From Python to a launchable gemm for {target}", rows, notes)


def _in_a_process(way: str, target: str, bytecode: str) -> list[Step]:
    """The steps of one run, of which the first is Python's own start."""
    with tempfile.TemporaryDirectory() as folder:
        # CUDA_CACHE_PATH: NVRTC keeps what it compiled there.
        own = {"ARGUS_CACHE_DIR": folder, "CUDA_CACHE_PATH": folder, "PYTHONPYCACHEPREFIX": bytecode}
        environment = {**os.environ, **own, "PYTHONDONTWRITEBYTECODE": ""}
        command = [sys.executable, "-c", f"from benchmarks.cold_steps import report; report({way!r}, {target!r})"]
        started = perf_counter()
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        begun, steps = json.loads(done.stdout)
    start: Step = ("start of Python", begun - started, steps[0][2])
    if way == "whole":
        return [("all, from the start of Python", begun - started + steps[1][1], steps[0][2] + steps[1][2])]
    return [start, *(tuple(step) for step in steps[1:])]
