"""Second looks at generated kernels: the other engine answers the same questions, and a proof takes no simpler form."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from argus.diagnostic import Verdict
from argus.ir.nodes import Kernel
from argus.verify import verify

_COUNTED = ("asked", "agreed", "undecided")
_DECIDED = {Verdict.PROVED, Verdict.REFUTED}


@dataclass
class Looks:
    """What second looks found. One kernel in `every` has one; with 0, none has."""

    every: int = 0
    numbers: Counter[str] = field(default_factory=Counter)

    def due(self, number: int) -> bool:
        """Return True if the kernel with this number, counted from 1, has a second look."""
        return self.every > 0 and number % self.every == 0

    def look(self, kernel: Kernel, verdict: Verdict, limit_s: float) -> list[str]:
        """Verify a kernel in both other ways. Return what contradicts an answer of an engine, or the verdict."""
        opinions = verify(kernel, limit_s, second_opinion=True).opinions
        exact = verify(kernel, limit_s, exact=True).verdict
        self.numbers["kernels"] += 1
        self.numbers[f"exact {exact.value}"] += 1
        for name in _COUNTED:
            self.numbers[name] += sum(getattr(opinion, name) for opinion in opinions)
        wrong = [f"the engines disagree: {text}" for opinion in opinions for text in opinion.disagreed]
        if {verdict, exact} == _DECIDED:
            wrong.append(f"{verdict.value}, and yet {exact.value} on no simpler form")
        return wrong

    def line(self) -> str:
        """Return the numbers for a person."""
        return "second looks: " + ", ".join(f"{count} {name}" for name, count in self.numbers.items())
