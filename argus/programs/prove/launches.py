"""Check launches: sizes, strides, bounds, `requires`, aliases, alignments, and facts about index tensors."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from argus.diagnostic import Verdict
from argus.ir.contents import ranges
from argus.ir.expr import Const, Expr, op
from argus.ir.nodes import Arranged, InRange
from argus.programs.bound import Bound, Obligation, obligations, overlap, within
from argus.programs.ir import Buffer, Part, Program
from argus.programs.prove.facts import Doubt, Facts
from argus.programs.settle import aligned_quantities
from argus.programs.sites import Site
from argus.programs.text import shown


def check(facts: Facts, sites: tuple[Site, ...]) -> Iterator[Doubt]:
    """Find obligations that launches may break."""
    for buffer in facts.program.buffers:
        yield from _extents(facts, buffer)
    for site in sites:
        yield from _obligations(facts, site)
        yield from _aliases(facts, site)
        if site.bound is not None:
            yield from _alignments(facts, site, site.bound)
            yield from _contents(facts, site, site.bound, sites)


def _extents(facts: Facts, buffer: Buffer) -> Iterator[Doubt]:
    for extent in buffer.shape:
        answer = facts.ask(op("ge", extent, Const(0)))
        if answer.verdict is not Verdict.PROVED:
            what = f"an extent of the buffer `{buffer.name}` may be negative: {shown(extent)}"
            yield Doubt("program-shape", what, buffer, buffer.name, "", facts.sizes(answer), answer.reason)


def _obligations(facts: Facts, site: Site) -> Iterator[Doubt]:
    found: list[Obligation] = []
    if site.bound is not None:
        found += obligations(facts.program, site.bound)
    else:
        found += [o for a in site.accesses for o in within(facts.program, a.part, a.name)]
    for obligation in found:
        answer = facts.ask(obligation.cond, site.given)
        if answer.verdict is not Verdict.PROVED:
            what = f"it does not follow that {obligation.what}: {shown(obligation.cond)}"
            yield Doubt(obligation.code, what, site.step, "", site.step.stream, facts.sizes(answer), answer.reason)


def _aliases(facts: Facts, site: Site) -> Iterator[Doubt]:
    """Check that a written part overlaps no other part of the launch."""
    for a, b in combinations(site.accesses, 2):
        if a.part.obj != b.part.obj or not (a.writes or b.writes):
            continue
        answer = facts.impossible([*site.given, overlap(a.part, b.part)])
        if answer.verdict is not Verdict.PROVED:
            what = f"`{a.name}` and `{b.name}` of this launch share elements of `{a.part.obj}`, and one is written"
            yield Doubt(
                "program-alias", what, site.step, a.part.obj, site.step.stream, facts.sizes(answer), answer.reason
            )


def _alignments(facts: Facts, site: Site, bound: Bound) -> Iterator[Doubt]:
    """Check that every launch keeps the alignments for which its kernel was compiled."""
    program = facts.program
    for name, alignment in program.uses[bound.launch.use].alignment:
        tensor = next(t for t in bound.kernel.tensors if t.name == name)
        part = bound.part(name)
        quantities = aligned_quantities(program, part, tensor)
        obj = program.object(part.obj)
        most = 16 if isinstance(obj, Buffer) else obj.alignment
        if alignment > min([most, *(facts.power(q) for q in quantities)]) and alignment > tensor.dtype.bytes:
            what = f"`{name}` may not be aligned to {alignment} bytes, for which `{bound.kernel.name}` is compiled"
            yield Doubt("program-alignment", what, site.step, part.obj, site.step.stream)


# ---------------------------------------------------------------------------- index tensors


def _contents(facts: Facts, site: Site, bound: Bound, sites: tuple[Site, ...]) -> Iterator[Doubt]:
    for fact in ranges(bound.kernel):
        reason = _range_missing(facts, site, bound, fact, sites)
        if reason:
            what = f"it does not follow that the elements of `{fact.tensor}` are in its range"
            obj = bound.part(fact.tensor).obj
            yield Doubt("program-index", what, site.step, obj, site.step.stream, reason=reason)
    for order in (p for p in bound.kernel.preconditions if isinstance(p, Arranged)):
        reason = _order_missing(facts, site, bound, order, sites)
        if reason:
            what = f"it does not follow that `{order.tensor}` is arranged as `{order.how}`"
            obj = bound.part(order.tensor).obj
            yield Doubt("program-index", what, site.step, obj, site.step.stream, reason=reason)


def _unchanged(program: Program, part: Part, sites: tuple[Site, ...]) -> str:
    """Return why the contents of an object are not the program's input, or "" if they are."""
    if isinstance(program.object(part.obj), Buffer):
        return f"`{part.obj}` is a buffer, and nothing is known about the integers in it"
    if any(a.writes and a.part.obj == part.obj for s in sites for a in s.accesses):
        return f"`{part.obj}` is written by the program"
    return ""


def _range_missing(facts: Facts, site: Site, bound: Bound, fact: InRange, sites: tuple[Site, ...]) -> str:
    from argus.programs.inputs import as_kernel

    part = bound.part(fact.tensor)
    reason = _unchanged(facts.program, part, sites)
    if reason:
        return reason
    lo, hi = bound.of(fact.lo), bound.of(fact.hi)
    for known in ranges(as_kernel(facts.program), part.obj):
        if _follow(facts, site, [op("le", lo, known.lo), op("le", known.hi, hi)]):
            return ""
    return f"state `al.requires(al.in_range({part.obj}, {shown(lo)}, {shown(hi)}))` in the program"


def _order_missing(facts: Facts, site: Site, bound: Bound, fact: Arranged, sites: tuple[Site, ...]) -> str:
    part = bound.part(fact.tensor)
    reason = _unchanged(facts.program, part, sites)
    if reason:
        return reason
    shape = facts.program.object(part.obj).shape
    if part.extent != shape or any(s != Const(0) for s in part.start):
        return f"the facts of the program are about all of `{part.obj}`, and the launch is given a part"
    for known in facts.program.preconditions:
        if isinstance(known, Arranged) and known.tensor == part.obj and _implies(facts, site, bound, known, fact):
            return ""
    return f"state it in the program: `al.requires(al.{fact.how}({part.obj}, ...))`"


_STRONGER = {"sorted": ("offsets", "sorted"), "distinct": ("permutation", "distinct")}


def _implies(facts: Facts, site: Site, bound: Bound, known: Arranged, fact: Arranged) -> bool:
    if fact.how != "offsets":
        return known.how == fact.how or known.how in _STRONGER.get(fact.how, ())
    if known.how != "offsets" or known.total is None or fact.total is None:
        return False
    goals: list[Expr] = [op("eq", known.total, bound.of(fact.total))]
    if fact.longest is not None:
        if known.longest is None:
            return False
        goals.append(op("le", known.longest, bound.of(fact.longest)))
    return _follow(facts, site, goals)


def _follow(facts: Facts, site: Site, goals: list[Expr]) -> bool:
    return all(facts.ask(goal, site.given).verdict is Verdict.PROVED for goal in goals)
