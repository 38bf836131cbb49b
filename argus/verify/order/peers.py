"""Accesses to a peer's tiles in a cluster: only after the peer's block has started, and before it ends.

A block's shared memory exists from its start to its end, and the blocks of a cluster start and end independently
(CUDA C++ guide, distributed shared memory). This check looks at the united block (argus/ir/cluster.py). An access comes
after the start of the tile's block if its role knows of anything that a role of that block did. It comes before the end
of that block if some role of that block learns of the access. In a persistent block that must be in the same program,
which may be the last one. Copies by the copy engine, and mbarriers of peers, are not checked here: they are waited for
(argus/verify/order/beginning.py), or rely on the last barrier of kernels with roles.
"""

from __future__ import annotations

from argus.diagnostic import Verdict
from argus.ir.access import Mode, Relation
from argus.ir.cluster import rank_of
from argus.ir.instruction import Order
from argus.ir.nodes import Barrier, Role, Roles
from argus.verify.findings import Finding, place_of, unknown
from argus.verify.model.isl import Set, smallest
from argus.verify.model.program import Site
from argus.verify.model.relations import Model
from argus.verify.order.beginning import in_its_program
from argus.verify.order.order import Ordering


def check(model: Model, ordering: Ordering) -> list[Finding]:
    """Find accesses to tiles of a peer block that may not have started yet, or may have ended."""
    by_rank: dict[int, list[Role]] = {}
    for stmt in model.kernel.body:
        for role in stmt.roles if isinstance(stmt, Roles) else ():
            rank = rank_of(role.name)
            if rank is not None:
                by_rank.setdefault(rank, []).append(role)
    met = any(isinstance(stmt, Barrier) for stmt in model.kernel.body)
    tiles = {tile.name for tile in model.kernel.shared}
    findings: list[Finding] = []
    for site in model.sites:
        for access in site.accesses:
            owner = rank_of(access.obj) if access.obj in tiles else None
            if owner is None or site.role is None or owner == rank_of(site.role.name) or access.order is not Order.SYNC:
                continue
            roles = by_rank[owner]
            early = late = ordering.issued(site).domain()
            for role in roles:
                early = ordering.before_start(early, role, site)
                for known in ordering.released(site, access.order, role):
                    late = late.subtract(in_its_program(model, site, known).domain())
            if not met and not model.context.nothing(early):
                findings.append(_found(model, site, access, early, "peer-not-started"))
            elif not model.context.nothing(late):
                findings.append(_found(model, site, access, late, "peer-exited"))
    return findings


_WORDS = {
    "peer-not-started": ("need not have started", "before", "may come before the peer's shared memory is there"),
    "peer-exited": ("may have ended", "after", "may come when the peer's shared memory is another block's"),
}


def _found(model: Model, site: Site, access: Relation, left: Set, code: str) -> Finding:
    state, when, label = _WORDS[code]
    what = "read" if access.mode is Mode.READ else "write"
    name, span = access.obj.rpartition(".")[0], site.stmt.span
    text = f"{what} of a peer's tile '{name}', whose block {state}"
    help = f'let the blocks meet {when} it: al.barrier(scope="cluster")'
    if not model.domain(site)[1]:
        return unknown("races-unknown", "races", span, f"cannot exclude: {text}", help)
    place = place_of(model.kernel, smallest(model.context.known(left)), site)
    return Finding(code, "races", Verdict.REFUTED, text, span, label=label, help=help, place=place)
