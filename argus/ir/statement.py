"""The base of all statements: a place in the author's text, and an identity that rewriting keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from argus.source import Span, span_field

CONDITION: Mapping[str, object] = {"condition": True}
"""Of a field that holds an expression: it is a truth value."""

Problem = tuple[str, Span]
"""What is wrong with a statement or a declaration, and where."""

UNNUMBERED = -1
"""The identity of a statement that was made after statements were numbered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A statement. Neither `span` nor `id` is part of what is equal, or of the text form.

    `id` tells statements of one kernel apart, also those that are equal: `argus.ir.visit.numbered` gives each its
    number, and `dataclasses.replace` keeps it. So a pass that numbers a kernel first may note something about a
    statement, rewrite it, and find the note again.
    """

    span: Span = span_field()
    id: int = field(default=UNNUMBERED, compare=False, repr=False)
