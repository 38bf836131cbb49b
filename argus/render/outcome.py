"""The result for one kernel, as commands and editors show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from argus.diagnostic import Diagnostic, Opinion, Verdict

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result for one kernel.

    `verdict`: UNKNOWN also if nothing was tried.
    `seconds`: wall time.
    `alignment`: the assumed alignment of each tensor and its rows, in bytes; every call checks it.
    `accepted`: the unknown findings that were accepted, and tested in `runs` runs in the simulator.
    `equality`: the sense in which values of each specified output are compared, "exact" or "over the reals".
    `opinions`: second opinions, by engine and question, if there are any.
    """

    kernel: str
    verdict: Verdict
    seconds: float
    assumptions: tuple[str, ...]
    diagnostics: tuple[Diagnostic, ...]
    alignment: Mapping[str, int] = field(default_factory=dict)
    accepted: tuple[str, ...] = ()
    runs: int = 0
    equality: Mapping[str, str] = field(default_factory=dict)
    opinions: tuple[Opinion, ...] = ()

    @property
    def unusable(self) -> bool:
        """True if there was nothing to prove, because no finding is about a property of a kernel."""
        return self.verdict is Verdict.UNKNOWN and all(d.verdict is None for d in self.diagnostics)

    @property
    def word(self) -> str:
        """The verdict in one word: "proved", "refuted", "unknown", or "error" for unusable input."""
        return "error" if self.unusable else self.verdict.value
