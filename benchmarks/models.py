"""Whole models compared with eager and torch.compile: published widths, few layers, random weights.

    python -m benchmarks models [--only NAME] [--workers N] [--survey generate|prove] [--small]

Each model runs for inference and for one training step: forward, mean square of the results, gradients of all
parameters. Results are compared with the model in float64. Each case has a process of its own, which writes its row to
a folder; several of them compile side by side, and one at a time is checked and timed. Beside each row lie the kernels
that every side launched, with their times.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import Row, means, needs_gpu, through
from benchmarks.model_case import SIDES, Case, surveyed
from benchmarks.model_zoo import MODELS
from benchmarks.table import Results


@dataclass(frozen=True)
class Plan:
    """Settings of a run. `modes`: False for inference, True for training; `sides`: what is measured, "eager" and
    others of `SIDES`; `folder`: keeps rows; `seconds`: limit of a case; `workers`: processes side by side."""

    only: tuple[str, ...]
    modes: tuple[bool, ...]
    small: bool
    survey: str
    batches: int
    sides: tuple[str, ...]
    folder: Path
    seconds: float
    workers: int

    def cases(self) -> list[Case]:
        """Return the cases of the chosen models."""
        return [Case(name, training, self.small) for training in self.modes for name in self.only or MODELS]


def run(plan: Plan) -> Results:
    """Make the table of all models, or of the chosen ones."""
    if unknown := set(plan.sides) - {"eager", *SIDES}:
        raise SystemExit(
            f"benchmarks models: no side {', '.join(sorted(unknown))}; there are eager, {', '.join(SIDES)}"
        )
    if plan.survey:
        found, problems = through(plan.cases(), lambda case: ([surveyed(case, plan.survey == "prove")], []), _told)
        return Results("models, not run", found, ["shares are of the estimated time on an H200", *problems])
    needs_gpu("models")
    plan.folder.mkdir(parents=True, exist_ok=True)
    rows, problems = _side_by_side(plan)
    notes = ["bfloat16; errors are root mean squares against float64, of results or of all gradients"]
    return Results("models", rows, notes + problems, _summary(rows))


def _side_by_side(plan: Plan) -> tuple[list[Row], list[str]]:
    """Return the rows of all cases in their order, and the reasons of those without a row."""
    rows: dict[Case, Row] = {}
    problems = []
    with ThreadPoolExecutor(plan.workers) as pool:
        running = {pool.submit(_one, plan, case): case for case in plan.cases()}
        for done in as_completed(running):
            found = done.result()
            if isinstance(found, str):
                problems.append(f"{running[done]}: {found}")
            else:
                rows[running[done]] = found
            print(found if isinstance(found, str) else _told(found), file=sys.stderr, flush=True)
    return [rows[case] for case in plan.cases() if case in rows], problems


def _one(plan: Plan, case: Case) -> Row | str:
    """Return the row of a case, measured by a process of its own, or the reason why there is none."""
    file = plan.folder / f"{case.model}-{'training' if case.training else 'inference'}.json"
    file.unlink(missing_ok=True)
    asked = {
        "model": case.model, "training": case.training, "small": case.small, "sides": plan.sides,
        "batches": plan.batches, "row": str(file), "lock": str(plan.folder / "device.lock"),
        "workers": max(1, (os.cpu_count() or 1) // plan.workers),
    }  # fmt: skip
    command = [sys.executable, "-m", "benchmarks.model_case", json.dumps(asked)]
    with file.with_suffix(".log").open("w", encoding="utf-8") as log:
        try:
            subprocess.run(command, stdout=log, stderr=log, timeout=plan.seconds, check=False)
        except subprocess.TimeoutExpired:
            return f"{case}: not done after {plan.seconds:g} s"
    if file.exists():
        row: Row = json.loads(file.read_text(encoding="utf-8"))
        return row
    said = file.with_suffix(".log").read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return f"{case}: {said[-1] if said else 'the process wrote nothing'}"


def _summary(rows: Sequence[Row]) -> dict[str, float | int | str | None]:
    found: dict[str, float | int | str | None] = {}
    for column in dict.fromkeys(key for row in rows for key in row if key.startswith("over ")):
        found |= means(rows, column)
    return found


def _told(row: Row) -> str:
    cells = (f"{value:.3g}" if isinstance(value, float) else value for value in row.values())
    return ", ".join(f"{key} {cell}" for key, cell in zip(row, cells, strict=True))
