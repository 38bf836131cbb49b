"""The result of a simulation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from argus.diagnostic import Event, Note
from argus.ir.nodes import Stmt
from argus.simulate.numeric import Array

Story = tuple[tuple[Event, ...], str]
"""The steps that led to a violation, and the order that is missing."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule, at the first element that broke it; `count` elements broke it in the same execution of the
    statement.

    `property` is a row of the property table. `statement` is None for violations that only show at the end (coverage,
    specification). `iteration` maps loop variables to their values. `logical` is the element's coordinate in `object`;
    `physical` is a register ("r3"), a byte of shared memory ("shared+0x80") or of a tensor ("global a+0x10"). `other`
    is the second access of a race or overlap. `provenance` is the path of the value, first hop first. `certain` is
    False if a coarser rounding than the kernel's could explain the violation, because the value misses its
    specification only slightly. If the order of events is at fault, `trace` holds the steps that led to the violation,
    and `missing` the order that is missing. `contents` holds the contents of the index tensors before the run, as
    nested lists. If a rule of the machine is broken, `registers` holds the register tiles that the statement's places
    and mask read, as lists of each thread's values.
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
    registers: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        where = f"block {self.block}" + (f" thread {self.thread}" if self.thread is not None else "")
        at = "".join(f" {name}={value}" for name, value in self.iteration.items())
        what = f" {self.object}{list(self.logical)} ({self.physical})" if self.object else ""
        return f"{self.property}/{self.code}: {self.message} [{where}{at}{what}]"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run. `tensors` holds the contents of every tensor at the end, in the carrier type; the arguments
    are not changed.

    `violations` holds the first violation of each statement, code and object, in the order of discovery. `complete` is
    true if every block of the grid ran to its end. `printed` holds the lines of `al.device_print`, in order.
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
    """The run would exceed the allowed number of loop iterations, memory or time."""


class Stopped(Exception):
    """Raised at a violation after which the block cannot continue, or at the first violation if that was requested."""
