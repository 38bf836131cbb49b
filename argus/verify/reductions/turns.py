"""Roles that are alike but for the turns that they take, without these.

    role compute:                                  role compute1: barrier_arrive A
      for k { wait full[i]; barrier_sync A;          for k { wait full[i]; barrier_sync B;
              mma ..; barrier_arrive B; .. }                 mma ..; barrier_arrive A; .. }
      ->   for k { wait full[i]; mma ..; .. }        in both

A role waits at a named barrier of its own and arrives at that of the next role, the last one at the first's, where it
has arrived once at its beginning. Both stand in one loop, at the same place in each role; what stands between them is a
role's *turn*, of whose statements only waits at mbarriers wait for anybody, and at none that the roles arrive at. There
are no other named barriers, and no role has loops in loops of that depth.

Let K be the kernel with these barriers and L the one without, and let L be proved. Then K is:

- Each execution of K is one of L that waits more, so what is ordered in L is ordered in K.
- Progress: in the schedule of `program` on which it is proved for L, an iteration of an innermost loop of a role stands
  as one piece, with nothing of other roles in it. So what its waits need has come before the iteration, or is its own
  arrival there, which stands for those of all alike roles, and so for later ones: not in a turn. Alike roles have their
  iterations side by side in it, trip for trip (`alike`), in any order: so in that of the ring. Then each
  role's turn begins when the one before it has ended, and the first role's when the last one's of the trip before has,
  or with the arrival at the beginning; and in its turn a role waits for nothing. So no wait is for ever in K.
- Each phase of a named barrier is two roles', one of which waits there. The other arrives for the next phase after its
  own next turn, which comes after that of the first: no phase gets ahead.
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
"""What waits for no other role, or at an mbarrier: products that a wait waits for are the role's own."""


@dataclass(frozen=True, slots=True)
class _Turn:
    """`own` and `following` are numbers of named barriers; `place` is that of the turn: a loop, its depth, and where in
    it the turn begins and ends."""

    own: int
    following: int
    place: tuple[int, int, int, int]


def without_turns(kernel: Kernel, names: Sequence[str]) -> Kernel:
    """The kernel without the named barriers at which the roles of these names take turns; as it is if they take none
    that are proved by the above."""
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
    """The one turn of a role, which is all that it comes to named barriers for, without waits at mbarriers that are
    `arrived` at; None if there is no such turn."""
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
    """Whether a statement waits for nobody, or for others than the roles that arrive at the mbarriers `arrived`."""
    return isinstance(stmt, _FREE) and not (isinstance(stmt, MbarrierWait) and stmt.barrier in arrived)


def _depth(loop: For, role: Role) -> int:
    """How many loops of the role it stands in, itself among them."""
    around = (s for s in walk(role.body) if isinstance(s, For))
    return sum(any(inner is loop for inner in walk((s,))) for s in around)


def _dropped(stmt: Stmt) -> tuple[Stmt, ...] | None:
    return () if isinstance(stmt, BarrierSync | BarrierArrive) else None
