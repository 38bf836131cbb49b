"""The release of a kernel with an unknown value property, if its author accepts the finding by its code.

Safety must be proved, or the kernel does not run. The values that a kernel computes may be tested instead: the kernel
runs in the simulator at small sizes. The report lists the accepted findings and the number of runs without an error.
The verdict stays "unknown".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from argus.diagnostic import Diagnostic, Severity, Verdict, VerificationError
from argus.ir.cluster import unite
from argus.ir.nodes import Kernel
from argus.verify.report import Report
from argus.verify.search import search
from argus.work import LIMIT_S, Work


def released(kernel: Kernel, report: Report, accept: Sequence[str], limit_s: float = LIMIT_S) -> Report:
    """Return the report of a kernel that may be built: it is proved, or all unknown findings are accepted and tested.

    Raises `VerificationError` with all findings that prevent the release.
    """
    if report.verdict is Verdict.PROVED:
        return report
    findings = tuple(d for d in report.diagnostics if d.severity is Severity.ERROR)
    accepted = tuple(sorted({d.code for d in findings if d.verdict is Verdict.UNKNOWN and d.code in accept}))
    if any(d.code not in accepted or d.verdict is not Verdict.UNKNOWN for d in findings):
        raise VerificationError(*findings)
    tried = search(unite(kernel), True, True, Work.of_seconds(limit_s))
    if tried.found is not None:
        raise VerificationError(tried.found, *findings)
    if not tried.runs:
        message = f"{', '.join(f'`{code}`' for code in accepted)} is accepted, and no run in the simulator tests it"
        help = "declare the grid with al.grid(...), and let some sizes of a few elements meet what is required"
        untested = Diagnostic("not-tested", message, kernel.span, "tags", verdict=Verdict.UNKNOWN, help=help)
        raise VerificationError(untested, *findings)
    return replace(report, accepted=accepted, runs=tried.runs)
