"""Repair of random mutants without a language model, by how much a rejection says.

Three repairs try edits of the same list, with as many proofs: one reads the counterexample, one the error code alone,
one learns only that the proof failed.
"""

from __future__ import annotations

import multiprocessing
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import islice
from pathlib import Path

from argus.agents import Task, judge, repair
from argus.agents.edits import vocabulary
from argus.agents.repair import Candidate, candidate, explicit_form, search, text_candidates
from argus.agents.text_edits import TextEdit, text_vocabulary
from argus.agents.text_rules import sorts
from argus.agents.verifier import Judgement
from argus.diagnostic import Severity, Verdict
from argus.frontend import Options
from argus.source import SourceFile
from benchmarks.random_edits import changes
from benchmarks.table import Cell, Results

SUBJECTS = (
    ("examples/vector_add.py", "vector_add"),
    ("examples/transpose.py", "transpose"),
    ("examples/softmax.py", "softmax"),
    ("examples/rmsnorm.py", "rmsnorm"),
    ("examples/rotary.py", "rotary"),
    ("examples/column_sum.py", "column_sum"),
    ("examples/embedding.py", "embedding"),
    ("examples/depthwise.py", "depthwise"),
    ("examples/cumsum.py", "cumsum"),
    ("examples/linear.py", "linear"),
    ("examples/gemm.py", "gemm"),
)
TARGET = "sm_80"
_TRIES = 400
"""Random changes that are looked at for each mutant that is wanted: most do not parse or are no kernel."""


@dataclass(frozen=True, slots=True)
class Job:
    """The mutants of one subject with one seed, and what a repair may cost."""

    file: str
    kernel: str
    count: int
    seed: int
    steps: int
    limit_s: float
    end: float


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of mutants: all, and those repaired with each kind of feedback; and the proofs that repairs took."""

    mutants: int = 0
    dense: int = 0
    code: int = 0
    blind: int = 0
    steps: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


def run(count: int, seed: int, steps: int, limit_s: float, jobs: int, seconds: float) -> Results:
    """Repair `count` mutants of each subject that the proof refutes, drawn with `seed`, within some seconds."""
    end = time.time() + seconds
    work = [Job(file, kernel, 1, seed * 1000 + number, steps, limit_s, end)
            for number in range(count) for file, kernel in SUBJECTS]  # fmt: skip
    tallies: dict[str, Tally] = {kernel: Tally() for _, kernel in SUBJECTS}
    if jobs > 1:
        with multiprocessing.get_context("spawn").Pool(jobs) as pool:
            for kernel, tally in pool.imap_unordered(tally_of, work):
                tallies[kernel] += tally
    else:
        for kernel, tally in map(tally_of, work):
            tallies[kernel] += tally
    rows = [_row(kernel, tally) for kernel, tally in tallies.items()]
    rows.append(_row("all", sum(tallies.values(), Tally())))
    note = f"seed {seed}; at most {steps} proofs a mutant on each side; random changes of the author's text"
    return Results("Mutants repaired and proved", rows, (note,))


def _row(kernel: str, t: Tally) -> dict[str, Cell]:
    average = round(t.steps / t.dense, 1) if t.dense else None
    return {"kernel": kernel, "mutants": t.mutants, "counterexample": t.dense, "error code": t.code,
            "pass or fail": t.blind, "proofs of a repair": average}  # fmt: skip


def tally_of(job: Job) -> tuple[str, Tally]:
    """Repair the mutants of one job. What is not begun when its time is over does not count."""
    text = Path(job.file).read_text(encoding="utf-8")
    found = Tally()
    for task, before, what in islice(_rejected(job, text), job.count):
        if time.time() > job.end:
            break
        dense = repair(task, steps=job.steps, limit_s=job.limit_s)
        chance = random.Random(f"{job.seed} {what}")
        code = search(before, _by_code(task, before, chance), job.steps, job.limit_s)
        blind = search(before, _blind(task, before, chance), job.steps, job.limit_s)
        fixed = [f.answer is not None for f in (dense, code, blind)]
        found += Tally(1, int(fixed[0]), int(fixed[1]), int(fixed[2]), len(dense.steps) if fixed[0] else 0)
        said = f"{job.kernel}: {what}: " + ", ".join(
            f"{how} {len(f.steps) if ok else 'no'}"
            for how, f, ok in zip(("dense", "code", "blind"), (dense, code, blind), fixed, strict=True)
        )
        print(said, flush=True)
    return job.kernel, found


def _rejected(job: Job, text: str) -> Iterator[tuple[Task, Judgement, str]]:
    """Yield the changed texts that are kernels and that the proof refutes."""
    options = Options(target=TARGET)
    for change in islice(changes(text, job.kernel, job.seed), _TRIES * job.count):
        task = Task(SourceFile(job.file, change.text), job.kernel, options)
        try:
            before = judge(task, job.limit_s, simulated=False)
        except Exception:  # a text that the compiler fails on is no mutant
            continue
        if before.verdict is Verdict.REFUTED:
            yield task, before, f"{change.operator}, line {change.line}"


def _blind(task: Task, before: Judgement, chance: random.Random) -> Iterator[Candidate]:
    """All edits of the text and of the explicit kernel that keep the contract, in a random order."""
    edits: list[object] = list(text_vocabulary(task.source.text, task.name))
    form = explicit_form(task, before)
    edits += vocabulary(form[0]) if form is not None else []
    chance.shuffle(edits)
    return _candidates(task, before, edits)


def _by_code(task: Task, before: Judgement, chance: random.Random) -> Iterator[Candidate]:
    """The edits of the text in the order that the error code alone suggests, at any place."""
    code = next((d.code for d in before.diagnostics if d.severity is Severity.ERROR), "")
    likely = {sort: place for place, sort in enumerate(sorts(code))}
    edits = text_vocabulary(task.source.text, task.name)
    chance.shuffle(edits)
    return text_candidates(task, sorted(edits, key=lambda e: likely.get(e.sort, len(likely))))


def _candidates(task: Task, before: Judgement, edits: Sequence[object]) -> Iterator[Candidate]:
    form = explicit_form(task, before)
    for edit in edits:
        if isinstance(edit, TextEdit):
            yield from text_candidates(task, [edit])
        elif form is not None:
            found = candidate(edit, *form)  # type: ignore[arg-type]
            if found is not None:
                yield found
