"""Synthesis of invariants: candidates from the data flow are put into the kernel, and those that do not prove go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from argus import compile
from argus.agents.invariants.candidates import Candidate, objects
from argus.agents.invariants.flow import Flow
from argus.agents.invariants.stripped import stripped
from argus.diagnostic import ArgusError, Diagnostic, Severity, Verdict
from argus.ir.nodes import AssertTags, Kernel, Stmt
from argus.ir.text import print_kernel, print_stmt
from argus.ir.visit import numbered, rewrite_body
from argus.source import SourceFile, Span
from argus.work import LIMIT_S

_ROUNDS = 12
"""How often a kernel is proved at most. In each round, everything that does not prove is dropped."""


_PATIENT = 3
"""After this many rounds, an object is left out at each place where one of its assertions is wrong."""


@dataclass(frozen=True, slots=True)
class Invariants:
    """A kernel with the tags and assertions that were proved of it, those, and how many candidates were dropped."""

    kernel: compile.TileKernel
    kept: tuple[Candidate, ...] = ()
    dropped: int = 0
    rounds: int = 0

    @property
    def assertions(self) -> tuple[AssertTags, ...]:
        """The assertions alone."""
        return tuple(c.stmt for c in self.kept if isinstance(c.stmt, AssertTags))


def synthesised(kernel: compile.TileKernel, target: str, limit_s: float = LIMIT_S) -> Invariants:
    """Return a kernel without tags and assertions with those that its data flow suggests and that are proved.

    The kernel must be right: what is proved of it is what later edits are held to. Raises `ArgusError` for a kernel
    that is not proved by itself.
    """
    bare = numbered(stripped(kernel))
    _insist(bare, target, limit_s)
    active = Flow(bare).go()
    every = len(active)
    quick = stripped(bare, specifications=True)  # what elements move is proved without what they are worth
    active = _harmless(quick, target, active)
    for number in range(1, _ROUNDS + 1):
        wrong = _unproved(quick, target, active, limit_s)
        if not wrong:
            kept = _first(active)
            return Invariants(_with(bare, merged(kept)), tuple(kept), every - len(kept), number)
        active = _useful(_without(active, wrong, number > _PATIENT))
    return Invariants(compile.TileKernel(bare), (), every, _ROUNDS)


def _harmless(kernel: Kernel, target: str, active: list[Candidate]) -> list[Candidate]:
    """Leave out candidates that change the machine's work: an invariant must not make a kernel slower.

    An assertion about the registers of a product, for example, makes every iteration wait for the product.
    """
    alone = _form(kernel, target, ())

    def kept(part: list[Candidate]) -> list[Candidate]:
        if not part or _form(kernel, target, part) == alone:
            return part
        middle = len(part) // 2
        return [*kept(part[:middle]), *kept(part[middle:])] if middle else []

    found = kept(active)
    return found if _form(kernel, target, found) == alone else []


def _form(kernel: Kernel, target: str, active: Sequence[Candidate]) -> str:
    """Return the text of the lowered kernel without its candidates; "" if it does not lower with them."""
    try:
        return print_kernel(stripped(compile.lower(_with(kernel, active), target)))
    except ArgusError:
        return ""


def _insist(kernel: Kernel, target: str, limit_s: float) -> None:
    report = compile.verify(compile.lower(compile.TileKernel(kernel), target), limit_s)
    if report.verdict is not Verdict.PROVED:
        errors = [d for d in report.diagnostics if d.severity is Severity.ERROR] or list(report.diagnostics)
        raise ArgusError(*errors)


def _unproved(kernel: Kernel, target: str, active: Sequence[Candidate], limit_s: float) -> set[int]:
    """Return the places of the candidates that a proof refutes or leaves open; of all, if it does not say which."""
    try:
        report = compile.verify(compile.lower(_with(kernel, active), target), limit_s)
        if report.verdict is Verdict.PROVED:
            return set()
        findings: tuple[Diagnostic, ...] = report.diagnostics
    except ArgusError as error:
        findings = error.diagnostics
    named = {d.span.line - 1 for d in findings if d.span.file is not None and d.span.file.path == _PATH}
    if named:
        return named
    assertions = [place for place, c in enumerate(active) if isinstance(c.stmt, AssertTags)]
    return set(assertions[len(assertions) // 2 :]) or set(range(len(active)))


def _without(active: Sequence[Candidate], wrong: set[int], whole: bool) -> list[Candidate]:
    """Leave out what is wrong; `whole`: with all that is said of the same object at the same place."""
    gone = {(active[place].at, *objects(active[place].stmt)) for place in wrong} if whole else set()
    return [c for place, c in enumerate(active)
            if place not in wrong and (c.at, *objects(c.stmt)) not in gone]  # fmt: skip


def _useful(active: list[Candidate]) -> list[Candidate]:
    """Leave out tags if no assertion is left."""
    return active if any(isinstance(c.stmt, AssertTags) for c in active) else []


def _first(active: Sequence[Candidate]) -> list[Candidate]:
    """Keep the first of each group: alternatives say the same in other words, or less."""
    return list({c.group: c for c in reversed(active)}.values())[::-1]


def merged(kept: Sequence[Candidate]) -> list[Candidate]:
    """Make one assertion of those at one place over the same elements."""
    found: dict[object, Candidate] = {}
    for c in kept:
        key: object = (c.at, c.after, c.stmt.shape, c.stmt.where) if isinstance(c.stmt, AssertTags) else id(c)
        if key in found and isinstance(c.stmt, AssertTags):
            before = found[key].stmt
            assert isinstance(before, AssertTags)
            both = replace(before, conditions=(*before.conditions, *c.stmt.conditions))
            found[key] = replace(found[key], stmt=both)
        else:
            found[key] = c
    return list(found.values())


_PATH = "invariants.ir"


def _with(kernel: Kernel, active: Sequence[Candidate]) -> compile.TileKernel:
    """Return a numbered kernel with candidates; each has a line of its own in a file of candidates."""
    source = SourceFile(_PATH, "\n".join(" ".join(print_stmt(c.stmt, kernel).split()) for c in active))
    before: dict[int, list[Stmt]] = {}
    after: dict[int, list[Stmt]] = {}
    for place, c in enumerate(active):
        line = source.text.splitlines()[place]
        placed = replace(c.stmt, span=Span(source, place + 1, 1, place + 1, len(line) + 1))
        (after if c.after else before).setdefault(c.at, []).append(placed)

    def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
        if stmt.id not in before and stmt.id not in after:
            return None
        return (*before.get(stmt.id, ()), stmt, *after.get(stmt.id, ()))

    return compile.TileKernel(replace(kernel, body=rewrite_body(kernel.body, change)))
