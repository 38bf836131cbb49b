"""Work: what a proof may cost, counted in steps that are the same on every machine.

Seconds depend on the machine and on what else it does, so no verdict may depend on them. The engines count instead: one
step is one allocation of ISL, a few resource units of Z3, or a fixed part of a statement that the simulator executes.
`STEPS_PER_SECOND` turns a limit that a person gives in seconds into steps.
"""

from __future__ import annotations

from dataclasses import dataclass

STEPS_PER_SECOND = 2_000_000
"""Steps that a processor of 2024 takes in a second; measured between 1.4 and 4.4 million over the shipped kernels."""

LIMIT_S = 20.0
"""The work of one proof, in seconds, unless the caller says otherwise."""

MOST_SECONDS = 86_400.0
"""The greatest limit that is counted; a longer one is taken for this."""


@dataclass(slots=True)
class Work:
    """A number of steps that are left. Engines `spend` from it, and stop when it is `over`."""

    left: int

    @staticmethod
    def of_seconds(seconds: float) -> Work:
        """Return the amount of work that takes about `seconds` of processor time, from 0 to `MOST_SECONDS`."""
        return Work(int(min(max(seconds, 0.0), MOST_SECONDS) * STEPS_PER_SECOND))

    @property
    def over(self) -> bool:
        """True once no step is left."""
        return self.left <= 0

    def spend(self, steps: int) -> None:
        """Take steps from what is left. It may fall below 0: an engine stops between two of its operations."""
        self.left -= steps
