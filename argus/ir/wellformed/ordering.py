"""Rules of statements that only order others: barriers, groups, waits, mbarriers and steps of waves."""

from __future__ import annotations

from collections.abc import Iterator

from argus.ir import waves
from argus.ir.instruction import BARRIERS, INSTRUCTIONS
from argus.ir.instruction.limits import MAX_COUNT
from argus.ir.nodes import (
    Barrier,
    BarrierArrive,
    BarrierSync,
    BeginTurns,
    BulkCopy,
    BulkWait,
    CommitGroup,
    EndTurns,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierFence,
    MbarrierInit,
    MbarrierWait,
    MmaWait,
    Roles,
    WaitGroup,
    WaveStep,
)
from argus.ir.statement import Problem
from argus.ir.target import TARGETS, Target
from argus.ir.wellformed.site import Site, mbarrier


def barrier(stmt: Barrier, site: Site) -> Iterator[Problem]:
    """Check that a kernel with a cluster barrier has a cluster."""
    if site.kernel.cluster == 1 and stmt.scope != "block":
        yield "a barrier joins the blocks of a cluster, and the kernel has none", stmt.span


def barrier_explicit(stmt: Barrier, site: Site, target: Target) -> Iterator[Problem]:
    """Check that, in a cluster with roles, barriers outside of roles have cluster scope, and barriers inside have block
    scope."""
    if site.kernel.cluster == 1 or not any(isinstance(s, Roles) for s in site.kernel.body):
        return
    outside = not site.around
    if stmt.scope != ("cluster" if outside else "block"):
        where = "before the roles of a cluster, all of its blocks" if outside else "in a role, its threads alone"
        yield f"{where} meet at a barrier", stmt.span


def pending(stmt: WaitGroup | MmaWait | BulkWait, site: Site) -> Iterator[Problem]:
    """Check that a wait leaves a non-negative number of groups pending."""
    if stmt.pending < 0:
        yield f"cannot wait for {stmt.pending} pending groups", stmt.span


def groups_explicit(stmt: CommitGroup | WaitGroup, site: Site, target: Target) -> Iterator[Problem]:
    """Check that the target has copies that complete in groups."""
    if not target.has(INSTRUCTIONS["cp.async"]):
        yield f"{target.name} has no cp.async, and so no groups of copies", stmt.span


def initialised(stmt: MbarrierInit | MbarrierFence, site: Site) -> Iterator[Problem]:
    """Check that an array of mbarriers is initialised at a place that runs once."""
    if not site.once:
        yield "mbarriers are initialised outside of loops, branches and programs", stmt.span
    if isinstance(stmt, MbarrierInit) and stmt.barrier not in site.scope.barriers:
        yield f"there is no mbarrier `{stmt.barrier}`", stmt.span


def expected(stmt: MbarrierExpect, site: Site) -> Iterator[Problem]:
    """Check that one warp announces the bytes of a phase."""
    yield from mbarrier(stmt.barrier, stmt.index, site, stmt.span)
    yield from by_one_warp(stmt, site)


def expected_explicit(stmt: MbarrierExpect, site: Site, target: Target) -> Iterator[Problem]:
    """Check that an mbarrier can count the announced bytes."""
    yield from in_role(stmt, site, target)
    if stmt.bytes % 16 or not 0 < stmt.bytes <= MAX_COUNT:
        yield f"no phase of mbarrier `{stmt.barrier}` expects {stmt.bytes} bytes", stmt.span


def arrival(stmt: MbarrierArrive, site: Site) -> Iterator[Problem]:
    """Check that a kernel with an arrival at mbarriers of a cluster has a cluster."""
    yield from mbarrier(stmt.barrier, stmt.index, site, stmt.span)
    if site.kernel.cluster == 1 and stmt.scope != "block":
        yield "an arrival reaches the blocks of a cluster, and the kernel has none", stmt.span


def arrival_explicit(stmt: MbarrierArrive, site: Site, target: Target) -> Iterator[Problem]:
    """Check that a role makes the arrival, and that its scope is a block or a cluster."""
    yield from in_role(stmt, site, target)
    if stmt.scope not in ("block", "cluster"):
        yield f"nothing arrives at the scope of a {stmt.scope}", stmt.span
    if stmt.scope == "cluster":
        yield from of_cluster(stmt, site)


def phase(stmt: MbarrierWait, site: Site) -> Iterator[Problem]:
    """Check that a wait names an mbarrier and a parity."""
    yield from mbarrier(stmt.barrier, stmt.index, site, stmt.span, stmt.parity)


def in_role(
    stmt: MbarrierExpect | MbarrierArrive | MbarrierWait | BulkCopy, site: Site, target: Target
) -> Iterator[Problem]:
    """Check that the statement is in a role: outside of roles, every warp would arrive, or issue a bulk copy, by
    itself."""
    if site.role is None:
        yield "mbarriers order roles, and bulk copies that they count are a role's: this stands in none", stmt.span


def by_one_warp(stmt: MbarrierExpect | BulkCopy, site: Site) -> Iterator[Problem]:
    """Check that a role that issues bulk copies or expects bytes has one warp."""
    role = site.role
    if role is not None and role.num_warps != 1:
        text = f"role `{role.name}` issues bulk copies with {role.num_warps} warps: one thread may outrun them"
        yield text, stmt.span


def of_cluster(stmt: MbarrierArrive | BulkCopy, site: Site) -> Iterator[Problem]:
    """Check that a cluster whose mbarriers are used has roles."""
    if site.kernel.cluster > 1 and not any(isinstance(s, Roles) for s in site.kernel.body):
        yield "mbarriers of the blocks of a cluster order roles, and the kernel has none", stmt.span


def named_barrier(stmt: BarrierSync | BarrierArrive, site: Site) -> Iterator[Problem]:
    """Check that a named barrier is used in a role, and that its number is not one that a role has for itself."""
    roles = next((s for s in site.around if isinstance(s, Roles)), None)
    if roles is None:
        yield "named barriers order roles, and stand in them", stmt.span
        return
    row = BARRIERS["bar.sync" if isinstance(stmt, BarrierSync) else "bar.arrive"]
    first, threads = len(roles.roles) + 1, site.kernel.num_threads
    if not first <= stmt.number < row.barriers:
        text = f"barrier {stmt.number} is not free: the block has 0, its roles have 1 to {first - 1}, and there are"
        yield f"{text} {row.barriers}", stmt.span
    if stmt.count % row.unit or not 0 < stmt.count <= threads:
        text = f"barrier {stmt.number} counts {stmt.count} threads: a multiple of {row.unit}, at most the block's"
        yield f"{text} {threads}", stmt.span
    target = TARGETS.get(site.kernel.target or "")
    if target is not None and not target.has(row):
        yield f"{target.name} has no {row.name}", stmt.span


def wave_step(stmt: WaveStep, site: Site) -> Iterator[Problem]:
    """Check that the operands of a wave's step are in the instruction's range."""
    yield from waves.wave_step(stmt)


def turns(stmt: BeginTurns | EndTurns, site: Site) -> Iterator[Problem]:
    """Check that waves take turns once, in a part of the kernel's body, and that they are of an even number."""
    if not site.once or site.role is not None or waves.turns(site.kernel) is None:
        yield "waves take turns from one `begin_turns` to one `end_turns`, in no loop, branch or role", stmt.span
    if site.kernel.num_warps % 2:
        yield f"waves take turns in halves, and the block has {site.kernel.num_warps}", stmt.span


def wave_step_explicit(stmt: WaveStep, site: Site, target: Target) -> Iterator[Problem]:
    """Check that the target has the instruction."""
    yield from waves.off_target(stmt, target)
