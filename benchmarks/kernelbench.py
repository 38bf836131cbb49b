"""KernelBench: each problem in a process of its own beside eager and torch.compile, under strict rules.

    python -m benchmarks kernelbench --root DIR [--levels 1,2,3] [--survey]

DIR holds `level1`, `level2` and `level3` of the benchmark, which is not part of this repository. A problem that has a
row in the folder of results is not run again, so an interrupted run goes on where it stopped. Several problems compile
side by side on a device; only one at a time is checked and timed there. `--part check` and `--part time` do one of the
two, and add to the same rows: checks may then run while something else uses the device. `--survey` needs no GPU:
problems are traced with tensors of their real sizes that have no contents, and their kernels are generated and proved.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from argus.written import write_whole
from benchmarks.measure import means, reason
from benchmarks.table import Cell, Results

_ENVIRONMENT = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
"""The server that processes are forked from must not touch CUDA; each process compiles by itself."""


@dataclass(frozen=True)
class Plan:
    """Settings of a run. `floors`: a file with the least time of each problem, and times of earlier runs; `folder`:
    keeps the rows; `seconds`: a problem's limit; `devices`: numbers of GPUs that share the problems; `workers`:
    processes a GPU; `compiled`: False takes torch.compile's times from the file of floors; `part`: one of `PARTS`."""

    root: Path
    levels: tuple[int, ...]
    folder: Path
    floors: Path | None
    seconds: float
    batches: int
    devices: tuple[int, ...]
    survey: str
    only: tuple[str, ...] = ()
    workers: int = 1
    compiled: bool = True
    part: str = "all"


PARTS = ("all", "check", "time")
"""What is done with a problem: its results are checked, it is timed, or both."""


@dataclass(frozen=True)
class Task:
    """A problem for a process of its own, which writes its row to `row` and whatever it prints to `log`."""

    file: Path
    row: Path
    log: Path
    lock: Path
    device: int
    batches: int
    survey: str
    sides: tuple[str, ...]
    workers: int
    part: str


def run(plan: Plan) -> Results:
    """Run what has no row yet, and return the table of all rows.

    A problem that finds too little memory beside others is run again when it has a device for itself."""
    plan.folder.mkdir(parents=True, exist_ok=True)
    for variable, value in _ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
    known = _floors(plan.floors)
    crowded = _run_all(plan, known, [p for p in problems(plan) if _is_due(plan, p)], plan.workers)
    _run_all(plan, known, crowded, 1)
    rows = [row for p in problems(plan) if (row := _row(plan, p)) is not None]
    return Results("KernelBench", rows, _notes(plan), _summary(rows))


def _is_due(plan: Plan, file: Path) -> bool:
    """Return True if a problem has no row yet, or one without what this run looks for."""
    row = _row(plan, file)
    if row is None:
        return True
    return (plan.part == "time" and row["argus_us"] is None) or (plan.part == "check" and not row["correct"])


def _row(plan: Plan, file: Path) -> dict[str, Any] | None:
    """Return a problem's row, or None if it has none."""
    path = _row_file(plan, file)
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def _run_all(plan: Plan, known: dict[str, dict[str, Any]], files: list[Path], workers: int) -> list[Path]:
    """Run problems by so many processes a device; returns those that lacked memory beside others."""
    free = [device for device in plan.devices for _ in range(workers)]
    crowded = []
    with ThreadPoolExecutor(len(free)) as pool:
        running = {pool.submit(_one, plan, file, free): file for file in files}
        for count, done in enumerate(as_completed(running), 1):
            file, row = running[done], _result(running[done], done)
            if workers > 1 and row["note"] == OUT_OF_MEMORY:
                crowded.append(file)
                continue
            floors = known.get(name(file), {})
            row |= {"floor_us": floors.get("floor_us")}
            row |= {} if plan.compiled or plan.survey else {"compile_us": floors.get("compile_us")}
            row = _joined(_row(plan, file), row)
            write_whole(_row_file(plan, file), (json.dumps(row) + "\n").encode())
            print(f"{count}/{len(files)} {_told(row)}", file=sys.stderr, flush=True)
    return crowded


def _joined(earlier: dict[str, Cell] | None, row: dict[str, Cell]) -> dict[str, Cell]:
    """Return an earlier run's row with what this run found. If a problem was checked and cannot be timed, it stays
    checked, with a note."""
    if earlier is None:
        return row
    found = {key: value for key, value in row.items() if value not in (None, "")}
    if row["argus_us"] is None and earlier["correct"]:
        del found["correct"]
    return earlier | found


def _result(file: Path, done: Future[dict[str, Cell]]) -> dict[str, Cell]:
    """Return a problem's row, also where its process could not be run or said nothing that can be read."""
    try:
        return done.result()
    except (OSError, ValueError, EOFError) as error:
        return {"problem": name(file)} | EMPTY | {"note": reason(error)}


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


def _one(plan: Plan, file: Path, free: list[int]) -> dict[str, Cell]:
    """The row of a problem, measured by a process of its own."""
    device = free.pop()
    try:
        task = _task(plan, file, device)
        processes = get_context("forkserver")
        processes.set_forkserver_preload(["benchmarks.kernelbench_problem"])
        child = processes.Process(target=_in_child, args=(task,))
        child.start()
        child.join(plan.seconds)
        late = child.is_alive()
        child.kill()
        child.join()
    finally:
        free.append(device)
    if task.row.exists():
        row: dict[str, Cell] = {"problem": name(file)} | json.loads(task.row.read_text(encoding="utf-8"))
        task.row.unlink()
        task.log.unlink()
        return row
    said = task.log.read_text(encoding="utf-8", errors="replace").strip() if task.log.exists() else ""
    lines = [line for line in said.splitlines() if line.strip()]
    why = f"not done after {plan.seconds:g} s" if late else next(reversed(lines), f"status {child.exitcode}")
    why = OUT_OF_MEMORY if any(OUT_OF_MEMORY in line for line in lines) else why
    return {"problem": name(file)} | EMPTY | {"note": why}


def _task(plan: Plan, file: Path, device: int) -> Task:
    row = _row_file(plan, file)
    sides = ("eager", "compile", "argus") if plan.compiled else ("eager", "argus")
    processes = len(plan.devices) * plan.workers
    return Task(
        file,
        row.with_suffix(".made"),
        row.with_suffix(".log"),
        plan.folder / f"device{device}.{_turn(plan, file)}.lock",
        device,
        plan.batches,
        plan.survey,
        sides,
        max(1, (os.cpu_count() or 1) // processes),
        plan.part,
    )


_CHECKED_BESIDE = 3
"""How many problems are checked side by side on a device if nothing is timed."""


def _turn(plan: Plan, file: Path) -> int:
    """Return the number of the lock for which a problem waits."""
    return int(file.stem.partition("_")[0]) % _CHECKED_BESIDE if plan.part == "check" else 0


def _in_child(task: Task) -> None:
    """Import only in the child's process what is large."""
    from benchmarks.kernelbench_problem import run_task

    run_task(task)


OUT_OF_MEMORY = "CUDA out of memory"
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


def _floors(file: Path | None) -> dict[str, dict[str, Any]]:
    if file is None:
        return {}
    return {row["problem"]: row for row in json.loads(file.read_text(encoding="utf-8"))}


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
        *([] if plan.compiled else ["compile_us: from an earlier run, in the file of floors"]),
    ]
