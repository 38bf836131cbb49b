"""Diagnostics for people: places in the text, witnesses and remedies."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rich.cells import cell_len
from rich.text import Text

from argus.diagnostic import Diagnostic, Note, Opinion, Verdict, Witness
from argus.render.outcome import Outcome
from argus.source import Span

_STYLES: Mapping[str, str] = {
    "refuted": "bold red",
    "error": "bold red",
    "unknown": "bold yellow",
    "warning": "bold yellow",
    "proved": "bold green",
}
_GUTTER = "blue"
_WIDEST = 200
"""Largest number of characters of a source line that are shown."""
_UNSEEN = ("Cc", "Cf", "Zl", "Zp")
"""Categories of characters that are invisible, or that change how other characters are displayed."""


def outcome_text(outcome: Outcome) -> Text:
    """Return one kernel's diagnostics, then its verdict and the assumptions on which the verdict rests."""
    text = Text()
    for diagnostic in outcome.diagnostics:
        text.append_text(diagnostic_text(diagnostic)).append("\n")
    text.append(outcome.word, _STYLES[outcome.word]).append(f" {outcome.kernel}", "bold")
    text.append(f"  {outcome.seconds:.2f} s")
    text.append(f"{_alignment_text(outcome.alignment)}{_equality_text(outcome)}\n", "dim")
    for line in _opinions_text(outcome.opinions):
        text.append(f"  {line}\n", "dim")
    for code in outcome.accepted:
        text.append("  accepted ", "dim").append(f"{code}, tested in {outcome.runs} runs in the simulator\n")
    for assumption in outcome.assumptions:
        text.append("  assuming ", "dim").append(f"{assumption}\n")
    return text


def _opinions_text(opinions: tuple[Opinion, ...]) -> Iterator[str]:
    """Yield a line for each engine whose answers the other engine checked."""
    for engine, other in (("isl", "z3"), ("z3", "isl")):
        mine = [a for a in opinions if a.engine == engine]
        if mine:
            agreed, undecided = sum(a.agreed for a in mine), sum(a.undecided for a in mine)
            wrong = sum(len(a.disagreed) for a in mine)
            yield f"second opinion of {other} on {engine}: {agreed} agreed, {undecided} undecided, {wrong} disagreed"


def _alignment_text(alignment: Mapping[str, int]) -> str:
    """Return the part of a `proved` line that says which alignment every call must have."""
    values = set(alignment.values())
    if values <= {1}:
        return ""
    if len(values) == 1:
        return f", with tensors and their rows aligned to {values.pop()} bytes (checked at each call)"
    each = ", ".join(f"{name} to {bytes}" for name, bytes in alignment.items())
    return f", with tensors and their rows aligned (in bytes: {each}; checked at each call)"


def _equality_text(outcome: Outcome) -> str:
    """Return the part of a `proved` line that says what a proof of values means."""
    if outcome.verdict is not Verdict.PROVED or not outcome.equality:
        return ""
    kinds = {kind: [name for name, k in outcome.equality.items() if k == kind] for kind in outcome.equality.values()}
    return "; values: " + ", ".join(f"{' and '.join(names)} {kind}" for kind, names in kinds.items())


def diagnostics_text(diagnostics: Iterable[Diagnostic]) -> Text:
    """Return all `diagnostics` as text, separated by blank lines."""
    return Text("\n").join(diagnostic_text(d) for d in diagnostics)


def diagnostic_text(diagnostic: Diagnostic) -> Text:
    """Return the message, the source line with a caret, the notes, the witness, and the remedy. The text ends with a
    newline."""
    word = _head(diagnostic)
    text = Text()
    text.append(f"{word}[{diagnostic.code}]", _STYLES[word]).append(f": {diagnostic.message}\n", "bold")
    _place(text, diagnostic.span, diagnostic.label, _STYLES[word])
    for note in diagnostic.notes:
        _note(text, "note", note)
    if diagnostic.witness is not None:
        _witness(text, diagnostic.witness)
    if diagnostic.help:
        _hang(text, "help", "bold cyan", diagnostic.help)
    return text


def _head(diagnostic: Diagnostic) -> str:
    if diagnostic.verdict is None or diagnostic.verdict is Verdict.PROVED:
        return str(diagnostic.severity.value)
    return str(diagnostic.verdict.value)


def _hang(text: Text, word: str, style: str, message: str) -> None:
    """Return `word: message`. Further lines of the message are indented to start under its first line."""
    first, *rest = message.splitlines() or [""]
    text.append(word, style).append(f": {first}\n")
    for line in rest:
        text.append(f"{' ' * (len(word) + 2)}{line}\n")


def _note(text: Text, word: str, note: Note) -> None:
    _hang(text, word, "bold", note.message)
    if note.span.known:
        _place(text, note.span, "", _GUTTER)


def _place(text: Text, span: Span, label: str, style: str) -> None:
    """Return the source line of `span`, underlined, and the calls through which it was inlined."""
    if span.file is None:
        if label:
            text.append(f"  = {label}\n")
        return
    number = str(span.line)
    margin = " " * len(number)
    text.append(f"{margin}--> ", _GUTTER).append(f"{span}\n")
    line = span.file.line(span.line)
    if line:
        start = max(span.column - 1, 0)
        # A span over several lines is underlined to the end of its first.
        end = span.end_column - 1 if span.end_line == span.line else len(line)
        before, marked, after = _excerpt(line, start, max(end, start + 1))
        text.append(f"{margin} |\n", _GUTTER)
        text.append(f"{number} | ", _GUTTER).append(f"{before}{marked}{after}\n")
        text.append(f"{margin} | ", _GUTTER).append(" " * cell_len(before))
        text.append("^" * max(cell_len(marked), 1), style)
        text.append(f" {label}" if label else "", style).append("\n")
    for call in _calls(span):
        text.append(f"{margin} = ", _GUTTER).append(f"called from {call}: {_stripped(call)}\n")


def _excerpt(line: str, start: int, end: int) -> tuple[str, str, str]:
    """Return a source line in three parts: before `start`, up to `end`, and after `end`. A very long line is cut around
    the marked part."""
    first = max(0, min(start - _WIDEST // 4, len(line) - _WIDEST))
    last = first + _WIDEST
    parts = (line[first:start], line[start : min(end, last)], line[min(end, last) : last])
    before, marked, after = ("".join(map(_drawn, part)) for part in parts)
    return "\u2026" * (first > 0) + before, marked, after + "\u2026" * (last < len(line))


def _drawn(character: str) -> str:
    """Return the text that represents a character of a source line: the character itself, if it is visible."""
    if character == "\t":
        return "    "
    if ord(character) < 32:
        return chr(0x2400 + ord(character))
    return "\ufffd" if unicodedata.category(character) in _UNSEEN else character


def _calls(span: Span) -> Iterator[Span]:
    while span.call is not None:
        span = span.call
        yield span


def _stripped(span: Span) -> str:
    return span.file.line(span.line).strip()[:_WIDEST] if span.file is not None else ""


def _witness(text: Text, witness: Witness) -> None:
    text.append("counterexample", "bold").append(f": {_where(witness)}\n")
    if witness.contents:
        held = ", ".join(f"{name} = {_elements(values)}" for name, values in witness.contents.items())
        text.append(f"  with      {held}\n")
    element = f"{witness.object}[{_tuple(witness.logical)}]" if witness.logical else witness.object
    place = " at ".join(part for part in (element, witness.physical) if part)
    if place:
        text.append(f"  element   {place}\n")
    if witness.arrived or witness.expected:
        _columns(text, witness.arrived, witness.expected)
    if witness.other is not None:
        text.append("  against   ").append(f"{_pairs(witness.other)}\n")
    if witness.trace:
        text.append("  this led there\n")
        _trace(text, witness)
    if witness.missing:
        text.append("  missing   ").append(f"{witness.missing}\n", "bold")
    if witness.provenance:
        text.append("  the value came this way\n")
        for index, hop in enumerate(witness.provenance, 1):
            at = f"  ({hop.span})" if hop.span.known else ""
            text.append(f"    {index}. {hop.message}").append(f"{at}\n", "dim")
    if witness.failing:
        only = " (no other)" if witness.unique else ""
        text.append(f"  fails for {witness.failing}{only}\n")
    if witness.replayed:
        text.append("  replayed in the simulator at these sizes\n", "dim")


def _trace(text: Text, witness: Witness) -> None:
    """Print one line for each step: the role, the iteration (and the program if there are several), the action, and its
    place."""
    several = len({event.block for event in witness.trace if event.block}) > 1
    rows = []
    for event in witness.trace:
        parts = [f"({_tuple(event.block)})"] if several and event.block else []
        rows.append((event.role or "...", " ".join([*parts, _pairs(event.iteration)]).strip(), event))
    roles, places = max(len(r) for r, _, _ in rows), max(len(p) for _, p, _ in rows)
    digits = len(str(len(rows)))
    for index, (role, place, event) in enumerate(rows, 1):
        at = f"  ({event.span})" if event.span.known else ""
        column = f"  {place:<{places}}" if places else ""
        text.append(f"    {index:>{digits}}. {role:<{roles}}{column}  {event.message}").append(f"{at}\n", "dim")


def _where(witness: Witness) -> str:
    parts = [_pairs(witness.sizes)] if witness.sizes else []
    if witness.block:
        parts.append(f"block ({_tuple(witness.block)})")
    if witness.warp is not None and witness.lane is not None:
        parts.append(f"warp {witness.warp} lane {witness.lane}")
    if witness.thread is not None:
        parts.append(f"thread {witness.thread}")
    if witness.iteration:
        parts.append(f"iteration {_pairs(witness.iteration)}")
    return ", ".join(parts)


def _columns(text: Text, arrived: str, expected: str) -> None:
    """Print the value that arrived beside the expected value, in two columns."""
    left, right = ["arrived", *arrived.splitlines()], ["expected", *expected.splitlines()]
    rows = max(len(left), len(right))
    left += [""] * (rows - len(left))
    right += [""] * (rows - len(right))
    width = max(map(len, left))
    for index, (a, b) in enumerate(zip(left, right, strict=True)):
        style = "dim" if index == 0 else "bold"
        text.append(f"  {a:<{width}}", style).append(" |", "dim").append(f" {b}".rstrip() + "\n", style)


def _pairs(values: Mapping[str, Any]) -> str:
    def show(value: Any) -> str:
        if isinstance(value, Mapping):
            return f"({_pairs(value)})"
        return f"({_tuple(value)})" if isinstance(value, (tuple, list)) else str(value)

    return ", ".join(f"{name} = {show(value)}" for name, value in values.items() if value != {})


_MOST_ELEMENTS = 32
"""Largest number of elements of an index tensor that are printed."""


def _elements(values: Any) -> str:
    """Return the contents of a tensor as text. If there are many elements, only the first ones are shown."""
    left = _MOST_ELEMENTS

    def show(value: Any) -> str:
        nonlocal left
        if not isinstance(value, list):
            left -= 1
            return str(value)
        shown = []
        for inner in value:
            if left <= 0:
                shown.append("...")
                break
            shown.append(show(inner))
        return f"[{', '.join(shown)}]"

    return show(values)


def _tuple(values: Iterable[Any]) -> str:
    return ", ".join(map(str, values))
