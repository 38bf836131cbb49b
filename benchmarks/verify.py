"""How long proofs take, by kernel, property and engine."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from statistics import median
from time import perf_counter

from argus.compile import elaborate
from argus.frontend import Options, parse
from argus.ir.nodes import Kernel
from argus.passes import lower
from argus.source import SourceFile
from argus.verify import verify
from benchmarks.table import Cell, Results


def run(target: str, folder: Path, repeats: int) -> Results:
    """Rows "kernel", "property", "engine", "ms", and a total a kernel with its verdict, lowering included."""
    rows: list[dict[str, Cell]] = []
    for path in sorted(folder.glob("*.py")):
        source = SourceFile(str(path), path.read_text(encoding="utf-8"))
        for function in parse(source).functions:
            if function.kind == "kernel":
                rows += _kernel(source, function.name, target, repeats)
    return Results(
        f"Verification for {target}",
        rows,
        (f"median of {repeats} runs in one process; the first loads the solvers", "total: of the verifier alone"),
    )


def _kernel(source: SourceFile, name: str, target: str, repeats: int) -> list[dict[str, Cell]]:
    options = Options(target=target)
    start = perf_counter()
    tile = elaborate(source, name, options)
    checked = perf_counter()
    explicit = lower(tile, target)
    lowered = perf_counter()
    verdict, total, parts = _verify(explicit, repeats)
    front = [("front end", "", checked - start), ("passes", "", lowered - checked)]
    rows = [(what, engine, seconds) for (what, engine), seconds in parts.items()]
    return [
        {"kernel": name, "property": what, "engine": engine, "ms": 1e3 * seconds}
        for what, engine, seconds in (*front, *rows, (f"total: {verdict}", "", total))
    ]


def _verify(kernel: Kernel, repeats: int) -> tuple[str, float, dict[tuple[str, str], float]]:
    """The verdict, median seconds in all, and median seconds by property and engine."""
    parts: dict[tuple[str, str], list[float]] = defaultdict(list)
    totals: list[float] = []
    verdict = ""
    for _ in range(max(repeats, 1)):
        start = perf_counter()
        report = verify(kernel)
        totals.append(perf_counter() - start)
        verdict = report.verdict.value
        for key in {(t.property, t.engine) for t in report.timings}:
            parts[key].append(sum(t.seconds for t in report.timings if (t.property, t.engine) == key))
    return verdict, median(totals), {key: median(seconds) for key, seconds in sorted(parts.items())}
