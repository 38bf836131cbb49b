"""From the start of Python to a launchable kernel, nothing cached: the whole way, and its steps one after the other.

Each run is a process of its own. The steps are `argus.compile`'s; on the whole way the compiler works while the proof
does, so that it takes less than their sum.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from statistics import median
from time import perf_counter, process_time
from typing import Any

from benchmarks.table import Cell, Results

_RUNS = 3

Step = tuple[str, float, float]
"""What was done, and seconds of it by the clock and of the processor in this process."""


def run(target: str) -> Results:
    """Rows "step", "ms", "cpu ms" of the product with tensor maps, the default constants."""
    rows: list[dict[str, Cell]] = []
    for way in ("whole", "steps"):
        found = [_in_a_process(way, target) for _ in range(_RUNS)]
        for step in zip(*found, strict=True):
            clock, cpu = (1e3 * median(entry[place] for entry in step) for place in (1, 2))
            rows.append({"step": step[0][0], "ms": clock, "cpu ms": cpu})
    notes = (
        f"medians of {_RUNS} runs, each a process of its own with an empty cache of kernels",
        "cpu ms: of the process itself; compilers are others",
    )
    return Results(f"From Python to a launchable gemm for {target}", rows, notes)


def _in_a_process(way: str, target: str) -> list[Step]:
    """The steps of one run, of which the first is Python's own start."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "ARGUS_CACHE_DIR": folder}
        command = [sys.executable, "-c", f"from benchmarks.cold import report; report({way!r}, {target!r})"]
        started = perf_counter()
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        begun, steps = json.loads(done.stdout)
    start: Step = ("start of Python", begun - started, steps[0][2])
    if way == "whole":
        return [("all, from the start of Python", begun - started + steps[1][1], steps[0][2] + steps[1][2])]
    return [start, *(tuple(step) for step in steps[1:])]


def report(way: str, target: str) -> None:
    """Prints when it began, by the clock that all processes share, and its steps, as JSON."""
    begun, used = perf_counter(), process_time()
    steps: list[Step] = [("", 0.0, used), *({"whole": _whole, "steps": _steps}[way](target))]
    print(json.dumps((begun, steps)))


def _measured(what: str, work: Callable[[], Any], steps: list[Step]) -> Any:
    clock, cpu = perf_counter(), process_time()
    result = work()
    steps.append((what, perf_counter() - clock, process_time() - cpu))
    return result


def _whole(target: str) -> list[Step]:
    def work() -> None:
        from argus.kernels.gemm import gemm

        gemm.build(target)

    steps: list[Step] = []
    _measured("all", work, steps)
    return steps


def _steps(target: str) -> list[Step]:
    steps: list[Step] = []

    def kernels() -> Any:
        from argus.kernels.gemm import gemm

        return gemm

    def compiler() -> Any:
        from argus import compile

        return compile

    kernel = _measured("import of the kernels", kernels, steps)
    compile = _measured("import of the compiler", compiler, steps)
    from argus.backend import build
    from argus.backend.emit import emit
    from argus.frontend import Options, check, parse
    from argus.passes import lower

    text = kernel.source.text
    module = _measured("parse", lambda: parse(text.file), steps)
    tile = _measured("check", lambda: check(module, text.name, Options(target)), steps)
    explicit = _measured("lower", lambda: lower(tile, target), steps)
    _measured("prove", lambda: compile.examine(explicit), steps)
    source = _measured("emit", lambda: emit(explicit), steps)
    _measured("compile to machine code", lambda: build.build(explicit, target, source), steps)
    return steps
