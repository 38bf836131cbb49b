"""Run the parties of a block side by side: warps or roles, in an order that a schedule chooses, and the copy engine.

A party runs until it waits. A role is one party. Without roles, the parties are the warps of the block, or all warps
together (in kernels with asynchronous statements, which need more than a warp). Schedules:

- "program": in turn; all warps of a block as one party;
- "reverse": in turn, the last first; bulk copies arrive in reverse order;
- "lazy": each party as far as it gets;
- "eager-ROLE": that role whenever it can; bulk copies arrive, bulk stores are done, and products read their operands,
  at the issue;
- "random(SEED)": drawn anew at every wait; bulk copies arrive, and bulk stores go on, at any time.

Except for "eager" and "random", bulk copies arrive one by one when nothing else can run, and bulk stores read and write
as late as possible.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from typing import get_args

import numpy as np

from argus.ir.cluster import rank_of
from argus.ir.nodes import Asynchronous, Barrier, Kernel, Roles, Stmt, WaveBarrier
from argus.ir.visit import walk
from argus.ir.waves import turns
from argus.simulate import bulk, events, mbarrier, product, races, stores
from argus.simulate.clock import Team
from argus.simulate.machine import Block
from argus.simulate.numeric import Array
from argus.simulate.outcome import Stopped
from argus.simulate.peers import Lives
from argus.simulate.phase import Waiting
from argus.simulate.statements import Pause, execute
from argus.simulate.step import Frame
from argus.simulate.turns import frames, meet, rejoin, walks
from argus.simulate.usage import kernel_roles


@dataclass(frozen=True, slots=True)
class Schedule:
    """The choices of a schedule. `pick(parties, last)` returns the next party among the numbers of `parties` that can
    run; `last` ran before.

    `single`: each warp of a block is a party. `early`: asynchronous work is done when it is issued. `arrive(flying)`:
    returns which of that many bulk copies arrives now, when nothing else can run (`must`) or otherwise.
    """

    pick: Callable[[list[int], int], int]
    arrive: Callable[[int, bool], int | None]
    single: bool = False
    early: bool = False

    @staticmethod
    def parse(name: str, kernel: Kernel) -> Schedule:
        """Return the schedule called `name`. Raises `ValueError` if there is none."""
        if name == "program":
            return Schedule(lambda ready, last: min((i for i in ready if i > last), default=ready[0]), _first)
        if name == "reverse":
            return Schedule(lambda ready, last: max((i for i in ready if i < last), default=ready[-1]), _last, True)
        if name == "lazy":
            return Schedule(lambda ready, last: last if last in ready else ready[0], _first)
        roles = [role.name for role in kernel_roles(kernel)]
        if name.startswith("eager-") and name.removeprefix("eager-") in roles:
            chosen = roles.index(name.removeprefix("eager-"))
            return Schedule(lambda ready, last: chosen if chosen in ready else ready[0], _first, early=True)
        seed = re.fullmatch(r"random\((\d+)\)", name)
        if seed is None:
            raise ValueError(f'schedule {name!r} is none of "program", "reverse", "lazy", "eager-ROLE", "random(SEED)"')
        draw = np.random.default_rng(int(seed.group(1)))

        def arrive(flying: int, must: bool) -> int | None:
            return int(draw.integers(flying)) if must or draw.integers(2) else None

        return Schedule(lambda ready, last: int(draw.choice(ready)), arrive, True)


@dataclass(slots=True)
class Path:
    """The decisions of one run: first those in `taken`, then always the first choice. `ways` records the number of
    choices at each decision."""

    taken: list[int] = field(default_factory=list)
    ways: list[int] = field(default_factory=list)

    def choose(self, ways: int) -> int:
        """Return the next decision among the given number of choices."""
        if ways == 1:
            return 0
        at = len(self.ways)
        self.ways.append(ways)
        if at == len(self.taken):
            self.taken.append(0)
        return self.taken[at]

    def following(self) -> Path | None:
        """Return the path that follows this one, or None after the last path."""
        for at in reversed(range(len(self.ways))):
            if self.taken[at] + 1 < self.ways[at]:
                return Path([*self.taken[:at], self.taken[at] + 1])
        return None

    def schedule(self, early: bool) -> Schedule:
        """Return the schedule that takes this path. With `early`, products read their operands when they are issued."""

        def arrive(flying: int, must: bool) -> int | None:
            return self.choose(flying) if must else (None, *range(flying))[self.choose(flying + 1)]

        return Schedule(lambda ready, last: ready[self.choose(len(ready))], arrive, True, early)


def _first(flying: int, must: bool) -> int | None:
    return 0 if must else None


def _last(flying: int, must: bool) -> int | None:
    return flying - 1 if must else None


@dataclass(slots=True, eq=False)
class Party:
    """Threads that run together, and the event for which they wait."""

    walk: Iterator[Pause]
    frame: Frame
    pause: Pause | None = None
    ended: bool = False

    def advance(self) -> None:
        """Run to the next wait."""
        self.pause = next(self.walk, None)
        self.ended = self.pause is None

    @property
    def ready(self) -> bool:
        """True if this party can run now: it has not ended, and the event for which it waits, if any, has happened."""
        if isinstance(self.pause, Waiting):
            return self.pause.over
        return not self.ended and self.pause is None


def run_block(block: Block, schedule: Schedule) -> None:
    """Run one block to its end: the statements of the whole block, then its roles side by side, then the remaining tag
    statements."""
    kernel = block.run.kernel
    block.barriers = mbarrier.barriers(block)
    before = tuple(takewhile(lambda stmt: not isinstance(stmt, Roles), kernel.body))
    warp = np.arange(kernel.num_threads) // kernel.warp_size
    together = (*get_args(Asynchronous), WaveBarrier)
    apart = schedule.single and not any(isinstance(s, together) for s in walk(kernel.body))
    taken = turns(kernel)
    if taken is not None:
        _in_turns(block, taken, schedule)
        return
    groups = [warp == w for w in range(kernel.num_warps)] if apart else [warp >= 0]
    frames = [Frame(group, {}, block.team, block.programs[0]) for group in groups]
    _run(block, [Party(execute(block, before, frame), frame) for frame in frames], schedule)
    rest = kernel.body[len(before) :]
    teams = [block.team]
    if rest:
        teams += _run_roles(block, schedule)
    mbarrier.unfinished(block, teams)
    product.finish(block, teams)
    stores.finish(block)
    for found in block.lives.finish() if block.lives is not None else ():
        races.stray(block, found)
    for _ in execute(block, rest[1:], frames[0]):
        raise ValueError("nothing but tags may follow the roles")


def _in_turns(block: Block, taken: tuple[int, int], schedule: Schedule) -> None:
    """Run a kernel whose waves take turns from one place of its body to another."""
    kernel, (begin, end) = block.run.kernel, taken
    whole = Frame(np.ones(kernel.num_threads, dtype=np.bool_), {}, block.team, block.programs[0])
    _run(block, [Party(execute(block, kernel.body[:begin], whole), whole)], schedule)
    halves = frames(block)
    parties = [
        Party(walk, frame)
        for walk, frame in zip(walks(block, kernel.body[begin : end + 1], halves), halves, strict=True)
    ]
    last = len(parties)
    while not all(p.ended for p in parties):
        ready = [i for i, p in enumerate(parties) if p.ready]
        if ready:
            last = schedule.pick(ready, last)
            parties[last].advance()
            continue
        stmts = []
        for party in parties:
            if not isinstance(party.pause, tuple):
                raise Stopped  # the trips of a loop differ between the halves, which was reported
            stmts.append(party.pause[0])
            _all_present(block, [party.pause], party.frame.team)
            party.pause = None
        meet(block, stmts, halves)
    rejoin(block, halves)
    _run(block, [Party(execute(block, kernel.body[end + 1 :], whole), whole)], schedule)


def _run_roles(block: Block, schedule: Schedule) -> list[Team]:
    """Run all roles to their ends, and return their teams."""
    kernel, parties = block.run.kernel, []
    for number, role in enumerate(kernel_roles(kernel)):
        threads = role.num_warps * kernel.warp_size
        team = Team(role.name, number + 1, role.first_warp * kernel.warp_size, threads, block.team.clock.copy(), 0)
        block.tick(team)
        frame = Frame(np.ones(threads, dtype=np.bool_), {}, team, block.programs[0])
        parties.append(Party(execute(block, role.body, frame), frame))
    teams = [party.frame.team for party in parties]
    if any(rank_of(team.name) is not None for team in teams):
        block.lives = Lives.of(teams, any(isinstance(s, Barrier) for s in kernel.body))
    _run(block, parties, schedule)
    return teams


def _run(block: Block, parties: list[Party], schedule: Schedule) -> None:
    """Run all parties to their ends."""
    last = len(parties)
    while not all(p.ended for p in parties):
        ready = [i for i, p in enumerate(parties) if p.ready]
        if _copy_engine(block, schedule, not ready):
            continue
        if ready:
            last = schedule.pick(ready, last)
            parties[last].advance()
        elif not _meet(block, parties):
            _deadlock(block, parties)


def _copy_engine(block: Block, schedule: Schedule, must: bool) -> bool:
    """Let a bulk copy arrive or a bulk store continue. Return True if one did. `must`: nothing but an arrival lets a
    party run."""
    due = [] if must else [s for s in block.stores if not s.written]
    flying = len(block.bulk) + len(due)
    chosen = schedule.arrive(flying, must) if flying else None
    if chosen is None:
        return False
    if chosen < len(block.bulk):
        bulk.land(block, block.bulk.pop(chosen))
    else:
        stores.advance(block, due[chosen - len(block.bulk)])
    return True


def _meet(block: Block, parties: list[Party]) -> bool:
    """Let every team pass the barrier that its parties have reached, if any; return True if a team did."""
    met = False
    for team in {id(p.frame.team): p.frame.team for p in parties}.values():
        ours = [p for p in parties if p.frame.team is team]
        here = [(p.pause, p) for p in ours if isinstance(p.pause, tuple)]
        if not here or any(isinstance(p.pause, Waiting) for p in ours):
            continue
        _all_present(block, [pause for pause, _ in here], team)
        block.passes(*here[0][0], "barrier")
        for _, party in here:
            party.pause = None
        team.joined(isinstance(here[0][0][0], WaveBarrier))
        block.tick(team)
        met = True
    return met


def _all_present(block: Block, here: list[tuple[Stmt, Frame]], team: Team) -> None:
    """Report a barrier that some threads of the team do not reach."""
    stmt, frame = here[0]
    present: Array = np.zeros(team.threads, dtype=np.bool_) if team.members is None else ~team.members
    for other, its in here:
        if other is stmt and (its.loops, its.program) == (frame.loops, frame.program):
            present |= its.active
    if not present.all():
        step = block.step(stmt, frame, None)
        missing, absent = int((~present).sum()), int(np.argmin(present)) + team.first
        text = f"{missing} threads of {team.name} do not come to this barrier, thread {absent} for one"
        thread = int(np.argmax(present)) + team.first
        block.report(step, "convergence", "divergent-barrier", text, thread, count=missing)


def _deadlock(block: Block, parties: list[Party]) -> None:
    """Report a deadlock: which party waits for which phase, and what the phase lacks."""
    stuck = [p.pause for p in parties if isinstance(p.pause, Waiting)]
    ended = [p.frame.team.name for p in parties if p.ended]
    first = stuck[0]
    phase = f"phase {first.phases} of {first.barrier.label}"
    text = f"{phase} never completes: every role waits or has ended, and no copy is under way"
    mbarrier.problem(
        block, first.step, first.barrier, "deadlock", text, lambda: events.deadlock(block, stuck, ended)
    )  # fmt: skip
    raise Stopped
