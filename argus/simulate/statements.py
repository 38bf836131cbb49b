"""Execute statements, all threads of a group at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Union

import numpy as np
from typing_extensions import assert_never

from argus.ir.instruction import BULK_STORES, REDUCES, WGMMA
from argus.ir.nodes import (
    Accumulate,
    AssertTags,
    Barrier,
    BarrierArrive,
    BarrierSync,
    BeginTurns,
    BulkCommit,
    BulkWait,
    CommitGroup,
    Copy,
    Counter,
    EndTurns,
    For,
    Hint,
    If,
    Map,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierFence,
    MbarrierInit,
    MbarrierWait,
    Mma,
    MmaCommit,
    MmaFence,
    MmaWait,
    Programs,
    ProxyFence,
    Roles,
    Scan,
    Share,
    Spec,
    Stage,
    Stmt,
    Tag,
    WaitCounts,
    WaitGroup,
    Watch,
    WaveBarrier,
)
from argus.simulate import assertions, asynchronous, bulk, checked, mbarrier, product, stores, watch
from argus.simulate.computing import accumulate, copy, map_
from argus.simulate.machine import Block
from argus.simulate.matrix import multiply
from argus.simulate.numeric import Array
from argus.simulate.outcome import NotReplayable
from argus.simulate.phase import Waiting
from argus.simulate.step import Frame, Step

_LARGEST_INT = 2**31 - 1


Pause = Union[tuple[Barrier | WaveBarrier | BeginTurns | EndTurns, Frame], Waiting]
"""A place where threads wait for others: at a barrier, or for an mbarrier."""


_STATEMENT_STEPS = 1000
_ELEMENTS_PER_STEP, _PRODUCTS_PER_STEP = 4, 512
_TAGGED_PRODUCTS_PER_STEP = 32
"""Measured on gemm, attention, convolution and top-k: one statement takes about 0.5 ms, 0.1 us more for each element,
and 0.5 us if tags are carried. A product of matrices takes 0.001 us for each multiplication, 0.014 us with tags."""


def _spend(block: Block, stmt: Stmt) -> None:
    """Take the steps of one execution of `stmt` from the run's work. Raises `NotReplayable` when none is left."""
    work = block.run.work
    if work is None:
        return
    tagged = block.run.schemas is not None
    steps = prod(extent for extent in getattr(stmt, "shape", ()) if isinstance(extent, int))
    match stmt:
        case Mma():
            steps //= _TAGGED_PRODUCTS_PER_STEP if tagged else _PRODUCTS_PER_STEP
        case AssertTags():
            steps = steps // _TAGGED_PRODUCTS_PER_STEP if tagged else 0
        case _:
            steps = steps if tagged else steps // _ELEMENTS_PER_STEP
    work.spend(_STATEMENT_STEPS + steps)
    if work.over:
        raise NotReplayable("the limit of work was reached")


def execute(block: Block, body: tuple[Stmt, ...], frame: Frame) -> Iterator[Pause]:
    """Run `body` for the threads of `frame`. Yields at the places where they wait."""
    for stmt in body:
        if not frame.active.any():
            return
        _spend(block, stmt)
        match stmt:
            case Barrier() | WaveBarrier():
                yield stmt, frame
            case MbarrierWait():
                waiting = mbarrier.begin_wait(block, stmt, frame)
                yield waiting
                mbarrier.passed(block, waiting)
            case BarrierSync():
                waiting = mbarrier.meet(block, stmt, frame)
                yield waiting
                mbarrier.passed(block, waiting)
            case For():
                yield from _loop(block, stmt, frame)
            case If(cond=cond, then=then, orelse=orelse):
                step = block.step(stmt, frame, None)
                taken = checked.value(block, cond, step, step.on)
                yield from execute(block, then, replace(frame, active=frame.active & taken))
                yield from execute(block, orelse, replace(frame, active=frame.active & ~taken))
            case Programs(body=inner, turns=turns, turn=turn):
                for number, program in enumerate(block.programs):
                    if number % turns == turn:
                        yield from execute(block, inner, replace(frame, program=program))
                    else:
                        _count_on(block, inner, replace(frame, program=program))
            case Roles():
                raise ValueError("roles stand at the top level of a kernel")
            case Stage() | Share() | Scan():
                raise ValueError("a policy statement is left: lower the kernel first")
            case Copy() | Map() | Accumulate() | Mma():
                _move(block, stmt, frame)
            case Watch():
                watch.watch(block, stmt, frame)
            case Tag():
                assertions.tag(block, stmt, frame)
            case AssertTags():
                assertions.check(block, stmt, frame)
            case Hint() | Spec():
                pass
            case BeginTurns() | EndTurns():
                raise ValueError("turns begin and end at the top level of a kernel")
            case _:
                _order(block, stmt, frame)


def _move(block: Block, stmt: Copy | Map | Accumulate | Mma, frame: Frame) -> None:
    """Run a statement that moves or computes data, or start it if it is asynchronous."""
    match stmt:
        case Copy(signal=signal) if signal is not None:
            bulk.issue(block, stmt, signal, frame)
        case Copy(instr=instr) if instr in BULK_STORES:
            stores.issue(block, stmt, frame)
        case Accumulate(instr=instr) if instr in REDUCES:
            stores.issue(block, stmt, frame)
        case Copy():
            copy(block, stmt, block.step(stmt, frame, stmt.layout))
        case Map():
            map_(block, stmt, block.step(stmt, frame, stmt.layout))
        case Accumulate():
            accumulate(block, stmt, block.step(stmt, frame, stmt.layout))
        case Mma(instr=instr) if instr in WGMMA:
            product.issue(block, stmt, WGMMA[instr], frame)
        case Mma():
            multiply(block, stmt, block.step(stmt, frame, None))


_Ordering = Union[
    CommitGroup, WaitGroup, WaitCounts, MmaFence, MmaCommit, MmaWait, BulkCommit, BulkWait, ProxyFence, MbarrierInit,
    MbarrierFence, MbarrierExpect, MbarrierArrive, BarrierArrive,
]  # fmt: skip


def _order(block: Block, stmt: _Ordering, frame: Frame) -> None:
    """Run an ordering statement at which threads do not wait for one another."""
    match stmt:
        case CommitGroup():
            block.passes(stmt, frame, "commit")
            block.groups[frame.threads] += 1
        case WaitGroup(pending=pending):
            block.passes(stmt, frame, "wait")
            asynchronous.wait(block, pending, block.step(stmt, frame, None))
        case WaitCounts():
            block.together(block.step(stmt, frame, None), "a wait of a wave")
            block.passes(stmt, frame, "wait")
            _wait_counts(block, stmt, frame)
        case MmaFence():
            block.passes(stmt, frame, "fence")
            product.fence(block, frame)
        case MmaCommit():
            block.passes(stmt, frame, "commit")
            product.commit(block, stmt, frame)
        case MmaWait():
            block.passes(stmt, frame, "wait")
            product.wait(block, stmt, frame)
        case BulkCommit():
            block.passes(stmt, frame, "commit")
            stores.commit(frame, block)
        case BulkWait():
            block.passes(stmt, frame, "wait")
            stores.wait(block, stmt, frame)
        case ProxyFence():
            block.passes(stmt, frame, "fence")
            _proxy_fence(block, frame)
        case MbarrierInit():
            block.passes(stmt, frame, "initialise")
            mbarrier.initialise(block, stmt, frame)
        case MbarrierFence():
            block.passes(stmt, frame, "fence")
            mbarrier.fence(block, frame)
        case MbarrierExpect():
            mbarrier.expect(block, stmt, block.step(stmt, frame, None))
        case MbarrierArrive():
            mbarrier.arrive(block, stmt, block.step(stmt, frame, None))
        case BarrierArrive():
            mbarrier.meet(block, stmt, frame)
        case _:
            assert_never(stmt)


def _wait_counts(block: Block, stmt: WaitCounts, frame: Frame) -> None:
    """Complete all loads to LDS except the last `vm` of each wave. With `lgkm` 0, a later barrier orders earlier
    accesses."""
    if stmt.vm is not None:
        asynchronous.wait(block, stmt.vm, block.step(stmt, frame, None))
    if stmt.lgkm == 0 and frame.whole:
        frame.team.drained = frame.team.segment
        block.tick(frame.team)


def _proxy_fence(block: Block, frame: Frame) -> None:
    """Order the accesses of the executing threads, and those that they are ordered after, before later asynchronous
    accesses."""
    team, active = frame.team, frame.active
    if active.all():
        team.fence()
    else:
        known = int(team.clock.fenced[team.number])
        for order in {id(m.order): m.order for m in block.memories.values() if m.order is not None}.values():
            order.fence(team.number, active, team.first, known, team.segment)
        team.partly_fence(bool(active[0]))
    block.tick(team)


def _count_on(block: Block, body: tuple[Stmt, ...], frame: Frame) -> None:
    """Advance the running counts as if the loops of `body` had run."""
    for stmt in body:
        if isinstance(stmt, For) and stmt.counter is not None:
            step = block.step(stmt, frame, None)
            bounds = (checked.value(block, e, step, step.on) for e in (stmt.start, stmt.stop))
            start, stop = (int(bound[np.argmax(step.on)]) for bound in bounds)
            counts = _counts(stmt.counter, frame)
            counts[frame.active] = (counts[frame.active] + len(range(start, stop, stmt.step))) % stmt.counter.wrap


def _counts(counter: Counter, frame: Frame) -> Array:
    """Return the running count `counter`: the number of iterations that each thread of the team began."""
    return frame.team.counts.setdefault(counter.name, np.zeros(frame.team.threads, dtype=np.int64))


def _loop(block: Block, stmt: For, frame: Frame) -> Iterator[Pause]:
    step = block.step(stmt, frame, None)
    bounds = []
    for expr in (stmt.start, stmt.stop):
        values = checked.value(block, expr, step, step.on)[step.on]
        if values.min() != values.max():
            other = int(frame.threads[np.argmax(values != values[0])])
            block.report(
                step,
                "convergence",
                "divergent-loop",
                "the bounds of a loop differ between threads of the block",
                other,
                arrived=f"{int(values.min())} and {int(values.max())}",
                expected="one value for all threads",
            )
        bounds.append(int(values[0]))
    if bounds[1] - 1 + stmt.step > _LARGEST_INT:
        text = f"the counter `{stmt.var}` leaves the range of int32 after the last iteration"
        block.report(step, "bounds", "int32-overflow", text, None, arrived=str(bounds[1] - 1 + stmt.step))
    trips = range(bounds[0], bounds[1], stmt.step)
    if len(trips) > block.run.iterations:
        raise NotReplayable(f"the loop over `{stmt.var}` takes {len(trips)} iterations")
    for i in trips:
        loops = {**frame.loops, stmt.var: i, **_count(block, stmt, step)}
        yield from execute(block, stmt.body, replace(frame, loops=loops))


def _count(block: Block, stmt: For, step: Step) -> dict[str, int]:
    """Return the running count of the iteration that begins now, if the loop has one."""
    if stmt.counter is None:
        return {}
    frame, name = step.frame, stmt.counter.name
    counts = _counts(stmt.counter, frame)
    begun = counts[frame.active]
    if begun.min() != begun.max():
        text = f"threads that run this loop together began it at different counts `{name}`"
        other = int(frame.threads[np.argmax(begun != begun[0])])
        arrived, expected = f"{int(begun.min())} and {int(begun.max())}", "one value for all threads"
        block.report(step, "convergence", "divergent-loop", text, other, arrived=arrived, expected=expected)
    counts[frame.active] = (begun + 1) % stmt.counter.wrap
    return {name: int(begun[0])}
