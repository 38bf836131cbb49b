"""Words for the steps of a violation: events and their messages."""

from __future__ import annotations

from collections.abc import Iterable

from argus.diagnostic import Event
from argus.ir.nodes import (
    BulkCommit,
    BulkWait,
    CommitGroup,
    Copy,
    MbarrierExpect,
    MbarrierFence,
    MbarrierInit,
    Mma,
    MmaFence,
    MmaWait,
    Stmt,
    WaitCounts,
    WaitGroup,
    WaveBarrier,
)
from argus.simulate.log import Execution, Log, Ordered

ENGINE, BLOCK = "copy engine", "the block"
MOST = 12
"""Largest number of steps in an account."""


def event_of(log: Log, number: int) -> Event:
    step = log.steps[number]
    execution = log.events[step.event]
    told = told_event(execution, step.what, _message(step, execution.stmt), step.barrier, step.phase)
    return told if not step.engine else Event(
        ENGINE, told.what, told.message, told.block, told.iteration, told.barrier, told.phase, told.span
    )  # fmt: skip


def told_event(execution: Execution, what: str, message: str, barrier: str = "", phase: int = 0) -> Event:
    place = execution.block, dict(execution.loops)
    return Event(execution.role, what, message, *place, barrier, phase, execution.stmt.span)


def _message(step: Ordered, stmt: Stmt) -> str:
    match step.what, stmt:
        case "expect", MbarrierExpect(bytes=nbytes):
            return f"arrives on {step.barrier} and expects {nbytes} bytes in phase {step.phase}"
        case "arrive", _:
            return f"arrives on {step.barrier}, in phase {step.phase}"
        case "wait", MmaWait(pending=pending):
            return f"waits for its products{_but(pending)}"
        case "wait", BulkWait(pending=pending, read=read):
            return f"waits until {'the reads of ' if read else ''}its bulk stores{_but(pending)} are over"
        case "wait", WaitGroup(pending=pending):
            return f"waits for its groups of copies{_but(pending)}"
        case "wait", WaitCounts(vm=vm, lgkm=lgkm):
            loads = [] if vm is None else [f"its loads to LDS{f' but the last {vm}' if vm else ''}"]
            return f"waits for {' and '.join([*loads, *(['its accesses to LDS'] if lgkm == 0 else [])]) or 'nothing'}"
        case "wait", _ if step.phase == 0:
            return f"passes its wait on {step.barrier}, which is for no phase yet"
        case "wait", _:
            return f"has waited for phase {step.phase} of {step.barrier}"
        case "initialise", MbarrierInit(barrier=name):
            return f"initialises {name}"
        case "fence", MbarrierFence():
            return "makes a fence of what it has initialised"
        case "fence", MmaFence():
            return "fences its registers"
        case "fence", _:
            return "makes a proxy fence" + (f", in {step.threads} of its threads" if step.threads else "")
        case "barrier", WaveBarrier():
            return "meets at a bare barrier"
        case "commit", CommitGroup():
            return "closes a group of copies"
        case "commit", BulkCommit():
            return "closes a group of bulk stores"
        case "commit", _:
            return "closes a group of products"
        case "barrier", _:
            return "meets at a barrier"
        case "complete", Copy(dst=dst):
            return f"has filled {dst.obj}, counted in phase {step.phase} of {step.barrier}"
        case _:
            return starts_of(stmt) + (f", counted in phase {step.phase} of {step.barrier}" if step.barrier else "")


def _but(pending: int) -> str:
    return "" if pending == 0 else f" but the last {pending} group{'s' if pending > 1 else ''}"


def starts_of(stmt: Stmt) -> str:
    match stmt:
        case Copy(dst=dst, src=src):
            return f"starts a bulk copy of {src.obj} to {dst.obj}"
        case Mma(a=a, b=b):
            return f"starts a product of {a.obj} and {b.obj}"
        case _:
            return "starts"


def when(execution: Execution, unit: str) -> str:
    parts = [f"{unit} {list(execution.block)}"] if unit else []
    parts += [f"{name} = {value}" for name, value in execution.loops.items()]
    return f" ({', '.join(parts)})" if parts else ""


def shortened(events: Iterable[Event]) -> tuple[Event, ...]:
    """Return at most `MOST` events. If there are more, one event stands for those in the middle."""
    told = tuple(events)
    if len(told) <= MOST:
        return told
    head, tail = MOST // 2 - 1, MOST // 2
    left = len(told) - head - tail
    return (*told[:head], Event("", "skipped", f"{left} further steps"), *told[-tail:])
