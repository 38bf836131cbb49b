"""Check the proofs of everything that ships: a second opinion on each answer, and proofs without simpler forms.

The kernels are those of `benchmarks.mutants`. A run ends after `seconds`; the notes name kernels it did not reach.
Kernels that are judged are kept, and the next run of the same sources goes on from there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, TimeoutError, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from argus.diagnostic import ArgusError, Verdict
from argus.verify import Report, verify
from benchmarks.machine import sources
from benchmarks.mutants import SUBJECTS, Subject
from benchmarks.table import Cell, Results

Row = dict[str, Cell]


def run(
    jobs: int, seconds: float, limit_s: float, folder: Path, subjects: Sequence[Subject] = SUBJECTS
) -> Results:
    """Rows by kernel: its verdict, the verdict of `exact` and what it left open, and how many answers the other engine
    agreed with, did not decide, and contradicts; last the sums. `folder` keeps the rows."""
    kept = Kept(folder / "rows.jsonl", limit_s)
    titles = {subject.title for subject in subjects}
    rows = [row for row in kept.rows() if row["what"] in titles]
    done = {row["what"] for row in rows}
    rows += _judged([s for s in subjects if s.title not in done], jobs, seconds, kept)
    done = {row["what"] for row in rows}
    notes = [f"not reached: {subject.title}" for subject in subjects if subject.title not in done]
    notes += [f"{row['what']}: {row['why']}" for row in rows if row["why"]]
    order = {subject.title: number for number, subject in enumerate(subjects)}
    rows.sort(key=lambda row: order[str(row["what"])])
    rows = [{name: cell for name, cell in row.items() if name != "why"} for row in rows]
    return Results("What proofs rest on", [*rows, _sums(rows)], tuple(notes))


class Kept:
    """The rows of one experiment in a file, one a line: those of these sources, and of this limit."""

    def __init__(self, file: Path, limit_s: float) -> None:
        self.file, self.limit_s = file, limit_s
        self._of = {"sources": sources()["sources"], "limit": limit_s}
        file.parent.mkdir(parents=True, exist_ok=True)

    def rows(self) -> list[Row]:
        """Return the rows that there are."""
        texts = self.file.read_text(encoding="utf-8").splitlines() if self.file.exists() else []
        lines = (_parsed(text) for text in texts)
        return [line["row"] for line in lines if line is not None and line["of"] == self._of]

    def add(self, row: Row) -> None:
        """Append a row."""
        with self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"of": self._of, "row": row}) + "\n")


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        line: dict[str, Any] = json.loads(text)
    except ValueError:  # the end of a run that was stopped
        return None
    return line


def _judged(subjects: Sequence[Subject], jobs: int, seconds: float, kept: Kept) -> list[Row]:
    """Return the rows of subjects that are judged within `seconds`, and keep them."""
    if not subjects:
        return []
    pool = ProcessPoolExecutor(jobs, get_context("spawn"))
    futures: list[Future[Row]] = [pool.submit(_row, subject, kept.limit_s) for subject in subjects]
    rows: list[Row] = []
    try:
        for future in as_completed(futures, None if seconds == float("inf") else max(0.0, seconds)):
            rows.append(future.result())
            kept.add(rows[-1])
            print(rows[-1], flush=True)
    except TimeoutError:
        for process in list(pool._processes.values()):
            process.terminate()
    pool.shutdown(wait=False, cancel_futures=True)
    return rows


def _row(subject: Subject, limit_s: float) -> Row:
    kernel, started = subject.explicit(), time.process_time()
    try:
        report = verify(kernel, limit_s, second_opinion=True)
        spent = time.process_time() - started
        exact = verify(kernel, limit_s, exact=True)
    except ArgusError as error:
        raise RuntimeError(f"{subject.title}: {error}") from error
    counts = {name: sum(getattr(o, name) for o in report.opinions) for name in ("asked", "agreed", "undecided")}
    wrong = [text for opinion in report.opinions for text in opinion.disagreed]
    return {
        "what": subject.title,
        "target": subject.target,
        "verdict": report.verdict.value,
        "exact": exact.verdict.value,
        **counts,
        "disagreed": len(wrong),
        "s": spent,
        "exact s": exact.seconds,
        "why": " / ".join([*wrong[:2], *_open(exact)]),
    }


def _open(exact: Report) -> list[str]:
    return [d.message for d in exact.diagnostics if d.verdict is Verdict.UNKNOWN]


def _sums(rows: Sequence[Row]) -> Row:
    def total(name: str) -> float:
        return sum(float(str(row[name])) for row in rows)

    counts = {name: int(total(name)) for name in ("asked", "agreed", "undecided", "disagreed")}
    proved = {name: sum(row[name] == Verdict.PROVED.value for row in rows) for name in ("verdict", "exact")}
    every = {name: f"{number} of {len(rows)} proved" for name, number in proved.items()}
    return {"what": "all", "target": "", **every, **counts, "s": total("s"), "exact s": total("exact s")}
