"""KernelBench through `argus optimize reference.py`, without a language model: what tuning adds to the first draft.

The first draft is what the compiler's backend makes. Reference, draft and best are timed by the same process.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import geometric_mean

from argus.agents.optimize import Folder
from argus.agents.stitch.loop import Limits, stitch
from argus.diagnostic import ArgusError
from benchmarks.kernelbench import Plan, name, problems
from benchmarks.measure import needs_gpu
from benchmarks.table import Cell, Results

_COLUMNS = ("reference us", "draft us", "best us", "draft", "best", "best over draft")


def run(root: Path, folder: Path, levels: Sequence[int], only: Sequence[str], every: int, attempts: int,
        seconds: float) -> Results:  # fmt: skip
    """Stitch every so many-th problem of the levels, or those named, until some seconds are over."""
    needs_gpu("stitched")
    os.environ["TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"] = "1"  # for the processes that run the models
    end, rows = time.monotonic() + seconds, list[dict[str, Cell]]()
    plan = Plan(root, tuple(levels), folder, None, 0.0, 0, (0,), "", tuple(only))
    chosen = list(problems(plan))[:: 1 if only else every]
    for file in chosen:
        if time.monotonic() > end:
            break
        rows.append(_row(file, folder, attempts))
        print(rows[-1], flush=True)
    note = (
        f"{len(rows)} of {len(chosen)} problems; at most {attempts} attempts a kernel, one plan; products in TF32"
    )
    return Results("KernelBench through stitch", rows, (note,), _summary(rows))


def _row(file: Path, folder: Path, attempts: int) -> dict[str, Cell]:
    row: dict[str, Cell] = {"problem": name(file), **dict.fromkeys(_COLUMNS), "note": ""}
    try:
        found = stitch(file, "cuda:0", Folder(folder / name(file).replace("/", "_")), Limits(attempts, 0, 2))
    except ArgusError as error:
        return {**row, "note": str(error.diagnostics[0].message)[:200]}
    times = (found.reference_us, found.draft_us, found.best_us)
    ratios = (times[0] / times[1], times[0] / times[2], times[1] / times[2])
    return {**row, **dict(zip(_COLUMNS, (*times, *ratios), strict=True))}


def _summary(rows: Sequence[dict[str, Cell]]) -> dict[str, Cell]:
    found: dict[str, Cell] = {}
    for column in ("draft", "best", "best over draft"):
        values = [v for row in rows if isinstance(v := row[column], float)]
        found[f"{column}, geometric mean"] = geometric_mean(values) if values else None
    return found
