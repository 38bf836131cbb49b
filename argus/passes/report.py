"""The error and the remark with which a pass reports that it cannot carry out a policy."""

from __future__ import annotations

from argus.diagnostic import ArgusError, Diagnostic, Note, Severity
from argus.source import NO_SPAN, Span


class LoweringError(ArgusError):
    """A policy cannot be carried out, or an instruction cannot be used, on the chosen target."""


def problem(code: str, message: str, span: Span = NO_SPAN, help: str = "", notes: tuple[Note, ...] = ()) -> Diagnostic:
    """Return a diagnostic of lowering."""
    return Diagnostic(code, message, span, property="lowering", notes=notes, help=help)


class Unfit(Exception):
    """A kernel does not fit a policy that its target has. The policy is left out, with a remark."""

    def __init__(self, why: str, span: Span, remedy: str) -> None:
        self.why, self.span, self.remedy = why, span, remedy
        super().__init__(why)

    def remark(self, what: str) -> Diagnostic:
        """Return a warning that says what the kernel does instead (`what`), and why."""
        message = f"{what}: {self.why}"
        return Diagnostic("policy-not-applied", message, self.span, "lowering", Severity.WARNING, help=self.remedy)
