"""Mutation testing of programs: small edits of the IR, judged by the proof and by execution at concrete sizes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations

from argus.diagnostic import Diagnostic, Severity, Verdict, VerificationError
from argus.ir.expr import Const, Expr, Param, op
from argus.ir.nodes import Requires
from argus.mutate import Change, Kind, Outcome, Result, Trial, drawn
from argus.programs.execute import NotExecutable, execute
from argus.programs.execute import Result as Run
from argus.programs.held import differs
from argus.programs.inputs import trials
from argus.programs.ir import Buffer, Collective, For, If, Launch, Part, Program, Record, Step, Wait, walk
from argus.programs.prove.prove import prove
from argus.programs.sites import negated, sites
from argus.programs.text import part_text, print_program, shown, step_text
from argus.source import Span


@dataclass(frozen=True, slots=True)
class ProgramMutation(Change):
    """A program one edit away from another."""

    program: Program


Progress = Callable[[int, int], None]
"""Called before each mutant with the number of mutants that are done and the total number."""


def trial(
    program: Program, seed: int, count: int | None, limit_s: float, progress: Progress = lambda done, of: None
) -> Trial:
    """Judge `count` mutants (None: all) of a program. Raises `VerificationError` if the program itself is not proved.
    """
    report = prove(program, limit_s)
    if report.verdict is not Verdict.PROVED:
        raise VerificationError(*(d for d in report.diagnostics if d.severity is Severity.ERROR))
    runs = _runs(program)
    for _, run in runs:
        if run.violations:
            first = run.violations[0]
            raise VerificationError(Diagnostic(first.code, f"proved, and yet: {first.message}", property="internal"))
    everything = mutations(program)
    results: list[Result] = []
    chosen = drawn(len(everything), seed, count)
    for number in chosen:
        progress(len(results), len(chosen))
        results.append(_judged(everything[number], runs, limit_s))
    specified = {s.output for s in program.specs}
    free = tuple(t.name for t in program.tensors if t.name in _written(program) - specified)
    return Trial(program.name, seed, len(everything), tuple(results), free)


def _written(program: Program) -> set[str]:
    return {a.part.obj for s in sites(program) for a in s.accesses if a.writes}


_Runs = list[tuple[dict[str, object], Run]]


def _runs(program: Program) -> _Runs:
    found: _Runs = []
    for values, inputs in trials(program):
        try:
            found.append((dict(values), execute(program, values, inputs)))
        except NotExecutable:
            continue
    return found


def _judged(mutation: ProgramMutation, originals: _Runs, limit_s: float) -> Result:
    start = time.perf_counter()
    try:
        outcome, code, detail = _decide(mutation, originals, limit_s)
    except Exception as error:  # An internal error on one mutant does not hide the results of the others.
        outcome, code, detail = Outcome.UNKNOWN, "internal-error", f"{type(error).__name__}: {error}"
    return Result(mutation, outcome, code, detail, time.perf_counter() - start)


def _decide(mutation: ProgramMutation, originals: _Runs, limit_s: float) -> tuple[Outcome, str, str]:
    report = prove(mutation.program, limit_s)
    errors = [d for d in report.diagnostics if d.severity is Severity.ERROR]
    if report.verdict is Verdict.REFUTED:
        return Outcome.KILLED, next(d.code for d in errors if d.verdict is Verdict.REFUTED), ""
    if report.verdict is Verdict.UNKNOWN:
        return Outcome.UNKNOWN, errors[0].code, errors[0].message
    known = {str(values): run for values, run in originals}
    runs = _runs(mutation.program)
    for values, run in runs:
        if run.violations:
            first = run.violations[0]
            return Outcome.MISSED, first.code, f"{first.message} at {values}"
        other = known.get(str(values))
        for name, array in run.tensors.items() if other is not None else ():
            if other is not None and differs(array, other.tensors[name]).any():
                return Outcome.MISSED, "different-result", f"`{name}` differs at {values}"
    if not runs:
        return Outcome.UNKNOWN, "not-simulated", "proved, but there are no small sizes to execute it at"
    return Outcome.EQUIVALENT, "", ""


# ---------------------------------------------------------------------------- edits


def mutations(program: Program) -> list[ProgramMutation]:
    """Return every program that differs by one edit, without repetitions and in the order of the text."""
    found: list[ProgramMutation] = []
    seen = {print_program(program)}
    names: Counter[str] = Counter()
    for name, kind, span, before, after, edited in _edits(program):
        text = print_program(edited)
        if text not in seen:
            seen.add(text)
            names[name] += 1
            unique = name if names[name] == 1 else f"{name} ({names[name]})"
            found.append(ProgramMutation(unique, kind, span, before, after, edited))
    return found


_Edit = tuple[str, Kind, Span, str, str, Program]


def _edits(program: Program) -> Iterator[_Edit]:
    for number, fact in enumerate(program.preconditions):
        left = program.preconditions[:number] + program.preconditions[number + 1 :]
        what = shown(fact.cond) if isinstance(fact, Requires) else str(fact)[:60]
        yield "drop a precondition", Kind.REQUIRES, fact.span, what, "", replace(program, preconditions=left)
    yield from _of_buffers(program)
    for name, kind, before, body, after in _blocks(program, program.body):
        shown_before = "\n".join(step_text(s, program) for s in before)
        shown_after = "\n".join(step_text(s, program) for s in after)
        yield name, kind, before[0].span, shown_before, shown_after, replace(program, body=body)


def _of_buffers(program: Program) -> Iterator[_Edit]:
    def edit(name: str, kind: Kind, old: Buffer, new: Buffer) -> _Edit:
        buffers = tuple(new if b is old else b for b in program.buffers)
        before, after = (f"{b.name}[{', '.join(map(shown, b.shape))}]" for b in (old, new))
        where = "" if old.offset == new.offset or new.offset is None else f" at {shown(new.offset)}"
        return name, kind, old.span, before, after + where, replace(program, buffers=buffers)

    for b in program.buffers:
        for axis, extent in enumerate(b.shape):
            for amount in (-1, 1):
                shape = (*b.shape[:axis], op("add", extent, Const(amount)), *b.shape[axis + 1 :])
                yield edit(f"{b.name}: extent {axis} by {amount:+}", Kind.LAYOUT, b, replace(b, shape=shape))
        if len(b.shape) > 1:
            yield edit(f"{b.name}: extents swapped", Kind.LAYOUT, b, replace(b, shape=b.shape[::-1]))
        for other in program.buffers:
            if other is not b and other.offset is not None:
                yield edit(f"{b.name} takes the place of {other.name}", Kind.LAYOUT, b, replace(b, offset=other.offset))
    if program.pool is not None:
        for b in program.buffers:
            pool = op("sub", program.pool, b.bytes)
            yield (f"pool without {b.name}", Kind.LAYOUT, b.span, shown(program.pool), shown(pool),
                   replace(program, pool=pool))  # fmt: skip


_Changed = tuple[str, Kind, tuple[Step, ...], tuple[Step, ...], tuple[Step, ...]]
"""An edit: its name and class, the statements before, the whole body, and the statements after."""


def _blocks(program: Program, body: tuple[Step, ...]) -> Iterator[_Changed]:
    for i, step in enumerate(body):
        head, tail = body[:i], body[i + 1 :]
        drop = Kind.DROP if isinstance(step, Record | Wait) else Kind.STATEMENT
        yield f"drop {_word(step)}", drop, (step,), (*head, *tail), ()
        if tail:
            pair = (tail[0], step)
            yield "swap two statements", Kind.ORDER, (step, tail[0]), (*head, *pair, *tail[1:]), pair
        for name, kind, new in _changed(program, step):
            yield name, kind, (step,), (*head, new, *tail), (new,)
        for name, kind, before, inner, after in _inside(program, step):
            yield name, kind, before, (*head, inner, *tail), after


_WORDS: Mapping[type, str] = {
    Launch: "a launch",
    Collective: "a collective",
    Record: "an event",
    Wait: "a wait",
    For: "a loop",
    If: "a condition",
}


def _word(step: Step) -> str:
    return _WORDS[type(step)]


def _inside(program: Program, step: Step) -> Iterator[tuple[str, Kind, tuple[Step, ...], Step, tuple[Step, ...]]]:
    match step:
        case For(body=body):
            for name, kind, before, inner, after in _blocks(program, body):
                yield name, kind, before, replace(step, body=inner), after
        case If(then=then, orelse=orelse):
            for name, kind, before, inner, after in _blocks(program, then):
                yield name, kind, before, replace(step, then=inner), after
            for name, kind, before, inner, after in _blocks(program, orelse):
                yield name, kind, before, replace(step, orelse=inner), after
        case _:
            pass


def _changed(program: Program, step: Step) -> Iterator[tuple[str, Kind, Step]]:
    match step:
        case Launch():
            yield from _streams(program, step)
            yield from _launches(program, step)
        case Collective():
            yield from _streams(program, step)
        case Record():
            yield from _streams(program, step)
        case Wait(event=event):
            yield from _streams(program, step)
            for other in sorted(_events(program.body) - {event}):
                yield f"wait for {other}", Kind.DROP, replace(step, event=other)
        case For(start=start, stop=stop, step=width):
            yield "loop starts later", Kind.LOOP, replace(step, start=op("add", start, Const(width)))
            yield "loop ends earlier", Kind.LOOP, replace(step, stop=op("sub", stop, Const(width)))
            yield "loop ends later", Kind.LOOP, replace(step, stop=op("add", stop, Const(width)))
            yield "loop with a greater step", Kind.LOOP, replace(step, step=2 * width)
        case If(cond=cond, then=then, orelse=orelse):
            yield "condition negated", Kind.MASK, replace(step, cond=negated(cond))
            yield "branches swapped", Kind.MASK, replace(step, then=orelse, orelse=then)


def _streams(program: Program, step: Launch | Collective | Record | Wait) -> Iterator[tuple[str, Kind, Step]]:
    for stream in program.streams:
        if stream != step.stream:
            yield f"{_word(step)} on {stream}", Kind.MOVE, replace(step, stream=stream)


def _events(body: tuple[Step, ...]) -> set[str]:
    return {s.event for s in walk(body) if isinstance(s, Record)}


def _launches(program: Program, step: Launch) -> Iterator[tuple[str, Kind, Step]]:
    arguments = step.arguments

    def passing(at: int, value: Part | Expr) -> Launch:
        return replace(step, arguments=(*arguments[:at], (arguments[at][0], value), *arguments[at + 1 :]))

    for (i, (one, a)), (j, (two, b)) in combinations(enumerate(arguments), 2):
        if _alike(program, a, b):
            first, second = arguments[:i], arguments[i + 1 : j]
            swapped = (*first, (one, b), *second, (two, a), *arguments[j + 1 :])
            yield f"swap {one} and {two}", Kind.INDEX, replace(step, arguments=swapped)
    for i, (name, value) in enumerate(arguments):
        if isinstance(value, Part):
            yield from ((f"{name}: {what}", kind, passing(i, part)) for what, kind, part in _parts(program, value))
        elif isinstance(value, Const) and not isinstance(value.value, bool):
            yield f"{name} by 1", Kind.VALUE, passing(i, replace(value, value=value.value + 1))
        if not isinstance(value, Part):
            for s in program.scalars:
                if s.dtype is value.dtype and shown(value) != s.name:
                    yield f"{name} is {s.name}", Kind.VALUE, passing(i, Param(s.name, s.dtype))


def _alike(program: Program, a: Part | Expr, b: Part | Expr) -> bool:
    if isinstance(a, Part) and isinstance(b, Part):
        same = program.object(a.obj).dtype is program.object(b.obj).dtype
        return same and len(a.shape) == len(b.shape) and a != b
    return not isinstance(a, Part) and not isinstance(b, Part) and a.dtype is b.dtype and a != b


def _parts(program: Program, part: Part) -> Iterator[tuple[str, Kind, Part]]:
    obj = program.object(part.obj)
    for other in program.objects:
        if other.name != part.obj and other.dtype is obj.dtype and len(other.shape) == len(obj.shape):
            whole = all(s == Const(0) and e == w for s, e, w in zip(part.start, part.extent, obj.shape, strict=True))
            extent = other.shape if whole else part.extent
            yield (
                f"{other.name} in place of {part_text(part)}",
                Kind.LAYOUT,
                replace(part, obj=other.name, extent=extent),
            )
    for axis in range(len(part.start)):
        for amount in (-1, 1):
            start = (*part.start[:axis], op("add", part.start[axis], Const(amount)), *part.start[axis + 1 :])
            yield f"start {axis} by {amount:+}", Kind.INDEX, replace(part, start=start)
            if part.kept[axis]:
                longer = op("add", part.extent[axis], Const(amount))
                extent = (*part.extent[:axis], longer, *part.extent[axis + 1 :])
                yield f"extent {axis} by {amount:+}", Kind.INDEX, replace(part, extent=extent)
