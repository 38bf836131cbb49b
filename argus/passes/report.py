"""How a pass says that a kernel cannot be lowered."""

from __future__ import annotations

from argus.diagnostic import ArgusError, Diagnostic, Note
from argus.source import NO_SPAN, Span


class LoweringError(ArgusError):
    """A policy cannot be carried out, or an instruction cannot be used, on the chosen target."""


def problem(code: str, message: str, span: Span = NO_SPAN, help: str = "", notes: tuple[Note, ...] = ()) -> Diagnostic:
    """A diagnostic of lowering."""
    return Diagnostic(code, message, span, property="lowering", notes=notes, help=help)
