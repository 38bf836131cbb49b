"""The result of a simulation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from argus.diagnostic import Event, Note
from argus.ir.nodes import Stmt
from argus.simulate.numeric import Array

Story = tuple[tuple[Event, ...], str]
"""What led to a violation, and the order that is missing."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule, at the first element that broke it; `count` elements broke it in that statement's run.

    `property` is a row of the property table. `statement` is None for violations that only show at the end (coverage,
    specification). `iteration` maps loop variables to their values. `logical` is the element's coordinate in
    `object`; `physical` a register ("r3"), a byte of shared memory ("shared+0x80") or of a tensor
    ("global a+0x10"). `other` is the second party of a race or overlap. `provenance` is the way of the value, first hop
    first. `certain` is False if a coarser rounding than the kernel's could explain the violation: the value misses its
    specification by little. `trace` holds the steps that led to the violation if the fault lies in the order of events,
    and `missing` the order that is missing. `contents` is what the index tensors held before the run, as nested lists.
    """

    property: str
    code: str
    message: str
    statement: Stmt | None
    block: tuple[int, ...]
    thread: int | None = None
    iteration: dict[str, int] = field(default_factory=dict)
    object: str = ""
    logical: tuple[int, ...] = ()
    physical: str = ""
    arrived: str = ""
    expected: str = ""
    other: dict[str, Any] | None = None
    provenance: tuple[Note, ...] = ()
    count: int = 1
    certain: bool = True
    trace: tuple[Event, ...] = ()
    missing: str = ""
    contents: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        where = f"block {self.block}" + (f" thread {self.thread}" if self.thread is not None else "")
        at = "".join(f" {name}={value}" for name, value in self.iteration.items())
        what = f" {self.object}{list(self.logical)} ({self.physical})" if self.object else ""
        return f"{self.property}/{self.code}: {self.message} [{where}{at}{what}]"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run. `tensors`: the contents of every tensor at the end, in the carrier type; arguments are
    untouched.

    `violations`: the first of each statement, code and object, in the order in which they were found.
    `complete` is true when every block of the grid ran to its end. `printed`: the lines of `al.device_print`, in order.
    """

    tensors: dict[str, Array]
    violations: tuple[Violation, ...]
    blocks: int
    complete: bool
    printed: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True if no rule was broken."""
        return not self.violations

    def codes(self) -> frozenset[str]:
        """Return the codes of all violations."""
        return frozenset(v.code for v in self.violations)


class NotReplayable(Exception):
    """The run would take more loop iterations, memory or time than it was allowed."""


class Stopped(Exception):
    """A violation after which the block cannot go on, or the first one where that was asked for."""
