"""A kernel as a list of sites: each statement with its loops, its guards and its place in program order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

from argus.ir.access import Holders, Mode, Relation, relations
from argus.ir.expr import Const, Coord, Elem, Expr, LoopVar, Thread, op, walk
from argus.ir.instruction import Order
from argus.ir.nodes import (
    Accumulate,
    AssertTags,
    Barrier,
    BarrierArrive,
    BarrierSync,
    BeginTurns,
    Copy,
    EndTurns,
    For,
    If,
    Kernel,
    Map,
    Mma,
    MmaCommit,
    MmaFence,
    MmaWait,
    Programs,
    Role,
    Roles,
    Spec,
    Stmt,
    Tag,
    TagEqual,
    TagField,
    TagTuple,
    WaitCounts,
    Watch,
    WaveBarrier,
)
from argus.ir.visit import walk as walk_statements
from argus.ir.waves import counted
from argus.verify.model.barriers import in_turn

Position = tuple[int | str, ...]

NUMBER = "number of "
"""The prefix of the name of a parameter that stands for the number of one of several similar roles; see `alike`."""
PROGRAM = "program number"
"""The counter of the loop over a block's programs. No name in a kernel's source equals it."""
_PROGRAMS = For(PROGRAM, Const(0), Const(2**31 - 1), 1, ())
"""The loop over a block's programs. A block has any number of programs, fewer than there are program ids."""


@dataclass(frozen=True, slots=True)
class Site:
    """One statement. `loops` are outermost first; `guards` are the conditions of the enclosing branches.

    `position` is the schedule: static positions and loop counters, `(p0, "k", p1, ...)`.
    `role` is the role that runs the statement, None for the whole block.
    `tag_reads` are the elements whose tags a tag statement reads; the machine never reads them.
    `written` are the objects that the statement writes or adds to.
    """

    index: int
    stmt: Stmt
    role: Role | None
    loops: tuple[For, ...]
    guards: tuple[Expr, ...]
    position: Position
    accesses: tuple[Relation, ...]
    tag_reads: tuple[Relation, ...]
    written: frozenset[str] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        written = frozenset(a.obj for a in self.accesses if a.mode is not Mode.READ)
        object.__setattr__(self, "written", written)

    @property
    def name(self) -> str:
        """The name of the statement's instance space."""
        return f"S{self.index}"

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the statement's elements; () for statements without elements."""
        return _extents(self.stmt)

    @property
    def iterators(self) -> tuple[str, ...]:
        """Loop variables, outermost first."""
        return tuple(loop.var for loop in self.loops)


def sites(kernel: Kernel) -> tuple[Site, ...]:
    """Return all statements of an explicit kernel in program order, `For`, `If` and `Roles` included."""
    return tuple(_Walk().block(kernel.body, None, (), (), ()))


class _Walk:
    """A walk that numbers the statements and gives each its place in the schedule."""

    def __init__(self) -> None:
        self.count = 0

    def site(
        self, stmt: Stmt, role: Role | None, loops: tuple[For, ...], guards: tuple[Expr, ...], position: Position
    ) -> Site:
        self.count += 1
        return Site(self.count - 1, stmt, role, loops, guards, position, relations(stmt), tag_reads(stmt))

    def block(
        self, body: tuple[Stmt, ...], role: Role | None, loops: tuple[For, ...], guards: tuple[Expr, ...],
        prefix: Position,
    ) -> Iterator[Site]:  # fmt: skip
        for number, stmt in enumerate(body):
            yield from self.statement(stmt, role, loops, guards, (*prefix, number))

    def statement(
        self, stmt: Stmt, role: Role | None, loops: tuple[For, ...], guards: tuple[Expr, ...], position: Position
    ) -> Iterator[Site]:
        yield self.site(stmt, role, loops, guards, position)
        match stmt:
            case For(var=var, body=inner):
                yield from self.block(inner, role, (*loops, stmt), guards, (*position, var))
            case Programs(body=inner):
                yield from self.block(inner, role, (*loops, _PROGRAMS), guards, (*position, PROGRAM))
            case If(cond=cond, then=then, orelse=orelse):
                # The branches share the place of the statement: the second follows the first.
                yield from self.block(then, role, loops, (*guards, cond), position)
                otherwise = (*guards, op("not", cond))
                yield from self.block(orelse, role, loops, otherwise, (*position, len(then)))
            case Roles(roles=roles):
                bodies = tuple(role.body for role in roles)
                for rank, part in enumerate(in_turn(roles)):
                    yield from self.in_step(part.body, bodies, part, rank, loops, guards, position)
            case _:
                pass

    def in_step(
        self, body: Body, bodies: tuple[Body, ...], role: Role, rank: int, loops: tuple[For, ...],
        guards: tuple[Expr, ...], position: Position,
    ) -> Iterator[Site]:  # fmt: skip
        """Schedule the body of one of several roles that run in parallel. `bodies`: the bodies of all roles here.

        The schedule runs the roles in step: the n-th loops of all roles advance together, iteration by iteration, and
        so do the loops inside them. Roles on which others wait come first. Roles that wait for each other at a named
        barrier meet at one time.

        A loop that contains no loop, and whose step contains no meeting, runs each iteration as one piece (`turns`
        rests on that). The schedule is one possible order of events. What is proved on it holds in every other order,
        because all conflicting accesses are shown to be ordered as in the schedule (`races`), and every wait is shown
        to be satisfied in it (`protocol`).
        """
        part, levels = 0, _levels(bodies)
        steps = {number: step for number, step in _steps(body, _met(bodies)) if step in levels}
        for number, stmt in enumerate(body):
            before, part = part, 2 * levels[steps[number]] if number in steps else part
            if isinstance(stmt, BarrierSync) and number in steps:
                yield self.site(stmt, role, loops, guards, (*position, part - 1))
            elif isinstance(stmt, Programs | For):
                yield self.site(stmt, role, loops, guards, (*position, before, 0, rank, number))
                loop = _PROGRAMS if isinstance(stmt, Programs) else stmt
                inner = (*position, part - 1, loop.var)
                beside = _of_step(bodies, steps[number])
                inside = (*guards, _own_turn(stmt)) if isinstance(stmt, Programs) and stmt.turns > 1 else guards
                if isinstance(stmt, Programs) or _met(beside) or any(isinstance(s, For) for s in stmt.body):
                    yield from self.in_step(stmt.body, beside, role, rank, (*loops, loop), inside, inner)
                else:
                    yield from self.block(stmt.body, role, (*loops, loop), inside, (*inner, rank))
            else:
                yield from self.statement(stmt, role, loops, guards, (*position, part, 0, rank, number))


def _own_turn(programs: Programs) -> Expr:
    """Return the condition that the current program is one that the role runs."""
    return op("eq", op("mod", LoopVar(PROGRAM), Const(programs.turns)), Const(programs.turn))


def in_each(site: Site, turn: int) -> bool:
    """Return True if every program of a block whose number is `turn`, modulo the number of roles that take turns, comes
    to the site: no condition decides about it."""
    own = [s for s in (site.role.body if site.role is not None else ()) if isinstance(s, Programs) and s.turns > 1]
    return all(s.turn == turn for s in own) and site.guards == tuple(map(_own_turn, own))


def turns(role: Role | None) -> int:
    """Return the number of roles that take turns, this one included: each runs one program out of so many."""
    return next((s.turns for s in (role.body if role is not None else ()) if isinstance(s, Programs)), 1)


def own_turn(role: Role) -> int:
    """Return the numbers of the programs that a role runs, modulo `turns`."""
    return next((s.turn for s in role.body if isinstance(s, Programs)), 0)


Body = tuple[Stmt, ...]
Step = tuple[str, int]
"""A step that roles make together: their n-th loops, ("", n), or their n-th meeting at a named barrier, (name, n)."""


def _met(bodies: tuple[Body, ...]) -> frozenset[str]:
    """Return the named barriers at which several roles wait for each other."""
    waiting = Counter(name for body in bodies for name in {s.barrier for s in body if isinstance(s, BarrierSync)})
    return frozenset(name for name, roles in waiting.items() if roles > 1)


def _steps(body: Body, met: frozenset[str]) -> Iterator[tuple[int, Step]]:
    """Yield the steps of a role's body, each with the index of its statement."""
    done: Counter[str] = Counter()
    for number, stmt in enumerate(body):
        name = "" if isinstance(stmt, For | Programs) else stmt.barrier if isinstance(stmt, BarrierSync) else None
        if name is not None and (name == "" or name in met):
            yield number, (name, done[name])
            done[name] += 1


def _levels(bodies: tuple[Body, ...]) -> dict[Step, int]:
    """Number the steps such that the numbers increase in every role. If meetings make that impossible, number the loops
    alone."""
    for met in (_met(bodies), frozenset[str]()):
        programs = [[step for _, step in _steps(body, met)] for body in bodies]
        levels: dict[Step, int] = {}
        for _ in range(1 + sum(map(len, programs))):
            before = dict(levels)
            for program in programs:
                last = 0
                for step in program:
                    levels[step] = last = max(levels.get(step, 0), last + 1)
            if levels == before:
                return levels
    raise AssertionError("loops alone have an order")


def _of_step(bodies: tuple[Body, ...], step: Step) -> tuple[Body, ...]:
    """Return the bodies of the loops that the roles run as one step."""
    found = [{s: number for number, s in _steps(body, frozenset())} for body in bodies]
    inner = (body[numbers[step]] for body, numbers in zip(bodies, found, strict=True) if step in numbers)
    return tuple(s.body for s in inner if isinstance(s, For | Programs))


def loops_by_trip(kernel: Kernel) -> dict[str, tuple[int, int]]:
    """Loops whose instances are numbered by trips, not by the values of their variable: {name -> (start, step)}."""
    found: dict[str, set[tuple[Expr, int]]] = {}
    for stmt in walk_statements(kernel.body):
        if isinstance(stmt, For):
            found.setdefault(stmt.var, set()).add((stmt.start, stmt.step))
    agreed = {name: next(iter(each)) for name, each in found.items() if len(each) == 1}
    return {name: (int(start.value), step) for name, (start, step) in agreed.items() if isinstance(start, Const)}


_PASSIVE = (Copy, Map, Accumulate, Mma, Watch, Tag, AssertTags, Spec)
"""Statements that order nothing, so they never release an access."""


def representatives(sites: tuple[Site, ...]) -> dict[int, Site]:
    """Map the index of each site to the first statement that has the same events after it, and the same signal.

    That statement stands in the same list of statements, with only moves and arithmetic between the two. So in any
    iteration an event comes after one of them if and only if it comes after the other.
    """
    events, found = 0, {}
    firsts: dict[Hashable, Site] = {}
    for site in sites:
        if not isinstance(site.stmt, _PASSIVE) or counted(site.stmt):
            events += 1
        signal = site.stmt.signal if isinstance(site.stmt, Copy) else None
        key = (site.position[:-1], site.guards, site.role and site.role.name, signal, events)
        found[site.index] = firsts.setdefault(key, site)
    return found


def is_uniform(expr: Expr) -> bool:
    """Return True if all threads compute the same value: the expression has no thread index, coordinate or register."""
    return not any(isinstance(e, (Thread, Coord, Elem)) for e in walk(expr))


def is_launch_constant(expr: Expr) -> bool:
    """Return True if the value is fixed for a block: uniform and free of loop counters."""
    return is_uniform(expr) and not any(isinstance(e, LoopVar) for e in walk(expr))


def is_collective(site: Site) -> bool:
    """Return True if lanes of a warp, the warps of a warpgroup, or all threads of the block must meet here."""
    barriers = (Barrier, BarrierSync, BarrierArrive, WaveBarrier, BeginTurns, EndTurns, WaitCounts)
    together = isinstance(site.stmt, (*barriers, Mma, MmaFence, MmaCommit, MmaWait)) or counted(site.stmt)
    return together or any(a.holders is Holders.WARP for a in site.accesses)


def _extents(stmt: Stmt) -> tuple[int, ...]:
    """Return the extents of a statement's elements; () if it has none, or is the tag of a tensor, whose extents are
    sizes."""
    shape = getattr(stmt, "shape", ())
    fixed = [int(e.value) if isinstance(e, Const) else e for e in shape]  # the extents of a tile's tag are constants
    return tuple(e for e in fixed if isinstance(e, int)) if all(isinstance(e, int) for e in fixed) else ()


def tagged_elements(stmt: Stmt) -> tuple[Elem, ...]:
    """Return the elements whose tags a statement reads, in the order in which they are mentioned."""
    found: list[Elem] = []

    def term(value: object) -> None:
        if isinstance(value, TagField) and value.elem not in found:
            found.append(value.elem)

    match stmt:
        case AssertTags(conditions=conditions):
            for condition in conditions:
                match condition:
                    case TagEqual(left=left, right=right):
                        term(left)
                        term(right)
                    case TagTuple(elem=elem, terms=terms):
                        term(TagField(elem, 0))
                        for value in terms:
                            term(value)
        case Tag(fields=fields):
            for _, value in fields:
                term(value)
        case _:
            pass
    return tuple(found)


def tag_reads(stmt: Stmt) -> tuple[Relation, ...]:
    """Return the access relations of `tagged_elements(stmt)`, in the same order."""
    shape = _extents(stmt)
    where = getattr(stmt, "where", None)
    return tuple(
        Relation(e.obj, Mode.READ, shape, e.index, where, None, Holders.ALL, Order.SYNC) for e in tagged_elements(stmt)
    )
