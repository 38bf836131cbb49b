"""The proof of a program: every property, and the replay of doubts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from argus.diagnostic import Diagnostic, Note, Verdict, Witness
from argus.ir.nodes import Assume
from argus.programs.execute import NotExecutable, Result, Violation, execute
from argus.programs.inputs import at, trials
from argus.programs.ir import Collective, Launch, Program
from argus.programs.prove import contents, launches, memory, order, specs
from argus.programs.prove.facts import Doubt, Facts
from argus.programs.sites import sites
from argus.programs.text import step_text
from argus.source import NO_SPAN, Span
from argus.verify.report import Report, Timing, verdict_of
from argus.work import LIMIT_S, Work

_HELP = {
    "program-shape": "make the extents equal, or state it with `al.requires(...)` in the program",
    "program-precondition": "state it with `al.requires(...)` in the program, or pass other sizes",
    "program-bounds": "make the buffer larger, or the part smaller",
    "program-alias": "give the output memory of its own",
    "program-alignment": "this is a mistake in Argus: it chooses alignments itself",
    "program-index": "state the fact about the tensor that is passed in the program",
    "program-race": "record an event on the other stream after that work, and wait for it on this one",
    "program-uninitialised": "write it first, in every iteration and on every way",
    "program-memory": "this is a mistake in Argus: it plans memory itself",
    "spec-mismatch": "compare the arguments of the launches with the specification",
    "spec-unknown": "specify the kernels that are launched, and write the program's specification as they combine",
}


def prove(program: Program, limit_s: float = LIMIT_S) -> Report:
    """Prove a program whose memory is planned. A wrong program raises no error: the report says so."""
    start = time.perf_counter()
    facts, found = Facts(program, Work.of_seconds(limit_s)), sites(program)
    ordered = order.order(program, found)
    checks: tuple[tuple[str, Callable[[], Iterator[Doubt]]], ...] = (
        ("launches", lambda: launches.check(facts, found)),
        ("order", lambda: order.check(facts, found, ordered)),
        ("initialisation", lambda: contents.check(facts, found)),
        ("memory", lambda: memory.check(facts, found, ordered)),
        ("specifications", lambda: specs.check(facts, found)),
    )
    replays, diagnostics, timings = _Replays(program), list[Diagnostic](), []
    for name, check in checks:
        began = time.perf_counter()
        diagnostics += [replays.diagnostic(doubt) for doubt in check()]
        timings.append(Timing(name, "z3", time.perf_counter() - began))
    once = tuple({(d.code, d.verdict, d.span.line, d.span.column): d for d in reversed(diagnostics)}.values())[::-1]
    assumed = tuple(f"{p.reason}" for p in program.preconditions if isinstance(p, Assume))
    return Report(program.name, verdict_of(once), once, assumed, time.perf_counter() - start, tuple(timings))


@dataclass
class _Replays:
    """Executions at small sizes, made when the first one is needed, and at the sizes of doubts."""

    program: Program
    runs: list[tuple[dict[str, int], Result]] | None = None
    others: dict[tuple[tuple[str, int], ...], Result | None] = field(default_factory=dict)

    def diagnostic(self, doubt: Doubt) -> Diagnostic:
        """Return a doubt as a refutation if an execution confirms it, or else as unknown."""
        span: Span = getattr(doubt.step, "span", NO_SPAN)
        shown = self.shown(doubt)
        if shown is None:
            why = doubt.reason or "no small sizes show a failure"
            notes = (Note(why), *self.about(doubt))
            return Diagnostic(doubt.code, doubt.message, span, "program", verdict=Verdict.UNKNOWN, notes=notes,
                              help=_HELP[doubt.code])  # fmt: skip
        sizes, violation = shown
        where = violation.buffer + (f" on stream {violation.stream}" if violation.stream else "")
        witness = Witness(sizes, (), iteration=dict(violation.iteration), object=where, logical=violation.element,
                          arrived=violation.arrived, expected=violation.expected, replayed=True)  # fmt: skip
        message = violation.message if violation.code != doubt.code else doubt.message
        other = violation.other if violation.other is not None else doubt.other
        notes = self.about(doubt)
        if isinstance(other, Launch | Collective):
            notes = (*notes, Note(f"the other access: {step_text(other, self.program)}", other.span))
        return Diagnostic(violation.code, message, span, "program", verdict=Verdict.REFUTED, notes=notes,
                          help=_HELP[violation.code], witness=witness)  # fmt: skip

    def about(self, doubt: Doubt) -> tuple[Note, ...]:
        if isinstance(doubt.step, Launch | Collective):
            return (Note(step_text(doubt.step, self.program)),)
        return ()

    def shown(self, doubt: Doubt) -> tuple[dict[str, int], Violation] | None:
        """Return an execution that confirms a doubt: its sizes, and the rule that it violates."""
        for sizes, result in self.small():
            if (found := _matching(result, doubt)) is not None:
                return sizes, found
        if doubt.sizes is None:
            return None
        key = tuple(sorted(doubt.sizes.items()))
        if key not in self.others:
            self.others[key] = self.run(doubt.sizes)
        other = self.others[key]
        found = None if other is None else _matching(other, doubt)
        return None if found is None else ({n: doubt.sizes.get(n, 1) for n in self.program.sizes}, found)

    def small(self) -> list[tuple[dict[str, int], Result]]:
        if self.runs is None:
            self.runs = []
            for values, inputs in trials(self.program):
                try:
                    result = execute(self.program, values, inputs)
                except NotExecutable:
                    continue
                self.runs.append(({n: int(v) for n, v in values.items() if not isinstance(v, float)}, result))
        return self.runs

    def run(self, sizes: dict[str, int]) -> Result | None:
        try:
            given = at(self.program, sizes)
            return None if given is None else execute(self.program, *given)
        except NotExecutable:
            return None


def _matching(result: Result, doubt: Doubt) -> Violation | None:
    """Return the violation to which a doubt refers: of the same kind, at the same statement."""
    code = "spec-mismatch" if doubt.code == "spec-unknown" else doubt.code
    for violation in result.violations:
        same = violation.step is doubt.step or (violation.step is None and violation.buffer == doubt.buffer)
        # Two buffers in one place show when the first is read again, a case that the proof does not look for.
        if violation.code == code and (same or code == "program-memory"):
            return violation
    return None
