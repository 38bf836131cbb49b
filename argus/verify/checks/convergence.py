"""Convergence: all threads that a barrier, a collective or a loop needs take the same branches to it.

A barrier needs the whole block, a collective its warp, and a loop the whole block.
"""

from __future__ import annotations

from argus.diagnostic import Verdict
from argus.ir.expr import Elem, Expr, LoopVar, Param, ProgramId, Thread, rewrite, walk
from argus.ir.instruction import WGMMA
from argus.ir.machine import WARPGROUP
from argus.ir.nodes import (
    Barrier,
    BarrierArrive,
    BarrierSync,
    For,
    Fragment,
    Kernel,
    Mma,
    MmaCommit,
    MmaFence,
    MmaWait,
    WaveBarrier,
)
from argus.simulate.sizes import integer_arguments
from argus.verify.checks.bounds import BoundsChecker
from argus.verify.findings import FailurePlace, Finding, unknown
from argus.verify.model.program import Site, is_collective, is_uniform
from argus.verify.model.solver import Answer, Solver, z3

_OTHER = Param("other thread")


def check(bounds: BoundsChecker) -> list[Finding]:
    """Find divergent barriers, collectives and loops; `bounds` holds the solver with its context."""
    kernel, findings = bounds.kernel, []
    for site in bounds.sites:
        if is_collective(site):
            for guard in site.guards:
                finding = _diverges(bounds, site, guard, _team(kernel, site))
                if finding is not None:
                    findings.append(finding)
                    break
        if isinstance(site.stmt, For):
            for bound in (site.stmt.start, site.stmt.stop):
                if not is_uniform(without_block_values(kernel, bound)):
                    findings.append(_loop(site))
                    break
    return findings


def without_block_values(kernel: Kernel, expr: Expr) -> Expr:
    """Replace registers that every thread of the block holds by uniform parameters, since replicas are always equal."""

    def change(e: Expr) -> Expr | None:
        if isinstance(e, Elem) and all(is_uniform(i) for i in e.index) and _held_by_all(kernel, e.obj):
            return Param(f"value of {e.obj}{e.index}", e.dtype)
        return None

    return rewrite(expr, change)


def _held_by_all(kernel: Kernel, name: str) -> bool:
    obj = kernel.object(name)
    return isinstance(obj, Fragment) and obj.layout is not None and bool((obj.layout.locate() >= 0).all())


def _team(kernel: Kernel, site: Site) -> tuple[str, int]:
    """Return the name and the number of the threads that must meet at a statement."""
    match site.stmt:
        case BarrierSync() | BarrierArrive() if site.role is not None:
            return "the role", site.role.num_warps * kernel.warp_size
        case Barrier() | WaveBarrier():
            return "the block", kernel.num_threads
        case MmaFence() | MmaCommit() | MmaWait():
            return "the warpgroup", WARPGROUP * kernel.warp_size
        case Mma(instr=instr) if instr in WGMMA:
            return "the warpgroup", WARPGROUP * kernel.warp_size
        case _:
            return "the warp", kernel.warp_size


def _diverges(bounds: BoundsChecker, site: Site, guard: Expr, team: tuple[str, int]) -> Finding | None:
    kernel, solver = bounds.kernel, bounds.solver
    (who, size), whole_block = team, isinstance(site.stmt, Barrier | BarrierSync | BarrierArrive | WaveBarrier)
    guard = without_block_values(kernel, guard)
    if is_uniform(guard):
        return None
    what = "barrier" if whole_block else "collective operation"
    help = f"move the {what} out of the branch, so that every thread of {who} reaches it"
    if any(isinstance(e, Elem) for e in walk(guard)):
        text = f"cannot decide whether all threads of {who} reach this {what}: the branch depends on data"
        return unknown("convergence-unknown", "convergence", site.stmt.span, text, help)
    other = solver.integer(_OTHER)
    mine = solver.integer(Thread())
    facts = [*_outer_facts(bounds, site, guard), other >= 0, other < (size if whole_block else kernel.num_threads)]
    if not whole_block:
        facts.append(mine / size == other / size)
    else:
        facts.append(mine < size)
    moved = rewrite(guard, lambda e: _OTHER if isinstance(e, Thread) else None)
    facts.append(solver.condition(guard))
    goal = solver.condition(moved)
    answer = solver.holds(goal, facts)
    if answer.verdict is Verdict.PROVED:
        return None
    if answer.verdict is Verdict.UNKNOWN:
        text = f"cannot decide whether all threads of {who} reach this {what}: {answer.reason}"
        return unknown("convergence-unknown", "convergence", site.stmt.span, text, help)
    order: list[Expr] = list(integer_arguments(kernel))
    order += [*kernel.program_ids, Thread(), _OTHER]
    answer = solver.shrink(goal, facts, order, answer)
    message = f"thread {answer.model[Thread()]} reaches this {what}, thread {answer.model[_OTHER]} of {who} does not"
    return Finding(
        "divergent-barrier" if whole_block else "divergent-collective",
        "convergence",
        Verdict.REFUTED,
        message,
        site.stmt.span,
        label=f"not all threads of {who} arrive",
        help=help,
        place=_place(bounds, site, answer),
        arrived=f"thread {answer.model[Thread()]} alone",
        expected=f"every thread of {who}",
    )


def _outer_facts(bounds: BoundsChecker, site: Site, guard: Expr) -> list[z3.BoolRef]:
    """Return the facts about a site from its loop ranges and from the uniform branches around it, other than `guard`.
    """
    solver: Solver = bounds.solver
    facts = []
    for loop in site.loops:
        var = solver.integer(LoopVar(loop.var))
        facts.append(z3.And(var >= solver.integer(loop.start), var < solver.integer(loop.stop)))
        facts.append((var - solver.integer(loop.start)) % loop.step == 0)
    facts += [solver.condition(g) for g in site.guards if is_uniform(g) and g != guard]
    return facts


def _place(bounds: BoundsChecker, site: Site, answer: Answer) -> FailurePlace:
    kernel, model = bounds.kernel, answer.model
    axes = len(kernel.grid) if kernel.grid is not None else 1
    return FailurePlace(
        sizes={p.name: model.get(p, 1) for p in integer_arguments(kernel)},
        block=tuple(model.get(ProgramId(axis), 0) for axis in range(axes)),
        iteration={v: model.get(LoopVar(v), 0) for v in site.iterators},
    )


def _loop(site: Site) -> Finding:
    return unknown(
        "divergent-loop",
        "convergence",
        site.stmt.span,
        "the bounds of this loop differ between threads, or cannot be shown not to",
        "give the loop bounds that are the same for the whole block",
    )
