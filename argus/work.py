"""The cost limit of a proof, counted in steps that are the same on every machine.

Seconds depend on the machine and on its load, so no verdict may depend on them. The engines count instead: one step is
one allocation of ISL, a few resource units of Z3, or a fixed part of a statement that the simulator executes.
`STEPS_PER_SECOND` converts a limit in seconds, as a user gives it, into steps.
"""

from __future__ import annotations

from dataclasses import dataclass

STEPS_PER_SECOND = 2_000_000
"""Steps that a processor of 2024 takes in a second. Over the shipped kernels, between 1.4 and 4.4 million were
measured."""

LIMIT_S = 20.0
"""The default limit of one answer, in seconds: of proofs, replays and runs at small sizes together. At the least
measured number of steps per second, it ends within 30 seconds of a processor."""

MOST_SECONDS = 86_400.0
"""The largest limit that is counted. A longer limit is reduced to it."""


@dataclass(slots=True)
class Work:
    """A number of remaining steps. Engines `spend` steps, and stop when the work is `over`."""

    left: int

    @staticmethod
    def of_seconds(seconds: float) -> Work:
        """Return the amount of work that takes about `seconds` of processor time, from 0 to `MOST_SECONDS`."""
        return Work(int(min(max(seconds, 0.0), MOST_SECONDS) * STEPS_PER_SECOND))

    def part(self, most: int) -> Part:
        """Return at most so many of the remaining steps. What the part spends, this work has spent, too."""
        return Part(max(0, min(most, self.left)), self)

    @property
    def over(self) -> bool:
        """True once no step is left."""
        return self.left <= 0

    def spend(self, steps: int) -> None:
        """Subtract steps from the remaining ones. The result may fall below 0, because an engine stops between two of
        its operations."""
        self.left -= steps


@dataclass(slots=True)
class Part(Work):
    """A part of the remaining steps of another work."""

    whole: Work

    def spend(self, steps: int) -> None:
        """Subtract steps from the part and from the whole."""
        self.left -= steps
        self.whole.spend(steps)
