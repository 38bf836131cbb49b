"""Check the proofs of everything that ships: a second opinion on each answer, and proofs without simpler forms.

The kernels are those of `benchmarks.mutants`. A run ends after `seconds`; the notes name kernels it did not reach.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, TimeoutError, as_completed
from multiprocessing import get_context

from argus.diagnostic import ArgusError, Verdict
from argus.verify import Report, verify
from benchmarks.mutants import SUBJECTS, Subject
from benchmarks.table import Cell, Results

Row = dict[str, Cell]


def run(jobs: int, seconds: float, limit_s: float, subjects: Sequence[Subject] = SUBJECTS) -> Results:
    """Rows by kernel: its verdict, the verdict of `exact` and what it left open, and how many answers the other engine
    agreed with, did not decide, and contradicts; last the sums."""
    end = time.monotonic() + seconds
    pool = ProcessPoolExecutor(jobs, get_context("spawn"))
    futures: dict[Future[Row], Subject] = {pool.submit(_row, subject, limit_s): subject for subject in subjects}
    rows: list[Row] = []
    try:
        for future in as_completed(futures, None if seconds == float("inf") else max(0.0, end - time.monotonic())):
            rows.append(future.result())
            print(rows[-1], flush=True)
    except TimeoutError:
        for process in list(pool._processes.values()):
            process.terminate()
    pool.shutdown(wait=False, cancel_futures=True)
    done = {row["what"] for row in rows}
    notes = [f"not reached: {subject.title}" for subject in subjects if subject.title not in done]
    notes += [f"{row['what']}: {row['why']}" for row in rows if row["why"]]
    order = {subject.title: number for number, subject in enumerate(subjects)}
    rows.sort(key=lambda row: order[str(row["what"])])
    for row in rows:
        del row["why"]
    return Results("What proofs rest on", [*rows, _sums(rows)], tuple(notes))


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
