"""The report of a verification."""

from __future__ import annotations

from dataclasses import dataclass, replace
from html import escape

from argus.diagnostic import Diagnostic, Opinion, Severity, Verdict


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds spent on one property by one engine."""

    property: str
    engine: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Report:
    """The verdict on one explicit kernel. `assumptions` are the facts that its author assumed without proof.

    `accepted` are the codes of unknown findings about values that its author accepted (`argus.verify.release`), and
    `runs` counts the simulator's runs without an error. `opinions` are the other engine's answers for each kind of
    question, if a second opinion was requested. `steps` is the work that the answer took (`argus.work`); it is the same
    on every machine.
    """

    kernel: str
    verdict: Verdict
    diagnostics: tuple[Diagnostic, ...]
    assumptions: tuple[str, ...]
    seconds: float
    timings: tuple[Timing, ...]
    accepted: tuple[str, ...] = ()
    runs: int = 0
    opinions: tuple[Opinion, ...] = ()
    steps: int = 0

    def _repr_html_(self) -> str:
        """Return verdict, assumptions and findings as a notebook shows them."""
        head = f"<p><b>{escape(self.kernel)}: {self.verdict.value}</b> in {self.seconds:.2f} s</p>"
        assumed = "".join(f"<p>assuming {escape(text)}</p>" for text in self.assumptions)
        return head + assumed + "".join(d._repr_html_() for d in self.diagnostics)


def verdict_of(diagnostics: tuple[Diagnostic, ...]) -> Verdict:
    """Return REFUTED if any error is refuted, else UNKNOWN if there is any error, else PROVED; ignore warnings."""
    verdicts = {d.verdict for d in diagnostics if d.severity is Severity.ERROR}
    if Verdict.REFUTED in verdicts:
        return Verdict.REFUTED
    return Verdict.UNKNOWN if verdicts else Verdict.PROVED


def with_opinions(report: Report, opinions: tuple[Opinion, ...]) -> Report:
    """Add the other engine's opinions to a report. If one of them disagrees, the verdict becomes unknown."""
    disagreed = [text for opinion in opinions for text in opinion.disagreed]
    if not disagreed:
        return replace(report, opinions=opinions)
    found = Diagnostic(
        DISAGREE,
        f"the engines disagree about {len(disagreed)} of {sum(o.asked for o in opinions)} answers, the first: "
        f"{disagreed[0]}",
        property="engines",
        verdict=Verdict.UNKNOWN,
        help="one of Z3 and ISL is wrong, or Argus translates the question wrongly: please report it with the kernel",
    )
    return replace(report, verdict=Verdict.UNKNOWN, diagnostics=(found, *report.diagnostics), opinions=opinions)


DISAGREE = "engines-disagree"
"""The code of the finding that one engine contradicts the other."""
