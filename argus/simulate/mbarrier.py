"""The effect of statements on mbarriers and named barriers, and the knowledge that a wait gains (PTX ISA, mbarrier;
bar).

The result does not depend on which of several possible orders of events a run takes. An arrival counts in a phase that
its team must know to be the current one. A wait returns as early as its team's knowledge allows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from argus.ir.expr import Expr
from argus.ir.nodes import BarrierArrive, BarrierSync, MbarrierArrive, MbarrierExpect, MbarrierInit, MbarrierWait
from argus.simulate import checked, events
from argus.simulate.clock import Clock, Team
from argus.simulate.log import Ordered
from argus.simulate.machine import Block
from argus.simulate.outcome import Stopped, Story
from argus.simulate.phase import Mbarrier, Waiting
from argus.simulate.step import Frame, Step
from argus.simulate.usage import named_barriers


def barriers(block: Block) -> dict[str, list[Mbarrier]]:
    """Return the block's mbarriers in their state after initialisation, and its named barriers."""
    result: dict[str, list[Mbarrier]] = {}
    component, components = block.teams, len(block.team.clock.known)
    for obj in block.run.kernel.barriers:
        result[obj.name] = []
        for i in range(obj.count):
            address = (obj.offset or 0) + 8 * i
            clock = Clock.start(components)
            result[obj.name].append(Mbarrier(obj.name, i, obj.arrivals, component, address, obj.arrivals, clock))
            component += 1
    for name, count in named_barriers(block.run.kernel).items():
        arrivals = count // block.run.kernel.warp_size
        result[name] = [Mbarrier(name, None, arrivals, component, 0, arrivals, Clock.start(components))]
        component += 1
    return result


def at(block: Block, name: str, index: Expr, step: Step) -> Mbarrier:
    """Return the mbarrier `name[index]`. If there is none, the run ends, because nothing can be said about its
    continuation."""
    ring = block.barriers[name]
    i = int(checked.value(block, index, step, step.on)[np.argmax(step.on)])
    if not 0 <= i < len(ring):
        text = f"index {i} is outside of mbarrier {name}, of {len(ring)}"
        block.report(step, "bounds", "out-of-bounds", text, None, logical=(i,), arrived=str(i))
        raise Stopped
    _seen(block, ring[i], step)
    return ring[i]


def _seen(block: Block, barrier: Mbarrier, step: Step) -> None:
    """Report a use of an mbarrier if the team does not know that it is initialised."""
    team = step.frame.team
    if barrier.maker is None:
        why = f"nothing has initialised {barrier.label}"
    elif barrier.fenced is None:
        why = f"{barrier.maker.name} makes no fence after it has initialised {barrier.label}"
    elif team.clock.known[barrier.maker.number] < barrier.fenced:
        why = f"nothing orders the fence of {barrier.maker.name} before this use of {barrier.label} by {team.name}"
    else:
        return
    text = f"{barrier.label} is used where its initialisation need not be visible"
    block.report(
        step, "initialisation", "late-initialisation", text, None, physical=barrier.physical, object=barrier.label,
        arrived="whatever was there", expected="an initialised mbarrier",
        story=lambda: events.initialisation(block, step, barrier.name, why),
    )  # fmt: skip


def initialise(block: Block, stmt: MbarrierInit, frame: Frame) -> None:
    """Initialise an array of mbarriers, by thread 0 of the team."""
    if frame.active[0]:
        for barrier in block.barriers[stmt.barrier]:
            barrier.maker, barrier.fenced = frame.team, None


def fence(block: Block, frame: Frame) -> None:
    """Make initialisations by thread 0 of the team visible to everything that is ordered after the fence."""
    for ring in block.barriers.values() if frame.active[0] else ():
        for barrier in ring:
            if barrier.maker is frame.team and barrier.fenced is None:
                barrier.fenced = frame.team.segment


def unfinished(block: Block, teams: list[Team]) -> None:
    """Report bulk copies that may still be in flight at the end of the block, because no team has waited for their
    phase."""
    for ring in block.barriers.values():
        for barrier in ring:
            if barrier.filled is None:
                continue
            step, phase = barrier.filled
            if all(team.clock.known[barrier.component] < phase for team in teams):
                text = f"a bulk copy, counted on {barrier.label}, may still be under way when the block ends"
                missing = f"nobody waits for phase {phase} of {barrier.label}"
                problem(block, step, barrier, "unfinished-copy", text, missing=missing)


def problem(
    block: Block,
    step: Step,
    barrier: Mbarrier,
    code: str,
    text: str,
    story: Callable[[], Story] | None = None,
    missing: str = "",
) -> None:
    """Report a broken rule of a barrier, property "progress", with a given account or that of the barrier's phases."""
    told = story or (lambda: events.phases(block, step, barrier.label, missing))
    block.report(
        step, "progress", code, text, None, physical=barrier.physical,
        object=barrier.label, arrived=barrier.state(), story=told,
    )  # fmt: skip


def expect(block: Block, stmt: MbarrierExpect, step: Step) -> None:
    """Let one lane arrive and announce bytes. All lanes of its warp have to come."""
    block.together(step, "an arrival on an mbarrier")
    barrier = at(block, stmt.barrier, stmt.index, step)
    in_order = _current(block, barrier, step)
    block.run.log.steps.append(Ordered(step.event, "expect", barrier.label, barrier.phase + 1))
    barrier.bytes += stmt.bytes
    _arrive(block, barrier, 1, step, in_order)


def arrive(block: Block, stmt: MbarrierArrive, step: Step) -> None:
    """Let one lane of each warp arrive. All lanes of the warp have to come."""
    block.together(step, "an arrival on an mbarrier")
    barrier = at(block, stmt.barrier, stmt.index, step)
    warps = step.frame.active.reshape(-1, block.run.kernel.warp_size).any(axis=1)
    in_order = _current(block, barrier, step)
    block.run.log.steps.append(Ordered(step.event, "arrive", barrier.label, barrier.phase + 1))
    _arrive(block, barrier, int(warps.sum()), step, in_order)


def meet(block: Block, stmt: BarrierSync | BarrierArrive, frame: Frame) -> Waiting:
    """Let all warps of the team arrive at a named barrier. Return the phase for which waiting warps wait."""
    step = block.step(stmt, frame, None)
    barrier = block.barriers[stmt.barrier][0]
    size = block.run.kernel.warp_size
    if not frame.active.all():
        text = f"threads of one role come to {barrier.label} apart from the others"
        block.report(step, "convergence", "divergent-barrier", text, int(frame.threads[0]))
    if stmt.count != barrier.arrivals * size:
        text = f"{barrier.label} is used for {stmt.count} threads here and for {barrier.arrivals * size} elsewhere"
        problem(block, step, barrier, "arrival-count", text)
    in_order = _current(block, barrier, step)
    phase = barrier.phase + 1
    block.run.log.steps.append(Ordered(step.event, "arrive", barrier.label, phase))
    _arrive(block, barrier, int(frame.active.reshape(-1, size).any(axis=1).sum()), step, in_order)
    return Waiting(step, barrier, phase)


def _current(block: Block, barrier: Mbarrier, step: Step) -> bool:
    """Return True if the team knows that all earlier phases are complete; otherwise report a violation."""
    known = int(step.frame.team.clock.ended()[barrier.component])
    if known < barrier.phase:
        text = (
            f"nothing orders this arrival on {barrier.label} after the end of the phase before:"
            " it may be one too many for that one"
        )
        role = step.frame.team.name
        missing = f"nothing orders the end of phase {barrier.phase} of {barrier.label} before this arrival of {role}"
        problem(block, step, barrier, "phase-overrun", text, missing=f"{missing}: {role} has not waited for it")
    return known >= barrier.phase


def _arrive(block: Block, barrier: Mbarrier, units: int, step: Step, in_order: bool) -> None:
    team = step.frame.team
    whole = bool(step.frame.active.all()) and units * block.run.kernel.warp_size >= team.threads
    begun = barrier.phase
    clock = team.released(whole)
    for left in range(units, 0, -1):
        taken = barrier.arrive(clock)
        if in_order and (not taken or (barrier.phase > begun and left > 1)):
            text = f"{barrier.label} gets more than the {barrier.arrivals} arrivals that one phase takes"
            problem(block, step, barrier, "phase-overrun", text)
            in_order = False
    if units == 1 and barrier.phase == begun + 1 and barrier.arrivals == 1:
        # The team that completes a phase is the only one that knows of it.
        team.clock.known[barrier.component] = barrier.phase
    block.tick(team)


def begin_wait(block: Block, stmt: MbarrierWait, frame: Frame) -> Waiting:
    """Return the phase for which a wait waits: the first phase with its parity that the team does not know to be over.
    """
    step = block.step(stmt, frame, None)
    barrier = at(block, stmt.barrier, stmt.index, step)
    parity = int(checked.value(block, stmt.parity, step, step.on)[np.argmax(step.on)])
    if parity not in (0, 1):
        text = f"the parity of a wait on {barrier.label} is {parity}, not 0 or 1"
        problem(block, step, barrier, "wrong-parity", text)
    if not frame.active.all():
        text = "threads of one role wait for an mbarrier apart from the others"
        block.report(step, "convergence", "divergent-barrier", text, None)
    known = int(frame.team.clock.known[barrier.component])
    return Waiting(step, barrier, known if known % 2 != parity % 2 else known + 1)


def passed(block: Block, waiting: Waiting) -> None:
    """Return from a wait: add the knowledge that the phase passes on."""
    barrier, team, phases = waiting.barrier, waiting.step.frame.team, waiting.phases
    block.run.log.steps.append(Ordered(waiting.step.event, "wait", barrier.label, phases))
    # A wait at a named barrier is for a phase, not for a parity.
    if barrier.phase > phases and barrier.index is not None:
        text = (
            f"{barrier.label} may complete phase {barrier.phase} before this wait for phase {phases} returns:"
            " by its parity alone the wait cannot tell them apart"
        )
        missing = f"nothing orders this wait of {team.name} for phase {phases} before phase {phases + 1} ends"
        problem(block, waiting.step, barrier, "phase-overrun", text, missing=missing)
    if phases:
        team.clock.join(barrier.history[phases - 1])
