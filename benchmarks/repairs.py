"""Repair of mutants without a language model: from the counterexample, and by blind tries of as many steps."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from argus.agents import Task, judge, repair
from argus.agents.edits import vocabulary
from argus.agents.repair import Candidate, candidate, explicit_form, search
from argus.diagnostic import Verdict
from argus.ir.text import print_kernel
from argus.mutate import Kind, Mutation, drawn, mutations
from argus.source import SourceFile
from benchmarks.mutants import Subject
from benchmarks.table import Cell, Results

SUBJECTS = (
    Subject("examples/transpose.py", "transpose", target="sm_80"),
    Subject("examples/softmax.py", "softmax", target="sm_80"),
    Subject("examples/rmsnorm.py", "rmsnorm", target="sm_80"),
    Subject("examples/gemm.py", "gemm", target="sm_80"),
)
_READ_ONLY = (Kind.REQUIRES, Kind.ASSERTION)
"""Mutants of what a repair may not touch."""


@dataclass(frozen=True, slots=True)
class _Tally:
    mutants: int
    repaired: int
    blind: int
    steps: int


def run(count: int, seed: int, steps: int, limit_s: float) -> Results:
    """`count` mutants of each subject that are rejected, drawn with `seed`; at most `steps` candidates for each."""
    rows: list[dict[str, Cell]] = []
    tallies = [(subject.title, _tally(subject, count, seed, steps, limit_s)) for subject in SUBJECTS]
    for title, t in [*tallies, ("all", _sum([t for _, t in tallies]))]:
        average = t.steps / t.repaired if t.repaired else None
        rows.append({"kernel": title, "mutants": t.mutants, "repaired": t.repaired, "blind": t.blind,
                     "steps of a repair": None if average is None else round(average, 1)})  # fmt: skip
    note = f"seed {seed}; at most {steps} candidates a mutant on either side, of the same vocabulary of edits"
    return Results("Mutants repaired and proved", rows, (note,))


def _sum(tallies: list[_Tally]) -> _Tally:
    return _Tally(*(sum(getattr(t, name) for t in tallies) for name in ("mutants", "repaired", "blind", "steps")))


def _tally(subject: Subject, count: int, seed: int, steps: int, limit_s: float) -> _Tally:
    mutants = repaired = blind = used = 0
    for mutation, task in _rejected(subject, seed, limit_s):
        found = repair(task, steps=steps, limit_s=limit_s)
        guess = search(found.before, _blind(task, limit_s, f"{seed} {mutation.name}"), steps, limit_s)
        mutants += 1
        repaired += found.answer is not None
        blind += guess.answer is not None
        used += len(found.steps) if found.answer is not None else 0
        verdict = f"repaired in {len(found.steps)}" if found.answer is not None else "not repaired"
        print(f"{subject.kernel}: {mutation.name}: {verdict}{', blind too' if guess.answer is not None else ''}",
              flush=True)  # fmt: skip
        if mutants == count:
            break
    return _Tally(mutants, repaired, blind, used)


def _rejected(subject: Subject, seed: int, limit_s: float) -> Iterator[tuple[Mutation, Task]]:
    """The mutants that are refuted or ill-formed, in an order drawn with `seed`."""
    everything = [m for m in mutations(subject.explicit()) if m.kind not in _READ_ONLY]
    order = drawn(len(everything), seed, None)
    random.Random(seed).shuffle(order)
    for number in order:
        mutation = everything[number]
        task = Task(SourceFile("mutant.ir", print_kernel(mutation.kernel)), subject.kernel)
        if judge(task, limit_s, simulated=False).verdict in (Verdict.REFUTED, None):
            yield mutation, task


def _blind(task: Task, limit_s: float, seed: str) -> Iterator[Candidate]:
    """All edits of the vocabulary that keep the contract, in an order drawn with `seed`."""
    form = explicit_form(task, judge(task, limit_s, simulated=False))
    if form is None:
        return
    kernel, source = form
    edits = vocabulary(kernel)
    random.Random(seed).shuffle(edits)
    for edit in edits:
        found = candidate(edit, kernel, source)
        if found is not None:
            yield found
