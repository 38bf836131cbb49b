"""Errors of the emitter for IR that is not explicit enough to be printed."""

from __future__ import annotations

from argus.diagnostic import ArgusError, Diagnostic
from argus.source import Span


def problem(code: str, message: str, span: Span, help: str = "") -> ArgusError:
    """Return the exception for a statement that has no C++."""
    return ArgusError(Diagnostic(code, message, span, property="machine rules", help=help))
