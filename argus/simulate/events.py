"""Explain a violation to a reader: the few steps of a run that matter, and the order that is missing.

An account is cut from the log. It has the two accesses, the steps of their roles and of the copy engine between them on
the mbarriers that the roles use there, and the fences, waits and barriers next to the accesses.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from argus.diagnostic import Event
from argus.ir.nodes import (
    Barrier,
    BarrierArrive,
    BarrierSync,
    BulkCommit,
    BulkWait,
    CommitGroup,
    Copy,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierFence,
    MbarrierInit,
    MbarrierWait,
    MmaCommit,
    MmaWait,
    ProxyFence,
    Stmt,
    WaitCounts,
    WaitGroup,
    WaveBarrier,
)
from argus.ir.visit import walk
from argus.simulate.log import Execution, Log, Ordered
from argus.simulate.machine import Block
from argus.simulate.order import NOBODY, Conflict, Touch
from argus.simulate.outcome import Story
from argus.simulate.phase import Waiting
from argus.simulate.step import Step
from argus.simulate.usage import kernel_roles
from argus.simulate.wording import BLOCK, MOST, event_of, shortened, starts_of, told_event, when

_NOUNS = {
    Touch.READ: "read of",
    Touch.WRITE: "write of",
    Touch.ACCUMULATE: "accumulation into",
    Touch.MULTIPLY: "asynchronous read of",
    Touch.BULK_READ: "bulk store from",
    Touch.BULK_WRITE: "bulk store to",
    Touch.BULK_ACCUMULATE: "bulk reduction into",
}
_VERBS = {
    Touch.READ: ("read", "reads"),
    Touch.WRITE: ("write", "writes"),
    Touch.ACCUMULATE: ("write", "accumulates into"),
    Touch.MULTIPLY: ("issue", "starts a product that reads"),
    Touch.BULK_READ: ("issue", "starts a bulk store from"),
    Touch.BULK_WRITE: ("issue", "starts a bulk store to"),
    Touch.BULK_ACCUMULATE: ("issue", "starts a bulk reduction into"),
}


@dataclass(frozen=True, slots=True)
class Side:
    """An access that is compared with another one: its execution, how it accesses the cell, and the agent that makes it
    if that is not the thread itself: a bulk "copy", a thread's "cp.async", a wave's "load to LDS" or an asynchronous
    "product"."""

    event: int
    touch: Touch
    agent: str = ""
    thread: int = NOBODY

    def who(self, execution: Execution) -> str:
        """Return the role, or the thread if there are no roles."""
        return execution.role if execution.role != BLOCK or self.thread == NOBODY else f"thread {self.thread}"

    @property
    def noun(self) -> str:
        """The access as a noun phrase, such as "read of"."""
        match self.agent:
            case "copy":
                return "bulk copy from" if self.touch.reads else "bulk copy into"
            case "cp.async":
                return "asynchronous copy from" if self.touch.reads else "asynchronous copy into"
            case "load to LDS":
                return "load to LDS from" if self.touch.reads else "load to LDS into"
            case "product":
                return "asynchronous read of" if self.touch.reads else "asynchronous update of"
            case _:
                return _NOUNS[self.touch]

    @property
    def verb(self) -> tuple[str, str]:
        """The kind of the step (see `Event.what`), and the verb that describes it."""
        match self.agent:
            case "copy" | "cp.async" | "load to LDS":
                return "issue", f"starts {'an' if self.noun[0] == 'a' else 'a'} {self.noun}"
            case "product":
                return "issue", f"starts a product that {'reads' if self.touch.reads else 'updates'}"
            case _:
                return _VERBS[self.touch]


@dataclass(frozen=True, slots=True)
class Cell:
    """The cell that both accesses use: its object, and its place in words."""

    name: str
    place: str


# ---------------------------------------------------------------------------- two accesses


def conflict(block: Block, earlier: Side, later: Side, cell: Cell, why: str, lead: str = "nothing orders") -> Story:
    """Return the story of two accesses to a cell that nothing orders, and the reason."""
    log = block.run.log
    one, two = log.events[earlier.event], log.events[later.event]
    apart = cell.name in block.run.tensors and one.block != two.block
    unit = "program" if block.run.kernel.persistent else "block" if apart else ""
    together = (one.block, one.loops) == (two.block, two.loops)
    first, second = earlier.who(one), later.who(two)
    whose = "its" if first == second and not apart else f"{second}'s"
    missing = (
        f"{lead} {first}'s {earlier.noun} {cell.place}{'' if together else when(one, unit)} before"
        f" {whose} {later.noun} it{when(two, unit)}: {why}"
    )
    steps = [] if apart else _between(log, earlier, later, cell.name)
    before = [event_of(log, i) for i in steps if i < one.steps]
    after = [event_of(log, i) for i in steps if i >= one.steps]
    return shortened([*before, _access(log, earlier, cell.place), *after, _access(log, later, cell.place)]), missing


def reason(block: Block, found: Conflict, later: Execution, across: bool) -> str:
    """Explain why nothing orders an access of `later` after the access found.

    `across`: the access found belongs to another block or program.
    """
    log = block.run.log
    one = log.events[found.event]
    if across:
        return "programs may run on several blocks" if block.run.kernel.persistent else "blocks run in any order"
    if found.bulk:
        counted = next(s for s in log.steps[one.steps :] if s.event == found.event)
        return unawaited(later.role, counted.barrier, counted.phase)
    if found.unfinished:
        what = "product" if found.earlier is Touch.MULTIPLY else "store"
        return f"no wait covers the {what}'s group"
    if one is later:
        return "they are of one execution of one statement, in which no barrier can stand"
    if one.role == later.role:
        bare = any(isinstance(s, WaveBarrier) for s in walk(block.run.kernel.body))
        waited = " that follows a wait for lgkmcnt 0" if bare else ""
        return f"no barrier of {one.role}{waited} stands between the two"
    over = {Touch.MULTIPLY: "its wait for the product", Touch.BULK_READ: "its wait for the store"}
    return f"{later.role} waits for no arrival that {one.role} makes after {over.get(found.earlier, 'it')}"


def unawaited(role: str, label: str, phase: int) -> str:
    """Say that a role does not wait for a bulk copy."""
    return f"{role} does not wait for phase {phase} of {label}, in which the copy's bytes are counted"


def cell_of(name: str, shape: tuple[int, ...], logical: tuple[int, ...], shared: bool) -> Cell:
    """Return a cell as text, including its ring buffer if it is in one."""
    return Cell(name, f"stage {logical[0]} of {name}" if shared and len(shape) > 2 and logical else name)


def _between(log: Log, earlier: Side, later: Side, name: str) -> list[int]:
    """Return the steps that show which orders exist between the two accesses, and which are missing."""
    one, two = log.events[earlier.event], log.events[later.event]
    if one.role == two.role and "copy" not in (earlier.agent, later.agent):
        inside = [(i, log.events[s.event]) for i, s in enumerate(log.steps) if i >= one.steps]
        return [i for i, e in inside if e.role == one.role and isinstance(e.stmt, _orders(earlier) + _orders(later))]
    here = [i for i, s in enumerate(log.steps) if not s.engine and log.events[s.event].place == two.place]
    there = [i for i, s in enumerate(log.steps) if not s.engine and log.events[s.event].place == one.place]
    later_there = [i for i in there if i >= one.steps]
    handed = [i for i in later_there if log.steps[i].what == "arrive" or log.steps[i].event == earlier.event]
    labels = {log.steps[i].barrier for i in (*here, *handed)} - {""}
    begin = [i for i in there if i < one.steps and log.steps[i].what == "wait" and log.steps[i].barrier in labels][-1:]
    released = next((i for i in later_there if log.steps[i].what == "arrive"), one.steps)
    acquired = max((i for i in here if log.steps[i].what == "wait" and log.steps[i].barrier), default=two.steps)

    def tells(i: int, step: Ordered) -> bool:
        execution = log.events[step.event]
        if step.event in (earlier.event, later.event):
            return step.engine
        if step.barrier:
            concerned = step.engine or execution.role in (one.role, two.role)
            return step.barrier in labels and concerned and (_moved(execution.stmt) in ("", name))
        near_first = execution.role == one.role and one.steps <= i <= released
        near_second = execution.place == two.place and i >= max(acquired, one.steps)
        first = near_first and isinstance(execution.stmt, _orders(earlier))
        return first or (near_second and isinstance(execution.stmt, _orders(later)))

    return [*begin, *(i for i in range(one.steps, len(log.steps)) if tells(i, log.steps[i]))]


def _orders(side: Side) -> tuple[type, ...]:
    """Return the statements next to an access that order it with others."""
    if side.touch.of_store:
        return Barrier, ProxyFence, BulkCommit, BulkWait
    match side.agent:
        case "product":
            return Barrier, ProxyFence, MmaCommit, MmaWait
        case "cp.async":
            return Barrier, CommitGroup, WaitGroup
        case "load to LDS":
            return Barrier, WaveBarrier, WaitCounts
        case _:
            return Barrier, ProxyFence, WaveBarrier, WaitCounts


def _moved(stmt: Stmt) -> str:
    """Return the shared tile that a bulk copy fills."""
    return stmt.dst.obj if isinstance(stmt, Copy) else ""


def _access(log: Log, side: Side, where: str) -> Event:
    execution = log.events[side.event]
    execution = replace(execution, role=side.who(execution))
    what, verb = side.verb
    step = next((s for s in log.steps[execution.steps :] if s.event == side.event and s.barrier), None)
    counted = f", counted in phase {step.phase} of {step.barrier}" if side.agent == "copy" and step is not None else ""
    barrier, phase = (step.barrier, step.phase) if counted and step is not None else ("", 0)
    return told_event(execution, what, f"{verb} {where}{counted}", barrier, phase)


# ---------------------------------------------------------------------------- mbarriers


def phases(block: Block, step: Step, label: str, missing: str) -> Story:
    """Return an account of one mbarrier until `step` broke its rules."""
    log = block.run.log
    found = [event_of(log, i) for i in range(block.begun, len(log.steps)) if log.steps[i].barrier == label]
    if not log.steps or log.steps[-1].event != step.event:
        match step.stmt:
            case MbarrierArrive() | BarrierSync() | BarrierArrive():
                what, message = "arrive", f"arrives on {label}"
            case MbarrierExpect(bytes=nbytes):
                what, message = "expect", f"arrives on {label} and expects {nbytes} bytes"
            case _:
                what, message = "complete", f"{starts_of(step.stmt)}, counted on {label}"
        found.append(told_event(log.events[step.event], what, message, label))
    return shortened(found[-MOST:]), missing


def initialisation(block: Block, step: Step, name: str, missing: str) -> Story:
    """Return an account of how the mbarriers `name` were initialised before `step` used one of them."""
    log = block.run.log

    def tells(stmt: Stmt) -> bool:
        return isinstance(stmt, MbarrierFence | Barrier) or (isinstance(stmt, MbarrierInit) and stmt.barrier == name)

    steps = range(block.begun, len(log.steps))
    found = [event_of(log, i) for i in steps if tells(log.events[log.steps[i].event].stmt)]
    what = "wait" if isinstance(step.stmt, MbarrierWait) else "issue" if isinstance(step.stmt, Copy) else "arrive"
    used = told_event(log.events[step.event], what, f"uses {name}")
    return shortened([*found, used]), missing


def deadlock(block: Block, stuck: list[Waiting], ended: list[str]) -> Story:
    """Explain a deadlock: who waits for what, what happened before on these mbarriers, and who would have to continue.
    """
    log = block.run.log
    labels = {w.barrier.label for w in stuck}
    ours = [(i, s) for i, s in enumerate(log.steps) if i >= block.begun]
    last = {log.events[s.event].role: i for i, s in ours if s.what == "wait" and s.barrier}
    kept = [i for i, s in ours if s.barrier in labels]
    room = MOST - len(stuck) - len(ended) - len(last)
    chosen = sorted({*kept[-max(room, 0) :], *last.values()})
    events = [event_of(log, i) for i in chosen]
    waits = {w.step.frame.team.name: f"waits for phase {w.phases} of {w.barrier.label}" for w in stuck}
    for w in stuck:
        role = w.step.frame.team.name
        text = f"{waits[role]}, which lacks {_lacks(w)}"
        events.append(told_event(log.events[w.step.event], "blocked", text, w.barrier.label, w.phases))
    events += [Event(role, "ended", "has ended") for role in ended]
    reasons = {f"phase {w.phases} of {w.barrier.label} lacks {_lacks(w)}, {_who(block, w, waits)}": None for w in stuck}
    return tuple(events), "; ".join(reasons)


def _lacks(waiting: Waiting) -> str:
    """Return the arrivals and bytes that the current phase still lacks, as text."""
    barrier = waiting.barrier
    parts = [f"{barrier.missing} of {barrier.arrivals} arrivals"] if barrier.missing else []
    if barrier.bytes:
        parts.append(f"{barrier.bytes} bytes" if barrier.bytes > 0 else f"the expectation of {-barrier.bytes} bytes")
    return " and ".join(parts) or "a phase before it"


def _who(block: Block, waiting: Waiting, waits: dict[str, str]) -> str:
    """Return which roles could end the current phase, and what keeps them from doing so, as text."""
    name = waiting.barrier.name
    makers = [
        role.name
        for role in kernel_roles(block.run.kernel)
        if any(_serves(s, name, waiting.barrier.missing > 0) for s in walk(role.body))
    ]
    told = [f"{role}, which {waits.get(role, 'has ended')}" for role in makers]
    return f"to come from {' and '.join(told)}" if told else "which no role brings"


def _serves(stmt: Stmt, name: str, arrivals: bool) -> bool:
    match stmt:
        case MbarrierArrive(barrier=barrier) | MbarrierExpect(barrier=barrier):
            return arrivals and barrier == name
        case BarrierSync() | BarrierArrive():
            return arrivals and stmt.barrier == name
        case Copy(signal=signal) if signal is not None:
            return not arrivals and signal.barrier == name
        case _:
            return False
