"""Repair of random mutants without a language model, by how much a rejection says.

Three repairs try edits of the same list, with as many proofs: one reads the counterexample, one the error code alone,
one learns only that the proof failed. Every result is a line of a file in a folder, written when it is known, so a run
that is interrupted, or ends after some seconds, is continued by the next one.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from argus.agents import Task, judge, repair
from argus.agents.edits import vocabulary
from argus.agents.repair import Candidate, Repair, candidate, explicit_form, search, text_candidates
from argus.agents.text_edits import text_vocabulary
from argus.agents.text_rules import sorts
from argus.agents.text_scope import TextEdit
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
HOWS = ("counterexample", "pass or fail", "error code")
"""What a repair is told, in the order in which a run measures them."""
_TRIES = 400
"""Random changes that are looked at for each mutant that is wanted: most do not parse or are no kernel."""

Line = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A changed text that lowers and that the proof refutes; `number` says which one of its seed it is."""

    file: str
    kernel: str
    number: int
    operator: str
    line: int
    code: str
    text: str

    @property
    def task(self) -> Task:
        """The task of repairing it."""
        return Task(SourceFile(self.file, self.text), self.kernel, Options(target=TARGET))


@dataclass(frozen=True, slots=True)
class Sample:
    """The number of mutants of each kernel, their seed, and the limits of a repair; `folder` keeps results."""

    count: int
    seed: int
    steps: int
    limit_s: float
    folder: Path

    @property
    def mutants(self) -> Path:
        """The file with the mutants."""
        return self.folder / f"mutants-{self.seed}.jsonl"

    @property
    def results(self) -> Path:
        """The file with the results of repairs."""
        return self.folder / f"repairs-{self.seed}-{self.steps}.jsonl"


def run(sample: Sample, jobs: int, seconds: float) -> Results:
    """Draw the mutants, and repair each in three ways, in `jobs` processes, until some seconds are over.

    With a smaller count than an earlier run had, only the first ones of each kernel are repaired.
    """
    end = time.monotonic() + seconds
    sample.folder.mkdir(parents=True, exist_ok=True)
    known = {(m["kernel"], m["number"]) for m in _lines(sample.mutants)}
    numbers = [(*subject, number) for number in range(sample.count) for subject in SUBJECTS]
    wanted = [(file, kernel, number) for file, kernel, number in numbers if (kernel, number) not in known]
    _over(jobs, end, partial(drawn, sample), wanted, sample.mutants)
    drawn_before = {line["text"]: Mutant(**line) for line in _lines(sample.mutants)}.values()
    mutants = sorted((m for m in drawn_before if m.number < sample.count), key=lambda m: m.number)
    done = {(r["kernel"], r["number"], r["how"]) for r in _lines(sample.results)}
    left = [(m, how) for how in HOWS for m in mutants if (m.kernel, m.number, how) not in done]
    _over(jobs, end, partial(repaired, sample), left, sample.results)
    return counted(sample)


def _lines(path: Path) -> list[Line]:
    return [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def _over(jobs: int, end: float, work: Callable[[Any], Line | None], items: Sequence[Any], path: Path) -> None:
    """Do the work for each item, and write each result at once; begin none after the end."""
    with path.open("a", encoding="utf-8") as file, multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for line in pool.imap_unordered(partial(_until, end, work), items):
            if line is not None:
                file.write(json.dumps(line) + "\n")
                file.flush()


def _until(end: float, work: Callable[[Any], Line | None], item: Any) -> Line | None:
    return work(item) if time.monotonic() < end else None


def drawn(sample: Sample, which: tuple[str, str, int]) -> Line | None:
    """Return the mutant of a kernel with a number; None if none is found in some hundred changes."""
    file, kernel, number = which
    text = Path(file).read_text(encoding="utf-8")
    for change in islice(changes(text, kernel, sample.seed * 1000 + number), _TRIES):
        task = Task(SourceFile(file, change.text), kernel, Options(target=TARGET))
        try:
            found = judge(task, sample.limit_s, simulated=False)
        except Exception:  # a text that the compiler fails on is no mutant
            continue
        if found.verdict is Verdict.REFUTED:
            code = next(d.code for d in found.diagnostics if d.severity is Severity.ERROR)
            return asdict(Mutant(file, kernel, number, change.operator, change.line, code, change.text))
    return None


def repaired(sample: Sample, which: tuple[Mutant, str]) -> Line:
    """Repair a mutant in one of the three ways. An internal error counts as not repaired."""
    mutant, how = which
    began = time.process_time()
    try:
        found = _search(sample, mutant, how)
        answer = found.answer.title if found.answer is not None else None
        steps = [f"{s.title}: {s.rejected} {s.code}" for s in found.steps]
    except Exception as error:
        answer, steps = None, [f"{type(error).__name__}: {error}"]
    said = "no" if answer is None else f"{len(steps)}, {answer}"
    print(f"{mutant.kernel} {mutant.number}, {mutant.operator}, line {mutant.line}, {how}: {said}", flush=True)
    return {"kernel": mutant.kernel, "number": mutant.number, "how": how, "answer": answer, "steps": steps,
            "seconds": round(time.process_time() - began, 2)}  # fmt: skip


def _search(sample: Sample, mutant: Mutant, how: str) -> Repair:
    task = mutant.task
    if how == "counterexample":
        return repair(task, steps=sample.steps, limit_s=sample.limit_s)
    before = judge(task, sample.limit_s, simulated=False)
    chance = random.Random(f"{sample.seed} {mutant.kernel} {mutant.number}")
    found = _blind(task, before, chance) if how == "pass or fail" else _by_code(task, mutant.code, chance)
    return search(before, found, sample.steps, sample.limit_s)


def _blind(task: Task, before: Judgement, chance: random.Random) -> Iterator[Candidate]:
    """All edits of the text and of the explicit kernel that keep the contract, in a random order."""
    edits: list[object] = list(text_vocabulary(task.source.text, task.name))
    form = explicit_form(task, before)
    edits += vocabulary(form[0]) if form is not None else []
    chance.shuffle(edits)
    for edit in edits:
        if isinstance(edit, TextEdit):
            yield from text_candidates(task, [edit])
        elif form is not None:
            found = candidate(edit, *form)  # type: ignore[arg-type]
            if found is not None:
                yield found


def _by_code(task: Task, code: str, chance: random.Random) -> Iterator[Candidate]:
    """The edits of the text in the order that the error code alone suggests, at any place."""
    likely = {sort: place for place, sort in enumerate(sorts(code))}
    edits = text_vocabulary(task.source.text, task.name)
    chance.shuffle(edits)
    return text_candidates(task, sorted(edits, key=lambda e: likely.get(e.sort, len(likely))))


# ---------------------------------------------------------------------------- counting


def counted(sample: Sample) -> Results:
    """Return a row for each kernel and one for all: mutants, and how many of them each repair fixed."""
    results = _lines(sample.results)
    rows = [_row(kernel, [r for r in results if r["kernel"] == kernel]) for _, kernel in SUBJECTS]
    rows.append(_row("all", results))
    note = f"seed {sample.seed}; at most {sample.steps} proofs a mutant on each side; random changes of the text"
    return Results("Mutants repaired and proved", rows, (note,))


def _row(kernel: str, results: Sequence[Line]) -> dict[str, Cell]:
    """Count one kernel. Each share is of the mutants that this way of repair was tried on."""
    row: dict[str, Cell] = {"kernel": kernel}
    for how in HOWS:
        tried = [r for r in results if r["how"] == how]
        row |= {how: sum(r["answer"] is not None for r in tried), f"of, {how}": len(tried)}
    proofs = [len(r["steps"]) for r in results if r["how"] == HOWS[0] and r["answer"] is not None]
    return {**row, "proofs of a repair": round(sum(proofs) / len(proofs), 1) if proofs else None}
