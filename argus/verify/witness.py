"""Witnesses: every refutation is replayed in the simulator before it is shown.

The engines say where a property fails. The simulator must find a violation of that property too, at those sizes and
blocks. For rules of the machine, `argus.hardware` must find the rule broken as well. A refutation that is not confirmed
is reported as unknown, never as refuted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from argus.diagnostic import Diagnostic, Severity, Verdict, Witness
from argus.hardware import breaks
from argus.ir.nodes import Arranged, Kernel, Roles
from argus.simulate import NotReplayable, Violation, replay
from argus.simulate.sizes import round_the_rings, several_programs
from argus.verify.findings import FailurePlace, Finding
from argus.work import Work

REPLAY_ITERATIONS = 4096
"""Number of loop iterations after which a replay is abandoned."""


class Replays:
    """The replays of a kernel within a limit of work. Findings at the same sizes and blocks share one."""

    def __init__(self, kernel: Kernel, work: Work, launched: Kernel | None = None) -> None:
        """`launched`: the kernel of one block, if `kernel` unites the blocks of a cluster."""
        self.kernel = kernel
        self.launched = launched or kernel
        self._work = work
        self._known: dict[object, tuple[Violation, ...] | NotReplayable] = {}

    def at(self, place: FailurePlace, blocks: list[tuple[int, ...]] | None, finding: Finding) -> tuple[Violation, ...]:
        """Return what the blocks (None: the whole grid) break at the sizes of `place`. Raises `NotReplayable`.

        Values are looked at only for a finding about values, and tags only for one about tags.
        """
        values = finding.property == "tags"
        tags = values and not finding.code.startswith("spec")
        key = (tuple(sorted(place.sizes.items())), None if blocks is None else tuple(blocks), values, tags)
        if key not in self._known:
            self._known[key] = self._replayed(place, blocks, values, tags)
        found = self._known[key]
        if isinstance(found, NotReplayable):
            raise found
        return found

    def _replayed(
        self, place: FailurePlace, blocks: list[tuple[int, ...]] | None, values: bool, tags: bool
    ) -> tuple[Violation, ...] | NotReplayable:
        try:
            return replay(
                self.kernel, place.sizes, blocks, tags=tags, values=values, iterations=REPLAY_ITERATIONS,
                work=self._work,
            )  # fmt: skip
        except NotReplayable as error:
            return error


def diagnostics(replays: Replays, findings: Sequence[Finding]) -> list[Diagnostic]:
    """Convert findings to diagnostics. Each candidate is replayed at its own sizes.

    If that does not confirm it, and the kernel has roles, it is replayed with loops that go round every ring, and with
    several programs. At last, the places of confirmed findings are tried, where one mistake often breaks several
    statements.
    """
    found = []
    for finding in findings:
        diagnostic = to_diagnostic(replays, finding)
        if diagnostic.verdict is Verdict.UNKNOWN:
            tried = (to_diagnostic(replays, finding, place) for place in _enlarged(replays.kernel, finding))
            diagnostic = next((again for again in tried if again.verdict is Verdict.REFUTED), diagnostic)
        found.append(diagnostic)
    pairs = list(zip(findings, found, strict=True))
    confirmed = [f.place for f, d in pairs if d.verdict is Verdict.REFUTED and f.place is not None]
    return [_elsewhere(replays, f, d, confirmed) for f, d in pairs]


def _elsewhere(replays: Replays, finding: Finding, found: Diagnostic, places: Sequence[FailurePlace]) -> Diagnostic:
    """Return the refutation of an unconfirmed candidate at one of `places`, or `found` if no place breaks it.

    Only the candidate's own violation counts, because other ones are reported for themselves.
    """
    if found.verdict is not Verdict.UNKNOWN or finding.verdict is not Verdict.REFUTED:
        return found
    for place in places:
        try:
            violation = confirm(replays, finding, place)
        except NotReplayable:
            continue
        if violation is not None and _same(violation, finding):
            return to_diagnostic(replays, finding, place)
    return found


def _same(violation: Violation, finding: Finding) -> bool:
    """Return True if a violation is about the statement of the finding, or about the same specified tensor."""
    if finding.object:
        return (violation.code, violation.object) == (finding.code, finding.object)
    return violation.statement is not None and violation.statement.span == finding.span


def _enlarged(kernel: Kernel, finding: Finding) -> Iterator[FailurePlace]:
    """Yield larger places for a candidate; none if the kernel has no roles.

    In a persistent kernel the whole grid runs in one block.
    """
    candidate = finding.severity is not Severity.WARNING and finding.verdict is Verdict.REFUTED
    if not candidate or finding.place is None or not any(isinstance(s, Roles) for s in kernel.body):
        return
    sizes = round_the_rings(kernel, finding.place.sizes)
    if sizes is not None:
        yield replace(finding.place, sizes=sizes)
    sizes = several_programs(kernel, finding.place.sizes) if kernel.persistent else None
    if sizes is not None:
        yield replace(finding.place, sizes=sizes, block=(), other_block=None)


def to_diagnostic(replays: Replays, finding: Finding, place: FailurePlace | None = None) -> Diagnostic:
    """Convert a finding to a diagnostic. A refutation gets its witness, replayed at `place` or else at its own place.

    A refutation becomes unknown if the replay does not confirm it, or if the work for replays is used up.
    """
    plain = Diagnostic(
        finding.code,
        finding.message,
        finding.span,
        finding.property,
        finding.severity,
        finding.verdict,
        finding.label,
        finding.notes,
        finding.help,
    )
    if finding.severity is Severity.WARNING:
        return replace(plain, verdict=None)
    if finding.verdict is Verdict.REFUTED and not documented(replays.launched, finding):
        message = f"{finding.message}: not decided, because the replay by the vendors' documents does not confirm it"
        return replace(plain, verdict=Verdict.UNKNOWN, code=f"{finding.property}-unknown", message=message)
    if finding.verdict is not Verdict.REFUTED or finding.place is None:
        return replace(plain, witness=finding.witness)
    violation, reason = None, "the simulator did not find it at the sizes of the candidate"
    place = place or finding.place
    try:
        violation = confirm(replays, finding, place)
    except NotReplayable as error:
        reason = f"the candidate cannot be replayed: {error}"
    if violation is None:
        sizes = ", ".join(f"{n}={v}" for n, v in finding.place.sizes.items())
        return replace(
            plain,
            verdict=Verdict.UNKNOWN,
            code=f"{finding.property}-unknown",
            message=f"{finding.message}: not decided. A candidate counterexample ({sizes}, block "
            f"{list(finding.place.block)}) was found, but {reason}",
        )
    return replace(plain, witness=witness(replays.kernel, place, violation, finding))


def documented(kernel: Kernel, finding: Finding) -> bool:
    """Return True unless the finding is about a rule of the machine that the vendors' documents do not show broken.

    Rules about addresses are decided for one execution: the simulator's, if there is a place to replay.
    """
    if finding.property != "machine":
        return True
    found = breaks(kernel, finding.code, finding.span)
    return finding.place is not None if found is None else found


def confirm(replays: Replays, finding: Finding, place: FailurePlace) -> Violation | None:
    """Return the simulator's violation of the same property that is closest to the finding; None if there is none.

    A lack of progress is confirmed by any violation, and so is a rule that the kernel breaks in every launch.
    """
    arranged = any(isinstance(p, Arranged) for p in replays.kernel.preconditions)
    # The contents of arranged tensors are drawn, so any block may break the property.
    if arranged or (not place.block and replays.kernel.grid is not None):
        blocks = None
    else:
        blocks = [b for b in (place.other_block, place.block) if b is not None]
    violations = replays.at(place, blocks, finding)
    same = [v for v in violations if v.property == finding.property and finding.object in ("", v.object)]
    if finding.property == "progress" or breaks(replays.launched, finding.code, finding.span):
        same = list(violations)

    def closeness(violation: Violation) -> tuple[bool, bool, bool]:
        return violation.code == finding.code, _same(violation, finding), violation.iteration == place.iteration

    return max(same, key=closeness, default=None)


def witness(kernel: Kernel, place: FailurePlace, violation: Violation, finding: Finding | None = None) -> Witness:
    """Make the witness from a replay at `place`, and from what an engine had found before it."""
    arrived, expected, failing = (finding.arrived, finding.expected, finding.failing) if finding else ("", "", "")
    thread = violation.thread
    size = kernel.warp_size
    return Witness(
        sizes=dict(place.sizes),
        block=violation.block or place.block,
        thread=thread,
        warp=None if thread is None else thread // size,
        lane=None if thread is None else thread % size,
        iteration=dict(violation.iteration),
        object=violation.object,
        logical=violation.logical,
        physical=violation.physical,
        arrived=violation.arrived or arrived or _conflict(violation),
        expected=violation.expected or expected,
        provenance=violation.provenance,
        other=_other(violation),
        failing=failing or _failing(violation),
        unique=violation.count == 1,
        replayed=True,
        trace=violation.trace,
        missing=violation.missing,
        contents=violation.contents,
    )


def _other(violation: Violation) -> dict[str, Any] | None:
    """Return the second access of a conflict as plain values: its kind, block, thread, iteration and place in the
    source."""
    if violation.other is None:
        return None
    other = dict(violation.other)
    statement = other.pop("statement", None)
    if statement is not None:
        other["span"] = str(statement.span)
    return {name: list(v) if isinstance(v, tuple) else v for name, v in other.items()}


def _conflict(violation: Violation) -> str:
    """Describe the values that a race lets arrive; "" for other violations."""
    other = violation.other
    if other is None or "thread" not in other:
        return ""
    return f"either side of the {other.get('access', 'access')} by thread {other['thread']}, in no order"


def _failing(violation: Violation) -> str:
    if violation.count <= 1:
        return "only this element in this run of the statement"
    return f"{violation.count} elements in this run of the statement"
