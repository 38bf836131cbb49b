"""Run the part of a kernel in which halves of a block's waves take turns (gfx942).

Both halves are teams, with clocks of their own. They run side by side and meet at barriers. The second half has one
barrier more at the beginning, the first half one more at the end, so they meet at different places of the text. What
a half has done before a barrier is known to its own waves after that barrier, and to the other half after the barrier
at which that half stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from argus.ir.nodes import BeginTurns, EndTurns, Stmt, WaveBarrier
from argus.ir.waves import behind
from argus.simulate.clock import Team
from argus.simulate.machine import Block
from argus.simulate.statements import Pause, execute
from argus.simulate.step import Frame

HALVES = ("the first half", "the second half")


def frames(block: Block) -> list[Frame]:
    """Return the frames of both halves, whose teams know what the block knows."""
    kernel = block.run.kernel
    late = np.arange(kernel.num_threads) >= behind(kernel)
    made = []
    for number, (name, active) in enumerate(zip(HALVES, (~late, late), strict=True)):
        team = Team(name, block.teams - 2 + number, 0, kernel.num_threads, block.team.clock.copy(), 0)
        team.drained, team.members = block.team.drained, active
        team.clock.known[team.number] = block.run.segment
        block.tick(team)
        made.append(Frame(active, {}, team, block.programs[0]))
    return made


def walks(block: Block, body: tuple[Stmt, ...], halves: Sequence[Frame]) -> list[Iterator[Pause]]:
    """Return the runs of both halves through `body`, which starts with `BeginTurns` and ends with `EndTurns`."""
    first, *inner, last = body
    assert isinstance(first, BeginTurns) and isinstance(last, EndTurns)

    def lead() -> Iterator[Pause]:
        yield from execute(block, tuple(inner), halves[0])
        yield last, halves[0]

    def follow() -> Iterator[Pause]:
        yield first, halves[1]
        yield from execute(block, tuple(inner), halves[1])

    return [lead(), follow()]


def meet(block: Block, stmts: Sequence[Stmt], halves: Sequence[Frame]) -> None:
    """Let both halves pass the barriers at which they stand."""
    for stmt, frame in zip(stmts, halves, strict=True):
        block.passes(stmt, frame, "barrier")
        frame.team.joined(isinstance(stmt, WaveBarrier | BeginTurns | EndTurns))
    for frame, other in ((halves[0], halves[1]), (halves[1], halves[0])):
        number = other.team.number
        known = frame.team.clock.known
        known[number] = max(known[number], other.team.clock.known[number])
    for frame in halves:
        block.tick(frame.team)


def rejoin(block: Block, halves: Sequence[Frame]) -> None:
    """Let the block know what both of its halves know."""
    first, second = (frame.team for frame in halves)
    block.team.clock.known[:] = np.minimum(first.clock.known, second.clock.known)
    block.team.drained = min(first.drained, second.drained)
    block.tick(block.team)
