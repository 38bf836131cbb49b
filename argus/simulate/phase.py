"""mbarriers and named barriers: phases, arrivals, bytes (PTX ISA, mbarrier; bar).

A named barrier is an mbarrier that counts arriving warps. Every arrival states the number that completes a phase.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from argus.simulate.clock import Clock, Team
from argus.simulate.step import Step


@dataclass(slots=True, eq=False)
class Mbarrier:
    """One mbarrier. `phase` counts completed phases. `missing` is the number of arrivals, and `bytes` the number of
    bytes (expected minus arrived), that the current phase lacks. `early` counts arrivals that came before their phase.

    Team `maker` initialised it, and the team's fence after that is in segment `fenced`, or None if there is no fence
    yet. `filled` is the last bulk copy that it counts, with its phase.
    """

    name: str
    index: int | None
    arrivals: int
    component: int
    address: int
    missing: int
    clock: Clock
    """The knowledge that the arrivals of the current phase pass on."""
    phase: int = 0
    bytes: int = 0
    early: list[Clock] = field(default_factory=list)
    maker: Team | None = None
    fenced: int | None = None
    filled: tuple[Step, int] | None = None
    history: list[Clock] = field(default_factory=list)
    """The knowledge that each completed phase passes on."""

    @property
    def label(self) -> str:
        return self.name if self.index is None else f"{self.name}[{self.index}]"

    @property
    def physical(self) -> str:
        """The address in shared memory as text, or empty for a named barrier, which has no address."""
        return "" if self.index is None else f"shared+{self.address:#x}"

    def arrive(self, clock: Clock) -> bool:
        """Count one arrival. Return True if the current phase takes it, and False if it came too early."""
        if self.missing == 0:
            self.early.append(clock)
            return False
        self.missing -= 1
        self.clock.join(clock)
        self.complete()
        return True

    def complete(self) -> None:
        """End the phase if nothing is missing. Early arrivals then count in the next phase."""
        while self.missing == 0 and self.bytes == 0:
            self.phase += 1
            self.clock.known[self.component] = self.phase
            self.history.append(self.clock)
            self.clock, self.missing = Clock.start(len(self.clock.known)), self.arrivals
            now, self.early = self.early[: self.missing], self.early[self.missing :]
            for clock in now:
                self.missing -= 1
                self.clock.join(clock)

    def state(self) -> str:
        """Return the current phase as text."""
        came = self.arrivals - self.missing
        bytes_ = "" if self.index is None else f" and {self.bytes} bytes outstanding"
        return f"{self.label}: {self.phase} phases complete; in the next, {came} of {self.arrivals} arrivals{bytes_}"


@dataclass(frozen=True, slots=True)
class Waiting:
    """A wait that is over once `barrier` has completed `phases` phases."""

    step: Step
    barrier: Mbarrier
    phases: int

    @property
    def over(self) -> bool:
        return self.barrier.phase >= self.phases
