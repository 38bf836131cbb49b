"""The order in which edits of the author's text are tried: by their distance from the finding, and their likelihood.

A finding points at lines: its caret, the path of the value, the steps that led there, the other access. From these
lines the order continues to the lines that bind the names they read. It does not know what was changed. A statement
that contradicts the rest of the kernel is suspected wherever it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from argus.agents.text_scope import Sort, TextEdit, computing, used
from argus.diagnostic import Diagnostic
from argus.frontend.surface import Assign, AugAssign, ForStmt, Statement
from argus.knowledge.draft import Draft, expressions
from argus.source import SourceFile

_FAR = 4
"""The distance of a line that has no connection with the finding."""

_OF_ORDER = (Sort.ORDER, Sort.FUNCTION, Sort.DEAD, Sort.NAME, Sort.OPTION)
_OF_PLACE = (Sort.PLACE, Sort.CHECK, Sort.DEAD, Sort.FUNCTION, Sort.NUMBER, Sort.EXCHANGE, Sort.OPERATOR, Sort.NAME)
_OF_COVERAGE = (Sort.PLACE, Sort.DEAD, Sort.MISSING, Sort.ORDER, Sort.FUNCTION, Sort.CHECK, Sort.NUMBER, Sort.EXCHANGE,
                Sort.OPERATOR, Sort.NAME, Sort.OPTION)  # fmt: skip
_OF_VALUE = (Sort.DEAD, Sort.OPERATOR, Sort.CHECK, Sort.EXCHANGE, Sort.FUNCTION, Sort.NUMBER, Sort.NAME, Sort.MISSING,
             Sort.OPTION, Sort.PLACE, Sort.ORDER)  # fmt: skip
_CODES: Mapping[str, tuple[Sort, ...]] = {
    **dict.fromkeys(("data-race", "block-race", "async-overwrite", "stale-read", "uninitialised-read"), _OF_ORDER),
    **dict.fromkeys(("out-of-bounds", "misaligned-vector", "coordinate-outside", "int32-overflow"), _OF_PLACE),
    **dict.fromkeys(("output-not-covered", "output-written-twice", "output-written-outside", "cell-written-twice"),
                    _OF_COVERAGE),
}  # fmt: skip
"""The sorts of edits that findings of a code suggest, the most likely first. Other sorts come after them."""
_ANYWHERE = (Sort.DERIVED, Sort.SPECIFIED)
"""The sorts of edits that settle a contradiction, which are likely on lines that the finding does not name, too."""


def sorts(code: str) -> tuple[Sort, ...]:
    """Return the sorts of edits for findings of a code, the most likely first."""
    return (*_ANYWHERE, *_CODES.get(code, _OF_VALUE))


def ordered(draft: Draft, source: SourceFile, edits: list[TextEdit], finding: Diagnostic) -> list[TextEdit]:
    """Return the edits in the order in which they should be tried. Equally promising edits keep the order of the text.
    """
    distance = distances(draft, lines_of(finding, source))
    likely = {sort: place for place, sort in enumerate(sorts(finding.code))}

    def cost(edit: TextEdit) -> float:
        if edit.sort in _ANYWHERE:
            return _ANYWHERE.index(edit.sort) + 0.5 * distance.get(edit.line, _FAR)
        return 2.0 * distance.get(edit.line, _FAR) + likely.get(edit.sort, len(likely) + 1)

    return sorted(edits, key=cost)


def lines_of(finding: Diagnostic, source: SourceFile) -> list[int]:
    """Return the lines of the text that a finding names, counted from 1. The caret's line comes first."""
    spans = [finding.span, finding.span.call]
    other: Any = None
    if finding.witness is not None:
        spans += [hop.span for hop in reversed(finding.witness.provenance)]
        spans += [event.span for event in finding.witness.trace]
        other = (finding.witness.other or {}).get("span")
    found = [s.line - source.first_line + 1 for s in spans if s is not None and s.line]
    parts = str(other).rsplit(":", 2)
    if len(parts) == 3 and parts[1].isdecimal():
        found.append(int(parts[1]) - source.first_line + 1)
    return list(dict.fromkeys(found))


def distances(draft: Draft, lines: list[int]) -> dict[int, int]:
    """Return the distance of each statement's line from the first lines, in steps from a reader to the names that it
    reads."""
    found: dict[int, int] = {}
    every = computing(draft)
    front = [s for s in every if any(s.span.line <= line <= s.span.end_line for line in lines)]
    for step in range(_FAR):
        for statement in front:
            found.setdefault(statement.span.line, step)
        read = {n for s in front for e in expressions(s) for n in used(e)}
        front = [s for s in every if s.span.line not in found and read & _bound(s)]
    return found


def _bound(statement: Statement) -> set[str]:
    match statement:
        case Assign(targets=targets):
            return {t.id for t in targets}
        case AugAssign(target=target) | ForStmt(target=target):
            return {target.id}
        case _:
            return set()
