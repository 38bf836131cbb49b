"""Remedies that are edits of the text."""

from __future__ import annotations

import re
from dataclasses import dataclass

from argus.diagnostic import Diagnostic
from argus.editor.analysis import Range, place
from argus.source import SourceFile, Span

_MEANT = re.compile(r"did you mean `([^`]+)`\?")
_WRITE = re.compile(r"write `([^`]+)`")
_CHECK = re.compile(r"boundary_check=\(([\d, ]+)\)")
_CALLS = ("al.load(", "al.store(", "al.stage(")


@dataclass(frozen=True, slots=True)
class Fix:
    """An edit: `text` replaces the text at `at`."""

    title: str
    at: Range
    text: str


def fixes(finding: Diagnostic) -> tuple[Fix, ...]:
    """Return the edits that remedy a finding, or none if the remedy is not a mechanical edit."""
    at = place(finding.span)
    if at is None:
        return ()
    meant = _MEANT.fullmatch(finding.help)
    if meant is not None and finding.code in ("unknown-function", "unknown-name", "unknown-dtype"):
        return (Fix(f"Replace by `{meant[1]}`", at, meant[1]),)
    pointer = _WRITE.fullmatch(finding.help)
    if pointer is not None and "is no pointer" in finding.message:
        return (Fix(f"Write `{pointer[1]}`", at, pointer[1]),)
    if finding.code == "out-of-bounds":
        return _checked(finding, at)
    return ()


def _checked(finding: Diagnostic, at: Range) -> tuple[Fix, ...]:
    """Add a boundary check to a load, store or copy of a slice that has neither a check nor a mask."""
    asked, call = _CHECK.search(finding.help), text_at(finding.span)
    slices = "[" in call and ":" in call
    if asked is None or not call.startswith(_CALLS) or not call.endswith(")") or not slices:
        return ()
    if "mask=" in call or "boundary_check=" in call or call.count("\n"):
        return ()
    end = Range(at.path, at.end_line, at.end_character - 1, at.end_line, at.end_character - 1)
    check = asked[0] if "," in asked[0] else asked[0].replace(")", ",)")
    return (Fix(f"Add {check}", end, f", {check}"),)


def text_at(span: Span) -> str:
    """Return the text of a span, or "" for generated code."""
    if span.file is None:
        return ""
    lines = [span.file.line(number) for number in range(span.line, span.end_line + 1)]
    if not lines:
        return ""
    lines[-1] = lines[-1][: span.end_column - 1]
    lines[0] = lines[0][span.column - 1 :]
    return "\n".join(lines)


def edited(source: SourceFile, fix: Fix) -> str:
    """Return the text of a file with a fix in it."""
    lines = source.text.splitlines(keepends=True)
    first, last = fix.at.line + 1 - source.first_line, fix.at.end_line + 1 - source.first_line
    head = lines[first].encode("utf-16-le")[: 2 * fix.at.character].decode("utf-16-le")
    tail = lines[last].encode("utf-16-le")[2 * fix.at.end_character :].decode("utf-16-le")
    return "".join([*lines[:first], head + fix.text + tail, *lines[last + 1 :]])
