"""The events of a run, and the violations that they cause."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from argus.diagnostic import Note
from argus.ir.nodes import Stmt
from argus.simulate.outcome import Stopped, Violation


@dataclass(frozen=True, slots=True)
class Execution:
    """One execution of a statement by a role. `steps` is the number of earlier steps of the run."""

    stmt: Stmt
    block: tuple[int, ...]
    loops: dict[str, int]
    role: str
    steps: int

    @property
    def place(self) -> tuple[str, tuple[int, ...], dict[str, int]]:
        """The role, the program, and the iteration."""
        return self.role, self.block, self.loops


@dataclass(frozen=True, slots=True)
class Ordered:
    """One effect of an execution on the order of events.

    `engine`: the copy engine caused the effect, later than the statement. `what`: see `argus.diagnostic.Event`.
    """

    event: int
    what: str
    barrier: str = ""
    phase: int = 0
    engine: bool = False
    threads: int = 0
    """Number of participating threads if not all threads of the role took part, else 0."""


@dataclass(slots=True)
class Log:
    """Collects violations, the first one for each statement, code and object. `stop` ends the run at the first
    violation."""

    stop: bool
    violations: list[Violation] = field(default_factory=list)
    events: list[Execution] = field(default_factory=list)
    steps: list[Ordered] = field(default_factory=list)
    _seen: set[tuple[int, str, str]] = field(default_factory=set)

    def event(self, stmt: Stmt, block: tuple[int, ...], loops: dict[str, int], role: str) -> int:
        """Return a new number for this execution of `stmt`."""
        self.events.append(Execution(stmt, block, loops, role, len(self.steps)))
        return len(self.events) - 1

    def wants(self, stmt: Stmt | None, code: str, obj: str) -> bool:
        """Return True if this violation would be the first of its kind."""
        return (id(stmt), code, obj) not in self._seen

    def add(self, violation: Violation) -> None:
        """Record a violation unless one of its kind is already recorded. Raise `Stopped` if the first violation ends
        the run."""
        key = (id(violation.statement), violation.code, violation.object)
        if key in self._seen:
            return
        self._seen.add(key)
        self.violations.append(violation)
        if self.stop:
            raise Stopped

    def party(self, event: int, thread: int, what: str) -> dict[str, Any]:
        """Return the second access of a race in the form of `Violation.other`."""
        e = self.events[event]
        return {"statement": e.stmt, "block": e.block, "thread": thread, "iteration": dict(e.loops), "access": what}

    def note(self, event: int, text: str) -> Note:
        """Return one hop of a value's provenance, at the statement of an event."""
        e = self.events[event]
        at = ", ".join(f"{name}={value}" for name, value in e.loops.items())
        return Note(f"{text} at {at}" if at else text, e.stmt.span)
