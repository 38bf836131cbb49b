"""Verification of one explicit kernel: every property in turn, then the witnesses."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import TypeVar

from argus.diagnostic import Note, Severity, SourceError, Verdict
from argus.ir.cluster import unite
from argus.ir.nodes import Assume, Kernel
from argus.ir.text import print_expr
from argus.ir.wellformed import check_explicit
from argus.source import NO_SPAN
from argus.verify.checks import convergence, coverage, launchable, machine, ownership, speed
from argus.verify.checks.bounds import BoundsChecker
from argus.verify.checks.launchable import as_launched
from argus.verify.findings import Finding, unknown
from argus.verify.model.isl import IslError, operation_limit
from argus.verify.model.relations import Model
from argus.verify.model.solver import Solver
from argus.verify.model.translator import NonAffine
from argus.verify.questions import Questions
from argus.verify.reductions.alike import alone
from argus.verify.reductions.counts import spelled
from argus.verify.reductions.named import Named, named
from argus.verify.report import Report, Timing, verdict_of
from argus.verify.search import search
from argus.verify.witness import to_diagnostic

T = TypeVar("T")

DEFAULT_LIMIT_S = 30.0
"""CPU seconds of verification per kernel before what is left is unknown."""


REPLAY_S = 3.0
"""CPU seconds in which refutations are replayed, at least, if the proofs have taken all of their time."""

_NOT_TRIED = Note("not all small sizes were tried in the simulator: the time limit ran out; raise --limit")


def verify(kernel: Kernel, limit_s: float = DEFAULT_LIMIT_S) -> Report:
    """Proves every property of an explicit kernel, or says what fails, with a replayed witness, or what is unknown.

    Takes `limit_s` seconds of the processor, and what operations that are under way take; and `REPLAY_S` more where a
    refutation is left to be replayed. What there was no time for is unknown, and the diagnostics say so.
    Raises `SourceError` for a kernel that is not well-formed explicit IR, or that no launch could run. Threads of one
    process prove one after the other; the limit counts from a proof's own start, and its own thread's time alone.
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
        raise SourceError(*(to_diagnostic(kernel, f, math.inf) for f in refused))
    started = time.monotonic()
    deadline = max(run.deadline, time.thread_time() + REPLAY_S)
    diagnostics = (*(to_diagnostic(kernel, f, deadline) for f in _distinct(findings)), *kernel.remarks)
    if verdict_of(diagnostics) is Verdict.UNKNOWN:
        values = any(d.property == "tags" and d.verdict is Verdict.UNKNOWN for d in diagnostics)
        found, complete = search(kernel, values, run.deadline)
        if found is not None:
            diagnostics = (found, *diagnostics)
        elif not complete:
            diagnostics = tuple(replace(d, notes=(*d.notes, _NOT_TRIED)) if d.verdict else d for d in diagnostics)
    run.timings.append(Timing("witness", "simulator", time.monotonic() - started))
    seconds = time.monotonic() - run.started
    assumptions = tuple(f"{print_expr(p.cond)} ({p.reason})" for p in kernel.preconditions if isinstance(p, Assume))
    return Report(kernel.name, verdict_of(diagnostics), diagnostics, assumptions, seconds, tuple(run.timings))


_FLOW: tuple[tuple[str, Callable[[Questions], list[Finding]]], ...] = (
    ("initialisation", Questions.initialisation),
    ("progress", Questions.progress),
    ("races", Questions.races),
    ("races", Questions.races_in_tensors),
    ("races", Questions.registers),
    ("races", Questions.peers),
    ("initialisation", Questions.beginning),
    ("progress", Questions.end),
    ("tags", Questions.tags),
    ("tags", Questions.values),
)
"""By property: what is asked about data-flow, order and progress."""


class _Run:
    """The engines on one kernel, with a deadline; what fails to finish is unknown."""

    def __init__(self, kernel: Kernel, limit_s: float) -> None:
        self.launched, self.kernel, self.started = kernel, spelled(as_launched(unite(kernel))), time.monotonic()
        self.deadline = time.thread_time() + limit_s
        self.timings: list[Timing] = []

    def findings(self) -> list[Finding]:
        """The findings of all properties, in the order of the property table."""
        model = self._timed("relations", "isl", lambda: Model(self.kernel))
        if isinstance(model, Finding):
            return [model]
        bounds = BoundsChecker(self.kernel, model.sites, Solver(self.deadline))
        alone: tuple[tuple[str, str, Callable[[], list[Finding]]], ...] = (
            ("launch", "z3", lambda: launchable.check(self.kernel, self.deadline)),
            ("bounds", "z3", bounds.run),
            ("convergence", "z3", lambda: convergence.check(bounds)),
            ("machine", "z3+tables", lambda: machine.check(bounds, model, self.launched)),
            ("machine", "tables", lambda: ownership.check(self.kernel, model.sites)),
            ("coverage", "isl", lambda: coverage.check(model)),
        )
        findings = [f for check in alone for f in _listed(self._timed(*check))]
        findings += self._flow(model)
        return findings + _listed(self._timed("speed", "tables", lambda: speed.check(self.kernel, model.sites)))

    def _flow(self, model: Model) -> list[Finding]:
        """What is proved of a weaker form is proved; the rest is asked about the kernel as it is, which is `model`."""
        one = alone(self.kernel)
        weaker = self._weaker(named(one))
        exact, unsaid = Questions(model), False
        findings: list[Finding] = []
        for name, question in _FLOW:
            # What several roles do to one tensor is asked of all of them, and shares of a sum are as long as they are.
            every = one is not self.kernel and question is Questions.races_in_tensors
            every |= question is Questions.values and exact.added_up
            if weaker is not None and not every and not self._timed(name, "isl", partial(question, weaker), 0.5):
                unsaid |= question is Questions.progress
                continue
            findings += _listed(self._timed(name, "isl", partial(question, exact)))
        return findings + (exact.kept_silent() if unsaid else [])

    def _weaker(self, form: Named) -> Questions | None:
        """The questions of another form of the kernel; None where there is none, or it cannot be asked."""
        if form.kernel is self.kernel:
            return None
        made = self._timed(
            "relations", "isl", lambda: Questions(Model(form.kernel, form.definitions, lean=True), last=False)
        )
        return made if isinstance(made, Questions) else None

    def _timed(self, name: str, engine: str, work: Callable[[], T], share: float = 1.0) -> T | Finding:
        """What some work gives in a share of the time that is left, or that it gave up."""
        started = time.monotonic()
        left = share * (self.deadline - time.thread_time())
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


def _listed(result: list[Finding] | Finding) -> list[Finding]:
    return [result] if isinstance(result, Finding) else result


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
