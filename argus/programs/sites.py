"""The sites of a program's text: every statement with its surrounding loops and conditions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from argus.ir.expr import Const, Expr, LoopVar, Op, op, rewrite
from argus.ir.types import boolean
from argus.programs.bound import Bound, bound, parts, touched
from argus.programs.ir import Collective, For, If, Launch, Part, Program, Step, Work


@dataclass(frozen=True, slots=True)
class Access:
    """A part that work accesses. `name` is the kernel's name for it."""

    name: str
    part: Part
    reads: bool
    writes: bool


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """A statement that does work: its number in the order of the text, and its surroundings.

    `path` holds the surrounding loops, outermost first, each with the conditions directly inside it. The conditions
    outside of all loops come first, with None.
    """

    number: int
    step: Work
    path: tuple[tuple[For | None, tuple[Expr, ...]], ...]
    accesses: tuple[Access, ...]
    bound: Bound | None

    @property
    def loops(self) -> tuple[For, ...]:
        """The surrounding loops, outermost first."""
        return tuple(loop for loop, _ in self.path if loop is not None)

    @property
    def given(self) -> list[Expr]:
        """The facts that hold where the statement runs: ranges of counters, and conditions."""
        found: list[Expr] = []
        for loop, conds in self.path:
            found += ([] if loop is None else in_range(loop, LoopVar(loop.var))) + list(conds)
        return found


def in_range(loop: For, value: Expr) -> list[Expr]:
    """Return the conditions that `value` is a number that a loop's counter takes."""
    found = [op("ge", value, loop.start), op("lt", value, loop.stop)]
    if loop.step > 1:
        found.append(op("eq", op("mod", op("sub", value, loop.start), Const(loop.step)), Const(0)))
    return found


def negated(cond: Expr) -> Expr:
    """Return the negation of a condition."""
    return Op("not", (cond,), boolean)


def sites(program: Program) -> tuple[Site, ...]:
    """Return all sites of a program in the order of the text."""
    return tuple(_Walk(program).sites(program.body, ((None, ()),)))


class _Walk:
    def __init__(self, program: Program) -> None:
        self.program, self.count = program, 0

    def sites(self, body: tuple[Step, ...], path: tuple[tuple[For | None, tuple[Expr, ...]], ...]) -> Iterator[Site]:
        for step in body:
            match step:
                case Launch() | Collective():
                    yield self.site(step, path)
                case For():
                    yield from self.sites(step.body, (*path, (step, ())))
                case If(cond=cond, then=then, orelse=orelse):
                    *outer, (loop, conds) = path
                    yield from self.sites(then, (*outer, (loop, (*conds, cond))))
                    yield from self.sites(orelse, (*outer, (loop, (*conds, negated(cond)))))
                case _:
                    pass

    def site(self, step: Work, path: tuple[tuple[For | None, tuple[Expr, ...]], ...]) -> Site:
        self.count += 1
        if isinstance(step, Collective):
            reads = (Access(f"reads[{i}]", p, True, False) for i, p in enumerate(step.reads))
            writes = (Access(f"writes[{i}]", p, False, True) for i, p in enumerate(step.writes))
            return Site(self.count, step, path, (*reads, *writes), None)
        found = bound(self.program, step)
        read, written = touched(found.kernel)
        accesses = tuple(Access(n, p, n in read, n in written) for n, p in parts(step))
        return Site(self.count, step, path, accesses, found)


def primed(expr: Expr, loops: tuple[For, ...], mark: str = "'") -> Expr:
    """Return an expression with the counters of `loops` renamed, so that it describes another iteration."""
    names = {loop.var for loop in loops}
    return rewrite(expr, lambda e: LoopVar(e.name + mark) if isinstance(e, LoopVar) and e.name in names else None)


def primed_part(part: Part, loops: tuple[For, ...], mark: str = "'") -> Part:
    """Return a part as another iteration sees it."""
    start = tuple(primed(e, loops, mark) for e in part.start)
    return Part(part.obj, start, tuple(primed(e, loops, mark) for e in part.extent), part.kept)
