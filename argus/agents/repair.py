"""Repair of one kernel: its counterexample proposes candidates, and the first that is proved is the answer."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from math import prod
from typing import TypeVar

from argus import compile
from argus.agents.contract import broken
from argus.agents.edits import Edit, vocabulary
from argus.agents.rules import Scene, candidates
from argus.agents.text_edits import text_vocabulary
from argus.agents.text_rules import ordered
from argus.agents.text_scope import Sort, TextEdit
from argus.agents.verifier import Judgement, Task, judge, judgement_json, lowered
from argus.diagnostic import ArgusError, Diagnostic, Severity, Verdict
from argus.editor.fixes import edited, fixes
from argus.ir.nodes import Kernel
from argus.ir.text import print_kernel, read_kernel
from argus.ir.visit import numbered, walk
from argus.knowledge.draft import Draft
from argus.mutate import arguments
from argus.render import Json
from argus.simulate import simulate
from argus.simulate.outcome import Stopped
from argus.simulate.sizes import shape_of, size_vectors
from argus.source import SourceFile
from argus.work import LIMIT_S, Work

SCHEMA = "argus.agents.repair/1"
"""The version of `repair_json`. It changes when a field is removed or changes its meaning."""

_LANGUAGE = re.compile(r"^import argus\.language as (\w+)$", re.MULTILINE)

STEPS = 48
"""Default number of candidates that are judged."""
_REPLAYS = 20
"""Number of candidates that run at the sizes of the counterexample, for each candidate that may be judged."""
_REPLAY, _ELEMENTS = 2_000_000, 1 << 20
"""The steps of work of such a run, and the largest number of elements of its tensors. A larger counterexample is not
run again."""
_SMALL = 2
"""Number of small sizes at which a candidate runs that passes at those of the counterexample."""
_MOST = 3
"""Number of findings that determine where edits of the text are tried."""

_Edit = TypeVar("_Edit")


@dataclass(frozen=True, slots=True)
class Candidate:
    """An edited text. `form` is "python" for the author's own text, and "ir" for the explicit kernel. `tile` is the
    kernel of an author's text."""

    title: str
    form: str
    before: str
    task: Task
    tile: compile.TileKernel | None = None

    @property
    def diff(self) -> str:
        """The edit, as a unified diff."""
        path = self.task.source.path
        old, new = self.before.splitlines(), self.task.source.text.splitlines()
        return "\n".join(difflib.unified_diff(old, new, path, path, n=1, lineterm=""))


@dataclass(frozen=True, slots=True)
class Step:
    """One judged candidate and what rejected it: a stage, with the code of its finding, or "" if it is proved."""

    title: str
    rejected: str
    code: str


@dataclass(frozen=True, slots=True)
class Repair:
    """The judgement of the original kernel, the judged candidates, and the candidate that is proved, if any."""

    kernel: str
    before: Judgement
    steps: tuple[Step, ...] = ()
    answer: Candidate | None = None


def repair(task: Task, *, steps: int = STEPS, limit_s: float = LIMIT_S,
           progress: Callable[[int], None] = lambda done: None) -> Repair:  # fmt: skip
    """Look for one edit that makes a wrong kernel right, in at most `steps` proofs of `limit_s` seconds each.

    Edits of the author's own text and of the explicit kernel take turns. Before a proof, the candidate runs in the
    simulator at the sizes of the counterexample: most candidates fail there again. A kernel that is proved needs no
    repair.
    """
    before = judge(task, limit_s)
    if before.proved:
        return Repair(before.kernel, before)
    found = _taking_turns(_texts(task, before), _explicit(task, before, limit_s))
    return search(before, surviving(before, found, _REPLAYS * steps), steps, limit_s, progress)


def search(before: Judgement, found: Iterable[Candidate], steps: int, limit_s: float,
           progress: Callable[[int], None] = lambda done: None) -> Repair:  # fmt: skip
    """Judge candidates in turn, until one is proved or `steps` candidates were judged."""
    done: list[Step] = []
    for candidate in islice(found, steps):
        progress(len(done))
        try:
            judgement = judge(candidate.task, limit_s, simulated=False, tile=candidate.tile)
        except Exception:  # An internal error on one candidate does not hide another candidate that is proved.
            done.append(Step(candidate.title, "internal", "internal-error"))
            continue
        if judgement.proved:
            return Repair(before.kernel, before, (*done, Step(candidate.title, "", "")), candidate)
        done.append(Step(candidate.title, judgement.stages[-1].name, _errors(judgement)[0].code))
    return Repair(before.kernel, before, tuple(done))


def surviving(before: Judgement, found: Iterable[Candidate], most: int) -> Iterator[Candidate]:
    """Yield those of the first `most` candidates that break no rule at the sizes of the first counterexample.

    They also run at small sizes. These are all that there is if the counterexample is too large to run again.
    """
    sizes = next((d.witness.sizes for d in _errors(before) if d.witness is not None), None)
    small = size_vectors(before.explicit)[:_SMALL] if before.explicit is not None else ()
    for candidate in islice(found, most):
        if _holds(candidate, [*([sizes] if sizes is not None else []), *small]):
            yield candidate


def _holds(candidate: Candidate, vectors: Iterable[Mapping[str, int]]) -> bool:
    """Return False if a candidate breaks a rule at any of these sizes in the simulator, or cannot be lowered."""
    try:
        explicit = lowered(candidate.task, candidate.tile)
    except ArgusError:
        return False
    return all(_passes(explicit, sizes) for sizes in vectors)


def _passes(explicit: compile.ExplicitKernel, sizes: Mapping[str, int]) -> bool:
    try:
        if sum(prod(shape_of(t, sizes)) for t in explicit.tensors) > _ELEMENTS:
            return True
        inputs = arguments(explicit, dict(sizes))
        ran = simulate(explicit, inputs, stop_at_first=True, resident=1, watch=False, work=Work(_REPLAY))
    except Stopped:
        return False
    except Exception:  # Nothing is known about these sizes, so the proof decides.
        return True
    return not ran.violations


def _taking_turns(texts: Iterator[Candidate], explicit: Iterator[Candidate]) -> Iterator[Candidate]:
    """Take three candidates of the first kind and one of the second, and so on."""
    queues = [(iter(texts), 3), (iter(explicit), 1)]
    while queues:
        left = []
        for queue, count in queues:
            taken = list(islice(queue, count))
            yield from taken
            if taken:
                left.append((queue, count))
        queues = left


def _errors(judgement: Judgement) -> list[Diagnostic]:
    """Return the findings against a kernel. Findings with a counterexample come first."""
    found = [d for d in judgement.diagnostics if d.severity is Severity.ERROR]
    return sorted(found, key=lambda d: d.verdict is Verdict.UNKNOWN)


# ---------------------------------------------------------------------------- the author's text


def _texts(task: Task, before: Judgement) -> Iterator[Candidate]:
    """Yield the author's text with one edit each. Yield none for text that is no kernel, which has no contract yet."""
    if task.options is None or before.explicit is None:
        return
    findings = _errors(before)
    draft, edits = Draft.of(task.source.text, task.name), text_vocabulary(task.source.text, task.name)
    lists = [[*_offered(task, finding), *ordered(draft, task.source, edits, finding)] for finding in findings[:_MOST]]
    yield from text_candidates(task, _in_turns(lists))


def _offered(task: Task, finding: Diagnostic) -> Iterator[TextEdit]:
    """Yield the texts that result from the finding's own help, and from a barrier at its caret."""
    found = [(fix.title, edited(task.source, fix)) for fix in fixes(finding)]
    for title, text in [*found, *_barriers(finding, task.source)]:
        yield TextEdit(title, Sort.FIX, finding.span.line, ((0, len(task.source.text), text),))


def text_candidates(task: Task, edits: Iterable[TextEdit]) -> Iterator[Candidate]:
    """Yield the edited texts that are kernels, keep the author's contract, and differ from one another."""
    assert task.options is not None
    author = compile.elaborate(task.source, task.name, task.options)
    seen = {task.source.text}
    for edit in edits:
        text = edit.apply(task.source.text)
        if text in seen:
            continue
        seen.add(text)
        source = replace(task.source, text=text)
        try:
            candidate = compile.elaborate(source, task.name, task.options)
        except (ArgusError, AssertionError):
            continue
        if candidate != author and not broken(author, candidate, same_text=edit.sort is not Sort.FIX):
            yield Candidate(edit.title, "python", task.source.text, replace(task, source=source), candidate)


def _barriers(finding: Diagnostic, source: SourceFile) -> Iterator[tuple[str, str]]:
    """Yield the text with a block barrier on a line of its own before the line to which a race points."""
    language = _LANGUAGE.search(source.text)
    if finding.code != "data-race" or language is None or finding.span.file != source or finding.span.call is not None:
        return
    lines = source.text.splitlines(keepends=True)
    number = finding.span.line - source.first_line
    line = lines[number]
    indent = line[: len(line) - len(line.lstrip())]
    new = f"{indent}{language[1]}.barrier()\n"
    yield f"add a barrier before line {finding.span.line}", "".join([*lines[:number], new, *lines[number:]])


# ---------------------------------------------------------------------------- the explicit kernel


def explicit_form(task: Task, before: Judgement) -> tuple[Kernel, SourceFile] | None:
    """Return the explicit kernel with numbered statements and its text, in which each statement has its own line.
    Return None if the kernel has no explicit form."""
    try:
        kernel: Kernel = before.explicit if before.explicit is not None else read_kernel(task.source)
    except ArgusError:
        return None
    path = task.source.path if task.options is None else f"{kernel.name}.ir"
    source = SourceFile(path, print_kernel(kernel))
    return numbered(read_kernel(source)), source


def candidate(edit: Edit, author: Kernel, source: SourceFile) -> Candidate | None:
    """Return the explicit kernel with an edit, or None if the edit changes the contract, or changes nothing."""
    new = edit.apply(author)
    if broken(author, new):
        return None
    text = print_kernel(new)
    line = next((s.span.line for s in walk(author.body) if s.id == edit.at), 0)
    title = f"{edit.title} (line {line})" if line else edit.title
    if text == source.text:
        return None
    return Candidate(title, "ir", source.text, Task(replace(source, text=text), author.name))


def _explicit(task: Task, before: Judgement, limit_s: float) -> Iterator[Candidate]:
    """Yield the candidates that the rules propose for the first finding of each code, without repetitions."""
    form = explicit_form(task, before) if task.options is None or before.explicit is not None else None
    if form is None:
        return
    author, source = form
    findings = _errors(judge(Task(source, author.name), limit_s))
    edits, seen = vocabulary(author), {source.text}
    by_code = {f.code: f for f in reversed(findings)}
    firsts = [f for f in findings if by_code[f.code] is f]
    for edit in _in_turns([candidates(Scene(author, edits, finding)) for finding in firsts]):
        found = candidate(edit, author, source)
        if found is not None and found.task.source.text not in seen:
            seen.add(found.task.source.text)
            yield found


def _in_turns(lists: list[list[_Edit]]) -> Iterator[_Edit]:
    """Take two elements of the first list, one of each other list, and so on, because the first finding is most often
    the cause."""
    queues = [iter(each) for each in lists]
    while queues:
        left = []
        for number, queue in enumerate(queues):
            taken = list(islice(queue, 1 if number else 2))
            yield from taken
            if taken:
                left.append(queue)
        queues = left


# ---------------------------------------------------------------------------- JSON


def repair_json(found: Repair) -> Json:
    """Return an object with `kernel`, `before` (a judgement), `proved`, `steps` and `answer`. `answer` is None if no
    repair was found.

    Each step has `title`, and `rejected` and `code` of what rejected it, "" for the answer. The answer has `title`,
    `form` ("python" or "ir"), `diff` and `text`.
    """
    answer = found.answer
    return {
        "schema": SCHEMA,
        "kernel": found.kernel,
        "before": judgement_json(found.before),
        "proved": found.before.proved or answer is not None,
        "steps": [{"title": s.title, "rejected": s.rejected, "code": s.code} for s in found.steps],
        "answer": None
        if answer is None
        else {
            "title": answer.title,
            "form": answer.form,
            "diff": answer.diff,
            "text": answer.task.source.text,
        },
    }
