"""The steps that `benchmarks.cold` runs in a separate process. It imports almost nothing, because imports take time."""

from __future__ import annotations

import json
from collections.abc import Callable
from time import perf_counter, process_time
from typing import Any

Step = tuple[str, float, float]
"""What was done, and seconds of it by the clock and of the processor in this process."""


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
    _measured("prove", lambda: compile.verify(explicit), steps)
    source = _measured("emit", lambda: emit(explicit), steps)
    _measured("compile to machine code", lambda: build.build(explicit, target, source), steps)
    return steps
