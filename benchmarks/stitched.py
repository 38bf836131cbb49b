"""KernelBench through `argus optimize reference.py`, without a language model: what tuning adds to the first draft.

The first draft is what the compiler's backend makes. Reference, draft and best are timed by the same process.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean

from argus.agents.optimize import Folder
from argus.agents.stitch import Limits, prepare, stitch
from argus.diagnostic import ArgusError
from benchmarks.kernelbench import Plan, name, problems
from benchmarks.measure import needs_gpu
from benchmarks.table import Cell, Results

_WORKERS = min(16, len(os.sched_getaffinity(0)))
_COLUMNS = ("reference us", "draft us", "best us", "draft", "best", "best over draft")


@dataclass(frozen=True, slots=True)
class How:
    """The folder of the runs, the attempts for a kernel, problems at a time, when no problem begins any more (monotonic
    seconds), and the target of a preparation; "" to time."""

    folder: Path
    attempts: int
    jobs: int
    end: float
    target: str = ""


def run(how: How, root: Path, levels: Sequence[int], only: Sequence[str], every: int) -> Results:
    """Stitch every so many-th problem of the levels, or those named, several at a time; only one is timed at a time.

    With a target, no GPU is needed: what will be tried is proved and built for the cache, and ranked for the folder.
    """
    if not how.target:
        needs_gpu("stitched")
    os.environ["TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"] = "1"  # for the processes that run the models
    plan = Plan(root, tuple(levels), how.folder, None, 0.0, 0, (0,), "", tuple(only))
    chosen = list(problems(plan))[:: 1 if only else every]
    rows: list[dict[str, Cell]] = []
    with ThreadPoolExecutor(how.jobs) as pool:
        for done in as_completed([pool.submit(_row, how, file) for file in chosen]):
            row = done.result()
            if row is not None:
                rows.append(row)
                print(row, flush=True)
    note = (
        f"{len(rows)} of {len(chosen)} problems; at most {how.attempts} attempts a kernel, one plan; products in TF32; "
        f"{how.jobs} problems at a time, one of them compared or timed"
    )
    return Results("KernelBench through stitch", rows, (note,), _summary(rows))


def _row(how: How, file: Path) -> dict[str, Cell] | None:
    if time.monotonic() > how.end:
        return None
    row: dict[str, Cell] = {"problem": name(file), **dict.fromkeys(_COLUMNS), "note": ""}
    folder = Folder(how.folder / name(file).replace("/", "_"))
    limits = Limits(how.attempts, 0, 2, workers=1 if how.jobs > 1 else _WORKERS)
    try:
        if how.target:
            return {**row, "note": f"{prepare(file, how.target, folder, limits)} kernels prepared"}
        found = stitch(file, "cuda:0", folder, limits)
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
