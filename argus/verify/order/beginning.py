"""Checks at the start and end of a block: mbarriers are initialised before use, and no asynchronous work is left.

Every use of an mbarrier must come after the fence that follows its initialisation (PTX ISA, mbarrier.init,
fence.mbarrier_init). Shared memory belongs to another block as soon as this one ends, so the block has to wait for
the copies of the copy engine and the products of the tensor cores.
"""

from __future__ import annotations

from argus.diagnostic import Note, Verdict
from argus.ir.access import Mode
from argus.ir.instruction import Order
from argus.ir.nodes import BulkCommit, BulkWait, MbarrierInit
from argus.verify.findings import Finding, place_of, unknown
from argus.verify.model.barriers import mbarrier_use
from argus.verify.model.isl import Map, Set, isl, smallest
from argus.verify.model.program import PROGRAM, Site
from argus.verify.model.relations import Model
from argus.verify.order.order import Ordering


def initialised(model: Model, ordering: Ordering) -> list[Finding]:
    """Find uses of mbarriers at which the initialisation may not be visible."""
    made = {s.stmt.barrier: s for s in model.sites if isinstance(s.stmt, MbarrierInit)}
    findings: list[Finding] = []
    for site in model.sites:
        used = mbarrier_use(site.stmt)
        if used is None:
            continue
        first = made.get(used[0])
        early = ordering.issued(site).domain() if first is None else ordering.invisible(first, site)
        if not model.context.nothing(early):
            findings.append(_late(model, used[0], first, site, early))
    return findings


def _late(model: Model, name: str, first: Site | None, site: Site, early: Set) -> Finding:
    text = f"mbarrier '{name}' is used where its initialisation need not be visible"
    help = "initialise it before the roles: mbarrier_init, then mbarrier_fence, then a barrier of the block"
    if not model.domain(site)[1]:
        return unknown("initialisation-unknown", "initialisation", site.stmt.span, f"cannot exclude: {text}", help)
    notes = () if first is None else (Note("initialised here", first.stmt.span),)
    place = place_of(model.kernel, smallest(model.context.known(early)), site)
    label = "may find what was there before"
    return Finding(
        "late-initialisation", "initialisation", Verdict.REFUTED, text, site.stmt.span, label=label, notes=notes,
        help=help, place=place,
    )  # fmt: skip


def finished(model: Model, ordering: Ordering) -> list[Finding]:
    """Find bulk copies and asynchronous products that no thread waits for."""
    findings: list[Finding] = []
    for site in model.sites:
        orders = {a.order for a in site.accesses}
        if Order.ASYNC_BULK in orders:
            seen = [in_its_program(model, site, times) for times in ordering.protocol.observed(site).values()]
            what, help = "a bulk copy", "wait for the phase that counts its bytes before the block ends"
        elif Order.BULK_READ in orders:
            seen = _awaited(model, site, ordering)
            kind = "reduction" if any(a.mode is Mode.ACCUMULATE for a in site.accesses) else "store"
            what, help = f"a bulk {kind}", "wait for its group (bulk_wait_read 0) at the end of the role that issues it"
        elif Order.ASYNC_MMA in orders:
            seen = [in_its_program(model, site, ordering.completed(site, Order.ASYNC_MMA))]
            what, help = "an asynchronous product", "wait for its group (mma_wait 0) before the program ends"
        else:
            continue
        left = ordering.issued(site).domain()
        for times in seen:
            left = left.subtract(times.domain())
        if model.context.nothing(left):
            continue
        text = f"{what} may still be under way when the block ends"
        if not model.domain(site)[1]:
            findings.append(unknown("progress-unknown", "progress", site.stmt.span, f"cannot exclude: {text}", help))
            continue
        place = place_of(model.kernel, smallest(model.context.known(left)), site)
        findings.append(
            Finding("unfinished-copy", "progress", Verdict.REFUTED, text, site.stmt.span, help=help, place=place)
        )
    return findings


def _awaited(model: Model, site: Site, ordering: Ordering) -> list[Map]:
    """Return the times at which a bulk store counts as awaited.

    It counts when it has read its source, if its own program waits for that: the next program may belong to another
    block. It also counts when its group was closed, if the role waits for all of its stores after its programs.
    """
    seen = [in_its_program(model, site, ordering.completed(site, Order.BULK_READ))]
    if any(_last_wait(model, s, site) for s in model.sites):
        seen.append(in_its_program(model, site, ordering.closed(site, Order.BULK_READ)))
    return seen


def _last_wait(model: Model, wait: Site, store: Site) -> bool:
    """Return True if a wait covers every group of the store's role: it comes once, after the store and all commits."""
    everything = isinstance(wait.stmt, BulkWait) and wait.stmt.pending == 0 and not (wait.loops or wait.guards)
    if not everything or wait.role is not store.role or wait.index < store.index:
        return False
    commits = (s for s in model.sites if isinstance(s.stmt, BulkCommit) and s.role is store.role)
    return all(commit.index < wait.index for commit in commits)


def in_its_program(model: Model, site: Site, times: Map) -> Map:
    """Restrict `times` to the program of the site, because the block may have no program after it."""
    if PROGRAM not in site.iterators:
        return times
    counter, place = site.iterators.index(PROGRAM), model.times_of[site.index].index(PROGRAM)
    return times.equate(isl.dim_type.in_, counter, isl.dim_type.out, place)
