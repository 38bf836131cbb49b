"""The base class of statements: a place in the author's text, and an identity that rewriting keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from argus.source import Span, span_field

CONDITION: Mapping[str, object] = {"condition": True}
"""Metadata of a field whose expression is a truth value."""

Problem = tuple[str, Span]
"""A violated rule: what is wrong with a statement or a declaration, and where."""

UNNUMBERED = -1
"""The id of a statement that was made after the kernel was numbered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A statement. Equality and the text form ignore `span` and `id`.

    `id` distinguishes the statements of one kernel, including equal ones: `argus.ir.visit.numbered` gives each
    statement its number, and `dataclasses.replace` keeps it. A pass that numbers a kernel first can therefore note
    something about a statement, rewrite the statement, and find the note again.
    """

    span: Span = span_field()
    id: int = field(default=UNNUMBERED, compare=False, repr=False)
