"""The state of a running block, and its reports of violations."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from argus.ir.expr import Elem, Expr
from argus.ir.nodes import Kernel, Stmt, Tag
from argus.ir.visit import map_exprs
from argus.ir.waves import turns
from argus.layout import FragmentLayout
from argus.simulate.clock import Clock, Team
from argus.simulate.evaluate import Number
from argus.simulate.flight import Bulk, Landing, Product, Store
from argus.simulate.log import Log, Ordered
from argus.simulate.memory import GlobalTensor, Hazards, Memory, Registers, SharedMemory, SharedTile
from argus.simulate.numeric import Array
from argus.simulate.order import NOBODY, Moment
from argus.simulate.outcome import Story, Violation
from argus.simulate.peers import Lives
from argus.simulate.phase import Mbarrier
from argus.simulate.step import Domain, Frame, Program, Step, box_domain, domain_of
from argus.simulate.tagset import Schemas
from argus.simulate.usage import asynchronous_registers, first_threads, kernel_roles, named_barriers
from argus.work import Work


class Brought(Protocol):
    """The contributions of an accumulation to the cell at a position of its `Moved`.

    `members` returns the members of one field's multiset, or None if they were not recorded one by one.
    """

    def members(self, position: int, name: str) -> list[int] | None: ...


@dataclass(frozen=True, slots=True)
class Moved:
    """The origin of values, used to trace a witness: `cells[i]` of `target` came from position i of `sources`.

    `brought` is None if the value replaced the cell's old value.
    """

    event: int
    target: str
    cells: Array
    sources: tuple[tuple[str, Array], ...]
    brought: Brought | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """The cells that an access was found to have.

    `index` and `domain` are kept alive because the key in `Places` contains their `id`s, which no other object may get.
    """

    index: tuple[Expr, ...]
    domain: Domain
    cell: Array
    coords: tuple[Array, ...]


class Places:
    """The cells of accesses to registers and shared memory, for all runs of one kernel at the same sizes."""

    MOST = 1 << 22
    """The number of cells that are kept."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Found] = {}
        self._kept = 0

    def get(self, key: Hashable) -> Found | None:
        """Return the cells that are kept under `key`, if any."""
        return self._known.get(key)

    def keep(self, key: Hashable, found: Found) -> None:
        """Keep cells unless there are too many already."""
        self._kept += len(found.cell)
        if self._kept <= self.MOST:
            self._known[key] = found


@dataclass(slots=True)
class Run:
    """The state that all blocks of one simulation share. `tags`: the tag statements of tensors, by tensor name."""

    kernel: Kernel
    params: Mapping[str, Number]
    tensors: dict[str, GlobalTensor]
    log: Log
    checks: bool
    schemas: Schemas | None
    tags: dict[str, Tag]
    taggable: frozenset[str]
    """Objects whose elements may carry a tag."""
    iterations: int
    accumulated: frozenset[str]
    """Tiles into which statements accumulate."""
    indices: frozenset[str]
    """Register tiles from which places in memory are computed."""
    counting: frozenset[str]
    """Register tiles that are computed without data."""
    places: Places = field(default_factory=Places)
    faults: int = 0
    """The number of integer operations without a result so far, also at elements of threads that do not execute."""
    segment: int = 0
    """The last segment that has begun (argus/simulate/clock.py)."""
    strained: bool = False
    """A float that is carried in 64 bits came near the ends of their range."""
    values: bool = True
    """True if written values are compared with the specification."""
    work: Work | None = None
    """The steps after which the run is abandoned, or None for no limit."""
    printed: list[str] | None = None
    """The lines of device prints, or None if prints and assertions on the device are skipped."""


@dataclass(slots=True)
class Block:
    """One block: registers, shared memory, asynchronous work."""

    run: Run
    programs: tuple[Program, ...]
    """The programs that the block runs: one program, or several in a persistent kernel."""
    memories: dict[str, Memory]
    team: Team
    """The team of all threads."""
    teams: int
    """Number of components of clocks that stand for teams."""
    groups: Array
    """For each thread: the number of commit groups that it closed, or (AMD) of loads to LDS that it issued."""
    early: bool
    """True if asynchronous work is done when it is issued; otherwise it is done as late as possible."""
    begun: int
    """Number of steps in the log that other blocks took before this block."""
    flying: list[Landing] = field(default_factory=list)
    bulk: list[Bulk] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)
    products: list[Product] = field(default_factory=list)
    """The unfinished products of all teams, in the order of issue."""
    barriers: dict[str, list[Mbarrier]] = field(default_factory=dict)
    lives: Lives | None = None
    """The state of the cluster's blocks, if this block stands for a cluster."""
    trace: list[Moved] = field(default_factory=list)
    traced: int = 0
    """Number of elements in `trace`."""

    @staticmethod
    def start(run: Run, programs: tuple[Program, ...], early: bool) -> Block:
        """Return a new block whose registers and shared memory are uninitialised."""
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
        teams = 1 + len(kernel_roles(kernel)) + (0 if turns(kernel) is None else 2)
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
        """Begin the execution of a statement on a whole box, for thread 0 of its team."""
        domain = box_domain(shape)
        return Step(stmt, frame, domain, self._event(stmt, frame), np.ones(domain.size, dtype=np.bool_))

    def passes(self, stmt: Stmt, frame: Frame, what: str) -> None:
        """Log a statement that only orders other statements."""
        threads = 0 if frame.whole else int(frame.active.sum())
        self.run.log.steps.append(Ordered(self._event(stmt, frame), what, threads=threads))

    def _event(self, stmt: Stmt, frame: Frame) -> int:
        return self.run.log.event(stmt, frame.program.index, frame.loops, frame.team.name)

    def box(self, stmt: Stmt, coords: tuple[Array, ...], n: int, frame: Frame | None = None) -> Step:
        """Return a domain of n elements that no thread holds: the elements of a tag assertion or of a memory tile.

        The machine does not execute the statement, so a problem in it is not a fault of the program.
        """
        if frame is None:
            frame = Frame(np.ones(self.run.kernel.num_threads, dtype=np.bool_), {}, self.team, self.programs[0])
        everything = np.ones(n, dtype=np.bool_)
        thread = np.zeros(n, dtype=np.int64)
        domain = Domain((1, n), tuple(c[None, :] for c in coords), thread, everything, None)
        return Step(stmt, frame, domain, NOBODY, everything)

    def holder(self, memory: Memory, cell: int) -> str:
        """Return text that says whose register a cell is."""
        return f" of thread {memory.first + cell // memory.per_thread}" if isinstance(memory, Registers) else ""

    def now(self, step: Step, memory: Memory, alone: bool = False) -> Moment:
        """Return the time of the accesses of `step` to `memory`. With `alone`, the team's first thread makes them all.

        For tensors every program counts as a block of its own, since another block could run the next program.
        """
        team = step.frame.team
        owner = step.frame.program if isinstance(memory, GlobalTensor) else self.programs[0]
        fenced = np.maximum(team.clock.fenced, team.first_fenced) if alone else team.clock.fenced
        return Moment(owner.number, team.number, team.segment, team.clock.known, fenced, step.event)

    def together(self, step: Step, what: str) -> None:
        """Report a collective operation if some lanes of a warp do not take part in it."""
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
        """Record a violation at a cell of `memory`, or at a coordinate that has no cell. `story` returns the steps that
        led to it."""
        name = str(details.get("object", memory.name if memory is not None else ""))
        if story is not None and self.run.log.wants(step.stmt, code, name):
            details["trace"], details["missing"] = story()
        if prop == "machine":
            details["registers"] = self._read_by(step.stmt)
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

    def _read_by(self, stmt: Stmt) -> dict[str, list[list[Number]]]:
        """Return the register tiles that the expressions of a statement read: the values of each thread."""
        names: set[str] = set()

        def look(expr: Expr) -> None:
            names.update(e.obj for e in (expr,) if isinstance(e, Elem))

        map_exprs(stmt, look)
        tiles = {name: memory for name in names if isinstance(memory := self.memories[name], Registers)}
        return {name: tile.values.reshape(-1, tile.per_thread).tolist() for name, tile in tiles.items()}
