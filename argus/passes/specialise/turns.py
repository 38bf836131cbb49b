"""Carry out the schedule "turns": roles with their own rows multiply one after another in every iteration.

    role compute:  for k in ...: wait full; s = ...; o += ...;   ->   role compute:  for k in ...: wait full
                       wait for them; w = exp2(s)                         barrier_sync A; s = ...; o += ...
    role compute1: the same                                               barrier_arrive B; wait for them; w = exp2(s)
                                                                     role compute1: barrier_arrive A; for k in ...:
                                                                          the same, with A and B exchanged

A turn begins before the first product of an iteration, and ends before the wait for its last product. Work that needs
only the first product, like the maxima of attention's rows, belongs to the turn. The roles therefore stay half an
iteration apart, and the other work of each role runs beside the products of the next role.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from argus.ir.nodes import BarrierArrive, BarrierSync, For, Kernel, MmaFence, MmaWait, Roles, Stmt
from argus.ir.visit import rewrite_body
from argus.passes.report import Unfit
from argus.passes.specialise.plan import RolePlan


def in_turns(kernel: Kernel, plan: RolePlan) -> Kernel:
    """Return the kernel whose computing roles, one for each part of `plan`, take turns in its loop. Raises `Unfit`."""
    computing = len(plan.parts)
    if computing < 2:
        return kernel
    position = next(i for i, s in enumerate(kernel.body) if isinstance(s, Roles))
    found = kernel.body[position]
    assert isinstance(found, Roles)
    others, taking = found.roles[:-computing], found.roles[-computing:]
    first = 1 + len(found.roles)  # Lower barrier numbers belong to the roles.
    count = 2 * taking[0].num_warps * kernel.warp_size
    done = []
    for number, role in enumerate(taking):
        turn = partial(_turn, plan.loop.var, first + number, first + (number + 1) % computing, count)
        begin = (BarrierArrive(first, count, span=role.span),) if number == computing - 1 else ()
        done.append(replace(role, body=(*begin, *rewrite_body(role.body, turn))))
    roles = replace(found, roles=(*others, *done))
    return replace(kernel, body=(*kernel.body[:position], roles, *kernel.body[position + 1 :]))


def _turn(var: str, own: int, following: int, count: int, loop: Stmt) -> tuple[Stmt, ...] | None:
    if not isinstance(loop, For) or loop.var != var:
        return None
    begins = next((i for i, s in enumerate(loop.body) if isinstance(s, MmaFence)), None)
    if begins is None:
        raise Unfit("no product is one of every iteration", loop.span, "multiply outside of branches")
    ends = max((i for i, s in enumerate(loop.body) if isinstance(s, MmaWait) and i > begins), default=len(loop.body))
    sync, arrive = BarrierSync(own, count, span=loop.span), BarrierArrive(following, count, span=loop.span)
    return (replace(loop, body=(*loop.body[:begins], sync, *loop.body[begins:ends], arrive, *loop.body[ends:])),)
