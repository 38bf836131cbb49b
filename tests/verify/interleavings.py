"""Every order of events of small runs: warps, mbarriers, named barriers and the copy engine as a finite automaton.

A third reading of the rules, next to verifier and simulator, with mbarriers as the hardware has them: a parity bit,
arrivals and bytes outstanding, and no memory of phases; a named barrier lets all go that wait there when it is full. It
sees the order of events only: which buffer of a shared tile is touched, not which elements, and no fences.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations, pairwise, repeat
from math import prod

from argus.ir.expr import Const, Expr, LoopVar, Op, Param, ProgramId
from argus.ir.instruction import WGMMA
from argus.ir.nodes import (
    Access,
    Barrier,
    BarrierArrive,
    BarrierSync,
    Copy,
    For,
    If,
    Kernel,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierWait,
    Mma,
    MmaCommit,
    MmaWait,
    Programs,
    Shared,
    Stmt,
)
from argus.ir.visit import walk
from argus.simulate.usage import kernel_roles

Cell = tuple[str, int]
"""A shared tile and the first index of a buffer in it."""
Key = tuple[str, int]
"""An mbarrier: its array and index; or the name of a named barrier, and 0."""

_OPERATORS: Mapping[str, Callable[[int, int], int]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "floordiv": operator.floordiv, "mod": operator.mod,
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge, "eq": operator.eq, "ne": operator.ne,
    "and": operator.and_, "or": operator.or_, "minimum": min, "maximum": max,
}  # fmt: skip
_SEPARATE_WARPS = 3
"""So many warps in all may each be an agent of its own; with more, each role is one."""


class Unmodelled(Exception):
    """The kernel has something that this automaton does not know."""


class Wrong(Exception):
    """What goes wrong in some order."""


@dataclass(frozen=True, slots=True)
class Event:
    """One step of an agent. `cells` are touched at once, or, for products, `busy` tells for how long."""

    kind: str
    key: Key = ("", 0)
    amount: int = 0
    cells: frozenset[Cell] = frozenset()


@dataclass(frozen=True, slots=True)
class Agent:
    """A warp, or all warps of a role: its events, and the buffers that products read while it is before each event."""

    role: str
    events: tuple[Event, ...]
    busy: tuple[frozenset[Cell], ...]


# ---------------------------------------------------------------------------- events of a role


class _Trace:
    """Runs the control flow of one role at concrete sizes."""

    def __init__(self, kernel: Kernel, sizes: Mapping[str, int], programs: list[tuple[int, ...]]) -> None:
        self.kernel, self.programs = kernel, programs
        self.values: dict[str, int] = dict(sizes)
        self.counts: dict[str, int] = {}
        self.shared = {s.name: s for s in kernel.shared}
        self.groups: list[frozenset[Cell]] = []
        self.open: frozenset[Cell] = frozenset()
        self.events: list[Event] = []
        self.busy: list[frozenset[Cell]] = []

    def value(self, expr: Expr) -> int:
        match expr:
            case Const(value=value):
                return int(value)
            case Param(name=name) | LoopVar(name=name) if name in self.values:
                return self.values[name]
            case ProgramId(axis=axis):
                return self.values[f"program {axis}"]
            case Op(op=name, args=(a, b)) if name in _OPERATORS:
                return int(_OPERATORS[name](self.value(a), self.value(b)))
            case _:
                raise Unmodelled(str(expr))

    def add(self, event: Event) -> None:
        self.busy.append(frozenset().union(self.open, *self.groups))
        self.events.append(event)

    def cell(self, access: Access) -> Cell:
        tile = self.shared[access.obj]
        place = self.value(access.index[0]) if len(tile.shape) > 2 else 0
        if not 0 <= place < tile.shape[0]:
            raise Wrong(f"there is no buffer {place} of {tile.name}")
        return tile.name, place

    def block(self, body: tuple[Stmt, ...]) -> None:
        for stmt in body:
            self.statement(stmt)

    def statement(self, stmt: Stmt) -> None:
        match stmt:
            case Programs(body=body, turns=turns, turn=turn):
                for number, program in enumerate(self.programs):
                    self.values |= {f"program {axis}": i for axis, i in enumerate(program)}
                    if number % turns == turn:
                        self.block(body)
                    else:
                        self.pass_over(body)
            case For():
                self.loop(stmt)
            case If(cond=cond, then=then, orelse=orelse):
                self.block(then if self.value(cond) else orelse)
            case MbarrierWait(barrier=name, index=index, parity=parity):
                self.add(Event("wait", (name, self.value(index)), self.value(parity) % 2))
            case MbarrierArrive(barrier=name, index=index):
                self.add(Event("arrive", (name, self.value(index))))
            case MbarrierExpect(barrier=name, index=index, bytes=count):
                self.add(Event("expect", (name, self.value(index)), count))
            case BarrierArrive(barrier=name):
                self.add(Event("arrive", (name, 0)))
            case BarrierSync(barrier=name):
                self.add(Event("come", (name, 0)))
                self.add(Event("stay", (name, 0)))
            case Barrier():
                self.add(Event("meet"))
            case MmaCommit():
                self.groups.append(self.open)
                self.open = frozenset()
            case MmaWait(pending=pending):
                self.add(Event("step"))
                del self.groups[: max(0, len(self.groups) - pending)]
            case Mma(a=a, b=b, instr=instr) if instr in WGMMA:
                cells = frozenset(self.cell(x) for x in (a, b) if x.obj in self.shared)
                self.add(Event("read", cells=cells))
                self.open |= cells
            case Copy():
                self.copy(stmt)
            case _:
                pass

    def loop(self, stmt: For) -> None:
        for i in range(self.value(stmt.start), self.value(stmt.stop), stmt.step):
            self.values[stmt.var] = i
            if stmt.counter is not None:
                done = self.counts.get(stmt.counter.name, 0)
                self.values[stmt.counter.name] = done % stmt.counter.wrap
                self.counts[stmt.counter.name] = done + 1
            self.block(stmt.body)

    def pass_over(self, body: tuple[Stmt, ...]) -> None:
        """The running counts go on through a program that is another role's."""
        for stmt in body:
            if isinstance(stmt, For) and stmt.counter is not None:
                trips = len(range(self.value(stmt.start), self.value(stmt.stop), stmt.step))
                self.counts[stmt.counter.name] = self.counts.get(stmt.counter.name, 0) + trips

    def copy(self, stmt: Copy) -> None:
        if stmt.instr == "tma.store" or (stmt.instr or "").startswith("cp.async"):
            raise Unmodelled(stmt.instr or "")
        if stmt.signal is not None:
            size = prod(stmt.shape) * self.shared[stmt.dst.obj].dtype.bytes
            key = (stmt.signal.barrier, self.value(stmt.signal.index))
            self.add(Event("issue", key, size, frozenset([self.cell(stmt.dst)])))
        elif stmt.src.obj in self.shared:
            self.add(Event("read", cells=frozenset([self.cell(stmt.src)])))
        elif stmt.dst.obj in self.shared:
            self.add(Event("write", cells=frozenset([self.cell(stmt.dst)])))


def agents(kernel: Kernel, sizes: Mapping[str, int], programs: list[tuple[int, ...]]) -> list[Agent]:
    """The agents of one block that is given these programs. Raises `Unmodelled`."""
    roles = kernel_roles(kernel)
    spans = sorted((s.offset or 0, (s.offset or 0) + _bytes(s)) for s in kernel.shared)
    if not roles or any(end > start for (_, end), (start, _) in pairwise(spans)):
        raise Unmodelled("no roles, or tiles that share bytes")
    apart = sum(role.num_warps for role in roles) <= _SEPARATE_WARPS
    result = []
    for role in roles:
        trace = _Trace(kernel, sizes, programs)
        trace.values |= {f"program {axis}": i for axis, i in enumerate(programs[0])}
        trace.block(role.body)
        units = 1 if apart else role.num_warps
        events = tuple(_weighted(e, units) for e in trace.events)
        busy = (*trace.busy, frozenset().union(trace.open, *trace.groups))
        result += [Agent(role.name, events, busy)] * (role.num_warps if apart else 1)
    return result


def _bytes(tile: Shared) -> int:
    assert tile.layout is not None
    return int(tile.layout.cosize()) * tile.dtype.bytes


def _weighted(event: Event, units: int) -> Event:
    return replace(event, amount=units) if event.kind in ("arrive", "come") else event


def _named(kernel: Kernel) -> dict[Key, int]:
    """The warps that each named barrier counts."""
    found: dict[Key, int] = {}
    for stmt in walk(kernel.body):
        if isinstance(stmt, BarrierSync | BarrierArrive):
            warps = stmt.count // kernel.warp_size
            if found.setdefault((stmt.barrier, 0), warps) != warps:
                raise Wrong(f"{stmt.barrier} counts {stmt.count} threads here, and another number elsewhere")
    return found


# ---------------------------------------------------------------------------- all orders

Flying = tuple[tuple[Key, int, frozenset[Cell]], ...]
Phase = tuple[int, int, int]
"""Parity, arrivals missing, bytes outstanding."""


@dataclass(frozen=True, slots=True)
class State:
    at: tuple[int, ...]
    phases: tuple[Phase, ...]
    flying: Flying


class Block:
    """The automaton of one block."""

    def __init__(self, kernel: Kernel, parts: list[Agent]) -> None:
        self.agents = parts
        self.named = _named(kernel)
        self.arrivals = {(b.name, i): b.arrivals for b in kernel.barriers for i in range(b.count)} | self.named
        self.number = {key: n for n, key in enumerate(self.arrivals)}
        self.start = State((0,) * len(parts), tuple((0, n, 0) for n in self.arrivals.values()), ())

    def explore(self, most: int) -> bool:
        """Visit every state; False if there are more than `most`. Raises `Wrong`."""
        seen, todo = {self.start}, [self.start]
        while todo:
            state = todo.pop()
            self.check(state)
            following = list(self.steps(state))
            ended = all(i == len(a.events) for i, a in zip(state.at, self.agents, strict=True))
            if not following and not ended:
                raise Wrong(f"deadlock at {self.shown(state)}")
            for new in following:
                if new not in seen:
                    seen.add(new)
                    todo.append(new)
            if len(seen) > most:
                return False
        return True

    def shown(self, state: State) -> str:
        nexts = [a.events[i] if i < len(a.events) else "end" for i, a in zip(state.at, self.agents, strict=True)]
        return f"{nexts} {dict(zip(self.arrivals, state.phases, strict=True))}"

    def check(self, state: State) -> None:
        """No two agents of different roles are about to touch one buffer, one of them writing."""
        ready = [
            (agent, agent.events[i])
            for agent, i in zip(self.agents, state.at, strict=True)
            if i < len(agent.events) and agent.events[i].kind in ("read", "write")
        ]
        for (a, x), (b, y) in combinations(ready, 2):
            if a.role != b.role and "write" in (x.kind, y.kind) and x.cells & y.cells:
                raise Wrong(f"{a.role} and {b.role} race for {set(x.cells & y.cells)} at {self.shown(state)}")

    def steps(self, state: State) -> Iterator[State]:
        """All states that follow."""
        for n, flight in enumerate(state.flying):
            key, count, _ = flight
            rest = state.flying[:n] + state.flying[n + 1 :]
            if flight not in state.flying[:n]:
                yield self.completed(State(state.at, self.changed(state, key, 0, -count), rest), key)
        for n, (agent, i) in enumerate(zip(self.agents, state.at, strict=True)):
            if i < len(agent.events):
                yield from self.step(state, n, agent.events[i])

    def step(self, state: State, n: int, event: Event) -> Iterator[State]:
        at = (*state.at[:n], state.at[n] + 1, *state.at[n + 1 :])
        match event.kind:
            case "wait":
                if event.key not in self.number:
                    raise Wrong(f"there is no mbarrier {event.key}")
                if state.phases[self.number[event.key]][0] != event.amount:
                    yield State(at, state.phases, state.flying)
            case "arrive" | "come" | "expect":
                units, count = (1, event.amount) if event.kind == "expect" else (event.amount, 0)
                yield self.completed(State(at, self.changed(state, event.key, units, count), state.flying), event.key)
            case "stay":
                return  # until the barrier is full
            case "issue":
                self.free(state, n, event, "fills")
                flying = sorted((*state.flying, (event.key, event.amount, event.cells)), key=repr)
                yield State(at, state.phases, tuple(flying))
            case "read":
                self.landed(state, n, event)
                yield State(at, state.phases, state.flying)
            case "write":
                self.free(state, n, event, "writes")
                yield State(at, state.phases, state.flying)
            case "meet":
                team = [m for m, a in enumerate(self.agents) if a.role == self.agents[n].role]
                here = [m for m in team if state.at[m] == state.at[n]]
                if here == team and n == team[0]:
                    yield State(tuple(i + (m in team) for m, i in enumerate(state.at)), state.phases, state.flying)
            case _:
                yield State(at, state.phases, state.flying)

    def landed(self, state: State, n: int, event: Event) -> None:
        for _, _, cells in state.flying:
            if cells & event.cells:
                raise Wrong(f"{self.agents[n].role} touches {set(cells)} while a copy fills it: {self.shown(state)}")

    def free(self, state: State, n: int, event: Event, verb: str) -> None:
        """No copy fills a buffer, and no product reads it, that is written now."""
        self.landed(state, n, event)
        for m, (agent, i) in enumerate(zip(self.agents, state.at, strict=True)):
            if agent.busy[i] & event.cells:
                raise Wrong(f"{self.agents[n].role} {verb} what a product of {agent.role} ({m}) reads")

    def changed(self, state: State, key: Key, units: int, count: int) -> tuple[Phase, ...]:
        """The phases after arrivals and bytes of one of them."""
        if key not in self.number:
            raise Wrong(f"there is no mbarrier {key}")
        at = self.number[key]
        parity, missing, outstanding = state.phases[at]
        if units > missing:
            raise Wrong(f"{key} gets more arrivals than its phase takes: {self.shown(state)}")
        return (*state.phases[:at], (parity, missing - units, outstanding + count), *state.phases[at + 1 :])

    def completed(self, state: State, key: Key) -> State:
        """The next phase, if nothing is missing of this one."""
        at = self.number[key]
        parity, missing, outstanding = state.phases[at]
        if missing or outstanding:
            return state
        phases = (*state.phases[:at], (1 - parity, self.arrivals[key], 0), *state.phases[at + 1 :])
        going = state.at if key not in self.named else tuple(map(self.let_go, self.agents, state.at, repeat(key)))
        return State(going, phases, state.flying)

    def let_go(self, agent: Agent, at: int, key: Key) -> int:
        """Where an agent is once a named barrier is full."""
        here = agent.events[at] if at < len(agent.events) else None
        return at + 1 if here is not None and (here.kind, here.key) == ("stay", key) else at


def explore(kernel: Kernel, sizes: Mapping[str, int], programs: list[tuple[int, ...]], most: int) -> str | None:
    """What goes wrong in some order; "" if nothing does in any; None if there are more than `most` states."""
    try:
        return "" if Block(kernel, agents(kernel, sizes, programs)).explore(most) else None
    except Wrong as wrong:
        return str(wrong)
