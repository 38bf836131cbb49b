"""Diagnostics as values, and the public exception classes that carry them to a caller."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from argus.source import NO_SPAN, Span


class Verdict(Enum):
    """The result of proving a kernel or an obligation. `UNKNOWN` never counts as proved."""

    PROVED = "proved"
    REFUTED = "refuted"
    UNKNOWN = "unknown"


class Severity(Enum):
    """`ERROR` stops the build; `WARNING` (speed) does not."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Note:
    """A secondary message, with its own place in the source if it has one."""

    message: str
    span: Span = NO_SPAN


@dataclass(frozen=True, slots=True)
class Event:
    """One step of the run that a witness shows: what `role` did in one iteration of a block's program.

    `what` is "read", "write", "issue" (work starts), "complete" (a bulk copy has arrived), "arrive", "expect", "wait"
    (it has returned), "blocked" (a wait never returns), "barrier", "fence", "commit", "initialise" (of an mbarrier),
    "ended" or "skipped" (steps are left out). For what the copy engine does on its own, `role` is "copy engine". If an
    mbarrier takes part, `barrier` is its name ("full[0]") and `phase` its phase, counted from 1.
    """

    role: str
    what: str
    message: str
    block: tuple[int, ...] = ()
    iteration: dict[str, int] = field(default_factory=dict)
    barrier: str = ""
    phase: int = 0
    span: Span = NO_SPAN


Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""A JSON value."""


@dataclass(frozen=True, slots=True)
class Witness:
    """One concrete failure: the smallest sizes found, the thread that fails, the value that arrived, and the value
    expected.

    `sizes` holds every symbolic size and integer parameter. `iteration` maps loop variables to their values. `logical`
    is the element's coordinate, `physical` a byte offset ("shared+0x80", "global a+0x10") or a register ("r3").
    `provenance` is the path of the value, first hop first. `other` describes the second access of a race or overlap
    (block, thread, iteration, statement). If the order of events is at fault, `trace` holds the steps that led to the
    failure, cut to those that matter, and `missing` names the order that is missing. `contents` holds the contents of
    the index tensors as nested lists. `failing` is the generalised set of failing instances; `unique` tells whether
    this witness is the only one.
    """

    sizes: dict[str, int]
    block: tuple[int, ...]
    thread: int | None = None
    warp: int | None = None
    lane: int | None = None
    iteration: dict[str, int] = field(default_factory=dict)
    object: str = ""
    logical: tuple[int, ...] = ()
    physical: str = ""
    arrived: str = ""
    expected: str = ""
    provenance: tuple[Note, ...] = ()
    other: dict[str, Json] | None = None
    failing: str = ""
    unique: bool | None = None
    replayed: bool = False
    trace: tuple[Event, ...] = ()
    missing: str = ""
    contents: dict[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Opinion:
    """The second opinion of another engine on the answers that `engine` gave to one kind of question.

    `agreed` counts the answers that the other engine confirms, and `undecided` those that it does not decide.
    `disagreed` holds the texts of the answers that it contradicts.
    """

    engine: str
    question: str
    agreed: int = 0
    undecided: int = 0
    disagreed: tuple[str, ...] = ()

    @property
    def asked(self) -> int:
        """The number of answers."""
        return self.agreed + self.undecided + len(self.disagreed)


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding. `code` is stable kebab-case and names the page `docs/errors/<code>.md`.

    `property` is a row of the property table ("tags", "bounds", "races", ...) or "syntax", "types", "launch",
    "toolchain" for what comes before proving. `label` stands beside the caret. `help` says what to do.
    """

    code: str
    message: str
    span: Span = NO_SPAN
    property: str = "syntax"
    severity: Severity = Severity.ERROR
    verdict: Verdict | None = None
    label: str = ""
    notes: tuple[Note, ...] = ()
    help: str = ""
    witness: Witness | None = None


    def _repr_html_(self) -> str:
        """Return the finding as a notebook shows it."""
        from html import escape

        from argus.render import diagnostic_text

        return f"<pre>{escape(diagnostic_text(self).plain)}</pre>"


class ArgusError(Exception):
    """Base class of every exception that Argus raises for bad input. `diagnostics` holds the findings.

    As a string, the exception is the text that the command line prints: places, witnesses and remedies.
    """

    def __init__(self, *diagnostics: Diagnostic) -> None:
        self.diagnostics = diagnostics
        super().__init__(*diagnostics)

    def __str__(self) -> str:
        # imported late: an error that nobody reads need not pay for the import
        from argus.render import diagnostics_text

        return diagnostics_text(self.diagnostics).plain.rstrip("\n")


class SourceError(ArgusError):
    """The kernel's text is outside the language, or ill-typed. The exception carries every error of the file."""


class VerificationError(ArgusError):
    """A property is refuted or undecided, so the build was refused."""


class LaunchError(ArgusError, ValueError):
    """The arguments of a call break a precondition: dtype, device, shape, stride, alignment, `requires`."""

    @classmethod
    def of(cls, code: str, message: str, help: str) -> LaunchError:
        """Return an error with one finding that has no place in a text."""
        return cls(Diagnostic(code, message, property="launch", help=help))


class ToolchainError(ArgusError, RuntimeError):
    """A compiler is missing or failed, or the driver refused the compiler's output."""
