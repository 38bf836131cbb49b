"""Verification of one explicit kernel: first every property, then the witnesses."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import TypeVar

from argus.diagnostic import Note, Severity, SourceError, Verdict
from argus.ir.cluster import unite
from argus.ir.nodes import Assume, Kernel
from argus.ir.promise import without_promises
from argus.ir.text import print_expr
from argus.ir.wellformed import check_explicit
from argus.source import NO_SPAN
from argus.verify.checks import convergence, coverage, launchable, machine, overwrites, ownership, speed, two_calls
from argus.verify.checks.bounds import BoundsChecker
from argus.verify.checks.launchable import as_launched
from argus.verify.findings import Finding, unknown
from argus.verify.model.isl import IslError, limited
from argus.verify.model.program import sites
from argus.verify.model.relations import Model
from argus.verify.model.resolving import block_bounds, differs_by_block
from argus.verify.model.solver import Solver
from argus.verify.model.translator import NonAffine
from argus.verify.opinion.asked import listening
from argus.verify.opinion.opinion import second
from argus.verify.questions import FLOW, Answer, Question, Questions, without_consequences
from argus.verify.reductions.alike import alone
from argus.verify.reductions.clamps import unlimited
from argus.verify.reductions.counts import spelled
from argus.verify.reductions.joined import joined
from argus.verify.reductions.named import Named, named
from argus.verify.reductions.renumbered import renumbered
from argus.verify.report import Report, Timing, verdict_of, with_opinions
from argus.verify.search import Trial, search
from argus.verify.witness import Replays, diagnostics, documented, to_diagnostic
from argus.work import LIMIT_S, STEPS_PER_SECOND, Work

T = TypeVar("T")

REPLAY = 3 * STEPS_PER_SECOND
"""The least number of steps for replaying refutations, and for a search at small sizes at the end. Proofs leave as many
of the limit's steps."""

TRIED = 2
"""The share of the limit that replays of refutations, or a search at the end, may take, as a divisor, so that answers
are prompt."""

FIRST = 7 * STEPS_PER_SECOND // 2
"""The steps of a question before small sizes are tried in the simulator. Then it is asked again, with more steps."""

QUICK = 5 * STEPS_PER_SECOND // 4
"""The steps of a question about each of two forms of a kernel that hardly differ, before either form has more."""

AFTER = STEPS_PER_SECOND // 2
"""The steps of a question about the values of a kernel that other findings refute."""

SHORT = STEPS_PER_SECOND
"""The steps of a search at small sizes before a second form of the kernel is asked."""

EARLY = 4 * STEPS_PER_SECOND
"""The steps of that search. The rest is tried at the end."""

_BY_VALUES = ("registers-unknown",)
"""Unknown properties other than tags whose violations show in values: registers that hold one element may differ."""

_MORE = "state an al.requires that bounds the sizes, use a smaller constexpr, or raise --limit"
_NOT_TRIED = Note("not all small sizes were tried in the simulator: the limit of work was reached; raise --limit")


def verify(kernel: Kernel, limit_s: float = LIMIT_S, *, exact: bool = False, second_opinion: bool = False) -> Report:
    """Prove every property of an explicit kernel, or report refuted properties with a witness, and unknown ones.

    `exact`: prove every property on the kernel itself, never on a simpler form of it (docs/soundness.md, "Proofs on a
    simpler form"). That takes longer, but relies on fewer arguments.

    `second_opinion`: let the other engine check the answers of Z3 and ISL, within another `limit_s`. A contradicted
    answer is a finding of its own, `engines-disagree`, and makes the verdict unknown.

    `limit_s`: the work that the answer may take, in seconds of a processor: proofs, replays, and runs at small sizes.
    It is counted in steps of the engines (`argus.work`), so the verdict does not depend on the machine. Replays and a
    search have `REPLAY` steps each even if the limit is less. Properties that the limit left undecided are unknown, and
    the diagnostics say so.

    Raises `SourceError` for a kernel that is not well-formed explicit IR, or that no launch could run. Threads of one
    process prove one after another.
    """
    problems = check_explicit(kernel)
    if problems:
        raise SourceError(*problems)
    with _ALONE:
        if not second_opinion:
            return _verify(kernel, limit_s, exact)
        with listening() as heard:
            report = _verify(kernel, limit_s, exact)
        return with_opinions(report, second(heard, Work.of_seconds(limit_s)))


_ALONE = Lock()
"""Held during a proof, because two threads may not use isl's or z3's context at once."""


def _verify(kernel: Kernel, limit_s: float, exact: bool) -> Report:
    run = _Run(kernel, limit_s, exact)
    kernel = unite(without_promises(kernel))
    findings = run.findings()
    spent = Work.of_seconds(limit_s).left - run.whole.left
    work, most = run.rest(), max(Work.of_seconds(limit_s / TRIED).left, REPLAY)
    spent += work.left
    findings = [two_calls.refuted(kernel, f, work) if f.code == "invariance-unknown" else f for f in findings]
    refused = [f for f in findings if f.property == "machine" and f.verdict is Verdict.REFUTED and f.place is None]
    refused = [f for f in refused if documented(run.launched, f)]
    if refused:
        replays = Replays(kernel, work, run.launched)
        raise SourceError(*(to_diagnostic(replays, f) for f in refused))
    started = time.monotonic()
    replays = Replays(kernel, work.part(min(most, max(work.left - REPLAY, REPLAY))), run.launched)
    findings = _distinct(findings)
    found = (*diagnostics(replays, findings), *kernel.remarks)
    if verdict_of(found) is Verdict.UNKNOWN:
        open = {d.code for d in found if d.verdict is Verdict.UNKNOWN}
        values = any(d.property == "tags" or d.code in _BY_VALUES for d in found if d.verdict is Verdict.UNKNOWN)
        tried = run.tried
        if tried is None or not tried.settles(values):
            tried = search(kernel, values, "tags-unknown" in open, work.part(most), tried)
        if tried.found is not None:
            found = (tried.found, *found)
        elif not tried.complete:
            found = tuple(replace(d, notes=(*d.notes, _NOT_TRIED)) if d.verdict else d for d in found)
    run.timings.append(Timing("witness", "simulator", time.monotonic() - started))
    seconds = time.monotonic() - run.started
    assumptions = tuple(f"{print_expr(p.cond)} ({p.reason})" for p in kernel.preconditions if isinstance(p, Assume))
    steps = spent - work.left
    return Report(kernel.name, verdict_of(found), found, assumptions, seconds, tuple(run.timings), steps=steps)


class _Run:
    """A run of all engines on one kernel, with a limit of work; questions that do not finish are unknown."""

    def __init__(self, kernel: Kernel, limit_s: float, exact: bool) -> None:
        self.exact = exact
        self.launched, self.started = kernel, time.monotonic()
        self.kernel = spelled(unlimited(as_launched(unite(without_promises(kernel)))))
        self.whole = Work.of_seconds(limit_s)
        self.work = self.whole.part(self.whole.left - min(2 * REPLAY, self.whole.left // 3))
        """What proofs may take: enough is left for replays and a search."""
        self.tried: Trial | None = None
        """The outcome of the simulator's runs while questions were still open; None if there were none."""
        self.timings: list[Timing] = []

    def rest(self) -> Work:
        """Return what replays and a search may take after the proofs."""
        return Work(max(self.whole.left, 2 * REPLAY))

    def findings(self) -> list[Finding]:
        """Return the findings of all properties, in the order of the property table."""
        model = self._timed("relations", "isl", lambda: Model(self.kernel, work=self.work))
        if isinstance(model, Finding):
            return [model]
        bounds = BoundsChecker(self.kernel, model.sites, Solver(self.work))
        alone: tuple[tuple[str, str, Callable[[], list[Finding]]], ...] = (
            ("launch", "z3", lambda: launchable.check(self.kernel, self.work)),
            ("bounds", "z3", bounds.run),
            ("convergence", "z3", lambda: convergence.check(bounds)),
            ("machine", "z3+tables", lambda: machine.check(bounds, model, self.launched)),
            ("machine", "tables", lambda: ownership.check(self.kernel, model.sites)),
        )
        findings = [f for check in alone for f in _listed(self._timed(*check))]
        findings += self._of_forms(model, _refuted(findings))
        return findings + _listed(self._timed("speed", "tables", lambda: speed.check(self.kernel, model.sites)))

    def _of_forms(self, model: Model, refuted: bool) -> list[Finding]:
        """Return what sets decide. What holds for the kernel with joined axes holds for the kernel itself. `refuted`:
        other findings refute the kernel."""
        form = self.kernel if self.exact else joined(self.kernel)
        other = None if form is self.kernel else self._timed("relations", "isl", lambda: Model(form, work=self.work))
        if not isinstance(other, Model):
            return self._by_sets(model, refuted)
        found = self._by_sets(other, refuted)
        # A refutation of the other form names its sizes and places, which no launch of the kernel itself has.
        return self._by_sets(model, refuted) if any(f.place is not None for f in found) else found

    def _by_sets(self, model: Model, refuted: bool) -> list[Finding]:
        """Return the findings of the questions that sets and relations decide."""
        alone: tuple[tuple[str, str, Callable[[], list[Finding]]], ...] = (
            ("races", "isl", lambda: overwrites.check(model)),
            ("coverage", "isl", lambda: coverage.check(model)),
        )
        found = [f for check in alone for f in _listed(self._timed(*check))]
        return found + self._flow(model, refuted or _refuted(found))

    def _flow(self, model: Model, refuted: bool) -> list[Finding]:
        """Ask each question about a weaker form of the kernel first; if that fails, ask it about `model`.

        A proof for the weaker form holds for the kernel itself, which is `model`. If findings refute the kernel,
        questions about values have few steps.
        """
        kernel = model.kernel
        one = kernel if self.exact else alone(kernel)
        form = named(renumbered(one))
        weaker = None if self.exact else self._weaker(kernel, form)
        # A name for a bound that is the same for all blocks hardly makes sets simpler.
        varied = any(map(differs_by_block, form.definitions)) or block_bounds(sites(kernel))
        quick = FIRST if varied else QUICK
        exact, by_weaker = Questions(model, self.exact), False
        answers: list[Answer] = []
        open: list[tuple[str, Callable[[], Answer]]] = []
        for question in FLOW:
            # Conflicts of several roles in one tensor need all roles; shares of a sum need their exact bounds.
            every = one is not kernel and question.ask is Questions.races_in_tensors
            every |= question.ask is Questions.values and exact.added_up
            answering = partial(without_consequences, question, exact)
            most = (AFTER, AFTER) if refuted and question.property == "tags" else (quick, FIRST)
            answer = self._first(question, None if every else weaker, answering, *most)
            if isinstance(answer, Finding):
                open.append((question.property, answering))
            elif answer is not None:
                answers.append(answer)
                refuted |= _refuted(answer.findings)
            else:
                by_weaker |= question.ask is Questions.progress
        answers += self._decided(open, refuted)
        # The question that reports errors of the protocol may have been answered by the weaker form.
        cause = exact.steps.findings if by_weaker and any(a.left_out for a in answers) else []
        return [found for answer in answers for found in answer.findings] + cause

    def _first(
        self, question: Question, weaker: Questions | None, answering: Callable[[], Answer], quick: int, most: int
    ) -> Answer | Finding | None:
        """Ask a question about the weaker form, if any, and then about the kernel itself (`answering`). Return None if
        the weaker form proves it.

        Either form may take long where the other does not. With `quick` less than `most`, both are asked with so few
        steps before either has `most`.
        """
        answer: Answer | Finding | None = None
        if weaker is not None:
            asked = partial(question.ask, weaker)
            found = self._timed(question.property, "isl", asked, 0.5, quick)
            if isinstance(found, Finding) and quick < most:
                answer = self._timed(question.property, "isl", answering, 1.0, quick)
                if isinstance(answer, Answer) and not answer.findings:
                    return answer
                found = self._timed(question.property, "isl", asked, 0.5, most)
            if not found:
                return None
            if isinstance(found, Finding) and quick == FIRST and self._wrong_at_small_sizes(question.property, SHORT):
                return found
        if isinstance(answer, Answer):
            return answer
        return self._timed(question.property, "isl", answering, 1.0, most)

    def _decided(self, open: list[tuple[str, Callable[[], Answer]]], refuted: bool) -> list[Answer]:
        """Decide questions that took too long.

        If findings refute the kernel already (`refuted`), they are left open. A run at small sizes may refute it at
        once. Otherwise the questions are asked again, with all the work that is left.
        """
        if not open:
            return []
        why = "other findings refuted the kernel first" if refuted else ""
        if not refuted and any(self._wrong_at_small_sizes(name, EARLY) for name in sorted({name for name, _ in open})):
            why = "a run at small sizes refuted the kernel first"
        if why:
            return [Answer([self._gave_up(name, "isl", why, "correct what is refuted")]) for name, _ in open]
        asked_again = (self._timed(name, "isl", asked) for name, asked in open)
        return [Answer([a]) if isinstance(a, Finding) else a for a in asked_again]

    def _wrong_at_small_sizes(self, property: str, most: int) -> bool:
        """Return True if a run at small sizes breaks a rule, within `most` steps. Earlier runs are not repeated.

        For a question about tags, values and tags are compared, too.
        """
        values, started = property == "tags", time.monotonic()
        if self.tried is None or not self.tried.settles(values):
            self.tried = search(self.kernel, values, values, self.work.part(most), self.tried)
            self.timings.append(Timing("witness", "simulator", time.monotonic() - started))
        return self.tried.found is not None

    def _weaker(self, kernel: Kernel, form: Named) -> Questions | None:
        """Return the questions about a weaker form of the kernel, or None if the form equals the kernel or has no
        model."""
        if form.kernel is kernel and not block_bounds(sites(kernel)):
            return None
        made = self._timed(
            "relations",
            "isl",
            lambda: Questions(Model(form.kernel, form.definitions, lean=True, work=self.work)),
        )
        return made if isinstance(made, Questions) else None

    def _timed(
        self, name: str, engine: str, work: Callable[[], T], share: float = 1.0, most: int | None = None
    ) -> T | Finding:
        """Do `work` within a share of the steps that are left, and at most `most`; return a finding if it gave up."""
        started = time.monotonic()
        left = int(share * self.work.left)
        try:
            if left <= 0:
                return self._gave_up(name, engine, "the kernel's limit of work was reached")
            with limited(self.work, left if most is None else min(left, most)):
                return work()
        except NonAffine as error:
            return self._gave_up(name, engine, str(error))
        except IslError as error:
            return self._gave_up(name, engine, f"isl gave up: {error}")
        except RecursionError:
            return self._gave_up(name, engine, "terms that are compared contain one another without end")
        finally:
            self.timings.append(Timing(name, engine, time.monotonic() - started))

    def _gave_up(self, name: str, engine: str, reason: str, help: str = _MORE) -> Finding:
        return unknown(
            f"{name}-unknown",
            name,
            self.kernel.span or NO_SPAN,
            f"{name} could not be decided by {engine}: {reason}",
            help,
        )


def _refuted(findings: list[Finding]) -> bool:
    return any(f.verdict is Verdict.REFUTED and f.severity is not Severity.WARNING for f in findings)


def _listed(result: list[Finding] | Finding) -> list[Finding]:
    return [result] if isinstance(result, Finding) else result


def _distinct(findings: list[Finding]) -> list[Finding]:
    """Keep one finding for each code and place in the source; errors come first."""
    seen: set[tuple[str, str, str]] = set()
    result = []
    for finding in sorted(findings, key=lambda f: f.severity is Severity.WARNING):
        key = (finding.code, str(finding.span), finding.message if not finding.span.known else "")
        if key not in seen:
            seen.add(key)
            result.append(finding)
    return result
