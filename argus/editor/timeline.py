"""The pipeline of an explicit kernel as a timeline: its first trips, role by role, and what each wait covers.

explicit kernel -> Timeline with one lane for each role, each a sequence of events

Loops run `TRIPS` times. Sizes stay open: a branch whose condition depends on them is marked as conditional.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from argus.ir.expr import Const, Expr, LoopVar, Op
from argus.ir.instruction import INSTRUCTIONS, Order
from argus.ir.nodes import (
    Barrier,
    BarrierArrive,
    BarrierSync,
    BeginTurns,
    BulkCommit,
    BulkWait,
    CommitGroup,
    Copy,
    EndTurns,
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
    Roles,
    Stmt,
    WaitCounts,
    WaitGroup,
    WaveBarrier,
)
from argus.ir.text import print_stmt

TRIPS = 5
"""Number of trips of each loop that are shown."""

MAX_EVENTS = 240
"""Largest number of events of one lane."""


@dataclass(frozen=True, slots=True)
class Event:
    """One step of a lane. `kind` is "copy", "product", "commit", "signal", "wait" or "barrier".

    `covers` are the numbers of the events whose completion a wait waits for. `column` orders events of all lanes: what
    is covered stands left of its wait.
    """

    number: int
    lane: str
    kind: str
    label: str
    text: str
    trip: str
    line: int
    conditional: bool = False
    covers: tuple[int, ...] = ()
    column: int = 0


@dataclass(frozen=True, slots=True)
class Timeline:
    """The events of all lanes, in the order of their numbers. `cut` is true if a lane has more events than are shown.
    """

    lanes: tuple[str, ...]
    events: tuple[Event, ...]
    cut: bool


@dataclass
class _Lane:
    """The work that a lane has in flight: copies, products and stores, in open groups or in groups not yet waited
    for."""

    name: str
    opened: dict[str, list[int]] = field(default_factory=dict)
    groups: dict[str, list[tuple[int, ...]]] = field(default_factory=dict)
    loads: list[int] = field(default_factory=list)
    count: int = 0


_GROUPS = {CommitGroup: "copies", MmaCommit: "products", BulkCommit: "stores"}
_WAITS = {WaitGroup: "copies", MmaWait: "products", BulkWait: "stores"}
Slot = tuple[str, int | None]


class _Walk:
    """Runs the first trips of a kernel, and records the statements that take part in its order."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.events: list[Event] = []
        self.lanes: list[_Lane] = []
        self.rounds: dict[Slot, list[list[int]]] = {}
        self.waits: list[tuple[int, Slot, int | None]] = []
        self.cut = False

    def block(self, body: tuple[Stmt, ...], lane: _Lane, env: dict[str, int], trip: str, conditional: bool) -> None:
        for stmt in body:
            match stmt:
                case Roles(roles=roles):
                    for role in roles:
                        own = _Lane(role.name)
                        self.lanes.append(own)
                        self.block(role.body, own, dict(env), trip, conditional)
                case Programs(body=inner):
                    self.block(inner, lane, env, trip, conditional)
                case If(cond=cond, then=then, orelse=orelse):
                    known = value_of(cond, env)
                    if known is None or known:
                        self.block(then, lane, env, trip, conditional or known is None)
                    if not known:
                        self.block(orelse, lane, env, trip, conditional or known is None)
                case For():
                    self.loop(stmt, lane, env, trip, conditional)
                case _:
                    self.step(stmt, lane, env, trip, conditional)

    def loop(self, stmt: For, lane: _Lane, env: dict[str, int], trip: str, conditional: bool) -> None:
        start, stop = value_of(stmt.start, env), value_of(stmt.stop, env)
        for number in range(TRIPS):
            inner = dict(env)
            if start is not None:
                inner[stmt.var] = start + number * stmt.step
                if stop is not None and inner[stmt.var] >= stop:
                    return
            if stmt.counter is not None:
                inner[stmt.counter.name] = number % stmt.counter.wrap
            at = f"{stmt.var} #{number}"
            self.block(stmt.body, lane, inner, f"{trip}, {at}" if trip else at, conditional)

    def step(self, stmt: Stmt, lane: _Lane, env: dict[str, int], trip: str, conditional: bool) -> None:
        if lane.count >= MAX_EVENTS:
            self.cut = True
            return
        kind, label, covers = self.meaning(stmt, lane, env, conditional)
        if not kind:
            return
        lane.count += 1
        text = print_stmt(stmt, self.kernel)
        line = stmt.span.line if stmt.span.known else 0
        self.events.append(Event(len(self.events), lane.name, kind, label, text, trip, line, conditional, covers))

    def meaning(
        self, stmt: Stmt, lane: _Lane, env: dict[str, int], conditional: bool
    ) -> tuple[str, str, tuple[int, ...]]:
        """Return the kind and label of a statement, and the events that it covers. Statements without a part in the
        order have no kind.

        A step that depends on sizes may not happen, so the events that it would complete stay in flight for later
        steps.
        """
        number = len(self.events)
        match stmt:
            case Copy(dst=dst, src=src, instr=instr, signal=signal):
                order = INSTRUCTIONS[instr].order if instr is not None else Order.SYNC
                if order is Order.SYNC:
                    return "", "", ()
                if signal is not None:
                    self.rounds.setdefault(self.slot(signal.barrier, signal.index, env), [[]])[-1].append(number)
                else:
                    kind = "copies" if order is Order.ASYNC_GROUP else "stores"
                    lane.opened.setdefault(kind, []).append(number)
                    lane.loads.append(number)
                return "copy", f"{src.obj} → {dst.obj}", ()
            case Mma(d=d, a=a, b=b):
                lane.opened.setdefault("products", []).append(number)
                return "product", f"{d.obj} += {a.obj}·{b.obj}", ()
            case CommitGroup() | MmaCommit() | BulkCommit():
                kind = _GROUPS[type(stmt)]
                groups = lane.groups.setdefault(kind, [])
                groups.append(tuple(lane.opened.pop(kind, [])))
                return "commit", f"close group of {kind}", ()
            case WaitGroup(pending=pending) | MmaWait(pending=pending) | BulkWait(pending=pending):
                kind = _WAITS[type(stmt)]
                groups = lane.groups.setdefault(kind, [])
                done = groups[: len(groups) - pending] if pending else groups[:]
                del groups[: 0 if conditional else len(done)]
                return "wait", f"wait: ≤ {pending} {kind}", tuple(n for group in done for n in group)
            case WaitCounts(vm=pending) if pending is not None:
                ended = tuple(lane.loads[: max(len(lane.loads) - pending, 0)])
                del lane.loads[: 0 if conditional else len(ended)]
                return "wait", f"wait: ≤ {pending} loads", ended
            case MbarrierExpect(barrier=barrier, index=index):
                self.rounds.setdefault(self.slot(barrier, index, env), []).append([number])
                return "signal", f"expect {self.named(barrier, index, env)}", ()
            case MbarrierArrive(barrier=barrier, index=index):
                if not conditional:
                    self.rounds.setdefault(self.slot(barrier, index, env), []).append([number])
                return "signal", f"arrive {self.named(barrier, index, env)}", ()
            case MbarrierWait(barrier=barrier, index=index, parity=parity):
                self.waits.append((number, self.slot(barrier, index, env), value_of(parity, env)))
                return "wait", f"wait {self.named(barrier, index, env)}", ()
            case Barrier() | BarrierSync() | BarrierArrive() | WaveBarrier() | BeginTurns() | EndTurns():
                return "barrier", "barrier" if isinstance(stmt, Barrier) else "named barrier", ()
            case _:
                return "", "", ()

    def slot(self, barrier: str, index: Expr, env: dict[str, int]) -> Slot:
        return barrier, value_of(index, env)

    def named(self, barrier: str, index: Expr, env: dict[str, int]) -> str:
        found = value_of(index, env)
        return f"{barrier}[{'?' if found is None else found}]"


def timeline(kernel: Kernel) -> Timeline:
    """Return the first trips of an explicit kernel, with what each wait covers."""
    walk = _Walk(kernel)
    walk.lanes.append(_Lane("block"))
    walk.block(kernel.body, walk.lanes[0], {}, "", False)
    covers = dict(_phases(walk))
    events = [replace(e, covers=covers.get(e.number, e.covers)) for e in walk.events]
    lanes = tuple(lane.name for lane in walk.lanes if lane.count)
    return Timeline(lanes, _placed(events), walk.cut)


def _phases(walk: _Walk) -> list[tuple[int, tuple[int, ...]]]:
    """Return what the waits on mbarriers cover: the n-th wait on one waits for its n-th phase.

    A first wait for parity 1 returns at once, for the phase before the first, and shifts those after it by one.
    """
    found: list[tuple[int, tuple[int, ...]]] = []
    seen: dict[tuple[str, Slot], tuple[int, int]] = {}
    for number, slot, parity in walk.waits:
        lane = walk.events[number].lane
        count, shift = seen.get((lane, slot), (0, -1 if parity == 1 else 0))
        seen[lane, slot] = (count + 1, shift)
        rounds = walk.rounds.get(slot, [])
        at = count + shift
        found.append((number, tuple(rounds[at]) if 0 <= at < len(rounds) else ()))
    return found


def _placed(events: list[Event]) -> tuple[Event, ...]:
    """Give every event a column to the right of the preceding event in its lane, and of the events that it covers."""
    columns: dict[int, int] = {}
    for _ in range(len(events) + 1):
        last: dict[str, int] = {}
        changed = False
        for event in events:
            column = max([last.get(event.lane, -1), *(columns.get(n, -1) for n in event.covers)]) + 1
            changed |= columns.get(event.number) != column
            columns[event.number] = last[event.lane] = column
        if not changed or max(columns.values(), default=0) > 2 * len(events):
            break
    return tuple(replace(e, column=columns[e.number]) for e in events)


_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
}


def value_of(expr: Expr, env: dict[str, int]) -> int | None:
    """Return an integer expression's value for the given values of loop variables, or None if sizes decide it."""
    match expr:
        case Const(value=value):
            return int(value) if isinstance(value, (int, bool)) else None
        case LoopVar(name=name):
            return env.get(name)
        case Op(op=name, args=(left, right)) if name in _ARITHMETIC:
            a, b = value_of(left, env), value_of(right, env)
            if a is None or b is None or (name in ("floordiv", "mod") and b == 0):
                return None
            return _ARITHMETIC[name](a, b)
        case _:
            return None
