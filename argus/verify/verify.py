"""Verification of one explicit kernel: every property in turn, then the witnesses."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock
from typing import TypeVar

from argus.diagnostic import Severity, SourceError, Verdict
from argus.ir.cluster import unite
from argus.ir.nodes import Assume, Kernel
from argus.ir.text import print_expr
from argus.ir.wellformed import check_explicit
from argus.source import NO_SPAN
from argus.verify import (
    assertions,
    beginning,
    convergence,
    coverage,
    inflight,
    initialisation,
    machine,
    ownership,
    peers,
    races,
    spec,
    speed,
)
from argus.verify.bounds import BoundsChecker
from argus.verify.counts import spelled
from argus.verify.findings import Finding, unknown
from argus.verify.order import Ordering
from argus.verify.protocol import Protocol
from argus.verify.relations import IslError, Model, NonAffine, operation_limit
from argus.verify.report import Report, Timing, verdict_of
from argus.verify.search import search
from argus.verify.solver import Solver
from argus.verify.tags import TagAnalysis
from argus.verify.window import Window
from argus.verify.witness import to_diagnostic

T = TypeVar("T")

DEFAULT_LIMIT_S = 30.0
"""Seconds of verification per kernel before what is left is unknown."""


def verify(kernel: Kernel, limit_s: float = DEFAULT_LIMIT_S) -> Report:
    """Proves every property of an explicit kernel, or says what fails, with a replayed witness, or what is unknown.

    Raises `SourceError` for a kernel that is not well-formed explicit IR, or that no launch could run. Threads of one
    process prove one after the other; the limit counts from a proof's own start.
    """
    problems = check_explicit(kernel)
    if problems:
        raise SourceError(*problems)
    with _ALONE:
        return _verify(kernel, limit_s)


_ALONE = Lock()
"""Neither isl's context nor z3's may be used by two threads at once."""


def _verify(kernel: Kernel, limit_s: float) -> Report:
    run = _Run(kernel, limit_s)
    kernel = unite(kernel)
    findings = run.findings()
    refused = [f for f in findings if f.property == "machine" and f.verdict is Verdict.REFUTED and f.place is None]
    if refused:
        raise SourceError(*(to_diagnostic(kernel, f) for f in refused))
    started = time.monotonic()
    diagnostics = (*(to_diagnostic(kernel, f) for f in _distinct(findings)), *kernel.remarks)
    if verdict_of(diagnostics) is Verdict.UNKNOWN:
        found = search(kernel, run.deadline)
        diagnostics = (found, *diagnostics) if found is not None else diagnostics
    run.timings.append(Timing("witness", "simulator", time.monotonic() - started))
    seconds = time.monotonic() - run.started
    assumptions = tuple(f"{print_expr(p.cond)} ({p.reason})" for p in kernel.preconditions if isinstance(p, Assume))
    return Report(kernel.name, verdict_of(diagnostics), diagnostics, assumptions, seconds, tuple(run.timings))


class _Run:
    """The engines on one kernel, with a deadline; what fails to finish is unknown."""

    def __init__(self, kernel: Kernel, limit_s: float) -> None:
        self.launched, self.kernel, self.started = kernel, spelled(unite(kernel)), time.monotonic()
        self.deadline = self.started + limit_s
        self.timings: list[Timing] = []

    def findings(self) -> list[Finding]:
        """The findings of all properties, in the order of the property table."""
        model = self._timed("relations", "isl", lambda: Model(self.kernel))
        if isinstance(model, Finding):
            return [model]
        bounds = BoundsChecker(self.kernel, model.sites, Solver(self.deadline))
        analysis = TagAnalysis(model)
        ordered = self._timed("progress", "isl", lambda: self._ordered(model))
        if isinstance(ordered, Finding):
            return [ordered]
        several, steps, order = ordered
        # In tensors two programs of a block meet as two blocks do; what a block keeps goes from one to the next.
        within = order if several is model else Ordering(model, lambda: Protocol(model))

        # Without its protocol, every order between roles is missing too: the protocol is what to mend.
        broken = any(f.verdict is Verdict.REFUTED for f in steps.findings)
        checks: list[tuple[str, str, Callable[[], list[Finding]]]] = [
            ("bounds", "z3", bounds.run),
            ("convergence", "z3", lambda: convergence.check(bounds)),
            ("machine", "z3+tables", lambda: machine.check(bounds, model, self.launched)),
            ("machine", "tables", lambda: ownership.check(self.kernel, model.sites)),
            ("initialisation", "isl", lambda: initialisation.check(model, analysis)),
            ("progress", "isl", steps.check),
            ("races", "isl", lambda: [] if broken else races.check(several, order, self.kernel.shared)),
            ("races", "isl", lambda: [] if broken else races.check(model, within, self.kernel.tensors)),
            ("races", "isl", lambda: inflight.check(several, order)),
            ("races", "isl", lambda: [] if broken else peers.check(several, order)),
            ("initialisation", "isl", lambda: [] if broken else beginning.initialised(several, order)),
            ("progress", "isl", lambda: [] if broken else beginning.finished(several, order)),
            ("coverage", "isl", lambda: coverage.check(model)),
            ("tags", "isl", lambda: assertions.check(analysis)),
            ("tags", "isl", lambda: spec.check(analysis)),
            ("speed", "tables", lambda: speed.check(self.kernel, model.sites)),
        ]
        findings: list[Finding] = []
        for name, engine, check in checks:
            result = self._timed(name, engine, check)
            findings += [result] if isinstance(result, Finding) else result
        return findings

    def _ordered(self, model: Model) -> tuple[Model, Protocol, Ordering]:
        """What order and progress are proved on: `model`, unless a persistent block's programs take other steps."""
        several = Window(model) if model.uneven else model
        steps = Protocol(several)
        return several, steps, Ordering(several, lambda: steps)

    def _timed(self, name: str, engine: str, work: Callable[[], T]) -> T | Finding:
        started = time.monotonic()
        left = self.deadline - started
        try:
            if left <= 0:
                return self._gave_up(name, engine, "the time limit of the kernel ran out")
            with operation_limit(left):
                return work()
        except NonAffine as error:
            return self._gave_up(name, engine, str(error))
        except IslError as error:
            return self._gave_up(name, engine, f"isl gave up: {error}")
        finally:
            self.timings.append(Timing(name, engine, time.monotonic() - started))

    def _gave_up(self, name: str, engine: str, reason: str) -> Finding:
        return unknown(
            f"{name}-unknown",
            name,
            self.kernel.span or NO_SPAN,
            f"{name} could not be decided by {engine}: {reason}",
            "state an al.requires that bounds the sizes, use a smaller constexpr, or raise --limit",
        )


def _distinct(findings: list[Finding]) -> list[Finding]:
    """One finding per code and place in the source; errors first."""
    seen: set[tuple[str, str, str]] = set()
    result = []
    for finding in sorted(findings, key=lambda f: f.severity is Severity.WARNING):
        key = (finding.code, str(finding.span), finding.message if not finding.span.known else "")
        if key not in seen:
            seen.add(key)
            result.append(finding)
    return result
