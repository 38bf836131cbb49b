"""Time proofs by kernel, property and engine. Each kernel has a separate process, timed after its imports."""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter, process_time

from argus.backend.cache import DiskCache
from argus.compile import elaborate, lower, verify
from argus.diagnostic import ArgusError
from argus.frontend import Options, parse
from argus.runtime.executable import CachedSource
from argus.source import SourceFile
from benchmarks.table import Cell, Results

LIMIT_S = 300.0
VARIANTS: dict[str, tuple[dict[str, object], ...]] = {
    "gemm": ({"CLUSTER": 2},),
    "gemm_hopper": ({"CLUSTER": 2},),
    "attention_forward": (
        {"CAUSAL": True, "SCHEDULE": "turns"},
        {"D": 64, "BLOCK_M": 192, "BLOCK_N": 128, "num_warps": 12},
    ),
}
"""Constants that kernels are measured with besides their defaults."""


@dataclass(frozen=True, slots=True)
class Case:
    """A kernel of a file, with constants other than its defaults."""

    path: Path
    name: str
    target: str
    constants: Mapping[str, object] = field(default_factory=dict)

    @property
    def file(self) -> SourceFile:
        """The kernel's text."""
        return SourceFile(str(self.path), self.path.read_text(encoding="utf-8"))

    @property
    def label(self) -> str:
        """The kernel's name and constants."""
        return self.name + "".join(f" {name}={value}" for name, value in self.constants.items())

    @property
    def options(self) -> Options:
        """Return the options with which the kernel is compiled."""
        others = {name: value for name, value in self.constants.items() if name != "num_warps"}
        warps = self.constants.get("num_warps")
        return Options(target=self.target, num_warps=warps if isinstance(warps, int) else None, constexprs=others)


def cases_of(target: str, paths: list[Path]) -> Iterator[Case]:
    """All kernels of files and folders of files."""
    for file in sorted(f for path in paths for f in (path.glob("*.py") if path.is_dir() else (path,))):
        for kernel in parse(SourceFile(str(file), file.read_text(encoding="utf-8"))).kernels:
            for constants in ({}, *VARIANTS.get(kernel, ())):
                yield Case(file, kernel, target, constants)


def run(target: str, paths: list[Path]) -> Results:
    """Rows "kernel", "property", "engine", "ms", and a total a kernel, with its verdict and "cpu ms"."""
    rows: list[dict[str, Cell]] = []
    notes = ["each kernel in a process of its own, after the imports; all sizes symbolic",
             "cpu ms: of the process, its solvers included; from the cache: all that a first call needs"]  # fmt: skip
    context = multiprocessing.get_context("spawn")
    for case in cases_of(target, paths):
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            found = pool.submit(measured, case).result()
        if isinstance(found, str):
            notes.append(f"not measured: {case.label}: {found}")
        else:
            rows += found
    return Results(f"Verification for {target}", rows, tuple(notes))


def measured(case: Case) -> list[dict[str, Cell]] | str:
    """The rows of one kernel, or why it has none for this target."""
    import argus.verify  # noqa: F401  with its solvers, which `verify` would import

    start = perf_counter()
    try:
        tile = elaborate(case.file, case.name, case.options)
        checked = perf_counter()
        explicit = lower(tile, case.target)
    except ArgusError as error:
        return error.diagnostics[0].message
    lowered, used = perf_counter(), process_time()
    report = verify(explicit, LIMIT_S)
    done, used = perf_counter(), process_time() - used
    parts: dict[tuple[str, str], float] = {("front end", ""): checked - start, ("passes", ""): lowered - checked}
    for t in report.timings:
        parts[t.property, t.engine] = parts.get((t.property, t.engine), 0.0) + t.seconds
    parts[f"total: {report.verdict.value}", ""] = done - lowered
    rows: list[dict[str, Cell]] = [
        {"kernel": case.label, "property": what, "engine": engine, "ms": 1e3 * seconds, "cpu ms": None}
        for (what, engine), seconds in parts.items()
    ]
    rows[-1] = {**rows[-1], "cpu ms": 1e3 * used}
    again = _from_cache(case)
    cached: Cell = None if again is None else 1e3 * again
    return [
        *rows,
        {"kernel": case.label, "property": "from the cache", "engine": "", "ms": cached, "cpu ms": None},
    ]


def _from_cache(case: Case) -> float | None:
    """Seconds until a kernel that was proved and built before is there again; None where it cannot be built."""
    with tempfile.TemporaryDirectory() as folder:
        text = CachedSource(case, DiskCache(Path(folder)))
        try:
            text.executable(case.options)
        except ArgusError:
            return None
        start = perf_counter()
        text.executable(case.options)
        return perf_counter() - start
