"""Find the problems of a text's kernels, as an editor requests them. No part of the text is run."""

from __future__ import annotations

from dataclasses import dataclass

from argus import compile
from argus.diagnostic import ArgusError, Diagnostic, Severity, Verdict
from argus.frontend import Options
from argus.source import SourceFile, Span

LIMIT_S = 5.0
"""Work for the proof of one kernel while its author types, in seconds of processor time (see `argus.work`)."""


@dataclass(frozen=True, slots=True)
class Range:
    """A range of a file. Lines and characters count from 0, characters in UTF-16 units, as LSP has them."""

    path: str
    line: int
    character: int
    end_line: int
    end_character: int


def place(span: Span) -> Range | None:
    """Return the range of a span, or None for generated code."""
    if span.file is None:
        return None
    end_line = max(span.end_line, span.line)
    end_column = span.end_column if (end_line, span.end_column) > (span.line, span.column) else span.column + 1
    return Range(
        span.file.path,
        span.line - 1,
        _units(span.file, span.line, span.column),
        end_line - 1,
        _units(span.file, end_line, end_column),
    )


def _units(file: SourceFile, line: int, column: int) -> int:
    """Return a column in UTF-16 units, from 0."""
    return len(file.line(line)[: max(column - 1, 0)].encode("utf-16-le")) // 2


def severity(finding: Diagnostic) -> int:
    """Return LSP's number: 1 for an error, 2 for a warning or for what could not be decided."""
    return 2 if finding.severity is Severity.WARNING or finding.verdict is Verdict.UNKNOWN else 1


def related(finding: Diagnostic) -> tuple[tuple[str, Range], ...]:
    """Return the other places that a finding names: its notes, and the steps of its counterexample."""
    notes = [(note.message, note.span) for note in finding.notes]
    call = finding.span.call
    while call is not None:
        notes.append(("called from here", call))
        call = call.call
    if finding.witness is not None:
        notes += [(hop.message, hop.span) for hop in finding.witness.provenance]
        notes += [(f"{event.role} {event.message}", event.span) for event in finding.witness.trace]
    return tuple((message, at) for message, span in notes if (at := place(span)) is not None)


def message(finding: Diagnostic) -> str:
    """Return a finding's text for an editor: what is wrong, what arrived and should have, what to do."""
    lines = [finding.message]
    witness = finding.witness
    if witness is not None:
        sizes = ", ".join(f"{name} = {value}" for name, value in witness.sizes.items())
        lines.append(f"for example with {sizes}" if sizes else "in every run")
        if witness.arrived and witness.expected:
            lines.append(f"arrived: {witness.arrived}; expected: {witness.expected}")
    if finding.help:
        lines.append(f"help: {finding.help}")
    return "\n".join(lines)


def kernels_of(source: SourceFile) -> tuple[str, ...]:
    """Return the names of a text's kernels, or none if the text cannot be cut into functions."""
    try:
        return compile.named_kernels(source)
    except ArgusError:
        return ()


def explicit_kernels(source: SourceFile, target: str) -> tuple[compile.ExplicitKernel, ...]:
    """Return the explicit form of every kernel that has one."""
    found = []
    for name in kernels_of(source):
        try:
            found.append(compile.lower(compile.elaborate(source, name, Options(target=target)), target))
        except ArgusError:
            continue
    return tuple(found)


def findings(source: SourceFile, target: str, limit_s: float = LIMIT_S) -> tuple[Diagnostic, ...]:
    """Return the problems of the kernels of a text, each once. Proved kernels have none."""
    found: dict[tuple[object, ...], Diagnostic] = {}

    def add(diagnostics: tuple[Diagnostic, ...]) -> None:
        for d in diagnostics:
            found.setdefault((d.code, d.message, d.span.line, d.span.column), d)

    try:
        names = compile.named_kernels(source)
    except ArgusError as error:
        return error.diagnostics
    for name in names:
        try:
            add(compile.prove(source, name, Options(target=target), limit_s=limit_s).diagnostics)
        except ArgusError as error:
            add(error.diagnostics)
    return tuple(found.values())
