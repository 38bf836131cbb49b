"""Rules of the positions of statements: roles, programs of persistent kernels, clusters, and loops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import dropwhile, pairwise

from argus.ir.access import relations
from argus.ir.cluster import clusters, peers_of
from argus.ir.expr import Const, Op, Param, walk
from argus.ir.instruction import INSTRUCTIONS
from argus.ir.instruction.limits import BUDGET_UNIT, MAX_BUDGET, MAX_CLUSTER, MIN_BUDGET, registers_at_first
from argus.ir.machine import WARPGROUP
from argus.ir.nodes import (
    AssertTags,
    Barrier,
    BarrierArrive,
    BulkWait,
    Copy,
    For,
    Kernel,
    MbarrierFence,
    MbarrierInit,
    Programs,
    Role,
    Roles,
    Spec,
    Stmt,
    Tag,
)
from argus.ir.statement import Problem
from argus.ir.target import Target
from argus.ir.visit import walk as walk_statements
from argus.ir.wellformed.site import Site
from argus.source import Span


def problems(kernel: Kernel) -> Iterator[Problem]:
    """Yield the problems of the positions of a kernel's statements, at any stage."""
    yield from _roles(kernel)
    yield from _programs(kernel)
    yield from _initialisations(kernel)
    count = kernel.cluster
    if not 1 <= count <= MAX_CLUSTER:
        yield f"a cluster has 1 to {MAX_CLUSTER} blocks, not {count}", kernel.span
    elif count > 1 and (not kernel.grid or clusters(kernel.grid[0], count) is None):
        yield f"the first extent of the grid is not written as a multiple of the cluster's {count} blocks", kernel.span


def _roles(kernel: Kernel) -> Iterator[Problem]:
    """Check that roles occur once, at the top level, followed only by tags, and that their warps do not overlap."""
    found = [s for s in walk_statements(kernel.body) if isinstance(s, Roles)]
    if not found:
        return
    top = [s for s in kernel.body if not isinstance(s, Tag | AssertTags | Spec)]
    if len(found) > 1 or top[-1] is not found[0]:
        yield "roles stand at the top level of a kernel, once, and nothing runs after them", found[0].span
    roles = found[0].roles
    if len({r.name for r in roles}) != len(roles):
        yield "two roles have one name", found[0].span
    for role in roles:
        last = role.first_warp + role.num_warps
        if role.num_warps < 1 or role.first_warp < 0 or last > kernel.num_warps:
            yield f"role `{role.name}` takes warps {role.first_warp} to {last - 1} of {kernel.num_warps}", role.span
        if role.first_warp % WARPGROUP and not _beside(role, roles):
            yield f"role `{role.name}` begins at warp {role.first_warp}, inside of a warpgroup", role.span
    for a, b in pairwise(sorted(roles, key=lambda r: r.first_warp)):
        if a.first_warp + a.num_warps > b.first_warp:
            yield f"roles `{a.name}` and `{b.name}` share warps", b.span
    yield from _budgets(kernel, roles, found[0].span)


def _beside(role: Role, roles: tuple[Role, ...]) -> bool:
    """Return True if `role` lies inside of a warpgroup, directly behind a role of this warpgroup with an equal budget.
    """
    group, last = role.first_warp // WARPGROUP, role.first_warp + role.num_warps - 1
    before = [r for r in roles if r.first_warp + r.num_warps == role.first_warp]
    inside = last // WARPGROUP == group and all(r.first_warp // WARPGROUP == group for r in before)
    return inside and [r.registers for r in before] == [role.registers]


def _budgets(kernel: Kernel, roles: tuple[Role, ...], span: Span) -> Iterator[Problem]:
    given = [r for r in roles if r.registers is not None]
    if not given:
        return
    if len(given) != len(roles):
        yield "some roles have a register budget, and some have none", span
    for role in given:
        budget = role.registers or 0
        if budget % BUDGET_UNIT or not MIN_BUDGET <= budget <= MAX_BUDGET:
            yield f"role `{role.name}` cannot have {budget} registers a thread", role.span
        if max(_warpgroups(role)) * WARPGROUP + WARPGROUP > kernel.num_warps:
            yield f"role `{role.name}` ends inside of a warpgroup that the block does not have", role.span
    first = registers_at_first(kernel.num_threads)
    dealt = {group: role.registers or 0 for role in given for group in _warpgroups(role)}
    idle = kernel.num_warps - WARPGROUP * len(dealt)
    total = (sum(dealt.values()) * WARPGROUP + first * idle) * kernel.warp_size
    pool = kernel.num_threads * first
    if total > pool:
        yield f"the roles take {total} registers, and a block of {kernel.num_threads} threads begins with {pool}", span


def _warpgroups(role: Role) -> range:
    """Return the numbers of the role's warpgroups. A register budget holds for all of their warps, including idle ones.
    """
    return range(role.first_warp // WARPGROUP, -(-(role.first_warp + max(role.num_warps, 1)) // WARPGROUP))


def _programs(kernel: Kernel) -> Iterator[Problem]:
    """Check that `Programs` contains all of a persistent kernel, or all of each of its roles. The initialisation of
    mbarriers stands before it, and waits for bulk stores may follow."""
    found = [s for s in walk_statements(kernel.body) if isinstance(s, Programs)]
    if not found:
        return
    if not kernel.persistent:
        yield "the kernel is not persistent: its blocks have one program each", found[0].span
    top = _started([s for s in kernel.body if not isinstance(s, Tag | AssertTags | Spec)])
    bodies = [_started(role.body) for role in top[0].roles] if isinstance(top[0], Roles) else [top]
    beside_roles = isinstance(top[0], Roles) and len(top) > 1
    if beside_roles or not all(map(_only_programs, bodies)) or len(found) != len(bodies):
        yield "programs are all that a kernel, or each of its roles, runs", found[0].span
    if len({s.turns for s in found} - {1}) > 1 or (not isinstance(top[0], Roles) and found[0].turns > 1):
        yield "roles take turns, as many as there are turns", found[0].span
    for stmt in found:
        if not 0 <= stmt.turn < stmt.turns:
            yield f"turn {stmt.turn} of {stmt.turns} is none", stmt.span
        loops = [s for s in walk_statements(stmt.body) if isinstance(s, For) and s.counter is not None]
        skipped = [s for s in loops if not any(s is direct for direct in stmt.body) or not _of_launch(s)]
        if stmt.turns > 1 and skipped:
            yield "loops that count where roles take turns stand in their programs, with bounds alike in all", stmt.span


def _of_launch(loop: For) -> bool:
    """Return True if a loop has as many trips in every program."""
    return all(isinstance(e, Const | Param | Op) for bound in (loop.start, loop.stop) for e in walk(bound))


def _started(body: Iterable[Stmt]) -> tuple[Stmt, ...]:
    """Return the statements after the initialisation of mbarriers and the first arrivals."""
    return tuple(dropwhile(lambda s: isinstance(s, MbarrierInit | MbarrierFence | Barrier | BarrierArrive), body))


def _only_programs(body: tuple[Stmt, ...]) -> bool:
    return bool(body) and isinstance(body[0], Programs) and all(isinstance(s, BulkWait) for s in body[1:])


def _initialisations(kernel: Kernel) -> Iterator[Problem]:
    """Check that at most one statement initialises each array of mbarriers."""
    found = [s for s in walk_statements(kernel.body) if isinstance(s, MbarrierInit)]
    for name, count in Counter(s.barrier for s in found).items():
        if count > 1:
            span = next(s.span for s in found if s.barrier == name)
            yield f"mbarrier `{name}` is initialised {count} times", span


def cluster(kernel: Kernel, target: Target) -> Iterator[Problem]:
    """Yield the problems of a cluster of explicit IR.

    A block of a cluster with roles runs nothing else after the initialisation of its mbarriers. The copy engine and
    asynchronous products must not access a tile that other blocks access.
    """
    if kernel.cluster == 1:
        return
    if not target.clusters:
        yield f"{target.name} has no clusters", kernel.span
    reached = {access.obj for s in walk_statements(kernel.body) for access in peers_of(s)}
    for stmt in walk_statements(kernel.body) if reached else ():
        for name in sorted(_by_engine(stmt) & reached):
            yield f"a peer touches `{name}`, and so does the copy engine or an asynchronous product", stmt.span
    work = _started([s for s in kernel.body if not isinstance(s, Tag | AssertTags | Spec)])
    if any(isinstance(s, Roles) for s in kernel.body) and (len(work) != 1 or not isinstance(work[0], Roles)):
        yield "roles are all that a block of a cluster runs, once its mbarriers are initialised", kernel.span


def _by_engine(stmt: Stmt) -> set[str]:
    """Return the objects that the copy engine or an asynchronous product accesses.

    Proxy fences order these accesses only with accesses of the same block (fence.proxy.async.shared::cta).
    """
    if isinstance(stmt, Copy) and stmt.instr is not None and stmt.instr not in INSTRUCTIONS:
        return set()  # This case is reported where copies are checked.
    return {r.obj for r in relations(stmt) if r.order.by_proxy}


# ---------------------------------------------------------------------------- loops


def loop_names(stmt: For, site: Site) -> Iterator[Problem]:
    """Check that a loop has a valid kind, step and number of stages, and that its counters have names of their own."""
    kind, span = stmt.kind, stmt.span
    if stmt.step < 1 or stmt.stages < 1 or kind not in ("dynamic", "pipelined"):
        yield f"a {kind} loop with step {stmt.step} and {stmt.stages} stages is none", span
    if stmt.producer_warps < 0 or (stmt.producer_warps and kind != "pipelined"):
        yield f"a {kind} loop with {stmt.producer_warps} producer warps is none", span
    taken = {*site.scope.objects, *site.scope.params, *site.scope.barriers}
    for name in stmt.counters:
        if name in site.scope.loops:
            yield f"a loop inside the loop over `{name}` has the same counter", span
        if name in taken:
            yield f"a loop counts `{name}`, which something else is called", span
    if stmt.counter is not None and (stmt.counter.wrap < 1 or stmt.counter.name == stmt.var):
        yield f"the count `{stmt.counter.name}` modulo {stmt.counter.wrap} is none", span


def loop_explicit(stmt: For, site: Site, target: Target) -> Iterator[Problem]:
    """Reject a pipelined loop: explicit IR has no policies."""
    if stmt.kind != "dynamic" or stmt.stages != 1 or stmt.producer_warps:
        yield f"a {stmt.kind} loop is still a policy", stmt.span
