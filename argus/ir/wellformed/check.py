"""Walk over a kernel and check all rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from argus.diagnostic import Diagnostic
from argus.ir.descriptor import Field, Kind, describe
from argus.ir.instruction import REDUCES
from argus.ir.nodes import (
    Accumulate,
    AssertTags,
    Barrier,
    BarrierArrive,
    BarrierSync,
    BeginTurns,
    BulkCommit,
    BulkCopy,
    BulkWait,
    CommitGroup,
    Copy,
    EndTurns,
    For,
    If,
    Kernel,
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
    Role,
    Roles,
    Scan,
    Share,
    Shared,
    Spec,
    Stage,
    Stmt,
    Tag,
    Tensor,
    ThreadCopy,
    WaitCounts,
    WaitGroup,
    WaveBarrier,
)
from argus.ir.ordering import HINTS
from argus.ir.statement import Problem
from argus.ir.target import TARGETS, Target
from argus.ir.types import boolean
from argus.ir.typing_rules import Scope, scope_of
from argus.ir.visit import blocks
from argus.ir.watch import DeviceAssert, DevicePrint
from argus.ir.wellformed import claims, copies, counts, declarations, engine, ordering, placement, products, registers
from argus.ir.wellformed.site import Site, access, expressions, has_type


def check_tile(kernel: Kernel) -> tuple[Diagnostic, ...]:
    """Return violations of the rules that hold at every stage: names, ranks, types, scopes."""
    return _diagnostics(problems(kernel, False))


def check_explicit(kernel: Kernel) -> tuple[Diagnostic, ...]:
    """Return violations of the rules of explicit IR: those of `check_tile`, and that everything is filled in and
    consistent.

    A kernel without violations is not checked again.
    """
    if kernel.well_formed:
        return ()
    found = _diagnostics(problems(kernel, True))
    if not found:
        # The mark is a fact about an immutable value, so it never changes.
        object.__setattr__(kernel, "well_formed", True)
    return found


def _diagnostics(found: Iterable[Problem]) -> tuple[Diagnostic, ...]:
    return tuple(Diagnostic("ill-formed-ir", message, span, property="types") for message, span in found)


def problems(kernel: Kernel, explicit: bool) -> Iterator[Problem]:
    """Yield everything that is wrong with a kernel, at the explicit stage or at any stage.

    The rules of explicit IR assume correct names, ranks and types, and the rules of statements assume correct
    declarations. Rules are therefore checked only where these assumptions hold.
    """
    declared = [*declarations.names(kernel), *placement.problems(kernel)]
    yield from declared
    target = TARGETS.get(kernel.target or "") if explicit else None
    if explicit and not declared:
        filled = list(declarations.explicit(kernel, target))
        yield from filled
        target = None if filled else target
    site = Site(kernel, scope_of(kernel), replace(kernel, body=outside_of_roles(kernel)), target)
    yield from _part(kernel.body, site)


def outside_of_roles(kernel: Kernel) -> tuple[Stmt, ...]:
    """Return the statements that the whole block runs."""
    return tuple(s for s in kernel.body if not isinstance(s, Roles))


def _part(body: tuple[Stmt, ...], site: Site) -> Iterator[Problem]:
    """Yield the problems of the statements that the block or a role runs."""
    roles = any(isinstance(s, Roles) for s in body)
    yield from () if roles else counts.clashes(body)
    yield from _body(body, site if roles else replace(site, counts=counts.names(body)))


def _body(body: tuple[Stmt, ...], site: Site) -> Iterator[Problem]:
    for stmt in body:
        yield from _statement(stmt, site)
        inner = site.inside(stmt)
        if isinstance(stmt, Roles):
            for role in stmt.roles:
                yield from _part(role.body, _in_role(inner, role))
        else:
            for block in blocks(stmt):
                yield from _body(block, inner)


def _in_role(site: Site, role: Role) -> Site:
    return replace(site, role=role, part=replace(site.kernel, num_warps=role.num_warps, body=role.body))


def _statement(stmt: Stmt, site: Site) -> Iterator[Problem]:
    rule = RULES[type(stmt)]
    found = [*_fields(stmt, site), *counts.problems(stmt, site), *rule.always(stmt, site)]
    yield from found
    if site.target is not None and not found:
        yield from rule.explicit(stmt, site, site.target)


# ---------------------------------------------------------------------------- what follows from descriptors


def _fields(stmt: Stmt, site: Site) -> Iterator[Problem]:
    for field in describe(type(stmt)).fields.values():
        yield from _field(getattr(stmt, field.name), field, stmt, _scope(stmt, field, site))


def _scope(stmt: Stmt, field: Field, site: Site) -> Scope:
    """Return the names that a field of a statement may use."""
    match stmt:
        case Spec(names=names):  # A specification holds for all blocks and iterations.
            return replace(site.scope, kinds=(Tensor,), launch=True, loops=frozenset()).over(len(names))
        case Tag(shape=shape) | AssertTags(shape=shape):
            return replace(site.scope, kinds=claims.ANYTHING).over(len(shape))
        case Accumulate(instr=instr, shape=shape) if instr in REDUCES and field.name == "value":
            return replace(site.scope, kinds=(Shared,)).over(len(shape))
        case _:
            return site.scope.over(len(getattr(stmt, "shape", ())))


def _field(value: Any, field: Field, stmt: Stmt, scope: Scope) -> Iterator[Problem]:
    """Yield the problems of a field's value, according to the field's kind in the descriptor."""
    span = stmt.span
    match field.kind:
        case _ if value is None:
            return
        case Kind.ACCESS:
            yield from access(value, scope, field.spaces or claims.ANYTHING, span)
            if value.block is not None and not isinstance(stmt, Copy):
                yield f"only a copy reaches a tile of a peer, such as `{value.obj}`", span
        case Kind.EXPRESSION:
            yield from expressions((value,), scope, span)
            what = "a mask" if field.name == "mask" else "a condition"
            yield from has_type(what, value, boolean if field.condition else None, span)
        case Kind.PART:
            for part in describe(type(value)).fields.values():
                yield from _field(getattr(value, part.name), part, stmt, scope)
        case Kind.PARTS:
            for each in value:
                for part in describe(type(each)).fields.values():
                    yield from _field(getattr(each, part.name), part, stmt, scope)
        case Kind.FIELDS:
            for _, term in value:
                yield from claims.term(term, scope, span)
        case Kind.CONDITIONS:
            for condition in value:
                yield from claims.condition(condition, scope, span)
        case Kind.MEANING:
            yield from claims.meaning(value, scope, span)
        case _:
            return


# ---------------------------------------------------------------------------- what each kind of statement adds


def _nothing(*_: object) -> Iterator[Problem]:
    return iter(())


@dataclass(frozen=True, slots=True)
class Rule:
    """The further rules of one kind of statement. `always` is checked at both stages, then `explicit` at the explicit
    stage."""

    always: Callable[[Any, Site], Iterator[Problem]] = _nothing
    explicit: Callable[[Any, Site, Target], Iterator[Problem]] = _nothing


RULES: Mapping[type, Rule] = {
    ThreadCopy: Rule(copies.names, copies.explicit),
    BulkCopy: Rule(engine.names, engine.explicit),
    Map: Rule(registers.map_names, registers.map_explicit),
    Accumulate: Rule(registers.accumulate_names, registers.accumulate_explicit),
    Scan: Rule(registers.scan_names, registers.scan_explicit),
    Mma: Rule(products.names, products.explicit),
    Stage: Rule(copies.stage_names, copies.stage_explicit),
    Share: Rule(copies.share_names, copies.stage_explicit),
    For: Rule(placement.loop_names, placement.loop_explicit),
    If: Rule(),
    Roles: Rule(),
    Programs: Rule(),
    Barrier: Rule(ordering.barrier, ordering.barrier_explicit),
    CommitGroup: Rule(explicit=ordering.groups_explicit),
    WaitGroup: Rule(ordering.pending, ordering.groups_explicit),
    MmaFence: Rule(),
    MmaCommit: Rule(),
    MmaWait: Rule(ordering.pending),
    BulkCommit: Rule(),
    BulkWait: Rule(ordering.pending),
    ProxyFence: Rule(),
    MbarrierInit: Rule(ordering.initialised),
    MbarrierFence: Rule(ordering.initialised),
    MbarrierExpect: Rule(ordering.expected, ordering.expected_explicit),
    MbarrierArrive: Rule(ordering.arrival, ordering.arrival_explicit),
    MbarrierWait: Rule(ordering.phase, ordering.in_role),
    BarrierSync: Rule(ordering.named_barrier),
    BarrierArrive: Rule(ordering.named_barrier),
    WaitCounts: Rule(ordering.wave_step, ordering.wave_step_explicit),
    WaveBarrier: Rule(ordering.wave_step, ordering.wave_step_explicit),
    BeginTurns: Rule(ordering.turns, ordering.wave_step_explicit),
    EndTurns: Rule(ordering.turns, ordering.wave_step_explicit),
    DevicePrint: Rule(registers.watch_names, registers.watch_explicit),
    DeviceAssert: Rule(registers.watch_names, registers.watch_explicit),
    Tag: Rule(claims.tag),
    AssertTags: Rule(claims.assertion),
    Spec: Rule(claims.specification),
    **dict.fromkeys(HINTS, Rule(ordering.wave_step, ordering.wave_step_explicit)),
}
"""The rules of each kind of statement."""
