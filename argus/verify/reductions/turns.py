"""Remove the turns of roles that are alike except for the turns that they take.

    role compute:                                  role compute1: barrier_arrive A
      for k { wait full[i]; barrier_sync A;          for k { wait full[i]; barrier_sync B;
              mma ..; barrier_arrive B; .. }                 mma ..; barrier_arrive A; .. }
      ->   for k { wait full[i]; mma ..; .. }        in both

Each role waits at a named barrier of its own and arrives at the barrier of the next role. The last role arrives at the
first role's barrier, and has also arrived there once at its beginning. The wait and the arrival stand in one loop, at
the same place in each role. The statements between them are the role's *turn*. In a turn, only waits at mbarriers wait
for other roles, and none of those mbarriers is one at which these roles arrive. There are no other named barriers, and
no role has loops inside loops of that depth.

Let K be the kernel with these barriers and L the kernel without them. If L is proved, then K is correct:

- Order: each execution of K is an execution of L with more waiting. So what is ordered in L is ordered in K.
- Progress: it is proved for L on the schedule of `program`. There an iteration of a role's innermost loop is one piece,
  with nothing of other roles in it. So the events that its waits need come before the iteration, or are its own
  arrival, which stands for the arrivals of all alike roles, later ones included. A wait of the second kind is not in a
  turn. Alike roles have their iterations side by side, trip for trip (`alike`), in any order, so also in the ring's.
  Then each role's turn begins when the turn before it has ended. The first role's turn begins when the last role's turn
  of the previous trip has ended, or with the arrival at the beginning. In its turn a role waits for nothing. So no wait
  in K is for ever.
- Phases: each phase of a named barrier belongs to two roles. One of them waits there. The other arrives for the next
  phase after its own next turn, which comes after the next turn of the first. So no phase gets ahead.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace

from argus.ir.nodes import (
    Accumulate,
    AssertTags,
    BarrierArrive,
    BarrierSync,
    Copy,
    For,
    If,
    Kernel,
    Map,
    MbarrierArrive,
    MbarrierWait,
    Mma,
    MmaCommit,
    MmaFence,
    MmaWait,
    Role,
    Roles,
    Stmt,
    Tag,
)
from argus.ir.visit import rewrite_body, walk

_FREE = (Copy, Map, Accumulate, Mma, MmaFence, MmaCommit, MmaWait, MbarrierArrive, MbarrierWait, If, Tag, AssertTags)
"""Statements that wait for no other role, or only at an mbarrier. Waits for products concern the role's own ones."""


@dataclass(frozen=True, slots=True)
class _Turn:
    """A role's turn. `own` and `following` are the numbers of its named barriers.

    `place`: the number of the turn's loop, its depth, and the indices in the loop at which the turn begins and ends.
    """

    own: int
    following: int
    place: tuple[int, int, int, int]


def without_turns(kernel: Kernel, names: Sequence[str]) -> Kernel:
    """Remove the named barriers at which the roles of these names take turns.

    The kernel is returned unchanged if they take no turns to which the proof above applies.
    """
    found = [role for stmt in kernel.body for role in (stmt.roles if isinstance(stmt, Roles) else ())]
    taking = [role for role in found if role.name in names]
    arrived = {s.barrier for role in taking for s in walk(role.body) if isinstance(s, MbarrierArrive)}
    found_turns = (_turn(role, role is taking[-1], kernel.warp_size, arrived) for role in taking)
    turns = [turn for turn in found_turns if turn is not None]
    if len(turns) < len(taking):
        return kernel
    own = [turn.own for turn in turns]
    ring = [turn.following for turn in turns] == [*own[1:], own[0]] and len(set(own)) == len(own)
    others = sum(isinstance(s, BarrierSync | BarrierArrive) for s in walk(kernel.body)) != 2 * len(own) + 1
    innermost = max(_depth(s, role) for role in found for s in walk(role.body) if isinstance(s, For))
    if not ring or others or len({turn.place for turn in turns}) > 1 or turns[0].place[1] != innermost:
        return kernel
    left = {role.name: replace(role, body=rewrite_body(role.body, _dropped)) for role in taking}
    body = (
        replace(s, roles=tuple(left.get(r.name, r) for r in s.roles)) if isinstance(s, Roles) else s
        for s in kernel.body
    )
    return replace(kernel, body=tuple(body))


def _turn(role: Role, last: bool, warp_size: int, arrived: Container[str]) -> _Turn | None:
    """Return the only turn of a role, or None if the role has no turn or several.

    The role uses named barriers for nothing else, and does not wait in the turn at mbarriers in `arrived`.
    """
    used = [s for s in walk(role.body) if isinstance(s, BarrierSync | BarrierArrive)]
    if {s.count for s in used} != {2 * role.num_warps * warp_size} or len(used) != 2 + last:
        return None
    if last and (used[0] is not role.body[0] or not isinstance(used[0], BarrierArrive)):
        return None
    sync, arrive = used[-2:]
    if not isinstance(sync, BarrierSync) or not isinstance(arrive, BarrierArrive):
        return None
    if last and used[0].number != arrive.number:
        return None
    for number, loop in enumerate(s for s in walk(role.body) if isinstance(s, For)):
        at = [place for place, s in enumerate(loop.body) if s is sync or s is arrive]
        if len(at) == 2 and all(_is_free(s, arrived) for s in walk(loop.body[at[0] + 1 : at[1]])):
            return _Turn(sync.number, arrive.number, (number, _depth(loop, role), at[0], at[1]))
    return None


def _is_free(stmt: Stmt, arrived: Container[str]) -> bool:
    """Return True if a statement waits for no role that arrives at the mbarriers `arrived`."""
    return isinstance(stmt, _FREE) and not (isinstance(stmt, MbarrierWait) and stmt.barrier in arrived)


def _depth(loop: For, role: Role) -> int:
    """Return the number of loops of the role around a loop, itself included."""
    around = (s for s in walk(role.body) if isinstance(s, For))
    return sum(any(inner is loop for inner in walk((s,))) for s in around)


def _dropped(stmt: Stmt) -> tuple[Stmt, ...] | None:
    return () if isinstance(stmt, BarrierSync | BarrierArrive) else None
