"""Check accesses to tiles of other blocks of a cluster. A tile exists from the start of its block to the block's end
(argus/ir/cluster.py).

An access comes after the start of the tile's block if its team knows of any action of a team of that block. It comes
before the end if some team of that block learns of the access.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from argus.ir.cluster import rank_of
from argus.simulate.clock import Team
from argus.simulate.memory import Memory, SharedTile
from argus.simulate.numeric import Array
from argus.simulate.order import Touch
from argus.simulate.step import Step


@dataclass(frozen=True, slots=True)
class Visit:
    """The last access of a team to a tile of another block, in that segment of the team."""

    step: Step
    memory: Memory
    touch: Touch
    cell: int
    thread: int
    segment: int


@dataclass(frozen=True, slots=True)
class Stray:
    """An access to a tile of another block that may not exist at that time: what is wrong, and the remedy."""

    visit: Visit
    code: str
    text: str
    expected: str
    missing: str


@dataclass(slots=True)
class Lives:
    """The teams of each block of a cluster, the segments in which they began, and their accesses to tiles of other
    blocks.

    `met`: all blocks synchronised before any team began, so all blocks have started.
    """

    teams: dict[int, list[tuple[Team, int]]]
    visits: dict[tuple[str, str], Visit]
    met: bool

    @staticmethod
    def of(teams: list[Team], met: bool) -> Lives:
        """Return the `Lives` of teams that begin now."""
        found: dict[int, list[tuple[Team, int]]] = {}
        for team in teams:
            rank = rank_of(team.name)
            if rank is not None:
                found.setdefault(rank, []).append((team, team.segment))
        return Lives(found, {}, met)

    def visit(self, memory: Memory, touch: Touch, cell: Array, thread: Array, step: Step) -> Stray | None:
        """Record an access to a tile of another block. Return the violation if that block may not have started."""
        team = step.frame.team
        if not isinstance(memory, SharedTile) or not len(cell):
            return None
        owner = rank_of(memory.name)
        if owner is None or owner == rank_of(team.name):
            return None
        at = Visit(step, memory, touch, int(cell[0]), int(thread[0]), team.segment)
        self.visits[memory.name, team.name] = at
        if self.met or any(team.clock.known[other.number] >= begun for other, begun in self.teams[owner]):
            return None
        text = f"a {touch.value} of an element of {memory.name}, whose block need not have started"
        why = f"{team.name} waits for nothing that block {owner} of the cluster does before"
        return Stray(at, "peer-not-started", text, f"a barrier of the cluster before the {touch.value}", why)

    def finish(self) -> Iterator[Stray]:
        """Yield the accesses to tiles of other blocks that may not be over when those blocks end."""
        for (tile, name), last in self.visits.items():
            owner = rank_of(tile)
            assert owner is not None
            number = last.step.frame.team.number
            if any(team.clock.known[number] >= last.segment for team, _ in self.teams[owner]):
                continue
            text = f"a {last.touch.value} of an element of {tile}, whose block may have ended"
            why = f"block {owner} of the cluster waits for nothing that {name} does after"
            yield Stray(last, "peer-exited", text, f"a barrier of the cluster after the last {last.touch.value}", why)
