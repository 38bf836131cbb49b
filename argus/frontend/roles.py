"""Explicit roles: groups of warps of a block that each run their own program."""

from __future__ import annotations

from dataclasses import replace

from argus.diagnostic import Note
from argus.frontend import arguments
from argus.frontend.barriers import require_roles
from argus.frontend.context import CallSite, Context, Handler
from argus.frontend.expressions import items_of
from argus.frontend.values import Helper, Nothing, Poison, Value, describe
from argus.ir.instruction import BARRIERS
from argus.ir.instruction.limits import BUDGET_UNIT, MAX_BUDGET, MIN_BUDGET
from argus.ir.machine import WARPGROUP
from argus.ir.nodes import (
    AssertTags,
    Barrier,
    BarrierArrive,
    BarrierSync,
    MbarrierFence,
    MbarrierInit,
    Role,
    Roles,
    Spec,
    Stmt,
    Tag,
)
from argus.ir.visit import rewrite_body

_SYNC = BARRIERS["bar.sync"]


def role(call: CallSite) -> Value:
    """Elaborate a helper as the program of the block's next warps."""
    context, function = call.context, call.args["function"]
    context.require_top_level("a role", call.span)
    require_roles(context, call.span)
    early = next((s for s in context.body if not isinstance(s, (Tag, AssertTags, Spec))), None)
    if early is not None:
        context.fail(
            "bad-role",
            "a kernel of roles does nothing before them: which warps would?",
            call.span,
            "let a role do it; views, shared tiles, barriers, sizes and indices may come first",
            notes=(Note("this is done before the first role", early.span),),
        )
    if not isinstance(function, Helper):
        what = f"a role's program is a function under `@argus.func`, and this is {describe(function)}"
        context.fail("bad-role", what, call.spans["function"], "write `al.role(load, (x, tile), num_warps=4)`")
    warps, registers = arguments.integer(call, "num_warps", 1), _budget(call)
    first = sum(_whole(r) for r in context.roles)
    items, outer = items_of(call.args["args"]), context.num_warps
    given = items if items is not None else (call.args["args"],)
    name = context.unique(function.function.name)
    context.num_warps, context.in_role = warps, True
    try:
        with context.block() as body:
            result = context.inline(context, function, given, {}, call.span, None)
    finally:
        context.num_warps, context.in_role = outer, False
    if not isinstance(result, (Nothing, Poison)):
        what = f"a role returns nothing, and `{name}` returns {describe(result)}"
        context.fail("bad-role", what, call.span, "store its results: `al.store(...)`")
    context.roles.append(Role(name, first, warps, registers, tuple(body), context.at(call.span)))
    return Nothing()


def _budget(call: CallSite) -> int | None:
    if not arguments.given(call, "registers"):
        return None
    registers = arguments.integer(call, "registers", 1)
    if registers % BUDGET_UNIT or not MIN_BUDGET <= registers <= MAX_BUDGET:
        what = f"a thread cannot have {registers} registers"
        help = f"use a multiple of {BUDGET_UNIT} from {MIN_BUDGET} to {MAX_BUDGET}"
        call.context.fail("bad-role", what, call.spans["registers"], help)
    return registers


def _whole(role: Role) -> int:
    """Return the number of warps in the warpgroups that the role occupies."""
    return -(-role.num_warps // WARPGROUP) * WARPGROUP


def finished(context: Context) -> tuple[Stmt, ...]:
    """Return the kernel's statements with initialised mbarriers and roles whose named barriers have numbers. Note an
    error for each role that does not fit."""
    roles = tuple(context.roles)
    if not roles:
        return tuple(context.body)
    total = sum(r.num_warps if r is roles[-1] and r.registers is None else _whole(r) for r in roles)
    if total != context.num_warps:
        what = f"the roles take {total} warps, each beginning with a group of {WARPGROUP}, and the kernel has"
        help = f"write `@argus.kernel(num_warps={total})`"
        context.error("bad-role", f"{what} {context.num_warps}", roles[0].span, help)
    first = 1 + len(roles)  # Barrier 0 belongs to the block, and each role has one of its own.
    for late in context.named_barriers[_SYNC.barriers - first :]:
        what = f"there are {_SYNC.barriers} barriers: one of the block, one of each role, and"
        context.error("bad-barrier", f"{what} {_SYNC.barriers - first} others", late, "let roles share one")

    def number(stmt: Stmt) -> tuple[Stmt, ...] | None:
        return (replace(stmt, number=stmt.number + first),) if isinstance(stmt, BarrierSync | BarrierArrive) else None

    numbered = tuple(replace(r, body=rewrite_body(r.body, number)) for r in roles)
    where = roles[0].span
    made: list[Stmt] = [MbarrierInit(b.name, span=where) for b in context.mbarriers]
    ready = [*made, MbarrierFence(span=where), Barrier(span=where)] if made else []
    return (*context.body, *ready, Roles(numbered, span=where))


HANDLERS: dict[str, Handler] = {"role": role}
