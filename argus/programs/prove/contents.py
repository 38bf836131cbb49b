"""Initialisation: every element of a buffer that is read was written before.

The check walks the text forwards with the boxes that are surely written. A box that a loop writes stands for one box
for each iteration: for all iterations after the loop, and for the earlier iterations inside the loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from argus.diagnostic import Verdict
from argus.ir.expr import TRUE, Const, Expr, LoopVar, Op, Param, conjunction, linear, op, rewrite, walk
from argus.programs.held import accumulates
from argus.programs.ir import Buffer, Collective, For, If, Launch, Part, Step
from argus.programs.prove.facts import Doubt, Facts
from argus.programs.sites import Access, Site, in_range


@dataclass(frozen=True, slots=True)
class Turns:
    """All values of a loop's counter, or only those before the current one if `so_far`."""

    loop: For
    so_far: bool = False


@dataclass(frozen=True, slots=True)
class Written:
    """A part that was written, for all turns of some loops, outermost first."""

    part: Part
    turns: tuple[Turns, ...] = ()


def check(facts: Facts, sites: tuple[Site, ...]) -> Iterator[Doubt]:
    """Find reads of buffers whose elements may not have been written."""
    yield from _Walk(facts, {id(s.step): s for s in sites}).body(facts.program.body, [])


def written_whole(site: Site, access: Access) -> bool:
    """Return True if work writes every element of a part, whatever it held before.

    A kernel is proved to write all of its outputs on the grid that it declares. On another grid, nothing is known.
    """
    if site.bound is None:
        return access.writes
    kernel = site.bound.kernel
    part = any(c.output == access.name for c in kernel.covers) or kernel.grid is None
    return access.writes and not part and accumulates(kernel, access.name) is False


class _Walk:
    def __init__(self, facts: Facts, sites: dict[int, Site]) -> None:
        self.facts, self.sites = facts, sites

    def body(self, body: tuple[Step, ...], known: list[Written]) -> Iterator[Doubt]:
        """Yield doubts. The parts that the body writes are added to `known`."""
        for step in body:
            match step:
                case Launch() | Collective():
                    yield from self.reads(self.sites[id(step)], known)
                    known += self.writes((step,))
                case For(body=inner):
                    before = [replace(w, turns=(Turns(step, True), *w.turns)) for w in self.writes(inner)]
                    yield from self.body(inner, [*known, *before])
                    known += self.writes((step,))
                case If(then=then, orelse=orelse):
                    ways = [list(known), list(known)]
                    for way, branch in zip(ways, (then, orelse), strict=True):
                        yield from self.body(branch, way)
                    known += [w for w in ways[0] if w in ways[1] and w not in known]
                case _:
                    pass

    def writes(self, body: tuple[Step, ...]) -> list[Written]:
        """Return the parts that statements surely write."""
        found: list[Written] = []
        for step in body:
            match step:
                case Launch() | Collective():
                    site = self.sites[id(step)]
                    found += [Written(a.part) for a in site.accesses if written_whole(site, a)]
                case For(body=inner):
                    found += [replace(w, turns=(Turns(step), *w.turns)) for w in self.writes(inner)]
                case If(then=then, orelse=orelse):
                    other = self.writes(orelse)
                    found += [w for w in self.writes(then) if w in other]
                case _:
                    pass
        return found

    def reads(self, site: Site, known: list[Written]) -> Iterator[Doubt]:
        for access in site.accesses:
            if access.reads and isinstance(self.facts.program.object(access.part.obj), Buffer):
                yield from self.read(site, access, [w for w in known if w.part.obj == access.part.obj])

    def read(self, site: Site, access: Access, known: list[Written]) -> Iterator[Doubt]:
        if any(not w.turns and w.part == access.part for w in known):
            return
        part = access.part
        cell: list[Expr] = [Param(f"{part.obj}[{axis}]") for axis in range(len(part.start))]
        given = [*site.given, *inside(cell, part)]
        for written in known:
            given += [Op("not", (c,), c.dtype) for c in instances(written, cell)]
        answer = self.facts.impossible(given)
        if answer.verdict is not Verdict.PROVED:
            what = f"`{part.obj}` is read here, and it does not follow that all of this was written before"
            yield Doubt("program-uninitialised", what, site.step, part.obj, site.step.stream,
                        self.facts.sizes(answer), answer.reason)  # fmt: skip


def inside(cell: list[Expr], part: Part) -> list[Expr]:
    """Return the conditions under which an element is in a part."""
    found: list[Expr] = []
    for place, start, extent in zip(cell, part.start, part.extent, strict=True):
        found += [op("ge", place, start), op("lt", place, op("add", start, extent))]
    return found


def instances(written: Written, cell: list[Expr]) -> Iterator[Expr]:
    """Yield conditions, each of which implies that an element was written.

    Each condition names one iteration of every loop: the iteration in which the element would be written, computed from
    its place.
    """
    for values in choices(written, cell):
        yield instance(written, cell, values)


def instance(written: Written, cell: list[Expr], values: Mapping[str, Expr]) -> Expr:
    """Return the condition that an element was written in the iteration in which the counters have `values`."""
    conds = inside(cell, part_at(written.part, values))
    for turns in written.turns:
        loop, value = turns.loop, values[turns.loop.var]
        start, stop = (with_counters(e, values) for e in (loop.start, loop.stop))
        conds += in_range(replace(loop, start=start, stop=stop), value)
        if turns.so_far:
            conds.append(op("lt", value, LoopVar(loop.var)))
    return conjunction(conds) or TRUE


def part_at(part: Part, values: Mapping[str, Expr]) -> Part:
    """Return a part at the iteration in which the counters have `values`."""
    start, extent = (tuple(with_counters(e, values) for e in places) for places in (part.start, part.extent))
    return replace(part, start=start, extent=extent)


def choices(written: Written, cell: list[Expr]) -> Iterator[dict[str, Expr]]:
    """Yield values for the counters of a box. For each counter, the values come from every dimension whose start
    depends on it."""
    yield from _chosen(written, cell, list(written.turns), {})


def _chosen(
    written: Written, cell: list[Expr], left: list[Turns], values: dict[str, Expr]
) -> Iterator[dict[str, Expr]]:
    if not left:
        yield values
        return
    loop = left[0].loop
    for value in turn_of(loop, written.part, cell, values):
        yield from _chosen(written, cell, left[1:], {**values, loop.var: value})


def turn_of(loop: For, part: Part, cell: list[Expr], values: dict[str, Expr]) -> Iterator[Expr]:
    """Return values of a counter at which a part may hold an element, or the loop's first value if the part does not
    move."""
    moving = False
    for place, start in zip(cell, part.start, strict=True):
        pace = pace_of(start, loop.var)
        if pace is None:
            continue
        moving = True
        speed, rest = pace
        first = op("add", with_counters(rest, values), op("mul", speed, with_counters(loop.start, values)))
        ahead = op("sub", place, first)
        step = op("mul", speed, Const(loop.step))
        turn = ahead if step == Const(1) else op("floordiv", ahead, step)
        yield op("add", with_counters(loop.start, values), op("mul", turn, Const(loop.step)))
    if not moving:
        yield with_counters(loop.start, values)


def pace_of(expr: Expr, counter: str) -> tuple[Expr, Expr] | None:
    """Return `(a, b)` such that an expression equals `a * counter + b`, where neither `a` nor `b` depends on the
    counter. Return None if there is no such pair."""
    terms, const = linear(expr)
    speed: Expr | None = None
    rest: Expr = Const(const)
    for term, factor in terms.items():
        scaled = _coefficient(term, counter)
        if scaled is None:
            if _mentions(term, counter):
                return None
            rest = op("add", rest, op("mul", term, Const(factor)))
        else:
            scaled = op("mul", scaled, Const(factor))
            speed = scaled if speed is None else op("add", speed, scaled)
    return None if speed is None else (speed, rest)


def _coefficient(term: Expr, counter: str) -> Expr | None:
    match term:
        case LoopVar(name=name) if name == counter:
            return Const(1)
        case Op(op="mul", args=(LoopVar(name=name), other)) | Op(op="mul", args=(other, LoopVar(name=name))):
            return other if name == counter and not _mentions(other, counter) else None
        case _:
            return None


def _mentions(expr: Expr, counter: str) -> bool:
    return any(isinstance(e, LoopVar) and e.name == counter for e in walk(expr))


def with_counters(expr: Expr, values: Mapping[str, Expr]) -> Expr:
    """Replace loop counters by values."""
    return rewrite(expr, lambda e: values.get(e.name) if isinstance(e, LoopVar) else None)
