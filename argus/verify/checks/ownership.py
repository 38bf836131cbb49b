"""Registers: proofs are about the elements of tiles, but the machine has registers of threads. This check relates them.

Every thread that holds an element of a register tile must take part whenever the element is written or accumulated,
with the same value and in the same branches, so that replicas stay equal. Every register must be named by an index that
the compiler can enumerate. By its meaning a statement reads all elements before it writes any, but a thread processes
one element after another. So from the tile that it writes, it may read only the element that it writes.
That threads read only their own registers is a rule of well-formed IR (`argus.ir.wellformed`).
"""

from __future__ import annotations

import numpy as np

from argus.ir.expr import Thread, elements, walk
from argus.ir.locality import cells, partial
from argus.ir.nodes import Accumulate, Copy, Fragment, Kernel, Map
from argus.layout import FragmentLayout
from argus.verify.checks.convergence import without_block_values
from argus.verify.findings import Finding, unknown
from argus.verify.model.program import Site, is_uniform


def check(kernel: Kernel, sites: tuple[Site, ...]) -> list[Finding]:
    """Return an unknown finding for every statement whose registers may not correspond to its elements."""
    findings = []
    for site in sites:
        problem = _indices(kernel, site) or _replicas(kernel, site) or _in_place(kernel, site)
        if problem:
            findings.append(
                unknown(
                    "registers-unknown",
                    "machine",
                    site.stmt.span,
                    problem,
                    "use whole tiles, constant tile indices, and no thread-dependent values in replicated registers",
                )
            )
    return findings


def _indices(kernel: Kernel, site: Site) -> str:
    """Check that every register index is a function of the coordinates; return the problem, or ""."""
    layout = getattr(site.stmt, "layout", None)
    for relation in site.accesses:
        obj = kernel.object(relation.obj)
        if layout is None or not isinstance(obj, Fragment):
            continue
        if cells(relation.index, obj.shape, layout) is None:
            return f"a register of '{obj.name}' is chosen at run time; registers have no addresses"
    return ""


def _replicas(kernel: Kernel, site: Site) -> str:
    stmt = site.stmt
    if not isinstance(stmt, (Copy, Map, Accumulate)) or stmt.layout is None:
        return ""
    target = kernel.object(stmt.dst.obj)
    if not isinstance(target, Fragment) or target.layout is None:
        return ""
    collective = isinstance(stmt, Accumulate) and stmt.scope == "warp"
    group = kernel.warp_size if collective else 1
    short = partial(stmt.layout, stmt.dst.index, target.layout, group)
    if short is not None:
        who = "warp" if collective else "thread"
        return f"{who} {short[1]} holds a cell of '{target.name}' and has no part in an element written to it"
    if isinstance(stmt, Accumulate) and not _counted_once(stmt.layout, group):
        return f"an element accumulated into '{target.name}' is held, and would be counted, more than once"
    if int(target.layout.counts().max()) == 1:
        return ""
    exprs = stmt.src.index if isinstance(stmt, Copy) else (stmt.value,)
    exprs += tuple(e for e in (getattr(stmt, "mask", None), *stmt.dst.index) if e is not None)
    if any(isinstance(e, Thread) for expr in exprs for e in walk(expr)):
        return f"replicas of '{target.name}' would differ: the value depends on the thread"
    if any(not is_uniform(without_block_values(kernel, guard)) for guard in site.guards):
        return f"replicas of '{target.name}' would differ: whether it is written depends on the thread"
    return ""


def _in_place(kernel: Kernel, site: Site) -> str:
    """Check that a thread computes each element once, and reads only this element of the tile that it writes."""
    stmt = site.stmt
    if not isinstance(stmt, (Copy, Map, Accumulate)) or stmt.layout is None or getattr(stmt, "scope", "") == "warp":
        return ""
    if not isinstance(kernel.object(stmt.dst.obj), Fragment):
        return ""
    exprs = [stmt.mask, *stmt.src.index] if isinstance(stmt, Copy) else [stmt.value, getattr(stmt, "mask", None)]
    own = [e for expr in exprs if expr is not None for e in elements(expr) if e.obj == stmt.dst.obj]
    if not own:
        return ""
    if isinstance(stmt, Copy):
        return f"what is copied to '{stmt.dst.obj}' depends on what that holds"
    if any(e.index != stmt.dst.index for e in own):
        return f"'{stmt.dst.obj}' is written while other elements are computed from it"
    twice = f"a thread computes an element of '{stmt.dst.obj}' from itself twice"
    return "" if _counted_once(stmt.layout, 1) else twice


def _counted_once(layout: FragmentLayout, group: int) -> bool:
    """Return True if each group of threads holds an element once, apart from replicas across its lanes."""
    allowed = 1
    lanes = 1
    for mode in layout.threads:
        if lanes < group and mode.dim is None:
            allowed *= mode.extent
        lanes *= mode.extent
    linear = layout.linear().reshape(-1, group * layout.num_values)
    counts = (int(np.unique(group_elements, return_counts=True)[1].max()) for group_elements in linear)
    return all(count <= allowed for count in counts)
