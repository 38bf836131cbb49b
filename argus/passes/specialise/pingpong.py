"""Carry out the schedule "pingpong": two groups of computing warps take turns, each with its own programs.

    role producer: for k in ...: fill              ->  role producer: programs { for k in ...: fill }
    role compute: for k in ...: multiply; store        role compute: programs turn 0 of 2 {
                                                           barrier_sync A; if there are no products: barrier_arrive B
                                                           for k in ...: multiply; in the last one: barrier_arrive B
                                                           store }
                                                       role compute1: barrier_arrive A; programs turn 1 of 2 {
                                                           the same, with A and B exchanged }

The groups share the rings of buffers, which the producer fills for one program after the other. While one group
multiplies, the other stores its results, and then waits for its turn. A group hands over its turn once its last product
is in flight, so the tensor cores never wait. By then it has waited for all buffers of its program, so no group can
mistake an old phase for its own.
"""

from __future__ import annotations

from dataclasses import replace

from argus.ir.expr import Const, LoopVar, op
from argus.ir.instruction.limits import BUDGET_UNIT, registers_at_first
from argus.ir.nodes import (
    BarrierArrive,
    BarrierSync,
    For,
    Fragment,
    If,
    Kernel,
    MmaCommit,
    Programs,
    Role,
    Roles,
    Shared,
    Stmt,
    ThreadCopy,
)
from argus.ir.target import TARGETS
from argus.ir.visit import walk as statements
from argus.passes.fresh import Fresh, names, renamed
from argus.passes.report import Unfit

_GROUPS = 2
_MOST_REGISTERS = 240  # registers of a thread


def take_turns(kernel: Kernel) -> Kernel:
    """Return a kernel of the roles "producer" and "compute" with a second "compute" role. A kernel without roles is
    returned unchanged.

    Raises `Unfit` if the groups cannot take turns.
    """
    position = next((i for i, s in enumerate(kernel.body) if isinstance(s, Roles)), None)
    if position is None:
        return kernel
    found = kernel.body[position]
    assert isinstance(found, Roles)
    *producing, computing = found.roles
    if not kernel.persistent:
        raise Unfit("a block has one program", computing.span, "add persistent=True to al.grid")
    if len(producing) != 1 or producing[0].num_warps != 1:
        raise Unfit("threads load its tiles", computing.span, "keep the rules of bulk copies: see al.pipelined")
    loops = [s for s in computing.body if isinstance(s, For)]
    if len(loops) != 1 or any(isinstance(s, For) for s in loops[0].body):
        raise Unfit("tiles are staged outside of the loop", computing.span, "stage all tiles in the loop")
    if not any(isinstance(s, MmaCommit) for s in loops[0].body):
        raise Unfit("no product is one of every iteration", computing.span, "multiply outside of branches")
    made = next((s for s in statements(computing.body) if isinstance(s, ThreadCopy) and _shared(kernel, s)), None)
    if made is not None:
        raise Unfit(f"both groups would fill {made.dst.obj}", made.span, "keep its tile in registers")
    warps, fresh = computing.num_warps, Fresh(kernel)
    copies = {f.name: fresh.fragment(f.name, f.dtype, f.shape, f.layout) for f in _fragments(kernel, computing)}
    # The roles use the barriers up to 1 + _GROUPS for themselves.
    first, count = 2 + _GROUPS, _GROUPS * warps * kernel.warp_size
    producer = replace(producing[0], first_warp=_GROUPS * warps, body=_programs(producing[0].body, producing[0]))
    total = kernel.num_warps + (_GROUPS - 1) * warps
    if total * kernel.warp_size > TARGETS[kernel.target or ""].max_threads:
        raise Unfit(f"{total} warps are more than a block has", computing.span, "use fewer warps")
    spare = total * registers_at_first(total * kernel.warp_size)
    spare -= (total - _GROUPS * warps) * (producer.registers or 0)
    budget = min(_MOST_REGISTERS, spare // (_GROUPS * warps) // BUDGET_UNIT * BUDGET_UNIT)
    groups = []
    for turn in range(_GROUPS):
        body = computing.body if turn == 0 else renamed(computing.body, copies)
        body = _in_turn(body, first + turn, first + (turn + 1) % _GROUPS, count)
        program = Programs(body, _GROUPS, turn, span=computing.span)
        begin = (BarrierArrive(first, count, span=computing.span),) if turn == _GROUPS - 1 else ()
        name = computing.name if turn == 0 else f"{computing.name}{turn}"
        groups.append(Role(name, turn * warps, warps, budget, (*begin, program), computing.span))
    roles = replace(found, roles=(producer, *groups))
    done = fresh.finish((*kernel.body[:position], roles, *kernel.body[position + 1 :]))
    return replace(done, num_warps=total)


def _shared(kernel: Kernel, copy: ThreadCopy) -> bool:
    return isinstance(kernel.object(copy.dst.obj), Shared)


def _programs(body: tuple[Stmt, ...], role: Role) -> tuple[Stmt, ...]:
    return (Programs(body, span=role.span),)


def _fragments(kernel: Kernel, role: Role) -> list[Fragment]:
    used = set().union(*(names(s) for s in statements(role.body)))
    return [f for f in kernel.fragments if f.name in used]


def _in_turn(body: tuple[Stmt, ...], own: int, other: int, count: int) -> tuple[Stmt, ...]:
    """Make the loop wait for barrier `own`, and give the turn to the other role after its last product has started."""
    result: list[Stmt] = []
    for stmt in body:
        if isinstance(stmt, For):
            given = BarrierArrive(other, count, span=stmt.span)
            last = op("ge", op("add", LoopVar(stmt.var), Const(stmt.step)), stmt.stop)
            at = max(i for i, s in enumerate(stmt.body) if isinstance(s, MmaCommit)) + 1
            inner = (*stmt.body[:at], If(last, (given,), span=stmt.span), *stmt.body[at:])
            # This branch is not placed after the loop, because ptxas serialises products if a branch comes before their
            # wait.
            none = If(op("le", stmt.stop, stmt.start), (given,), span=stmt.span)
            result += [BarrierSync(own, count, span=stmt.span), none, replace(stmt, body=inner)]
        else:
            result.append(stmt)
    return tuple(result)
