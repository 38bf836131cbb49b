"""The state of a running block, and the checked access to its memories that all statements share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

import numpy as np

from argus.ir.expr import Const, Coord, Elem, Expr, Op, walk
from argus.ir.nodes import Kernel, Stmt, Tag
from argus.layout import FragmentLayout
from argus.simulate import races
from argus.simulate.clock import Clock, Team
from argus.simulate.evaluate import Number, Overflow, Scope, evaluate
from argus.simulate.flight import Bulk, Landing, Store
from argus.simulate.log import Log, Ordered
from argus.simulate.memory import GlobalTensor, Hazards, Memory, Registers, SharedMemory, SharedTile
from argus.simulate.numeric import Array
from argus.simulate.order import NOBODY, Moment, Touch
from argus.simulate.outcome import Story, Violation
from argus.simulate.peers import Lives
from argus.simulate.tagset import Schemas
from argus.simulate.usage import asynchronous_registers, first_threads, kernel_roles, named_barriers

if TYPE_CHECKING:
    from argus.simulate.mbarrier import Mbarrier


@dataclass(frozen=True, slots=True)
class Program:
    """One program of the grid: its ids, and its number in this run."""

    index: tuple[int, ...]
    number: int


@dataclass(frozen=True, slots=True)
class Frame:
    """The threads of a team that execute (bool `[T]`), the loop counters, and the program that they run."""

    active: Array
    loops: dict[str, int]
    team: Team
    program: Program

    @property
    def threads(self) -> Array:
        """Numbers in the block of the executing threads."""
        return np.flatnonzero(self.active) + self.team.first


@dataclass(frozen=True, slots=True)
class Domain:
    """A statement's elements as registers see them: everything of n = T * V elements, thread by thread.

    `thread` counts the team's own threads."""

    shape: tuple[int, int]
    coords: tuple[Array, ...]
    thread: Array
    primary: Array
    layout: FragmentLayout | None

    @property
    def size(self) -> int:
        return self.shape[0] * self.shape[1]

    def flat(self, values: Array) -> Array:
        """Broadcast to all n elements."""
        return np.broadcast_to(values, self.shape).reshape(-1)


@lru_cache(maxsize=256)
def domain_of(layout: FragmentLayout | None, threads: int) -> Domain:
    """The domain that `layout` spreads over a team; None: one element a thread, without coordinates."""
    if layout is None:
        thread = np.arange(threads)
        return Domain((threads, 1), (), thread, np.ones(threads, dtype=np.bool_), None)
    table = layout.coordinates().astype(np.int64)
    shape = (table.shape[0], table.shape[1])
    thread = np.repeat(np.arange(shape[0]), shape[1])
    coords = tuple(np.ascontiguousarray(table[:, :, axis]) for axis in range(layout.rank))
    return Domain(shape, coords, thread, layout.primary().reshape(-1), layout)


@lru_cache(maxsize=64)
def box_domain(shape: tuple[int, ...]) -> Domain:
    """All elements of a box, row-major, of one thread."""
    coords = tuple(c.reshape(1, -1).astype(np.int64) for c in np.indices(shape))
    n = int(np.prod(shape, dtype=np.int64))
    return Domain((1, n), coords, np.zeros(n, dtype=np.int64), np.ones(n, dtype=np.bool_), None)


@dataclass(frozen=True, slots=True)
class Step:
    """One execution of a statement: its threads, domain and event number."""

    stmt: Stmt
    frame: Frame
    domain: Domain
    event: int
    on: Array
    """bool `[n]`: the elements of executing threads."""

    @property
    def thread(self) -> Array:
        """The thread of each element, counted in the block."""
        first = self.frame.team.first
        return self.domain.thread + first if first else self.domain.thread


@dataclass(frozen=True, slots=True)
class Place:
    """Cells of an access: `cell[i]` for the elements `ok[i]`; `coords` are logical, one array a dimension.

    `wanted` are the elements at which the program makes the access: `ok`, and those that have no cell.
    """

    memory: Memory
    cell: Array
    coords: tuple[Array, ...]
    ok: Array
    wanted: Array


class Brought(Protocol):
    """What an accumulation brought to the cell at a position of its `Moved`: the members of one field's multiset, or
    None where they are not known one by one."""

    def members(self, position: int, name: str) -> list[int] | None: ...


@dataclass(frozen=True, slots=True)
class Moved:
    """Where values came from, for the way of a witness: `cells[i]` of `target` from `sources` at position i.

    `brought` is None for what replaced the value of the cell.
    """

    event: int
    target: str
    cells: Array
    sources: tuple[tuple[str, Array], ...]
    brought: Brought | None = None


@dataclass(slots=True)
class Run:
    """What all blocks of one simulation share. `tags`: tensors' tag statements by name."""

    kernel: Kernel
    params: Mapping[str, Number]
    tensors: dict[str, GlobalTensor]
    log: Log
    checks: bool
    schemas: Schemas | None
    tags: dict[str, Tag]
    taggable: frozenset[str]
    """Objects whose elements may carry a tag at all."""
    iterations: int
    accumulated: frozenset[str]
    """Tiles that are accumulated into."""
    indices: frozenset[str]
    """Register tiles from which places in memory are computed."""
    segment: int = 0
    """The last segment that began (argus/simulate/clock.py)."""
    deadline: float = math.inf
    """A value of `time.thread_time()` after which the run is given up."""


@dataclass(frozen=True, slots=True)
class _Fixed:
    """Cells of an access that are the same in every iteration. Holds what its key names by identity."""

    index: tuple[Expr, ...]
    layout: FragmentLayout | None
    cell: Array
    coords: tuple[Array, ...]


@dataclass(slots=True)
class Block:
    """One block: registers, shared memory, asynchronous work."""

    run: Run
    programs: tuple[Program, ...]
    """What it was given to run: one program, but for persistent kernels."""
    memories: dict[str, Memory]
    team: Team
    """All threads."""
    teams: int
    """Components of clocks that stand for teams."""
    groups: Array
    """Commit groups closed by each thread, or (AMD) loads to LDS that it issued."""
    early: bool
    """Whether asynchronous work is done at its issue; otherwise when it has to be."""
    begun: int
    """Steps of the log that other blocks took before it."""
    flying: list[Landing] = field(default_factory=list)
    bulk: list[Bulk] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)
    barriers: dict[str, list[Mbarrier]] = field(default_factory=dict)
    lives: Lives | None = None
    """Of the blocks of a cluster that is this block."""
    trace: list[Moved] = field(default_factory=list)
    traced: int = 0
    """Elements in `trace`."""
    _static: dict[tuple[str, int, int, bool], _Fixed] = field(default_factory=dict)

    @staticmethod
    def start(run: Run, programs: tuple[Program, ...], early: bool) -> Block:
        """A fresh block: nothing in registers or shared memory."""
        kernel = run.kernel
        shared = SharedMemory(kernel.shared, run.schemas)
        memories: dict[str, Memory] = dict(run.tensors)
        memories |= {s.name: SharedTile(s, shared) for s in kernel.shared}
        first, hazardous = first_threads(kernel), asynchronous_registers(kernel)
        for f in kernel.fragments:
            if f.layout is None:
                raise ValueError(f"fragment {f.name} has no layout: lower the kernel first")
            registers = Registers(f, f.layout, kernel.num_threads, kernel.warp_size, run.schemas)
            registers.first = first.get(f.name, 0)
            if f.name in hazardous:
                registers.hazards = Hazards(len(registers.marks), hazardous[f.name])
            memories[f.name] = registers
        teams = 1 + len(kernel_roles(kernel))
        clock = Clock.start(teams + sum(b.count for b in kernel.barriers) + len(named_barriers(kernel)))
        team = Team("the block", 0, 0, kernel.num_threads, clock, 0)
        groups = np.zeros(kernel.num_threads, dtype=np.int64)
        block = Block(run, programs, memories, team, teams, groups, early, len(run.log.steps))
        team.clock.known[:teams] = run.segment
        block.tick(team)
        return block

    def tick(self, team: Team) -> None:
        """Begin a new segment of a team."""
        self.run.segment += 1
        team.segment = self.run.segment

    def step(self, stmt: Stmt, frame: Frame, layout: FragmentLayout | None) -> Step:
        """Begin the execution of a statement over the domain of `layout`."""
        domain = domain_of(layout, frame.team.threads)
        on = np.repeat(frame.active, domain.shape[1])
        return Step(stmt, frame, domain, self._event(stmt, frame), on)

    def whole(self, stmt: Stmt, frame: Frame, shape: tuple[int, ...]) -> Step:
        """Begin the execution of a statement on a box as a whole, for thread 0 of its team."""
        domain = box_domain(shape)
        return Step(stmt, frame, domain, self._event(stmt, frame), np.ones(domain.size, dtype=np.bool_))

    def passes(self, stmt: Stmt, frame: Frame, what: str) -> None:
        """Remember a statement that does nothing but order others."""
        threads = 0 if frame.active.all() else int(frame.active.sum())
        self.run.log.steps.append(Ordered(self._event(stmt, frame), what, threads=threads))

    def _event(self, stmt: Stmt, frame: Frame) -> int:
        return self.run.log.event(stmt, frame.program.index, frame.loops, frame.team.name)

    def box(self, stmt: Stmt, coords: tuple[Array, ...], n: int, frame: Frame | None = None) -> Step:
        """A domain of n elements that no thread holds: the elements of a tag assertion or of a memory tile.

        The machine does not execute it: nothing that goes wrong in it is a fault of the program.
        """
        if frame is None:
            frame = Frame(np.ones(self.run.kernel.num_threads, dtype=np.bool_), {}, self.team, self.programs[0])
        everything = np.ones(n, dtype=np.bool_)
        thread = np.zeros(n, dtype=np.int64)
        domain = Domain((1, n), tuple(c[None, :] for c in coords), thread, everything, None)
        return Step(stmt, frame, domain, NOBODY, everything)

    def holder(self, memory: Memory, cell: int) -> str:
        """Whose register a cell is, for a person."""
        return f" of thread {memory.first + cell // memory.per_thread}" if isinstance(memory, Registers) else ""

    def now(self, step: Step, memory: Memory, alone: bool = False) -> Moment:
        """The time of accesses to `memory` that `step` makes; `alone`: by the team's first thread.

        In tensors every program counts as a block of its own, for the next one could be another block's.
        """
        team = step.frame.team
        owner = step.frame.program if isinstance(memory, GlobalTensor) else self.programs[0]
        fenced = np.maximum(team.clock.fenced, team.first_fenced) if alone else team.clock.fenced
        return Moment(owner.number, team.number, team.segment, team.clock.known, fenced, step.event)

    # ------------------------------------------------------------------ expressions

    def value(
        self, expr: Expr, step: Step, on: Array, overflow: Overflow = Overflow.REPORT, warp: bool = False
    ) -> Array:
        """`expr` at all n elements; registers are read (and checked) where `on`."""
        read: dict[Elem, Array] = {}

        def element(elem: Elem) -> Array:
            if elem not in read:
                place = self.locate(elem.obj, elem.index, step, on, warp)
                read[elem] = self.read(place, step, warp=warp).reshape(step.domain.shape)
            return read[elem]

        def fault(code: str, expr: Expr, bad: Array) -> None:
            self.arithmetic_fault(code, expr, step, step.domain.flat(bad) & step.on)

        domain, frame = step.domain, step.frame
        scope = Scope(
            self.run.params,
            frame.program.index,
            frame.loops,
            domain.coords,
            domain.thread[:: max(1, domain.shape[1]), None],
            element,
            fault,
            overflow if step.event != NOBODY else Overflow.IGNORE,
        )
        return domain.flat(evaluate(expr, scope))

    def arithmetic_fault(self, code: str, expr: Expr, step: Step, bad: Array) -> None:
        """Report an integer operation without a result."""
        if bad.any():
            at = int(np.argmax(bad))
            text = {
                "int32-overflow": "a 32-bit integer expression leaves the range of int32",
                "int64-overflow": "a 64-bit integer expression leaves the range of int64",
                "division-by-zero": "an integer expression divides by zero",
                "shift-out-of-range": "an integer is shifted by less than 0, or by as many bits as it has or more",
            }[code]
            coords = tuple(int(c.reshape(-1)[at]) for c in step.domain.coords)
            self.report(step, "bounds", code, text, int(step.thread[at]), logical=coords, count=int(bad.sum()))

    # ------------------------------------------------------------------ cells

    def locate(self, name: str, index: tuple[Expr, ...], step: Step, on: Array, warp: bool = False) -> Place:
        """The cells of `name[index]` at the elements `on`; those outside its shape, or not held, are reported.

        `warp`: registers of the thread's whole warp may be meant.
        """
        memory = self.memories[name]
        key = (name, id(index), id(step.domain.layout), warp)
        fixed = step.domain.layout is not None and not isinstance(memory, GlobalTensor)
        if fixed and key in self._static:
            kept = self._static[key]
            cell, coords = kept.cell, kept.coords
        else:
            coords = tuple(np.ascontiguousarray(self.value(e, step, on)) for e in index)
            cell = self._cells(memory, coords, step, on, warp)
            if fixed and all(_static(e) for e in index):
                self._static[key] = _Fixed(index, step.domain.layout, cell, coords)
        ok = on & (cell >= 0)
        if step.event != NOBODY and not ok.all() and (on & ~ok).any():
            self._misplaced(memory, coords, step, on & ~ok)
        return Place(memory, cell, coords, ok, on)

    def _cells(self, memory: Memory, coords: tuple[Array, ...], step: Step, on: Array, warp: bool) -> Array:
        """Cells at all elements, -1 where there is none; of tensors only at the elements `on`."""
        n = step.domain.size
        inside = np.ones(n, dtype=np.bool_)
        for coord, extent in zip(coords, memory.shape, strict=True):
            inside &= (coord >= 0) & (coord < extent)
        cell = np.full(n, -1, dtype=np.int64)
        if isinstance(memory, GlobalTensor):
            at = np.flatnonzero(inside & on)
            if len(at):
                cell[at] = memory.cells(tuple(c[at] for c in coords))
            return cell
        element = np.zeros(n, dtype=np.int64)
        for coord, extent in zip(coords, memory.shape, strict=True):
            element = element * extent + coord
        at = np.flatnonzero(inside)
        if isinstance(memory, SharedTile):
            cell[at] = memory.cells[element[at]]
        elif isinstance(memory, Registers):
            if step.event == NOBODY:
                cell[at] = memory.holders.replicas(element[at])[:, 0]
            else:
                find = memory.holders.warp if warp else memory.holders.own
                cell[at] = find(step.domain.thread[at], element[at])
        return cell

    def _misplaced(self, memory: Memory, coords: tuple[Array, ...], step: Step, bad: Array) -> None:
        at = int(np.argmax(bad))
        logical = tuple(int(c[at]) for c in coords)
        thread, count = int(step.thread[at]), int(bad.sum())
        inside = all(0 <= c < extent for c, extent in zip(logical, memory.shape, strict=True))
        if inside:
            what = f"no register that the statement may touch holds this element of {memory.name}"
            self.report(step, "machine", "register-not-held", what, thread, memory, logical=logical, count=count)
            return
        what = f"index {list(logical)} is outside of {memory.name}, of shape {list(memory.shape)}"
        self.report(
            step,
            "bounds",
            "out-of-bounds",
            what,
            thread,
            memory,
            logical=logical,
            count=count,
            arrived=str(list(logical)),
            expected=f"below {list(memory.shape)}",
        )

    # ------------------------------------------------------------------ reads and writes

    def read(self, place: Place, step: Step, *, warp: bool = False, asynchronous: bool = False) -> Array:
        """Values at all n elements: what the cells hold where `place.ok`, zero elsewhere."""
        memory, at = place.memory, np.flatnonzero(place.ok)
        cell = place.cell[at]
        values = memory.load(cell)
        if self.run.checks:
            thread = step.thread[at]
            written = memory.written(cell)
            if not written.all():
                self.uninitialised(memory, cell, thread, ~written, step)
            races.ordered(self, memory, Touch.READ, cell, thread, step, warp)
            if asynchronous and memory.order is not None:
                memory.order.pending_read[memory.grains(cell)] = step.event
        if len(at) == step.domain.size:
            return values
        result = np.zeros(step.domain.size, dtype=values.dtype)
        result[at] = values
        return result

    def write(self, place: Place, values: Array, step: Step, touch: Touch = Touch.WRITE, *, warp: bool = False) -> None:
        """Store `values[i]` in the cells of the elements `place.ok[i]`."""
        at = np.flatnonzero(place.ok)
        cell = place.cell[at]
        if self.run.checks:
            races.ordered(self, place.memory, touch, cell, step.thread[at], step, warp)
        if isinstance(place.memory, GlobalTensor) and touch is Touch.WRITE:
            np.add.at(place.memory.writes, cell, 1)
        place.memory.store(cell, values[at])

    def atomic(self, place: Place, step: Step) -> None:
        """Check and record atomic accumulations into the cells of a tensor."""
        if self.run.checks:
            at = np.flatnonzero(place.ok)
            races.ordered(self, place.memory, Touch.ACCUMULATE, place.cell[at], step.thread[at], step, False)

    def initialised(self, memory: Memory, cell: Array, step: Step, touch: Touch) -> None:
        """Report registers that are used though nothing was written to them before, or while a product uses them."""
        if self.run.checks and isinstance(memory, Registers):
            missing = ~memory.written(cell)
            if missing.any():
                self.uninitialised(memory, cell, memory.first + cell // memory.per_thread, missing, step)
            races.registers(self, memory, touch, cell, step)

    def uninitialised(self, memory: Memory, cell: Array, thread: Array, bad: Array, step: Step) -> None:
        at = int(np.argmax(bad))
        text = f"an element of {memory.name} is read that nothing has written"
        self.report(
            step,
            "initialisation",
            "uninitialised-read",
            text,
            int(thread[at]),
            memory,
            int(cell[at]),
            arrived="an uninitialised value",
            expected="a written value",
            count=int(bad.sum()),
            story=lambda: races.coming(self, memory, int(cell[at]), int(thread[at]), step),
        )

    def together(self, step: Step, what: str) -> None:
        """Report a collective that some lanes of a warp do not take part in."""
        lanes: Array = step.frame.active.reshape(-1, self.run.kernel.warp_size)
        split = np.asarray(lanes.any(axis=1) & ~lanes.all(axis=1))
        if split.any():
            thread = int(np.argmax((lanes & split[:, None]).reshape(-1))) + step.frame.team.first
            text = f"{what} needs all lanes of its warp, but only some execute it"
            self.report(step, "convergence", "divergent-collective", text, thread)

    # ------------------------------------------------------------------ reports

    def report(
        self,
        step: Step,
        prop: str,
        code: str,
        message: str,
        thread: int | None,
        memory: Memory | None = None,
        cell: int | None = None,
        *,
        logical: tuple[int, ...] = (),
        story: Callable[[], Story] | None = None,
        **details: object,
    ) -> None:
        """Record a violation at a cell of `memory`, or at a coordinate that has none; `story` tells what led there."""
        name = str(details.get("object", memory.name if memory is not None else ""))
        if story is not None and self.run.log.wants(step.stmt, code, name):
            details["trace"], details["missing"] = story()
        violation = Violation(
            prop,
            code,
            message,
            step.stmt,
            step.frame.program.index,
            thread,
            dict(step.frame.loops),
            memory.name if memory is not None else "",
            memory.logical(cell) if memory is not None and cell is not None else logical,
            memory.physical(cell) if memory is not None and cell is not None else "",
        )
        self.run.log.add(replace(violation, **details))  # type: ignore[arg-type]


@lru_cache(maxsize=4096)
def _static(expr: Expr) -> bool:
    """Whether an expression depends on nothing but the element's coordinate."""
    return all(isinstance(e, Coord | Const | Op) for e in walk(expr))
