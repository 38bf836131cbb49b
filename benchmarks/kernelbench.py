"""KernelBench: each problem in a process of its own beside eager and torch.compile, under strict rules.

    python -m benchmarks kernelbench --root DIR [--levels 1,2,3] [--survey]

DIR holds `level1`, `level2` and `level3` of the benchmark, which is not part of this repository. A problem that has a
row in the folder of results is not run again, so an interrupted run goes on where it stopped. `--survey` needs no GPU:
problems are traced with tensors of their real sizes that have no contents, and their kernels are generated and proved.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measure import means
from benchmarks.table import Cell, Results


@dataclass(frozen=True)
class Plan:
    """Settings of a run. `floors`: a file with the least time of each problem; `folder`: keeps the rows; `seconds`: a
    problem's limit; `devices`: numbers of GPUs that share the problems; `workers`: processes that compile ahead."""

    root: Path
    levels: tuple[int, ...]
    folder: Path
    floors: Path | None
    seconds: float
    batches: int
    devices: tuple[int, ...]
    survey: str
    only: tuple[str, ...] = ()
    workers: int = 0


def run(plan: Plan) -> Results:
    """Run what has no row yet, and return the table of all rows."""
    plan.folder.mkdir(parents=True, exist_ok=True)
    floors = _floors(plan.floors)
    missing = [p for p in problems(plan) if not _row_file(plan, p).exists()]
    if plan.workers:
        _prepare(plan, missing)
    with ThreadPoolExecutor(len(plan.devices)) as pool:
        free = list(plan.devices)
        running = {pool.submit(_one, plan, p, free): p for p in missing}
        for count, done in enumerate(as_completed(running), 1):
            row = done.result() | {"floor_us": floors.get(name(running[done]))}
            _row_file(plan, running[done]).write_text(json.dumps(row) + "\n", encoding="utf-8")
            print(f"{count}/{len(missing)} {_told(row)}", file=sys.stderr, flush=True)
    rows = [json.loads(f.read_text(encoding="utf-8")) for p in problems(plan) if (f := _row_file(plan, p)).exists()]
    return Results("KernelBench", rows, _notes(plan), _summary(rows))


def problems(plan: Plan) -> Iterator[Path]:
    """The files of the levels, in the order of their numbers."""
    for level in plan.levels:
        files = (plan.root / f"level{level}").glob("*.py")
        for file in sorted(files, key=lambda f: int(f.stem.partition("_")[0])):
            if not plan.only or any(f"{level}/{file.stem}".startswith(text) for text in plan.only):
                yield file


def name(file: Path) -> str:
    """The name of a problem: "2/15_ConvTranspose3d_BatchNorm_Subtract"."""
    return f"{file.parent.name.removeprefix('level')}/{file.stem}"


def _row_file(plan: Plan, file: Path) -> Path:
    return plan.folder / f"{name(file).replace('/', '_')}.json"


def _prepare(plan: Plan, files: Sequence[Path]) -> None:
    """Compile every problem once, several at a time, so that the caches of all sides are full when times are taken."""

    def compiled(place: int) -> None:
        with suppress(subprocess.TimeoutExpired):
            _process(plan, files[place], plan.devices[place % len(plan.devices)], batches=0)

    with ThreadPoolExecutor(plan.workers) as pool:
        for count, _ in enumerate(pool.map(compiled, range(len(files))), 1):
            print(f"compiled {count}/{len(files)}", file=sys.stderr, flush=True)


def _process(plan: Plan, file: Path, device: int, batches: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.kernelbench_problem", str(file), str(batches), plan.survey]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": str(device), "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(command, capture_output=True, text=True, timeout=plan.seconds, env=environment, check=False)


def _one(plan: Plan, file: Path, free: list[int]) -> dict[str, Cell]:
    """The row of a problem, measured by a process of its own."""
    device = free.pop()
    try:
        done = _process(plan, file, device, plan.batches)
        lines = done.stdout.strip().splitlines()
        if done.returncode == 0 and lines:
            return {"problem": name(file)} | json.loads(lines[-1])
        why = next(iter(reversed(done.stderr.strip().splitlines())), f"status {done.returncode}")
    except subprocess.TimeoutExpired:
        why = f"not done after {plan.seconds:g} s"
    finally:
        free.append(device)
    return {"problem": name(file)} | EMPTY | {"note": why}


EMPTY: dict[str, Any] = {
    "correct": "no", "eager_us": None, "compile_us": None, "argus_us": None, "proved_share": None,
    "peak_memory": None, "note": "",
}  # fmt: skip


def _told(row: dict[str, Cell]) -> str:
    share = row["proved_share"]
    figures = [f"{key} {row[key]:.0f}" for key in ("eager_us", "compile_us", "argus_us") if row[key] is not None]
    parts = [str(row["problem"]), str(row["correct"]), *figures]
    parts += [f"{share:.0%} proved"] if isinstance(share, float) else []
    return ", ".join([*parts, str(row["note"])[:300]])


def _floors(file: Path | None) -> dict[str, float]:
    if file is None:
        return {}
    return {row["problem"]: row["floor_us"] for row in json.loads(file.read_text(encoding="utf-8"))}


_CONSTANT = ("2/23_", "2/80_", "2/83_")
"""Problems whose result does not depend on their inputs."""


def _summary(rows: Sequence[dict[str, Any]]) -> dict[str, Cell]:
    found: dict[str, Cell] = {}
    for level in sorted({row["problem"][0] for row in rows}):
        own = [row | _ratios(row) for row in rows if row["problem"].startswith(level)]
        found |= _of_level(f"level {level}", own)
        if any(row["problem"].startswith(_CONSTANT) for row in own):
            rest = [row for row in own if not row["problem"].startswith(_CONSTANT)]
            found |= _of_level(f"level {level} without constant results", rest)
    return found


def _of_level(title: str, rows: list[dict[str, Any]]) -> dict[str, Cell]:
    found: dict[str, Cell] = {f"{title}: correct": f"{sum(r['correct'] == 'yes' for r in rows)} of {len(rows)}"}
    for column in ("over eager", "over compile", "over the better", "of the floor", "peak_memory"):
        found |= {f"{title}: {what}": value for what, value in means(rows, column).items()}
    shares = [row["proved_share"] for row in rows if row["proved_share"] is not None]
    if shares:
        found[f"{title}: mean share proved"] = sum(shares) / len(shares)
    return found


def _ratios(row: dict[str, Any]) -> dict[str, Cell]:
    """Return the speed-ups over each side; a problem that is not correct has none."""
    own = row["argus_us"] if row["correct"] == "yes" else None
    sides = [row[key] for key in ("eager_us", "compile_us") if row[key] is not None]

    def over(time: float | None) -> float | None:
        return None if own is None or time is None else time / own

    return {
        "over eager": over(row["eager_us"]),
        "over compile": over(row["compile_us"]),
        "over the better": over(min(sides, default=None)),
        "of the floor": over(row["floor_us"]),
    }


def _notes(plan: Plan) -> list[str]:
    if plan.survey:
        return ["nothing was run: shares are of the estimated time of all operators", "a kernel is proved for sm_90a"]
    return [
        "TF32 allowed; models in evaluation mode; median of batches, in turns",
        "correct: within 1e-3 of float64 for inputs times 1, 3, 0.01 and -1 with fresh seeds, or, where eager is not, "
        "at most 1.25 times eager's error",
        "peak_memory: ours over eager's",
    ]
